//! Options of `flashwise simulate` for layouts on flash: the whole cache, with the server's settings, and wear.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashwise_core::quantity::Share;
use flashwise_sim::cache_settings::SPARE;
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
    #[arg(long, value_name = "SHARE", help = spare_help(), value_delimiter = ',', help_heading = help::WEAR)]
    spare: Vec<Share>,
    #[command(flatten)]
    words: Words<false>,
}

fn spare_help() -> String {
    let default = Share::new(SPARE).unwrap_or_default();
    format!(
        "Flash of an SSD or a container cache beyond the size of the cache, as a share of the size, or a list (5%,10%) \
         [default: {default}, or --device's]"
    )
}

impl CacheOptions {
    /// Puts the given options into `job`, except the shares of spare flash.
    pub fn put(&self, job: &mut Job) {
        job.layout = self.layout;
        self.words.put(job);
    }

    /// The given shares of spare flash.
    pub fn spares(&self) -> &[Share] {
        &self.spare
    }
}
