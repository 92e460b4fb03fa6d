//! What users may choose of a cache: one row for each setting.
//!
//! From the table come the keys of a volume in the server's configuration, the flags of `flashwise serve` and `flashwise simulate`, what
//! the management API takes while a volume is served, and their documentation. A new setting is a field of [`Config`] and a row here.

mod value;

use crate::admission::{self, Admission};
use crate::array::Array;
use crate::cache::config::{Config, CopyForward, Mode, Regions, admission};
use crate::filter::Filter;
use crate::format::{BLOCK_BYTES, Geometry, RECORDS_PER_PAGE};
use crate::options::{Kind, Parameter, nearest};
use crate::policy::Spec;
use crate::quantity::Share;

pub use value::{Given, Value};
use value::{clients, copy_forward, duration, mode, online_policy, rule, rules, share, size};

/// One setting of a cache.
#[derive(Debug)]
pub struct Setting {
    /// How users name it, what it takes, its default and what it is.
    pub parameter: Parameter,
    /// What help calls its values, such as `SHARE`.
    pub values: &'static str,
    /// What changes while the cache runs.
    pub live: Live,
    read: fn(&Given<'_>, Kind) -> Result<Value, String>,
    place: Place,
}

/// What follows where a setting is changed while the cache runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// It cannot be changed: a cache keeps what it was started with.
    Never,
    /// The cache does otherwise from then on.
    Simply,
    /// There is a new policy, or a new rule in front of it, which is shown what is on flash.
    Policy,
    /// The policy is told what of its queues is young.
    CopyForward,
    /// Sequential streams are looked for anew.
    Streams,
    /// Clients are told apart anew, by the [`Filter`].
    Clients,
}

/// Where a setting ends up.
#[derive(Debug)]
enum Place {
    /// In the configuration.
    Config(fn(&mut Config, Value)),
    /// In the configuration, as the devices are.
    Devices(fn(&mut Config, Value, &Devices)),
    /// In the geometry, once, when the cache is made.
    Geometry,
    /// In the I/O filter.
    Filter(fn(&mut Filter, Value)),
}

/// What a cache stands between.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// The size of the flash, as users have it: not all of it need be whole erase units.
    pub flash_bytes: u64,
    /// The size of the backend.
    pub storage_bytes: u64,
    /// What admission rules that adapt take both for, but for their sizes.
    pub array: Array,
}

/// Smallest and largest erase unit.
const ERASE_UNIT: Kind = Kind::PowerOfTwo(
    Geometry::UNIT_PAGES_MIN as u64 * BLOCK_BYTES as u64,
    Geometry::UNIT_PAGES_MAX as u64 * BLOCK_BYTES as u64,
);
/// Most RAM: frames have numbers of 32 bits, and each is a block.
const RAM: Kind = Kind::Size(0, 8 << 40);
const ANY_DURATION: Kind = Kind::Duration(0, i64::MAX as u64);

