//! Joins traces: one after another, as a single trace.
//!
//! Source: LARC (MSST 2013), section IV.B, trace *ws_con*: "We append another piece of trace to websearch. [...] With this
//! synthetic trace, we investigated how LARC behaves when the popularity of blocks change in a sudden."

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::files::{name_of, temporary_file};
use crate::formats::Batch;
use crate::normalised::trace::Trace;
use crate::normalised::{Description, Normaliser, Settings, check_block_size};
use crate::output::write_whole;
use crate::progress::Progress;
use crate::request::Volumes;
use crate::request_file::{RequestFile, RequestWriter};
use crate::requests::{Requests, about, block_size_bytes};

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
    paths: &[PathBuf],
    out: impl AsRef<Path>,
    concat: Concat,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Description, TraceError> {
    let (out, out_name) = (out.as_ref(), name_of(out.as_ref()));
    let open = |path: &PathBuf| Requests::open(path, settings, progress);
    let traces = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let block_size_bytes = block_size_bytes(&traces, settings)?;
    write_whole(out, paths, |file| {
        let mut normaliser = Normaliser::to(&out_name, &out_name, block_size_bytes, file)?;
        normaliser.description = about(&traces);
        let mut end_us = None;
        for (number, requests) in traces.into_iter().enumerate() {
            let prefix = concat.apart.then(|| format!("{}:", number + 1));
            let start =
                end_us.map_or(Start::AsItIs, |end_us: i64| Start::At(end_us.saturating_add_unsigned(concat.gap_us)));
            let name = requests.name().to_owned();
            end_us = append(requests, &mut normaliser, prefix.as_deref(), start, &mut |_| Ok(()))?;
            if end_us.is_none() {
                return Err(TraceError::Empty { path: name });
            }
        }
        let description = normaliser.described();
        normaliser.finish()?;
        Ok(description)
    })
}

/// Opens traces as one, each after the one before, such as the segments of a recording. A trace keeps its times if they go on where
/// the one before ended; otherwise, as after a new start of a server, whose clock begins at 0, they are moved by whole seconds.
/// Those that hold no requests add none.
///
/// # Errors
/// As of [`concat()`]; at least one request is needed.
pub fn join(paths: &[PathBuf], settings: &Settings, progress: &dyn Progress) -> Result<Trace, TraceError> {
    join_with(paths, settings, progress, |_| Ok(()))
}

/// As [`join`], with the requests as they came.
///
/// # Errors
/// As of [`join`]; a block size other than that of a cache is refused.
pub fn join_with_requests(
    paths: &[PathBuf],
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(Trace, RequestFile), TraceError> {
    let mut writer = RequestWriter::new()?;
    let trace = join_with(paths, settings, progress, |batch| writer.batch(batch))?;
    check_block_size(trace.name(), trace.block_size_bytes())?;
    let requests = writer.finish(trace.name())?;
    Ok((trace, requests))
}

fn join_with(
    paths: &[PathBuf],
    settings: &Settings,
    progress: &dyn Progress,
    mut tap: impl FnMut(&Batch) -> Result<(), TraceError>,
) -> Result<Trace, TraceError> {
    let name = match paths {
        [] => String::new(),
        [path] => name_of(path),
        [first, .., last] => format!("{}..{}", name_of(first), name_of(last)),
    };
    let mut traces = Vec::new();
    for path in paths {
        match Requests::open(path, settings, progress) {
            Ok(requests) => traces.push(requests),
            // Its server was killed before it wrote anything.
            Err(TraceError::Empty { .. }) => progress.ends_early(&name_of(path), 0),
            Err(error) => return Err(error),
        }
    }
    let out = BufWriter::with_capacity(1 << 20, temporary_file()?);
    let mut normaliser = Normaliser::new(&name, block_size_bytes(&traces, settings)?, out)?;
    normaliser.description = about(&traces);
    let mut end_us = None;
    for requests in traces {
        let start = end_us.map_or(Start::AsItIs, Start::After);
        end_us = append(requests, &mut normaliser, None, start, &mut tap)?.or(end_us);
    }
    let file = normaliser.finish()?.into_inner();
    let file = file.map_err(|error| TraceError::Io { path: name.clone(), source: error.into_error() })?;
    Trace::map(&name, &file)
}

/// When the first request of a trace comes.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// When it came.
    AsItIs,
    /// At this time, in microseconds.
    At(i64),
    /// When it came, if that is not before this time, the end of another trace; otherwise whole seconds later.
    After(i64),
}

const SECOND_US: i64 = 1_000_000;

impl Start {
    /// What to add to the times of a trace that begins at `first_us`.
    fn shift_us(self, first_us: i64) -> i64 {
        match self {
            Start::AsItIs => 0,
            Start::At(start_us) => start_us.saturating_sub(first_us),
            // Threads that record at the same time may be out of order by a moment.
            Start::After(end_us) if first_us.saturating_add(SECOND_US) >= end_us => 0,
            Start::After(end_us) => {
                let behind_us = end_us.saturating_sub(first_us);
                behind_us.saturating_add((SECOND_US - behind_us % SECOND_US) % SECOND_US)
            }
        }
    }
}

/// Adds one trace. `tap` is shown each batch as it is added. Returns the time of its last request, if it has any.
fn append<W: Write>(
    requests: Requests,
    normaliser: &mut Normaliser<W>,
    prefix: Option<&str>,
    start: Start,
    tap: &mut dyn FnMut(&Batch) -> Result<(), TraceError>,
) -> Result<Option<i64>, TraceError> {
    let (mut shift_us, mut last_us) = (None, None);
    requests.for_each_batch(normaliser.block_size_bytes(), &mut |mut batch| {
        if let Some(prefix) = prefix {
            batch.volumes = prefixed(&batch.volumes, prefix);
        }
        // A recording's requests are in both lists, those that are no accesses in one.
        let first = batch.recorded.first().map(|request| request.time_us);
        if let Some(first_us) = first.or(batch.requests.first().map(|request| request.time_us)) {
            let shift_us = *shift_us.get_or_insert_with(|| start.shift_us(first_us));
            let recorded = batch.recorded.iter_mut().map(|request| &mut request.time_us);
            for time_us in recorded.chain(batch.requests.iter_mut().map(|request| &mut request.time_us)) {
                *time_us = time_us.saturating_add(shift_us);
                last_us = last_us.max(Some(*time_us));
            }
        }
        tap(&batch)?;
        normaliser.batch(batch).map(ControlFlow::Continue)
    })?;
    Ok(last_us)
}

fn prefixed(volumes: &Volumes, prefix: &str) -> Volumes {
    let mut prefixed = Volumes::default();
    for name in volumes.names() {
        prefixed.number(&[prefix.as_bytes(), name].concat());
    }
    prefixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_does_not_go_on_is_moved_by_whole_seconds_to_the_end_of_the_one_before() {
        for (start, first_us, shift_us) in [
            (Start::AsItIs, 7, 0),
            (Start::At(100), 7, 93),
            (Start::After(5_000_000), 5_000_001, 0),
            (Start::After(5_000_000), 4_999_990, 0),
            (Start::After(5_000_000), 0, 5_000_000),
            (Start::After(5_300_000), 200_000, 6_000_000),
            (Start::After(i64::MAX), i64::MIN, i64::MAX),
        ] {
            assert_eq!(start.shift_us(first_us), shift_us, "{start:?} {first_us}");
        }
    }
}
