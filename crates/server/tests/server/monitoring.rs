//! The alert rules and the dashboard use only existing metrics, and the runbook describes each alert.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flashwise_server::manage::metric_names;
use flashwise_storage::status::VolumeState;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap()
}

/// Returns the names in a text that begin with `flashwise_`.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let names = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    names.filter(|name| name.starts_with("flashwise_")).collect()
}

/// Returns the values in a text that the label `state` is compared with.
fn states_in(text: &str) -> BTreeSet<&str> {
    text.split("state=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let names = metric_names();
    let is_there = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        names.iter().any(|known| known == name || of_histogram == Some(known))
    };
    let states: Vec<&str> = VolumeState::ALL.iter().map(|state| state.name()).collect();
    for (path, least) in [("packaging/monitoring/alerts.yml", 12), ("packaging/monitoring/dashboard.json", 30)] {
        let text = read(path);
        let named = metrics_in(&text);
        let missing: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
        assert!(missing.is_empty(), "{path}: {missing:?}");
        assert!(named.len() >= least, "{path}: only {} metrics", named.len());
        assert!(states_in(&text).iter().all(|state| states.contains(state)), "{path}: {:?}", states_in(&text));
    }
    assert!(!is_there("flashwise_nothing") && !is_there("flashwise_connections_bucket_"));
}

#[test]
fn the_dashboard_is_json_whose_panels_lie_beside_each_other() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("packaging/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
        }
        let is_row = panel["type"] == "row";
        assert_eq!(panel["targets"].as_array().map_or(0, Vec::len) == 0, is_row, "{}", panel["title"]);
    }
    assert!(panels.len() > 20, "{} panels", panels.len());
}

/// Returns the anchor of a heading in Markdown.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase().replace(' ', "-");
    letters.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let runbook = read("docs/runbook.md");
    let anchors: BTreeSet<String> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let alerts = read("packaging/monitoring/alerts.yml");
    let mut found = 0;
    for line in alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: docs/runbook.md#")) {
        assert!(anchors.contains(line), "docs/runbook.md has no section {line}: {anchors:?}");
        found += 1;
    }
    assert_eq!(found, alerts.matches("- alert: ").count());
}

/// Prometheus's tool accepts the alert rules and their tests.
#[cfg(feature = "client-tests")]
#[test]
fn promtool_finds_nothing_wrong() {
    use std::process::Command;

    for arguments in [
        ["check", "rules", "packaging/monitoring/alerts.yml"],
        ["test", "rules", "packaging/monitoring/alerts_test.yml"],
    ] {
        let mut command = Command::new("promtool");
        let output = command.args(arguments).current_dir(project()).output();
        let output = output.expect("promtool, of the package prometheus, which run-tests installs");
        assert!(output.status.success(), "{output:?}");
    }
}
