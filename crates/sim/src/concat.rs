//! Joins traces: one after another, as a single trace.
//!
//! Source: LARC (MSST 2013), section IV.B, trace *ws_con*: "We append another piece of trace to websearch. [...] With this
//! synthetic trace, we investigated how LARC behaves when the popularity of blocks change in a sudden."

use std::ops::ControlFlow;

use flashwise_core::quantity::ByteSize;

use crate::error::TraceError;
use crate::normalise::{DEFAULT_BLOCK_SIZE_BYTES, Normaliser, Settings};
use crate::output::write_whole;
use crate::progress::Progress;
use crate::request::{Request, Volumes};
use crate::requests::Requests;
use crate::trace::Description;

/// How traces are joined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Concat {
    /// Whether equal addresses in different traces are different blocks: volume V of the n-th trace becomes n:V.
    pub apart: bool,
    /// Time from the last request of a trace to the first of the next.
    pub gap_us: u64,
}

/// Writes the traces at `paths` as one normalised trace to `out`. `progress` is told of the bytes read.
///
/// # Errors
/// The normalised traces among them must have one block size; the others are read with it.
pub fn concat(
    paths: &[String],
    out: &str,
    concat: Concat,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Description, TraceError> {
    let open = |path: &String| Requests::open(path, settings, progress);
    let traces = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let block_size_bytes = block_size_bytes(&traces, settings)?;
    write_whole(out, paths, |file| {
        let mut normaliser = Normaliser::to(out, out, block_size_bytes, file)?;
        normaliser.description.format = formats(&traces);
        let mut end_us = None;
        for (number, requests) in traces.into_iter().enumerate() {
            if let Requests::Normalised(trace, _) = &requests {
                normaliser.description.skipped_records += trace.description().skipped_records;
                normaliser.description.malformed_records += trace.description().malformed_records;
            }
            let prefix = concat.apart.then(|| format!("{}:", number + 1));
            end_us = Some(append(
                requests,
                &mut normaliser,
                prefix.as_deref(),
                end_us.map(|end_us: i64| end_us.saturating_add_unsigned(concat.gap_us)),
            )?);
        }
        let description = normaliser.description.clone();
        normaliser.finish()?;
        Ok(description)
    })
}

/// Adds one trace, the first request of which comes at `start_us` or when it came. Returns the time of its last request.
fn append(
    requests: Requests,
    normaliser: &mut Normaliser<&mut dyn std::io::Write>,
    prefix: Option<&str>,
    start_us: Option<i64>,
) -> Result<i64, TraceError> {
    let mut shift_us = None;
    let mut last_us = i64::MIN;
    let name = requests.name().to_owned();
    requests.for_each_batch(normaliser.block_size_bytes(), |mut batch| {
        if let Some(prefix) = prefix {
            batch.volumes = prefixed(&batch.volumes, prefix);
        }
        if let Some(first) = batch.requests.first() {
            shift_us.get_or_insert(start_us.unwrap_or(first.time_us).saturating_sub(first.time_us));
        }
        let shift_us = shift_us.unwrap_or(0);
        for request in &mut batch.requests {
            *request = Request { time_us: request.time_us.saturating_add(shift_us), ..*request };
            last_us = last_us.max(request.time_us);
        }
        normaliser.batch(batch).map(ControlFlow::Continue)
    })?;
    if last_us == i64::MIN { Err(TraceError::Empty { path: name }) } else { Ok(last_us) }
}

fn prefixed(volumes: &Volumes, prefix: &str) -> Volumes {
    let mut prefixed = Volumes::default();
    for name in volumes.names() {
        prefixed.number(&[prefix.as_bytes(), name].concat());
    }
    prefixed
}

fn block_size_bytes(traces: &[Requests], settings: &Settings) -> Result<u64, TraceError> {
    let normalised = traces.iter().filter_map(|requests| match requests {
        Requests::Normalised(trace, _) => Some(trace),
        Requests::Original(..) => None,
    });
    let normalised: Vec<_> = normalised.collect();
    for requests in traces {
        requests.block_size_bytes(settings)?;
    }
    let Some(first) = normalised.first() else {
        return Ok(settings.block_size_bytes.unwrap_or(DEFAULT_BLOCK_SIZE_BYTES));
    };
    let expected = first.block_size_bytes();
    match normalised.iter().find(|trace| trace.block_size_bytes() != expected) {
        None => Ok(expected),
        Some(other) => Err(TraceError::BlockSizes {
            path: other.name().to_owned(),
            found: ByteSize::new(other.block_size_bytes()).to_string(),
            expected: ByteSize::new(expected).to_string(),
            other: first.name().to_owned(),
        }),
    }
}

/// The formats of the traces, each named once.
fn formats(traces: &[Requests]) -> String {
    let mut formats: Vec<&str> = traces.iter().map(Requests::format).collect();
    formats.sort_unstable();
    formats.dedup();
    formats.join("+")
}
