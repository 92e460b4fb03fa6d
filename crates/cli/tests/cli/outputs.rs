//! Outputs that are no plain files: standard output by another name, pipes of a shell, named pipes, devices; and files
//! that cannot be written.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{fail, flashwise, parts, run, succeed, table_i};

/// Commands that write to OUT, and the first bytes of their output.
const COMMANDS: [(&str, &[u8]); 12] = [
    ("simulate table1.csv --policy lru --size 4 --html OUT", b"<!DOCTYPE html>"),
    ("simulate table1.csv --policy lru --size 4 --parquet OUT", b"PAR1"),
    ("simulate table1.csv --policy lru --size 4 --jsonl OUT", b"{\"trace\":"),
    ("curve table1.csv --html OUT", b"<!DOCTYPE html>"),
    ("pareto tiny.arrow --policy lru --size 30% --svg OUT", b"<svg "),
    ("trace convert table1.csv OUT", b"ARROW1"),
    ("trace cut table1.csv OUT --requests ..5", b"ARROW1"),
    ("trace concat table1.csv table1.csv --out OUT", b"ARROW1"),
    ("trace generate OUT --blocks 10 --requests 5", b"ARROW1"),
    ("trace generate OUT --csv --blocks 10 --requests 5", b"time_us,"),
    ("trace export table1.csv OUT", b"time_us,"),
    ("sweep report results --html OUT", b"<!DOCTYPE html>"),
];

/// Table I, and the results of a sweep.
fn folder() -> tempfile::TempDir {
    let folder = table_i();
    succeed(folder.path(), &["trace", "cut", "traces/netsfs.csv.zst", "tiny.arrow", "--requests", "..20000"]);
    let plan = "traces = [\"table1.csv\"]\nout = \"results\"\n[[run]]\npolicy = [\"lru\", \"larc\"]\nsize = 4\n";
    std::fs::write(folder.path().join("plan.toml"), plan).unwrap();
    succeed(folder.path(), &["sweep", "plan.toml"]);
    folder
}

/// The arguments of a command that writes to `out`.
fn arguments(line: &str, out: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace("OUT", out)).collect()
}

fn shell(folder: &Path, script: &str) -> (String, String, i32) {
    let mut bash = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_flashwise");
    bash.current_dir(folder).env("FLASHWISE", program).env("RUNTIME_DIRECTORY", folder).args(["-c", script]);
    let output = bash.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn begins(folder: &Path, name: &str, beginning: &[u8], what: &str) {
    let found = std::fs::read(folder.join(name)).unwrap();
    let shown = String::from_utf8_lossy(&found[..found.len().min(200)]).into_owned();
    assert!(found.starts_with(beginning), "{what}: {shown}");
}

#[test]
fn every_output_may_be_standard_output_a_pipe_of_the_shell_or_a_named_pipe() {
    let folder = folder();
    let path = folder.path();
    assert!(Command::new("mkfifo").arg(path.join("fifo")).status().unwrap().success());
    for (line, beginning) in COMMANDS {
        for script in [
            "LINE /dev/stdout | cat >found".to_owned(),
            "LINE /dev/stdout >found".to_owned(),
            "LINE /dev/fd/7 7>found".to_owned(),
            "LINE >(cat >found) >said; wait $!".to_owned(),
            "cat fifo >found & LINE fifo >said; code=$?; wait; exit $code".to_owned(),
        ] {
            let (before, out) = script.split_once("LINE ").unwrap();
            let out_end =
                if out.starts_with(">(") { out.find(')').unwrap() + 1 } else { out.find([' ', ';']).unwrap() };
            let line = arguments(line, &out[..out_end]).join(" ");
            let script = format!("set -o pipefail; {before}\"$FLASHWISE\" {line}{}", &out[out_end..]);
            let _ = std::fs::remove_file(path.join("found"));
            let (_, err, code) = shell(path, &script);
            assert_eq!(code, 0, "{script}: {err}");
            begins(path, "found", beginning, &script);
        }
    }
    // No file was made in the place of any.
    let left: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.iter().filter(|name| name.to_string_lossy().contains("partial")).count(), 0, "{left:?}");
}

#[test]
fn rows_of_jsonl_are_not_read_from_pipes_and_devices() {
    let folder = table_i();
    let lines = ["simulate", "table1.csv", "--policy", "lru", "--size", "4", "--jsonl"];
    // Without a limit, all memory would be read full.
    for device in ["/dev/zero", "/dev/null"] {
        assert_eq!(succeed(folder.path(), &[&lines[..], &[device]].concat()), "");
    }
    let (out, err, code) = run(folder.path(), &[&lines[..], &["/dev/full"]].concat());
    assert_eq!((out.as_str(), code), ("", 1));
    assert_eq!(err, "flashwise: /dev/full: No space left on device (os error 28)\n");
    std::fs::write(folder.path().join("long"), "x".repeat(3 << 20)).unwrap();
    let err = fail(folder.path(), &[&lines[..], &["long"]].concat(), 2);
    assert!(err.contains("long, line 1: found no row (a line of more than 1 MiB), expected"), "{err}");
}

