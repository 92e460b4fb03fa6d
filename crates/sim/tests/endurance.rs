//! What must hold between the algorithms whose endurance is simulated, over generated traces, and over public ones with the feature
//! `real-traces`.

#![allow(clippy::unwrap_used)]

mod workloads;

use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance::{Algorithm, Counts, EnduranceError, Job, Run, Settings, simulate_endurance};
use flashwise_sim::progress::Silent;
use flashwise_sim::simulate::Warmup;
use flashwise_sim::trace::Trace;
use workloads::generated;

const NO_WARMUP: Warmup = Warmup::Accesses(0);

/// Small erase units for small traces, and no DRAM.
fn small() -> Settings {
    Settings { ram: Ram::Bytes(0), erase_unit_bytes: 64 << 10, ..Settings::default() }
}

fn try_run(
    trace: &Trace,
    algorithms: &[&str],
    shares: &[f64],
    settings: &Settings,
) -> Result<Vec<Run>, EnduranceError> {
    let job = |algorithm: &str, share: f64| Job {
        trace: 0,
        algorithm: algorithm.parse::<Algorithm>().unwrap(),
        size: format!("{}%", share * 100.0),
        capacity_blocks: (trace.unique_blocks() as f64 * share) as usize,
    };
    let jobs = shares.iter().flat_map(|&share| algorithms.iter().map(move |algorithm| job(algorithm, share))).collect();
    simulate_endurance(std::slice::from_ref(trace), jobs, settings, NO_WARMUP, &Silent)
}

/// What the algorithms counted, by size.
fn run<const N: usize>(trace: &Trace, algorithms: [&str; N], shares: &[f64], settings: &Settings) -> Vec<[Counts; N]> {
    let runs = try_run(trace, &algorithms, shares, settings).unwrap();
    runs.chunks(N).map(|runs| std::array::from_fn(|at| runs[at].counts)).collect()
}

fn traces() -> Vec<Trace> {
    vec![
        generated("zipf:skew=0.9", 30_000, 400_000, 0.7, 1),
        generated("zipf:skew=0.6", 30_000, 400_000, 0.9, 2),
        generated("zipf:skew=1.1", 30_000, 400_000, 0.4, 3),
        generated("phases:skew=0.9,requests=20000", 30_000, 400_000, 0.6, 4),
        generated("loop", 20_000, 300_000, 0.8, 5),
    ]
}

const SHARES: [f64; 3] = [0.02, 0.05, 0.2];

fn with_and_without_dram() -> [Settings; 2] {
    [small(), Settings { ram: Ram::Share(0.05), ..small() }]
}

#[test]
fn m_m_plus_and_c_have_the_same_hits_and_each_erases_less() {
    for trace in traces() {
        for settings in with_and_without_dram() {
            for [m, m_plus, c] in run(&trace, ["m", "m+", "c"], &SHARES, &settings) {
                let hits = |counts: &Counts| (counts.reads, counts.ram_hits, counts.flash_hits);
                assert_eq!((hits(&m_plus), hits(&c)), (hits(&m), hits(&m)), "{}", trace.name());
                let erasures = [&m, &m_plus, &c].map(Counts::erasures);
                assert!(erasures.is_sorted_by(|more, fewer| more >= fewer), "{}: {erasures:?}", trace.name());
                assert!(c.erasures() > 0, "{}", trace.name());
                assert_eq!(m_plus.insertions(), c.insertions());
            }
        }
    }
}

#[test]
fn no_online_policy_hits_more() {
    for trace in traces() {
        for settings in with_and_without_dram() {
            for counts in run(&trace, ["m+", "lru", "larc", "arc", "lirs", "s3-fifo"], &SHARES, &settings) {
                for online in &counts[1..] {
                    assert!(online.rhr() <= counts[0].rhr(), "{}", trace.name());
                }
            }
        }
    }
}
