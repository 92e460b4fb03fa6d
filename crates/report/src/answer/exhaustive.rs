//! The first sentences of reports, verdicts and curves are true. Generated and real traces run here; each sentence is
//! parsed, and compared with every row, purchase and size that could have been recommended.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufWriter;

use flashwise_core::access::Op;
use flashwise_core::policy::Spec;
use flashwise_device::offers::Catalogue;
use flashwise_sim::advise::money;
use flashwise_sim::curve;
use flashwise_sim::job::{Job, Runs, compared};
use flashwise_sim::results::ResultRow;
use flashwise_sim::simulate::Warmup;
use flashwise_sim::size::Size;
use flashwise_trace::Trace;
use flashwise_trace::normalised::{Normaliser, Settings, open};
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::cut::{Cut, cut};
use flashwise_trace::tools::generate::{Arrivals, Length, Workload};
use flashwise_trace::tools::info::Info;

use crate::curve::Curves;
use crate::numbers::{bytes, number, percent};
use crate::rows::rule;
use crate::{Brief, Report, ReportPage};

const GIB: u64 = 1 << 30;

/// The jobs of these policies, sizes and further options.
fn jobs(policies: &[&str], sizes: &str, more: &str) -> Vec<String> {
    let of = |policy: &&str| sizes.split(',').map(move |size| format!("policy={policy} size={size} {more}")).collect();
    policies.iter().flat_map(|policy| -> Vec<String> { of(policy) }).collect()
}

/// A trace with a pattern as of `flashwise trace generate`, in blocks of `block_bytes`.
fn generated(pattern: &str, blocks: u64, read_share: f64, block_bytes: u64, seed: u64) -> Trace {
    let workload = Workload {
        pattern: pattern.parse().unwrap(),
        blocks,
        length: Length::Accesses(5 * blocks),
        read_share,
        request_blocks: 1..=3,
        rate: 10.0,
        arrivals: Arrivals::Poisson,
        seed,
        block_size_bytes: block_bytes,
    };
    let mut normaliser = Normaliser::new(pattern, block_bytes, BufWriter::new(tempfile::tempfile().unwrap())).unwrap();
    normaliser.volume(b"0").unwrap();
    workload.generator().unwrap().for_each(|request| normaliser.request(&request.unwrap()).unwrap());
    let file: File = normaliser.finish().unwrap().into_inner().unwrap();
    Trace::map(pattern, &file).unwrap()
}

/// So many requests of the bundled trace, from one of its parts.
fn real(part: u64) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.arrow");
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/netsfs.csv.zst");
    let first = part * 9000;
    cut(whole, &path, &Cut { requests: first..first + 600, ..Cut::default() }, &Settings::default(), &Silent).unwrap();
    open(&path, &Settings::default(), &Silent).unwrap()
}

/// Traces of all patterns, with few and many writes, in small and in very large blocks, and parts of a real one.
fn traces() -> Vec<(String, Trace)> {
    let mut all: Vec<(String, Trace)> = (0..12).map(|part| (format!("real {part}"), real(part))).collect();
    let mut seed = 0;
    for pattern in ["zipf", "zipf:skew=0.6", "phases:requests=400", "loop"] {
        for read_share in [0.0, 0.4, 1.0] {
            // 600 blocks of 4 KiB, 48 MiB and 2 GiB: RAM, one drive, or more than any drive holds.
            for block_bytes in [4 << 10, 48 << 20, 2 * GIB] {
                seed += 1;
                let name = format!("{pattern}, {read_share} reads, blocks of {block_bytes}");
                all.push((name, generated(pattern, 600, read_share, block_bytes, seed)));
            }
        }
    }
    all
}

/// The report of jobs over a trace, as the command line makes it, and its rows.
fn report_of(trace: &Trace, jobs: &[String]) -> (Report, Vec<ResultRow>) {
    let asked: Vec<Job> = jobs.iter().map(|job| job.parse().unwrap()).collect();
    let comparison = compared(&asked).unwrap();
    let jobs = [comparison.before, asked, comparison.after].concat();
    let traces = std::slice::from_ref(trace);
    let mut rows = Runs::new(traces, Vec::new().into(), &jobs).unwrap().run(&Silent).unwrap();
    let report = Report::of("flashwise simulate".to_owned(), &jobs[0], traces, &rows, &Silent).unwrap();
    (report, rows.remove(0))
}

fn sentences_of(report: &Report) -> Vec<String> {
    let page = ReportPage::new(report);
    page.sections[0].answer.as_ref().unwrap().sentences.clone()
}

fn is_online(row: &ResultRow) -> bool {
    !crate::grid::Grid::new(std::slice::from_ref(row)).policies[0].offline
}

