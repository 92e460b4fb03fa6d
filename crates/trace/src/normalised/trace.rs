//! A normalised trace: block accesses with dense ids, mapped into memory.

use std::fs::File;
use std::path::Path;

use flashwise_core::access::{NEVER, Op};

pub use super::description::Description;
use super::times::{Clock, Times};
use super::trace_file::{Columns, Refused, TraceFile, Unmapped};
use crate::error::TraceError;
use crate::progress::Progress;
use crate::sampling::Sample;

pub use crate::normalised::trace_file::Columns as Accesses;

/// A normalised trace; a clone shares the mapping.
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    file: TraceFile,
    sample: Option<Box<Sample>>,
}

impl Trace {
    /// Maps the trace file at `path`.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| TraceError::Io { path: name.clone(), source })?;
        Self::map(&name, &file)
    }

    /// Maps a trace file that is open for reading; errors and reports call it `name`.
    pub fn map(name: &str, file: &File) -> Result<Trace, TraceError> {
        let file = TraceFile::map(file).map_err(|unmapped| refusal(name, unmapped))?;
        Ok(Trace { name: name.to_owned(), file, sample: None })
    }

    /// Creates the trace from the bytes of a trace file.
    pub(crate) fn of_bytes(name: &str, bytes: Vec<u8>) -> Result<Trace, TraceError> {
        let file = TraceFile::of_bytes(bytes).map_err(|unmapped| refusal(name, unmapped))?;
        Ok(Trace { name: name.to_owned(), file, sample: None })
    }

    /// Creates a trace of these parts.
    pub(crate) fn of_file(name: &str, file: TraceFile) -> Trace {
        Trace { name: name.to_owned(), file, sample: None }
    }

    /// Converts the trace to a sample of a whole trace. Its description and times are those of the whole trace.
    pub(crate) fn into_sample(self, sample: Sample) -> Trace {
        Trace { sample: Some(Box::new(sample)), ..self }
    }

    /// Returns the facts about the whole trace, if this is a sample.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_deref()
    }

    /// Returns the number of block accesses of the trace, or of the whole trace if this is a sample.
    pub fn whole_len(&self) -> u64 {
        self.sample().map_or(self.len() as u64, Sample::accesses)
    }

    /// Returns the number of distinct blocks of the trace. For a sample it is that of the whole trace, estimated if it
    /// was not counted.
    pub fn whole_unique_blocks(&self) -> u64 {
        let blocks = self.unique_blocks() as u64;
        let estimate = |sample: &Sample| (blocks as f64 / sample.sampling().rate()).round() as u64;
        self.sample().map_or(blocks, |sample| sample.unique_blocks().unwrap_or_else(|| estimate(sample)))
    }

    /// Returns the name for reports: the path as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length of a block, in bytes.
    pub fn block_size_bytes(&self) -> u64 {
        self.file.block_size_bytes
    }

    /// Returns the number of block accesses.
    pub fn len(&self) -> usize {
        self.file.batches.iter().map(|columns| columns.rows).sum()
    }

    /// Always false: a trace has at least one access.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of distinct blocks; block ids are smaller.
    pub fn unique_blocks(&self) -> usize {
        self.file.addresses.len()
    }

    /// Returns the addresses of the blocks, by id; see [`BlockAddress`](crate::normalised::numbering::BlockAddress).
    pub fn addresses(&self) -> &[u64] {
        &self.file.addresses
    }

    /// Returns the description of the trace.
    pub fn description(&self) -> &Description {
        &self.file.description
    }

    /// Returns the figures of the requests' times.
    pub fn times(&self) -> Times {
        self.description().times.unwrap_or_else(|| {
            let (mut clock, mut last) = (Clock::default(), None);
            for columns in self.batches() {
                for (&request, &time_us) in columns.request.iter().zip(columns.time_us.iter()) {
                    if last.replace(request) != Some(request) {
                        clock.tick(time_us);
                    }
                }
            }
            clock.times()
        })
    }

    /// Returns the time of the first access.
    pub fn first_us(&self) -> i64 {
        self.batches().next().map_or(0, |columns| columns.time_us[0])
    }

    /// Returns the reason why this trace has no rates per day or year, if there is one.
    pub fn rates_refused(&self) -> Option<String> {
        self.times().refusal(self.description().requests)
    }

    /// Returns the accesses in order, in batches of columns. If a long trace is packed on disk, each batch unpacks only
    /// the columns in use, and frees them when it is dropped.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Columns> + ExactSizeIterator {
        self.file.batches.iter().cloned()
    }

    /// Returns the accesses in order: block id and op.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, Op)> {
        self.batches().flat_map(|columns| {
            let (blocks, ops) = (columns.block.buffer().clone(), columns.op.buffer().clone());
            let op = |op: u8| if op == 0 { Op::Read } else { Op::Write };
            (0..columns.rows).map(move |row| (blocks[row] as u32, op(ops[row])))
        })
    }

    /// Returns for each access the position of the next access to the same block, or [`NEVER`]. Takes 4 bytes per
    /// access and one backward pass. `progress` may cancel it.
    ///
    /// # Errors
    /// A trace of 2^32 - 1 accesses or more, whose positions do not fit.
    pub fn next_uses(&self, progress: &dyn Progress) -> Result<Vec<u32>, TraceError> {
        let len = self.len();
        if len >= NEVER as usize {
            let (path, most) = (self.name.clone(), u64::from(NEVER) - 1);
            return Err(TraceError::TooLarge { path, what: "accesses for an offline policy", found: len as u64, most });
        }
        let mut next_uses = vec![NEVER; len];
        let mut next_use_of = vec![NEVER; self.unique_blocks()];
        let mut end = len;
        for columns in self.batches().rev() {
            let (blocks, start) = (&columns.block[..], end - columns.rows);
            for position in (start..end).rev() {
                let block = blocks[position - start] as usize;
                next_uses[position] = std::mem::replace(&mut next_use_of[block], position as u32);
            }
            end = start;
            // The progress can cancel the work here.
            progress.advance(0);
        }
        Ok(next_uses)
    }
}

fn refusal(name: &str, unmapped: Unmapped) -> TraceError {
    match unmapped {
        Unmapped::Io(source) => TraceError::Io { path: name.to_owned(), source },
        Unmapped::Damaged(found) => TraceError::Checksum { path: name.to_owned(), found },
        Unmapped::Refused(Refused { found, expected }) => TraceError::NotATrace { path: name.into(), found, expected },
    }
}
