//! Recommends a cache: the cheapest in a catalogue that is fast enough and lasts long enough, with its settings.
//!
//! Devices and RAM cost money; settings (policy, admission, write mode, over-provisioning) do not. So purchases are
//! examined in order of price. For each, all combinations of settings are estimated from policies, over a sample if the
//! trace is long. Promising combinations are simulated exactly, as the whole cache of a server, the best ones first.
//! The search ends when nothing cheaper is left.

mod alone;
mod answer;
mod cache;
mod certainty;
mod config;
mod estimate;
mod order;
mod search;
mod sentences;
mod ways;
mod words;
mod workload;

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::human;
use flashwise_device::offers::Catalogue;
use flashwise_trace::progress::Progress;
use serde::Serialize;

pub use cache::{AdvisedCache, MODES};
pub use certainty::Certainty;
pub use config::{Paths, configuration};
pub use order::{OrderCost, Traffic};
pub use ways::{Ways, mode_of, over_provision_of, policy_of};
pub use words::money;
pub use workload::Workload;

use crate::job::JobError;
use crate::simulate::Warmup;
use search::Search;

/// The longest lifetime that can be a target, in years.
pub const YEARS_MAX: f64 = 100.0;

/// The targets of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Targets {
    /// How long a request waits on average at most, in microseconds, if there is such a target.
    pub latency_us: Option<f64>,
    /// Minimum lifetime of the flash in years; 0 for no limit.
    pub years: f64,
}

/// A question to [`advise`].
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The hardware on offer.
    pub catalogue: &'a Catalogue,
    /// The targets.
    pub targets: Targets,
    /// How it may be set.
    pub ways: Ways,
    /// The required order of write-back. Caches that write through need none.
    pub order: WriteBackOrder,
    /// Accesses at the start that are not counted.
    pub warmup: Warmup,
    /// True to simulate every cache exactly, without a search.
    pub exhaustive: bool,
}

/// The recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Buy the cache.
    Buy,
    /// Buy RAM and no flash: that meets the targets and costs less.
    RamOnly,
    /// Buy nothing: the storage is fast enough without a cache, or its waits cost less than any cache.
    NoCache,
    /// Put everything on flash: that costs no more than a cache.
    AllFlash,
    /// No cache meets the targets.
    NothingMeets,
}

/// Another cache to think of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// The difference from the answer, such as `cheaper`, `faster`, `safer` or `longer-lived`.
    pub kind: &'static str,
    /// Its disadvantage.
    pub but: String,
    /// The cache.
    pub cache: AdvisedCache,
}

/// Storage without a cache, or flash for all data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Without {
    /// Its description.
    pub what: String,
    /// Its cost over the years, including the cost of waiting.
    pub cost: f64,
    /// How long a request waits on average.
    pub latency_mean_us: f64,
    /// The work of its busiest device per time; above 1 it falls ever further behind. 0 where the trace has no times.
    pub utilisation: f64,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The trace as the user named it.
    pub trace: String,
    /// The catalogue.
    pub catalogue: String,
    /// The currency of prices.
    pub currency: String,
    /// The targets.
    pub targets: Targets,
    /// The recommendation.
    pub verdict: Verdict,
    /// That in sentences, with its reasons.
    pub sentences: Vec<String>,
    /// The cache to buy, or the nearest one if none meets the targets.
    pub cache: Option<AdvisedCache>,
    /// Others to think of.
    pub alternatives: Vec<Alternative>,
    /// The cost of the order in which the cache writes back, if one is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_cost: Option<OrderCost>,
    /// Where no cache meets the targets: how long requests would wait with more storage devices.
    pub help: Option<String>,
    /// The storage without a cache.
    pub no_cache: Without,
    /// Flash for all data, if the catalogue has its price and it meets the targets.
    pub all_flash: Option<Without>,
    /// How sure that is.
    pub certainty: Certainty,
    /// Points to consider before a purchase.
    pub cautions: Vec<String>,
    /// How many caches there were to choose among.
    pub caches: u64,
    /// All that were run exactly, by cost.
    pub runs: Vec<AdvisedCache>,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum AdviseError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(
        "{trace}: its times are no clock, and nothing can be said per year: {refusal}; expected --years 0, which asks \
         for no lifetime, and no \
         waiting-price-per-hour"
    )]
    NoTimes { trace: String, refusal: String },
    #[error("{offer}: found {found} of flash, expected {least} or more, which is 11 erase units of 2MiB")]
    TooSmall { offer: String, found: String, least: String },
    #[error("found no latency to reach: expected --latency, such as 1ms, or a waiting-price-per-hour in the catalogue")]
    NoTarget,
    #[error("waiting-price-per-hour is paid over the years: found --years 0, expected more")]
    NoYears,
}

/// Reports the stages of the work.
pub trait Stages {
    /// Begins a stage with this many block accesses. The returned progress counts them, and is dropped at the end.
    fn begin(&self, what: String, accesses: u64) -> Box<dyn Progress + '_>;
}

/// Reports nothing.
#[derive(Debug)]
pub struct Quiet;

impl Stages for Quiet {
    fn begin(&self, _: String, _: u64) -> Box<dyn Progress + '_> {
        Box::new(flashwise_trace::progress::Silent)
    }
}

/// Returns the answer to `question` for the workload.
///
/// # Errors
/// Targets that do not apply to the trace, invalid offers, and settings that cannot be simulated.
pub fn advise(workload: &Workload, question: &Question, stages: &dyn Stages) -> Result<Advice, AdviseError> {
    let mut search = Search::new(workload, question, stages)?;
    let no_cache = alone::no_cache(&search)?;
    alone::compare_with(&mut search, &no_cache)?;
    // Storage that is fast enough costs nothing, if waits cost nothing.
    let is_enough =
        search.missed_by(no_cache.latency_mean_us, None, no_cache.utilisation) <= 1.0 && no_cache.cost == 0.0;
    let found = if is_enough { None } else { search.run()? };
    answer::of(search, found, no_cache)
}

impl Targets {
    /// How far a cache misses them, as a factor: 1 or less if it meets them.
    pub(crate) fn missed_by(&self, latency_us: f64, years: Option<f64>) -> f64 {
        let latency = self.latency_us.map_or(0.0, |most| latency_us / most);
        let years = years.map_or(0.0, |years| self.years / years);
        latency.max(years)
    }

    /// Formats the targets.
    pub fn words(&self) -> String {
        let latency = self.latency_us.map(words::latency);
        let years = (self.years > 0.0).then(|| human::lifetime(self.years));
        let words: Vec<String> = [latency, years].into_iter().flatten().collect();
        words.join(" and ")
    }
}