/// All settings, in the order in which they are documented.
pub static SETTINGS: [Setting; 16] = [
    Setting {
        parameter: Parameter {
            name: "erase-unit",
            kind: ERASE_UNIT,
            default: "2MiB",
            meaning: "Size of an erase unit: a power of two from 64KiB to 256MiB",
        },
        values: "SIZE",
        live: Live::Never,
        read: size,
        place: Place::Geometry,
    },
    Setting {
        parameter: Parameter {
            name: "ram",
            kind: RAM,
            default: "128MiB",
            meaning: "Memory for the read and the write buffer together",
        },
        values: "SIZE",
        live: Live::Never,
        read: size,
        place: Place::Devices(|config, value, devices| {
            let bytes = match value {
                Value::Share(share) => (devices.flash_bytes as f64 * share) as u64,
                value => value.bytes(),
            };
            config.read_buffer_blocks = blocks(bytes);
            config.write_buffer_blocks = 0;
        }),
    },
    Setting {
        parameter: Parameter {
            name: "write-buffer-share",
            kind: Kind::Share(1.0),
            default: "50%",
            meaning: "The share of that memory for the write buffer; the rest is the read buffer's",
        },
        values: "SHARE",
        live: Live::Never,
        read: share,
        place: Place::Config(|config, value| {
            let blocks = config.read_buffer_blocks + config.write_buffer_blocks;
            config.write_buffer_blocks = (f64::from(blocks) * value.share()) as u32;
            config.read_buffer_blocks = blocks - config.write_buffer_blocks;
        }),
    },
    Setting {
        parameter: Parameter {
            name: "policy",
            kind: Kind::Text,
            default: "larc",
            meaning: "Which blocks are kept on flash: a policy with its options, as `flashwise policies` lists them",
        },
        values: "POLICY",
        live: Live::Policy,
        read: online_policy,
        place: Place::Config(|config, value| config.policy = value.policy()),
    },
    Setting {
        parameter: Parameter {
            name: "admission",
            kind: Kind::Text,
            default: "none",
            meaning: "What is taken in at all: none, or an admission rule with its options, as `flashwise policies` lists them, \
                      such as size:max=64KiB or probability:p=0.3",
        },
        values: "RULE",
        live: Live::Policy,
        read: rule,
        place: Place::Devices(|config, value, devices| {
            config.admission = value.rule().map(|rule| devices.admission(rule, &config.geometry));
        }),
    },
    Setting {
        parameter: Parameter {
            name: "write-mode",
            kind: Kind::Choice(&["write-back", "write-through", "write-around"]),
            default: "write-back",
            meaning: "When written data reaches the backend: write-back, later; write-through, before the write is answered, and \
                      the flash as well; write-around, before the write is answered, and not the flash",
        },
        values: "MODE",
        live: Live::Simply,
        read: mode,
        place: Place::Config(|config, value| config.mode = value.mode()),
    },
    Setting {
        parameter: Parameter {
            name: "over-provision",
            kind: Kind::Share(0.9),
            default: "10%",
            meaning: "The share of the flash, up to 90%, that is kept free of wanted blocks",
        },
        values: "SHARE",
        live: Live::Never,
        read: share,
        place: Place::Config(|config, value| config.over_provision = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "copy-forward",
            kind: Kind::Text,
            default: "used",
            meaning: "What is kept of an erase unit that is reset, besides dirty blocks: used, what was asked for again since it \
                      came there; young:50%, what is in that part of the policy's queues that was used last; all that the policy \
                      wants; or none",
        },
        values: "WHICH",
        live: Live::CopyForward,
        read: copy_forward,
        place: Place::Config(|config, value| config.copy_forward = value.copy_forward()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-high",
            kind: Kind::Share(1.0),
            default: "50%",
            meaning: "The cleaner begins to write dirty blocks back when they fill more than this share of the flash",
        },
        values: "SHARE",
        live: Live::Simply,
        read: share,
        place: Place::Config(|config, value| config.dirty_high = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-low",
            kind: Kind::Share(1.0),
            default: "40%",
            meaning: "The cleaner stops at this share, which is at most dirty-high",
        },
        values: "SHARE",
        live: Live::Simply,
        read: share,
        place: Place::Config(|config, value| config.dirty_low = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-age",
            kind: ANY_DURATION,
            default: "15min",
            meaning: "Blocks that have been dirty for longer than this are written back",
        },
        values: "DURATION",
        live: Live::Simply,
        read: duration,
        place: Place::Config(|config, value| config.dirty_age_us = value.us()),
    },
    Setting {
        parameter: Parameter {
            name: "commit-age",
            kind: ANY_DURATION,
            default: "5s",
            meaning: "Written data stays in memory no longer than this, flushed by the client or not",
        },
        values: "DURATION",
        live: Live::Never,
        read: duration,
        place: Place::Config(|config, value| config.commit_age_us = value.us()),
    },
    Setting {
        parameter: Parameter {
            name: "sequential-bypass",
            kind: Kind::Size(0, 1 << 40),
            default: "4MiB",
            meaning: "Sequential streams longer than this bypass the flash; 0 for never",
        },
        values: "SIZE",
        live: Live::Streams,
        read: size,
        place: Place::Config(|config, value| config.sequential_blocks = blocks(value.bytes())),
    },
    Setting {
        parameter: Parameter {
            name: "cache-clients",
            kind: Kind::Choice(&["all", "none"]),
            default: "all",
            meaning: "Which clients are cached that no rule names: all or none",
        },
        values: "CLIENTS",
        live: Live::Clients,
        read: clients,
        place: Place::Filter(|filter, value| filter.clients = value.clients()),
    },
    Setting {
        parameter: Parameter {
            name: "allow-clients",
            kind: Kind::List,
            default: "none",
            meaning: "Clients that are cached, with commas between them: pid:N, tls:NAME, uid:N, gid:N, program:NAME, \
                      address:NETWORK or export:NAME; or none",
        },
        values: "RULES",
        live: Live::Clients,
        read: rules,
        place: Place::Filter(|filter, value| filter.allow = value.rules()),
    },
    Setting {
        parameter: Parameter {
            name: "deny-clients",
            kind: Kind::List,
            default: "none",
            meaning: "Clients that are not cached, named in the same way",
        },
        values: "RULES",
        live: Live::Clients,
        read: rules,
        place: Place::Filter(|filter, value| filter.deny = value.rules()),
    },
];

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX)
}

