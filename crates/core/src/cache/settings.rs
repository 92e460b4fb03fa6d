//! What users may choose of a cache: one row for each setting.
//!
//! From the table come the keys of a volume in the server's configuration, the flags of `flashwise serve` and `flashwise simulate`, what
//! the management API takes while a volume is served, and their documentation. A new setting is a field of [`Config`] and a row here.

mod setting;
mod table;
mod value;

pub use setting::{Devices, Live, Setting, SettingError};
pub use table::SETTINGS;
pub use value::{Given, Value, multiple_of_block};

use setting::Place;

use crate::cache::config::{Config, CopyForward, Mode, Regions};
use crate::filter::Filter;
use crate::format::{Geometry, RECORDS_PER_PAGE};
use crate::policy::Spec;
use crate::quantity::Share;

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

    /// Gives all that is given in `changes`.
    pub fn take_over(&mut self, changes: &Settings) {
        changes.given.iter().for_each(|(name, value)| self.set(Setting::named(name), value.clone()));
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
