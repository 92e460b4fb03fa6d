//! pandas and polars open the files of flashwise directly. Needs the `.venv` that `run-tests` makes.

use std::process::Command;

use crate::common::{parts, project, succeed};
use tempfile::TempDir;

/// Runs a script of assertions in `folder`.
fn python(folder: &TempDir, script: &str) {
    let python = project().join(".venv/bin/python");
    let output = Command::new(&python).args(["-c", script]).current_dir(folder.path()).output();
    let (_, err, code) = parts(output.unwrap_or_else(|error| panic!("{}: {error}", python.display())));
    assert_eq!((code, err.as_str()), (0, ""));
}

/// The figures are those of traces/README.md; 407,215 of the accesses are reads. The first request of the trace reads
/// one block at byte 8,007,278,592, which is block 1,954,902.
#[test]
fn a_normalised_trace_opens_in_pandas_and_polars() {
    let folder = TempDir::new().unwrap();
    let trace = project().join("traces/netsfs.csv.zst");
    succeed(folder.path(), &["trace", "convert", trace.to_str().unwrap(), "netsfs.arrow"]);
    python(
        &folder,
        r#"
import pandas, polars, pyarrow.ipc
def check(requests, reads, block, unique, rows):
    assert (requests, reads, unique, rows) == (232202, 407215, 617197, 1126563), (requests, reads, unique, rows)
    assert block[0] == 8007278592 // 4096
frame = pandas.read_feather("netsfs.arrow")
check(frame["request"].iloc[-1] + 1, (frame["op"] == 0).sum(), frame["block"], frame["block"].nunique(), len(frame))
assert (frame["block"].cat.codes[:2] == [0, 1]).all()
frame = polars.read_ipc("netsfs.arrow")
check(frame["request"][-1] + 1, (frame["op"] == 0).sum(), frame["block"], frame["block"].n_unique(), len(frame))
schema = pyarrow.ipc.open_file("netsfs.arrow").schema
assert schema.metadata[b"flashwise.trace.block_size_bytes"] == b"4096"
"#,
    );
}

#[test]
fn results_in_parquet_open_in_pandas_and_polars() {
    let folder = TempDir::new().unwrap();
    let trace = project().join("traces/netsfs.csv.zst");
    let arguments = ["simulate", trace.to_str().unwrap(), "--policy", "lru", "--size", "1%,10%", "--epoch", "500000"];
    let json = succeed(folder.path(), &[&arguments[..], &["--json", "--parquet", "results.parquet"]].concat());
    std::fs::write(folder.path().join("results.json"), json).unwrap();
    python(
        &folder,
        r#"
import json, pandas, polars
rows = json.load(open("results.json"))
frame = pandas.read_parquet("results.parquet")
assert polars.read_parquet("results.parquet").to_dicts() == rows
assert len(rows) == len(frame) == 2 and len(rows[0]["epochs"]) == 3
for row, (_, line) in zip(rows, frame.iterrows()):
    assert row == {**line.to_dict(), "epochs": list(line["epochs"])}
"#,
    );
}

/// `tests/reference.py` reads the trace, divides it into blocks and runs its own nine policies; every count must be the
/// same.
#[test]
fn counts_equal_those_of_policies_written_in_python() {
    let folder = TempDir::new().unwrap();
    let trace = project().join("traces/netsfs.csv.zst");
    let trace = trace.to_str().unwrap();
    let requests = "150000";
    let cut = ["trace", "cut", trace, "cut.arrow", "--requests", &format!("0..{requests}")];
    succeed(folder.path(), &cut);
    for size in ["6171", "61719"] {
        let mut reference = Command::new(project().join(".venv/bin/python"));
        reference.arg(project().join("tests/reference.py")).args([trace, size, requests]);
        let (reference, err, code) = parts(reference.output().unwrap());
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(reference.lines().count(), 9);
        for line in reference.lines() {
            let (policy, counts) = line.split_once(' ').unwrap();
            let json = succeed(folder.path(), &["simulate", "cut.arrow", "--policy", policy, "--size", size, "--json"]);
            let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
            let found = ["hits", "write_hits", "admissions", "replacements"].map(|key| rows[0][key].to_string());
            assert_eq!(found.join(" "), counts, "{policy} with {size} blocks");
        }
    }
}
