//! The options of `flashwise simulate` that put an admission rule before a policy, and devices behind it.

use clap::Args;
use flashwise_core::options::OptionError;
use flashwise_core::quantity::ByteSize;
use flashwise_device::{ArrayError, TierModel, tier_model_of_option};
use flashwise_sim::array::Arrivals;
use flashwise_sim::job::{Admission, Job, Written};

use crate::help;

/// What is admitted, and to what devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::ADMISSION)]
pub struct ArrayOptions {
    /// What the cache takes in, as listed by `flashwise policies`: size:max=64KiB, hotness:min=2, probability:p=0.3,
    /// adaptive:kind=probability,target=0.4ms, auto; none is the policy alone; lists (target=200us,1ms) and ranges (p=0.1..0.9:0.1,
    /// max=4KiB..1MiB:x2) of an option are a rule each; timeframe=1% is a share of the trace's time; can be given many times
    #[arg(long = "admission", value_name = "RULE", value_parser = parse_rules)]
    admissions: Vec<Rules>,
    /// The cache's device, a name of `flashwise lifetime --devices` or a TOML file, with changes: slc:write-amplification=1.5
    /// [default: slc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_cache)]
    cache_device: Option<Written<TierModel>>,
    /// The storage's device, in the same way [default: mlc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_storage)]
    storage_device: Option<Written<TierModel>>,
    /// What the storage holds: the volume, to simulate what a server recorded [default: twice the blocks of the trace]
    #[arg(long, value_name = "SIZE")]
    storage_size: Option<ByteSize>,
    /// When requests come, and wait for devices: none: never; trace: at the trace's times, or trace:speed=2; closed:depth=16: this many are
    /// under way at a time [default: none]
    #[arg(long, value_name = "ARRIVALS")]
    arrivals: Option<Arrivals>,
}

/// The rules of one `--admission`.
#[derive(Clone, Debug)]
struct Rules(Vec<Admission>);

fn parse_rules(text: &str) -> Result<Rules, OptionError> {
    Admission::parse_list(text).map(Rules)
}

fn parse_cache(text: &str) -> Result<Written<TierModel>, ArrayError> {
    Written::read(text, |text| tier_model_of_option("cache-device", text))
}

fn parse_storage(text: &str) -> Result<Written<TierModel>, ArrayError> {
    Written::read(text, |text| tier_model_of_option("storage-device", text))
}

impl ArrayOptions {
    /// Says in `job` what is given, but for the rules.
    pub fn put(&self, job: &mut Job) {
        *job = Job {
            cache_device: self.cache_device.clone(),
            storage_device: self.storage_device.clone(),
            storage_size: self.storage_size,
            arrivals: self.arrivals,
            ..std::mem::take(job)
        };
    }

    /// The rules that are given, or that there is to be none.
    pub fn rules(&self) -> Vec<Admission> {
        self.admissions.iter().flat_map(|rules| rules.0.clone()).collect()
    }
}
