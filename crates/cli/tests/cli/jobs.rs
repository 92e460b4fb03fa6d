//! Jobs: those of options can be printed, sent and run elsewhere, with the same rows.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{fail, flashwise, parts, project, succeed};
use flashwise_testing::waiting::wait_until;
use tempfile::TempDir;

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut text = String::from("time,op,offset,length\n");
    let mut state = 1_u64;
    for at in 0..4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (draw, op) = ((state >> 33) % 2000, if state >> 62 == 0 { "write" } else { "read" });
        text += &format!("{},{op},{},4096\n", at * 1000, draw * draw / 2000 * 4096);
    }
    for name in ["one.csv", "two.csv"] {
        std::fs::write(folder.path().join(name), &text).unwrap();
    }
    folder
}

/// Returns the program's output, standard error and exit code for `input`.
fn with_input(folder: &Path, arguments: &[&str], input: &str) -> (String, String, i32) {
    let command = &mut flashwise(folder, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    parts(child.wait_with_output().unwrap())
}

/// Options that give several jobs: all forms of these jobs give the same rows, and a single job gives its own.
#[test]
fn the_jobs_that_options_name_give_the_same_rows() {
    let folder = folder();
    let cases: [&[&str]; 8] = [
        &["--size", "1%..3%:1%", "--warmup", "10%", "--epoch", "1500"],
        &[
            "--policy",
            "lru",
            "--policy",
            "m+",
            "--policy",
            "c:cfr=2",
            "--size",
            "400",
            "--spare",
            "7%,28%",
            "--erase-unit",
            "16KiB",
        ],
        &[
            "--policy",
            "larc",
            "--admission",
            "none",
            "--admission",
            "size:max=4KiB..16KiB:x2",
            "--admission",
            "adaptive:timeframe=1%",
            "--size",
            "10%",
        ],
        &[
            "--policy",
            "lru",
            "--layout",
            "log",
            "--size",
            "2MiB",
            "--erase-unit",
            "64KiB",
            "--gc-victim",
            "greedy",
            "--admission",
            "size",
            "--admission",
            "none",
        ],
        &["--layout", "b-like", "--size", "64MiB", "--bucket", "256KiB", "--spare", "0.123"],
        &["--policy", "lru,larc", "--size", "400,50%", "--sample", "33%", "--sample-seed", "7", "--warmup", "10%"],
        &["--policy", "lru", "--size", "50%", "--admission", "none", "--admission", "size", "--sample", "70%"],
        &["--policy", "sieve", "--ram", "12.5%", "--arrivals", "closed:depth=4", "--size", "400"],
    ];
    for options in cases {
        let jobs = succeed(folder.path(), &[&["simulate", "--print-jobs"], options].concat());
        for form in ["--json", "--csv", "--lenient"] {
            if form == "--csv" && options.contains(&"--epoch") {
                continue;
            }
            let simulate = ["simulate", "one.csv", "two.csv", form];
            // The table of the default shows some policies.
            let all: &[&str] = if options.contains(&"--policy") { &[] } else { &["--policy", "all"] };
            let expected = succeed(folder.path(), &[&simulate[..], options, all].concat());
            let (found, err, code) = with_input(folder.path(), &[&simulate[..], &["--job", "-"]].concat(), &jobs);
            assert_eq!(code, 0, "{err}");
            assert_eq!(found, expected, "{form} {options:?}");
        }
        // In the words of rows too.
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(&succeed(folder.path(), &[&["simulate", "one.csv", "--json"], options].concat()))
                .unwrap();
        let words: String = rows.iter().map(|row| format!("{}\n", row["job"].as_str().unwrap())).collect();
        let (found, err, code) = with_input(folder.path(), &["simulate", "one.csv", "--json", "--job", "-"], &words);
        assert_eq!(code, 0, "{err}");
        assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&found).unwrap(), rows, "{words}");
        let last = jobs.lines().last().unwrap();
        std::fs::write(folder.path().join("last.json"), last).unwrap();
        let all = succeed(folder.path(), &[&["simulate", "one.csv", "--json"], options].concat());
        let one = succeed(folder.path(), &["simulate", "one.csv", "--json", "--job", "last.json"]);
        let [all, one] = [all, one].map(|out| serde_json::from_str::<Vec<serde_json::Value>>(&out).unwrap());
        assert_eq!(one, all[all.len() - 1..], "{last}");
    }
}

