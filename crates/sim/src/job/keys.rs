//! The words of a job, one row each. Settings of the whole cache and of caches of buckets are words too, from their own
//! table.

use std::fmt::Display;
use std::str::FromStr;

use flashwise_core::cache::settings::{SETTINGS, Setting, Settings, Value};
use flashwise_core::filter::Rule;
use flashwise_core::format::Layout as OnFlash;
use flashwise_core::options::{Given, Kind, Parameter, did_you_mean};
use flashwise_core::quantity::Share;
use flashwise_device::flash::{GcPlacement, Profile, Victim};
use flashwise_device::{TierModel, tier_model_of_option};

use super::words::LayoutName::{Containers, InPlace, Log};
use super::words::{LayoutName, Written, percent, sample_share, share, whole};
use super::{Job, JobError};
use crate::cache_settings::{self, RAM_FOR_WEAR, RAM_OF_WLFC_C, Ram};
use crate::simulate::Warmup;
use crate::wlfc::System;

/// A word of a job.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// A word with a field of [`Job`].
    Field(&'static Field),
    /// A setting of the whole cache or of caches of buckets.
    Setting(&'static Setting),
}

/// Placeholder of the value, and meaning, of a flag.
type About = (&'static str, fn() -> String);

/// A word with a field.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    of: Scope,
    /// `None` for words whose flags may be lists.
    about: Option<About>,
    read: fn(&mut Job, &str) -> Result<(), String>,
    shown: fn(&Job) -> Option<String>,
    clear: fn(&mut Job),
}

/// The stage of a run that a word sets, and the layouts that have the word.
#[derive(Clone, Copy, Debug)]
struct Scope {
    stage: Stage,
    layouts: &'static [LayoutName],
    /// The layout that the word implies if none is stated.
    implies: Option<LayoutName>,
}

/// A stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Trace, policy, size and counting.
    Run,
    /// The sample of the trace.
    Sample,
    /// The devices around the cache.
    Array,
    /// The layout and its flash.
    Layout,
}

const WLFC: LayoutName = LayoutName::Buckets(System::Wlfc);
const WLFC_C: LayoutName = LayoutName::Buckets(System::WlfcC);
const B_LIKE: LayoutName = LayoutName::Buckets(System::BLike);

const fn of(stage: Stage, layouts: &'static [LayoutName], implies: Option<LayoutName>) -> Scope {
    Scope { stage, layouts, implies }
}

const RUN: Scope = of(Stage::Run, &[LayoutName::None, InPlace, Containers, Log, WLFC, WLFC_C, B_LIKE], None);
const SAMPLE: Scope = Scope { stage: Stage::Sample, ..RUN };
const ARRAY: Scope = of(Stage::Array, &[LayoutName::None, InPlace, Containers, Log, WLFC, WLFC_C], None);
const STORAGE: Scope = Scope { stage: Stage::Array, ..RUN };
const RAM: Scope = of(Stage::Layout, &[LayoutName::None, InPlace, Containers, Log, WLFC_C], None);
const ERASE_UNITS: Scope = of(Stage::Layout, &[InPlace, Containers, Log], None);
const SPARE: Scope = of(Stage::Layout, &[InPlace, Containers, Log, B_LIKE], Some(InPlace));
const SSD: Scope = of(Stage::Layout, &[InPlace, Containers, Log], Some(InPlace));
const DEVICE: Scope = of(Stage::Layout, &[InPlace, Containers, Log, WLFC, WLFC_C, B_LIKE], Some(InPlace));
const WEAR: Scope = of(Stage::Layout, &[InPlace, Containers], Some(InPlace));
const WHOLE: Scope = of(Stage::Layout, &[Log], Some(Log));
const BUCKETS: Scope = of(Stage::Layout, &[WLFC, WLFC_C, B_LIKE], None);
const QUEUES: Scope = of(Stage::Layout, &[WLFC, WLFC_C], None);
const JOURNAL: Scope = of(Stage::Layout, &[B_LIKE], None);

macro_rules! about {
    () => {
        None
    };
    ($values:literal, $meaning:expr) => {
        Some(($values, || $meaning.to_string()))
    };
}

