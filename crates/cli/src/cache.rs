//! The options of `flashwise simulate` that ask for more than a policy alone: the whole cache, named as in the server's configuration, or
//! what a cache wears out.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashwise_core::cache::settings::{Setting, Value};
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::ArrayError;
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance;
use flashwise_sim::job::{Job, LayoutName};

use crate::buckets::BucketOptions;
use crate::endurance::EnduranceOptions;
use crate::help;
use crate::settings::SimulateSettings;

/// Reads the name of a layout.
fn layouts() -> impl TypedValueParser<Value = LayoutName> {
    let row = |row: flashwise_sim::job::LayoutRow| PossibleValue::new(row.name).help(row.meaning).aliases(row.aliases);
    PossibleValuesParser::new(LayoutName::ROWS.map(row)).try_map(|name| name.parse::<LayoutName>())
}

/// What the whole cache is made of; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::LAYOUT)]
pub struct CacheOptions {
    /// Where cached blocks lie. none: nowhere, what policies decide; in-place: each at a place of its own on a modelled SSD; log: the whole
    /// cache that flashwise serve runs; containers: erase units that are written and reset whole, for ripq+, pannier, bcache and c; wlfc, wlfc_c, b-like:
    /// caches of their own that evict whole buckets, with no policy beside them. An option of one
    /// layout names it, and so does an algorithm. Of the log --size is the size of the flash, at least 11 erase units; its blocks are 4KiB and keep
    /// their addresses if the trace is of one volume below 16TiB; of a larger one, or of several volumes, which share the cache, the 256MiB
    /// regions that are accessed are placed one after the other. With --device or an option of one it lies on a modelled SSD. Of a recording flushes, trims, zeroes and the flag fua count too [default: none]
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    layout: Option<LayoutName>,
    #[arg(long, value_name = "SIZE", help = ram_help())]
    ram: Option<Ram>,
    #[arg(long, value_name = "SIZE", help = erase_unit_help())]
    erase_unit: Option<ByteSize>,
    #[arg(long, value_name = "SHARE", help = over_provision_help(), value_delimiter = ',')]
    over_provision: Vec<Share>,
    #[command(flatten)]
    settings: SimulateSettings,
    #[command(flatten)]
    endurance: EnduranceOptions,
    #[command(flatten)]
    buckets: BucketOptions,
}

fn meaning(name: &str) -> &'static str {
    Setting::named(name).parameter.meaning
}

fn default(name: &str) -> &'static str {
    Setting::named(name).parameter.default
}

fn ram_help() -> String {
    let (meaning, serve) = (meaning("ram"), default("ram"));
    let wear = Value::from(endurance::Settings::default().ram);
    format!(
        "{meaning}: a size, or a share of the flash such as 5% [default: 0; {wear} in place and in containers; flashwise serve has {serve}]"
    )
}

fn erase_unit_help() -> String {
    let (meaning, default) = (meaning("erase-unit"), default("erase-unit"));
    format!(
        "{meaning}; in place and in containers any multiple of the trace's blocks [default: {default}, and --device's]"
    )
}

fn over_provision_help() -> String {
    let (meaning, default) = (meaning("over-provision"), default("over-provision"));
    let wear = Value::Share(endurance::Settings::default().over_provision);
    format!(
        "{meaning} [default: {default}]; in place and in containers flash beyond the cache's size instead, as a share of it, and lists \
         (5%,10%) are possible [default: {wear}]"
    )
}

impl CacheOptions {
    /// Says in `job` what is given, but for the over-provisionings.
    pub fn put(&self, job: &mut Job) -> Result<(), ArrayError> {
        let (layout, ram, erase_unit) = (self.layout, self.ram, self.erase_unit);
        *job = Job { layout, ram, erase_unit, settings: self.settings.0.clone(), ..std::mem::take(job) };
        self.buckets.put(job);
        self.endurance.put(job)
    }

    /// The over-provisionings that are given.
    pub fn over_provisions(&self) -> &[Share] {
        &self.over_provision
    }
}