/// Jobs of one file may differ in all that there is: their rows come in their order, for each trace.
#[test]
fn jobs_of_all_kinds_run_together() {
    let folder = folder();
    let jobs = [
        r#"{"policy": "lru", "size": "20%"}"#,
        r#"{"policy": "m+", "size": 400, "erase-unit": "16KiB", "ram": 0}"#,
        r#"{"policy": "larc", "size": "2MiB", "layout": "log", "erase-unit": "64KiB", "epoch": 1000}"#,
        r#"{"size": "64MiB", "layout": "wlfc"}"#,
        r#"{"policy": "lru", "size": 400, "admission": "size"}"#,
    ];
    let (out, err, code) =
        with_input(folder.path(), &["simulate", "one.csv", "two.csv", "--json", "--job", "-"], &jobs.join("\n"));
    assert_eq!(code, 0, "{err}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let of = |figure: &str| rows.iter().map(|row| row[figure].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("policy"), ["lru", "m+", "larc", "wlfc", "lru", "lru", "m+", "larc", "wlfc", "lru"]);
    assert_eq!(of("trace"), [["one.csv"; 5], ["two.csv"; 5]].concat());
    for (job, row) in jobs.iter().zip(&rows) {
        let (alone, _, _) = with_input(folder.path(), &["simulate", "one.csv", "--json", "--job", "-"], job);
        let alone: Vec<serde_json::Value> = serde_json::from_str(&alone).unwrap();
        assert_eq!(&alone[0], row, "{job}");
    }
}

#[test]
fn invalid_jobs_are_refused_and_nothing_runs() {
    let folder = folder();
    std::fs::write(folder.path().join("job.json"), r#"{"policy": "lru", "size": "10%"}"#).unwrap();
    let misuse = |options: &[&str]| fail(folder.path(), &[&["simulate", "one.csv"], options].concat(), 2);
    assert_eq!(
        misuse(&["--job", "job.json", "--ram", "5%"]),
        "flashwise: --job already describes the runs; remove --ram\n"
    );
    assert_eq!(
        misuse(&["--job", "job.json", "--size", "5%"]),
        "flashwise: --job already describes the runs; remove --size\n"
    );
    assert!(misuse(&["-", "--job", "-"]).contains("- (standard input) is given as a trace and as --job"));
    assert!(misuse(&["--job", "job.json", "--print-jobs"]).contains("cannot be used with"));
    assert!(misuse(&["--accuracy", "1%", "--print-jobs"]).contains("give --sample"));
    assert!(misuse(&["--accuracy", "1%", "--job", "job.json"]).contains("give --sample"));
    assert_eq!(
        misuse(&["--job", "job.json", "--sample", "5%"]),
        "flashwise: --job already describes the runs; remove --sample\n"
    );
    assert_eq!(misuse(&["--sample-seed", "5"]), "flashwise: --sample-seed is of a sample; expected --sample with it\n");
    let refused = |job: &str| {
        let (out, err, code) = with_input(folder.path(), &["simulate", "one.csv", "--job", "-"], job);
        assert_eq!((out.as_str(), code), ("", 2), "{err}");
        err
    };
    for (job, expected) in [
        ("", "standard input: found no job, expected one such as {\"policy\": \"lru\", \"size\": \"10%\"}\n"),
        ("{", "standard input: EOF while parsing an object at line 1 column 1\n"),
        (
            r#"{"policy": "lru", "size": "10%", "rem": "5%"}"#,
            "standard input: rem: found an unknown word (did you mean 'ram'?)",
        ),
        (
            r#"{"policy": "lru", "size": "10%", "ram": [5]}"#,
            "standard input: invalid type: sequence, expected text or a number as ram at line 1",
        ),
        (
            r#"{"policy": "lru", "size": "10%", "ram": "5XB"}"#,
            "standard input: ram: size '5XB': unknown unit 'XB', expected B, KiB",
        ),
    ] {
        let err = refused(job);
        assert!(err.starts_with(&format!("flashwise: {expected}")), "{err}");
    }
    let missing = fail(folder.path(), &["simulate", "one.csv", "--job", "no.json"], 1);
    assert!(missing.starts_with("flashwise: no.json: No such file"), "{missing}");
    // A size that no trace allows is refused before anything runs.
    let large =
        with_input(folder.path(), &["simulate", "one.csv", "--job", "-"], r#"{"policy": "lru", "size": 99999999999}"#);
    assert!(large.2 == 2 && large.1.contains("expected at most 2147483647 blocks"), "{large:?}");
}

/// Returns the sorted lines of a file of rows, without the fields that rows on standard output lack.
fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let row = |line: &str| {
        let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
        let keys = row.as_object_mut().unwrap();
        assert_eq!(keys.remove("version").unwrap(), env!("CARGO_PKG_VERSION"));
        assert_eq!(keys.remove("trace_checksum").unwrap().as_str().unwrap().len(), 64);
        row
    };
    sorted(text.lines().map(row).collect())
}

fn sorted(mut rows: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    rows.sort_by_key(|row| (row["trace"].to_string(), row["job"].to_string()));
    rows
}

/// Rows of several policies, of wear that is compared with M+, and of both over two traces.
const ASKED: [&[&str]; 2] = [
    &["--policy", "lru", "--policy", "larc", "--policy", "min", "--size", "1%..4%:1%"],
    &["--policy", "lru", "--policy", "ripq+", "--size", "200,400", "--layout", "in-place", "--erase-unit", "16KiB"],
];

#[test]
fn rows_are_lines_as_soon_as_they_are_done_and_are_not_run_again() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (number, asked) in ASKED.into_iter().enumerate() {
        let traces = ["simulate", "one.csv", "two.csv"];
        let expected = succeed(folder.path(), &[&traces, asked, &["--json"]].concat());
        let expected = sorted(serde_json::from_str(&expected).unwrap());
        let file = format!("rows{number}.jsonl");
        let to_file = [&traces, asked, &["--jsonl", &file]].concat();
        let said = succeed(folder.path(), &to_file);
        assert_eq!(said, format!("{file}: {} rows written, 0 there before\n", expected.len()));
        assert_eq!(lines(&at(&file)), expected);
        // As a run leaves it that is killed while it writes the third line.
        let whole = std::fs::read(at(&file)).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] == b'\n').collect();
        std::fs::write(at(&file), &whole[..ends[1] + 30]).unwrap();
        let said = succeed(folder.path(), &to_file);
        assert_eq!(said, format!("{file}: {} rows written, 2 there before\n", expected.len() - 2));
        assert_eq!(lines(&at(&file)), expected);
        assert!(std::fs::read(at(&file)).unwrap().starts_with(&whole[..=ends[1]]), "what was there stays");
        // Only the one additional policy runs.
        succeed(folder.path(), &[&to_file[..], &["--policy", "fifo"]].concat());
        assert!(lines(&at(&file)).len() > expected.len());
        // Other contents under the same name are another trace.
        std::fs::write(at("two.csv"), std::fs::read_to_string(at("two.csv")).unwrap() + "4000000,read,0,4096\n")
            .unwrap();
        let said = succeed(folder.path(), &to_file);
        let half = expected.len() / 2;
        assert_eq!(said, format!("{file}: {half} rows written, {half} there before\n"));
    }
    let out = succeed(folder.path(), &["simulate", "one.csv", "--policy", "lru", "--size", "1%,2%", "--jsonl", "-"]);
    assert_eq!(out.lines().filter(|line| line.starts_with('{')).count(), 2);
}