fn wear(row: &ResultRow) -> u64 {
    match (&row.endurance, &row.tiers) {
        (Some(_), Some(tiers)) => tiers.erasures,
        _ => row.flash_writes_blocks,
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let from = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in: {text}")).1;
    from.split_once(after).unwrap_or_else(|| panic!("no '{after}' in: {text}")).0
}

/// Returns the reason against a recommended row, if another row is better in the measures that count.
fn beaten(row: &ResultRow, rows: &[ResultRow]) -> Option<String> {
    let online = || rows.iter().filter(|row| is_online(row) && rule(row).is_empty());
    let worth = |row: &ResultRow| (row.hits.max(1) as f64).ln() - (wear(row).max(1) as f64).ln() / 8.0;
    let better = online().find(|other| {
        let as_good = other.hits >= row.hits && other.capacity_blocks <= row.capacity_blocks;
        let is_less = wear(other) < wear(row) || other.capacity_blocks < row.capacity_blocks || other.hits > row.hits;
        let same_size = other.capacity_blocks == row.capacity_blocks;
        let much_better = worth(other) > worth(row) + 0.0101 && other.hits as f64 > 0.9 * row.hits as f64 && same_size;
        let most = online().filter(|own| own.capacity_blocks == row.capacity_blocks).map(|own| own.hits).max();
        as_good && wear(other) <= wear(row) && is_less
            || as_good && other.capacity_blocks < row.capacity_blocks && wear(other) as f64 * 0.74 <= wear(row) as f64
            || much_better && other.hits as f64 >= 0.9 * most.unwrap() as f64
    });
    let told = |row: &ResultRow| (row.policy.clone(), row.capacity_blocks, row.hits, wear(row));
    better.map(|better| format!("{:?} is better than {:?}", told(better), told(row)))
}

/// Checks `... SIZE (N blocks), 20% of ..., and run POLICY[ behind RULE]: it serves H of the accesses...`. An optional
/// part names lru and the best possible.
fn check_run(sentence: &str, rows: &[ResultRow]) -> Result<(), String> {
    let blocks = between(sentence, "(", " block").trim_start_matches("holds ").replace(',', "");
    let blocks: u64 = blocks.parse().unwrap();
    let runs = between(sentence, " and run ", ": it serves ");
    let serves = between(sentence, ": it serves ", " of the accesses");
    let of = |policy: &str| {
        let same = |row: &&ResultRow| row.policy == policy && row.capacity_blocks == blocks && rule(row).is_empty();
        rows.iter().find(same)
    };
    let most = rows.iter().filter(|row| row.capacity_blocks == blocks).map(|row| row.hits).max().unwrap();
    if let Some((_, beside)) = sentence.split_once("the best possible ") {
        let bound = of("min").ok_or("no bound")?;
        if bound.hits < most || !beside.starts_with(&percent(bound.hit_ratio)) {
            return Err(format!("the best possible is {most}"));
        }
    }
    if let Some((_, beside)) = sentence.split_once("where lru serves ")
        && !beside.starts_with(&percent(of("lru").ok_or("no lru")?.hit_ratio))
    {
        return Err("lru serves other hits".to_owned());
    }
    if runs.contains(" behind ") {
        // Runs behind rules are compared only with runs without a rule.
        return Ok(());
    }
    let row = of(runs).ok_or(format!("{runs} did not run with {blocks} blocks"))?;
    if percent(row.hit_ratio) != serves {
        return Err(format!("it serves {}", row.hit_ratio));
    }
    beaten(row, rows).map_or(Ok(()), Err)
}

/// The least price for so many bytes, of all that the catalogue sells.
fn least_price(needed: u64, with_ram: bool) -> f64 {
    let catalogue = Catalogue::example();
    let drives =
        catalogue.offers.iter().map(|offer| offer.price * needed.div_ceil(offer.capacity_bytes()).max(1) as f64);
    let ram = needed.div_ceil(GIB).max(1) as f64 * catalogue.ram_price_per_gib;
    drives.chain(with_ram.then_some(ram)).fold(f64::INFINITY, f64::min)
}

/// Checks the purchase of a report, and its hit ratio.
fn check_purchase(sentences: &[String], trace: &Trace, rows: &[ResultRow]) -> Result<(), String> {
    let first = &sentences[0];
    let mut seen = HashSet::new();
    let (mut again, mut read_again, mut reads) = (0_u64, 0_u64, 0_u64);
    for (block, op) in trace.accesses() {
        let is_again = !seen.insert(block);
        again += u64::from(is_again);
        reads += u64::from(op == Op::Read);
        read_again += u64::from(op == Op::Read && is_again);
    }
    let touched = seen.len() as u64 * trace.block_size_bytes();
    let share = |part: u64, all: u64| percent(part as f64 / all.max(1) as f64);
    if first.starts_with("Buy no cache") {
        return if again == 0 { Ok(()) } else { Err("blocks are accessed again".to_owned()) };
    }
    if first.starts_with("Buy none of these") {
        let hits = rows.iter().filter(|row| is_online(row)).map(|row| row.hits).max().unwrap();
        return if hits == 0 { Ok(()) } else { Err(format!("{hits} hits")) };
    }
    let (_, bought) = first.split_once("uy ").ok_or("nothing is bought")?;
    let (what, rest) = bought.split_once(" for ").ok_or("no price")?;
    let least_flash = |needed| money(least_price(needed, false), "USD");
    if let Some((_, holds)) = first.split_once(": it holds all ") {
        if !holds.starts_with(&bytes(touched)) {
            return Err(format!("the trace touches {touched}"));
        }
        let (least, serves) = match what.ends_with("of RAM") {
            true => (least_price(touched, true), format!("{} of the reads hit", share(read_again, reads))),
            false => {
                let all = trace.len() as u64;
                (least_price(touched, read_again > 0), format!("{} of the accesses hit", share(again, all)))
            }
        };
        if !rest.starts_with(&money(least, "USD")) || !first.contains(&serves) {
            return Err(format!("it costs {least}, and {serves}"));
        }
        let less = &sentences[1];
        if !less.starts_with("Of less flash, take ") {
            return Err("no smaller cache is named".to_owned());
        }
        return check_run(less, rows);
    }
    let (_, used) = first.split_once(". Use ").ok_or("no size")?;
    check_run(used, rows)?;
    let blocks: u64 = between(used, "(", " block").trim_start_matches("holds ").replace(',', "").parse().unwrap();
    let size = blocks * trace.block_size_bytes();
    if !rest.starts_with(&least_flash(size)) {
        return Err(format!("{} holds it", least_flash(size)));
    }
    let all = least_price(touched, read_again > 0);
    (all > least_price(size, false) + 0.001).then_some(()).ok_or(format!("all blocks cost {all}"))
}

/// Checks `RULE has the least latency over lifetime with SIZE (N blocks), F times better than BASE: ...`. Optional
/// parts before it name the devices and the compared rules.
fn check_admission(first: &str, rows: &[ResultRow]) -> Result<(), String> {
    if !first.starts_with("On SSDs of MLC flash, the default of --storage-device, ") {
        return Err("the storage is not named".to_owned());
    }
    let (before, after) = first.split_once(" has the least latency over lifetime with ").ok_or("no rule")?;
    let before = before.trim_end_matches(" without a rule");
    let named = before.rsplit(' ').next().unwrap();
    let blocks: u64 = between(after, "(", " block").replace(',', "").parse().unwrap();
    let own: Vec<&ResultRow> = rows.iter().filter(|row| row.capacity_blocks == blocks).collect();
    let figures = |row: &ResultRow| row.array.clone().unwrap();
    let base = own.iter().find(|row| rule(row).is_empty()).unwrap();
    let is_compared = |row: &&&ResultRow| {
        row.hit_ratio >= 0.5 * base.hit_ratio && figures(row).latency_mean_us <= 1.4 * figures(base).latency_mean_us
    };
    let cost = |row: &ResultRow| figures(row).latency_over_lifetime;
    let least = own.iter().filter(is_compared).map(|row| cost(row)).fold(f64::INFINITY, f64::min);
    let label = |row: &ResultRow| if rule(row).is_empty() { row.policy.clone() } else { rule(row).to_owned() };
    let said = own.iter().find(|row| label(row) == named).ok_or(format!("{named} did not run"))?;
    if cost(said) > least {
        return Err(format!("{} is more than {least}", cost(said)));
    }
    let all_compared = own.iter().all(|row| is_compared(&row) || cost(row) >= least);
    if before.contains("of the compared rules") == all_compared {
        return Err("some are not compared".to_owned());
    }
    match after.split_once(" times better") {
        Some((times, _)) => {
            let times = times.rsplit(' ').next().unwrap();
            let expected = number(cost(base) / cost(said));
            (times == expected).then_some(()).ok_or(format!("{expected} times"))
        }
        None => Ok(()),
    }
}

/// Checks `lru bends at SIZE, where H of the accesses hit...` or `lru has no knee...` by the distances of all accesses.
fn check_curve(first: &str, trace: &Trace) -> Result<(), String> {
    // The blocks in the order of their last access, the last at the end.
    let (mut order, mut hits_at) = (Vec::new(), vec![0_u64; trace.unique_blocks() + 1]);
    for (block, _) in trace.accesses() {
        if let Some(at) = order.iter().rposition(|&other| other == block) {
            hits_at[order.len() - at] += 1;
            order.remove(at);
        }
        order.push(block);
    }
    let blocks = trace.unique_blocks() as u64;
    let hits = |size: u64| hits_at[..=size as usize].iter().sum::<u64>();
    let most = hits(blocks);
    let above = |size: u64| hits(size) as f64 / most.max(1) as f64 - size as f64 / blocks as f64;
    let steps = (1..=1000_u64).map(|step| blocks * step / 1000).filter(|size| *size > 0);
    let furthest = steps.map(above).fold(f64::NEG_INFINITY, f64::max);
    if first.contains("has no knee") {
        return (furthest < 0.1).then_some(()).ok_or(format!("the curve rises {furthest} above the line"));
    }
    let size = between(first, " bends at ", ", where");
    let said: Vec<u64> = (1..=blocks).filter(|size_of| bytes(size_of * trace.block_size_bytes()) == size).collect();
    let serves = between(first, ", where ", " of the accesses");
    let is_so = |size: &u64| {
        let share = percent(hits(*size) as f64 / trace.len() as f64);
        above(*size) > furthest - 1e-9 && share == serves
    };
    said.iter().any(is_so).then_some(()).ok_or(format!("another size is {furthest} above the line"))
}

fn curves(trace: &Trace) -> String {
    let policy: Spec = "lru".parse().unwrap();
    let sizes = curve::capacities(trace, &Size::parse_list("10%,50%").unwrap()).unwrap();
    let (points, _) = curve::points(trace, &policy, &sizes, Warmup::Accesses(0), &Silent).unwrap();
    Curves { info: Info::of(trace), points, working_sets: Vec::new() }.sentences().remove(0)
}

#[test]
fn first_sentences_are_true_of_all_that_could_be_recommended() {
    let policies = ["lru", "larc", "mq", "car", "s3-fifo", "min"];
    let rules = ["none", "probability:p=0.3", "hotness:min=2", "probability:p=0"];
    let (mut number, mut failures) = (0, Vec::new());
    let mut check = |kind: &str, name: &str, said: &str, found: Result<(), String>| {
        number += 1;
        if let Err(why) = found {
            failures.push(format!("{kind}, {name}: {said} But {why}"));
        }
    };
    let planted = |said: &[String], at: &str| {
        let faulty: Vec<String> = said.iter().map(|said| said.replace(at, &format!("{at}9"))).collect();
        (faulty != said).then_some(faulty)
    };
    for (name, trace) in traces() {
        let (report, rows) = report_of(&trace, &jobs(&policies, "5%,10%,20%,25%,50%", ""));
        let said = sentences_of(&report);
        check("report", &name, &said.join(" "), check_purchase(&said, &trace, &rows));
        for at in [" for ", "it holds all ", "lru serves ", "the best possible "] {
            if let Some(faulty) = planted(&said, at) {
                assert!(check_purchase(&faulty, &trace, &rows).is_err(), "{faulty:?}");
            }
        }
        let brief = Brief::of(&rows).sentences.remove(0);
        let row = rows.iter().find(|row| {
            let begins = format!(
                "Recommended: {} with {} ({}), which hits ",
                row.policy,
                row.size,
                bytes(row.capacity_blocks * row.block_size_bytes)
            );
            brief == format!("{begins}{} of the accesses.", percent(row.hit_ratio))
        });
        let found = row.map_or(Err("no such row".to_owned()), |row| beaten(row, &rows).map_or(Ok(()), Err));
        check("simulate", &name, &brief, found);
        let bends = curves(&trace);
        check("curve", &name, &bends, check_curve(&bends, &trace));
        if let Some(faulty) = planted(std::slice::from_ref(&bends), ", where ") {
            assert!(check_curve(&faulty[0], &trace).is_err(), "{faulty:?}");
        }
        let more = "layout=in-place ram=0 erase-unit=16KiB spare=40%";
        if trace.block_size_bytes() == 4 << 10 {
            let (report, rows) = report_of(&trace, &jobs(&["lru", "larc", "mq", "m", "c"], "10%,20%,50%", more));
            let said = sentences_of(&report);
            check("wear", &name, &said.join(" "), check_purchase(&said, &trace, &rows));
        }
        let of_rule = |rule: &&str| jobs(&["lru"], "10%,20%", &format!("admission={rule}"));
        let (report, rows) = report_of(&trace, &rules.iter().flat_map(of_rule).collect::<Vec<_>>());
        let said = sentences_of(&report);
        check("admission", &name, &said[0], check_admission(&said[0], &rows));
    }
    assert!(failures.is_empty(), "{} of {number}:\n{}", failures.len(), failures.join("\n"));
    assert!(number >= 200, "{number} cases");
}
