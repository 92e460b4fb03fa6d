//! One setting: what is known of it, and how its values are read and put where they belong.

use super::value::{Given, Value};
use crate::admission::{self, Admission};
use crate::cache::config::{Config, admission};
use crate::filter::Filter;
use crate::format::Geometry;
use crate::options::{Kind, Parameter};
use crate::tiers::Array;

/// One setting of a cache.
#[derive(Debug)]
pub struct Setting {
    /// How users name it, what it takes, its default and what it is.
    pub parameter: Parameter,
    /// What help calls its values, such as `SHARE`.
    pub values: &'static str,
    /// What changes while the cache runs.
    pub live: Live,
    pub(super) read: fn(&Given<'_>, Kind) -> Result<Value, String>,
    pub(super) place: Place,
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
pub(super) enum Place {
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

    /// Puts a value where it belongs in `config`.
    pub(super) fn put(&self, config: &mut Config, value: Value, devices: &Devices) {
        match self.place {
            Place::Config(put) => put(config, value),
            Place::Devices(put) => put(config, value, devices),
            Place::Geometry | Place::Filter(_) => {}
        }
    }
}
