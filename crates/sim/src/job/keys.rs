//! The words of a job, one row each. Settings of the whole cache are words too, from their own table.

use std::fmt::Display;
use std::str::FromStr;

use flashwise_core::cache::settings::{Given, SETTINGS, Setting, Settings, Value};
use flashwise_core::filter::Rule;
use flashwise_core::options::did_you_mean;
use flashwise_core::quantity::Share;
use flashwise_device::flash::{GcPlacement, Profile, Victim};
use flashwise_device::{TierModel, tier_model_of_option};

use super::words::{Written, percent, positive, sample_share, share, whole};
use super::{Job, JobError};
use crate::cache_settings::Ram;
use crate::simulate::Warmup;

/// A word of a job.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// A word with a field of [`Job`].
    Field(&'static Field),
    /// A setting of the whole cache.
    Setting(&'static Setting),
}

/// A word with a field.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    read: fn(&mut Job, &str) -> Result<(), String>,
    shown: fn(&Job) -> Option<String>,
    clear: fn(&mut Job),
}

/// Declares the rows: a word's name, its field, parser and format.
macro_rules! fields {
    ($($name:literal, $field:ident, $read:expr, $show:expr;)*) => {
        &[$(Field {
            name: $name,
            read: |job, text| {
                job.$field = Some(($read)(text).map_err(|error| error.to_string())?);
                Ok(())
            },
            shown: |job| job.$field.as_ref().map($show),
            clear: |job| job.$field = None,
        }),*]
    };
}

/// The words with fields, in writing order.
static FIELDS: &[Field] = fields! {
    "policy", policy, parsed, ToString::to_string;
    "size", size, parsed, ToString::to_string;
    "warmup", warmup, parsed, show_warmup;
    "epoch", epoch, |text| whole(text, 1, u64::MAX), ToString::to_string;
    "sample", sample, sample_share, show_share;
    "sample-by", sample_by, parsed, ToString::to_string;
    "sample-seed", sample_seed, |text| whole(text, 0, u64::MAX), ToString::to_string;
    "layout", layout, parsed, ToString::to_string;
    "ram", ram, parsed, show_ram;
    "erase-unit", erase_unit, parsed, ToString::to_string;
    "over-provision", over_provision, parsed, show_share;
    "gc-victim", gc_victim, Victim::parse, ToString::to_string;
    "gc-placement", gc_placement, GcPlacement::parse, ToString::to_string;
    "gc-reserve", gc_reserve, |text| whole(text, 0, u32::MAX.into()), ToString::to_string;
    "wear-levelling", wear_levelling, |text| whole(text, 1, u32::MAX.into()), ToString::to_string;
    "trim", trim, parsed, ToString::to_string;
    "device", device, read_device, ToString::to_string;
    "drive-writes-per-day", drive_writes_per_day, positive, ToString::to_string;
    "write-buffers", write_buffers, |text| whole(text, 1, 1024), ToString::to_string;
    "wfue-alpha", wfue_alpha, parsed, show_share;
    "admission", admission, parsed, ToString::to_string;
    "cache-device", cache_device, |text| read_tier("cache-device", text), ToString::to_string;
    "storage-device", storage_device, |text| read_tier("storage-device", text), ToString::to_string;
    "storage-size", storage_size, parsed, ToString::to_string;
    "arrivals", arrivals, parsed, ToString::to_string;
    "bucket", bucket, parsed, ToString::to_string;
    "write-queue", write_queue, parsed, show_share;
    "halving", halving, |text| whole(text, 1, u32::MAX.into()), ToString::to_string;
    "large-write", large_write, parsed, ToString::to_string;
    "refresh", refresh, parsed, |refresh| refresh.name().to_owned();
    "journal-logs", journal_logs, |text| whole(text, 1, 65_536), ToString::to_string;
};

