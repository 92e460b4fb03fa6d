//! A policy, an admission rule, a figure and a setting, planted by a feature, each with a file or a row. They are
//! listed, run and shown like any other.

use crate::common::{flashwise, parts, project, succeed};

#[test]
fn planted_rows_are_listed() {
    let listed = succeed(&project(), &["policies"]);
    let (policies, rules) = listed.split_once("Admission rules").unwrap();
    for part in [policies, rules] {
        assert!(part.contains("\nplanted  Planted by a test\n"), "{listed}");
    }
    assert!(rules.contains("every=2  of this many accesses one is admitted"), "{listed}");
}

#[test]
fn planted_rows_run() {
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
    let run = ["simulate", "traces/netsfs.csv.zst", "--policy", "lru", "--size", "10%", "--layout", "log"];
    let simulate = |options: &[&str]| succeed(&project(), &[&run[..], options].concat());
    let files = ["--html", html.to_str().unwrap(), "--parquet", parquet.to_str().unwrap()];
    let table = simulate(&files);
    assert!(table.lines().next().unwrap().contains("planted"), "{table}");
    // Where the table is too wide, each figure has a line with its meaning.
    let (lines, ..) = parts(flashwise(&project(), &run).env("COLUMNS", "80").output().unwrap());
    assert!(
        lines.lines().any(|line| line.starts_with("planted") && line.ends_with("  what a test planted")),
        "{lines}"
    );
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

    let volume = flashwise_storage::status::VolumeStatus { name: "v".to_owned(), ..Default::default() };
    let json = serde_json::to_value(&volume).unwrap();
    assert_eq!(json[name], 0, "{json}");
    let status = flashwise_storage::status::ServerStatus { volumes: vec![volume], ..Default::default() };
    let metrics = flashwise_server::manage::encode_metrics(&status, &[]);
    for line in [&format!("# HELP flashwise_planted_bytes {meaning}"), "flashwise_planted_bytes_total{volume=\"v\"} 0"]
    {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{metrics}");
    }
    let api = serde_json::to_string(&flashwise_server::manage::openapi()).unwrap();
    assert!(api.contains(&format!("\"{name}\"")), "{api}");
}

/// Its row is in the table of settings, `crates/core/src/cache/settings/table.rs`.
#[test]
fn a_planted_setting_is_taken_and_described_everywhere() {
    let (name, meaning) =
        ("planted-age", "Planted by a test: an age at which blocks are written back, besides dirty-age");
    let help = |command: &str, option: &str| {
        let help = succeed(&project(), &[command, option]);
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let flag = format!("--{name} <DURATION> {meaning} [default: 1d]");
    assert!(help("serve", "--help").contains(&flag));
    assert!(help("simulate", "--help=all").contains(&flag));
    assert!(help("set", "--help").contains(&format!("{name}=DURATION {meaning}")));

    let simulate = |options: &[&str]| {
        let run = ["simulate", "traces/netsfs.csv.zst", "--policy", "lru", "--size", "10%", "--layout", "log"];
        succeed(&project(), &[&run[..], options].concat())
    };
    let row = |options: &[&str]| {
        let rows: serde_json::Value = serde_json::from_str(&simulate(&[options, &["--json"]].concat())).unwrap();
        rows[0].clone()
    };
    let (early, never) = (row(&["--planted-age", "1ms"]), row(&["--planted-age", "1d"]));
    let written_back = |row: &serde_json::Value| row["destaged_blocks"].as_u64().unwrap();
    assert!(written_back(&early) > written_back(&never), "{early} {never}");
    let job = simulate(&["--planted-age", "1ms", "--print-jobs"]);
    assert!(job.contains("\"planted-age\":\"1ms\""), "{job}");
    assert!(early["job"].as_str().unwrap().contains("planted-age"), "{early}");

    let document = format!("listen = 'nbd://localhost'\n[[volume]]\nname = 'a'\n{name} = 'soon'\n");
    let error = flashwise_server::config::ServerConfig::parse(std::path::Path::new("a.toml"), &document);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("a.toml:4: [[volume]] 'a' planted-age: found 'soon', expected "), "{error}");
    let changes = flashwise_server::manage::parse_changes(br#"{"planted-age": "30s"}"#).unwrap();
    assert!(changes.names().eq([name]));
    let api = serde_json::to_value(flashwise_server::manage::openapi()).unwrap();
    assert_eq!(api["components"]["schemas"]["Settings"]["properties"][name]["description"], meaning);
}
