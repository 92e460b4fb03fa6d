//! A policy and an admission rule that are planted by a feature, each with a file and a row: they are listed and run like any other.

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
