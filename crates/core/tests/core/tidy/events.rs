//! Events of a server's log: each message of the server names one, and docs/log.md lists it with its level and fields.

use std::collections::{BTreeMap, BTreeSet};

/// An event: its levels, and its fields.
pub type Event = (BTreeSet<String>, BTreeSet<String>);

/// The place of a letter in source: how many brackets are open, and whether it is in a text.
#[derive(Default)]
struct Nesting {
    depth: i32,
    is_text: bool,
    is_escaped: bool,
}

impl Nesting {
    fn pass(&mut self, letter: char) {
        match letter {
            _ if self.is_escaped => self.is_escaped = false,
            '\\' if self.is_text => self.is_escaped = true,
            '"' => self.is_text ^= true,
            '(' | '[' | '{' if !self.is_text => self.depth += 1,
            ')' | ']' | '}' if !self.is_text => self.depth -= 1,
            _ => {}
        }
    }
}

/// Returns the arguments of a macro's call, up to its closing bracket.
fn arguments(after: &str) -> &str {
    let mut nesting = Nesting::default();
    let end = after.find(|letter| {
        nesting.pass(letter);
        nesting.depth < 0
    });
    &after[..end.unwrap_or(after.len())]
}

/// Returns the arguments of a call, without texts that have no name.
fn split(arguments: &str) -> Vec<String> {
    let mut nesting = Nesting::default();
    let mut parts = vec![String::new()];
    for letter in arguments.chars() {
        nesting.pass(letter);
        match letter {
            ',' if !nesting.is_text && nesting.depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("there is a part").push(letter),
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Returns the name of an argument: `volume`, `%error` and `disk = path` have one.
fn name(argument: &str) -> Option<&str> {
    let name = argument.split_once(" = ").map_or(argument, |(name, _)| name).trim_start_matches(['%', '?']);
    let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some(name)
}

/// Adds the events of a file's messages to `events`. Returns the messages that name none.
pub fn collect(source: &str, events: &mut BTreeMap<String, Event>) -> Vec<String> {
    let mut without = Vec::new();
    for level in ["error", "warn", "info", "debug"] {
        for (at, call) in source.match_indices(&format!("tracing::{level}!(")) {
            let parts = split(arguments(&source[at + call.len()..]));
            let event =
                parts.iter().find_map(|part| part.strip_prefix("event = ")).map(|event| event.trim_matches('"'));
            let Some(event) = event else {
                without.push(parts.join(", "));
                continue;
            };
            let fields = parts.iter().filter_map(|part| name(part)).filter(|name| *name != "event");
            add(events, event, level, fields);
        }
        // `event!` of the command line: level, event, fields in brackets.
        let upper = level.to_uppercase();
        for (at, call) in source.match_indices("event!(") {
            let parts = split(arguments(&source[at + call.len()..]));
            if parts.first() == Some(&upper) {
                let fields = split(parts[2].trim_matches(['[', ']']));
                add(events, parts[1].trim_matches('"'), level, fields.iter().filter_map(|field| name(field)));
            }
        }
    }
    without
}

fn add<'a>(events: &mut BTreeMap<String, Event>, event: &str, level: &str, fields: impl Iterator<Item = &'a str>) {
    let (levels, all) = events.entry(event.to_owned()).or_default();
    levels.insert(level.to_owned());
    all.extend(fields.map(str::to_owned));
}

/// Returns the events of the document's table.
pub fn documented(markdown: &str) -> BTreeMap<String, Event> {
    let rows = markdown.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 3);
    let cells = |row: &str| row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let row = |row: &str| {
        let cells = cells(row);
        let levels = cells[1].split(", ").map(str::to_owned).collect();
        (cells[0].trim_matches('`').to_owned(), (levels, quoted(&cells[2])))
    };
    rows.map(row).collect()
}

#[test]
fn events_are_found_with_their_level_and_fields() {
    let source = r#"tracing::warn!(event = "a-b", volume = self.name(), %error, ?units, "text, (with) {error}");
        event!(INFO, "served", [volume = name, uri = f(a, b)], "served");
        tracing::error!("nameless {}", 1);"#;
    let mut events = BTreeMap::new();
    assert_eq!(collect(source, &mut events), ["\"nameless {}\", 1"]);
    let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(events["a-b"], (of(&["warn"]), of(&["error", "units", "volume"])));
    assert_eq!(events["served"], (of(&["info"]), of(&["uri", "volume"])));
    let table = "| event | level | fields | meaning |\n| `a-b` | warn | `error`, `units`, `volume` | x |";
    assert_eq!(documented(table), BTreeMap::from([("a-b".to_owned(), events["a-b"].clone())]));
}
