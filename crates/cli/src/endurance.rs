//! Options of `flashwise simulate` for flash wear.

use clap::Args;
use flashwise_core::quantity::Share;
use flashwise_device::ArrayError;
use flashwise_device::flash::profile::Profile;
use flashwise_device::flash::{GcPlacement, Victim};
use flashwise_sim::job::{Job, OnOff, Written};

use crate::help;

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("found '{text}', expected a number above 0"))
}

/// Options for wear; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::WEAR)]
pub struct EnduranceOptions {
    /// Erase units of --ram in which c collects writes [default: 4, or as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    write_buffers: Option<u32>,
    /// Choice of the erase unit that a conventional SSD collects: greedy, fifo, cost-benefit or d-choices:d=10 [default: greedy]
    #[arg(long, value_name = "VICTIM", value_parser = Victim::parse)]
    gc_victim: Option<Victim>,
    /// Unit for pages that a conventional SSD copies: own (a unit for copies only) or mixed (with host writes) [default: own]
    #[arg(long, value_name = "PLACE", value_parser = GcPlacement::parse)]
    gc_placement: Option<GcPlacement>,
    /// Erase units that a conventional SSD keeps free [default: 1]
    #[arg(long, value_name = "N")]
    gc_reserve: Option<u32>,
    /// Level a conventional SSD's wear when erase counts differ by this many [default: off]
    #[arg(long, value_name = "ERASURES", value_parser = clap::value_parser!(u32).range(1..))]
    wear_levelling: Option<u32>,
    /// Trim evicted blocks, or reset units of the log, on a conventional SSD [default: off]
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"])]
    trim: Option<String>,
    /// Device that gives erase unit, over-provisioning and cycles: a name from `flashwise lifetime --devices` or a TOML file
    ///
    /// It must have flash, such as samsung-slc. With --layout log it is a conventional SSD below the log.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Rated drive writes per day, for comparison
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    drive_writes_per_day: Option<f64>,
    /// Weight of hits in weighted flash usage effectiveness (wfue); erasures have the rest [default: 50%]
    #[arg(long, value_name = "SHARE")]
    wfue_alpha: Option<Share>,
}

impl EnduranceOptions {
    /// Puts the given options into `job`.
    pub fn put(&self, job: &mut Job) -> Result<(), ArrayError> {
        let profile = |text: &String| Written::read(text, |text| Profile::find(text, "device"));
        *job = Job {
            gc_victim: self.gc_victim,
            gc_placement: self.gc_placement,
            gc_reserve: self.gc_reserve,
            wear_levelling: self.wear_levelling,
            trim: self.trim.as_deref().map(|trim| OnOff(trim == "on")),
            device: self.device.as_ref().map(profile).transpose()?,
            drive_writes_per_day: self.drive_writes_per_day,
            write_buffers: self.write_buffers,
            wfue_alpha: self.wfue_alpha,
            ..std::mem::take(job)
        };
        Ok(())
    }
}
