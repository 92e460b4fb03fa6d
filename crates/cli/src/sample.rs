//! The options that say whether a sample of a trace is simulated in place of all of it.

use std::path::PathBuf;

use clap::Args;
use flashwise_core::quantity::Share;
use flashwise_sim::job::{Job, SampleBy, sample_share};
use flashwise_sim::sampling::{accurate, parse_accuracy, takes_whole_trace};
use flashwise_trace::error::TraceError;
use flashwise_trace::sampling::Sampling;

use crate::failure::Misuse;
use crate::help;
use crate::input::read_once;
use crate::log::note;

/// What an accuracy means for jobs of caches that no sample stands for.
pub const WHOLE_TRACE: &str = "of caches that are asked whole requests there is no sample; all of the trace is run";

/// Whether a sample is taken, and which.
#[derive(Clone, Debug, Args)]
pub struct SampleOptions {
    /// Simulate a sample of the blocks, such as 1%: faster, less exact
    ///
    /// Caches are as much smaller; all figures are those of the whole trace, of which the sample is an estimate. Before an admission rule blocks
    /// are in the sample or not by groups of 64 KiB, so that requests stay whole. A trace that is not normalised is read once and not copied.
    #[arg(long, value_name = "SHARE", value_parser = sample_share)]
    sample: Option<Share>,
    /// Simulate the smallest sample that tells hit ratios within this, such as 0.005, in 95 of 100 cases
    ///
    /// It begins with a thousandth of the blocks and reads the trace again for each larger sample. Caches on flash and those that are asked whole
    /// requests, of which no sample says how accurate it is, run over all of the trace at once.
    #[arg(long, value_name = "SHARE", value_parser = parse_accuracy, conflicts_with = "sample")]
    accuracy: Option<f64>,
    /// What is in the sample or not: blocks, or groups of 64 KiB [default: groups before an admission rule, else blocks]
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<SampleBy>, help_heading = help::INPUT)]
    sample_by: Option<SampleBy>,
    /// Which blocks are in the sample: another number, others [default: 0]
    #[arg(long, value_name = "N", help_heading = help::INPUT)]
    sample_seed: Option<u64>,
}

impl SampleOptions {
    /// The share that was asked for.
    pub fn share(&self) -> Option<Share> {
        self.sample
    }

    /// The option that asks for a sample that is accurate, if it is given.
    pub fn accuracy_given(&self) -> Option<&'static str> {
        self.accuracy.map(|_| "--accuracy")
    }

    /// Says in `job` that it runs over a sample of such a `share`, if one is given.
    pub fn put(&self, job: &mut Job, share: Option<Share>) {
        // What is said of a sample holds for those that are found for an accuracy; what runs without one has nothing of it.
        let is_said = share.is_some() || self.accuracy.is_none();
        let (sample_by, sample_seed) = (self.sample_by.filter(|_| is_said), self.sample_seed.filter(|_| is_said));
        *job = Job { sample: share, sample_by, sample_seed, ..std::mem::take(job) };
    }

    /// The sample of such a `share` of policies alone, if one is given.
    pub fn sampling(&self, share: Option<Share>) -> Option<Sampling> {
        let sampling = Sampling::new(share?.of_one(), self.sample_seed.unwrap_or(0))?;
        Some(if self.sample_by == Some(SampleBy::Groups) { sampling.by_groups() } else { sampling })
    }

    /// Works on the sample that was asked for, or on all of `traces`; if an accuracy was asked for, again on larger samples until `margin` says that
    /// the work, of `jobs`, was accurate enough. A margin of none is that of a sample which is too small to say.
    pub fn accurate<T>(
        &self,
        jobs: &[Job],
        traces: &[PathBuf],
        work: impl Fn(Option<Share>) -> anyhow::Result<T>,
        margin: impl Fn(&T) -> Option<f64>,
    ) -> anyhow::Result<T> {
        let Some(accuracy) = self.accuracy else { return work(self.sample) };
        if let Some(once) = traces.iter().find_map(|path| read_once(path)) {
            let what = format!(
                "--accuracy reads a trace more than once, and {once} can be read once: expected a file, or --sample"
            );
            return Err(Misuse(what).into());
        }
        if takes_whole_trace(jobs) {
            note!("--accuracy: {WHOLE_TRACE}");
        }
        let is_empty =
            |error: &anyhow::Error| matches!(error.downcast_ref::<TraceError>(), Some(TraceError::EmptySample { .. }));
        accurate(accuracy, jobs, work, is_empty, margin)
    }
}
