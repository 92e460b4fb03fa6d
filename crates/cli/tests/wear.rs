//! Figures of wear as the program prints them: each is of the time that it names, and counts what its name says.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use common::{project, succeed};
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

/// Wear that includes the warm-up over days without it would be twice what it is.
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
fn reads_that_ram_had_on_the_way_to_flash_are_no_flash_hits() {
    for row in rows("--policy lru --policy ripq+ --policy pannier --policy m+ --policy c --policy h --size 5% --ram 0")
    {
        let policy = row["policy"].as_str().unwrap();
        let (ram, buffers, flash) = (count(&row, "ram_hits"), count(&row, "buffer_hits"), count(&row, "flash_hits"));
        assert_eq!((ram + flash, ram), (count(&row, "read_hits"), buffers), "{policy}");
        assert_eq!(buffers > 0, ["ripq+", "pannier", "c"].contains(&policy), "{policy}: {buffers}");
        let fue = flash as f64 / count(&row, "device_programs_pages") as f64;
        assert!((number(&row, "fue") - fue).abs() < 1e-9, "{policy}");
    }
}

/// Of the RAM that is given, every byte is a read cache or a buffer; a buffer that there is no RAM for is shown all the same.
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
            let hits = count(&row, "ram_hits") - count(&row, "buffer_hits");
            assert!(cache > 0 || hits == 0, "{policy}: {hits} hits in a read cache of nothing");
            // The trace re-reads little: of those that do not know the future a small read cache has no hits either.
            assert!(cache == 0 || hits > 0 || !["m", "m+", "h"].contains(&policy), "{policy}, {ram}");
        }
    }
}
