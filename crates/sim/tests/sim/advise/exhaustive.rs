//! The first sentence of an advice is true. Every candidate of a catalogue runs here by its own job; the sentence is
//! parsed and compared with all of them.

use std::fmt::Write;

use flashwise_core::human;
use flashwise_core::tiers::YEAR_SECONDS;
use flashwise_device::TierModel;
use flashwise_device::offers::Catalogue;
use flashwise_sim::advise::{Targets, Workload};
use flashwise_trace::normalised::{Settings, open_with_requests};
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::cut::{Cut, cut};

use super::{array, ask, row, ways, workload};
use crate::workloads::{bundled_path, random};

/// A catalogue of flash that wears out in two sizes, and one that is fast and lasts. `{disks}`, `{more}` and `{ram}`
/// are filled in.
const CATALOGUE: &str = r#"
{waits}
[storage]
device = "hdd"
devices = {disks}
{data}
[ram]
price-per-gib = {ram}
sizes = "2MiB,8MiB"
[[cache]]
name = "cheap"
device = "p4500"
capacity-gb = "0.024,0.05"
price-per-gb = 500
endurance-cycles = 20000
[[cache]]
name = "fast"
device = "p4800x"
capacity-gb = 0.03
price = 40
endurance-cycles = 2000000
"#;

/// Something that can be bought, run here.
#[derive(Debug)]
struct Candidate {
    /// As the sentence calls it.
    name: String,
    price: f64,
    /// The price and the waits over the years.
    cost: f64,
    wait_us: f64,
    years: f64,
    busiest: f64,
}

impl Candidate {
    fn meets(&self, targets: Targets) -> bool {
        self.wait_us <= targets.latency_us.unwrap_or(f64::INFINITY)
            && self.years >= targets.years
            && self.busiest <= 1.0
    }
}

/// A workload and a catalogue.
struct Case {
    name: &'static str,
    workload: Workload,
    catalogue: Catalogue,
    /// From the first request to the last, in seconds; 0 if the trace has no times.
    seconds: f64,
    requests: f64,
}

/// `requests` in the format of MSR-Cambridge: most to a hot set that moves, some to anything. The gap between two is
/// `gap_us(number)`.
fn generated(seed: u64, requests: u64, write_share: u64, gap_us: impl Fn(u64) -> u64) -> (String, f64) {
    let mut state = seed;
    let mut random = |below: u64| random(&mut state) % below;
    let (mut text, mut time_us) = (String::new(), 0);
    for number in 0..requests {
        let block = match random(10) {
            0..6 => {
                let within = 1 + random(2_000);
                random(within)
            }
            6..8 => 10_000 + number / 2 + random(500),
            _ => 30_000 + random(9_000),
        };
        let op = if random(100) < write_share { "Write" } else { "Read" };
        let blocks = 1 + random(6);
        time_us += if number == 0 { 0 } else { gap_us(number) };
        writeln!(text, "{},h,0,{op},{},{},0", time_us * 10, block * 4096, blocks * 4096).unwrap();
    }
    (text, time_us as f64 / 1e6)
}

fn catalogue(disks: u32, ram_price: f64, more: &str) -> Catalogue {
    let (data, waits) = if more.starts_with("data") { (more, "") } else { ("", more) };
    let text = CATALOGUE.replace("{disks}", &disks.to_string()).replace("{ram}", &ram_price.to_string());
    Catalogue::parse("ours.toml", &text.replace("{data}", data).replace("{waits}", waits)).unwrap()
}

const REQUESTS: u64 = 600;

fn of_generated(name: &'static str, text: &(String, f64), catalogue: Catalogue) -> Case {
    Case {
        name,
        workload: workload(&text.0, None),
        catalogue,
        seconds: text.1,
        requests: text.0.lines().count() as f64,
    }
}

/// Requests of the bundled trace from the one with this number on.
fn of_bundled(name: &'static str, first: u64, catalogue: Catalogue) -> Case {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.arrow");
    let part = Cut { requests: first..first + REQUESTS, ..Cut::default() };
    cut(bundled_path(), &path, &part, &Settings::default(), &Silent).unwrap();
    let (trace, requests) = open_with_requests(&path, &Settings::default(), &Silent).unwrap();
    let times = || trace.batches().flat_map(|columns| columns.time_us.to_vec());
    let seconds = (times().max().unwrap() - trace.first_us()) as f64 / 1e6;
    Case { name, workload: Workload::new(trace, requests), catalogue, seconds, requests: REQUESTS as f64 }
}

