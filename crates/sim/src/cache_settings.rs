//! What a simulated cache is made of, with the server's names and defaults.

use flashwise_core::cache::{Config, CopyForward, Mode, buffer_blocks};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::policy::Spec;
use flashwise_core::quantity::ByteSize;

/// RAM in front of the flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ram {
    /// So many bytes.
    Bytes(u64),
    /// A share of the flash, 0 to 1.
    Share(f64),
}

impl std::str::FromStr for Ram {
    type Err = String;

    /// Reads a size such as `128MiB`, or a share of the flash such as `5%`.
    fn from_str(text: &str) -> Result<Ram, String> {
        if text.ends_with('%') {
            return parse_share(text).map(Ram::Share);
        }
        let bytes = text.parse::<ByteSize>().map_err(|error| error.to_string())?;
        Ok(Ram::Bytes(bytes.bytes()))
    }
}

/// Reads a share such as `10%`, from 0% to 100%.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("found '{text}', expected a share from 0% to 100%")),
    }
}

/// What every cache of a simulation is made of, besides policy and size.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// When written data reaches the backend.
    pub mode: Mode,
    /// RAM for the read and the write buffer together.
    pub ram: Ram,
    /// The share of that for the write buffer, 0 to 1.
    pub write_buffer_share: f64,
    /// Size of an erase unit.
    pub erase_unit_bytes: u64,
    /// Share of the flash that is kept free of wanted blocks.
    pub over_provision: f64,
    /// What is copied forward of an erase unit that is reset.
    pub copy_forward: CopyForward,
    /// The cleaner starts above this share of dirty blocks, ...
    pub dirty_high: f64,
    /// ... and stops at this share.
    pub dirty_low: f64,
    /// Blocks that have been dirty for longer are written back.
    pub dirty_age_us: u64,
    /// Written data stays in RAM no longer than this.
    pub commit_age_us: u64,
    /// Sequential streams longer than this bypass the flash; 0 for never.
    pub sequential_bytes: u64,
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings {
            mode: Mode::WriteBack,
            ram: Ram::Bytes(0),
            write_buffer_share: 0.5,
            erase_unit_bytes: 2 << 20,
            over_provision: 0.1,
            copy_forward: CopyForward::default(),
            dirty_high: 0.5,
            dirty_low: 0.4,
            dirty_age_us: 15 * 60_000_000,
            commit_age_us: 5_000_000,
            sequential_bytes: 4 << 20,
        }
    }
}

/// Why a cache cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CacheError {
    #[error("{what}: found {found}, expected {expected}")]
    Setting { what: &'static str, found: String, expected: String },
    #[error(
        "size '{size}' is {found} of flash, expected {least} to {most}: {} erase units of {unit} or more",
        Geometry::UNITS_MIN
    )]
    FlashSize { size: String, found: ByteSize, least: ByteSize, most: ByteSize, unit: ByteSize },
    #[error("policy '{policy}' knows the future, expected an online policy: the whole cache cannot look ahead")]
    Offline { policy: String },
}

/// The most RAM: frames are numbered by 32 bits, and each is a block.
const RAM_BYTES_MAX: u64 = 1 << 43;

impl CacheSettings {
    /// A cache with `policy` and a flash of `flash_bytes`, which the user called `size`; what is left of the last erase unit is not
    /// used.
    pub fn config(&self, policy: Spec, size: &str, flash_bytes: u64) -> Result<Config, CacheError> {
        self.check()?;
        if policy.info().offline {
            return Err(CacheError::Offline { policy: policy.to_string() });
        }
        let geometry = self.geometry(size, flash_bytes)?;
        let ram_bytes = match self.ram {
            Ram::Bytes(bytes) => bytes,
            Ram::Share(share) => (flash_bytes as f64 * share) as u64,
        };
        let (read_buffer_blocks, write_buffer_blocks) = buffer_blocks(ram_bytes, self.write_buffer_share);
        Ok(Config {
            mode: self.mode,
            read_buffer_blocks,
            write_buffer_blocks,
            over_provision: self.over_provision,
            copy_forward: self.copy_forward,
            dirty_high: self.dirty_high,
            dirty_low: self.dirty_low,
            dirty_age_us: self.dirty_age_us,
            commit_age_us: self.commit_age_us,
            sequential_blocks: u32::try_from(self.sequential_bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX),
            ..Config::new(geometry, policy)
        })
    }