/// A row is found with options in another order, explicit defaults, and sizes in another unit.
#[test]
fn a_row_is_known_however_its_job_is_spelt() {
    let folder = folder();
    let write =
        |asked: &[&str]| succeed(folder.path(), &[&["simulate", "one.csv", "--jsonl", "rows.jsonl"], asked].concat());
    for (asked, again) in [
        (&["--policy", "larc", "--size", "512KiB"], &["--policy", "LARC:fill=admit", "--size", "0.5MiB"]),
        (
            &["--policy", "2q:kin=25%,kout=50%", "--size", "1.50%"],
            &["--policy", "2q:kout=0.5,kin=0.25", "--size", "1.5%"],
        ),
    ] {
        assert_eq!(write(asked), "rows.jsonl: 1 row written, 0 there before\n", "{asked:?}");
        assert_eq!(write(again), "rows.jsonl: 0 rows written, 1 there before\n", "{again:?}");
        std::fs::remove_file(folder.path().join("rows.jsonl")).unwrap();
    }
    let rule = |max: &str| write(&["--policy", "lru", "--size", "5%", "--admission", &format!("size:max={max}")]);
    assert_eq!(rule("64KiB"), "rows.jsonl: 1 row written, 0 there before\n");
    assert_eq!(rule("65536"), "rows.jsonl: 0 rows written, 1 there before\n");
    assert_eq!(rule("32KiB"), "rows.jsonl: 1 row written, 0 there before\n");
}