fn cases() -> Vec<Case> {
    let quiet = |_: u64| 1_000_000;
    // 50 requests at once, every 4 s.
    let bursts = |number: u64| if number.is_multiple_of(50) { 4_000_000 } else { 10 };
    let sampled = |case: Case, text: &str| Case { workload: workload(text, Some(0.25)), ..case };
    let mixed = generated(11, 4 * REQUESTS, 30, quiet);
    vec![
        sampled(of_generated("a sample", &mixed, catalogue(1, 100_000.0, "")), &mixed.0),
        of_generated("quiet", &generated(1, REQUESTS, 30, quiet), catalogue(1, 1000.0, "")),
        of_generated("quiet, RAM is dear", &generated(2, REQUESTS, 60, quiet), catalogue(1, 100_000.0, "")),
        of_generated("busy", &generated(3, REQUESTS, 30, |_| 13_000), catalogue(1, 100_000.0, "")),
        of_generated("too busy", &generated(4, REQUESTS, 50, |_| 2_000), catalogue(1, 3000.0, "")),
        of_generated("bursts", &generated(5, REQUESTS, 40, bursts), catalogue(2, 100_000.0, "")),
        of_generated("writes", &generated(6, REQUESTS, 100, |_| 40_000), catalogue(1, 1000.0, "")),
        of_generated("reads", &generated(7, REQUESTS, 0, |_| 10_000), catalogue(1, 20_000.0, "")),
        of_generated("without times", &generated(8, REQUESTS, 30, |_| 0), catalogue(1, 20_000.0, "")),
        of_generated(
            "waits cost",
            &generated(9, REQUESTS, 30, quiet),
            catalogue(1, 100_000.0, "waiting-price-per-hour = 0.05"),
        ),
        of_generated("little data", &generated(10, REQUESTS, 30, quiet), catalogue(1, 100_000.0, "data-gb = 0.06")),
        of_bundled("bundled", 0, catalogue(64, 3000.0, "")),
        of_bundled("bundled, few disks", 100_000, catalogue(4, 3000.0, "")),
    ]
}

/// Runs everything that could be bought for a case, by jobs that are put together here.
fn candidates(case: &Case, years: f64) -> Vec<Candidate> {
    let catalogue = &case.catalogue;
    let arrivals = if case.seconds > 0.0 { "trace" } else { "closed:depth=1" };
    let common = format!("arrivals={arrivals} storage-device={}", catalogue.storage);
    let hours_per_us = case.requests * YEAR_SECONDS / case.seconds.max(1e-9) * years / 3600e6;
    let candidate = |name: String, price: f64, array: &flashwise_sim::array::ArrayFigures, years: f64| {
        let busiest = array.storage_utilisation.unwrap_or(0.0).max(array.cache_utilisation.unwrap_or(0.0));
        Candidate {
            name,
            price,
            cost: price + catalogue.waiting_price_per_hour * hours_per_us * array.latency_mean_us,
            wait_us: array.latency_mean_us,
            years,
            busiest: if case.seconds > 0.0 { busiest } else { 0.0 },
        }
    };
    let lasts = |model: &TierModel, number: f64, written_bytes: u64| {
        let cells_bytes = model.tier.device.endurance_cycles * model.tier.capacity_bytes() * number;
        let years = cells_bytes / (written_bytes as f64 * model.tier.write_amplification) * case.seconds / YEAR_SECONDS;
        if case.seconds > 0.0 { years } else { f64::INFINITY }
    };
    let ram_price = |bytes: u64| bytes as f64 / (1u64 << 30) as f64 * catalogue.ram_price_per_gib;
    let mut all = Vec::new();
    for offer in &catalogue.offers {
        for &ram in &catalogue.ram_bytes {
            for policy in &ways().policies {
                for rule in &ways().admissions {
                    for mode in &ways().modes {
                        let units = offer.capacity_bytes() >> 21;
                        let job = format!(
                            "policy={policy} size={}MiB layout=log ram={ram} over-provision=10% admission={rule} \
                             cache-device={} \
                             write-mode={mode} {common}",
                            2 * units,
                            offer.model
                        );
                        let row = row(&case.workload, &job);
                        let lasts = lasts(&offer.model, 1.0, row.flash_bytes_written);
                        let name = format!("{} with {} MiB of RAM", offer.name, ram >> 20);
                        all.push(candidate(name, offer.price + ram_price(ram), row.array.as_ref().unwrap(), lasts));
                    }
                }
            }
        }
    }
    for ram in [2u64 << 20, 8 << 20, 1 << 30] {
        let array =
            array(&case.workload, &format!("policy=lru size=1MiB admission=probability:p=0 ram={ram} {common}"));
        let name = human::bytes(ram as f64) + " of RAM and no flash";
        all.push(candidate(name, ram_price(ram), &array, f64::INFINITY));
    }
    let alone = |storage: &str| {
        let job =
            format!("policy=lru size=1MiB admission=probability:p=0 arrivals={arrivals} storage-device={storage}");
        row(&case.workload, &job)
    };
    let disks = alone(&catalogue.storage.to_string()).array.unwrap();
    all.push(candidate("no cache".to_owned(), 0.0, &disks, f64::INFINITY));
    if let Some(data) = catalogue.data_bytes {
        for offer in &catalogue.offers {
            let number = (data / offer.capacity_bytes() as f64).ceil();
            let row = alone(&format!("{},devices={number}", offer.model));
            let lasts = lasts(&offer.model, number, row.writes * row.block_size_bytes);
            let name = format!("no cache but {number} of {} for all ", offer.name);
            all.push(candidate(name, number * offer.price, row.array.as_ref().unwrap(), lasts));
        }
    }
    all
}