/// Settings of the whole cache that have a field, because they mean more in a simulation.
const WITH_FIELDS: [&str; 5] = ["erase-unit", "ram", "over-provision", "policy", "admission"];

impl Key {
    /// Returns all words in writing order.
    pub fn all() -> impl DoubleEndedIterator<Item = Key> {
        FIELDS.iter().map(Key::Field).chain(Key::settings().map(Key::Setting))
    }

    /// Returns the settings of the whole cache without a field.
    pub fn settings() -> impl DoubleEndedIterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|setting| !WITH_FIELDS.contains(&setting.name()))
    }

    /// Finds the word of this name.
    pub fn find(name: &str) -> Result<Key, JobError> {
        Key::all().find(|key| key.name() == name).ok_or_else(|| {
            let names: Vec<&'static str> = Key::all().map(Key::name).collect();
            let near = did_you_mean(name, &names);
            // Quote enough of an unknown word to find it again.
            JobError::Unknown { key: name.chars().take(80).collect(), near, expected: names.join(", ") }
        })
    }

    /// Its name: that of the option of `flashwise simulate`.
    pub fn name(self) -> &'static str {
        match self {
            Key::Field(field) => field.name,
            Key::Setting(setting) => setting.name(),
        }
    }

    /// Sets the word of `job` to `text`.
    pub fn read(self, job: &mut Job, text: &str) -> Result<(), JobError> {
        let read = match self {
            Key::Field(field) => (field.read)(job, text),
            Key::Setting(setting) => read_setting(setting, text).map(|value| job.settings.set(setting, value)),
        };
        read.map_err(|problem| JobError::Value { key: self.name(), problem })
    }

    /// Returns the word's value in `job`, in a form that can be parsed again.
    pub fn shown(self, job: &Job) -> Option<String> {
        match self {
            Key::Field(field) => (field.shown)(job),
            Key::Setting(setting) => job.settings.given(setting).map(|value| match value {
                Value::Share(of_one) => share(*of_one),
                value => value.to_string(),
            }),
        }
    }

    /// Removes the word from `job`.
    pub fn clear(self, job: &mut Job) {
        match self {
            Key::Field(field) => (field.clear)(job),
            Key::Setting(setting) => {
                let mut others = Settings::default();
                let kept = SETTINGS.iter().filter(|other| other.name() != setting.name());
                for (other, value) in kept.filter_map(|other| Some((other, job.settings.given(other)?))) {
                    others.set(other, value.clone());
                }
                job.settings = others;
            }
        }
    }
}

/// Parses a setting of the whole cache. Rules about clients may name processes only, because a trace has no other clients.
pub fn read_setting(setting: &'static Setting, text: &str) -> Result<Value, String> {
    let value = setting.read(&Given::Text(text)).map_err(|error| error.problem)?;
    if let Value::Rules(rules) = &value
        && let Some(rule) = rules.iter().find(|rule| !matches!(rule, Rule::Pid(_) | Rule::Program(_)))
    {
        return Err(format!("found '{rule}', expected pid:N or program:NAME: traces know no more of who asked"));
    }
    Ok(value)
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn read_device(text: &str) -> Result<Written<Profile>, String> {
    Written::read(text, |text| Profile::find(text, "device")).map_err(|error| error.to_string())
}

fn read_tier(option: &str, text: &str) -> Result<Written<TierModel>, String> {
    Written::read(text, |text| tier_model_of_option(option, text)).map_err(|error| error.to_string())
}

fn show_share(of: &Share) -> String {
    share(of.of_one())
}

fn show_ram(ram: &Ram) -> String {
    match ram {
        Ram::Share(of_one) => percent(*of_one),
        Ram::Bytes(_) => Value::from(*ram).to_string(),
    }
}

fn show_warmup(warmup: &Warmup) -> String {
    match warmup {
        Warmup::Accesses(accesses) => accesses.to_string(),
        Warmup::Share(of_one) => percent(*of_one),
    }
}
