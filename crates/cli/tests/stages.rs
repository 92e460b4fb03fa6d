//! The stages of a simulation in every combination: each runs, or is refused with the reason why it means nothing.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use std::path::Path;

use common::{run, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Why combinations are refused; each reason is met at least once.
const REASONS: [&str; 12] = [
    "an algorithm that knows the future decides itself what to take in",
    "a container policy decides itself what to take in",
    "what an algorithm that knows the future decides is a bound for hits and wear",
    "an algorithm that knows the future is the best over the whole trace",
    "a container policy evicts erase units",
    "found --layout none with policy",
    "found --layout log; expected one of them",
    "the whole cache cannot look ahead",
    "knows the future of hits alone, expected m",
    "knows the future, expected one that can run behind",
    "--arrivals is of policies alone",
    "is of a layout, and none is named",
];

/// A folder with a trace of 4,000 requests on 2,000 blocks.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut text = String::from("time,op,offset,length\n");
    let mut state = 1_u64;
    for at in 0..4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (draw, op) = ((state >> 33) % 2000, if state >> 62 == 0 { "write" } else { "read" });
        // Small blocks are asked for more often.
        text += &format!("{},{op},{},4096\n", at * 1000, draw * draw / 2000 * 4096);
    }
    std::fs::write(folder.path().join("trace.csv"), text).unwrap();
    folder
}

fn simulate(folder: &Path, options: &[&str]) -> Result<Vec<Value>, String> {
    let trace = ["simulate", "trace.csv", "--json"];
    let (out, err, code) = run(folder, &[&trace[..], options].concat());
    match code {
        0 => Ok(serde_json::from_str(&out).unwrap()),
        2 => Err(err),
        _ => panic!("{options:?} ended with {code}: {err}"),
    }
}

