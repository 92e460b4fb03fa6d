//! `flashwise lifetime`: the figures of the paper's case study, and errors. A test of docs/lifetime.md checks the whole
//! table.

use std::fs;

use crate::common::{fail, flashwise, parts, project, succeed};
use tempfile::TempDir;

const WORKLOAD_I: &str = "read-mb-per-s=160,write-mb-per-s=200,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%";

#[test]
fn options_and_a_file_give_the_same_figures() {
    let folder = TempDir::new().unwrap();
    let docs = project().join("docs/lifetime.toml");
    let of_file = succeed(folder.path(), &["lifetime", docs.to_str().unwrap(), "--json"]);
    let options = ["lifetime", "--json", "--cache", "slc", "--storage", "mlc:devices=3"];
    let of_options = succeed(folder.path(), &[&options[..], &["--workload", WORKLOAD_I]].concat());
    let [of_file, of_options]: [serde_json::Value; 2] =
        [of_file, of_options].map(|text| serde_json::from_str(&text).unwrap());
    assert_eq!(of_file.as_array().unwrap().len(), 2);
    for figure in
        ["cache_write_rate", "storage_write_rate", "lifetime_years", "latency_mean_us", "latency_over_lifetime"]
    {
        let number = of_file[0][figure].as_f64().unwrap();
        assert!(number > 0.0 && of_options[0][figure].as_f64() == Some(number), "{figure}: {of_options}");
    }
    assert_eq!(of_options[0]["latency_request_mean_us"], serde_json::Value::Null);
}

#[test]
fn an_option_goes_before_the_file_and_storage_without_wear_is_unlimited() {
    let folder = TempDir::new().unwrap();
    fs::copy(project().join("docs/lifetime.toml"), folder.path().join("study.toml")).unwrap();
    fs::copy(project().join("crates/device/src/devices/hdd.toml"), folder.path().join("disk.toml")).unwrap();
    let table = succeed(folder.path(), &["lifetime", "study.toml", "--storage", "disk.toml:devices=3"]);
    let row =
        |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().last().unwrap();
    assert_eq!((row("storage: lifetime"), row("lifetime")), ("unlimited", "1.06"));
}

/// A very long lifetime is shown as "more than"; JSON has the number.
#[test]
fn more_than_a_thousand_years_are_not_counted() {
    let folder = TempDir::new().unwrap();
    let idle = "read-mb-per-s=0.001,write-mb-per-s=0.0001,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%";
    let options = ["lifetime", "--cache", "slc", "--storage", "mlc:devices=3", "--workload", idle];
    let table = succeed(folder.path(), &options);
    let years: Vec<&str> = table.lines().filter(|line| line.contains("lifetime in years")).collect();
    assert!(years.len() == 3 && years.iter().all(|line| line.ends_with(" > 1,000")), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&succeed(folder.path(), &[&options[..], &["--json"]].concat())).unwrap();
    assert!(json[0]["lifetime_years"].as_f64().unwrap() > 1e5, "{json}");
}

#[test]
fn devices_are_listed_within_the_width_of_the_terminal() {
    let folder = TempDir::new().unwrap();
    let listed = |columns: &str| {
        let mut list = flashwise(folder.path(), &["lifetime", "--devices"]);
        let (out, err, code) = parts(list.env("COLUMNS", columns).output().unwrap());
        assert_eq!((err.as_str(), code), ("", 0));
        out
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = listed("1000");
    for columns in [80, 120] {
        let narrow = listed(&columns.to_string());
        let widest = narrow.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns && narrow.lines().count() > all.lines().count(), "{widest}: {narrow}");
        assert_eq!(words(&narrow), words(&all));
    }
}

#[test]
fn errors_name_file_line_and_key() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("study.toml"), "[cache]\ndevice = \"slc\"\ndevices = -1\n").unwrap();
    let message = fail(folder.path(), &["lifetime", "study.toml"], 2);
    let expected = "flashwise: study.toml [cache], line 3: devices: found -1, expected a number above 0\n";
    assert_eq!(message, expected);
    let message = fail(folder.path(), &["lifetime", "--cache", "slc", "--storage", "mlc"], 2);
    assert!(message.starts_with("flashwise: found no workload, expected one in the file or as an option"), "{message}");
    let message = fail(folder.path(), &["lifetime", "--cache", "slcc"], 2);
    assert!(message.contains("'--cache <DEVICE>': cache: found no device 'slcc' (did you mean 'slc'?)"), "{message}");
    let message = fail(folder.path(), &["lifetime", "none.toml"], 1);
    assert!(message.starts_with("flashwise: none.toml: No such file"), "{message}");
}
