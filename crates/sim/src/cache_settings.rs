//! Configuration of a simulated cache: the server's settings, with the defaults of simulations.

use flashwise_core::cache::settings::{Devices, Setting, SettingError, Settings, Value};
use flashwise_core::cache::{Config, WriteBackOrder};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::journal::Journal;
use flashwise_core::policy::Spec;
use flashwise_core::quantity::{ByteSize, Share};

/// RAM in front of the flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ram {
    /// This many bytes.
    Bytes(u64),
    /// A share of the flash, 0 to 1.
    Share(f64),
}

impl std::str::FromStr for Ram {
    type Err = String;

    /// Parses a size such as `128MiB`, or a share of the flash such as `5%`.
    fn from_str(text: &str) -> Result<Ram, String> {
        let read = match text.ends_with('%') {
            true => text.parse().map(|share: Share| Ram::Share(share.of_one())),
            false => text.parse().map(|size: ByteSize| Ram::Bytes(size.bytes())),
        };
        read.map_err(|error| error.to_string())
    }
}

impl From<Ram> for Value {
    fn from(ram: Ram) -> Value {
        match ram {
            Ram::Bytes(bytes) => Value::Bytes(bytes),
            Ram::Share(share) => Value::Share(share),
        }
    }
}

/// RAM by default. Hits in RAM would hide those of the flash, so a simulation has none unless a paper has.
pub const RAM: Ram = Ram::Bytes(0);
/// RAM by default of the layouts in place and in containers: Cheng et al., USENIX ATC 2016, section 5.
pub const RAM_FOR_WEAR: Ram = Ram::Share(0.05);
/// RAM by default of WLFC_c: section V of its paper.
pub const RAM_OF_WLFC_C: Ram = Ram::Bytes(64 << 20);
/// Spare flash by default, as a share of the cache: Cheng et al., USENIX ATC 2016, section 5.
pub const SPARE: f64 = 0.07;

impl Ram {
    /// Returns the bytes before flash of this many bytes.
    pub fn bytes(self, flash_bytes: u64) -> u64 {
        match self {
            Ram::Bytes(bytes) => bytes,
            Ram::Share(share) => (flash_bytes as f64 * share) as u64,
        }
    }
}

/// The reason why a cache cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CacheError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(
        "size '{size}' is {found} of flash, expected {least} to {most}: {} erase units of {unit} or more",
        Geometry::UNITS_MIN
    )]
    FlashSize { size: String, found: ByteSize, least: ByteSize, most: ByteSize, unit: ByteSize },
    #[error("policy '{policy}' knows the future, expected an online policy: the whole cache cannot look ahead")]
    Offline { policy: String },
}

/// Returns the settings of a simulated cache, with [`RAM`] by default.
pub fn simulated(given: &Settings) -> Settings {
    let (mut settings, ram) = (given.clone(), Setting::named("ram"));
    if given.given(ram).is_none() {
        settings.set(ram, RAM.into());
    }
    settings
}

/// Returns a cache with `policy` and `devices`; `size` is the user's text for the flash's size. The rest after the last
/// erase unit is unused.
pub fn config(settings: &Settings, policy: Spec, size: &str, devices: &Devices) -> Result<Config, CacheError> {
    settings.check()?;
    if policy.info().offline {
        return Err(CacheError::Offline { policy: policy.to_string() });
    }
    let geometry = geometry(settings.erase_unit_bytes(), size, devices.flash_bytes)?;
    let journal = (settings.order() == WriteBackOrder::Journal).then(Journal::of_default_size);
    Ok(Config { policy, journal, ..settings.config(geometry, devices) })
}

fn geometry(unit: u64, size: &str, flash_bytes: u64) -> Result<Geometry, CacheError> {
    let unit_pages = unit / BLOCK_BYTES as u64;
    let (least, most) = (unit * u64::from(Geometry::UNITS_MIN), ((1 << 32) - unit_pages) * BLOCK_BYTES as u64);
    if !(least..=most).contains(&flash_bytes) {
        let [found, least, most, unit] = [flash_bytes, least, most, unit].map(ByteSize::new);
        return Err(CacheError::FlashSize { size: size.to_owned(), found, least, most, unit });
    }
    Ok(Geometry { units: (flash_bytes / unit) as u32, unit_pages: unit_pages as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rows: &[(&str, &str)], flash_bytes: u64) -> Result<Config, String> {
        let settings = simulated(&Settings::of(rows).unwrap());
        let devices = Devices { flash_bytes, storage_bytes: 1 << 40, array: flashwise_device::paper() };
        super::config(&settings, Spec::parse("lru").unwrap(), "size", &devices).map_err(|error| error.to_string())
    }

    #[test]
    fn flash_is_cut_into_whole_erase_units_and_there_is_no_ram_unless_asked_for() {
        let found = config(&[], (64 << 20) + 5000).unwrap();
        assert_eq!(found.geometry, Geometry { units: 32, unit_pages: 512 });
        assert_eq!((found.read_buffer_blocks, found.write_buffer_blocks), (0, 0));
        assert_eq!((found.policy.to_string(), found.admission.is_none()), ("lru".to_owned(), true));
        let found = config(&[("ram", "16MiB"), ("write-buffer-share", "25%")], 64 << 20).unwrap();
        assert_eq!((found.read_buffer_blocks, found.write_buffer_blocks), (3072, 1024));
    }

    #[test]
    fn the_cleaner_stops_where_it_begins_where_that_is_below_its_default() {
        let limits = |rows: &[(&str, &str)]| config(rows, 64 << 20).map(|found| (found.dirty_high, found.dirty_low));
        assert_eq!(limits(&[]), Ok((0.5, 0.4)));
        assert_eq!(limits(&[("dirty-high", "30%")]), Ok((0.3, 0.3)));
        let error = "dirty-low: found 60%, expected at most dirty-high, which is 50%";
        assert_eq!(limits(&[("dirty-low", "60%")]), Err(error.to_owned()));
    }

    #[test]
    fn a_flash_that_makes_no_cache_is_refused() {
        let errors = [21 << 20, 1 << 60].map(|flash_bytes| config(&[], flash_bytes).unwrap_err());
        let expected = [
            "size 'size' is 21MiB of flash, expected 22MiB to 16777214MiB: 11 erase units of 2MiB or more",
            "size 'size' is 1048576TiB of flash, expected 22MiB to 16777214MiB: 11 erase units of 2MiB or more",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn ram_is_a_size_or_a_share() {
        assert_eq!(
            ("5%".parse(), "1MiB".parse(), "0".parse()),
            (Ok(Ram::Share(0.05)), Ok(Ram::Bytes(1 << 20)), Ok(Ram::Bytes(0)))
        );
        for wrong in ["", "%", "101%", "-1%", "1XB"] {
            assert!(wrong.parse::<Ram>().is_err(), "{wrong}");
        }
    }
}
