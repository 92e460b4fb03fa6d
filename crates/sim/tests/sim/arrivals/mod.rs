//! Waits against queueing theory, and against a simulation that is written another way.
//!
//! Sources: Pollaczek-Khinchine for one channel (mean wait `lambda E[S^2] / (2 (1 - rho))`); Crommelin: Delay
//! probability formulae when the holding times are constant. Post Office Electrical Engineers' Journal 25, 1932, for
//! several.

mod event_simulation;

use crate::workloads::{self, normalised};
use flashwise_core::access::Op;
use flashwise_device::{ArrayModel, tier_model_of_option};
use flashwise_sim::array::{Arrivals, Waits, setting, storage_bytes};
use flashwise_sim::online::replay;
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_trace::Trace;
use flashwise_trace::request::Request;
use flashwise_trace::tools::generate::{Arrivals as Generated, Length, Workload};

/// So many requests for one block each, so many per second, independent of each other.
fn poisson(requests: u64, rate: f64, read_share: f64) -> Trace {
    let workload = Workload {
        pattern: "zipf:skew=0".parse().unwrap(),
        blocks: 1000,
        length: Length::Accesses(requests),
        read_share,
        request_blocks: 1..=1,
        rate,
        arrivals: Generated::Poisson,
        seed: 7,
        block_size_bytes: 4096,
    };
    normalised("poisson", workload.generator().unwrap().map(Result::unwrap))
}

fn model(cache: &str, storage: &str) -> ArrayModel {
    let tier = |text| tier_model_of_option("test", text).unwrap();
    ArrayModel { cache: tier(cache), storage: tier(storage) }
}

/// LRU behind a rule before an array.
fn waits(trace: &Trace, rule: &str, capacity: usize, model: &ArrayModel, arrivals: &str, warmup: u64) -> Waits {
    let (policy, rule) = ("lru".parse().unwrap(), rule.parse().unwrap());
    let setting = setting(&model.array(), 4096, capacity, storage_bytes(trace));
    let arrivals: Arrivals = arrivals.parse().unwrap();
    let counting = Counting { warmup: Warmup::Accesses(warmup), epoch: None };
    let replayed = replay(trace, &policy, Some(&rule), capacity, &setting, counting, Some((model, arrivals)));
    replayed.waits.unwrap()
}

/// Nothing is admitted, so that the storage does all: reads 200 us, writes 1,000 us.
fn waits_of_storage(rate: f64, read_share: f64, channels: u32) -> Waits {
    let model = model("slc", &format!("mlc:channels={channels}"));
    waits(&poisson(400_000, rate, read_share), "probability:p=0", 10, &model, "trace", 0)
}

fn within(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "found {found}, expected {expected}");
}

#[test]
fn one_channel_waits_as_long_as_pollaczek_and_khinchine_say() {
    for rho in [0.3, 0.5, 0.7, 0.8] {
        let waits = waits_of_storage(rho / 200e-6, 1.0, 1);
        within(waits.latencies.mean_us, 200.0 + 200.0 * rho / (2.0 * (1.0 - rho)), 0.03);
        within(waits.storage_utilisation.unwrap(), rho, 0.01);
        assert_eq!(waits.cache_utilisation, Some(0.0));
    }
    // Half writes: E[S] = 600 us, E[S^2] = (200^2 + 1000^2) / 2 us^2.
    for rho in [0.3, 0.6, 0.75] {
        let rate = rho / 600e-6;
        let waits = waits_of_storage(rate, 0.5, 1);
        let wait_us = rate / 1e6 * (200.0 * 200.0 + 1000.0 * 1000.0) / 2.0 / (2.0 * (1.0 - rho));
        within(waits.latencies.mean_us, 600.0 + wait_us, 0.03);
    }
}

/// The mean wait before `channels` of M/D/c in units of the service, where `load` are busy on average. With one it is
/// that of Pollaczek and Khinchine.
fn crommelin(channels: u32, load: f64) -> f64 {
    let c = f64::from(channels);
    let mut sum = 0.0;
    for i in 1..2000_u32 {
        let mean = f64::from(i) * load;
        // Poisson probabilities from the one at i c on, by logarithms so that none underflows before its time.
        let first = i * channels;
        let log_factorial: f64 = (1..=first).map(|n| f64::from(n).ln()).sum();
        let mut term = (f64::from(first) * mean.ln() - mean - log_factorial).exp();
        let (from_first, mut n) = (term, f64::from(first));
        let mut after = 0.0;
        while term > 1e-18 {
            n += 1.0;
            term *= mean / n;
            after += term;
        }
        let of_i = from_first + after - c / load * after;
        sum += of_i;
        if of_i.abs() < 1e-14 {
            break;
        }
    }
    sum
}

