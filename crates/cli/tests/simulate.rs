//! `flashwise simulate` as its users see it.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{fail, flashwise, parts, project, run, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Twelve reads and writes of blocks 0 to 6: the accesses of Table I of the LARC paper, after four that fill the cache.
const TABLE_I: &str = "\
0,h,0,Read,12288,4096,0
0,h,0,Read,8192,4096,0
0,h,0,Write,4096,4096,0
0,h,0,Write,0,4096,0
10,h,0,Read,4096,4096,0
20,h,0,Read,20480,4096,0
30,h,0,Read,12288,4096,0
40,h,0,Read,16384,4096,0
50,h,0,Read,12288,4096,0
60,h,0,Read,4096,4096,0
70,h,0,Write,0,4096,0
80,h,0,Read,16384,4096,0
90,h,0,Read,0,4096,0
100,h,0,Read,12288,4096,0
110,h,0,Read,24576,4096,0
120,h,0,Read,4096,4096,0
";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("table1.csv"), TABLE_I).unwrap();
    std::os::unix::fs::symlink(project().join("traces"), folder.path().join("traces")).unwrap();
    folder
}

/// Table I: LARC has 8 hits and 1 replacement after the first four accesses, LRU 6 and 6. Of the accesses, only block 0 is
/// written after those four, a hit in LARC but not in LRU: LARC
/// writes 1 write hit and 1 admission to flash, LRU 6 admissions.
#[test]
fn table_i_of_the_larc_paper_comes_out_in_json() {
    let folder = folder();
    let arguments =
        ["simulate", "table1.csv", "--policy", "larc:tuning=fixed,cr=50%", "--policy", "lru", "--size", "4"];
    let json = succeed(folder.path(), &[&arguments[..], &["--warmup", "4", "--json"]].concat());
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let figures =
        |row: &Value| ["hits", "replacements", "flash_writes_blocks", "accesses"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(figures(&rows[0]), [8, 1, 2, 12]);
    assert_eq!(figures(&rows[1]), [6, 6, 6, 12]);
    assert_eq!(rows.len(), 2);
}

#[test]
fn json_has_the_promised_keys() {
    let folder = folder();
    let json =
        succeed(folder.path(), &["simulate", "table1.csv", "--policy", "larc:fill=ghost", "--size", "50%", "--json"]);
    insta::assert_snapshot!(json);
}

#[test]
fn csv_and_the_table_show_the_same_rows() {
    let folder = folder();
    let arguments =
        ["simulate", "table1.csv", "--policy", "lru", "--policy", "FIF", "--policy", "min", "--size", "2,4"];
    insta::assert_snapshot!("table", succeed(folder.path(), &arguments));
    insta::assert_snapshot!("csv", succeed(folder.path(), &[&arguments[..], &["--csv"]].concat()));
}

#[test]
fn epochs_add_up_to_the_whole() {
    let folder = folder();
    let arguments = ["simulate", "table1.csv", "--policy", "lru", "--size", "4", "--epoch", "5", "--json"];
    let rows: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &arguments)).unwrap();
    let epochs = rows[0]["epochs"].as_array().unwrap();
    let column = |key: &str| epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!((column("first_access"), column("accesses")), (vec![0, 5, 10, 15], vec![5, 5, 5, 1]));
    assert_eq!(column("flash_writes_blocks").iter().sum::<u64>(), rows[0]["flash_writes_blocks"].as_u64().unwrap());
}

#[test]
fn every_policy_runs_when_none_is_named_and_results_do_not_depend_on_threads() {
    let folder = folder();
    let run = |threads: &str| {
        let arguments = ["simulate", "traces/netsfs.csv.zst", "table1.csv", "--json", "--threads", threads];
        succeed(folder.path(), &[&arguments[..], &["--size", "1%,10%", "--epoch", "400000"]].concat())
    };
    let one = run("1");
    assert_eq!(one, run("4"));
    let rows: Vec<Value> = serde_json::from_str(&one).unwrap();
    assert_eq!(rows.len(), 2 * 2 * flashwise_core::policy::POLICIES.len());
    for row in rows {
        let count = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(count("reads") + count("writes"), count("accesses"));
        assert_eq!(count("hits") + count("admissions") + count("bypasses"), count("accesses"));
        assert_eq!(count("flash_writes_blocks"), count("write_hits") + count("admissions"));
    }
}

