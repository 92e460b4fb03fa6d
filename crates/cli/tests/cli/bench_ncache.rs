//! The short form of `make bench-ncache`: the harness creates a pool and drives the real server, and the counts of both
//! agree.
use std::path::Path;

use flashwise_benches::ncache::{Experiment, Outcome, Template, chart, run, table};

/// How many times smaller and shorter than the paper's: 3 s, after 6.
const SCALE: u64 = 1200;

fn experiment(flash_mb: u64, write_buffer_percent: u64) -> Experiment {
    Experiment {
        ram_mb: 1024,
        flash_mb,
        write_buffer_percent,
        policy: "larc".to_owned(),
        scale: SCALE,
        warm_up: 2,
        clients: 8,
        seed: 1,
    }
}

#[test]
fn transactions_run_against_a_pool_and_its_figures_are_those_of_the_clients() {
    let program = Path::new(env!("CARGO_BIN_EXE_flashwise"));
    let folder = tempfile::tempdir().unwrap();
    let template = Template::make(program, SCALE, folder.path()).unwrap();
    let experiments = [experiment(0, 50), experiment(6144, 50), experiment(6144, 0)];
    let runs: Vec<(Experiment, Outcome)> = std::thread::scope(|scope| {
        let (template, path) = (&template, folder.path());
        let start = |experiment| scope.spawn(move || run(experiment, program, template, path).unwrap());
        let started: Vec<_> = experiments.iter().map(start).collect();
        experiments.iter().cloned().zip(started.into_iter().map(|thread| thread.join().unwrap())).collect()
    });
    for (experiment, outcome) in &runs {
        let Outcome { totals, status, .. } = *outcome;
        let context = format!("{experiment:?}: {outcome:?}");
        assert!(totals.transactions > 20, "{context}");
        // Each reads a page of two blocks and writes it and a block of the log. Some were under way at the two moments.
        let differ = |blocks: u64, each: u64| (blocks as i64 - (totals.transactions * each) as i64).unsigned_abs();
        assert!(differ(status.reads, 2) <= totals.transactions / 5 + 100, "{context}");
        assert!(differ(status.writes, 3) <= totals.transactions / 5 + 100, "{context}");
        let hot = totals.hot as f64 / totals.transactions as f64;
        assert!((0.8..0.98).contains(&hot), "{context}");
        assert_eq!(status.flash_bytes_written > 0, experiment.flash_mb > 0, "{context}");
        // With an SSD and without, writes wait in RAM.
        assert_eq!(status.ram_write_hits > 0, experiment.write_buffer_percent > 0, "{context}");
    }
    // Only longer runs show the saving of the write buffer.
    assert!(runs[1].1.read_hit_ratio() > runs[0].1.read_hit_ratio(), "{runs:?}");
    let table = table(&runs);
    assert_eq!(table.lines().count(), 2 + 2 + 1 + 2 + 1, "{table}");
    assert!(table.contains("| 1024 MB | 0 MB | ") && table.contains("| 1.00 |"), "{table}");
    let chart = chart(&runs);
    assert_eq!(chart.matches("<svg ").count(), 1 + 3, "{chart}");
}

#[test]
fn without_a_server_nothing_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let problem = Template::make(Path::new("/no/such/program"), SCALE, folder.path()).err().unwrap();
    assert!(problem.to_string().contains("/no/such/program"), "{problem}");
}
