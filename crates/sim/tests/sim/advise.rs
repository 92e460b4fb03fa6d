//! Advice: which cache to buy, when to buy none, refusals, and the configuration.

mod exhaustive;

use std::fmt::Write;

use crate::workloads;
use flashwise_core::cache::WriteBackOrder;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::offers::Catalogue;
use flashwise_sim::advise::{
    Advice, AdviseError, AdvisedCache, Paths, Question, Quiet, Targets, Traffic, Verdict, Ways, Workload, advise,
    configuration,
};
use flashwise_sim::array::ArrayFigures;
use flashwise_sim::job::{Job, Runs};
use flashwise_sim::results::ResultRow;
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

/// A trace in the format of MSR-Cambridge, `gap_us` between requests: some accesses to a hot set, some that move on,
/// some to anything.
fn trace(seed: u64, write_share: u64, gap_us: u64) -> String {
    let mut state = seed;
    let mut random = |below: u64| workloads::random(&mut state) % below;
    let mut text = String::new();
    for number in 0..8_000_u64 {
        let block = match random(10) {
            0..5 => {
                let within = 1 + random(3_000);
                random(within)
            }
            5..8 => 10_000 + number / 2 + random(2_000),
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
    ask_in_order(catalogue, workload, targets, exhaustive, WriteBackOrder::None)
}

fn ask_in_order(
    catalogue: &Catalogue,
    workload: &Workload,
    targets: Targets,
    exhaustive: bool,
    order: WriteBackOrder,
) -> Result<Advice, AdviseError> {
    let question = Question { catalogue, targets, ways: ways(), order, warmup: Warmup::Accesses(0), exhaustive };
    advise(workload, &question, &Quiet)
}

fn targets(latency_us: f64, years: f64) -> Targets {
    Targets { latency_us: Some(latency_us), years }
}

/// Every size of RAM without flash, run here.
fn ram_alone(workload: &Workload) -> Vec<AdvisedCache> {
    let of_size = |ram: &str| {
        let job = format!("policy=lru size=1MiB admission=probability:p=0 ram={ram} arrivals=trace storage-device=hdd");
        let array = array(workload, &job);
        let ram_bytes = ram.parse::<ByteSize>().unwrap().bytes();
        AdvisedCache {
            price: 100.0 * ram_bytes as f64 / f64::from(1 << 30),
            latency_mean_us: array.latency_mean_us,
            storage_utilisation: array.storage_utilisation,
            ..AdvisedCache::default()
        }
    };
    ["2MiB", "16MiB", "1GiB"].map(of_size).to_vec()
}

/// The array's figures of a job over the trace.
fn array(workload: &Workload, job: &str) -> ArrayFigures {
    row(workload, job).array.unwrap()
}

/// The figures of a job over the trace.
fn row(workload: &Workload, job: &str) -> ResultRow {
    let jobs = [job.parse::<Job>().unwrap()];
    let traces = std::slice::from_ref(workload.trace());
    let runs = Runs::new(traces, workload.requests(), &jobs).unwrap();
    let mut rows = runs.run(&Silent).unwrap();
    rows[0].remove(0)
}

/// Where waits cost, a dearer cache may cost less: the answer is the least sum of price and waits of all caches.
#[test]
fn waits_that_cost_are_weighed_against_the_price() {
    let text: String = trace(3, 30, 1_000_000).split_inclusive('\n').take(4_000).collect();
    let workload = workload(&text, None);
    let targets = Targets { latency_us: None, years: 3.0 };
    let catalogue =
        |price: f64| Catalogue::parse("ours.toml", &format!("waiting-price-per-hour = {price}\n{CATALOGUE}")).unwrap();
    let mut all = ask(&catalogue(1.0), &workload, targets, true).unwrap().runs;
    all.retain(|run| run.device != "RAM only");
    let cost_of_us = all[0].waiting_cost / all[0].latency_mean_us;
    all.retain(|run| run.cache_lifetime_years.unwrap() >= targets.years);
    all.extend(ram_alone(&workload));
    let mut chosen = Vec::new();
    for price in [0.0001, 0.02, 1.0] {
        let cost = |run: &AdvisedCache| run.price + price * cost_of_us * run.latency_mean_us;
        let least = all.iter().map(cost).reduce(f64::min).unwrap();
        let found = ask(&catalogue(price), &workload, targets, false).unwrap();
        match found.verdict {
            Verdict::Buy | Verdict::RamOnly => {
                assert!(found.cache.as_ref().unwrap().cost <= 1.05 * least, "{price}: {found:?}")
            }
            Verdict::NoCache => assert!(found.no_cache.cost <= least),
            other => panic!("{other:?}"),
        }
        chosen.push((found.verdict, found.cache.map(|cache| cache.price)));
    }
    assert_eq!(chosen[0].0, Verdict::NoCache, "{chosen:?}");
    assert!(
        chosen[2].0 != Verdict::NoCache && chosen[2].1 > chosen[1].1.filter(|_| chosen[1].0 != Verdict::NoCache),
        "{chosen:?}"
    );
}

#[test]
fn nothing_is_bought_where_the_storage_is_fast_enough_or_flash_for_all_costs_less() {
    let workload = workload(&trace(4, 30, 1_000_000), None);
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    // A disk takes 11.56 ms to read and 12.36 ms to write, and a request of up to four blocks hardly longer. One a
    // second waits for no other.
    let advice = ask(&catalogue, &workload, targets(13_000.0, 1.0), false).unwrap();
    assert_eq!((advice.verdict, advice.cache, advice.runs.len()), (Verdict::NoCache, None, 0));
    assert!(advice.no_cache.latency_mean_us > 11_560.0 && advice.no_cache.latency_mean_us < 12_360.0);
    // RAM is dear here, so that it is no better.
    let dear = CATALOGUE.replace("price-per-gib = 100", "price-per-gib = 100000");
    let little = Catalogue::parse("ours.toml", &dear.replace("[ram]", "data-gb = 0.02\n[ram]")).unwrap();
    let advice = ask(&little, &workload, targets(11_000.0, 0.01), false).unwrap();
    assert_eq!(advice.verdict, Verdict::AllFlash, "{:?}", advice.sentences);
}

/// A disk cannot serve 667 requests a second, nor the misses of any of the caches: requests wait ever longer. More
/// disks help.
#[test]
fn for_overloaded_disks_no_cache_is_bought() {
    let workload = workload(&trace(6, 60, 1_500), None);
    let catalogue = Catalogue::parse("ours.toml", CATALOGUE).unwrap();
    let advice = ask(&catalogue, &workload, targets(9_000.0, 0.0), false).unwrap();
    assert_eq!(advice.verdict, Verdict::NothingMeets, "{:?}", advice.sentences);
    let first = &advice.sentences[0];
    assert!(first.starts_with("No cache here meets 9 ms at this load: the storage gets at least "), "{first}");
    assert!(first.ends_with(" times the work it can do."), "{first}");
    assert!(advice.runs.iter().all(|run| run.storage_utilisation.unwrap() > 1.0 || run.latency_mean_us > 9_000.0));
    let help = advice.help.unwrap();
    assert!(help.starts_with("With ") && help.contains(" such storage devices in place of 1"), "{help}");
    // The load is none at one request a second, and more disks are no faster.
    let slow = self::workload(&trace(6, 60, 1_000_000), None);
    let advice = ask(&catalogue, &slow, targets(9.0, 0.0), false).unwrap();
    assert!(!advice.sentences[0].contains("at this load"), "{:?}", advice.sentences);
    let help = advice.help.unwrap();
    assert!(help.starts_with("Even with 8 such storage devices in place of 1, a request would wait "), "{help}");
}

#[test]
fn questions_without_an_answer_are_refused() {
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
    // RAM without flash has no configuration: it is too dear here.
    let dear = CATALOGUE.replace("price-per-gib = 100", "price-per-gib = 100000");
    let catalogue = Catalogue::parse("ours.toml", &dear).unwrap();
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

/// All caches that write back have the order. Its cost is the difference of two runs.
#[test]
fn an_order_of_write_back_is_a_requirement_with_a_cost() {
    let dear = CATALOGUE.replace("price-per-gib = 100", "price-per-gib = 100000");
    let catalogue = Catalogue::parse("ours.toml", &dear).unwrap();
    let workload = workload(&trace(1, 60, 100_000), None);
    let order = WriteBackOrder::Barriers;
    let advice = ask_in_order(&catalogue, &workload, targets(4000.0, 0.0), false, order).unwrap();
    let has_order = |cache: &AdvisedCache| cache.write_back_order == "barriers";
    let writes_back = |cache: &AdvisedCache| cache.write_mode == "write-back";
    assert!(advice.runs.iter().any(has_order), "{:?}", advice.sentences);
    assert!(advice.runs.iter().all(|cache| has_order(cache) == writes_back(cache)), "{:?}", advice.runs);
    let cache = advice.cache.as_ref().unwrap();
    assert!(has_order(cache), "{:?}", advice.sentences);
    let text = configuration("flashwise advise t", cache, &catalogue, Paths::default());
    assert!(text.contains("\nwrite-back-order = \"barriers\"\n"), "{text}");
    let cost = advice.order_cost.unwrap();
    let [with, without] = [cache.job.clone(), cache.job.replace(" write-back-order=barriers", "")];
    assert_ne!(with, without);
    for (found, job) in [(cost.with, with), (cost.without, without)] {
        let row = row(&workload, &job);
        let (figures, array) = (row.cache.unwrap(), row.array.unwrap());
        let backend_bytes_written = 4096 * (figures.destaged_blocks + figures.backend_written_blocks);
        let expected = Traffic {
            backend_bytes_written,
            backend_flushes: figures.backend_flushes,
            flash_bytes_written: row.flash_bytes_written,
            latency_mean_us: array.latency_mean_us,
            hit_ratio: row.hit_ratio,
        };
        assert_eq!(found, expected, "{job}");
    }
    assert!(cost.with.backend_flushes > cost.without.backend_flushes, "{cost:?}");
    let told = advice.sentences.join(" ");
    assert!(told.contains("Write-back in order (barriers) writes "), "{told}");
    let advice = ask(&catalogue, &workload, targets(4000.0, 0.0), false).unwrap();
    assert!(advice.order_cost.is_none() && !advice.runs.iter().any(has_order));
}
