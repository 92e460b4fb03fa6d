//! The options of `flashwise simulate` that ask what a cache wears.

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
    /// Says in `job` what is given.
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
