//! The stages of a simulation in every combination: each runs, or is refused with the reason why it means nothing.

use std::path::Path;

use crate::common::{run, succeed};
use flashwise_sim::job::Job;
use serde_json::Value;
use tempfile::TempDir;

/// Why combinations are refused; each reason is met at least once.
const REASONS: [&str; 12] = [
    "an algorithm that knows the future decides itself what to admit",
    "a container policy decides itself what to admit",
    "a container policy evicts erase units",
    "found --layout none with policy",
    "found --layout log; expected one of them",
    "the whole cache cannot look ahead",
    "it maximises hits only; with simulated flash, m is the best",
    "it knows the next uses before the RAM",
    "it bounds the hits and knows nothing about devices",
    "found --layout none; expected one of them",
    "expected one of them with it",
    "--layout containers is for algorithms that evict whole erase units",
];

/// A folder with a trace of 4,000 requests on 2,000 blocks, in the form that is read fastest.
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
    let format = "csv:time=0,op=1,offset=2,length=3,time-unit=us,offset-unit=1,length-unit=1";
    succeed(folder.path(), &["trace", "convert", "trace.csv", "trace.arrow", "--format", format]);
    folder
}

fn simulate(folder: &Path, options: &[&str]) -> Result<Vec<Value>, String> {
    simulate_text(folder, options).map(|out| serde_json::from_str(&out).unwrap())
}

fn simulate_text(folder: &Path, options: &[&str]) -> Result<String, String> {
    let trace = ["simulate", "trace.arrow", "--json"];
    let (out, err, code) = run(folder, &[&trace[..], options].concat());
    match code {
        0 => Ok(out),
        2 => Err(err),
        _ => panic!("{options:?} ended with {code}: {err}"),
    }
}

/// The options of a combination; an empty value is not given.
fn combination(policy: &str, layout: &str, ram: &str, named: &[(&str, &str)]) -> Vec<String> {
    let is_log = layout == "log";
    let on_ssd = named.iter().any(|(name, value)| *name == "--gc-victim" && !value.is_empty());
    // An erase unit belongs to the layout; those of the log have at least 64 KiB.
    let lies = on_ssd || !["lru", "larc", "fif"].contains(&policy) || !["", "none"].contains(&layout);
    let unit = match (lies && layout != "none", is_log) {
        (false, _) => "",
        (true, true) => "64KiB",
        (true, false) => "16KiB",
    };
    let size = if is_log { "16MiB" } else { "400" };
    let own = [("--policy", policy), ("--layout", layout), ("--size", size), ("--ram", ram), ("--erase-unit", unit)];
    let given = own.iter().chain(named).filter(|(_, value)| !value.is_empty());
    given.flat_map(|(name, value)| [*name, *value]).map(str::to_owned).collect()
}

