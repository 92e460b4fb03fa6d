//! Sweeps: many jobs over many traces, with a file each, and only missing ones run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use crate::common::{fail, flashwise, run, succeed};
use tempfile::TempDir;

const PLAN: &str = r#"
traces = ["trace?.arrow"]
out = "results"
[[run]]
policy = ["lru", "larc"]
size = ["5%", "20%"]
[[run]]
policy = "lru"
size = 400
layout = "in-place"
erase_unit = "16KiB"
spare = ["7%", 0.28]
gc-victim = ["greedy", "fifo"]
"#;

/// A folder with `traces` traces of so many accesses, trace0.arrow and so on, and the plan.
fn folder(traces: u32, accesses: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for number in 0..traces {
        let (name, seed) = (format!("trace{number}.arrow"), number.to_string());
        let options = ["trace", "generate", &name, "--blocks", "4000", "--accesses", accesses, "--seed", &seed];
        succeed(folder.path(), &options);
    }
    std::fs::write(folder.path().join("plan.toml"), PLAN).unwrap();
    folder
}

/// The files of the folder `out` and their contents.
fn files(folder: &Path, out: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder.join(out)).into_iter().flatten().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Merged traces, and traces in archives, as in `simulate`.
#[test]
fn traces_of_several_files_and_in_archives_are_swept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    for (name, seed) in [("a.csv", "1"), ("b.csv", "2"), ("c.csv", "3")] {
        let options = ["trace", "generate", name, "--csv", "--blocks", "400", "--accesses", "2000", "--seed", seed];
        succeed(path, &options);
    }
    let tar =
        std::process::Command::new("tar").current_dir(path).args(["czf", "all.tar.gz", "b.csv", "c.csv"]).status();
    assert!(tar.unwrap().success());
    let plan =
        |traces: &str| format!("traces = {traces}\nout = \"results\"\n[[run]]\npolicy = \"lru\"\nsize = \"10%\"\n");
    let traces = r#"["a.csv + b.csv", "all.tar.gz/b.csv", "all.tar.gz/[c-d].csv"]"#;
    std::fs::write(path.join("plan.toml"), plan(traces)).unwrap();
    let out = succeed(path, &["-q", "sweep", "plan.toml"]);
    let names: Vec<&str> = out.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(names, ["a.csv + b.csv", "all.tar.gz/b.csv", "all.tar.gz/c.csv"]);
    assert_eq!(files(path, "results").len(), 3);
    assert!(succeed(path, &["sweep", "status", "plan.toml"]).ends_with("3 of 3 traces done\n"));
    // A change of one of the merged files is one of the trace.
    let mut lines = std::fs::read_to_string(path.join("a.csv")).unwrap();
    let end = lines.trim_end().rfind('\n').unwrap() + 1;
    lines.truncate(end);
    std::fs::write(path.join("a.csv"), lines).unwrap();
    assert!(succeed(path, &["sweep", "status", "plan.toml"]).starts_with("a.csv + b.csv: to do\n"));
    std::fs::write(path.join("plan.toml"), plan(r#""all.tar.gz/none.csv""#)).unwrap();
    let err = fail(path, &["sweep", "plan.toml"], 1);
    assert!(err.contains("all.tar.gz/none.csv: ") && files(path, "results").len() == 3, "{err}");
    // The failure of a trace is an error, which is printed even with -q.
    assert!(fail(path, &["-q", "sweep", "plan.toml"], 1).contains("all.tar.gz/none.csv: "));
}

#[test]
fn a_page_compares_the_policies_of_a_sweep() {
    let folder = folder(2, "3000");
    let path = folder.path();
    assert!(fail(path, &["sweep", "report", ".", "--html", "page.html"], 1).contains("no file that ends in .parquet"));
    succeed(path, &["sweep", "plan.toml"]);
    // Jobs added to a plan run in addition to earlier ones; each counts once.
    std::fs::write(path.join("plan.toml"), PLAN.replace("\"larc\"", "\"larc\", \"arc\"")).unwrap();
    succeed(path, &["sweep", "plan.toml"]);
    assert_eq!(succeed(path, &["sweep", "report", "results", "--html", "page.html"]), "Page: page.html\n");
    let page = std::fs::read_to_string(path.join("page.html")).unwrap();
    for part in [
        "2 traces in 1 family, 7 policies at 3 sizes.",
        "More hits, pair by pair, at 20%",
        "lru layout=in-place erase-unit=16KiB spare=28% gc-victim=fifo",
        "trace: 2 traces",
    ] {
        assert!(page.contains(part), "{part}");
    }
    std::fs::write(path.join("results/other.parquet"), "PAR1").unwrap();
    let err = fail(path, &["sweep", "report", "results", "--html", "page.html"], 1);
    assert!(err.starts_with("flashwise: results/other.parquet: "), "{err}");
}

#[test]
fn a_sweep_runs_missing_jobs() {
    let folder = folder(3, "20000");
    let path = folder.path();
    let status = || succeed(path, &["sweep", "status", "plan.toml"]);
    assert_eq!(status(), "trace0.arrow: to do\ntrace1.arrow: to do\ntrace2.arrow: to do\n0 of 3 traces done\n");
    // A shard of three has one trace.
    let out = succeed(path, &["sweep", "plan.toml", "--shard", "2/3"]);
    let first = files(path, "results");
    assert_eq!((out.lines().count(), first.len()), (1, 1), "{out}");
    assert!(out.starts_with("trace1.arrow: results/trace1-"), "{out}");
    assert!(status().ends_with("\n1 of 3 traces done\n"));
    let of_shard = |shard: &str| succeed(path, &["sweep", "status", "plan.toml", "--shard", shard]);
    assert_eq!(of_shard("1/3"), "trace0.arrow: to do\n0 of 1 trace done\n");
    assert!(of_shard("2/3").ends_with("\n1 of 1 trace done\n"));
    succeed(path, &["sweep", "plan.toml"]);
    let all = files(path, "results");
    assert_eq!((all.len(), first.iter().all(|(name, file)| all.get(name) == Some(file))), (3, true));
    let json: Vec<serde_json::Value> =
        serde_json::from_str(&succeed(path, &["sweep", "status", "plan.toml", "--json"])).unwrap();
    assert!(
        json.len() == 3
            && json.iter().all(|row| row["done"] == true && path.join(row["file"].as_str().unwrap()).exists())
    );
    // Workers, on however many threads, write the same bytes.
    std::fs::write(path.join("plan.toml"), PLAN.replace("results", "by-workers")).unwrap();
    succeed(path, &["sweep", "plan.toml", "--workers", "2", "--threads", "1"]);
    assert_eq!(files(path, "by-workers"), all);
    // Changed traces and jobs run again.
    succeed(path, &["trace", "generate", "other.arrow", "--blocks", "4000", "--accesses", "20000", "--seed", "9"]);
    std::fs::rename(path.join("other.arrow"), path.join("trace1.arrow")).unwrap();
    assert!(status().ends_with("\n2 of 3 traces done\n"));
    std::fs::write(path.join("plan.toml"), PLAN.replace("400", "500").replace("results", "by-workers")).unwrap();
    assert!(status().ends_with("\n0 of 3 traces done\n"));
}

/// Caches of buckets cannot be sampled, and an accuracy gives a note about that.
#[test]
fn an_accuracy_that_takes_the_whole_trace_says_so() {
    let folder = folder(1, "2000");
    let plan = "traces = [\"trace?.arrow\"]\nout = \"results\"\naccuracy = \"1%\"\n\n\
                [[run]]\nlayout = \"wlfc\"\nsize = \"16MiB\"\nbucket = \"512KiB\"\n";
    std::fs::write(folder.path().join("plan.toml"), plan).unwrap();
    let (_, err, code) = run(folder.path(), &["sweep", "plan.toml"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("accuracy: caches that see whole requests cannot be sampled"), "{err}");
    let (_, err, _) = run(folder.path(), &["sweep", "plan.toml", "--workers", "1"]);
    assert_eq!(err.matches("cannot be sampled").count(), 1, "{err}");
}

#[test]
fn a_bad_trace_fails_only_its_task() {
    let folder = folder(2, "20000");
    let path = folder.path();
    std::fs::write(path.join("bad.csv"), "nothing\n").unwrap();
    let traces = "traces = [\"trace0.arrow\", \"bad.csv\", \"none.csv\", \"trace1.arrow\"]";
    for (out, options) in [("here", &[][..]), ("workers", &["--workers", "2"])] {
        let plan = PLAN.replace("traces = [\"trace?.arrow\"]", traces).replace("results", out);
        std::fs::write(path.join("plan.toml"), plan).unwrap();
        let (printed, err, code) = run(path, &[&["sweep", "plan.toml", "--keep-going"], options].concat());
        assert_eq!((printed.lines().count(), code), (2, 1), "{err}");
        assert!(err.contains("bad.csv: its format is not recognised"), "{err}");
        assert!(err.contains("none.csv: No such file"), "{err}");
        assert!(err.ends_with("flashwise: 2 of 4 traces failed\n"), "{err}");
        assert_eq!(files(path, out).len(), 2);
    }
    assert_eq!(files(path, "here"), files(path, "workers"));
    let status = succeed(path, &["sweep", "status", "plan.toml"]);
    assert!(status.contains("\nnone.csv: No such file") && status.ends_with("2 of 4 traces done\n"), "{status}");
    // Without it the sweep ends there.
    let plan = PLAN.replace("traces = [\"trace?.arrow\"]", traces).replace("results", "ended");
    std::fs::write(path.join("plan.toml"), plan).unwrap();
    let (_, err, code) = run(path, &["sweep", "plan.toml"]);
    assert!(code == 1 && err.ends_with("1 of 4 traces failed; 2 were not started (--keep-going)\n"), "{err}");
    assert_eq!(files(path, "ended").len(), 1);
}

/// A worker of the process `parent`.
fn worker_of(parent: u32) -> Option<i32> {
    let of_thread = |thread: std::fs::DirEntry| {
        let children = std::fs::read_to_string(thread.path().join("children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    std::fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten().find_map(of_thread)
}

#[test]
fn a_killed_worker_fails_only_its_task() {
    let folder = folder(4, "300000");
    let path = folder.path();
    let arguments = ["sweep", "plan.toml", "--workers", "2", "--threads", "1", "--keep-going"];
    let mut sweep = flashwise(path, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let worker = loop {
        if let Some(worker) = worker_of(sweep.id()) {
            break worker;
        }
        assert!(sweep.try_wait().unwrap().is_none(), "it ended without a worker");
    };
    rustix::process::kill_process(rustix::process::Pid::from_raw(worker).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    let (printed, err, code) = crate::common::parts(sweep.wait_with_output().unwrap());
    assert_eq!((printed.lines().count(), code), (3, 1), "{err}");
    assert!(err.contains(": its worker was ended by signal 9\n"), "{err}");
    assert_eq!(files(path, "results").len(), 3);
    succeed(path, &arguments);
    assert_eq!(files(path, "results").len(), 4);
}

#[test]
fn invalid_plans_are_refused() {
    let folder = folder(1, "2000");
    let path = folder.path();
    for (change, said) in [
        (
            ("policy = \"lru\"", "polcy = \"lru\""),
            "plan.toml: run: polcy: found an unknown word (did you mean 'policy'?)",
        ),
        (("\"larc\"", "\"lrac\""), "plan.toml: run: policy: unknown policy 'lrac' (did you mean 'larc'?)"),
        (("\"16KiB\"", "[[1]]"), "plan.toml: run: erase_unit: found [\"1\"], expected text or a number"),
        (("\"greedy\"", "\"first\""), "plan.toml: run: gc-victim: "),
        (
            ("policy = \"lru\"", "policy = []"),
            "plan.toml: run: policy: found [], expected one value or more; omit the word for its default",
        ),
        (("[\"greedy\", \"fifo\"]", "[]"), "plan.toml: run: gc-victim: found [], expected one value or more"),
        (
            ("out = \"results\"", "ot = 1"),
            "plan.toml: ot: unknown key (did you mean 'out'?); expected one of: traces, out, format, block-size, \
             lenient, per-volume, accuracy, cache, cache-size, run",
        ),
        (("out = \"results\"", ""), "plan.toml: out: is missing, expected the folder of the results"),
        (("trace?", "none?"), "plan.toml: traces: none?.arrow: found none, expected files that fit the pattern"),
        (("\n[[run]]", "\nlenient = 5\n[[run]]"), "plan.toml: lenient: found \"5\", expected true or false"),
        (("[\"5%\"", "[\"5%"), "plan.toml, line 6: is not TOML: "),
    ] {
        std::fs::write(path.join("plan.toml"), PLAN.replacen(change.0, change.1, 1)).unwrap();
        let err = fail(path, &["sweep", "plan.toml"], 2);
        assert!(err.starts_with(&format!("flashwise: {said}")), "{err}");
    }
    assert!(fail(path, &["sweep", "none.toml"], 1).starts_with("flashwise: none.toml: No such file"));
    let shard = fail(path, &["sweep", "plan.toml", "--shard", "4/3"], 2);
    assert!(shard.contains("found '4/3', expected the number of a shard"), "{shard}");
    assert!(files(path, "results").is_empty());
}
