//! The settings that users can choose for a cache: one row each.
//!
//! The table defines the keys of a volume in the server's configuration, and the flags of `flashwise serve` and
//! `flashwise simulate`. It also defines the settings of the management API, and their documentation. A new setting is
//! a field of [`Config`] and a row here.

mod setting;
mod table;
mod value;

pub use setting::{Devices, Live, Setting, SettingError};
pub use table::SETTINGS;
pub use value::Value;

use setting::Destination;

use crate::cache::config::{Config, CopyForward, Mode, Regions, WriteBackOrder};
use crate::filter::Filter;
use crate::format::{Geometry, RECORDS_PER_PAGE};
use crate::options::Given;
use crate::policy::Spec;
use crate::quantity::Share;
use crate::wlfc::BucketOptions;

/// Given settings with their values; the others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    given: Vec<(&'static str, Value)>,
}

impl Settings {
    /// Parses the settings in `rows`, names with values as text.
    pub fn of(rows: &[(&str, &str)]) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        rows.iter().try_for_each(|(name, text)| settings.read(name, text))?;
        Ok(settings)
    }

    /// Parses a value of the setting `name`.
    pub fn read(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let setting = Setting::named(name);
        self.set(setting, setting.read(&Given::from(text))?);
        Ok(())
    }

    /// Sets the value of a setting.
    pub fn set(&mut self, setting: &'static Setting, value: Value) {
        self.given.retain(|(name, _)| *name != setting.name());
        self.given.push((setting.name(), value));
    }

    /// Overrides with all settings given in `changes`.
    pub fn take_over(&mut self, changes: &Settings) {
        changes.given.iter().for_each(|(name, value)| self.set(Setting::named(name), value.clone()));
    }

    /// Returns the given value of a setting.
    pub fn given(&self, setting: &Setting) -> Option<&Value> {
        self.given.iter().find(|(name, _)| *name == setting.name()).map(|(_, value)| value)
    }

    /// Returns the names of the given settings, in the order of the table.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        SETTINGS.iter().filter(|setting| self.given(setting).is_some()).map(Setting::name)
    }

    /// Returns the value of the setting `name`, given or default. A lower `dirty-high` lowers the default of
    /// `dirty-low`. The name is one of the table.
    pub fn value(&self, name: &str) -> Value {
        let setting = Setting::named(name);
        self.given(setting).cloned().unwrap_or_else(|| match setting.default() {
            Value::Share(low) if name == "dirty-low" => Value::Share(low.min(self.value("dirty-high").share())),
            default => default,
        })
    }

    /// Returns the size of an erase unit.
    pub fn erase_unit_bytes(&self) -> u64 {
        self.value("erase-unit").bytes()
    }

    /// Returns the RAM of the read and the write buffer together, if it is given as a size.
    pub fn ram_bytes(&self) -> u64 {
        self.value("ram").bytes()
    }

    /// Returns the write mode.
    pub fn mode(&self) -> Mode {
        self.value("write-mode").mode()
    }

    /// Returns the order in which dirty data is written back.
    pub fn order(&self) -> WriteBackOrder {
        self.value("write-back-order").order()
    }

    /// Returns the replacement policy.
    pub fn policy(&self) -> Spec {
        self.value("policy").policy()
    }

    /// Returns the shares of dirty blocks at which the cleaner starts and stops.
    pub fn dirty_limits(&self) -> (f64, f64) {
        (self.value("dirty-high").share(), self.value("dirty-low").share())
    }

    /// Returns the I/O filter.
    pub fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        self.put_filter(&mut filter);
        filter
    }

    /// Returns the options of a cache of buckets, which has RAM only if that is given.
    pub fn buckets(&self) -> BucketOptions {
        let ram_bytes = self.given(Setting::named("ram")).map_or(0, |_| self.ram_bytes());
        let mut options = BucketOptions { ram_bytes, ..BucketOptions::default() };
        for setting in SETTINGS {
            if let Destination::Buckets(put) = setting.place {
                put(&mut options, self.value(setting.name()));
            }
        }
        options
    }

    /// Applies the given settings to `filter`.
    pub fn put_filter(&self, filter: &mut Filter) {
        for (name, value) in &self.given {
            if let Destination::Filter(put) = Setting::named(name).place {
                put(filter, value.clone());
            }
        }
    }

    /// Checks the consistency of all settings, given and default.
    pub fn check(&self) -> Result<(), SettingError> {
        let (high, low) = self.dirty_limits();
        check_dirty_limits(high, low)
    }

    /// Returns the configuration of a cache on a flash of `geometry`.
    pub fn config(&self, geometry: Geometry, devices: &Devices) -> Config {
        let mut config = Config::new(geometry, self.policy());
        SETTINGS.iter().for_each(|setting| setting.put(&mut config, self.value(setting.name()), devices));
        config
    }

    /// Applies the given settings that can change at run time.
    pub(super) fn put_live(&self, config: &mut Config, devices: &Devices) {
        for setting in Setting::settable() {
            if let Some(value) = self.given(setting) {
                setting.put(config, value.clone(), devices);
            }
        }
    }

    /// True if a given setting requires this action in a running cache.
    pub fn changes(&self, live: Live) -> bool {
        Setting::settable().any(|setting| setting.live == live && self.given(setting).is_some())
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
    /// Returns a configuration with `policy`, without admission rule and RAM, and with defaults for everything else.
    pub fn new(geometry: Geometry, policy: Spec) -> Config {
        let mut config = Config {
            geometry,
            segment_blocks: RECORDS_PER_PAGE as u32,
            policy: policy.clone(),
            admission: None,
            mode: Mode::WriteBack,
            order: WriteBackOrder::None,
            journal: None,
            unix_us: 0,
            read_buffer_blocks: 0,
            write_buffer_blocks: 0,
            write_buffer_half_life: 0,
            over_provision: 0.0,
            copy_forward: CopyForward::default(),
            dirty_high: 0.0,
            dirty_low: 0.0,
            dirty_age_us: 0,
            commit_age_us: 0,
            sequential_blocks: 0,
            regions: Regions::default(),
        };
        for setting in SETTINGS {
            if let Destination::Config(put) = setting.place {
                put(&mut config, setting.default());
            }
        }
        config.policy = policy;
        config
    }

    /// Checks the consistency of the settings.
    pub fn check(&self) -> Result<(), SettingError> {
        check_dirty_limits(self.dirty_high, self.dirty_low)
    }
}

#[cfg(test)]
mod tests;