impl Devices {
    /// `rule` for a cache between them, on a flash of `geometry`.
    pub fn admission(&self, rule: admission::Spec, geometry: &Geometry) -> Admission {
        admission(rule, &self.array, geometry, self.storage_bytes)
    }
}

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SettingError {
    /// How the user named it.
    pub key: String,
    /// What was found and what was expected.
    pub problem: String,
}

impl Setting {
    /// The setting of this name. Panics if there is none.
    pub fn named(name: &str) -> &'static Setting {
        Setting::known(name).unwrap_or_else(|| panic!("'{name}' is a setting"))
    }

    fn known(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name() == name)
    }

    /// The setting that a user names to change it while a cache runs.
    pub fn find_settable(name: &str) -> Result<&'static Setting, SettingError> {
        Setting::known(name).filter(|setting| setting.is_settable()).ok_or_else(|| {
            let expected: Vec<_> = Setting::settable().map(Setting::name).collect();
            let near = nearest(name, &expected).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
            // Of a name that is no name at all, enough to find it again.
            let key = name.chars().take(80).collect();
            SettingError { key, problem: format!("unknown setting{near}; expected one of: {}", expected.join(", ")) }
        })
    }

    /// The settings that can be changed while a cache runs.
    pub fn settable() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|setting| setting.is_settable())
    }

    /// How users name it.
    pub fn name(&self) -> &'static str {
        self.parameter.name
    }

    /// Whether it can be changed while a cache runs.
    pub fn is_settable(&self) -> bool {
        self.live != Live::Never
    }

    /// Reads a value.
    pub fn read(&self, given: &Given<'_>) -> Result<Value, SettingError> {
        let refuse = |problem| SettingError { key: self.name().to_owned(), problem };
        (self.read)(given, self.parameter.kind).map_err(refuse)
    }

    /// The value where none is given.
    pub fn default(&self) -> Value {
        let read = self.read(&Given::Text(self.parameter.default));
        read.unwrap_or_else(|error| panic!("a default is valid: {error}"))
    }
}

/// Settings with the values that were given; the others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    given: Vec<(&'static str, Value)>,
}