/// A wait in words, such as "12.34 ms", in microseconds.
fn microseconds(words: &str) -> f64 {
    if words.starts_with("less than 1 us") {
        return 0.0;
    }
    let (number, unit) = words.split_once(' ').unwrap();
    let factor = [("us", 1.0), ("ms", 1e3), ("s", 1e6)].iter().find(|(name, _)| *name == unit).unwrap().1;
    number.parse::<f64>().unwrap() * factor
}

/// True if a candidate waits as long as these words say, with their digits.
fn waits(candidate: &Candidate, words: &str) -> bool {
    let us = microseconds(words);
    (candidate.wait_us - us).abs() <= 0.006 * us.max(1.0)
}

/// Says why the first sentence of an advice is wrong, if it is.
fn wrong(first: &str, all: &[Candidate], targets: Targets) -> Option<String> {
    let meeting = || all.iter().filter(|candidate| candidate.meets(targets));
    let least = meeting().map(|candidate| candidate.cost).reduce(f64::min);
    if let Some(rest) = first.strip_prefix("No cache here meets ") {
        if let Some(candidate) = meeting().next() {
            return Some(format!("it is met by {candidate:?}"));
        }
        let busiest = all.iter().map(|candidate| candidate.busiest).reduce(f64::min).unwrap();
        return match rest.split_once(" at this load: ") {
            None if busiest > 1.0 => Some("all are overloaded".to_owned()),
            None => {
                let (what, wait) = rest.split_once(", a request waits ").unwrap();
                let wait = wait.split_once(" on average").unwrap().0;
                let is_named = |candidate: &Candidate| {
                    what.ends_with(&format!(" for {}", price(candidate))) && waits(candidate, wait)
                };
                (!all.iter().any(is_named)).then(|| "no candidate waits as long at that price".to_owned())
            }
            Some((_, load)) if load.contains("more than") => (busiest <= 1.0).then(|| "one keeps up".to_owned()),
            Some((_, load)) => {
                let (_, at_least) = load.split_once(" at least ").unwrap();
                let times: f64 = at_least.split_once(" times the work it can do.").unwrap().0.parse().unwrap();
                (busiest < times || busiest > 1.05 * times).then(|| format!("the least is {busiest} times"))
            }
        };
    }
    let (what, wait) = match first.split_once(": ").unwrap() {
        ("Buy no cache", rest) => ("no cache", rest),
        (bought, rest) => (bought.strip_prefix("Buy ").unwrap(), rest),
    };
    let wait = wait.split_once("a request waits ").unwrap().1.split_once(" on average").unwrap().0;
    let is_named = |candidate: &&Candidate| {
        what.starts_with(&candidate.name)
            && (what == candidate.name
                || candidate.name.starts_with("no cache but")
                || what == format!("{} for {}", candidate.name, price(candidate)))
            && waits(candidate, wait)
    };
    let said = all.iter().filter(is_named);
    let Some(said) = said.min_by(|one, other| one.cost.total_cmp(&other.cost)) else {
        let named: Vec<_> =
            all.iter().filter(|one| what.starts_with(&one.name)).map(|one| (one.price, one.wait_us)).collect();
        return Some(format!("no candidate waits as long at that price: {named:?}"));
    };
    if !all.iter().filter(is_named).any(|candidate| candidate.meets(targets)) {
        return Some(format!("the targets are missed by {said:?}"));
    }
    let least = least.expect("that one meets them");
    (said.cost > least + 1e-9).then(|| format!("{said:?} costs more than {least}"))
}

