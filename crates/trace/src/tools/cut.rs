//! Cuts a part out of a trace: the requests of a range, of a time or of some volumes.
//!
//! A cut is an independent trace: blocks, requests and times are renumbered from its own first request. Requests stay
//! whole. Those of a normalised trace span whole blocks; cut the original if lengths in bytes matter.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use crate::error::TraceError;
use crate::formats::Batch;
use crate::normalised::{Description, Normaliser, Settings};
use crate::output::{output_name, write_whole};
use crate::progress::Progress;
use crate::request::{Request, blocks_of, volume_name};
use crate::requests::Requests;

/// The selection: requests that satisfy all of these conditions.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The request's number in the trace, from 0, is in this range.
    pub requests: Range<u64>,
    /// The position of the request's first block access, from 0, is in this range.
    pub accesses: Range<u64>,
    /// The time since the trace's first request is in this range, in microseconds.
    pub time_us: Range<i64>,
    /// The request is for one of these volumes, or for any if the list is empty.
    pub volumes: Vec<String>,
}

impl Default for Cut {
    /// Selects all requests.
    fn default() -> Self {
        Cut { requests: 0..u64::MAX, accesses: 0..u64::MAX, time_us: i64::MIN..i64::MAX, volumes: Vec::new() }
    }
}

/// Writes the part `cut` of the trace at `path` as a normalised trace to `out`. `progress` receives the number of bytes
/// read. Memory: the same as for normalising the cut. Data after the ranges of requests and accesses is not read.
///
/// # Errors
/// An empty cut, and a volume that does not exist.
pub fn cut(
    path: impl AsRef<Path>,
    out: impl AsRef<Path>,
    cut: &Cut,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Description, TraceError> {
    let (path, out) = (path.as_ref(), out.as_ref());
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = requests.block_size_bytes(settings)?;
    let name = requests.name().to_owned();
    let inputs = [path.to_owned()];
    write_whole(out, &inputs, |file| {
        let mut normaliser = Normaliser::to(&output_name(out), &name, block_size_bytes, file)?;
        let about = requests.about();
        (normaliser.description.format, normaliser.description.columns) = (about.format, about.columns);
        let mut selection = Selection::new(cut, block_size_bytes);
        requests.for_each_batch(block_size_bytes, &mut |mut batch| {
            let volumes = std::mem::take(&mut batch.volumes);
            let wanted = selection.volumes(volumes.names());
            let mut numbers = vec![None; wanted.len()];
            for request in &batch.requests {
                if !selection.takes(request) || !wanted[request.volume as usize] {
                    continue;
                }
                let number = &mut numbers[request.volume as usize];
                let volume = match *number {
                    Some(volume) => volume,
                    None => *number.insert(normaliser.volume(&volumes.names()[request.volume as usize])?),
                };
                normaliser.request(&Request { volume, ..*request })?;
            }
            normaliser.batch(Batch { requests: Vec::new(), ..batch })?;
            Ok(if selection.is_past() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        selection.check_volumes(&name)?;
        if normaliser.description.requests == 0 {
            return Err(TraceError::NothingLeft { path: name.clone() });
        }
        let description = normaliser.described();
        normaliser.finish()?;
        Ok(description)
    })
}

/// The progress of the selection.
struct Selection<'a> {
    cut: &'a Cut,
    block_size_bytes: u64,
    start_us: Option<i64>,
    requests: u64,
    accesses: u64,
    /// The names of the volumes seen so far.
    seen: std::collections::BTreeSet<String>,
}

impl<'a> Selection<'a> {
    fn new(cut: &'a Cut, block_size_bytes: u64) -> Self {
        Selection { cut, block_size_bytes, start_us: None, requests: 0, accesses: 0, seen: Default::default() }
    }

    /// Returns for each volume whether it is selected.
    fn volumes(&mut self, names: &[Vec<u8>]) -> Vec<bool> {
        let wanted = |name: &Vec<u8>| {
            if self.cut.volumes.is_empty() {
                return true;
            }
            let name = volume_name(name);
            let wanted = self.cut.volumes.contains(&name);
            self.seen.insert(name);
            wanted
        };
        names.iter().map(wanted).collect()
    }

    /// True if the next request of the trace is in all the ranges.
    fn takes(&mut self, request: &Request) -> bool {
        let start_us = *self.start_us.get_or_insert(request.time_us);
        let time_us = request.time_us.saturating_sub(start_us);
        let takes = self.cut.requests.contains(&self.requests)
            && self.cut.accesses.contains(&self.accesses)
            && self.cut.time_us.contains(&time_us);
        self.requests += 1;
        self.accesses += blocks_of(request, self.block_size_bytes);
        takes
    }

    /// True if no later request can be in the ranges. Times are no criterion: some traces are not in order of time.
    fn is_past(&self) -> bool {
        self.requests >= self.cut.requests.end || self.accesses >= self.cut.accesses.end
    }

    fn check_volumes(self, path: &str) -> Result<(), TraceError> {
        let Some(missing) = self.cut.volumes.iter().find(|wanted| !self.seen.contains(*wanted)) else {
            return Ok(());
        };
        const NAMED_MAX: usize = 20;
        let mut volumes: Vec<_> = self.seen.into_iter().map(|name| format!("'{name}'")).collect();
        if volumes.len() > NAMED_MAX {
            volumes.truncate(NAMED_MAX);
            volumes.push("...".to_owned());
        }
        let (path, volume) = (path.to_owned(), missing.clone());
        Err(TraceError::NoSuchVolume { path, volume, volumes: volumes.join(", ") })
    }
}
