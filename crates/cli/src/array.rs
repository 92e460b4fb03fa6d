//! Options of `flashwise simulate` for an admission rule before the policy and for devices behind it.

use clap::Args;
use flashwise_core::options::OptionError;
use flashwise_core::quantity::ByteSize;
use flashwise_device::{ArrayError, TierModel, tier_model_of_option};
use flashwise_sim::array::Arrivals;
use flashwise_sim::job::{Admission, Job, Written};

use crate::help;

/// Options for admission, arrivals and devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::ADMISSION)]
pub struct ArrayOptions {
    /// Admission rule from `flashwise policies`, such as size:max=64KiB, auto or none; repeatable
    ///
    /// Further examples: hotness:min=2, probability:p=0.3, adaptive:kind=probability,target=0.4ms. none leaves admission to the policy.
    /// A list (target=200us,1ms) or range (p=0.1..0.9:0.1, max=4KiB..1MiB:x2) makes one rule for each value. timeframe=1% is a share of the
    /// trace's time.
    #[arg(long = "admission", value_name = "RULE", value_parser = parse_rules)]
    admissions: Vec<Rules>,
    /// Cache device: a name from `flashwise lifetime --devices` or a TOML file, with changes: slc:write-amplification=1.5 [default: slc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_cache)]
    cache_device: Option<Written<TierModel>>,
    /// Storage device, given like --cache-device [default: mlc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_storage)]
    storage_device: Option<Written<TierModel>>,
    /// Size of the storage; for a server's recording, of its volume [default: twice the trace's blocks]
    #[arg(long, value_name = "SIZE")]
    storage_size: Option<ByteSize>,
    /// Arrivals, for waiting times: none, trace (at the trace's times), trace:speed=2 or closed:depth=16 (16 in flight) [default: none]
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
    /// Puts the given options into `job`, except the rules.
    pub fn put(&self, job: &mut Job) {
        *job = Job {
            cache_device: self.cache_device.clone(),
            storage_device: self.storage_device.clone(),
            storage_size: self.storage_size,
            arrivals: self.arrivals,
            ..std::mem::take(job)
        };
    }

    /// The given rules.
    pub fn rules(&self) -> Vec<Admission> {
        self.admissions.iter().flat_map(|rules| rules.0.clone()).collect()
    }
}
