//! A policy and an admission rule that are planted by a feature, each with a file and a row, and a figure with a row: they are listed, run and shown
//! like any other.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use common::{project, succeed};

#[test]
fn what_is_planted_is_listed() {
    let listed = succeed(&project(), &["policies"]);
    let (policies, rules) = listed.split_once("Admission rules").unwrap();
    for part in [policies, rules] {
        assert!(part.contains("\nplanted  Planted by a test\n"), "{listed}");
    }
    assert!(rules.contains("every=2  of this many accesses one is admitted"), "{listed}");
}

#[test]
fn what_is_planted_runs() {
    let simulate = |policy: &str, admission: &str| {
        let trace = "traces/netsfs.csv.zst";
        let json = succeed(
            &project(),
            &["simulate", trace, "--policy", policy, "--size", "10%", "--admission", admission, "--json"],
        );
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(rows.len(), 1, "{json}");
        rows[0].clone()
    };
    let row = simulate("planted", "planted:every=3");
    assert!(row.to_string().contains("planted:every=3"), "{row}");
    let hit_ratio = |row: &serde_json::Value| row["hit_ratio"].as_f64().unwrap();
    assert!(hit_ratio(&row) > 0.0, "{row}");
    assert_ne!(hit_ratio(&row), hit_ratio(&simulate("planted", "none")));
    assert!(hit_ratio(&simulate("lru", "adaptive:kind=planted,timeframe=1s")) > 0.0);
}

/// Its row is in the table of figures that running and simulated caches share, in `crates/core/src/cache/figures.rs`.
#[test]
fn a_planted_figure_is_in_every_output() {
    let (name, meaning) = ("planted_blocks", "Blocks that a test planted");
    let folder = tempfile::tempdir().unwrap();
    let [html, parquet] = ["report.html", "rows.parquet"].map(|file| folder.path().join(file));
    let simulate = |options: &[&str]| {
        let run = ["simulate", "traces/netsfs.csv.zst", "--policy", "lru", "--size", "10%", "--layout", "log"];
        succeed(&project(), &[&run[..], options].concat())
    };
    let files = ["--html", html.to_str().unwrap(), "--parquet", parquet.to_str().unwrap()];
    let table = simulate(&files);
    assert!(table.lines().next().unwrap().contains("planted"), "{table}");
    assert!(table.contains("planted: what a test planted"), "{table}");
    let rows: serde_json::Value = serde_json::from_str(&simulate(&["--json"])).unwrap();
    assert_eq!(rows[0][name], 0, "{rows}");
    let csv = simulate(&["--csv"]);
    assert!(csv.lines().next().unwrap().split(',').any(|column| column == name), "{csv}");
    let report = std::fs::read_to_string(html).unwrap();
    assert!(report.contains("planted blocks"));
    let schema = String::from_utf8_lossy(&std::fs::read(parquet).unwrap()).into_owned();
    assert!(schema.contains(name));
    let figures = flashwise_sim::results::page();
    assert!(figures.contains(&format!("| `{name}` | blocks | {meaning}. |")), "{figures}");

    let volume = flashwise_engine::status::VolumeStatus { name: "v".to_owned(), ..Default::default() };
    let json = serde_json::to_value(&volume).unwrap();
    assert_eq!(json[name], 0, "{json}");
    let status = flashwise_engine::status::ServerStatus { volumes: vec![volume], ..Default::default() };
    let metrics = flashwise_server::manage::encode_metrics(&status, &[]);
    for line in [&format!("# HELP flashwise_planted_bytes {meaning}"), "flashwise_planted_bytes_total{volume=\"v\"} 0"]
    {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{metrics}");
    }
    let api = serde_json::to_string(&flashwise_server::manage::openapi()).unwrap();
    assert!(api.contains(&format!("\"{name}\"")), "{api}");
}
