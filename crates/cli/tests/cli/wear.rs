//! Printed figures of wear: each has the time and the meaning of its name.

use crate::common::{fail, project, run as run_in, succeed};
use serde_json::Value;

/// The rows of `flashwise simulate` over the bundled trace, with erase units of 256KiB.
fn rows(options: &str) -> Vec<Value> {
    let arguments = format!("simulate traces/netsfs.csv.zst --erase-unit 256KiB --json {options}");
    serde_json::from_str(&succeed(&project(), &arguments.split(' ').collect::<Vec<_>>())).unwrap()
}

fn count(row: &Value, figure: &str) -> u64 {
    row[figure].as_u64().unwrap_or_else(|| panic!("{figure} of {row}"))
}

fn number(row: &Value, figure: &str) -> f64 {
    row[figure].as_f64().unwrap_or_else(|| panic!("{figure} of {row}"))
}

/// Wear with the warm-up, over days without it, would be twice the correct value.
#[test]
fn wear_and_lifetime_are_those_of_the_time_after_the_warm_up() {
    const CYCLES: f64 = 100_000.0;
    let options =
        "--policy lru --policy larc --policy pannier --policy m+ --policy c --policy h --size 5% --device samsung-slc";
    for warmup in ["0", "50%"] {
        for row in rows(&format!("{options} --warmup {warmup}")) {
            let (policy, most) = (&row["policy"], count(&row, "wear_max"));
            let worn = number(&row, "wear_mean") * number(&row, "erase_units");
            assert_eq!(worn.round() as u64, count(&row, "erasures"), "{policy}, warm-up {warmup}");
            assert!(count(&row, "wear_min") as f64 <= number(&row, "wear_mean") && most > 0, "{policy}");
            let years = CYCLES / (most as f64 / number(&row, "days")) / 365.0;
            let found = number(&row, "flash_lifetime_years");
            assert!((found / years - 1.0).abs() < 1e-6, "{policy}, warm-up {warmup}: {found} years, expected {years}");
        }
    }
}

/// A hit that a write buffer or an open erase unit in RAM has reads nothing from flash.
#[test]
fn reads_that_ram_had_on_the_way_to_flash_are_no_flash_read_hits() {
    for row in rows("--policy lru --policy ripq+ --policy pannier --policy m+ --policy c --policy h --size 5% --ram 0")
    {
        let policy = row["policy"].as_str().unwrap();
        let (ram, buffers, flash) =
            (count(&row, "ram_read_hits"), count(&row, "buffer_hits"), count(&row, "flash_read_hits"));
        assert_eq!((ram + flash, ram), (count(&row, "read_hits"), buffers), "{policy}");
        assert_eq!(buffers > 0, ["ripq+", "pannier", "c"].contains(&policy), "{policy}: {buffers}");
        let fue = flash as f64 / count(&row, "device_programs_pages") as f64;
        assert!((number(&row, "fue") - fue).abs() < 1e-9, "{policy}");
    }
}

/// Every byte of the given RAM is a read cache or a buffer; a buffer beyond the RAM is shown too.
#[test]
fn every_byte_of_ram_is_accounted_for() {
    const UNIT: u64 = 256 << 10;
    let policies = "--policy lru --policy ripq+ --policy pannier --policy m --policy m+ --policy c --policy h";
    // Eight and three erase units fill up in RAM, and are written with their last block; C gathers four.
    let buffer = |policy: &str| match policy {
        "ripq+" => 8 * (UNIT - 4096),
        "pannier" => 3 * (UNIT - 4096),
        "c" => 4 * UNIT,
        _ => 0,
    };
    for ram in [0, 4 * UNIT, 16 * UNIT] {
        for row in rows(&format!("{policies} --size 5% --ram {ram}")) {
            let policy = row["policy"].as_str().unwrap();
            let (cache, held) = (count(&row, "read_cache_bytes"), count(&row, "buffer_bytes"));
            assert_eq!((held, cache), (buffer(policy), ram.saturating_sub(buffer(policy))), "{policy}, {ram}");
            assert_eq!(count(&row, "ram_bytes"), cache + held, "{policy}, {ram}");
            let hits = count(&row, "ram_read_hits") - count(&row, "buffer_hits");
            assert!(cache > 0 || hits == 0, "{policy}: {hits} hits in a read cache of nothing");
            // The trace re-reads little: of those that do not know the future a small read cache has no hits either.
            assert!(cache == 0 || hits > 0 || !["m", "m+", "h"].contains(&policy), "{policy}, {ram}");
        }
    }
}

