//! Advice is held to all caches of the catalogue, each run exactly: it costs at most a twentieth more than the cheapest that meets the targets.

use std::fmt::Write;

use crate::workloads;
use flashwise_core::quantity::Share;
use flashwise_device::offers::Catalogue;
use flashwise_sim::advise::{
    Advice, AdviseError, AdvisedCache, Paths, Question, Quiet, Targets, Verdict, Ways, Workload, advise, configuration,
};
use flashwise_sim::job::{Job, Runs};
use flashwise_sim::simulate::Warmup;
use flashwise_trace::normalised::{Settings, open_with_requests};
use flashwise_trace::progress::Silent;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::sample;

/// Cheap flash that wears out, flash that lasts, and a fast one, in sizes around what the traces touch.
const CATALOGUE: &str = r#"
currency = "EUR"
[storage]
device = "hdd"
[ram]
price-per-gib = 100
sizes = "2MiB,16MiB"
[[cache]]
name = "cheap"
device = "p4500"
capacity-gb = "0.03,0.06,0.12"
price-per-gb = 100
endurance-cycles = 20000
[[cache]]
name = "lasting"
device = "9200-max"
capacity-gb = "0.03,0.06,0.12"
price-per-gb = 170
endurance-cycles = 200000
[[cache]]
name = "fast"
device = "p4800x"
capacity-gb = 0.06
price = 40
endurance-cycles = 2000000
"#;

/// A trace in the format of MSR-Cambridge, `gap_us` between requests: some accesses to a hot set, some that move on, some to anything.
fn trace(seed: u64, write_share: u64, gap_us: u64) -> String {
    let mut state = seed;
    let mut random = |below: u64| workloads::random(&mut state) % below;
    let mut text = String::new();
    for number in 0..15_000_u64 {
        let block = match random(10) {
            0..5 => {
                let within = 1 + random(6_000);
                random(within)
            }
            5..8 => 10_000 + number / 4 + random(2_000),
            _ => 30_000 + random(20_000),
        };
        let op = if random(100) < write_share { "Write" } else { "Read" };
        let blocks = 1 + random(4);
        writeln!(text, "{},h,0,{op},{},{},0", number * gap_us * 10, block * 4096, blocks * 4096).unwrap();
    }
    text
}

fn workload(text: &str, share: Option<f64>) -> Workload {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    let settings = Settings { format: Some("msr".parse().unwrap()), ..Settings::default() };
    let (trace, requests) = open_with_requests(&path, &settings, &Silent).unwrap();
    let workload = Workload::new(trace, requests);
    let Some(share) = share else { return workload };
    let sampling = Sampling::new(share, 0).unwrap().by_groups();
    let sample = sample::open(&path, &settings, sampling, &Silent).unwrap();
    workload.with_sample(Share::new(share).unwrap(), sample)
}

fn ways() -> Ways {
    Ways {
        policies: ["larc:writes=admit", "lru"].map(|policy| policy.parse().unwrap()).to_vec(),
        admissions: ["none", "probability:p=0.3"].map(|rule| rule.parse().unwrap()).to_vec(),
        modes: vec!["write-back", "write-through"],
        over_provisions: vec![Share::new(0.1).unwrap()],
    }
}

fn ask(catalogue: &Catalogue, workload: &Workload, targets: Targets, exhaustive: bool) -> Result<Advice, AdviseError> {
    let question = Question { catalogue, targets, ways: ways(), warmup: Warmup::Accesses(0), exhaustive };
    advise(workload, &question, &Quiet)
}

fn targets(latency_us: f64, years: f64) -> Targets {
    Targets { latency_us: Some(latency_us), years }
}

/// The cheapest of all that meets the targets, found here.
fn cheapest(all: &[AdvisedCache], targets: Targets) -> Option<f64> {
    let meets = |run: &&AdvisedCache| {
        run.latency_mean_us <= targets.latency_us.unwrap() && run.cache_lifetime_years.unwrap() >= targets.years
    };
    all.iter().filter(meets).map(|run| run.price).reduce(f64::min)
}

/// At targets that many, few and none of the caches meet, with estimates over all of the trace and over a quarter.
#[test]
fn it_costs_at_most_a_twentieth_more_than_the_best_of_all() {
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    let (mut answers, mut refusals, mut ran, mut caches) = (0, 0, 0, 0);
    for (seed, write_share) in [(1, 30), (2, 70)] {
        let text = trace(seed, write_share, 1_000_000);
        let whole = workload(&text, None);
        let all = ask(&catalogue, &whole, targets(1.0, 1.0), true).unwrap().runs;
        assert_eq!(all.len(), 7 * 2 * 8);
        let mut latencies: Vec<f64> = all.iter().map(|run| run.latency_mean_us).collect();
        let mut years: Vec<f64> = all.iter().map(|run| run.cache_lifetime_years.unwrap()).collect();
        latencies.sort_by(f64::total_cmp);
        years.sort_by(f64::total_cmp);
        let sampled = workload(&text, Some(0.25));
        for (fast, long) in [(2, 100), (10, 50), (10, 90), (30, 30), (30, 80), (60, 5), (60, 70), (100, 95)] {
            // Between two caches, so that no rounding decides.
            let targets = targets(latencies[fast] + 0.01, years[long] * 0.9999);
            let expected = cheapest(&all, targets);
            for workload in [&whole, &sampled] {
                let advice = ask(&catalogue, workload, targets, false).unwrap();
                (ran, caches) = (ran + advice.runs.len(), caches + all.len());
                let Some(expected) = expected else {
                    assert_eq!(advice.verdict, Verdict::NothingMeets, "{targets:?}");
                    assert!(advice.cache.is_some() && advice.sentences.len() >= 3, "{advice:?}");
                    refusals += 1;
                    continue;
                };
                let cache = advice.cache.unwrap();
                assert_eq!((advice.verdict, cache.meets), (Verdict::Buy, 1), "{targets:?}");
                assert!(cache.cost <= 1.05 * expected, "{targets:?}: {} for {expected}: {cache:?}", cache.cost);
                // An exact run by its job says the same.
                let row = run(workload, &cache.job);
                assert_eq!(row, cache.latency_mean_us);
                assert!(row <= targets.latency_us.unwrap() && cache.cache_lifetime_years.unwrap() >= targets.years);
                answers += 1;
            }
        }
    }
    assert!(answers >= 12 && refusals >= 2, "{answers} answers, {refusals} refusals");
    assert!(ran * 3 < caches, "{ran} of {caches} caches were run");
}

