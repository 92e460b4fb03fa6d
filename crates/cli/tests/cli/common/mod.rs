//! Runs the program as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The folder of the whole project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A command that runs flashwise in `folder`, with nothing on standard input. The default socket of the API is in the
/// folder.
pub fn flashwise(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashwise"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).env_remove("RAYON_NUM_THREADS");
    command.env("RUNTIME_DIRECTORY", folder);
    command
}

/// Returns the output of flashwise, its errors and its exit code.
pub fn run(folder: &Path, arguments: &[&str]) -> (String, String, i32) {
    parts(flashwise(folder, arguments).output().unwrap())
}

pub fn parts(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().expect("not ended by a signal"))
}

/// Returns standard output of a run that must succeed without messages, except about the columns of CSVs and the blocks
/// of ARC's traces.
pub fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (out, err, code) = run(folder, arguments);
    let is_told =
        |line: &&str| !line.contains(": read as csv:") && !line.contains(": its blocks are read as 512 bytes each");
    let others: String = err.lines().filter(is_told).collect();
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

/// Twelve reads and writes of blocks 0 to 6: the accesses of Table I of the LARC paper, after four that fill the cache.
pub const TABLE_I: &str = "\
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

/// A folder with that as a trace, table1.csv, and the bundled traces.
pub fn table_i() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("table1.csv"), TABLE_I).unwrap();
    std::os::unix::fs::symlink(project().join("traces"), folder.path().join("traces")).unwrap();
    folder
}