impl Settings {
    /// The settings that `rows` name with their values as text.
    pub fn of(rows: &[(&str, &str)]) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        rows.iter().try_for_each(|(name, text)| settings.read(name, text))?;
        Ok(settings)
    }

    /// Gives the setting `name` a value as text.
    pub fn read(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let setting = Setting::named(name);
        self.set(setting, setting.read(&Given::Text(text))?);
        Ok(())
    }

    /// Gives a setting a value.
    pub fn set(&mut self, setting: &'static Setting, value: Value) {
        self.given.retain(|(name, _)| *name != setting.name());
        self.given.push((setting.name(), value));
    }

    /// What was given for a setting.
    pub fn given(&self, setting: &Setting) -> Option<&Value> {
        self.given.iter().find(|(name, _)| *name == setting.name()).map(|(_, value)| value)
    }

    /// The names of the settings that are given, in the order of the table.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        SETTINGS.iter().filter(|setting| self.given(setting).is_some()).map(Setting::name)
    }

    /// The value of the setting `name`, given or default.
    fn value(&self, name: &str) -> Value {
        let setting = Setting::named(name);
        self.given(setting).cloned().unwrap_or_else(|| setting.default())
    }

    /// Size of an erase unit.
    pub fn erase_unit_bytes(&self) -> u64 {
        self.value("erase-unit").bytes()
    }

    /// RAM for the read and the write buffer together, where it is a size.
    pub fn ram_bytes(&self) -> u64 {
        self.value("ram").bytes()
    }

    /// When written data reaches the backend.
    pub fn mode(&self) -> Mode {
        self.value("write-mode").mode()
    }

    /// The replacement policy.
    pub fn policy(&self) -> Spec {
        self.value("policy").policy()
    }

    /// The cleaner begins above the first share of dirty blocks, and stops at the second.
    pub fn dirty_limits(&self) -> (f64, f64) {
        (self.value("dirty-high").share(), self.value("dirty-low").share())
    }

    /// Whose requests are cached.
    pub fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        self.put_filter(&mut filter);
        filter
    }

    /// Changes what is given of `filter`.
    pub fn put_filter(&self, filter: &mut Filter) {
        for (name, value) in &self.given {
            if let Place::Filter(put) = Setting::named(name).place {
                put(filter, value.clone());
            }
        }
    }

    /// What must hold between settings, given and default.
    pub fn check(&self) -> Result<(), SettingError> {
        let (high, low) = self.dirty_limits();
        check_dirty_limits(high, low)
    }

    /// The cache that they make, on a flash of `geometry`.
    pub fn config(&self, geometry: Geometry, devices: &Devices) -> Config {
        let mut config = Config::new(geometry, self.policy());
        SETTINGS.iter().for_each(|setting| setting.put(&mut config, self.value(setting.name()), devices));
        config
    }

    /// Changes what is given and can be changed of a cache that runs.
    pub(super) fn put_live(&self, config: &mut Config, devices: &Devices) {
        for setting in Setting::settable() {
            if let Some(value) = self.given(setting) {
                setting.put(config, value.clone(), devices);
            }
        }
    }

    /// Whether a setting is given that changes this of a cache that runs.
    pub fn changes(&self, live: Live) -> bool {
        Setting::settable().any(|setting| setting.live == live && self.given(setting).is_some())
    }
}

impl Setting {
    fn put(&self, config: &mut Config, value: Value, devices: &Devices) {
        match self.place {
            Place::Config(put) => put(config, value),
            Place::Devices(put) => put(config, value, devices),
            Place::Geometry | Place::Filter(_) => {}
        }
    }
}

fn check_dirty_limits(high: f64, low: f64) -> Result<(), SettingError> {
    if low <= high {
        return Ok(());
    }
    let [high, low] = [high, low].map(|share| Share::new(share).unwrap_or_default());
    let problem = format!("found {low}, expected at most dirty-high, which is {high}");
    Err(SettingError { key: "dirty-low".to_owned(), problem })
}

impl Config {
    /// A cache with `policy` and nothing else: no admission rule, no RAM, and the defaults of all other settings.
    pub fn new(geometry: Geometry, policy: Spec) -> Config {
        let mut config = Config {
            geometry,
            segment_blocks: RECORDS_PER_PAGE as u32,
            policy: policy.clone(),
            admission: None,
            mode: Mode::WriteBack,
            read_buffer_blocks: 0,
            write_buffer_blocks: 0,
            over_provision: 0.0,
            copy_forward: CopyForward::default(),
            dirty_high: 0.0,
            dirty_low: 0.0,
            dirty_age_us: 0,
            commit_age_us: 0,
            sequential_blocks: 0,
            regions: Regions::default(),
        };
        for setting in &SETTINGS {
            if let Place::Config(put) = setting.place {
                put(&mut config, setting.default());
            }
        }
        config.policy = policy;
        config
    }

    /// What must hold between settings.
    pub fn check(&self) -> Result<(), SettingError> {
        check_dirty_limits(self.dirty_high, self.dirty_low)
    }
}

#[cfg(test)]
mod tests;
