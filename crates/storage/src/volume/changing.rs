//! Settings that are changed while a volume runs.

use flashwise_core::cache::LogCache;
use flashwise_core::cache::settings::{Devices, SettingError, Settings};
use flashwise_core::format::Layout;

use super::Volume;
use super::config::devices;
use crate::export::Export;

impl Volume {
    /// Changes settings of the cache while it runs.
    pub fn change(&self, settings: &Settings) -> Result<(), SettingError> {
        self.with_settings(settings, LogCache::change)
    }

    /// Refuses settings that [`change`](Self::change) would refuse.
    pub fn check_change(&self, settings: &Settings) -> Result<(), SettingError> {
        self.with_settings(settings, |cache, settings, devices| cache.check_change(settings, devices))
    }

    fn with_settings(
        &self,
        settings: &Settings,
        perform: impl FnOnce(&mut LogCache, &Settings, &Devices) -> Result<(), SettingError>,
    ) -> Result<(), SettingError> {
        let mut inner = self.lock();
        let of_buckets = self.config.layout == Layout::Wlfc;
        let Some(cache) = inner.engine.log_mut().filter(|_| !of_buckets) else {
            let key = settings.names().next().unwrap_or_default().to_owned();
            let problem = format!("a volume of layout {} has no settings that can be changed", Layout::Wlfc.name());
            return Err(SettingError { key, problem });
        };
        let devices = devices(&self.config, &cache.config().geometry, self.size());
        perform(cache, settings, &devices)
    }
}
