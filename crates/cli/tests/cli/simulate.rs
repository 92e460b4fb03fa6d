//! `flashwise simulate` as its users see it.

use std::io::Write;
use std::process::Stdio;

use crate::common::{TABLE_I, fail, flashwise, parts, project, run, succeed, table_i as folder};
use serde_json::Value;
use tempfile::TempDir;

/// Table I: LARC has 8 hits and 1 replacement after the first four accesses, LRU 6 and 6. After those four, only block
/// 0 is written, which hits in LARC but not in LRU. So LARC writes 1 write hit and 1 admission to flash, LRU 6
/// admissions.
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

/// Writes slow.csv: table1.csv with a second for each microsecond, so the disks of the example catalogue keep up.
fn slow(folder: &TempDir) {
    let slower = |line: &str| {
        let (time, rest) = line.split_once(',').unwrap();
        format!("{},{rest}\n", time.parse::<u64>().unwrap() * 1_000_000)
    };
    let text: String = TABLE_I.lines().map(slower).collect();
    std::fs::write(folder.path().join("slow.csv"), text).unwrap();
}

/// Tables, lists and sentences: on a terminal no line is broken within a word.
#[test]
fn output_fits_the_terminal() {
    let folder = folder();
    slow(&folder);
    let commands: [&[&str]; 6] = [
        &["policies"],
        &["trace", "formats"],
        &["curve", "table1.csv", "--policy", "lru,larc", "--size", "25%,50%"],
        &["simulate", "table1.csv", "--size", "4"],
        &["pareto", "traces/netsfs.csv.zst", "--policy", "lru", "--size", "5%", "--ram", "0", "--erase-unit", "256KiB"],
        &["advise", "slow.csv", "--latency", "9ms", "--years", "0", "--policy", "lru", "--admission", "none"],
    ];
    for columns in [80, 120] {
        for arguments in commands {
            let output = flashwise(folder.path(), arguments).env("COLUMNS", columns.to_string()).output().unwrap();
            let (out, err, code) = parts(output);
            assert_eq!(code, 0, "{arguments:?}: {err}");
            let long: Vec<&str> = out.lines().filter(|line| line.chars().count() > columns).collect();
            assert!(long.is_empty(), "{arguments:?} at {columns}: {long:#?}");
        }
    }
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

/// Epochs begin at the end of the warm-up, with and without a rule, which count them in different places.
#[test]
fn epochs_begin_where_the_warm_up_ends() {
    let folder = folder();
    let arguments =
        ["simulate", "table1.csv", "--policy", "lru", "--size", "4", "--warmup", "3", "--epoch", "5", "--json"];
    for rule in [&[][..], &["--admission", "none"]] {
        let rows: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &[&arguments[..], rule].concat())).unwrap();
        let epochs = rows[0]["epochs"].as_array().unwrap();
        let column = |key: &str| epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!((column("first_access"), column("accesses")), (vec![3, 8, 13], vec![5, 5, 3]), "{rule:?}");
        assert_eq!(column("flash_writes_blocks").iter().sum::<u64>(), rows[0]["flash_writes_blocks"].as_u64().unwrap());
    }
}

