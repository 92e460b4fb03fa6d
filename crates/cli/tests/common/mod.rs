//! Runs the program as a user would.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.
#![allow(dead_code)] // Not every test uses all of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder of the whole project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A command that runs flashwise in `folder`, with nothing on standard input.
pub fn flashwise(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashwise"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).env_remove("RAYON_NUM_THREADS");
    command
}

/// What flashwise prints, its errors and its exit code.
pub fn run(folder: &Path, arguments: &[&str]) -> (String, String, i32) {
    parts(flashwise(folder, arguments).output().unwrap())
}

pub fn parts(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().expect("not ended by a signal"))
}

/// Standard output of a run that must succeed and be quiet on standard error, but for how CSVs are read.
pub fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (out, err, code) = run(folder, arguments);
    let others: String = err.lines().filter(|line| !line.contains(": read as csv:")).collect();
    assert_eq!((code, others.as_str()), (0, ""), "{arguments:?}: {out}");
    out
}

/// Standard error of a run that must fail with `code` and print no results.
pub fn fail(folder: &Path, arguments: &[&str], code: i32) -> String {
    let (out, err, found) = run(folder, arguments);
    assert_eq!(found, code, "{arguments:?}: {err}");
    assert_eq!(out, "", "{arguments:?}");
    assert!(!err.contains("panicked"), "{err}");
    err
}
