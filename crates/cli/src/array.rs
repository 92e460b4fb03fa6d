//! The options of `flashwise simulate` that put an admission rule before a policy, and devices behind it.

use clap::Args;
use flashwise_core::options::OptionError;
use flashwise_core::quantity::ByteSize;
use flashwise_device::{ArrayError, ArrayModel, TierModel, tier_model_of_option};
use flashwise_sim::array::{Arrivals, TraceRule};
use flashwise_sim::experiment::Devices;

use crate::given::given;
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
    cache_device: Option<TierModel>,
    /// The storage's device, in the same way [default: mlc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_storage)]
    storage_device: Option<TierModel>,
    /// What the storage holds: the volume, to simulate what a server recorded [default: twice the blocks of the trace]
    #[arg(long, value_name = "SIZE")]
    storage_size: Option<ByteSize>,
    /// When requests come, and wait for devices: none: never; trace: at the trace's times, or trace:speed=2; closed:depth=16: so many are
    /// under way at a time [default: none]
    #[arg(long, value_name = "ARRIVALS")]
    arrivals: Option<Arrivals>,
}

/// The rules of one `--admission`; none is the policy alone.
#[derive(Clone, Debug)]
struct Rules(Vec<Option<TraceRule>>);

fn parse_rules(text: &str) -> Result<Rules, OptionError> {
    if text == "none" {
        return Ok(Rules(vec![None]));
    }
    Ok(Rules(TraceRule::parse_list(text)?.into_iter().map(Some).collect()))
}

fn parse_cache(text: &str) -> Result<TierModel, ArrayError> {
    tier_model_of_option("cache-device", text)
}

fn parse_storage(text: &str) -> Result<TierModel, ArrayError> {
    tier_model_of_option("storage-device", text)
}

impl ArrayOptions {
    /// Whether any option is given.
    pub fn is_given(&self) -> bool {
        !self.admissions.is_empty() || self.names_devices()
    }

    fn names_devices(&self) -> bool {
        let devices = self.cache_device.is_some() || self.storage_device.is_some() || self.storage_size.is_some();
        devices || self.arrivals.is_some()
    }

    /// The options that are given, as they are written.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        given([
            ("--admission", !self.admissions.is_empty()),
            ("--cache-device", self.cache_device.is_some()),
            ("--storage-device", self.storage_device.is_some()),
            ("--storage-size", self.storage_size.is_some()),
            ("--arrivals", self.arrivals.is_some()),
        ])
    }

    /// The storage's device, if it was named.
    pub fn storage_device(&self) -> Option<TierModel> {
        self.storage_device
    }

    /// The rules; none is the policy alone.
    pub fn rules(&self) -> Vec<Option<TraceRule>> {
        if self.admissions.is_empty() {
            vec![None]
        } else {
            self.admissions.iter().flat_map(|rules| rules.0.clone()).collect()
        }
    }

    /// The devices and what waits for them, if any option asks for it.
    pub fn devices(&self) -> Option<Devices> {
        let storage_bytes = self.storage_size.map(ByteSize::bytes);
        self.is_given().then(|| Devices { model: self.array(), storage_bytes, arrivals: self.arrivals() })
    }

    /// The same for the whole cache, which has devices in any case: that it has no rule names none.
    pub fn devices_of_log(&self) -> Option<Devices> {
        let is_named = self.names_devices() || self.rules().iter().any(Option::is_some);
        self.devices().filter(|_| is_named)
    }

    /// The devices; how large they are, cache and trace say.
    pub fn array(&self) -> ArrayModel {
        let default = ArrayModel::paper();
        ArrayModel {
            cache: self.cache_device.unwrap_or(default.cache),
            storage: self.storage_device.unwrap_or(default.storage),
        }
    }

    /// When requests come.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals.unwrap_or_default()
    }
}