/// All combinations of policy, layout, rule, device, waits and RAM. Every other one has epochs and a warm-up, so these
/// occur with all combinations of any four others.
#[test]
fn every_combination_runs_or_is_refused_with_a_reason() {
    let folder = folder();
    let mut met = [0; REASONS.len()];
    let (mut ran, mut whole) = (0, 0);
    for (p, policy) in ["lru", "larc", "fif", "ripq+:sections=2", "m+", "c", "h"].into_iter().enumerate() {
        for (l, layout) in ["", "none", "in-place", "log", "containers"].into_iter().enumerate() {
            for (r, rule) in ["", "size:max=64KiB", "adaptive:kind=probability,timeframe=100ms", "auto:timeframe=100ms"]
                .into_iter()
                .enumerate()
            {
                for (w, (ssd, waits)) in
                    [("", ""), ("", "closed:depth=4"), ("fifo", ""), ("fifo", "trace:speed=2")].into_iter().enumerate()
                {
                    for (m, ram) in ["0", "20%"].into_iter().enumerate() {
                        let (epoch, warmup) = [("", ""), ("1000", "10%")][(p + l + r + w + m) % 2];
                        let named = [
                            ("--admission", rule),
                            ("--arrivals", waits),
                            ("--gc-victim", ssd),
                            ("--epoch", epoch),
                            ("--warmup", warmup),
                        ];
                        let options = combination(policy, layout, ram, &named);
                        let options: Vec<&str> = options.iter().map(String::as_str).collect();
                        match simulate_text(folder.path(), &options) {
                            Ok(out) => {
                                let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
                                check(&rows[0], &options, &named);
                                // Every third row repeats as a job; no option has a multiple of three values.
                                if ran % 3 == 0 {
                                    check_job(folder.path(), &rows[0], &out);
                                }
                                ran += 1;
                                whole += usize::from(rows[0]["write_mode"].is_string());
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
    let error = simulate(folder.path(), &["--policy", "lru", "--size", "400", "--erase-unit", "16KiB"]).unwrap_err();
    met[10] += usize::from(error.contains(REASONS[10]));
    // Both policies in the log, with all that there is; without a layout an SSD names one in place.
    assert_eq!(whole, 2 * 4 * 4 * 2, "combinations of the whole cache");
    assert!(ran > 300, "{ran} combinations ran");
    for (reason, met) in REASONS.iter().zip(met) {
        assert!(met > 0, "no combination is refused because: {reason}");
    }
}

/// Caches that take no rule appear once beside those with rules, if the list has none.
#[test]
fn rules_are_compared_with_runs_without_one() {
    let folder = folder();
    let options = ["--size", "400", "--ram", "0", "--erase-unit", "16KiB", "--policy", "m+,lru,ripq+:sections=2"];
    let both = [&options[..], &["--admission", "none", "--admission", "probability:p=0.3"]].concat();
    let rows: Vec<Value> = serde_json::from_str(&simulate_text(folder.path(), &both).unwrap()).unwrap();
    let ran: Vec<_> = rows.iter().map(|row| (row["policy"].as_str().unwrap(), row["admission"].as_str())).collect();
    let lru = [("lru", Some("")), ("lru", Some("probability:p=0.3"))];
    assert_eq!(ran, [&[("m+", Some(""))], &lru[..], &[("ripq+:sections=2", Some(""))]].concat());
    assert!(
        rows.iter().all(|row| row["erasures"].is_u64() && row["wfue"].is_f64() && row["epbpd"].is_f64()),
        "{rows:?}"
    );
    let alone = [&options[..], &["--admission", "probability:p=0.3"]].concat();
    assert!(simulate_text(folder.path(), &alone).unwrap_err().contains(REASONS[0]));
}

/// A row has the figures of the stages that were named, and they go together.
fn check(row: &Value, options: &[&str], named: &[(&str, &str)]) {
    let is_named = |option: &str| named.iter().any(|(name, value)| *name == option && !value.is_empty());
    let of = |figure: &str| row[figure].as_u64().unwrap_or_else(|| panic!("{figure}: {options:?}"));
    assert_eq!(of("hits"), of("read_hits") + of("write_hits"), "{options:?}");
    assert_eq!(of("accesses"), of("reads") + of("writes"), "{options:?}");
    let epochs = row["epochs"].as_array().map_or(0, Vec::len);
    assert_eq!(epochs, if is_named("--epoch") { 4 } else { 0 }, "{options:?}");
    if is_named("--admission") || is_named("--arrivals") {
        assert!(row["latency_mean_us"].as_f64().unwrap() > 0.0, "{options:?}");
    }
    for (_, rule) in named.iter().filter(|(name, rule)| *name == "--admission" && !rule.is_empty()) {
        assert_eq!(row["admission"], *rule, "{options:?}");
    }
    if is_named("--gc-victim") {
        let amplification = row["device_write_amplification"].as_f64();
        assert!(amplification.is_none_or(|amplification| amplification >= 1.0), "{options:?}");
        let is_whole = row["write_mode"].is_string();
        assert!(row["wear_max"].is_u64() && (!is_whole || of("device_programs_pages") > 0), "{options:?}");
    }
}

/// The job of a row is read back from both of its forms, and its result is the same to the last byte.
fn check_job(folder: &Path, row: &Value, out: &str) {
    let text = row["job"].as_str().unwrap();
    let job: Job = text.parse().unwrap();
    assert_eq!(job.to_string(), text);
    let json = serde_json::to_string(&job).unwrap();
    let read: Job = serde_json::from_str(&json).unwrap();
    assert_eq!((read.to_string().as_str(), read.meaning().unwrap()), (text, job.meaning().unwrap()));
    std::fs::write(folder.join("job.json"), json).unwrap();
    assert_eq!(simulate_text(folder, &["--job", "job.json"]).as_deref(), Ok(out), "{text}");
}

/// A device changes no decision of the whole cache. With waiting requests, blocks are dirty for longer.
#[test]
fn a_device_changes_nothing_that_the_whole_cache_decides_and_waiting_no_request() {
    let folder = folder();
    let log = ["--policy", "larc", "--layout", "log", "--size", "2MiB", "--erase-unit", "64KiB", "--ram", "64KiB"];
    let run = |more: &[&str]| simulate(folder.path(), &[&log[..], more].concat()).unwrap().remove(0);
    let alone = run(&[]);
    let (device, waits) = (["--gc-victim", "fifo", "--trim", "on"], ["--arrivals", "trace"]);
    let of_device = run(&device);
    let both = run(&[&waits[..], &device].concat());
    let figures = alone.as_object().unwrap();
    assert!(figures.len() > 40, "{alone}");
    for (figure, value) in figures.iter().filter(|(figure, _)| !["erasures", "job"].contains(&figure.as_str())) {
        assert_eq!(&of_device[figure], value, "{figure}");
    }
    for figure in ["accesses", "reads", "writes", "sequential_blocks", "filtered_blocks"] {
        assert_eq!(both[figure], alone[figure], "{figure}");
    }
    let of = |figure: &str| both[figure].as_u64().unwrap_or_else(|| panic!("{figure}: {both}"));
    // The device programmed all writes of the log, except blocks that wait in memory for their segment.
    let copies = of("device_copies_pages");
    let in_memory = of("flash_writes_blocks") - (of("device_programs_pages") - copies);
    assert!(in_memory <= 252, "{in_memory} blocks are in memory");
    assert!(
        of("host_read_pages") >= of("flash_read_hits") && of("host_discarded_pages") == 16 * of("resets"),
        "{both}"
    );
    assert!(of("flash_flushes") > 0 && both["layout"] == "log", "{both}");
    // The whole cache answers writes from memory; a policy has no memory.
    assert!(both["latency_p50_us"].as_f64() <= both["latency_max_us"].as_f64(), "{both}");
    // A device has erase units of its own: 256 pages of 4KiB.
    let log = ["--policy", "larc", "--layout", "log", "--size", "16MiB", "--erase-unit", "64KiB", "--device", "femu"];
    let named = simulate(folder.path(), &log).unwrap().remove(0);
    assert_eq!((named["device"].as_str(), named["erase_unit_bytes"].as_u64()), (Some("femu"), Some(1 << 20)));
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
        // The policy decides the same with a log. Evicted blocks are readable there until their unit is reset, so more
        // reads hit.
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
        succeed(folder.path(), &[&["simulate", "trace.arrow", "--policy", "lru", "--csv"], options].concat())
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
        ["--spare", "7%"],
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
        ["--write-buffer-half-life", "16"],
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
        let out = succeed(
            folder.path(),
            &[&["simulate", "trace.arrow", "--policy", "lru", "--size", "400"], options].concat(),
        );
        assert!(out.lines().nth(1).unwrap().contains("lru"), "{out}");
        let words = |line: usize| out.lines().nth(line).unwrap().split("  ").filter(|word| !word.is_empty()).count();
        assert_eq!(words(0), words(1), "{out}");
        out.lines().next().unwrap().to_owned()
    };
    let plain = header(&[]);
    assert!(!plain.contains("RAM") && !plain.contains("latency"), "{plain}");
    assert!(header(&["--ram", "5%"]).contains("RAM"));
    let behind = header(&["--ram", "5%", "--admission", "size"]);
    assert!(behind.contains("admission") && behind.contains("latency"), "{behind}");
    let flash = ["--layout", "in-place", "--erase-unit", "64KiB"];
    assert!(!header(&flash).contains("admission"));
    let behind = header(&[&flash[..], &["--admission", "size"]].concat());
    assert!(["admission", "erased", "WFUE", "latency"].iter().all(|column| behind.contains(column)), "{behind}");
}

/// A rule in front of a policy in place: one row has its admissions, and its wear compared with M+.
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