/// Declares the rows: a word's name, its field, the layouts that have it, its parser and format, and the help of its
/// flag.
macro_rules! fields {
    ($($name:literal, $field:ident, $of:expr, $read:expr, $show:expr $(, $values:literal, $meaning:expr)?;)*) => {
        &[$(Field {
            name: $name,
            of: $of,
            about: about!($($values, $meaning)?),
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
    "policy", policy, RUN, parsed, ToString::to_string;
    "size", size, RUN, parsed, ToString::to_string;
    "warmup", warmup, RUN, parsed, show_warmup;
    "epoch", epoch, RUN, |text| whole(text, 1, u64::MAX), ToString::to_string;
    "sample", sample, RUN, sample_share, show_share;
    "sample-by", sample_by, SAMPLE, parsed, ToString::to_string;
    "sample-seed", sample_seed, SAMPLE, |text| whole(text, 0, u64::MAX), ToString::to_string;
    "layout", layout, RUN, parsed, ToString::to_string;
    "ram", ram, RAM, parsed, show_ram, "SIZE", with_defaults("ram", ". A size, or a share of the flash such as 5%",
        &[("", &Value::from(cache_settings::RAM)), ("in-place and containers: ", &Value::from(RAM_FOR_WEAR)),
          ("wlfc_c: ", &Value::from(RAM_OF_WLFC_C)), ("flashwise serve: ", &Setting::named("ram").default())]);
    "erase-unit", erase_unit, ERASE_UNITS, parsed, ToString::to_string, "SIZE", with_defaults("erase-unit",
        "; in-place and containers: any multiple of the trace's block size",
        &[("", &Setting::named("erase-unit").default()), ("with --device: ", &"its erase block")]);
    "spare", spare, SPARE, parsed, show_share;
    "gc-victim", gc_victim, SSD, Victim::parse, ToString::to_string, "VICTIM",
        "Choice of the erase unit that a conventional SSD collects: greedy, fifo, cost-benefit or d-choices:d=10 \
         [default: greedy]";
    "gc-placement", gc_placement, SSD, GcPlacement::parse, ToString::to_string, "PLACE",
        "Unit for pages that a conventional SSD copies: own (a unit for copies only) or mixed (with host writes) \
         [default: own]";
    "gc-reserve", gc_reserve, SSD, |text| whole(text, 0, u32::MAX.into()), ToString::to_string, "N",
        "Erase units that a conventional SSD keeps free [default: 1]";
    "wear-levelling", wear_levelling, SSD, |text| whole(text, 1, u32::MAX.into()), ToString::to_string, "ERASURES",
        "Level a conventional SSD's wear when erase counts differ by this many [default: off]";
    "trim", trim, SSD, parsed, ToString::to_string, "ON|OFF",
        "Trim evicted blocks, or reset units of the log, on a conventional SSD [default: off]";
    "device", device, DEVICE, read_device, ToString::to_string, "DEVICE",
        "Device that gives erase unit, spare flash and cycles: a name from `flashwise lifetime --devices` or a \
         TOML file\n\n\
         It must have flash, such as samsung-slc. With --layout log it is a conventional SSD below the log.";
    "drive-writes-per-day", drive_writes_per_day, SSD, |text| Given::from(text).number(Kind::POSITIVE),
        ToString::to_string, "N", "Rated drive writes per day, for comparison";
    "write-buffers", write_buffers, WEAR, |text| whole(text, 1, 1024), ToString::to_string, "N",
        "Erase units of --ram in which c collects writes [default: 4, or as many as fit]";
    "wfue-alpha", wfue_alpha, WEAR, parsed, show_share, "SHARE",
        "Weight of hits in weighted flash usage effectiveness (wfue); erasures have the rest [default: 50%]";
    "admission", admission, RUN, parsed, ToString::to_string;
    "cache-device", cache_device, ARRAY, |text| read_tier("cache-device", text), ToString::to_string, "DEVICE",
        "Cache device: a name from `flashwise lifetime --devices` or a TOML file, with changes: \
         slc:write-amplification=1.5 [default: slc]";
    "storage-device", storage_device, STORAGE, |text| read_tier("storage-device", text), ToString::to_string, "DEVICE",
        "Storage device, given like --cache-device [default: mlc]";
    "storage-size", storage_size, ARRAY, parsed, ToString::to_string, "SIZE",
        "Size of the storage; for a server's recording, of its volume [default: twice the trace's blocks]";
    "arrivals", arrivals, ARRAY, parsed, ToString::to_string, "ARRIVALS",
        "Arrivals, for waiting times: none, trace (at the trace's times), trace:speed=2 or closed:depth=16 (16 in \
         flight) [default: none]";
    "bucket", bucket, BUCKETS, parsed, ToString::to_string, "SIZE",
        "Bucket size: a multiple of --device's erase block, or a part of it [default: an erase block; wlfc: 4MiB].\n\n\
         If it is smaller than the erase block, it replaces the erase block.";
    "journal-logs", journal_logs, JOURNAL, |text| whole(text, 1, 65_536), ToString::to_string, "N",
        "Logs of b-like per page of its journal [default: 1]";
};

/// Notes that a simulation adds to the meaning of a setting.
const NOTES: [(&str, &str); 5] = [
    ("dirty-low", "; a lower --dirty-high lowers the default"),
    ("dirty-age", ", in the trace's time"),
    ("cache-clients", "; for traces with processes: fiu, blkparse, ftrace, biosnoop and etw"),
    ("allow-clients", "; a trace has pid and program only"),
    ("large-write", "; b-like has it too"),
];

/// Settings of the whole cache that have a field, because they mean more in a simulation.
const WITH_FIELDS: [&str; 4] = ["erase-unit", "ram", "policy", "admission"];

/// Settings of caches of buckets that b-like has too.
const WITH_B_LIKE: [&str; 1] = ["large-write"];

impl Key {
    /// Returns all words in writing order.
    pub fn all() -> impl DoubleEndedIterator<Item = Key> {
        FIELDS.iter().map(Key::Field).chain(Key::settings().map(Key::Setting))
    }

    /// Returns the settings without a field.
    fn settings() -> impl DoubleEndedIterator<Item = &'static Setting> {
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

    fn of(self) -> Scope {
        match self {
            Key::Field(field) => field.of,
            Key::Setting(setting) if setting.is_of(OnFlash::Log) => WHOLE,
            Key::Setting(setting) if WITH_B_LIKE.contains(&setting.name()) => BUCKETS,
            Key::Setting(_) => QUEUES,
        }
    }

    /// The stage of a run that it sets.
    pub fn stage(self) -> Stage {
        self.of().stage
    }

    /// The layouts that have it.
    pub fn layouts(self) -> &'static [LayoutName] {
        self.of().layouts
    }

    /// The layout that it implies if none is stated.
    pub fn implies(self) -> Option<LayoutName> {
        self.of().implies
    }

    /// The value and the meaning of its flag, with the default; a second paragraph is for the long help. `None` for
    /// words whose flags may be lists.
    pub fn about(self) -> Option<(&'static str, String)> {
        match self {
            Key::Field(Field { about, .. }) => about.map(|(values, meaning)| (values, meaning())),
            Key::Setting(Setting { values, parameter: Parameter { name, meaning, default, .. }, .. }) => {
                let note = NOTES.iter().find(|(noted, _)| noted == name).map_or("", |(_, note)| note);
                Some((values, format!("{meaning}{note} [default: {default}]")))
            }
        }
    }

    /// Sets the word of `job` to `text`.
    ///
    /// # Errors
    /// The value found, and the one expected.
    pub fn set(self, job: &mut Job, text: &str) -> Result<(), String> {
        match self {
            Key::Field(field) => (field.read)(job, text),
            Key::Setting(setting) => read_setting(setting, text).map(|value| job.settings.set(setting, value)),
        }
    }

    /// Sets the word of `job` to `text`.
    pub fn read(self, job: &mut Job, text: &str) -> Result<(), JobError> {
        self.set(job, text).map_err(|problem| JobError::Value { key: self.name(), problem })
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

/// Parses a setting. Rules about clients may name processes only, because a trace has no other clients.
fn read_setting(setting: &'static Setting, text: &str) -> Result<Value, String> {
    let value = setting.read(&Given::from(text)).map_err(|error| error.problem)?;
    if let Value::Rules(rules) = &value
        && let Some(rule) = rules.iter().find(|rule| !matches!(rule, Rule::Pid(_) | Rule::Program(_)))
    {
        return Err(format!("found '{rule}', expected pid:N or program:NAME: traces know no more of who asked"));
    }
    Ok(value)
}

/// Returns the meaning of a setting with a field, with a note and the defaults of layouts.
fn with_defaults(name: &str, note: &str, defaults: &[(&str, &dyn Display)]) -> String {
    let defaults: Vec<String> = defaults.iter().map(|(layouts, value)| format!("{layouts}{value}")).collect();
    format!("{}{note} [default: {}]", Setting::named(name).parameter.meaning, defaults.join("; "))
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
