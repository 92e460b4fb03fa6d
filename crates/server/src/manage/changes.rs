//! The settings that can change while a volume runs, as the JSON object that a client sends.

use flashwise_core::cache::settings::{Setting, Settings};
use flashwise_core::options::{Given, Kind, Parameter};
use serde_json::Value;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Reads a JSON object of settings with their new values.
///
/// # Errors
/// A message about the first invalid setting.
pub fn parse(json: &[u8]) -> Result<Settings, String> {
    let example = "expected an object such as {\"policy\": \"larc\"}";
    let value: Value = serde_json::from_slice(json).map_err(|error| format!("not JSON ({error}), {example}"))?;
    let Value::Object(object) = value else { return Err(format!("found {}, {example}", shown(&value))) };
    if object.is_empty() {
        let names: Vec<_> = Setting::settable().map(Setting::name).collect();
        return Err(format!("nothing to change, expected some of: {}", names.join(", ")));
    }
    let mut changes = Settings::default();
    for (key, value) in &object {
        let setting = Setting::find_settable(key).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().map(Given::from);
        let other = || Given::Other(shown(value));
        let given = match value {
            Value::String(text) => Given::Text(text.clone()),
            Value::Number(number) => Given::Number(number.to_string()),
            Value::Array(values) => values.iter().map(text).collect::<Option<_>>().map_or_else(other, Given::List),
            _ => other(),
        };
        changes.set(setting, setting.read(&given).map_err(|error| error.to_string())?);
    }
    Ok(changes)
}

/// Enough of a client's value to find it again.
fn shown(value: &Value) -> String {
    const SHOWN_MAX: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Body of `PATCH`: at least one setting.
pub struct Changes;

impl ToSchema for Changes {
    fn name() -> std::borrow::Cow<'static, str> {
        "Settings".into()
    }
}

impl PartialSchema for Changes {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new().schema_type(Type::Object);
        let object = object.description(Some("Settings to change, at least one."));
        let with = |object: ObjectBuilder, setting: &Setting| object.property(setting.name(), schema_of(setting));
        RefOr::T(Setting::settable().fold(object, with).into())
    }
}

