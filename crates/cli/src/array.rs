//! Options of `flashwise simulate` for an admission rule before the policy and for devices behind it.

use clap::Args;
use flashwise_core::options::OptionError;
use flashwise_sim::job::{Admission, Job};

use crate::help;
use crate::settings::Words;

/// Options for admission, arrivals and devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::ADMISSION)]
pub struct ArrayOptions {
    /// Admission rule from `flashwise policies`, such as size:max=64KiB, auto or none; repeatable
    ///
    /// Further examples: hotness:min=2, probability:p=0.3, adaptive:kind=probability,target=0.4ms. none leaves
    /// admission to the policy. A list (target=200us,1ms) or range (p=0.1..0.9:0.1, max=4KiB..1MiB:x2) makes one rule
    /// for each value. timeframe=1% is a share of the trace's time.
    #[arg(long = "admission", value_name = "RULE", value_parser = parse_rules)]
    admissions: Vec<Rules>,
    #[command(flatten)]
    words: Words<true>,
}

/// The rules of one `--admission`.
#[derive(Clone, Debug)]
struct Rules(Vec<Admission>);

fn parse_rules(text: &str) -> Result<Rules, OptionError> {
    Admission::parse_list(text).map(Rules)
}

impl ArrayOptions {
    /// Puts the given options into `job`, except the rules.
    pub fn put(&self, job: &mut Job) {
        self.words.put(job);
    }

    /// The given rules.
    pub fn rules(&self) -> Vec<Admission> {
        self.admissions.iter().flat_map(|rules| rules.0.clone()).collect()
    }
}
