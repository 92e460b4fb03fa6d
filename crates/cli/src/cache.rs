//! Options of `flashwise simulate` for layouts on flash: the whole cache, with the server's settings, and wear.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashwise_core::cache::settings::{Setting, Value};
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance;
use flashwise_sim::job::{Job, LayoutName};

use crate::help;
use crate::settings::Words;

/// Reads the name of a layout.
fn layouts() -> impl TypedValueParser<Value = LayoutName> {
    let row = |row: flashwise_sim::job::LayoutRow| PossibleValue::new(row.name).help(row.meaning).aliases(row.aliases);
    PossibleValuesParser::new(LayoutName::ROWS.map(row)).try_map(|name| name.parse::<LayoutName>())
}

/// Options for the layout and its parts; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::LAYOUT)]
pub struct CacheOptions {
    /// Layout of cached blocks on flash [default: none]
    ///
    /// containers is for ripq+, pannier, bcache and c. wlfc, wlfc_c and b-like evict whole buckets and take no policy.
    /// An option or algorithm of one layout implies it.
    ///
    /// With log, --size is the size of the flash, at least 11 erase units, and blocks are 4KiB. A single volume below
    /// 16TiB keeps its addresses. Otherwise the accessed regions of 256MiB are placed one after another. --device or
    /// one of its options puts the log on a modelled SSD. Flushes, trims, zeroes and fua flags of a recording count
    /// too.
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    layout: Option<LayoutName>,
    #[arg(long, value_name = "SIZE", help = ram_help())]
    ram: Option<Ram>,
    #[arg(long, value_name = "SIZE", help = erase_unit_help())]
    erase_unit: Option<ByteSize>,
    #[arg(long, value_name = "SHARE", help = over_provision_help(), value_delimiter = ',')]
    over_provision: Vec<Share>,
    #[command(flatten)]
    words: Words<false>,
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
        "{meaning}: a size, or a share of the flash such as 5% [default: 0; in-place and containers: {wear}; flashwise \
         serve: {serve}]"
    )
}

fn erase_unit_help() -> String {
    let (meaning, default) = (meaning("erase-unit"), default("erase-unit"));
    format!(
        "{meaning}; in-place and containers: any multiple of the trace's block size [default: {default}, or --device's]"
    )
}

fn over_provision_help() -> String {
    let (meaning, default) = (meaning("over-provision"), default("over-provision"));
    let wear = Value::Share(endurance::Settings::default().over_provision);
    format!(
        "{meaning} [default: {default}]; in-place and containers: extra flash, as a share of the cache's size, or a \
         list (5%,10%) \
         [default: {wear}]"
    )
}

impl CacheOptions {
    /// Puts the given options into `job`, except the over-provisionings.
    pub fn put(&self, job: &mut Job) {
        let (layout, ram, erase_unit) = (self.layout, self.ram, self.erase_unit);
        *job = Job { layout, ram, erase_unit, ..std::mem::take(job) };
        self.words.put(job);
    }

    /// The given over-provisionings.
    pub fn over_provisions(&self) -> &[Share] {
        &self.over_provision
    }
}
