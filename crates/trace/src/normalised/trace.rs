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

/// A normalised trace; a clone shares what is mapped.
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

    /// The trace in the bytes of a trace file.
    pub(crate) fn of_bytes(name: &str, bytes: Vec<u8>) -> Result<Trace, TraceError> {
        let file = TraceFile::of_bytes(bytes).map_err(|unmapped| refusal(name, unmapped))?;
        Ok(Trace { name: name.to_owned(), file, sample: None })
    }

    /// A trace of these parts.
    pub(crate) fn of_file(name: &str, file: TraceFile) -> Trace {
        Trace { name: name.to_owned(), file, sample: None }
    }

    /// The same as a sample of a whole trace. What is known of its requests and times is that of the whole trace.
    pub(crate) fn into_sample(self, sample: Sample) -> Trace {
        Trace { sample: Some(Box::new(sample)), ..self }
    }

    /// What is known of the whole trace, if this is a sample.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_deref()
    }

    /// Block accesses of the trace, or of the whole trace if this is a sample.
    pub fn whole_len(&self) -> u64 {
        self.sample().map_or(self.len() as u64, Sample::accesses)
    }

    /// Different blocks of the trace; of the whole trace if this is a sample: their number, or an estimate where they were not counted.
    pub fn whole_unique_blocks(&self) -> u64 {
        let blocks = self.unique_blocks() as u64;
        let estimate = |sample: &Sample| (blocks as f64 / sample.sampling().rate()).round() as u64;
        self.sample().map_or(blocks, |sample| sample.unique_blocks().unwrap_or_else(|| estimate(sample)))
    }

    /// What reports call it: its path as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length of a block.
    pub fn block_size_bytes(&self) -> u64 {
        self.file.block_size_bytes
    }

    /// Block accesses.
    pub fn len(&self) -> usize {
        self.file.batches.iter().map(|columns| columns.rows).sum()
    }

    /// Never: a trace holds at least one access.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Different blocks; block ids are smaller.
    pub fn unique_blocks(&self) -> usize {
        self.file.addresses.len()
    }

    /// Addresses of the blocks, by id; see [`BlockAddress`](crate::normalised::numbering::BlockAddress).
    pub fn addresses(&self) -> &[u64] {
        &self.file.addresses
    }

    /// What is known of the trace besides its accesses.
    pub fn description(&self) -> &Description {
        &self.file.description
    }

    /// What is known of the requests' times.
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

    /// The time of the first access.
    pub fn first_us(&self) -> i64 {
        self.batches().next().map_or(0, |columns| columns.time_us[0])
    }

    /// Why nothing can be said per day or per year of this trace, if so.
    pub fn rates_refused(&self) -> Option<String> {
        self.times().refusal(self.description().requests)
    }

    /// The accesses in order, cut into batches of columns. Of a long trace that is packed on disk, each batch unpacks what is used of it, and is
    /// gone when it is dropped.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Columns> + ExactSizeIterator {
        self.file.batches.iter().cloned()
    }

    /// The accesses in order: block id and op.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, Op)> {
        self.batches().flat_map(|columns| {
            let (blocks, ops) = (columns.block.buffer().clone(), columns.op.buffer().clone());
            let op = |op: u8| if op == 0 { Op::Read } else { Op::Write };
            (0..columns.rows).map(move |row| (blocks[row] as u32, op(ops[row])))
        })
    }

    /// For each access the position of the next access to the same block, or [`NEVER`]; 4 bytes per access, made by one backward
    /// pass. `progress` may end it.
    ///
    /// # Errors
    /// A trace of 2^32 - 1 accesses or more has positions that do not fit.
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
            // Who does not want the work any more ends it here.
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