/// A price in words.
fn price(candidate: &Candidate) -> String {
    human::number(candidate.price)
}

/// Targets that no candidate meets, that one does, that many do, and that the storage does without a cache; with years
/// and without.
fn questions(case: &Case, all: &[Candidate]) -> Vec<Targets> {
    if case.catalogue.waiting_price_per_hour > 0.0 {
        return [Some(5_000.0), None].map(|latency_us| Targets { latency_us, years: 3.0 }).to_vec();
    }
    let mut waits: Vec<f64> = all.iter().map(|candidate| candidate.wait_us).filter(|wait| *wait > 10.0).collect();
    waits.sort_by(f64::total_cmp);
    let mut years: Vec<f64> = all.iter().map(|candidate| candidate.years).filter(|years| years.is_finite()).collect();
    years.sort_by(f64::total_cmp);
    let at = |all: &[f64], share: f64| all[((all.len() - 1) as f64 * share) as usize];
    let years_of = |share: f64| if years.is_empty() { 0.0 } else { at(&years, share).min(100.0) * 0.9999 };
    let waits = [
        (0.5 * waits[0], 0.0),
        (waits[0] + 0.01, 0.0),
        (at(&waits, 0.3) + 0.01, years_of(0.7)),
        (at(&waits, 0.6) + 0.01, 0.0),
        (2.0 * at(&waits, 1.0), years_of(0.3)),
    ];
    waits.map(|(latency_us, years)| Targets { latency_us: Some(latency_us), years }).to_vec()
}

#[test]
fn the_first_sentence_is_true_of_all_candidates() {
    let (mut asked, mut kinds, mut failures) = (0, Vec::new(), Vec::new());
    let (mut ran, mut caches) = (0, 0);
    for case in cases() {
        let all = candidates(&case, 3.0);
        for targets in questions(&case, &all) {
            let advice = ask(&case.catalogue, &case.workload, targets, false).unwrap();
            let first = &advice.sentences[0];
            asked += 1;
            (ran, caches) = (ran + advice.runs.len(), caches + all.len());
            if let Some(cache) = &advice.cache {
                assert_eq!(array(&case.workload, &cache.job).latency_mean_us, cache.latency_mean_us, "{}", cache.job);
            }
            kinds.push(advice.verdict);
            if let Some(why) = wrong(first, &all, targets) {
                let job = advice.cache.as_ref().map(|cache| (cache.latency_mean_us, &cache.job));
                failures.push(format!("{} {targets:?}: {first} But {why}; {job:?}", case.name));
            }
            // Another price, wait or factor is found to be wrong.
            let faults = [
                (" of RAM for ", " of RAM for 9"),
                ("a request waits ", "a request waits 9"),
                (" at least ", " at least 9"),
            ];
            let is_read = |fault: &&(&str, &str)| first.contains(fault.0) && !first.contains("less than");
            for (right, fault) in faults.iter().filter(is_read) {
                let planted = first.replace(right, fault);
                assert!(wrong(&planted, &all, targets).is_some(), "{planted}");
            }
        }
    }
    assert!(failures.is_empty(), "{} of {asked}:\n{}", failures.len(), failures.join("\n"));
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    let number = kinds.len();
    kinds.dedup();
    assert!(ran * 2 < caches, "{ran} of {caches} caches were run");
    assert!(number >= 40 && kinds.len() == 5, "{number} cases, {kinds:?}");
}