/// The mean latency of a job over the trace.
fn run(workload: &Workload, job: &str) -> f64 {
    let jobs = [job.parse::<Job>().unwrap()];
    let traces = std::slice::from_ref(workload.trace());
    let runs = Runs::new(traces, workload.requests(), &jobs).unwrap();
    let rows = runs.run(&Silent).unwrap();
    rows[0][0].array.as_ref().unwrap().latency_mean_us
}

/// Where waits cost, a dearer cache may cost less: the answer is the least sum of price and waits of all caches.
#[test]
fn waits_that_cost_are_weighed_against_the_price() {
    let text = trace(3, 30, 1_000_000);
    let workload = workload(&text, None);
    let mut chosen = Vec::new();
    for price in ["0.0001", "0.02", "1"] {
        let catalogue =
            Catalogue::parse("ours.toml", &format!("waiting-price-per-hour = {price}\n{CATALOGUE}")).unwrap();
        let targets = Targets { latency_us: None, years: 3.0 };
        let all = ask(&catalogue, &workload, targets, true).unwrap();
        let least = all.runs.iter().filter(|run| run.meets == 1).map(|run| run.cost).reduce(f64::min).unwrap();
        let found = ask(&catalogue, &workload, targets, false).unwrap();
        match found.verdict {
            Verdict::Buy => assert!(found.cache.as_ref().unwrap().cost <= 1.05 * least, "{price}: {found:?}"),
            Verdict::NoCache => assert!(found.no_cache.cost <= least),
            other => panic!("{other:?}"),
        }
        chosen.push((found.verdict, found.cache.map(|cache| cache.price)));
    }
    assert_eq!(chosen[0].0, Verdict::NoCache, "{chosen:?}");
    assert!(
        chosen[2].0 == Verdict::Buy && chosen[2].1 > chosen[1].1.filter(|_| chosen[1].0 == Verdict::Buy),
        "{chosen:?}"
    );
}

#[test]
fn nothing_is_bought_where_the_storage_is_fast_enough_or_flash_for_all_costs_less() {
    let workload = workload(&trace(4, 30, 1_000_000), None);
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    // A disk takes 11.56 ms to read and 12.36 ms to write.
    let advice = ask(&catalogue, &workload, targets(13_000.0, 1.0), false).unwrap();
    assert_eq!((advice.verdict, advice.cache, advice.runs.len()), (Verdict::NoCache, None, 0));
    assert!(advice.no_cache.latency_mean_us > 11_560.0 && advice.no_cache.latency_mean_us < 12_360.0);
    let little = Catalogue::parse("ours.toml", &CATALOGUE.replace("[ram]", "data-gb = 0.02\n[ram]")).unwrap();
    let advice = ask(&little, &workload, targets(11_000.0, 0.01), false).unwrap();
    assert_eq!(advice.verdict, Verdict::AllFlash, "{:?}", advice.sentences);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let no_times = workload(&trace(5, 30, 0), None);
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    let error = ask(&catalogue, &no_times, targets(5000.0, 5.0), false).unwrap_err().to_string();
    assert!(error.contains("nothing can be said per year") && error.contains("expected --years 0"), "{error}");
    assert!(ask(&catalogue, &no_times, targets(9000.0, 0.0), false).is_ok());
    let none = Targets { latency_us: None, years: 5.0 };
    let error = ask(&catalogue, &no_times, none, false).unwrap_err().to_string();
    assert!(error.starts_with("found no latency to reach"), "{error}");
    let small = Catalogue::parse("ours.toml", &CATALOGUE.replace("\"0.03,0.06,0.12\"", "\"0.01\"")).unwrap();
    let error = ask(&small, &no_times, targets(5000.0, 0.0), false).unwrap_err().to_string();
    assert!(error.starts_with("cheap: found") && error.contains("11 erase units"), "{error}");
}

#[test]
fn the_configuration_is_that_of_the_cache() {
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    let workload = workload(&trace(1, 30, 1_000_000), None);
    let cache = ask(&catalogue, &workload, targets(9000.0, 0.0), false).unwrap().cache.unwrap();
    let text = configuration("flashwise advise t", &cache, &catalogue, Paths::default());
    for (key, value) in [("policy", &cache.policy), ("admission", &cache.admission), ("write-mode", &cache.write_mode)]
    {
        assert!(text.contains(&format!("\n{key} = \"{value}\"\n")), "{key}: {text}");
    }
    assert!(
        text.contains("\nover-provision = \"10%\"\n") && text.contains("\ncache-device = \"capacity-gb="),
        "{text}"
    );
}
