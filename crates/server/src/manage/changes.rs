//! What can be changed of a volume while it runs, as the JSON object that a client sends.

use flashwise_core::admission;
use flashwise_core::cache::{CopyForward, Mode};
use flashwise_core::filter::{Clients, Rule};
use flashwise_core::options::nearest;
use flashwise_core::policy::Spec;
use flashwise_core::quantity::{ByteSize, Duration};
use serde_json::{Map, Value};

/// Settings to change; those that are `None` stay.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The replacement policy. A new one starts without knowledge of what was used.
    pub policy: Option<Spec>,
    /// The admission rule in front of it, or none. A new one starts without knowledge too.
    pub admission: Option<Option<admission::Spec>>,
    /// When written data reaches the backend.
    pub write_mode: Option<Mode>,
    /// What is copied forward of an erase unit that is reset.
    pub copy_forward: Option<CopyForward>,
    /// The cleaner starts above this share of dirty blocks, 0 to 1.
    pub dirty_high: Option<f64>,
    /// It stops at this one. Who applies changes refuses a low limit above the high one.
    pub dirty_low: Option<f64>,
    /// Blocks that have been dirty for longer are written back.
    pub dirty_age_us: Option<u64>,
    /// Sequential streams longer than this bypass the flash; 0 for never.
    pub sequential_bytes: Option<u64>,
    /// Which clients are cached that no rule names.
    pub cache_clients: Option<Clients>,
    /// The allow list.
    pub allow_clients: Option<Vec<Rule>>,
    /// The deny list.
    pub deny_clients: Option<Vec<Rule>>,
}

/// The keys of the object.
pub const KEYS: [&str; 11] = [
    "policy",
    "admission",
    "write-mode",
    "copy-forward",
    "dirty-high",
    "dirty-low",
    "dirty-age",
    "sequential-bypass",
    "cache-clients",
    "allow-clients",
    "deny-clients",
];

impl Changes {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Changes, String> {
        let example = "expected an object such as {\"policy\": \"larc\"}";
        let value: Value = serde_json::from_slice(json).map_err(|error| format!("not JSON ({error}), {example}"))?;
        let Value::Object(object) = value else { return Err(format!("found {}, {example}", shown(&value))) };
        if object.is_empty() {
            return Err(format!("nothing to change, expected some of: {}", KEYS.join(", ")));
        }
        Changes::of(&object)
    }

    /// The keys of what is to change.
    pub fn keys(&self) -> Vec<&'static str> {
        let given = [
            self.policy.is_some(),
            self.admission.is_some(),
            self.write_mode.is_some(),
            self.copy_forward.is_some(),
            self.dirty_high.is_some(),
            self.dirty_low.is_some(),
            self.dirty_age_us.is_some(),
            self.sequential_bytes.is_some(),
            self.cache_clients.is_some(),
            self.allow_clients.is_some(),
            self.deny_clients.is_some(),
        ];
        KEYS.into_iter().zip(given).filter(|(_, given)| *given).map(|(key, _)| key).collect()
    }

    fn of(object: &Map<String, Value>) -> Result<Changes, String> {
        let mut changes = Changes::default();
        for (key, value) in object {
            match key.as_str() {
                "policy" => {
                    changes.policy = Some(text(key, value)?.parse().map_err(|error| format!("{key}: {error}"))?)
                }
                "admission" => changes.admission = Some(admission(key, value)?),
                "write-mode" => changes.write_mode = Some(write_mode(key, value)?),
                "copy-forward" => {
                    let which = text(key, value)?.parse().map_err(|error| format!("{key}: {error}"))?;
                    changes.copy_forward = Some(which);
                }
                "dirty-high" => changes.dirty_high = Some(share(key, value)?),
                "dirty-low" => changes.dirty_low = Some(share(key, value)?),
                "dirty-age" => {
                    let age: Duration = text(key, value)?.parse().map_err(|error| format!("{key}: {error}"))?;
                    changes.dirty_age_us = Some(age.us());
                }
                "sequential-bypass" => changes.sequential_bytes = Some(size_bytes(key, value)?),
                "cache-clients" => {
                    let clients = cut(text(key, value)?).parse().map_err(|error| format!("{key}: {error}"))?;
                    changes.cache_clients = Some(clients);
                }
                "allow-clients" => changes.allow_clients = Some(rules(key, value)?),
                "deny-clients" => changes.deny_clients = Some(rules(key, value)?),
                _ => return Err(unknown(key)),
            }
        }
        if let (Some(high), Some(low)) = (changes.dirty_high, changes.dirty_low)
            && low > high
        {
            return Err(format!("dirty-low: found {low}, expected at most dirty-high, which is {high}"));
        }
        Ok(changes)
    }
}

