//! Options for simulating a sample of a trace instead of all of it.

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

/// The note about `--accuracy` for caches that cannot be sampled.
pub const WHOLE_TRACE: &str = "caches that see whole requests cannot be sampled; the whole trace is run";

/// Options for a sample.
#[derive(Clone, Debug, Args)]
pub struct SampleOptions {
    /// Simulate a sample of the blocks, such as 1%
    ///
    /// That is faster and less exact. The cache shrinks with the sample; all figures are estimates for the whole trace.
    /// With an admission rule, blocks are sampled in groups of 64 KiB, so requests stay whole. A trace that is not
    /// normalised is read once and not copied.
    #[arg(long, value_name = "SHARE", value_parser = sample_share)]
    sample: Option<Share>,
    /// Simulate a sample with hit ratios this exact: 0.005
    ///
    /// The error is within this in 95 of 100 cases. Starts with a thousandth of the blocks, and reads the trace again
    /// for each larger sample. Caches on flash and caches that see whole requests run over the whole trace, because the
    /// accuracy of a sample is unknown for them.
    #[arg(long, value_name = "SHARE", value_parser = parse_accuracy, conflicts_with = "sample")]
    accuracy: Option<f64>,
    /// Unit of sampling: blocks, or groups of 64 KiB [default: groups with an admission rule, else blocks]
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<SampleBy>, help_heading = help::INPUT)]
    sample_by: Option<SampleBy>,
    /// Seed that chooses the sample's blocks [default: 0]
    #[arg(long, value_name = "N", help_heading = help::INPUT)]
    sample_seed: Option<u64>,
}

impl SampleOptions {
    /// The given share, if any.
    pub fn share(&self) -> Option<Share> {
        self.sample
    }

    /// The name of the accuracy option, if it is given.
    pub fn accuracy_given(&self) -> Option<&'static str> {
        self.accuracy.map(|_| "--accuracy")
    }

    /// Makes `job` run over a sample of `share`, if there is one.
    pub fn put(&self, job: &mut Job, share: Option<Share>) {
        // With an accuracy, the sample's options apply to the samples tried; a run over the whole trace has none.
        let applies = share.is_some() || self.accuracy.is_none();
        let (sample_by, sample_seed) = (self.sample_by.filter(|_| applies), self.sample_seed.filter(|_| applies));
        *job = Job { sample: share, sample_by, sample_seed, ..std::mem::take(job) };
    }

    /// The sample of `share`, if there is one, for policies without an admission rule.
    pub fn sampling(&self, share: Option<Share>) -> Option<Sampling> {
        let sampling = Sampling::new(share?.of_one(), self.sample_seed.unwrap_or(0))?;
        Some(if self.sample_by == Some(SampleBy::Groups) { sampling.by_groups() } else { sampling })
    }

    /// Runs `work` over the given sample, or over all of `traces`. With an accuracy, repeats it on larger samples until
    /// the `margin` of the result is small enough. A margin of `None` means that the sample is too small to have one.
    /// `jobs` are the jobs of the work.
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
