//! Samples of a required accuracy: larger and larger ones until hit ratios are accurate enough.

use flashwise_core::quantity::Share;

use super::SampleFigures;
use crate::job::{Job, Meaning};

/// The first sample: a thousandth of the blocks.
const RATE_FIRST: f64 = 0.001;
/// A sample that would be larger is replaced by the whole trace.
const RATE_LAST: f64 = 0.5;
/// Smallest and largest factor from a sample that was not accurate enough to the next.
const GROWTH: (f64, f64) = (2.0, 30.0);

/// Runs `work` on growing samples until the `margin` of its hit ratios is within `accuracy`. A margin of `None` means
/// that the sample is too small to have one; so does an error for which `is_empty` is true. If a job among `jobs`
/// cannot be sampled, the whole trace is used at once.
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
        // The error falls with the square root of the size.
        let wanted = found.map_or(GROWTH.0, |margin| 1.1 * (margin / accuracy).powi(2));
        rate *= wanted.clamp(GROWTH.0, GROWTH.1);
        if rate > RATE_LAST {
            rate = 1.0;
        }
    }
}

/// True if a job is of a cache that sees whole requests, which cannot be sampled: then all jobs run over the whole
/// trace.
pub fn takes_whole_trace(jobs: &[Job]) -> bool {
    any(jobs, Meaning::asks_requests)
}

fn any(jobs: &[Job], is: fn(&Meaning) -> bool) -> bool {
    jobs.iter().any(|job| Job { sample: None, ..job.clone() }.meaning().is_ok_and(|meaning| is(&meaning)))
}

/// Largest margin of hit ratios from samples; `None` if a sample is too small to have one.
pub fn margin<'a>(samples: impl IntoIterator<Item = &'a Option<SampleFigures>>) -> Option<f64> {
    let margin = |sample: &Option<SampleFigures>| match sample {
        Some(sample) if sample.sample_caveat.is_some() => None,
        Some(sample) => Some(sample.hit_ratio_margin),
        None => Some(0.0),
    };
    samples.into_iter().map(margin).try_fold(0.0, |most: f64, margin| Some(most.max(margin?)))
}

/// Parses an accuracy: a share above 0 and below 1.
///
/// # Errors
/// The value found and the value expected.
pub fn parse_accuracy(text: &str) -> Result<f64, String> {
    let share = text.parse::<Share>().map(Share::of_one).ok().filter(|&share| share > 0.0 && share < 1.0);
    share.ok_or_else(|| format!("found '{text}', expected a share between 0% and 100%, such as 0.005 or 0.5%"))
}