/// With `a b b a`, one place and three uncounted accesses, the last access can hit.
#[test]
fn the_best_possible_is_that_of_the_accesses_that_are_counted() {
    let folder = folder();
    let line = |block: u64| format!("0,h,0,Read,{},4096,0\n", 4096 * block);
    std::fs::write(folder.path().join("abba.csv"), [0, 1, 1, 0].map(line).concat()).unwrap();
    let hits = |more: &[&str]| {
        let arguments = ["simulate", "abba.csv", "--policy", "min", "--size", "1", "--json"];
        let rows: Value = serde_json::from_str(&succeed(folder.path(), &[&arguments[..], more].concat())).unwrap();
        rows[0]["hits"].as_u64().unwrap()
    };
    assert_eq!((hits(&[]), hits(&["--warmup", "3"])), (1, 1));
    // Rows that count another part of the trace are not compared.
    let jobs = ["policy=min size=4", "policy=lru size=4 warmup=8", "policy=lru size=4"].join("\n");
    std::fs::write(folder.path().join("jobs"), jobs).unwrap();
    let table = succeed(folder.path(), &["simulate", "table1.csv", "--job", "jobs"]);
    let best: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("table1"))
        .map(|line| line.split(' ').next_back().unwrap())
        .collect();
    assert_eq!((best[0], best[1]), ("100%", "-"), "{table}");
    assert!(best[2].ends_with('%'), "{table}");
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
        &["--policy", "lru,", "--size", "4"],
        &["--size", "0"],
        &["--size", "120%"],
        &["--size", "99999999999"],
        &["--size", "1KiB"],
        &["--size", "5%..1%:1%"],
        &["--size", "64MiB", "--layout", "log", "--ram", "4GB"],
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
fn messages_are_json_where_that_is_asked_for_those_about_the_command_line_too() {
    let folder = folder();
    for (code, wrong) in [(2, &["table1.csv", "--policy", "lrru"][..]), (2, &["--lrru"]), (1, &["lrru"])] {
        for format in [&["--log-format", "json"][..], &["--log-format=json"]] {
            let err = fail(folder.path(), &[&["simulate"], format, wrong].concat(), code);
            let message: Value = serde_json::from_str(&err).unwrap();
            assert_eq!(message["level"], "ERROR");
            assert!(message["message"].as_str().unwrap().contains("lrru"), "{err}");
        }
    }
    // Where a command is missing, the help of the others is not the message.
    let err = fail(folder.path(), &["--log-format", "json", "trace"], 2);
    let message: Value = serde_json::from_str(&err).unwrap();
    assert_eq!(message["message"], "no command given; usage: flashwise trace [OPTIONS] <COMMAND>");
}

/// A file system of 64 KiB, mounted by root in a private namespace, so that files do not fit.
#[cfg(feature = "device-tests")]
#[test]
fn results_are_printed_if_a_file_cannot_be_written() {
    let folder = folder();
    slow(&folder);
    std::fs::create_dir(folder.path().join("full")).unwrap();
    let script = "mount -t tmpfs -o size=16k tmpfs full && \"$0\" \"$@\"; code=$?; ls -A full; exit $code";
    let none: Vec<String> = Vec::new();
    let settings = ["--policy", "lru", "--admission", "none", "--write-mode", "write-back", "--over-provision", "10%"];
    for (arguments, told) in [
        (
            &["simulate", "traces/netsfs.csv.zst", "--policy", "lru,larc", "--size", "10%", "--html", "full/r.html"][..],
            "11.9%",
        ),
        (&["curve", "traces/netsfs.csv.zst", "--size", "10%", "--html", "full/c.html"], "11.9%"),
        (&["advise", "slow.csv", "--latency", "1s", "--years", "0", "--html", "full/a.html"], "Buy no cache"),
        (&["man", "full/pages"], "pages"),
    ] {
        let settings = if arguments[0] == "advise" { &settings[..] } else { &[] };
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_flashwise")]).args(arguments).args(settings);
        let (out, err, code) = parts(shell.current_dir(folder.path()).output().unwrap());
        assert!(code == 1 && err.contains("No space left on device"), "{arguments:?}: {code} {err}");
        assert!(out.contains(told), "{arguments:?}: {out}");
        let left: Vec<&str> = out.lines().filter(|line| line.ends_with(".html")).collect();
        assert_eq!(left, none, "{arguments:?}");
    }
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
    assert_eq!((code, err.as_str()), (0, "flashwise: bad.csv: 2 malformed records were skipped\n"));
    std::fs::write(folder.path().join("worse.csv"), "not a line\n1,2\n").unwrap();
    let err = fail(folder.path(), &["simulate", "worse.csv", "--format", "msr", "--lenient", "--policy", "lru"], 1);
    assert!(err.contains("2 malformed records were skipped"), "{err}");
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
    let arguments =
        ["simulate", "traces/netsfs.csv.zst", "--policy", "larc", "--size", "64MiB", "--ram", "10%", "--layout", "log"];
    let files = ["--html", "out.html", "--parquet", "out.parquet"];
    let table = succeed(folder.path(), &[&arguments[..], &files].concat());
    insta::assert_snapshot!("whole_cache_table", table);
    insta::assert_snapshot!("whole_cache_csv", succeed(folder.path(), &[&arguments[..], &["--csv"]].concat()));
    let html = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    for column in ["ram read hits", "flash copy forward blocks", "host write amplification"] {
        assert!(html.contains(column), "{column}");
    }
    assert!(std::fs::read(folder.path().join("out.parquet")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn figures_of_the_whole_cache_add_up() {
    let folder = folder();
    succeed(folder.path(), &["trace", "cut", "traces/netsfs.csv.zst", "cut.arrow", "--requests", "0..50000"]);
    let arguments = ["simulate", "cut.arrow", "--size", "32MiB", "--json", "--epoch", "60000"];
    let options = ["--warmup", "100000", "--ram", "4MiB", "--sequential-bypass", "0", "--threads"];
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &options, more].concat());
    let some = |threads| run(&[threads, "--policy", "lru,larc,s3-fifo"]);
    assert_eq!(some("1"), some("3"));
    let one = run(&["2"]);
    let rows: Vec<Value> = serde_json::from_str(&one).unwrap();
    let online = flashwise_core::policy::POLICIES.iter().filter(|policy| !policy.offline).count();
    assert_eq!(rows.len(), online);
    for row in rows {
        let count = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(count("reads") + count("writes"), count("accesses"));
        assert_eq!(count("warmup_accesses") + count("accesses"), 246_535);
        assert!((100_000..101_000).contains(&count("warmup_accesses")));
        assert_eq!(count("ram_read_hits") + count("flash_read_hits"), count("read_hits"));
        // A read is served from RAM, from flash or from the backend; of writes in part, the rest is read as well.
        assert!(count("read_hits") + count("backend_read_blocks") >= count("reads"));
        let causes =
            ["client", "admission", "copy_forward", "metadata"].map(|cause| count(&format!("flash_{cause}_blocks")));
        assert_eq!(causes.iter().sum::<u64>(), count("flash_writes_blocks"));
        let epochs = row["epochs"].as_array().unwrap();
        let sum = |key: &str| epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("accesses"), count("accesses"));
        assert_eq!(epochs[0]["first_access"], row["warmup_accesses"]);
        assert_eq!(sum("flash_writes_blocks"), count("flash_writes_blocks"));
    }
}