#[test]
fn standard_input_is_read_once() {
    let folder = folder();
    let mut child = flashwise(folder.path(), &["simulate", "-", "--policy", "lru", "--size", "4", "--csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(TABLE_I.as_bytes()).unwrap();
    let (out, err, code) = parts(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\n-,lru,4,"), "{out}");
    let err = fail(folder.path(), &["simulate", "-", "-", "--policy", "lru"], 2);
    assert!(err.contains("given more than once"), "{err}");
}

#[test]
fn parquet_is_written_whole_or_not_at_all() {
    let folder = folder();
    let arguments = |trace| ["simulate", trace, "--policy", "lru", "--size", "4", "--parquet", "out.parquet"];
    fail(folder.path(), &arguments("missing.csv"), 1);
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files(), 2, "nothing is left behind");
    succeed(folder.path(), &arguments("table1.csv"));
    assert_eq!(files(), 3);
    let err = fail(folder.path(), &["simulate", "table1.csv", "--size", "4", "--parquet", "no/such/folder.parquet"], 1);
    assert!(err.starts_with("flashwise: no/such/folder.parquet: found no directory no/such"), "{err}");
}

#[test]
fn misuse_ends_with_2_and_says_what_was_expected() {
    let folder = folder();
    let errors = [
        &["--policy", "lrc", "--size", "4"][..],
        &["--policy", "larc:fill=gost", "--size", "4"],
        &["--policy", "lru:x=1", "--size", "4"],
        &["--size", "0"],
        &["--size", "120%"],
        &["--size", "99999999999"],
        &["--size", "1KiB"],
        &["--size", "5%..1%:1%"],
        &["--block-size", "3000"],
        &["--format", "mrs"],
        &["--warmup", "many"],
        &["--warmup", "16"],
        &["--warmup", "100%"],
        &["--epoch", "0"],
        &["--threads", "1000"],
        &["--html", "out", "--parquet", "out"],
        &["--json", "--csv"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!(errors.join("\n\n"));
}

#[test]
fn failures_end_with_1_and_name_the_file_and_line() {
    let folder = folder();
    let write = |name: &str, contents: &[u8]| std::fs::write(folder.path().join(name), contents).unwrap();
    write("bad.csv", TABLE_I.replace("80,h,0,Read", "80,h,0,Fetch").as_bytes());
    write("short.csv", &TABLE_I.as_bytes()[..TABLE_I.len() - 12]);
    write("header.csv", b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n");
    write("empty.csv", b"");
    let whole = std::fs::read(folder.path().join("traces/netsfs.csv.zst")).unwrap();
    write("cut.csv.zst", &whole[..whole.len() / 2]);
    write("cut.arrow", b"ARROW1\0\0and no more");
    let names = ["bad.csv", "short.csv", "header.csv", "empty.csv", "cut.csv.zst", "cut.arrow", "missing.csv", "."];
    let errors = names.map(|name| fail(folder.path(), &["simulate", name, "--policy", "lru", "--size", "4"], 1));
    insta::assert_snapshot!(errors.concat());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = folder();
    for arguments in [
        &["simulate", "traces/netsfs.csv.zst", "--policy", "lru", "--csv"][..],
        &["trace", "export", "traces/netsfs.csv.zst"],
    ] {
        let mut child =
            flashwise(folder.path(), arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let (_, err, code) = parts(child.wait_with_output().unwrap());
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn lenient_passes_over_bad_lines_and_says_how_many() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.csv"), format!("{TABLE_I}not a line\n1,2\n")).unwrap();
    let arguments = ["simulate", "bad.csv", "--format", "msr", "--lenient", "--policy", "lru", "--size", "4", "--csv"];
    let (lenient, err, code) = run(folder.path(), &arguments);
    assert_eq!((code, err.as_str()), (0, "flashwise: bad.csv: 2 malformed records were passed over\n"));
    std::fs::write(folder.path().join("worse.csv"), "not a line\n1,2\n").unwrap();
    let err = fail(folder.path(), &["simulate", "worse.csv", "--format", "msr", "--lenient", "--policy", "lru"], 1);
    assert!(err.contains("2 malformed records were passed over"), "{err}");
    let strict = succeed(folder.path(), &["simulate", "table1.csv", "--policy", "lru", "--size", "4", "--csv"]);
    assert_eq!(lenient.replace("bad.csv", "table1.csv"), strict);
}

/// Blocks 0 and 1 are written, read and trimmed, 1 s apart; a server's times do not begin at 0.
const RECORDING: &str = "\
time_us,volume,op,offset,length,flags
5000000,disk,write,0,8192,fua
6000000,disk,read,0,8192,
7000000,disk,flush,0,0,
8000000,disk,trim,0,4096,
9000000,disk,write-zeroes,4096,4096,fast-zero
10000000,disk,cache,4096,4096,
11000000,disk,read,0,8192,
";

#[test]
fn the_whole_cache_replays_a_recording_with_all_its_operations() {
    let folder = folder();
    std::fs::write(folder.path().join("run.csv"), RECORDING).unwrap();
    let arguments = ["simulate", "run.csv", "--policy", "lru", "--size", "64MiB", "--write-mode", "write-back"];
    let json = succeed(folder.path(), &[&arguments[..], &["--json"]].concat());
    insta::assert_snapshot!("whole_cache_json", json);
    let mut child = flashwise(folder.path(), &[&["simulate", "-"], &arguments[2..], &["--json"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(RECORDING.as_bytes()).unwrap();
    let (out, err, code) = parts(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.replace("\"-\"", "\"run.csv\""), json, "standard input is as good");
}

#[test]
fn the_whole_cache_is_shown_in_every_form() {
    let folder = folder();
    let arguments = [
        "simulate",
        "traces/netsfs.csv.zst",
        "--policy",
        "larc",
        "--size",
        "64MiB",
        "--ram",
        "10%",
        "--layout",
        "containers",
    ];
    let files = ["--html", "out.html", "--parquet", "out.parquet"];
    let table = succeed(folder.path(), &[&arguments[..], &files].concat());
    insta::assert_snapshot!("whole_cache_table", table);
    insta::assert_snapshot!("whole_cache_csv", succeed(folder.path(), &[&arguments[..], &["--csv"]].concat()));
    let html = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    for column in ["Read from RAM", "Copied forward", "Host write amplification"] {
        assert!(html.contains(column), "{column}");
    }
    assert!(std::fs::read(folder.path().join("out.parquet")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn figures_of_the_whole_cache_add_up() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "32MiB,128MiB", "--json", "--epoch", "200000"];
    let options = ["--warmup", "100000", "--ram", "4MiB", "--sequential-bypass", "0", "--threads"];
    let run = |threads: &str| succeed(folder.path(), &[&arguments[..], &options, &[threads]].concat());
    let one = run("1");
    assert_eq!(one, run("3"));
    let rows: Vec<Value> = serde_json::from_str(&one).unwrap();
    let online = flashwise_core::policy::POLICIES.iter().filter(|policy| !policy.offline).count();
    assert_eq!(rows.len(), 2 * online);
    for row in rows {
        let count = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(count("reads") + count("writes"), count("accesses"));
        assert_eq!(count("warmup_accesses") + count("accesses"), 1_126_563);
        assert!((100_000..101_000).contains(&count("warmup_accesses")));
        assert_eq!(count("ram_hits") + count("flash_hits"), count("read_hits"));
        // A read is served from RAM, from flash or from the backend; of writes in part, the rest is read as well.
        assert!(count("read_hits") + count("backend_read_blocks") >= count("reads"));
        let causes =
            ["client", "admission", "copy_forward", "metadata"].map(|cause| count(&format!("flash_{cause}_blocks")));
        assert_eq!(causes.iter().sum::<u64>(), count("flash_writes_blocks"));
        let epochs = row["epochs"].as_array().unwrap();
        let sum = |key: &str| epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("accesses"), 1_126_563);
        assert!(sum("flash_writes_blocks") >= count("flash_writes_blocks"));
    }
}

#[test]
fn settings_that_make_no_cache_are_refused() {
    let folder = folder();
    let errors = [
        &["--ram", "1MiB", "--size", "4MiB", "--layout", "containers"][..],
        &["--layout", "shelves"],
        &["--write-mode", "write-back", "--over-provision", "5%,10%", "--size", "64MiB"],
        &["--write-mode", "write"],
        &["--policy", "fif", "--write-mode", "write-back", "--size", "64MiB"],
        &["--ram", "120%"],
        &["--layout", "containers", "--erase-unit", "3MiB", "--size", "64MiB"],
        &["--layout", "containers", "--over-provision", "95%", "--size", "64MiB"],
        &["--dirty-high", "30%", "--dirty-low", "35%", "--size", "64MiB"],
        &["--dirty-age", "15"],
        &["--commit-age", "5s", "--block-size", "8KiB", "--size", "64MiB"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("whole_cache_misuse", errors.join("\n\n"));
}

/// The promised figures of a cache's wear, on the bundled trace, with small erase units.
#[test]
fn wear_is_simulated_in_every_form() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "5%", "--ram", "0", "--erase-unit", "256KiB"];
    let policies = ["m", "m+", "c", "h", "lru", "larc"].map(|policy| ["--policy", policy]).concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &policies, more].concat());
    insta::assert_snapshot!("wear_table", run(&["--html", "out.html", "--parquet", "out.parquet"]));
    assert!(std::fs::read(folder.path().join("out.parquet")).unwrap().starts_with(b"PAR1"));
    insta::assert_snapshot!("wear_csv", run(&["--csv"]));
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json", "--over-provision", "7%"])).unwrap();
    let row = |policy: &str| rows.iter().find(|row| row["policy"] == policy).unwrap();
    let count = |policy: &str, key: &str| row(policy)[key].as_u64().unwrap();
    let ratio = |policy: &str, key: &str| row(policy)[key].as_f64().unwrap();
    for policy in ["m", "m+", "c", "lru", "larc"] {
        for key in ["rhr", "epbpd", "fue", "wfue", "host_write_amplification", "device_write_amplification"] {
            assert!(row(policy)[key].is_f64(), "{policy}: {key}");
        }
        let causes = ["flash_client_blocks", "flash_admission_blocks", "flash_copy_forward_blocks"]
            .map(|key| count(policy, key));
        assert_eq!(causes.iter().sum::<u64>(), count(policy, "flash_writes_blocks"), "{policy}");
        assert_eq!(count(policy, "ram_hits") + count(policy, "flash_hits"), count(policy, "read_hits"), "{policy}");
        assert!(ratio(policy, "rhr") <= ratio("m", "rhr"), "{policy}");
    }
    assert_eq!(ratio("m", "rhr"), ratio("m+", "rhr"));
    assert_eq!(ratio("m", "rhr"), ratio("c", "rhr"));
    assert!(count("m", "erasures") > count("m+", "erasures") && count("m+", "erasures") > count("c", "erasures"));
    assert_eq!(ratio("m+", "wfue"), 0.5);
}

#[test]
fn wear_that_cannot_be_simulated_is_refused() {
    let folder = folder();
    let errors = [
        &["--policy", "m+", "--write-mode", "write-back"][..],
        &["--policy", "fif", "--layout", "in-place"],
        &["--policy", "lru", "--erase-unit", "256KiB"],
        &["--policy", "m+", "--layout", "none"],
        &["--layout", "in-place", "--write-mode", "write-back"],
        &["--policy", "m*"],
        &["--policy", "m_t:share=0"],
        &["--policy", "m+", "--erase-unit", "2MiB", "--ram", "0"],
        &["--policy", "c", "--epoch", "100"],
        &["--gc-victim", "oldest"],
        &["--policy", "c", "--size", "64MiB", "--erase-unit", "256KiB", "--ram", "128KiB"],
        &["--policy", "m_t:epbpd=1", "--size", "4", "--erase-unit", "4KiB", "--ram", "0", "--over-provision", "200%"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("wear_misuse", errors.join("\n\n"));
}

#[test]
fn pareto_marks_what_no_other_beats_and_the_best_possible_is_above_it() {
    let folder = folder();
    let arguments = ["pareto", "traces/netsfs.csv.zst", "--ram", "0", "--erase-unit", "256KiB", "--size", "2%,10%"];
    let policies = ["--policy", "lru", "--policy", "larc", "--policy", "pannier"];
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &policies, more].concat());
    insta::assert_snapshot!("pareto", run(&["--svg", "pareto.svg"]));
    assert!(std::fs::read_to_string(folder.path().join("pareto.svg")).unwrap().starts_with("<svg"));
    let points: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    let of = |offline: bool| points.iter().filter(move |point| point["offline"] == offline);
    assert_eq!(of(false).count(), 6);
    let (rhr, erasures) =
        (|point: &Value| point["rhr"].as_f64().unwrap(), |point: &Value| point["erasures"].as_u64().unwrap());
    for point in &points {
        let beats = |other: &&Value| {
            let no_worse = rhr(other) >= rhr(point) && erasures(other) <= erasures(point);
            no_worse && (rhr(other) > rhr(point) || erasures(other) < erasures(point))
        };
        let beaten = of(point["offline"].as_bool().unwrap()).any(|other| beats(&other));
        assert_eq!(point["frontier"], !beaten, "{point}");
        assert!(
            point["offline"] == true || of(true).any(|other| beats(&other)),
            "{point} is better than the best possible"
        );
    }
    let err = fail(folder.path(), &[&arguments[..], &["--write-mode", "write-back"]].concat(), 2);
    assert!(
        err.starts_with("flashwise: --write-mode is of --layout log, the cache that flashwise serve runs, and flashwise pareto of another"),
        "{err}"
    );
    let err = fail(folder.path(), &[&arguments[..], &["--policy", "m+"]].concat(), 2);
    assert!(err.contains("expected a policy that can run"), "{err}");
}

#[test]
fn admission_rules_stand_before_the_policy_of_a_whole_cache_too() {
    let folder = folder();
    let arguments =
        ["simulate", "traces/netsfs.csv.zst", "--size", "64MiB", "--policy", "lru", "--write-mode", "write-back"];
    let rules = ["none", "probability:p=1", "probability:p=0", "probability:p=0.3", "size:max=8KiB", "hotness:min=2"];
    let adapting = ["adaptive:target=1ms,timeframe=2s", "auto:timeframe=2s"];
    let rules = rules.iter().chain(&adapting).map(|rule| ["--admission", rule]).collect::<Vec<_>>().concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &rules, more].concat());
    insta::assert_snapshot!("whole_cache_admission_table", run(&["--html", "report.html"]));
    assert!(std::fs::read_to_string(folder.path().join("report.html")).unwrap().contains("Hits, latency and lifetime"));
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    let without_rule = |row: &Value| {
        let mut row = row.as_object().unwrap().clone();
        assert!(row.remove("admission").is_some() && row.remove("job").is_some());
        row
    };
    assert_eq!(without_rule(&rows[0]), without_rule(&rows[1]));
    assert_eq!(
        (&rows[2]["flash_client_blocks"], &rows[2]["flash_admission_blocks"]),
        (&Value::from(0), &Value::from(0))
    );
    for row in &rows[3..7] {
        assert!(row["flash_writes_blocks"].as_u64() < rows[0]["flash_writes_blocks"].as_u64(), "{row}");
        assert!(row["flash_writes_blocks"].as_u64() > rows[2]["flash_writes_blocks"].as_u64(), "{row}");
    }
    // How large the storage is counts for how long it lasts, and that for what is admitted.
    let adaptive = |size: &str| {
        let arguments = [&arguments[..], &["--admission", adapting[0], "--storage-size", size, "--json"]].concat();
        serde_json::from_str::<Value>(&succeed(folder.path(), &arguments)).unwrap()[0]["flash_writes_blocks"].clone()
    };
    assert_ne!(adaptive("100MiB"), adaptive("1TiB"));
}

#[test]
fn admission_rules_stand_before_any_policy_and_an_array_behind_it() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--policy", "larc"];
    let rules = ["none", "probability:p=1", "probability:p=0", "probability:p=0.3", "size:max=64KiB", "hotness:min=2"];
    let rules = rules.map(|rule| ["--admission", rule]).concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &rules, more].concat());
    insta::assert_snapshot!("admission_table", run(&[]));
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    for rows in rows.chunks(6) {
        let [none, all, nothing, some, size, hotness] = rows else { panic!("six rules") };
        for row in rows {
            for key in
                ["latency_mean_us", "lifetime_years", "latency_over_lifetime", "cache_write_rate", "storage_write_rate"]
            {
                assert!(row[key].is_f64(), "{key}: {row}");
            }
        }
        let without_rule = |row: &Value| {
            row.as_object()
                .unwrap()
                .iter()
                .filter(|(key, _)| !["admission", "job"].contains(&key.as_str()))
                .map(|(_, value)| value.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(without_rule(none), without_rule(all));
        assert_eq!((&nothing["cache_write_rate"], &nothing["hits"]), (&Value::from(0.0), &Value::from(0)));
        assert_eq!(nothing["bypassed"], nothing["accesses"]);
        for row in [some, size, hotness] {
            assert!(row["admissions"].as_u64() < none["admissions"].as_u64(), "{row}");
        }
    }
    assert!(run(&["--csv"]).lines().next().unwrap().ends_with("cache_write_rate,storage_write_rate,bypassed"));
    let refused = [
        &["--admission", "probability:p=2"][..],
        &["--admission", "larger"],
        &["--admission", "size", "--policy", "m+", "--erase-unit", "4KiB", "--size", "10"],
        &["--admission", "size", "--policy", "ripq+", "--erase-unit", "4KiB", "--size", "10"],
        &["--storage-size", "10GB"],
        &["--admission", "none", "--policy", "fif"],
        &["--admission", "probability:p=0.9..0.1:0.1"],
        &["--admission", "adaptive:timeframe=200%"],
        &["--cache-device", "floppy"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("admission_misuse", refused.join("\n\n"));
}

#[test]
fn requests_wait_for_devices_as_arrivals_say() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--admission", "none"];
    let arguments =
        [&arguments[..], &["--admission", "probability:p=0.3", "--storage-device", "mlc:devices=8"]].concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], more].concat());
    let rows =
        |arrivals: &[&str]| -> Vec<Value> { serde_json::from_str(&run(&[arrivals, &["--json"]].concat())).unwrap() };
    let none = rows(&[]);
    assert_eq!(rows(&["--arrivals", "none"]), none);
    // To the last bit as it was before there were percentiles.
    let json = run(&["--json"]);
    for mean in ["199.87800060893176", "456.40224292826946"] {
        assert!(json.contains(&format!("\"latency_mean_us\": {mean},")), "{json}");
    }
    let shares = ["latency_p50_us", "latency_p95_us", "latency_p99_us", "latency_p999_us", "latency_max_us"];
    let percentiles = |row: &Value| shares.map(|key| row[key].as_f64().unwrap());
    assert_eq!(percentiles(&none[0]), [200.0; 5]);
    assert_eq!(percentiles(&none[1]), [200.0, 1000.0, 1000.0, 1000.0, 1000.0]);
    for arrivals in ["trace", "trace:speed=0.1", "closed:depth=1", "closed:depth=32"] {
        for (row, none) in rows(&["--arrivals", arrivals]).iter().zip(&none) {
            for key in [
                "hits",
                "admissions",
                "evictions",
                "bypassed",
                "lifetime_years",
                "cache_write_rate",
                "storage_write_rate",
            ] {
                assert_eq!(row[key], none[key], "{arrivals}: {key}");
            }
            assert!(percentiles(row).is_sorted() && percentiles(row)[0] > 0.0, "{row}");
            assert_eq!(row["requests_per_s"].is_f64(), arrivals.starts_with("closed"), "{row}");
            assert!(row["cache_utilisation"].is_f64() && row["storage_utilisation"].is_f64(), "{row}");
            let ratio = row["latency_mean_us"].as_f64().unwrap() / row["lifetime_years"].as_f64().unwrap();
            let found = row["latency_over_lifetime"].as_f64().unwrap();
            assert!((found / ratio - 1.0).abs() < 1e-12, "{arrivals}: {found}, {ratio}");
        }
    }
    let throughput = |depth: &str| {
        let rows = rows(&["--arrivals", &format!("closed:depth={depth}")]);
        rows.iter().map(|row| row["requests_per_s"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (one, many) = (throughput("1"), throughput("32"));
    assert!(one.iter().zip(&many).all(|(one, many)| one < many), "{one:?} {many:?}");
    insta::assert_snapshot!("arrivals_table_of_a_closed_loop", run(&["--arrivals", "closed:depth=16"]));
    insta::assert_snapshot!("arrivals_table_of_devices_that_cannot_keep_up", run(&["--arrivals", "trace:speed=20"]));
    let header = run(&["--arrivals", "trace", "--csv"]).lines().next().unwrap().to_owned();
    assert!(
        header.contains(
            ",arrivals,latency_mean_us,latency_p50_us,latency_p95_us,latency_p99_us,latency_p999_us,latency_max_us,\
             requests_per_s,cache_utilisation,storage_utilisation,lifetime_years,"
        ),
        "{header}"
    );
}

#[test]
fn arrivals_that_cannot_be_are_refused() {
    let folder = folder();
    std::fs::write(folder.path().join("blocks.txt"), "1\n2\n1\n").unwrap();
    let refused = [
        &["table1.csv", "--arrivals", "open"][..],
        &["table1.csv", "--arrivals", "closed:depth=0"],
        &["table1.csv", "--arrivals", "closed", "--cache-device", "slc:devices=2.5"],
        &["table1.csv", "--arrivals", "closed", "--storage-device", "mlc:channels=0"],
        &["table1.csv", "--arrivals", "trace", "--policy", "m+"],
        &["blocks.txt", "--format", "blocks", "--arrivals", "trace"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("arrivals_misuse", refused.join("\n\n"));
}

/// The bundled trace takes 180 s and has 1,126,563 accesses.
#[test]
fn epochs_of_an_array_add_up_and_tell_what_was_decided() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--epoch", "100000"];
    let rules =
        ["none", "adaptive:timeframe=2s,target=1ms", "adaptive:kind=size,timeframe=2s,target=1ms", "auto:timeframe=2s"];
    let rules = rules.map(|rule| ["--admission", rule]).concat();
    let rows: Vec<Value> =
        serde_json::from_str(&succeed(folder.path(), &[&arguments[..], &rules, &["--json"]].concat())).unwrap();
    let [none, probability, size, auto] = &rows[..] else { panic!("four rules") };
    for row in &rows {
        let epochs = row["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 12);
        let sum = |key: &str, weight: &str| {
            epochs.iter().map(|epoch| epoch[key].as_f64().unwrap() * epoch[weight].as_f64().unwrap()).sum::<f64>()
        };
        let whole = |key: &str| row[key].as_f64().unwrap();
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6 * expected, "{found}, {expected}");
        near(sum("miss_ratio", "accesses"), whole("accesses") - whole("hits"));
        near(sum("write_share", "accesses"), whole("writes"));
        near(sum("latency_mean_us", "accesses"), whole("latency_mean_us") * whole("accesses"));
        let seconds: f64 = epochs.iter().map(|epoch| epoch["seconds"].as_f64().unwrap()).sum();
        let last = &epochs[11];
        near(last["start_s"].as_f64().unwrap() + last["seconds"].as_f64().unwrap(), seconds);
        assert_eq!(seconds.round(), 180.0);
        near(sum("cache_write_rate", "seconds"), whole("cache_write_rate") * seconds);
        near(sum("storage_write_rate", "seconds"), whole("storage_write_rate") * seconds);
        assert!(epochs.iter().all(|epoch| epoch["cache_wear_rate"].as_f64() < epoch["cache_write_rate"].as_f64()));
    }
    let column = |row: &Value, key: &str| -> Vec<Value> {
        row["epochs"].as_array().unwrap().iter().map(|epoch| epoch[key].clone()).collect()
    };
    for key in ["threshold", "threshold_position", "chosen_policy"] {
        assert!(column(none, key).iter().all(Value::is_null), "{key}");
    }
    for (row, range) in [(probability, 0.01..1.0), (size, 1.0..1e6)] {
        let thresholds: Vec<_> = column(row, "threshold").iter().filter_map(Value::as_f64).collect();
        assert!(thresholds.iter().any(|threshold| range.contains(threshold)), "{thresholds:?}");
        let positions: Vec<_> = column(row, "threshold_position").iter().filter_map(Value::as_f64).collect();
        assert!(
            positions.iter().all(|position| (0.0..=1.0).contains(position)) && positions.len() > 10,
            "{positions:?}"
        );
    }
    let chosen = column(auto, "chosen_policy");
    let candidates = ["lru", "larc", "larc:writes=admit", "2q", "s3-fifo"];
    assert!(chosen.iter().skip(1).all(|policy| candidates.contains(&policy.as_str().unwrap())));
    assert!(column(auto, "threshold").iter().all(Value::is_null));
}

/// The report has the policy alone and auto's candidates besides; what is printed are the runs that were asked for.
#[test]
fn a_report_of_an_array_has_sweeps_rules_and_what_auto_chose_among() {
    let folder = folder();
    let trace = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--json"];
    let rules =
        ["--admission", "probability:p=0.2..0.8:0.3", "--admission", "auto:timeframe=1%", "--html", "report.html"];
    let rows: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &[&trace[..], &rules].concat())).unwrap();
    let admissions: Vec<_> = rows.iter().map(|row| row["admission"].as_str().unwrap()).collect();
    assert_eq!(admissions, ["probability:p=0.2", "probability:p=0.5", "probability:p=0.8", "auto:timeframe=1%"]);
    let report = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for expected in [
        "<caption>Portion of the misses admitted: probability before lru with 10%: as multiples of the policy alone</caption>",
        "<caption>auto:timeframe=1% among its candidates with a cache of 10%: latency over lifetime, in us per year</caption>",
        "<th scope=\"row\">s3-fifo</th>",
        "<h2 id=\"over-traces\">Latency and lifetime, by parameter</h2>",
        "larc:writes=admit has the least latency over lifetime with 241 MiB (61,719 blocks), 1.5 times better than lru: 199 us and 0.0468 years",
    ] {
        assert!(report.contains(expected), "{expected}");
    }
    // A timeframe of a hundredth of 180.03 s.
    let absolute = [&trace[..], &["--admission", "auto:timeframe=1800308us"]].concat();
    let absolute: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &absolute)).unwrap();
    assert_eq!(absolute[0]["hits"], rows[3]["hits"]);
}

/// Three processes write two, three and one blocks, in both formats that name them.
#[test]
fn processes_are_kept_out_of_the_whole_cache_by_pid_and_name() {
    let folder = TempDir::new().unwrap();
    let fiu = "0 7 a job 0 16 W 6 0 x\n1000000 8 dd 80 24 W 6 0 x\n2000000 9 dd 160 8 W 6 0 x\n";
    let blkparse =
        "8,0 0 1 0.0 7 Q W 0 + 16 [a job]\n8,0 0 2 0.001 8 Q W 80 + 24 [dd]\n8,0 0 3 0.002 9 Q W 160 + 8 [dd]\n";
    for (name, trace) in [("fiu", fiu), ("blkparse", blkparse)] {
        std::fs::write(folder.path().join(name), trace).unwrap();
        let filtered = |flags: &[&str]| {
            let options =
                ["simulate", name, "--policy", "lru", "--size", "22MiB", "--write-mode", "write-back", "--json"];
            let json = succeed(folder.path(), &[&options[..], flags].concat());
            let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(rows[0]["writes"], 6, "{json}");
            rows[0]["filtered_blocks"].as_u64().unwrap()
        };
        assert_eq!(filtered(&[]), 0);
        assert_eq!(filtered(&["--deny-clients", "program:dd"]), 4, "{name}");
        assert_eq!(filtered(&["--deny-clients", "program:a job,pid:9"]), 3, "{name}");
        assert_eq!(filtered(&["--deny-clients", "program:dd", "--allow-clients", "pid:8"]), 1, "{name}");
        assert_eq!(filtered(&["--cache-clients", "none", "--allow-clients", "program:a job"]), 4, "{name}");
    }
    // A flag of the filter alone asks for the whole cache; of what has no processes it is refused.
    let refused = |arguments: &[&str]| fail(folder.path(), &[&["simulate"], arguments].concat(), 2);
    std::fs::write(folder.path().join("msr"), "128166372003061629,h,0,Read,0,4096,1\n").unwrap();
    let found = refused(&["msr", "--size", "22MiB", "--deny-clients", "program:dd"]);
    assert!(found.contains("msr: found a filter by process and the format msr, which does not say"), "{found}");
    succeed(folder.path(), &["trace", "convert", "fiu", "fiu.arrow"]);
    let found = refused(&["fiu.arrow", "--size", "22MiB", "--cache-clients", "none"]);
    assert!(found.contains("fiu.arrow: a normalised trace: found a filter by process"), "{found}");
    let found = refused(&["fiu", "--size", "22MiB", "--deny-clients", "uid:1000"]);
    assert!(found.contains("found 'uid:1000', expected pid:N or program:NAME"), "{found}");
}
