//! A setting: its description, and how its values are parsed and applied.

use super::value::Value;
use crate::admission::{self, Admission};
use crate::cache::config::{Config, admission};
use crate::filter::Filter;
use crate::format::{Geometry, Layout};
use crate::options::{Given, Kind, Parameter};
use crate::tiers::Array;
use crate::wlfc::BucketOptions;

/// One setting of a cache.
#[derive(Debug)]
pub struct Setting {
    /// Its name, accepted values, default and meaning.
    pub parameter: Parameter,
    /// The placeholder of its values in help, such as `SHARE`.
    pub values: &'static str,
    /// The action when it changes at run time.
    pub live: Live,
    /// The layouts of a cache that have it.
    pub layouts: &'static [Layout],
    pub(super) read: fn(&Given, Kind) -> Result<Value, String>,
    pub(super) place: Destination,
}

/// The action when a setting changes at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// It cannot change at run time.
    Never,
    /// None: the cache uses the new value from then on.
    Simply,
    /// The policy or its admission rule is replaced, and warmed with the blocks on flash.
    Policy,
    /// The policy gets the new young share of its queues.
    CopyForward,
    /// Tracking of sequential streams restarts.
    Streams,
    /// Clients are classified again, by the [`Filter`].
    Clients,
}

/// The destination of a setting's value.
#[derive(Debug)]
pub(super) enum Destination {
    /// The configuration.
    Config(fn(&mut Config, Value)),
    /// The configuration, depending on the devices.
    Devices(fn(&mut Config, Value, &Devices)),
    /// The geometry, once, when the cache is created.
    Geometry,
    /// The I/O filter.
    Filter(fn(&mut Filter, Value)),
    /// The options of a cache of buckets.
    Buckets(fn(&mut BucketOptions, Value)),
}

/// The devices on both sides of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// The size of the flash, as given by the user; not necessarily whole erase units.
    pub flash_bytes: u64,
    /// The size of the backend.
    pub storage_bytes: u64,
    /// The device models that adaptive admission assumes for both, without their sizes.
    pub array: Array,
}

impl Devices {
    /// Returns `rule` for a cache between these devices, on a flash of `geometry`.
    pub fn admission(&self, rule: admission::Spec, geometry: &Geometry) -> Admission {
        admission(rule, &self.array, geometry, self.storage_bytes)
    }
}

/// An error in a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SettingError {
    /// The name of the setting, as the user wrote it.
    pub key: String,
    /// The value found and the value expected.
    pub problem: String,
}

impl Setting {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.parameter.name
    }

    /// True if caches of this layout have it.
    pub fn is_of(&self, layout: Layout) -> bool {
        self.layouts.contains(&layout)
    }

    /// True if it can change at run time.
    pub fn is_settable(&self) -> bool {
        self.live != Live::Never
    }

    /// Parses a value.
    pub fn read(&self, given: &Given) -> Result<Value, SettingError> {
        let refuse = |problem| SettingError { key: self.name().to_owned(), problem };
        (self.read)(given, self.parameter.kind).map_err(refuse)
    }

    /// Returns the default.
    pub fn default(&self) -> Value {
        let read = self.read(&Given::from(self.parameter.default));
        read.unwrap_or_else(|error| panic!("a default is valid: {error}"))
    }

    /// Applies a value to `config`.
    pub(super) fn put(&self, config: &mut Config, value: Value, devices: &Devices) {
        match self.place {
            Destination::Config(put) => put(config, value),
            Destination::Devices(put) => put(config, value, devices),
            Destination::Geometry | Destination::Filter(_) | Destination::Buckets(_) => {}
        }
    }
}
