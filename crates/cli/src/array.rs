//! The options of `flashwise simulate` that put an admission rule before a policy, and devices behind it.

use clap::Args;
use flashwise_core::array::{Array, Tier};
use flashwise_core::options::OptionError;
use flashwise_sim::array::{ArrayError, TraceRule, paper, tier_of_option};

use crate::cache::Model;
use crate::failure::Misuse;

/// What is admitted, and to what devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Latency and lifetime of an array, with --admission or a device")]
pub struct ArrayOptions {
    /// What the cache takes in, as listed by `flashwise policies`: size:max=64KiB, hotness:min=2, probability:p=0.3,
    /// adaptive:kind=probability,target=0.4ms, auto; none is the policy alone; lists (target=200us,1ms) and ranges (p=0.1..0.9:0.1,
    /// max=4KiB..1MiB:x2) of an option are a rule each; timeframe=1% is a share of the trace's time; can be given many times
    #[arg(long = "admission", value_name = "RULE", value_parser = parse_rules)]
    admissions: Vec<Rules>,
    /// The cache's device, a name of `flashwise lifetime --devices` or a TOML file, with changes: slc:write-amplification=1.5
    /// [default: slc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_cache)]
    cache_device: Option<Tier>,
    /// The storage's device, in the same way [default: mlc]
    #[arg(long, value_name = "DEVICE", value_parser = parse_storage)]
    storage_device: Option<Tier>,
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

fn parse_cache(text: &str) -> Result<Tier, ArrayError> {
    tier_of_option("cache-device", text)
}

fn parse_storage(text: &str) -> Result<Tier, ArrayError> {
    tier_of_option("storage-device", text)
}

impl ArrayOptions {
    /// Whether any option is given.
    pub fn is_given(&self) -> bool {
        !self.admissions.is_empty() || self.cache_device.is_some() || self.storage_device.is_some()
    }

    /// The rules; none is the policy alone.
    pub fn rules(&self) -> Vec<Option<TraceRule>> {
        if self.admissions.is_empty() {
            vec![None]
        } else {
            self.admissions.iter().flat_map(|rules| rules.0.clone()).collect()
        }
    }

    /// The devices; how large they are, cache and trace say.
    pub fn array(&self) -> Array {
        let default = paper();
        Array {
            cache: self.cache_device.unwrap_or(default.cache),
            storage: self.storage_device.unwrap_or(default.storage),
        }
    }

    /// Why they do not go with `model`.
    pub fn refuse(&self, model: &Model) -> anyhow::Error {
        let what = match model {
            Model::Server(_) => "the whole cache that flashwise serve runs",
            _ => "what a cache wears",
        };
        Misuse(format!("--admission and devices are of policies alone, expected none with {what}")).into()
    }
}
