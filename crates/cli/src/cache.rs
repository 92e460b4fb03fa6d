//! The options of `flashwise simulate` that ask for the whole cache, named as in the server's configuration.

use clap::Args;
use flashwise_core::cache::Mode;
use flashwise_core::quantity::{ByteSize, Duration};
use flashwise_sim::cache_settings::{CacheSettings, Ram, parse_share};

/// What the whole cache is made of; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The whole cache, as flashwise serve runs it, where any of these is given")]
pub struct CacheOptions {
    /// How blocks lie on flash: containers, a log of erase units; --size is the size of the flash, at least 11 erase units. Blocks are
    /// 4KiB and keep their addresses if the trace is of one volume below 16TiB; of a larger one, or of several volumes, which share
    /// the cache, the 256MiB regions that are accessed are placed one after the other. Of a recording flushes, trims,
    /// zeroes and the flag fua count too [default: containers]
    #[arg(long, value_name = "LAYOUT", value_parser = ["containers"])]
    layout: Option<String>,
    /// When written data reaches the backend: write-back, write-through or write-around [default: write-back]
    #[arg(long, value_name = "MODE")]
    write_mode: Option<Mode>,
    /// RAM in front of the flash: a size (128MiB) or a share of the flash (5%) [default: 0]
    #[arg(long, value_name = "SIZE")]
    ram: Option<Ram>,
    /// Share of the RAM that buffers writes; the rest buffers reads [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    write_buffer_share: Option<f64>,
    /// Size of an erase unit [default: 2MiB]
    #[arg(long, value_name = "SIZE")]
    erase_unit: Option<ByteSize>,
    /// Share of the flash that is kept free of wanted blocks [default: 10%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    over_provision: Option<f64>,
    /// Start to write back above this share of dirty blocks [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    dirty_high: Option<f64>,
    /// Stop to write back at this share of dirty blocks [default: 40%, at most --dirty-high]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    dirty_low: Option<f64>,
    /// Write back what has been dirty for longer, in the trace's time [default: 15min]
    #[arg(long, value_name = "DURATION")]
    dirty_age: Option<Duration>,
    /// Move written data out of RAM within this time [default: 5s]
    #[arg(long, value_name = "DURATION")]
    commit_age: Option<Duration>,
    /// Let sequential streams longer than this bypass the flash; 0 for never [default: 4MiB]
    #[arg(long, value_name = "SIZE")]
    sequential_bypass: Option<ByteSize>,
}

impl CacheOptions {
    /// The settings, if any option was given.
    pub fn settings(&self) -> Option<CacheSettings> {
        let sizes = [self.erase_unit, self.sequential_bypass].iter().any(Option::is_some);
        let shares = [self.write_buffer_share, self.over_provision, self.dirty_high, self.dirty_low];
        let ages = [self.dirty_age, self.commit_age].iter().any(Option::is_some);
        let others = self.layout.is_some() || self.write_mode.is_some() || self.ram.is_some();
        if !sizes && !ages && !others && shares.iter().all(Option::is_none) {
            return None;
        }
        let default = CacheSettings::default();
        let dirty_high = self.dirty_high.unwrap_or(default.dirty_high);
        Some(CacheSettings {
            mode: self.write_mode.unwrap_or(default.mode),
            ram: self.ram.unwrap_or(default.ram),
            write_buffer_share: self.write_buffer_share.unwrap_or(default.write_buffer_share),
            erase_unit_bytes: self.erase_unit.map_or(default.erase_unit_bytes, ByteSize::bytes),
            over_provision: self.over_provision.unwrap_or(default.over_provision),
            dirty_high,
            dirty_low: self.dirty_low.unwrap_or(default.dirty_low.min(dirty_high)),
            dirty_age_us: self.dirty_age.map_or(default.dirty_age_us, Duration::us),
            commit_age_us: self.commit_age.map_or(default.commit_age_us, Duration::us),
            sequential_bytes: self.sequential_bypass.map_or(default.sequential_bytes, ByteSize::bytes),
        })
    }
}
