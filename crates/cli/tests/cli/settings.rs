//! Each row of the table of the cache's settings is everywhere where users meet it.

use std::path::Path;

use crate::common::{fail, flashwise, parts, project, succeed};
use flashwise_core::cache::settings::SETTINGS;
use flashwise_core::options::{Given, Parameter};
use flashwise_server::config::ServerConfig;
use flashwise_server::manage::{openapi, parse_changes};

/// The help of a command in one line, however it is broken.
fn help(command: &str, option: &str) -> String {
    let help = succeed(Path::new("."), &[command, option]);
    help.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_setting_is_a_key_a_flag_and_a_line_of_help_with_one_default() {
    let (serve, simulate, set) = (help("serve", "--help"), help("simulate", "--help=all"), help("set", "--help"));
    let example = std::fs::read_to_string(project().join("docs/flashwise.toml")).unwrap();
    for setting in SETTINGS {
        let Parameter { name, default, meaning, .. } = setting.parameter;
        let flag = format!("--{name} <{}>", setting.values);
        assert!(serve.contains(&format!("{flag} {meaning} [default: {default}]")), "{flag} in serve");
        assert!(simulate.contains(&flag), "{flag} in simulate");
        let line = format!("{name}={} {meaning}", setting.values);
        assert_eq!(set.contains(&line), setting.is_settable(), "{line} in set");
        let given = format!("\n{name} = \"{default}\"\n");
        assert!(example.contains(&given), "{given} in docs/flashwise.toml");
    }
}

#[test]
fn simulate_helps_on_one_screen_and_the_rest_by_topic() {
    let screen = succeed(Path::new("."), &["simulate", "--help"]);
    assert!(screen.lines().count() <= 40 && screen.lines().all(|line| line.chars().count() <= 120), "{screen}");
    assert_eq!(screen, succeed(Path::new("."), &["simulate", "trace.csv", "-h"]));
    let all = succeed(Path::new("."), &["simulate", "--help=all"]);
    let flags = |help: &str| -> Vec<String> {
        let words = help.lines().filter_map(|line| line.trim_start().split(' ').find(|word| word.starts_with("--")));
        words.map(|word| word.trim_end_matches(',').to_owned()).collect()
    };
    let topics = ["main", "input", "admission", "layout", "wear", "buckets"];
    let each = topics.map(|topic| flags(&succeed(Path::new("."), &["simulate", &format!("--help={topic}")]))).concat();
    // Only the whole list has the rare options of all commands.
    let is_shared = |flag: &str| ["--log-format", "--verbose..."].contains(&flag);
    for flag in flags(&all) {
        assert!(each.contains(&flag) || is_shared(&flag), "{flag} in no topic");
    }
    for topic in topics {
        assert!(topic == "main" || screen.contains(&format!("--help={topic} ")), "{topic}");
    }
}

/// Returns the commands that this help lists, by the lines of the form `  name  About`.
fn listed_commands(help: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, about) = line.strip_prefix("  ")?.split_once(' ')?;
        let is_name = name != "help" && name.starts_with(|first: char| first.is_ascii_lowercase());
        (is_name && about.trim_start().starts_with(char::is_uppercase)).then(|| name.to_owned())
    };
    help.lines().filter_map(name).collect()
}

#[test]
fn every_command_helps_on_one_screen() {
    let mut waiting = vec![Vec::<String>::new()];
    let mut count = 0;
    while let Some(command) = waiting.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["-h"]).collect();
        let output = flashwise(Path::new("."), &arguments).env("COLUMNS", "80").output().unwrap();
        let (help, _, _) = parts(output);
        assert!(help.lines().count() <= 40, "{command:?} has {} lines:\n{help}", help.lines().count());
        let fits = |line: &str| line.chars().count() <= 80 || line.starts_with("Usage: ");
        assert!(help.lines().all(fits), "{command:?}: {help}");
        waiting.extend(listed_commands(&help).into_iter().map(|name| [&command[..], &[name]].concat()));
        count += 1;
    }
    assert!(count > 40, "{count} commands");
}

#[test]
fn every_setting_is_refused_in_the_same_words_wherever_it_is_given() {
    let description = serde_json::to_value(openapi()).unwrap();
    let described = description["components"]["schemas"]["Settings"]["properties"].as_object().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), [0; 4096]).unwrap();
    std::fs::write(folder.path().join("trace.csv"), "0,h,0,Read,12288,4096,0\n").unwrap();
    let serve = ["serve", "--backend", "disk.img", "--flash", "cache.img", "--listen", "nbd://localhost"];
    for setting in SETTINGS {
        let name = setting.name();
        assert_eq!(described.contains_key(name), setting.is_settable(), "{name} in the API's description");
        let problem = setting.read(&Given::from("no such value")).unwrap_err().problem;
        let document = format!("listen = 'nbd://localhost'\n[[volume]]\nname = 'a'\n{name} = 'no such value'\n");
        let error = ServerConfig::parse(Path::new("a.toml"), &document).unwrap_err().to_string();
        assert_eq!(error, format!("a.toml:4: [[volume]] 'a' {name}: {problem}"));
        let flag = format!("--{name}");
        let error = fail(folder.path(), &[&serve[..], &[&flag, "no such value"]].concat(), 2);
        assert_eq!(error, format!("flashwise: {flag}: {problem}\n"));
        let error = fail(folder.path(), &["simulate", "trace.csv", &flag, "no such value"], 2);
        let own = matches!(name, "ram" | "erase-unit" | "policy");
        assert!(error.contains(&problem) || own && error.contains("'no such value'"), "{flag}: {error}");
        if setting.is_settable() {
            let json = serde_json::json!({ name: "no such value" }).to_string();
            assert_eq!(parse_changes(json.as_bytes()).unwrap_err(), format!("{name}: {problem}"));
            let error = fail(folder.path(), &["set", "disk", &format!("{name}=no such value")], 2);
            assert_eq!(error, format!("flashwise: {name}: {problem}\n"));
        }
    }
}