/// Rates and lifetimes from less than a day are marked in tables, and rows have that time.
#[test]
fn extrapolated_figures_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    // The same 4,000 requests within a minute, and within more than a day.
    for (name, step_us) in [("minute.csv", 15_000_u64), ("days.csv", 30_000_000)] {
        let mut text = String::from("time,op,offset,length\n");
        for at in 0..4000 {
            text += &format!("{},read,{},4096\n", at * step_us, at * 7 % 1000 * 4096);
        }
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let options =
        "--policy lru --size 10% --erase-unit 16KiB --layout in-place --cache-device slc --storage-device mlc";
    let run = |trace: &str, more: &str| {
        let arguments = format!("simulate {trace} {options} {more}");
        succeed(folder.path(), &arguments.trim().split(' ').collect::<Vec<_>>())
    };
    let caveat = |trace: &str| {
        let rows: Vec<Value> = serde_json::from_str(&run(trace, "--json")).unwrap();
        rows[0]["caveat"].as_str().map(str::to_owned)
    };
    assert_eq!(caveat("minute.csv").unwrap(), "rates per day and lifetimes are extrapolated from 1 min");
    assert_eq!(caveat("days.csv"), None);
    assert!(run("minute.csv", "--csv").lines().next().unwrap().split(',').any(|column| column == "caveat"));
    let (short, long) = (run("minute.csv", "--html short.html"), run("days.csv", "--html long.html"));
    assert!(
        short.contains(" ~")
            && short.contains("~: minute.csv: rates per day and lifetimes are extrapolated from 1 min"),
        "{short}"
    );
    assert!(!long.contains('~'), "{long}");
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let caption = "Erasures per erase unit and day. Rates per day and lifetimes are extrapolated from 1 min.";
    assert!(page("short.html").contains(caption) && !page("long.html").contains("extrapolated"));
    // Of the sizes that pareto takes by itself, the smallest are no flash.
    let pareto = "pareto minute.csv --policy lru --erase-unit 16KiB --ram 0";
    let (shown, said, code) = run_in(folder.path(), &pareto.split(' ').collect::<Vec<_>>());
    assert!(code == 0 && shown.contains("20%") && said.contains("left out all policies: size '1%': "), "{said}{shown}");
    assert_eq!(
        fail(folder.path(), &format!("{pareto} --size 1%").split(' ').collect::<Vec<_>>(), 2).matches("1%").count(),
        1
    );
    let pareto = "pareto minute.csv --policy lru --size 10% --erase-unit 16KiB --ram 0";
    let shown = succeed(folder.path(), &pareto.split(' ').collect::<Vec<_>>());
    assert!(shown.contains("~: minute.csv: rates per day"), "{shown}");
}

#[test]
fn a_refusal_says_its_cause_once() {
    let options = "simulate traces/netsfs.csv.zst --policy lru --layout in-place --size 1% --erase-unit 256KiB \
        --spare 1%";
    let refusal = fail(&project(), &options.split(' ').collect::<Vec<_>>(), 2);
    assert!(refusal.starts_with("flashwise: size '1%': spare flash of 1 % of 6171 pages is 1"), "{refusal}");
    assert_eq!(refusal.matches("raise it to 1.64 %").count(), 1, "{refusal}");
}

/// An array's lifetime comes from the trace's times, and is absent if these are not in order.
#[test]
fn invalid_times_give_a_reason_instead_of_a_lifetime() {
    let folder = tempfile::tempdir().unwrap();
    // Each request half a minute before the one before.
    let mut text = String::from("time,op,offset,length\n");
    for at in 0..4000_u64 {
        text += &format!("{},read,{},4096\n", (4000 - at) * 30_000_000, at * 7 % 1000 * 4096);
    }
    std::fs::write(folder.path().join("back.csv"), text).unwrap();
    let run = "simulate back.csv --policy lru --size 10% --cache-device slc --storage-device mlc --json";
    // Wrong times are reported again when the trace is read.
    let (out, err, code) = crate::common::run(folder.path(), &run.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    for figure in ["lifetime_years", "latency_over_lifetime", "cache_write_rate", "storage_write_rate"] {
        assert!(rows[0][figure].is_null(), "{figure}: {}", rows[0]);
    }
    assert!(rows[0]["latency_mean_us"].is_number(), "{}", rows[0]);
    let caveat = rows[0]["caveat"].as_str().unwrap();
    assert!(
        caveat.starts_with("the times of the trace say no rates and lifetimes: of 4,000 requests, 3,99"),
        "{caveat}"
    );
    assert!(caveat.ends_with("expected at most 10% of them"), "{caveat}");
}