#[test]
fn settings_that_make_no_cache_are_refused() {
    let folder = folder();
    let errors = [
        &["--ram", "1MiB", "--size", "4MiB", "--layout", "log"][..],
        &["--layout", "shelves"],
        &["--write-mode", "write-back", "--over-provision", "5%,10%", "--size", "64MiB"],
        &["--write-mode", "write"],
        &["--policy", "fif", "--write-mode", "write-back", "--size", "64MiB"],
        &["--ram", "120%"],
        &["--layout", "log", "--erase-unit", "3MiB", "--size", "64MiB"],
        &["--layout", "log", "--over-provision", "95%", "--size", "64MiB"],
        &["--dirty-high", "30%", "--dirty-low", "35%", "--size", "64MiB"],
        &["--dirty-age", "15"],
        &["--layout", "containers", "--policy", "lru,ripq+", "--size", "64MiB"],
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
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json", "--spare", "7%"])).unwrap();
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
        assert_eq!(
            count(policy, "ram_read_hits") + count(policy, "flash_read_hits"),
            count(policy, "read_hits"),
            "{policy}"
        );
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
        &["--policy", "c", "--admission", "size"],
        &["--gc-victim", "oldest"],
        &["--policy", "c", "--size", "64MiB", "--erase-unit", "256KiB", "--ram", "128KiB"],
        &["--policy", "m_t:epbpd=1", "--size", "4", "--erase-unit", "4KiB", "--ram", "0", "--spare", "200%"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("wear_misuse", errors.join("\n\n"));
}

#[test]
fn pareto_marks_the_frontier_below_the_best_possible() {
    let folder = folder();
    let arguments = ["pareto", "traces/netsfs.csv.zst", "--ram", "0", "--erase-unit", "256KiB", "--size", "2%,10%"];
    let policies = ["--policy", "lru", "--policy", "larc", "--policy", "pannier"];
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &policies, more].concat());
    insta::assert_snapshot!("pareto", run(&["--svg", "pareto.svg"]));
    assert!(std::fs::read_to_string(folder.path().join("pareto.svg")).unwrap().starts_with("<svg"));
    let points: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    let of = |offline: bool| points.iter().filter(move |point| point["offline"] == offline);
    assert_eq!(of(false).count(), 6);
    // C needs 1 MiB for its write buffer, and the others have as much.
    let ram = |points: &[Value]| -> Vec<u64> {
        let mut ram: Vec<u64> = points.iter().map(|point| point["ram_bytes"].as_u64().unwrap()).collect();
        ram.dedup();
        ram
    };
    assert!(matches!(ram(&points)[..], [bytes] if bytes >= 1 << 20), "{:?}", ram(&points));
    let of_share = [
        "pareto",
        "traces/netsfs.csv.zst",
        "--ram",
        "20%",
        "--erase-unit",
        "256KiB",
        "--size",
        "8MiB,16MiB",
        "--policy",
        "lru",
    ];
    let of_share = succeed(folder.path(), &[&of_share[..], &["--json"]].concat());
    assert_eq!(ram(&serde_json::from_str::<Vec<Value>>(&of_share).unwrap()), [(16 << 20) / 5 / 4096 * 4096]);
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
    assert!(err.contains("expected an online policy"), "{err}");
    for layout in ["wlfc", "b-like"] {
        let err = fail(folder.path(), &["pareto", "traces/netsfs.csv.zst", "--layout", layout], 2);
        let expected = format!("flashwise: --layout: found {layout}, expected in-place or containers for pareto");
        assert!(err.starts_with(&expected), "{err}");
    }
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
    // A flag of the filter implies the whole cache. A trace without processes is refused.
    let refused = |arguments: &[&str]| fail(folder.path(), &[&["simulate"], arguments].concat(), 2);
    std::fs::write(folder.path().join("msr"), "128166372003061629,h,0,Read,0,4096,1\n").unwrap();
    let found = refused(&["msr", "--size", "22MiB", "--deny-clients", "program:dd"]);
    assert!(found.contains("msr: found a filter by process and the format msr, which has no processes"), "{found}");
    succeed(folder.path(), &["trace", "convert", "fiu", "fiu.arrow"]);
    let found = refused(&["fiu.arrow", "--size", "22MiB", "--cache-clients", "none"]);
    assert!(found.contains("fiu.arrow: a normalised trace: found a filter by process"), "{found}");
    let found = refused(&["fiu", "--size", "22MiB", "--deny-clients", "uid:1000"]);
    assert!(found.contains("found 'uid:1000', expected pid:N or program:NAME"), "{found}");
}