    fn check(&self) -> Result<(), CacheError> {
        let setting = |what, found: String, expected: &str| {
            Err(CacheError::Setting { what, found, expected: expected.to_owned() })
        };
        let percent = |share: f64| format!("{}%", share * 100.0);
        let unit = self.erase_unit_bytes;
        if !unit.is_power_of_two() || !(64 << 10..=256 << 20).contains(&unit) {
            let found = ByteSize::new(unit).to_string();
            return setting("erase unit", found, "a power of two from 64KiB to 256MiB");
        }
        if self.over_provision > 0.9 {
            return setting("over-provisioning", percent(self.over_provision), "at most 90%");
        }
        if self.dirty_low > self.dirty_high {
            let expected = format!("at most dirty-high, {}", percent(self.dirty_high));
            return setting("dirty-low", percent(self.dirty_low), &expected);
        }
        match self.ram {
            Ram::Bytes(bytes) if bytes > RAM_BYTES_MAX => {
                setting("RAM", ByteSize::new(bytes).to_string(), "at most 8TiB")
            }
            _ => Ok(()),
        }
    }

    fn geometry(&self, size: &str, flash_bytes: u64) -> Result<Geometry, CacheError> {
        let unit = self.erase_unit_bytes;
        let unit_pages = unit / BLOCK_BYTES as u64;
        let (least, most) = (unit * u64::from(Geometry::UNITS_MIN), ((1 << 32) - unit_pages) * BLOCK_BYTES as u64);
        if !(least..=most).contains(&flash_bytes) {
            let [found, least, most, unit] = [flash_bytes, least, most, unit].map(ByteSize::new);
            return Err(CacheError::FlashSize { size: size.to_owned(), found, least, most, unit });
        }
        Ok(Geometry { units: (flash_bytes / unit) as u32, unit_pages: unit_pages as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &CacheSettings, flash_bytes: u64) -> Result<Config, String> {
        settings.config(Spec::parse("lru").unwrap(), "size", flash_bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn flash_is_cut_into_whole_erase_units_and_ram_into_two_buffers() {
        let settings = CacheSettings { ram: Ram::Share(0.25), write_buffer_share: 0.25, ..CacheSettings::default() };
        let config = config(&settings, (64 << 20) + 5000).unwrap();
        assert_eq!(config.geometry, Geometry { units: 32, unit_pages: 512 });
        // 25% of 67,113,864 bytes are 4096 blocks and a bit, of which a quarter is for writes.
        assert_eq!((config.read_buffer_blocks, config.write_buffer_blocks), (3072, 1024));
        assert_eq!(config.sequential_blocks, 1024);
    }

    #[test]
    fn what_makes_no_cache_is_refused() {
        let default = CacheSettings::default;
        let errors = [
            config(&default(), 21 << 20),
            config(&default(), 1 << 60),
            config(&CacheSettings { erase_unit_bytes: 3 << 20, ..default() }, 1 << 30),
            config(&CacheSettings { erase_unit_bytes: 4096, ..default() }, 1 << 30),
            config(&CacheSettings { over_provision: 0.95, ..default() }, 1 << 30),
            config(&CacheSettings { dirty_low: 0.6, ..default() }, 1 << 30),
            config(&CacheSettings { ram: Ram::Bytes(1 << 50), ..default() }, 1 << 30),
        ]
        .map(Result::unwrap_err);
        let expected = [
            "size 'size' is 21MiB of flash, expected 22MiB to 16777214MiB: 11 erase units of 2MiB or more",
            "size 'size' is 1048576TiB of flash, expected 22MiB to 16777214MiB: 11 erase units of 2MiB or more",
            "erase unit: found 3MiB, expected a power of two from 64KiB to 256MiB",
            "erase unit: found 4KiB, expected a power of two from 64KiB to 256MiB",
            "over-provisioning: found 95%, expected at most 90%",
            "dirty-low: found 60%, expected at most dirty-high, 50%",
            "RAM: found 1024TiB, expected at most 8TiB",
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