fn schema_of(setting: &Setting) -> RefOr<Schema> {
    let Parameter { kind, meaning, .. } = setting.parameter;
    let of = |types: &[Type]| ObjectBuilder::new().schema_type(SchemaType::from_iter(types.iter().cloned()));
    let text = || ObjectBuilder::new().schema_type(Type::String);
    match kind {
        Kind::Share(most) => {
            let share = of(&[Type::Number, Type::String]).minimum(Some(0.0)).maximum(Some(most));
            share.description(Some(meaning)).into()
        }
        Kind::Size(..) | Kind::PowerOfTwo(..) => of(&[Type::Integer, Type::String]).description(Some(meaning)).into(),
        Kind::Choice(words) => text().enum_values(Some(words.iter().copied())).description(Some(meaning)).into(),
        Kind::List => {
            let list = OneOfBuilder::new().item(ArrayBuilder::new().items(text())).item(text());
            list.description(Some(meaning)).into()
        }
        Kind::Number(..) | Kind::Positive(_) | Kind::Count(..) | Kind::Duration(..) | Kind::Text => {
            text().description(Some(meaning)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::cache::{Config, CopyForward, Mode};
    use flashwise_core::filter::{Clients, Rule};

    use super::*;

    fn text(settings: &Settings, name: &str) -> String {
        settings.given(Setting::named(name)).map(ToString::to_string).unwrap_or_default()
    }

    /// The default of each setting that can change, as text in JSON, and as a number if it is one.
    #[test]
    fn all_settings_are_read_and_described() {
        let description = serde_json::to_value(Changes::schema()).unwrap();
        for setting in Setting::settable() {
            let Parameter { name, default, meaning, kind } = setting.parameter;
            let changes = parse(serde_json::json!({ name: default }).to_string().as_bytes()).unwrap();
            assert_eq!((text(&changes, name).as_str(), changes.names().collect::<Vec<_>>()), (default, vec![name]));
            assert_eq!(description["properties"][name]["description"], meaning, "{name}");
            let number = matches!(kind, Kind::Share(_) | Kind::Size(..) | Kind::Duration(..));
            assert_eq!(parse(serde_json::json!({ name: 0 }).to_string().as_bytes()).is_ok(), number, "{name}");
        }
        let described = description["properties"].as_object().unwrap().len();
        assert_eq!(described, Setting::settable().count(), "what cannot be changed is not described");
    }

    #[test]
    fn settings_in_json_are_applied() {
        let json = br#"{"policy": "larc:fill=ghost", "admission": "size:max=8KiB", "write-mode": "write-through",
            "copy-forward": "young:30%", "dirty-high": 0.5, "dirty-low": "25%", "dirty-age": "30s", "sequential-bypass": "1MiB",
            "cache-clients": "none", "allow-clients": ["uid:7", "address:10.0.0.0/8"], "deny-clients": "pid:1,program:dd"}"#;
        let changes = parse(json).unwrap();
        assert!(changes.names().eq(Setting::settable().map(Setting::name)));
        assert_eq!(
            (text(&changes, "policy").as_str(), text(&changes, "admission").as_str()),
            ("larc:fill=ghost", "size:max=8KiB")
        );
        let geometry = flashwise_core::format::Geometry { units: 32, unit_pages: 512 };
        let devices = flashwise_core::cache::settings::Devices {
            flash_bytes: 64 << 20,
            storage_bytes: 1 << 30,
            array: flashwise_device::paper(),
        };
        let Config { mode, copy_forward, dirty_high, dirty_low, dirty_age_us, sequential_blocks, .. } =
            changes.config(geometry, &devices);
        assert_eq!((mode, copy_forward), (Mode::WriteThrough, CopyForward::Young(0.3)));
        assert_eq!((dirty_high, dirty_low, dirty_age_us, sequential_blocks), (0.5, 0.25, 30_000_000, 256));
        let filter = changes.filter();
        assert_eq!(filter.clients, Clients::None);
        assert_eq!(filter.allow, Rule::parse_list("uid:7,address:10.0.0.0/8").unwrap());
        assert_eq!(filter.deny, Rule::parse_list("pid:1,program:dd").unwrap());
        let changes = parse(br#"{"allow-clients": [], "deny-clients": "none"}"#).unwrap();
        assert_eq!((changes.names().count(), changes.filter().rules().count()), (2, 0));
    }

    #[test]
    fn errors_are_reported_in_words() {
        let names = "policy, admission, write-mode, copy-forward, dirty-high, dirty-low, dirty-age, sequential-bypass, \
            cache-clients, \
                     allow-clients, deny-clients";
        let nothing = format!("nothing to change, expected some of: {names}");
        let unknown = format!("dirty_hihg: unknown setting (did you mean 'dirty-high'?); expected one of: {names}");
        let cannot = format!("ram: unknown setting; expected one of: {names}");
        let share =
            |found: &str| format!("dirty-high: found {found}, expected a share from 0% to 100%, such as 30% or 0.3");
        let (number, word) = (share("70"), share("'NaN'"));
        for (json, error) in [
            (
                "",
                "not JSON (EOF while parsing a value at line 1 column 0), expected an object such as \
                 {\"policy\": \"larc\"}",
            ),
            ("[1]", "found [1], expected an object such as {\"policy\": \"larc\"}"),
            ("{}", &nothing),
            (r#"{"dirty_hihg": 1}"#, &unknown),
            (r#"{"ram": "1GiB"}"#, &cannot),
            (r#"{"deny-clients": 5}"#, "deny-clients: found 5, expected rules such as [\"uid:1000\"], or \"none\""),
            (r#"{"deny-clients": ["uid:x"]}"#, "deny-clients: found 'uid:x', expected a number after uid:"),
            (r#"{"deny-clients": [5]}"#, "deny-clients: found [5], expected rules such as [\"uid:1000\"], or \"none\""),
            (r#"{"policy": 5}"#, "policy: found 5, expected text that is not empty"),
            (r#"{"admission": null}"#, "admission: found null, expected text that is not empty"),
            (r#"{"dirty-high": 70}"#, &number),
            (r#"{"dirty-high": "NaN"}"#, &word),
            (
                r#"{"sequential-bypass": -1}"#,
                "sequential-bypass: found '-1', expected a size in bytes such as 10GiB, 512MiB or 4096",
            ),
            (
                r#"{"sequential-bypass": true}"#,
                "sequential-bypass: found true, expected a size in bytes from 0B to 1TiB",
            ),
        ] {
            assert_eq!(parse(json.as_bytes()).unwrap_err(), error, "{json}");
        }
        let error = parse(br#"{"policy": "lurc"}"#).unwrap_err();
        assert!(error.starts_with("policy: unknown policy 'lurc' (did you mean 'larc'?)"), "{error}");
        let long = parse(format!("\"{}\"", "x".repeat(9999)).as_bytes()).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }
}
