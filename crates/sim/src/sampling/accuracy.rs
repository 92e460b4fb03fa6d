//! Samples that are as accurate as somebody asks: larger and larger ones, until one tells hit ratios within that.

use flashwise_core::quantity::Share;

use super::SampleFigures;
use crate::job::{Job, Meaning};

/// The first sample: a thousandth of the blocks.
const RATE_FIRST: f64 = 0.001;
/// Samples that would be larger than this are all of the trace.
const RATE_LAST: f64 = 0.5;
/// A sample that was not accurate enough is followed by one that is at least and at most this many times as large.
const GROWTH: (f64, f64) = (2.0, 30.0);

/// What comes of `work` on a sample of which `margin` says that hit ratios are off by no more than `accuracy`. A margin of none is that of a sample that
/// is too small to say; so is one with no accesses, of which `is_empty` tells by the error. Where no sample says it of all `jobs`, whose work it is, all of the
/// trace is taken at once.
///
/// # Errors
/// Those of `work`.
pub fn accurate<T, E>(
    accuracy: f64,
    jobs: &[Job],
    work: impl Fn(Option<Share>) -> Result<T, E>,
    is_empty: impl Fn(&E) -> bool,
    margin: impl Fn(&T) -> Option<f64>,
) -> Result<T, E> {
    if takes_whole_trace(jobs) {
        return work(None);
    }
    let mut rate = if any(jobs, Meaning::is_on_flash) { 1.0 } else { RATE_FIRST };
    loop {
        let found = match work(Share::new(rate)) {
            Ok(done) => {
                let margin = margin(&done);
                if rate >= 1.0 || margin.is_some_and(|margin| margin <= accuracy) {
                    return Ok(done);
                }
                margin
            }
            Err(error) if is_empty(&error) => None,
            Err(error) => return Err(error),
        };
        // Errors fall with the root of the size.
        let wanted = found.map_or(GROWTH.0, |margin| 1.1 * (margin / accuracy).powi(2));
        rate *= wanted.clamp(GROWTH.0, GROWTH.1);
        if rate > RATE_LAST {
            rate = 1.0;
        }
    }
}

/// Whether one of the jobs is of a cache that is asked whole requests, of which there is no sample: all of them run over the whole trace.
pub fn takes_whole_trace(jobs: &[Job]) -> bool {
    any(jobs, Meaning::asks_requests)
}

fn any(jobs: &[Job], is: fn(&Meaning) -> bool) -> bool {
    jobs.iter().any(|job| Job { sample: None, ..job.clone() }.meaning().is_ok_and(|meaning| is(&meaning)))
}

/// How far hit ratios from samples are off at most; none if a sample is too small to say.
pub fn margin<'a>(samples: impl IntoIterator<Item = &'a Option<SampleFigures>>) -> Option<f64> {
    let margin = |sample: &Option<SampleFigures>| match sample {
        Some(sample) if sample.sample_caveat.is_some() => None,
        Some(sample) => Some(sample.hit_ratio_margin),
        None => Some(0.0),
    };
    samples.into_iter().map(margin).try_fold(0.0, |most: f64, margin| Some(most.max(margin?)))
}

/// What an accuracy may be: a share above 0 and below 1.
///
/// # Errors
/// What was found and what is expected.
pub fn parse_accuracy(text: &str) -> Result<f64, String> {
    let share = text.parse::<Share>().map(Share::of_one).ok().filter(|&share| share > 0.0 && share < 1.0);
    share.ok_or_else(|| format!("found '{text}', expected a share between 0% and 100%, such as 0.005 or 0.5%"))
}