#[test]
fn every_combination_runs_or_is_refused_with_a_reason() {
    let folder = folder();
    let mut met = [0; REASONS.len()];
    let mut ran = 0;
    for policy in ["lru", "larc", "fif", "ripq+:sections=2", "m+", "c", "h"] {
        for layout in ["", "none", "in-place", "log", "containers"] {
            for rule in ["", "size:max=64KiB", "adaptive:kind=probability,timeframe=100ms", "auto:timeframe=100ms"] {
                for waits in [&[][..], &["--arrivals", "closed:depth=4"]] {
                    for ram in ["0", "20%"] {
                        for counted in [&[][..], &["--epoch", "1000", "--warmup", "10%"]] {
                            // An erase unit is of whatever layout there is.
                            let lies = !["lru", "larc", "fif"].contains(&policy) || !["", "none"].contains(&layout);
                            let unit = if lies { "16KiB" } else { "" };
                            let size = if layout == "log" || layout == "containers" { "16MiB" } else { "400" };
                            let mut options = vec!["--policy", policy, "--size", size, "--ram", ram];
                            let given = [("--layout", layout), ("--admission", rule), ("--erase-unit", unit)];
                            options.extend(
                                given
                                    .iter()
                                    .filter(|(_, value)| !value.is_empty())
                                    .flat_map(|(name, value)| [*name, *value]),
                            );
                            options.extend(waits.iter().chain(counted));
                            if layout == "log" || layout == "containers" {
                                // The log has erase units of 64KiB at least.
                                options
                                    .iter_mut()
                                    .filter(|option| **option == "16KiB")
                                    .for_each(|unit| *unit = "64KiB");
                            }
                            match simulate(folder.path(), &options) {
                                Ok(rows) => {
                                    let row = &rows[0];
                                    let of = |figure: &str| row[figure].as_u64().unwrap();
                                    assert_eq!(of("hits"), of("read_hits") + of("write_hits"), "{options:?}");
                                    assert_eq!(of("accesses"), of("reads") + of("writes"), "{options:?}");
                                    let epochs = row["epochs"].as_array().map_or(0, Vec::len);
                                    assert_eq!(epochs, if counted.is_empty() { 0 } else { 4 }, "{options:?}");
                                    ran += 1;
                                }
                                Err(error) => {
                                    let own = policy.split(':').next().unwrap();
                                    assert!(!error.contains("m+") || own == "m+", "{options:?}: {error}");
                                    let reason = REASONS.iter().position(|reason| error.contains(reason));
                                    met[reason.unwrap_or_else(|| panic!("{options:?}: {error}"))] += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    let error = simulate(folder.path(), &["--policy", "lru", "--size", "400", "--erase-unit", "16KiB"]).unwrap_err();
    met[11] += usize::from(error.contains(REASONS[11]));
    assert!(ran > 280, "{ran} combinations ran");
    for (reason, met) in REASONS.iter().zip(met) {
        assert!(met > 0, "no combination is refused because: {reason}");
    }
}

#[test]
fn without_ram_a_policy_answers_the_same_in_every_layout() {
    let folder = folder();
    for policy in ["lru", "larc", "arc", "s3-fifo", "sieve", "lirs"] {
        let log =
            ["--layout", "log", "--erase-unit", "64KiB", "--copy-forward", "all", "--write-mode", "write-through"];
        let log = simulate(folder.path(), &[&["--policy", policy, "--size", "2MiB"], &log[..]].concat()).unwrap();
        let size = log[0]["capacity_blocks"].to_string();
        let plain = ["--policy", policy, "--size", &size];
        let alone = simulate(folder.path(), &plain).unwrap();
        let in_place = [&plain[..], &["--layout", "in-place", "--ram", "0", "--erase-unit", "16KiB"]].concat();
        let in_place = simulate(folder.path(), &in_place).unwrap();
        let behind = simulate(folder.path(), &[&plain[..], &["--admission", "none"]].concat()).unwrap();
        for figure in ["accesses", "reads", "writes", "read_hits", "write_hits", "hits", "hit_ratio", "bypasses"] {
            for (layout, rows) in [("in place", &in_place), ("array", &behind)] {
                assert_eq!(rows[0][figure], alone[0][figure], "{figure} of {policy}, {layout}");
            }
        }
        // The policy answers the same in a log. What it evicted can be read there until its unit is reset, so that more reads are hits.
        for figure in ["accesses", "reads", "writes", "admissions", "replacements", "evictions", "bypasses"] {
            assert_eq!(log[0][figure], alone[0][figure], "{figure} of {policy}, log");
        }
        assert!(log[0]["read_hits"].as_u64() >= alone[0]["read_hits"].as_u64(), "{policy}");
        for figure in ["admissions", "replacements", "evictions", "write_traffic_blocks", "flash_writes_blocks"] {
            assert_eq!(in_place[0][figure], alone[0][figure], "{figure} of {policy} in place");
        }
    }
}

#[test]
fn stating_a_default_changes_nothing() {
    let folder = folder();
    let of = |options: &[&str]| {
        succeed(folder.path(), &[&["simulate", "trace.csv", "--policy", "lru", "--csv"], options].concat())
    };
    let plain = of(&[]);
    let sizes = ["--size", "1%,2%,5%,10%,20%,50%"];
    for stated in
        [&["--ram", "0"][..], &["--layout", "none"], &["--warmup", "0"], &["--layout", "none", "--ram", "0"], &sizes]
    {
        assert_eq!(of(stated), plain, "{stated:?}");
    }
    let array = ["--admission", "none", "--size", "10%"];
    let plain = of(&array);
    for stated in [
        ["--arrivals", "none"],
        ["--cache-device", "slc"],
        ["--storage-device", "mlc"],
        ["--ram", "0"],
        ["--layout", "none"],
    ] {
        assert_eq!(of(&[&array[..], &stated].concat()), plain, "{stated:?}");
    }
    let in_place = ["--layout", "in-place", "--size", "1024", "--erase-unit", "64KiB"];
    let plain = of(&in_place);
    let stated = [
        ["--ram", "5%"],
        ["--over-provision", "7%"],
        ["--gc-victim", "greedy"],
        ["--gc-placement", "own"],
        ["--gc-reserve", "1"],
        ["--trim", "off"],
        ["--wfue-alpha", "50%"],
    ];
    for stated in stated {
        assert_eq!(of(&[&in_place[..], &stated].concat()), plain, "{stated:?}");
    }
    let log = ["--layout", "log", "--size", "64MiB"];
    let plain = of(&log);
    let stated = [
        ["--ram", "0"],
        ["--write-mode", "write-back"],
        ["--erase-unit", "2MiB"],
        ["--over-provision", "10%"],
        ["--copy-forward", "used"],
        ["--dirty-high", "50%"],
        ["--dirty-low", "40%"],
        ["--dirty-age", "15min"],
        ["--commit-age", "5s"],
        ["--sequential-bypass", "4MiB"],
        ["--write-buffer-share", "50%"],
        ["--admission", "none"],
    ];
    for stated in stated {
        assert_eq!(of(&[&log[..], &stated].concat()), plain, "{stated:?}");
    }
}

#[test]
fn the_table_shows_the_stages_that_were_named() {
    let folder = folder();
    let header = |options: &[&str]| {
        let out =
            succeed(folder.path(), &[&["simulate", "trace.csv", "--policy", "lru", "--size", "400"], options].concat());
        assert!(out.lines().nth(1).unwrap().contains("lru"), "{out}");
        let words = |line: usize| out.lines().nth(line).unwrap().split("  ").filter(|word| !word.is_empty()).count();
        assert_eq!(words(0), words(1), "{out}");
        out.lines().next().unwrap().to_owned()
    };
    let plain = header(&[]);
    assert!(!plain.contains("RAM") && !plain.contains("latency"), "{plain}");
    assert!(header(&["--ram", "5%"]).contains("RAM"));
    let behind = header(&["--ram", "5%", "--admission", "size"]);
    assert!(behind.contains("admission") && behind.contains("latency us"), "{behind}");
    let flash = ["--layout", "in-place", "--erase-unit", "64KiB"];
    assert!(!header(&flash).contains("admission"));
    let behind = header(&[&flash[..], &["--admission", "size"]].concat());
    assert!(["admission", "erased", "WFUE", "latency us"].iter().all(|column| behind.contains(column)), "{behind}");
}

/// A rule before a policy in place: what it admits, and what that wears out beside M+, in one row.
#[test]
fn a_rule_is_judged_by_erasures_beside_the_best() {
    let folder = folder();
    let options = ["--policy", "lru", "--size", "400", "--layout", "in-place", "--erase-unit", "64KiB", "--ram", "0"];
    let rules = ["--admission", "none", "--admission", "hotness:min=2"];
    let rows = simulate(folder.path(), &[&options[..], &rules].concat()).unwrap();
    let of = |at: usize, figure: &str| rows[at][figure].as_f64().unwrap_or_else(|| panic!("{figure} of {}", rows[at]));
    assert_eq!((rows[0]["admission"].as_str(), rows[1]["admission"].as_str()), (Some(""), Some("hotness:min=2")));
    assert!(of(1, "erasures") < of(0, "erasures") && of(1, "wfue") > of(0, "wfue"), "{rows:?}");
    assert!(of(1, "latency_mean_us") > 0.0 && of(1, "epbpd") > 0.0, "{rows:?}");
}