/// The rows of the sample that is accurate enough, and no others.
#[test]
fn rows_of_an_accurate_sample_are_lines_too() {
    let folder = folder();
    let asked = ["simulate", "one.csv", "two.csv", "--policy", "lru,larc", "--size", "50%", "--accuracy", "0.05"];
    let expected = succeed(folder.path(), &[&asked[..], &["--json"]].concat());
    let to_file = [&asked[..], &["--jsonl", "rows.jsonl"]].concat();
    assert_eq!(succeed(folder.path(), &to_file), "rows.jsonl: 4 rows written, 0 there before\n");
    assert_eq!(lines(&folder.path().join("rows.jsonl")), sorted(serde_json::from_str(&expected).unwrap()));
    assert_eq!(succeed(folder.path(), &to_file), "rows.jsonl: 0 rows written, 4 there before\n");
}

#[test]
fn a_run_that_is_killed_goes_on_where_it_was() {
    let folder = folder();
    let file = folder.path().join("rows.jsonl");
    let arguments = ["simulate", "one.csv", "--size", "1%..9%:1%", "--threads", "1", "--jsonl", "rows.jsonl"];
    let mut child = flashwise(folder.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a row is there", || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > 0) || child.try_wait().unwrap().is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let before = std::fs::read(&file).unwrap();
    assert!(before.contains(&b'\n'), "a row is there before all are done");
    succeed(folder.path(), &arguments);
    let expected = succeed(folder.path(), &["simulate", "one.csv", "--size", "1%..9%:1%", "--json"]);
    assert_eq!(lines(&file), sorted(serde_json::from_str(&expected).unwrap()));
}

#[test]
fn lines_are_only_added_to_files_of_rows() {
    let folder = folder();
    let refused = |more: &[&str], code: i32| {
        fail(folder.path(), &[&["simulate", "one.csv", "--policy", "lru", "--size", "1%"], more].concat(), code)
    };
    std::fs::write(folder.path().join("notes.txt"), "{\"trace\": 1}\n").unwrap();
    let found = refused(&["--jsonl", "notes.txt"], 2);
    assert!(found.starts_with("flashwise: notes.txt, line 1: found no row ("), "{found}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "{\"trace\": 1}\n");
    assert!(refused(&["--jsonl", "one.csv"], 2).contains("one.csv"), "it is the trace");
    assert!(refused(&["--jsonl", "rows.jsonl", "-"], 2).contains("standard input"));
    let held = std::fs::File::create(folder.path().join("held.jsonl")).unwrap();
    held.lock().unwrap();
    assert!(refused(&["--jsonl", "held.jsonl"], 2).contains("found another run that writes to it"));
}

/// A row has the order if there is one, and the table a column if a row has it.
#[test]
fn write_back_in_order_is_in_the_row_and_costs_flushes() {
    let folder = TempDir::new().unwrap();
    let trace = project().join("traces/netsfs.csv.zst");
    succeed(folder.path(), &["trace", "cut", trace.to_str().unwrap(), "cut.arrow", "--requests", "0..20000"]);
    // With arrival times, epochs wait for the backend, and the journal gets groups of them: up to a part of the flash.
    for arrivals in ["", " arrivals=closed:depth=16"] {
        let cache = format!("policy=larc size=4GiB layout=log commit-age=100ms{arrivals}");
        let job = |order: &str| format!("{cache} write-back-order={order}\n");
        std::fs::write(folder.path().join("jobs"), job("none") + &job("barriers") + &job("journal")).unwrap();
        let run = |form: &str| succeed(folder.path(), &["simulate", "cut.arrow", "--job", "jobs", form]);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&run("--json")).unwrap();
        let orders: Vec<_> = rows.iter().map(|row| row["write_back_order"].as_str()).collect();
        assert_eq!(orders, [None, Some("barriers"), Some("journal")]);
        let [none, barriers] = [0, 1].map(|row| rows[row]["backend_flushes"].as_u64().unwrap());
        assert!(barriers > none, "{arrivals}: {barriers} flushes, {none} without an order");
        let [barriers, journal] = [1, 2].map(|row| rows[row]["destaged_blocks"].as_u64().unwrap());
        assert_eq!(journal > barriers, !arrivals.is_empty(), "{journal} blocks with a journal, {barriers} without");
        assert!(run("--threads=1").contains("barriers"));
    }
}
