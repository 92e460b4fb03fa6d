//! The options that say whether a sample of a trace is simulated in place of all of it.

use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_core::quantity::Share;
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::sampling::Sampling;

use crate::failure::Misuse;
use crate::help;
use crate::input::InputOptions;

/// Where `--accuracy` begins: a thousandth of the blocks.
const RATE_FIRST: f64 = 0.001;
/// Samples that would be larger than this are all of the trace.
const RATE_LAST: f64 = 0.5;
/// A sample that was not accurate enough is followed by one that is at least and at most so many times as large.
const GROWTH: (f64, f64) = (2.0, 30.0);

/// Whether a sample is taken, and which.
#[derive(Clone, Debug, Args)]
pub struct SampleOptions {
    /// Simulate a sample of the blocks, such as 1%: faster, and the hit ratios have a standard error
    ///
    /// Caches are as much smaller; all figures are those of the whole trace, of which the sample is an estimate. Before an admission rule blocks
    /// are in the sample or not by groups of 64 KiB, so that requests stay whole. A trace that is not normalised is read once and not copied.
    #[arg(long, value_name = "SHARE", value_parser = parse_rate)]
    sample: Option<f64>,
    /// Simulate the smallest sample that tells hit ratios within this, such as 0.005, in 95 of 100 cases
    ///
    /// It begins with a thousandth of the blocks and reads the trace again for each larger sample.
    #[arg(long, value_name = "SHARE", value_parser = parse_accuracy, conflicts_with = "sample")]
    accuracy: Option<f64>,
    /// Which blocks are in the sample: another number, others
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = help::INPUT)]
    sample_seed: u64,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let share = text.parse::<Share>().map(Share::of_one).ok().filter(|&share| share > 0.0);
    share.ok_or_else(|| format!("found '{text}', expected a share above 0% and up to 100%, such as 1% or 0.01"))
}

fn parse_accuracy(text: &str) -> Result<f64, String> {
    let share = text.parse::<Share>().map(Share::of_one).ok().filter(|&share| share > 0.0 && share < 1.0);
    share.ok_or_else(|| format!("found '{text}', expected a share between 0% and 100%, such as 0.005 or 0.5%"))
}

impl SampleOptions {
    /// Whether a sample is simulated, of one size or several.
    pub fn is_given(&self) -> bool {
        self.sample.is_some() || self.accuracy.is_some()
    }

    /// Refuses what a sample cannot tell: of policies `alone` it tells all, of caches that are `asked_requests` nothing.
    ///
    /// # Errors
    /// What was found, and what was expected.
    pub fn check(&self, alone: bool, asked_requests: bool) -> Result<(), Misuse> {
        if self.is_given() && asked_requests {
            let what = "a sample has parts of requests: found --layout log, wlfc, wlfc_c or b-like beside --sample or --accuracy, \
                        expected another layout";
            return Err(Misuse(what.to_owned()));
        }
        if self.accuracy.is_some() && !alone {
            let what =
                "--accuracy is of policies alone: found RAM, admission, devices or wear beside it, expected --sample";
            return Err(Misuse(what.to_owned()));
        }
        Ok(())
    }

    /// Opens the traces, each or joined to one, or the sample of them that was asked for, with whole requests if they are `judged`.
    pub fn open(
        &self,
        input: &InputOptions,
        traces: &[PathBuf],
        join: bool,
        judged: bool,
    ) -> Result<Vec<Trace>, TraceError> {
        match self.sample {
            Some(rate) => self.sampled(input, traces, join, rate, judged),
            None if join => Ok(vec![input.open_joined(traces)?]),
            None => traces.iter().map(|path| input.open(path)).collect(),
        }
    }

    fn sampled(
        &self,
        input: &InputOptions,
        traces: &[PathBuf],
        join: bool,
        rate: f64,
        judged: bool,
    ) -> Result<Vec<Trace>, TraceError> {
        let sampling = Sampling::new(rate, self.sample_seed).expect("the share was checked");
        let sampling = if judged { sampling.by_groups() } else { sampling };
        match join {
            true => Ok(vec![input.open_joined_sampled(traces, sampling)?]),
            false => traces.iter().map(|path| input.open_sampled(path, sampling)).collect(),
        }
    }

    /// Opens the traces and works on them; if an accuracy was asked for, again with larger samples until `margin` says that the work was accurate
    /// enough. A margin of none is that of a sample which is too small to say.
    pub fn accurate<T>(
        &self,
        input: &InputOptions,
        traces: &[PathBuf],
        join: bool,
        work: impl Fn(&[Trace]) -> anyhow::Result<T>,
        margin: impl Fn(&T) -> Option<f64>,
    ) -> anyhow::Result<(Vec<Trace>, T)> {
        let Some(accuracy) = self.accuracy else {
            let traces = self.open(input, traces, join, false)?;
            let done = work(&traces)?;
            return Ok((traces, done));
        };
        if traces.iter().any(|path| path == Path::new("-")) {
            let what = "--accuracy reads a trace more than once, and standard input can be read once: expected a file, or --sample";
            return Err(Misuse(what.to_owned()).into());
        }
        let mut rate = RATE_FIRST;
        loop {
            let found = match self.sampled(input, traces, join, rate, false) {
                Ok(traces) => {
                    let done = work(&traces)?;
                    let margin = margin(&done);
                    if rate >= 1.0 || margin.is_some_and(|margin| margin <= accuracy) {
                        return Ok((traces, done));
                    }
                    margin
                }
                Err(TraceError::EmptySample { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            // Errors fall with the root of the size.
            let wanted = found.map_or(GROWTH.0, |margin| 1.1 * (margin / accuracy).powi(2));
            rate *= wanted.clamp(GROWTH.0, GROWTH.1);
            if rate > RATE_LAST {
                rate = 1.0;
            }
        }
    }
}
