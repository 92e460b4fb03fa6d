//! The options of `flashwise simulate` that ask what a cache wears.

use clap::Args;
use flashwise_core::quantity::Share;
use flashwise_device::ArrayError;
use flashwise_device::flash::profile::Profile;
use flashwise_device::flash::{GcPlacement, Victim};
use flashwise_sim::endurance::Settings;
use flashwise_sim::results::WearLimits;

use crate::given::given;
use crate::help;

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("found '{text}', expected a number above 0"))
}

/// What wears; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::WEAR)]
pub struct EnduranceOptions {
    /// Erase units in which c collects what it writes, a part of --ram [default: 4, or as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    write_buffers: Option<u32>,
    /// Which erase unit a conventional SSD collects: greedy, fifo, cost-benefit or d-choices:d=10 [default: greedy]
    #[arg(long, value_name = "VICTIM", value_parser = Victim::parse)]
    gc_victim: Option<Victim>,
    /// Where a conventional SSD puts what it copies: into an open unit of its own, or mixed with what the host writes [default: own]
    #[arg(long, value_name = "PLACE", value_parser = GcPlacement::parse)]
    gc_placement: Option<GcPlacement>,
    /// Erase units that a conventional SSD keeps free [default: 1]
    #[arg(long, value_name = "N")]
    gc_reserve: Option<u32>,
    /// Let a conventional SSD level its wear once erase counts are so far apart [default: it does not]
    #[arg(long, value_name = "ERASURES", value_parser = clap::value_parser!(u32).range(1..))]
    wear_levelling: Option<u32>,
    /// Whether replacement policies tell a conventional SSD what they evict, and the log what it resets [default: off]
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"])]
    trim: Option<String>,
    /// The device whose erase unit, over-provisioning and cycles count, of the log a conventional SSD below it: a name of
    /// `flashwise lifetime --devices` that has flash, such as samsung-slc, or a TOML file
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Drive writes per day that the flash is rated for, to compare with
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    drive_writes_per_day: Option<f64>,
    /// Weight of the hits in weighted flash usage effectiveness (wfue); erasures have the rest [default: 50%]
    #[arg(long, value_name = "SHARE")]
    wfue_alpha: Option<Share>,
}

impl EnduranceOptions {
    /// The options of a device, as they are written, and whether they are given: of the log's too, if it is one.
    fn of_device(&self) -> [(&'static str, bool); 7] {
        [
            ("--gc-victim", self.gc_victim.is_some()),
            ("--gc-placement", self.gc_placement.is_some()),
            ("--gc-reserve", self.gc_reserve.is_some()),
            ("--wear-levelling", self.wear_levelling.is_some()),
            ("--trim", self.trim.is_some()),
            ("--device", self.device.is_some()),
            ("--drive-writes-per-day", self.drive_writes_per_day.is_some()),
        ]
    }

    /// Those that are not of the log.
    fn of_comparison(&self) -> [(&'static str, bool); 2] {
        [("--write-buffers", self.write_buffers.is_some()), ("--wfue-alpha", self.wfue_alpha.is_some())]
    }

    /// All options that are given.
    pub fn all_given(&self) -> impl Iterator<Item = &'static str> {
        given(self.of_device().into_iter().chain(self.of_comparison()))
    }

    /// The first option that is given of a device.
    pub fn device_given(&self) -> Option<&'static str> {
        given(self.of_device()).next()
    }

    /// The first option that is given and is not of the log.
    pub fn compared_given(&self) -> Option<&'static str> {
        given(self.of_comparison()).next()
    }

    /// The settings; those of the cache as a whole are set by others.
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            write_buffers: self.write_buffers,
            victim: self.gc_victim.unwrap_or(default.victim),
            gc_placement: self.gc_placement.unwrap_or(default.gc_placement),
            reserve_units: self.gc_reserve.unwrap_or(default.reserve_units),
            wear_levelling: self.wear_levelling,
            online_trim: self.trim.as_deref() == Some("on"),
            ..default
        }
    }

    /// What wear is compared with.
    pub fn limits(&self) -> Result<WearLimits, ArrayError> {
        Ok(WearLimits {
            wfue_alpha: self.wfue_alpha.map_or(0.5, Share::of_one),
            device: self.device.as_deref().map(|device| Profile::find(device, "device")).transpose()?,
            drive_writes_per_day: self.drive_writes_per_day,
        })
    }
}
