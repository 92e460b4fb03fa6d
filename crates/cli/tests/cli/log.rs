//! The log of a server as JSON: docs/log.md.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use flashwise_testing::client::Client;
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

use crate::common::{fail, project};
use crate::serving::{Server, Setting};

fn start(folder: &Path) -> Server {
    Server::start(folder, &["serve", "-v", "--log-format", "json", "flashwise.toml"])
}

fn events(log: &str) -> Vec<Value> {
    let document = std::fs::read_to_string(project().join("docs/log.md")).unwrap();
    let parse = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level", "message", "event"] {
            assert!(event[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {line}");
        }
        let row = document.lines().find(|row| row.starts_with(&format!("| `{}` | ", event["event"].as_str().unwrap())));
        let row = row.unwrap_or_else(|| panic!("docs/log.md has no such event: {line}"));
        for field in event.as_object().unwrap().keys() {
            let is_known = ["timestamp", "level", "message", "event"].contains(&field.as_str());
            assert!(is_known || row.contains(&format!("`{field}`")), "docs/log.md: {field} of {line}");
        }
        event
    };
    log.lines().map(parse).collect()
}

/// Returns the only event of a name for which `is` holds.
fn one<'a>(events: &'a [Value], name: &str, is: impl Fn(&Value) -> bool) -> &'a Value {
    let found: Vec<&Value> = events.iter().filter(|event| event["event"] == name && is(event)).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?} of {events:#?}");
    found[0]
}

#[test]
fn every_line_is_an_object_with_its_event_and_fields() {
    let setting = Setting::with("", 8 << 20, "flash-size = \"4MiB\"\nerase-unit = \"64KiB\"\nram = \"1MiB\"\n");
    let path = setting.directory.path();
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let gone = format!("[[volume]]\nname = \"w\"\nbackend = \"{}\"\n", setting.path("gone.img").display());
    std::fs::write(setting.path("flashwise.toml"), config + &gone).unwrap();

    let server = start(path);
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    client.write(0, &[7; 4096]).unwrap();
    drop(client);
    setting.flashwise(&["set", "v", "dirty-age=5s", "--api", &setting.api()]);
    fail(path, &["attach", "v", "--api", &setting.api()], 1);
    assert!(Command::new("kill").args(["-USR1", &server.child.id().to_string()]).status().unwrap().success());
    assert!(Command::new("kill").args(["-HUP", &server.child.id().to_string()]).status().unwrap().success());
    wait_until("the signals are logged", || ["USR1", "reloaded"].iter().all(|text| server.told().contains(text)));
    setting.flashwise(&["detach", "v", "--api", &setting.api()]);
    let log = events(&server.end());
    let not_served = one(&log, "not-served", |_| true);
    assert_eq!((&not_served["level"], &not_served["volume"]), (&Value::from("ERROR"), &Value::from("w")));
    assert!(not_served["error"].as_str().unwrap().contains("gone.img"), "{not_served}");
    let opened = one(&log, "opened", |event| event["cached_blocks"].is_number());
    assert_eq!((&opened["volume"], &opened["crashed"]), (&Value::from("v"), &Value::from(false)));
    assert_eq!(one(&log, "served", |_| true)["uri"], setting.uri());
    let refused = one(&log, "api-request-failed", |_| true);
    assert_eq!((&refused["path"], &refused["status"]), (&Value::from("/v1/volumes/v/attach"), &Value::from(409)));
    assert!(refused["error"].as_str().unwrap().contains("its cache is not detached"), "{refused}");
    let is_set = |event: &Value| event["message"].as_str().unwrap().starts_with("Settings were changed");
    assert_eq!(one(&log, "changed", is_set)["volume"], "v");
    let detached = one(&log, "detached", |_| true);
    assert_eq!((&detached["volume"], &detached["lost_blocks"]), (&Value::from("v"), &Value::from(0)));
    let found: BTreeSet<&str> = log.iter().map(|event| event["event"].as_str().unwrap()).collect();
    for name in ["api", "api-request", "client", "reloaded", "signal-ignored", "stopping", "stopped"] {
        assert!(found.contains(name), "{name}: {found:?}");
    }

    let log = events(&start(path).end());
    assert_eq!(one(&log, "served-detached", |_| true)["volume"], "v");
}