#[test]
fn several_channels_wait_as_long_as_crommelin_says() {
    assert!((crommelin(1, 0.7) - 0.7 / 0.6).abs() < 1e-9, "{}", crommelin(1, 0.7));
    for (channels, rho) in [(2, 0.7), (4, 0.8), (10, 0.9)] {
        let load = rho * f64::from(channels);
        let waits = waits_of_storage(load / 200e-6, 1.0, channels);
        let wait_us = 200.0 * crommelin(channels, load);
        within(waits.latencies.mean_us - 200.0, wait_us, 0.05);
        within(waits.storage_utilisation.unwrap(), rho, 0.01);
    }
}

#[test]
fn a_storage_that_cannot_keep_up_is_used_more_than_it_can_be() {
    let waits = waits_of_storage(1.5 / 200e-6, 1.0, 1);
    within(waits.storage_utilisation.unwrap(), 1.5, 0.01);
    // 400,000 come in 53 s and take 80 s: the last of them waits for the difference.
    within(waits.latencies.max_us, 400e3 * 200.0 / 3.0, 0.02);
}

/// Random requests of up to 4 blocks, to few blocks, some at the same time.
fn random_requests(seed: u64) -> Vec<Request> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = |below: u64| workloads::random(&mut state) % below;
    let mut time_us = 0;
    let request = |_| {
        time_us += random(5) * random(200);
        let op = if random(2) == 0 { Op::Read } else { Op::Write };
        let (offset_bytes, length_bytes) = (random(30) * 4096, (1 + random(4)) * 4096);
        Request { time_us: time_us as i64, op, volume: 0, offset_bytes, length_bytes }
    };
    (0..400).map(request).collect()
}

#[test]
fn another_simulation_finds_the_same_waits() {
    let own =
        "capacity-gb=1,endurance-cycles=unlimited,read-latency-ms=0.31,write-latency-ms=0.37,transfer-mb-per-s=100";
    let arrays = [
        ("slc:channels=1", "mlc:channels=1".to_owned()),
        ("slc:channels=2,devices=2", "mlc:channels=3".to_owned()),
        ("slc:channels=3", format!("{own},devices=3")),
        ("slc:write-latency-ms=0.043", format!("{own},channels=2")),
    ];
    let mut seen_waits = 0;
    for seed in 0..20 {
        let requests = random_requests(seed);
        let trace = normalised("random", requests.iter().copied());
        for (cache, storage) in &arrays {
            let model = model(cache, storage);
            for (arrivals, warmup) in
                [("trace", 0), ("trace:speed=4", 100), ("closed:depth=1", 0), ("closed:depth=5", 333)]
            {
                for rule in ["probability:p=1", "size:max=8KiB"] {
                    let found = waits(&trace, rule, 8, &model, arrivals, warmup);
                    let admitted_blocks_max = if rule.starts_with("size") { 2 } else { 4 };
                    let expected = event_simulation::run(
                        &trace,
                        &model,
                        arrivals.parse().unwrap(),
                        (8, admitted_blocks_max),
                        warmup as usize,
                    );
                    let what = format!("seed {seed}, {cache} before {storage}, {rule}, {arrivals}");
                    let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected;
                    assert!(close(found.latencies.mean_us, expected.mean_us), "{what}: {found:?}, {expected:?}");
                    assert!(close(found.latencies.max_us, expected.max_us), "{what}: {found:?}, {expected:?}");
                    let p50 = expected.p50_us..=expected.p50_us * 1.001;
                    assert!(p50.contains(&found.latencies.p50_us), "{what}: {found:?}, {expected:?}");
                    let per_s = matches!(found.arrivals, Arrivals::Closed { .. }).then_some(expected.requests_per_s);
                    assert!(
                        found.requests_per_s.zip(per_s).is_none_or(|(found, expected)| close(found, expected)),
                        "{what}"
                    );
                    assert_eq!(found.requests_per_s.is_some(), per_s.is_some());
                    seen_waits += usize::from(expected.max_us > 2000.0);
                }
            }
        }
    }
    assert!(seen_waits > 100, "{seen_waits}");
}