fn unknown(key: &str) -> String {
    let near = nearest(key, &KEYS).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
    format!("unknown setting '{}'{near}; expected some of: {}", cut(key), KEYS.join(", "))
}

fn text<'a>(key: &str, value: &'a Value) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{key}: found {}, expected text in quotes", shown(value)))
}

fn admission(key: &str, value: &Value) -> Result<Option<admission::Spec>, String> {
    match text(key, value)? {
        "none" => Ok(None),
        rule => rule.parse().map(Some).map_err(|error| format!("{key}: {error}")),
    }
}

fn write_mode(key: &str, value: &Value) -> Result<Mode, String> {
    cut(text(key, value)?).parse().map_err(|error| format!("{key}: {error}"))
}

/// An array of rules, or text with commas between them.
fn rules(key: &str, value: &Value) -> Result<Vec<Rule>, String> {
    let rules = match value {
        Value::Array(rules) => rules.iter().map(|rule| cut(text(key, rule)?).parse()).collect(),
        Value::String(text) => Rule::parse_list(text),
        _ => return Err(format!("{key}: found {}, expected rules such as [\"uid:1000\"], or \"none\"", shown(value))),
    };
    rules.map_err(|error| format!("{key}: {error}"))
}

/// A number from 0 to 1, or a percentage such as `"70%"`.
fn share(key: &str, value: &Value) -> Result<f64, String> {
    let share = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
            None => text.parse().ok(),
        },
        _ => None,
    };
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{key}: found {}, expected a share from 0 to 1, such as 0.7 or \"70%\"", shown(value)))
}

/// A number of bytes, or a size such as `"1MiB"`.
fn size_bytes(key: &str, value: &Value) -> Result<u64, String> {
    let size = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return Err(format!("{key}: found {}, expected a size such as \"1MiB\"; 0 for never", shown(value))),
    };
    size.parse().map(ByteSize::bytes).map_err(|error| format!("{key}: {error}"))
}

fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// Enough of a client's text to find it again.
fn cut(text: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_read() {
        let json =
            br#"{"policy": "larc:fill=ghost", "admission": "size:max=8KiB", "write-mode": "write-through", "copy-forward": "young:30%", "dirty-high": 0.5, "dirty-low": "25%",
            "dirty-age": "30s", "sequential-bypass": "1MiB", "cache-clients": "none",
            "allow-clients": ["uid:7", "address:10.0.0.0/8"], "deny-clients": "pid:1,program:dd"}"#;
        let changes = Changes::parse(json).unwrap();
        assert_eq!(changes.keys(), KEYS);
        assert_eq!(changes.policy.unwrap().to_string(), "larc:fill=ghost");
        assert_eq!(changes.admission.unwrap().unwrap().to_string(), "size:max=8KiB");
        assert_eq!(changes.write_mode, Some(Mode::WriteThrough));
        assert_eq!(changes.copy_forward, Some(CopyForward::Young(0.3)));
        assert_eq!((changes.dirty_high, changes.dirty_low), (Some(0.5), Some(0.25)));
        assert_eq!((changes.dirty_age_us, changes.sequential_bytes), (Some(30_000_000), Some(1 << 20)));
        assert_eq!(changes.cache_clients, Some(Clients::None));
        assert_eq!(changes.allow_clients, Some(Rule::parse_list("uid:7,address:10.0.0.0/8").unwrap()));
        assert_eq!(changes.deny_clients, Some(Rule::parse_list("pid:1,program:dd").unwrap()));
        let changes = Changes::parse(br#"{"allow-clients": [], "deny-clients": "none"}"#).unwrap();
        assert_eq!((changes.allow_clients, changes.deny_clients), (Some(Vec::new()), Some(Vec::new())));
        let changes = Changes::parse(br#"{"sequential-bypass": 0}"#).unwrap();
        assert_eq!((changes.sequential_bytes, changes.dirty_high), (Some(0), None));
        assert_eq!(changes.keys(), ["sequential-bypass"]);
        assert!(changes.policy.is_none() && changes.write_mode.is_none() && changes.admission.is_none());
        assert!(matches!(Changes::parse(br#"{"admission": "none"}"#).unwrap().admission, Some(None)));
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        for (json, error) in [
            (
                "",
                "not JSON (EOF while parsing a value at line 1 column 0), expected an object such as {\"policy\": \"larc\"}",
            ),
            ("[1]", "found [1], expected an object such as {\"policy\": \"larc\"}"),
            (
                "{}",
                "nothing to change, expected some of: policy, admission, write-mode, copy-forward, dirty-high, dirty-low, dirty-age, \
                 sequential-bypass, \
                 cache-clients, allow-clients, deny-clients",
            ),
            (
                r#"{"dirty_hihg": 1}"#,
                "unknown setting 'dirty_hihg' (did you mean 'dirty-high'?); expected some of: policy, admission, write-mode, copy-forward, dirty-high, \
                 dirty-low, dirty-age, sequential-bypass, cache-clients, allow-clients, deny-clients",
            ),
            (r#"{"cache-clients": "some"}"#, "cache-clients: found 'some', expected all or none"),
            (r#"{"deny-clients": 5}"#, "deny-clients: found 5, expected rules such as [\"uid:1000\"], or \"none\""),
            (r#"{"deny-clients": ["uid:x"]}"#, "deny-clients: found 'uid:x', expected a number after uid:"),
            (r#"{"policy": 5}"#, "policy: found 5, expected text in quotes"),
            (r#"{"admission": null}"#, "admission: found null, expected text in quotes"),
            (
                r#"{"admission": "probability:p=2"}"#,
                "admission: probability: option 'p' is '2', expected a number from 0 to 1",
            ),
            (
                r#"{"write-mode": "back"}"#,
                "write-mode: found 'back', expected write-back, write-through or write-around",
            ),
            (
                r#"{"copy-forward": "half"}"#,
                "copy-forward: found 'half', expected used, all, none or young:SHARE, above 0% and up to 100%: young:50%",
            ),
            (r#"{"dirty-high": 70}"#, "dirty-high: found 70, expected a share from 0 to 1, such as 0.7 or \"70%\""),
            (
                r#"{"dirty-high": "NaN"}"#,
                "dirty-high: found \"NaN\", expected a share from 0 to 1, such as 0.7 or \"70%\"",
            ),
            (
                r#"{"dirty-high": 0.2, "dirty-low": 0.3}"#,
                "dirty-low: found 0.3, expected at most dirty-high, which is 0.2",
            ),
            (
                r#"{"dirty-age": "30"}"#,
                "dirty-age: duration '30' has no unit, expected us, ms, s, min, h or d, as in 30s",
            ),
            (
                r#"{"sequential-bypass": -1}"#,
                "sequential-bypass: found '-1', expected a size in bytes such as 10GiB, 512MiB or 4096",
            ),
            (
                r#"{"sequential-bypass": true}"#,
                "sequential-bypass: found true, expected a size such as \"1MiB\"; 0 for never",
            ),
        ] {
            assert_eq!(Changes::parse(json.as_bytes()).unwrap_err(), error, "{json}");
        }
        let error = Changes::parse(br#"{"policy": "lurc"}"#).unwrap_err();
        assert!(error.starts_with("policy: unknown policy 'lurc' (did you mean 'larc'?)"), "{error}");
        let long = Changes::parse(format!("\"{}\"", "x".repeat(9999)).as_bytes()).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }
}
