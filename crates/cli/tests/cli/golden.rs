//! Hit counts of independent code: `tests/golden.csv`, whose head names it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{project, succeed};
use serde_json::Value;

/// Rows of one trace: accesses, capacity, policy, hits.
type Golden = BTreeMap<String, Vec<[String; 4]>>;

fn golden() -> Golden {
    let mut golden = Golden::new();
    let text = std::fs::read_to_string(project().join("tests/golden.csv")).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let (trace, figures) = line.split_once(',').unwrap();
        let figures: Vec<_> = figures.split(',').map(str::to_owned).collect();
        golden.entry(trace.to_owned()).or_default().push(figures.try_into().unwrap());
    }
    golden
}

fn compare(name: &str, trace: &Path, rows: &[[String; 4]]) {
    let mut arguments = vec!["simulate", trace.to_str().unwrap(), "--json"];
    // The blocks of ARC's traces are 512 bytes long.
    if name.contains(".lis") {
        arguments.extend(["--block-size", "512"]);
    }
    for column in [1, 2] {
        let mut values: Vec<&str> = rows.iter().map(|row| row[column].as_str()).collect();
        values.sort_unstable();
        values.dedup();
        let option = if column == 1 { "--size" } else { "--policy" };
        arguments.extend(values.into_iter().flat_map(|value| [option, value]));
    }
    let runs: Vec<Value> = serde_json::from_str(&succeed(&project(), &arguments)).unwrap();
    for [accesses, capacity, policy, hits] in rows {
        let is_meant =
            |run: &&Value| run["policy"] == policy.as_str() && run["capacity_blocks"].as_u64() == capacity.parse().ok();
        let run = runs.iter().find(is_meant).unwrap();
        let found = [&run["accesses"], &run["hits"]].map(Value::to_string);
        assert_eq!(
            found,
            [accesses.clone(), hits.clone()],
            "accesses and hits of {policy} with {capacity} blocks on {name}"
        );
    }
}

#[test]
fn hits_on_the_bundled_trace_are_those_of_independent_code() {
    let rows = &golden()["captured/netsfs.csv.zst"];
    assert!(rows.len() >= 21);
    compare("netsfs", &project().join("traces/netsfs.csv.zst"), rows);
}

#[cfg(feature = "real-traces")]
#[test]
fn hits_on_public_traces_are_those_of_independent_code() {
    let folder = std::env::var("FLASHWISE_TRACES").expect("FLASHWISE_TRACES names the folder of the traces");
    let folder = project().join(folder);
    let golden = golden();
    assert!(golden.len() >= 8);
    for (name, rows) in golden {
        compare(&name, &folder.join(&name), &rows);
    }
}

/// Traces without a known format, or with the columns of one in other units, which the user must name.
#[cfg(feature = "real-traces")]
const UNNAMED: [&str; 5] = [
    "Installing_log181.txt.zst",
    "rocksdb-ycsbA-load-0702.csv.zst",
    "Financial1-head50000.flashsim.zst",
    "WebSearch1-head24783.mqsim.zst",
    "DTRS-300s.ssdsim.ts_us.zst",
];

#[cfg(feature = "real-traces")]
#[test]
fn no_public_trace_is_refused_for_its_units() {
    let folder =
        project().join(std::env::var("FLASHWISE_TRACES").expect("FLASHWISE_TRACES names the folder of the traces"));
    let listed =
        |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let folders: Vec<_> = listed(&folder).into_iter().filter(|path| path.is_dir()).collect();
    let mut read = 0;
    for file in folders.iter().flat_map(|folder| listed(folder)).filter(|path| path.is_file()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".md") || UNNAMED.contains(&name) {
            continue;
        }
        // Notes are no refusals.
        let (_, notes, code) = crate::common::run(&folder, &["trace", "info", file.to_str().unwrap()]);
        assert_eq!(code, 0, "{notes}");
        read += 1;
    }
    assert!(read >= 30, "{read}");
}
