//! The short form of `make bench-larc`: the harness drives the real server, and the counts of both agree.
use std::path::Path;

use flashwise_benches::larc::{Experiment, Kind, Outcome, chart, run, table};

/// How many times smaller and shorter than the paper's: 9 s.
const SCALE: u64 = 400;

fn runs() -> Vec<(Experiment, Outcome)> {
    let experiment = |kind, policy| Experiment::new(kind, policy, 2, "0B", SCALE, 1);
    let experiments = Kind::ALL.into_iter().flat_map(|kind| ["lru", "larc"].map(|policy| experiment(kind, policy)));
    let program = Path::new(env!("CARGO_BIN_EXE_flashwise"));
    let directory = tempfile::tempdir().unwrap();
    let (directory, experiments): (_, Vec<_>) = (directory.path(), experiments.collect());
    std::thread::scope(|scope| {
        let started: Vec<_> =
            experiments.iter().map(|experiment| scope.spawn(|| run(experiment, program, directory).unwrap())).collect();
        let outcomes: Vec<_> = started.into_iter().map(|thread| thread.join().unwrap()).collect();
        experiments.iter().cloned().zip(outcomes).collect()
    })
}

#[test]
fn both_workloads_run_against_the_server_and_its_figures_are_those_of_the_clients() {
    let runs = runs();
    for (experiment, outcome) in &runs {
        let Outcome { operations, guest_blocks, status, status_at_end, .. } = *outcome;
        let context = format!("{experiment:?}: {outcome:?}");
        // The server received the guest's requests, most of them in time.
        assert_eq!(guest_blocks, [status_at_end.reads, status_at_end.writes], "{context}");
        assert!(status.reads > 200 && status.writes > 200, "{context}");
        // Some reads hit, and some do not. In netsfs hardly any does, whose page cache is half as large as the flash.
        assert!(status.flash_read_hits > 0 || experiment.kind == Kind::Netsfs, "{context}");
        assert!(status.flash_read_hits < status.reads, "{context}");
        assert!(status.backend_read_blocks >= status.reads - status.flash_read_hits, "{context}");
        // Every block on flash has a cause.
        let causes = [
            status.flash_client_blocks,
            status.flash_admission_blocks,
            status.flash_copy_forward_blocks,
            status.flash_metadata_blocks,
        ];
        assert!(status.flash_client_blocks > 0 && status.flash_admission_blocks > 0, "{context}");
        assert_eq!(causes.iter().sum::<u64>() * 4096, status.flash_bytes_written, "{context}");
        assert!(operations > 100 && outcome.seconds > 8.0, "{context}");
    }
    assert!(runs.iter().any(|(_, outcome)| outcome.status.flash_copy_forward_blocks > 0), "{runs:?}");
    for pair in runs.chunks(2) {
        let [lru, larc] = [0, 1].map(|index| pair[index].1.written_without_copies_per_operation());
        // By how much is for runs that take longer.
        assert!(larc < lru, "LARC writes {larc} blocks per operation, LRU {lru}: {pair:?}");
    }
    let table = table(&runs);
    assert_eq!(table.lines().count(), 2 + 2 * 3, "{table}");
    assert!(table.contains("| webserver | off | 2 GB | ") && table.contains("| netsfs | off | 2 GB | "), "{table}");
    let chart = chart(&runs);
    assert_eq!(chart.matches("<svg ").count(), 1 + 4, "{chart}");
}

#[test]
fn without_a_server_nothing_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let experiment = Experiment::new(Kind::Netsfs, "no-such-policy", 2, "0B", SCALE, 1);
    let problem = run(&experiment, Path::new(env!("CARGO_BIN_EXE_flashwise")), directory.path()).unwrap_err();
    assert!(problem.to_string().contains("no-such-policy"), "{problem}");
    let problem = run(&experiment, Path::new("/no/such/program"), directory.path()).unwrap_err();
    assert!(problem.to_string().contains("/no/such/program"), "{problem}");
}