/// Standard output has only this output; other output is suppressed.
#[test]
fn nothing_else_is_printed_to_an_output_on_standard_output() {
    let folder = table_i();
    let simulate = ["simulate", "table1.csv", "--policy", "lru", "--size", "4"];
    let with = |more: &[&str]| run(folder.path(), &[&simulate[..], more].concat());
    let (out, err, code) = with(&["--html", "-"]);
    assert_eq!((code, out.trim_end().ends_with("</html>")), (0, true), "{err}");
    for (more, told) in [
        (
            ["--html", "/dev/stdout", "--json", "-q"],
            "--html: found standard output, to which --json or --csv writes, expected a file",
        ),
        (["--html", "-", "--parquet", "/dev/stdout"], "--html and --parquet name the same file"),
    ] {
        assert_eq!(with(&more), (String::new(), format!("flashwise: {told}\n"), 2));
    }
}

#[test]
fn a_failed_run_leaves_the_old_file_and_a_link_stays_a_link() {
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("bad.csv"), "ts_us,offset,length,op\n0,0,4096,R\n1,x,4096,R\n").unwrap();
    std::os::unix::fs::symlink("old", path.join("link")).unwrap();
    for (line, beginning) in COMMANDS.iter().filter(|(line, _)| !line.contains("--jsonl")) {
        std::fs::write(path.join("old"), "old").unwrap();
        std::fs::set_permissions(path.join("old"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let force = if line.starts_with("trace") { vec!["--force".to_owned()] } else { Vec::new() };
        let run_with = |trace: &str| {
            let line = line.replace("table1.csv", trace);
            let arguments = [arguments(&line, "link"), force.clone()].concat();
            parts(flashwise(path, &arguments.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap())
        };
        if line.contains("table1") {
            let (_, err, code) = run_with("bad.csv");
            assert_ne!(code, 0, "{line}: {err}");
            assert_eq!(std::fs::read(path.join("old")).unwrap(), b"old", "{line}");
        }
        let (_, err, code) = run_with("table1.csv");
        assert_eq!(code, 0, "{line}: {err}");
        begins(path, "old", beginning, line);
        let mode = std::fs::metadata(path.join("old")).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, path.join("link").is_symlink()), (0o640, true), "{line}");
    }
}

#[test]
fn unwritable_outputs_are_named_before_anything_runs() {
    let folder = table_i();
    let path = folder.path();
    std::fs::write(path.join("jobs"), "policy=lru size=4").unwrap();
    let tar = Command::new("tar").current_dir(path).args(["cf", "all.tar", "table1.csv"]).status();
    assert!(tar.unwrap().success());
    let simulate = |more: &str, code| {
        let line = format!("simulate table1.csv {more}");
        fail(path, &line.split(' ').collect::<Vec<_>>(), code)
    };
    let lru = "--policy lru --size 4";
    for (more, told, code) in [
        (format!("{lru} --html no/"), "no/: found no directory no/, expected it to exist", 1),
        (format!("{lru} --html /proc/page"), "/proc/page: no file can be made in /proc: entity not found", 1),
        (format!("{lru} --html /dev/fd/77"), "/dev/fd/77: No such file or directory (os error 2)", 1),
        (format!("{lru} --html out --parquet ./out"), "--html and --parquet name the same file", 2),
        (format!("{lru} --jsonl no/rows"), "no/rows: found no directory no, expected it to exist", 1),
        (
            format!("{lru} --html s3://bucket/report.html"),
            "s3://bucket/report.html: found an object in S3, expected a file: outputs are not written to S3",
            1,
        ),
        ("--job jobs --html jobs".to_owned(), "jobs: it is also an input; name another file for the output", 2),
    ] {
        assert_eq!(simulate(&more, code), format!("flashwise: {told}\n"));
    }
    let export = ["trace", "export", "all.tar/table1.csv", "all.tar", "--force"];
    assert_eq!(fail(path, &export, 2), "flashwise: all.tar: it is also an input; name another file for the output\n");
    let err = fail(path, &["man", "jobs"], 2);
    assert_eq!(err, "flashwise: jobs is not a directory; give another path\n");
}

#[test]
fn a_full_standard_output_is_named_and_a_closed_pipe_is_a_failure() {
    let folder = table_i();
    for line in ["policies", "--help", "--version", "trace export table1.csv", "trace export table1.csv /dev/stdout"] {
        let (_, err, code) = shell(folder.path(), &format!("\"$FLASHWISE\" {line} >/dev/full"));
        assert_eq!(
            (err.as_str(), code),
            ("flashwise: standard output: No space left on device (os error 28)\n", 1),
            "{line}"
        );
    }
    for line in ["policies", "--version", "simulate table1.csv --policy lru --size 4", "trace info table1.csv"] {
        let (_, err, code) = shell(folder.path(), &format!("\"$FLASHWISE\" {line} >&-"));
        let closed = "flashwise: standard output is closed: open it, for example with >/dev/null\n";
        assert_eq!((err.as_str(), code), (closed, 1), "{line}");
    }
    let generate = "trace generate OUT --csv --blocks 1000 --requests 200000";
    let head =
        |out: &str| format!("\"$FLASHWISE\" {} | head -1; exit ${{PIPESTATUS[0]}}", generate.replace("OUT", out));
    for out in ["-", "/dev/stdout"] {
        let (_, err, code) = shell(folder.path(), &head(out));
        assert_eq!((err.as_str(), code), ("", 0), "{out}");
    }
    let read = format!("mkfifo fifo; head -1 fifo >/dev/null & \"$FLASHWISE\" {}", generate.replace("OUT", "fifo"));
    let (_, err, code) = shell(folder.path(), &read);
    assert_eq!((err.as_str(), code), ("flashwise: fifo: Broken pipe (os error 32)\n", 1));
}