/// A server accepts the rule that a report recommends. Its timeframe is the rule's default, not a share of a trace.
#[test]
fn the_rule_that_a_report_recommends_is_one_that_serve_takes() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let html = path("report.html");
    succeed(
        &project(),
        &["simulate", "traces/netsfs.csv.zst", "--policy", "lirs,lru", "--size", "10%", "--html", &html],
    );
    // Long words may be broken where they have parts.
    let page = std::fs::read_to_string(&html).unwrap().replace("<wbr />", "");
    let (_, after) = page.split_once(" and run lirs behind ").expect("a rule is recommended");
    let (rule, _) = after.split_once(": it serves ").unwrap();
    assert!(rule.ends_with("writes=admit") && !rule.contains('%'), "{rule}");
    let config = path("flashwise.toml");
    std::fs::File::create(path("disk.img")).unwrap().set_len(1 << 30).unwrap();
    let text = format!(
        "listen = 'nbd+unix:///?socket={}'\n[api]\nlisten = 'off'\n[[volume]]\nname = 'disk'\nbackend = '{}'\nflash = '{}'\n\
         flash-size = '64MiB'\npolicy = 'lirs'\nadmission = '{rule}'\n",
        path("nbd.sock"),
        path("disk.img"),
        path("cache.img")
    );
    std::fs::write(&config, text).unwrap();
    succeed(&project(), &["serve", "--check-config", &config]);
}

#[test]
fn verbose_output_explains_the_result() {
    let told = |more: &[&str]| {
        let (_, err, code) = run(
            &project(),
            &[&["simulate", "traces/netsfs.csv.zst", "--policy", "lru", "--size", "10%"], more].concat(),
        );
        assert_eq!(code, 0, "{err}");
        err
    };
    assert_eq!((told(&[]), told(&["-q"])), (String::new(), String::new()));
    let err = told(&["-v"]);
    assert!(err.contains("flashwise: traces/netsfs.csv.zst: read as msr, 232,202 requests\n"), "{err}");
    assert!(err.contains("flashwise: 1 run took "), "{err}");
}
