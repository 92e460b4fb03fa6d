//! Converts a trace in any format to a normalised trace: requests are split into blocks, blocks numbered, times
//! rebased.

pub(crate) mod checksum;
pub(crate) mod column;
mod description;
mod flatbuffer;
mod ipc;
pub mod numbering;
pub mod times;
pub mod trace;
pub(crate) mod trace_file;
pub(crate) mod values;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use flashwise_core::access::Op;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::quantity::ByteSize;

pub use crate::chunks::{SAMPLE_BYTES, parse};
use crate::error::TraceError;
use crate::files::{name_of, temporary_file, temporary_name};
use crate::formats::Batch;
use crate::input::Input;
use crate::normalised::checksum::Kept;
pub use crate::normalised::description::Description;
use crate::normalised::numbering::{BLOCK_BITS, BLOCKS_MAX, BlockAddress, Numbering, VOLUMES_MAX};
use crate::normalised::times::Clock;
use crate::normalised::trace::{Accesses, Trace};
use crate::normalised::trace_file::{BATCH_ROWS, ROW_BYTES};
use crate::normalised::writer::{Rows, TraceWriter};
use crate::original::Original;
use crate::progress::{Progress, Silent};
use crate::request::{Request, volume_name};
use crate::request_file::{RequestFile, RequestWriter};
use crate::requests::{Requests, rebuild};
use crate::room::Room;
use crate::sampling::{SampleNotes, Sampling};
pub use crate::settings::{DEFAULT_BLOCK_SIZE_BYTES, Settings};

/// The maximum length of a request in blocks; a longer one is damage.
const REQUEST_BLOCKS_MAX: u64 = 1 << 24;

/// Opens a trace of any kind. A normalised one is mapped. Any other is first normalised into a temporary file, which is
/// mapped and deleted when the trace is dropped. `progress` receives the number of bytes read from `path`.
///
/// # Errors
/// A normalised trace, if `settings` name a format or another block size than its own.
pub fn open(path: impl AsRef<Path>, settings: &Settings, progress: &dyn Progress) -> Result<Trace, TraceError> {
    let path = path.as_ref();
    let requests = Requests::open(path, settings, progress)?;
    requests.block_size_bytes(settings)?;
    match requests {
        Requests::Normalised(trace, _) => Ok(trace),
        requests => {
            let temporary = write_normalised(requests, settings, temporary_file()?, progress, |_| Ok(()))?;
            Trace::map(&name_of(path), &temporary)
        }
    }
}

/// Opens a trace of any kind, with its original requests; its input is read once.
///
/// # Errors
/// Those of [`open`], and a block size other than that of a cache.
pub fn open_with_requests(
    path: impl AsRef<Path>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(Trace, RequestFile), TraceError> {
    let requests = Requests::open(&path, settings, progress)?;
    let name = name_of(path.as_ref());
    check_block_size(&name, requests.block_size_bytes(settings)?)?;
    let mut writer = RequestWriter::new()?;
    let trace = match requests {
        Requests::Normalised(trace, _) => {
            rebuild(&trace, progress, |batch| writer.batch(&batch))?;
            trace
        }
        requests => {
            let tap = |batch: &Batch| writer.batch(batch);
            let temporary = write_normalised(requests, settings, temporary_file()?, progress, tap)?;
            Trace::map(&name, &temporary)?
        }
    };
    Ok((trace, writer.finish(&name)?))
}

/// Returns the reassembled requests of a normalised trace: they span whole blocks.
///
/// # Errors
/// A block size other than that of a cache.
pub fn requests_of(trace: &Trace, progress: &dyn Progress) -> Result<RequestFile, TraceError> {
    check_block_size(trace.name(), trace.block_size_bytes())?;
    let mut writer = RequestWriter::new()?;
    rebuild(trace, progress, |batch| writer.batch(&batch))?;
    writer.finish(trace.name())
}

/// Rejects a block size other than that of a cache.
pub(crate) fn check_block_size(path: &str, block_size_bytes: u64) -> Result<(), TraceError> {
    if block_size_bytes == BLOCK_BYTES as u64 {
        return Ok(());
    }
    let found = ByteSize::new(block_size_bytes).to_string();
    let (expected, other) = (ByteSize::new(BLOCK_BYTES as u64).to_string(), "the whole cache".to_owned());
    Err(TraceError::BlockSizes { path: path.to_owned(), found, expected, other })
}

/// Normalises `input` into a trace file written to `out`; returns `out`. Memory: some MiB, and that of [`Numbering`]
/// per unique block.
pub fn normalise<W: Write>(mut input: Input, settings: &Settings, out: W) -> Result<W, TraceError> {
    let original = Original::recognise(&mut input, settings)?;
    write_normalised(Requests::Original(input, original), settings, out, &Silent, |_| Ok(()))
}

/// Writes the normalised trace; `tap` receives each batch before it is normalised.
fn write_normalised<W: Write>(
    requests: Requests,
    settings: &Settings,
    out: W,
    progress: &dyn Progress,
    mut tap: impl FnMut(&Batch) -> Result<(), TraceError>,
) -> Result<W, TraceError> {
    let block_size_bytes = requests.block_size_bytes(settings)?;
    let out = BufWriter::with_capacity(1 << 20, out);
    let mut normaliser = Normaliser::new(requests.name(), block_size_bytes, out)?;
    normaliser.description = requests.about();
    let mut room = Room::of(&requests, progress);
    requests.for_each_batch(block_size_bytes, &mut |batch| {
        tap(&batch)?;
        normaliser.batch(batch)?;
        room.check(normaliser.written_bytes()).map(ControlFlow::Continue)
    })?;
    let out = normaliser.finish()?;
    out.into_inner().map_err(|error| TraceError::Io { path: temporary_name(), source: error.into_error() })
}

/// The common values of the accesses of a request.
#[derive(Clone, Copy)]
struct TraceRow {
    time_us: i64,
    op: Op,
    number: u64,
    blocks: u32,
}

/// The destination of rows.
enum Out<W: Write> {
    /// A trace file.
    File(TraceWriter<W>),
    /// None: they are collected here until they are taken.
    Passed(Vec<Accesses>),
}

/// Converts requests to the rows of a trace file.
pub struct Normaliser<W: Write> {
    path: String,
    out_path: String,
    block_size_bytes: u64,
    /// The binary logarithm of the block size, if it is a power of two.
    block_size_shift: Option<u32>,
    out: Out<W>,
    rows: Rows,
    /// The addresses of the blocks of `rows`, which are numbered when the rows are written: many at once is faster.
    addresses: Vec<u64>,
    numbering: Numbering,
    volumes: BTreeMap<Vec<u8>, u32>,
    clock: Clock,
    /// The facts for a sample, if not all accesses are kept.
    sample: Option<Box<SampleNotes>>,
    /// The accesses at the beginning, until the hot blocks are known, if a sample is kept.
    waiting: Option<Vec<(u64, u64, TraceRow)>>,
    /// The description of the trace, without its times.
    pub description: Description,
}

impl<W: Write> Normaliser<W> {
    /// Creates a trace file in `out`, a temporary file that needs no checksum; errors call the input `path`.
    pub fn new(path: &str, block_size_bytes: u64, out: W) -> Result<Self, TraceError> {
        Self::begin(temporary_name(), path, block_size_bytes, out, Kept::ForThisProcess)
    }

    /// Creates a trace file in `out`; errors call the input `path`, and the output `out_path`.
    pub fn to(out_path: &str, path: &str, block_size_bytes: u64, out: W) -> Result<Self, TraceError> {
        Self::begin(out_path.to_owned(), path, block_size_bytes, out, Kept::ForOthers)
    }

    fn begin(out_path: String, path: &str, block_size_bytes: u64, out: W, kept: Kept) -> Result<Self, TraceError> {
        let writer = TraceWriter::new(out, block_size_bytes, kept).map_err(|source| unwritten(&out_path, source))?;
        Ok(Self::to_out(out_path, path, block_size_bytes, Out::File(writer)))
    }

    fn to_out(out_path: String, path: &str, block_size_bytes: u64, out: Out<W>) -> Self {
        Normaliser {
            path: path.to_owned(),
            out_path,
            block_size_bytes,
            block_size_shift: block_size_bytes.is_power_of_two().then(|| block_size_bytes.trailing_zeros()),
            out,
            rows: Rows::with_capacity(BATCH_ROWS),
            addresses: Vec::with_capacity(BATCH_ROWS),
            numbering: Numbering::default(),
            volumes: BTreeMap::new(),
            clock: Clock::default(),
            sample: None,
            waiting: None,
            description: Description::default(),
        }
    }

    /// Keeps only a sample of the accesses of the requests added from now on.
    pub(crate) fn keep_sample(&mut self, sampling: Sampling) {
        self.sample = Some(Box::new(SampleNotes::new(sampling, self.block_size_bytes)));
        self.waiting = Some(Vec::new());
    }

    /// Returns the length of a block.
    pub fn block_size_bytes(&self) -> u64 {
        self.block_size_bytes
    }

    /// Adds the requests of a batch and counts the skipped records.
    pub fn batch(&mut self, batch: Batch) -> Result<(), TraceError> {
        self.description.malformed_records += batch.malformed.len() as u64;
        self.description.skipped_records += batch.skipped;
        self.description.tells_volumes = Some(!batch.volumes.tells_none());
        let mut volumes = Vec::new();
        for name in batch.volumes.names() {
            volumes.push(self.volume(name)?);
        }
        for request in &batch.requests {
            self.request(&Request { volume: volumes[request.volume as usize], ..*request })?;
        }
        Ok(())
    }

    /// Returns the number in this trace of the volume named `name`.
    pub fn volume(&mut self, name: &[u8]) -> Result<u32, TraceError> {
        if let Some(&number) = self.volumes.get(name) {
            return Ok(number);
        }
        let number = self.volumes.len() as u64;
        if number == VOLUMES_MAX {
            return Err(self.too_large("volumes", number + 1, VOLUMES_MAX));
        }
        self.volumes.insert(name.to_vec(), number as u32);
        self.description.volumes.push(volume_name(name));
        Ok(number as u32)
    }

    fn too_large(&self, what: &'static str, found: u64, most: u64) -> TraceError {
        TraceError::TooLarge { path: self.path.clone(), what, found, most }
    }

    /// Adds the blocks of one request, whose volume is numbered by [`volume`](Self::volume).
    #[inline]
    pub fn request(&mut self, request: &Request) -> Result<(), TraceError> {
        let first = self.block_of(request.offset_bytes);
        let last = self.block_of(request.offset_bytes + (request.length_bytes - 1));
        let blocks = last - first + 1;
        if blocks > REQUEST_BLOCKS_MAX {
            return Err(self.too_large("blocks of one request", blocks, REQUEST_BLOCKS_MAX));
        }
        let number = self.description.requests;
        let Some(last) = BlockAddress::new(request.volume, last) else {
            return Err(self.too_large("blocks of a volume", last + 1, 1 << BLOCK_BITS));
        };
        self.describe(request);
        let row = TraceRow {
            time_us: request.time_us.saturating_sub(self.description.start_us),
            op: request.op,
            number,
            blocks: blocks as u32,
        };
        let first = last.0 - (blocks - 1);
        if self.sample.is_some() { self.sampled(first, last.0, row) } else { self.accesses(first, last.0, row) }
    }

    /// Adds the accesses to the blocks from `first` to `last`.
    #[inline]
    fn accesses(&mut self, first: u64, last: u64, row: TraceRow) -> Result<(), TraceError> {
        let mut next = first;
        while next <= last {
            let room = BATCH_ROWS - self.addresses.len();
            let count = (last - next + 1).min(room as u64);
            self.addresses.extend(next..next + count);
            self.rows.extend(count as usize, row.time_us, row.op, row.number, row.blocks);
            next += count;
            if self.addresses.len() == BATCH_ROWS {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Adds the sampled accesses to the blocks from `first` to `last`, or stores them until the hot blocks are known.
    fn sampled(&mut self, first: u64, last: u64, row: TraceRow) -> Result<(), TraceError> {
        let known = self.sample.as_mut().is_some_and(|sample| sample.look(first, last));
        let Some(waiting) = &mut self.waiting else { return self.sample(first, last, row) };
        waiting.push((first, last, row));
        if known { self.sample_waiting() } else { Ok(()) }
    }

    /// Adds the sampled ones of the stored accesses.
    fn sample_waiting(&mut self) -> Result<(), TraceError> {
        let mut waiting = self.waiting.take().into_iter().flatten();
        waiting.try_for_each(|(first, last, row)| self.sample(first, last, row))
    }

    /// Adds the sampled accesses to the blocks from `first` to `last`, and notes all of them.
    fn sample(&mut self, first: u64, last: u64, row: TraceRow) -> Result<(), TraceError> {
        let Some(mut notes) = self.sample.take() else { return Ok(()) };
        let (before, sampled) = notes.noted();
        let (mut next, mut kept) = (first, 0);
        loop {
            let end = notes.filter.group_end(next).min(last);
            let keeps = notes.filter.keeps(next);
            if !notes.hot.is_empty() {
                (next..=end).for_each(|block| {
                    let sampled = sampled + kept + if keeps { block - next } else { 0 };
                    notes.hot.note(block, row.op, before + (block - first), sampled, keeps);
                });
            }
            if keeps {
                kept += end - next + 1;
                self.accesses(next, end, row)?;
            }
            if end == last {
                break;
            }
            next = end + 1;
        }
        notes.note(row.op, last - first + 1, kept);
        self.sample = Some(notes);
        Ok(())
    }

    #[inline]
    fn block_of(&self, byte: u64) -> u64 {
        match self.block_size_shift {
            Some(shift) => byte >> shift,
            None => byte / self.block_size_bytes,
        }
    }

    fn describe(&mut self, request: &Request) {
        let about = &mut self.description;
        if about.requests == 0 {
            about.start_us = request.time_us;
            about.request_bytes_min = u64::MAX;
        }
        about.requests += 1;
        self.clock.tick(request.time_us);
        match request.op {
            Op::Read => {
                about.read_requests += 1;
                about.read_bytes += request.length_bytes;
            }
            Op::Write => about.write_bytes += request.length_bytes,
        }
        about.request_bytes_min = about.request_bytes_min.min(request.length_bytes);
        about.request_bytes_max = about.request_bytes_max.max(request.length_bytes);
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        let mut rows = std::mem::take(&mut self.rows);
        self.numbering.ids(&self.addresses, &mut rows.block);
        self.addresses.clear();
        let blocks = self.numbering.len() as u64;
        if blocks > BLOCKS_MAX {
            return Err(self.too_large("unique blocks", blocks, BLOCKS_MAX));
        }
        match &mut self.out {
            Out::File(writer) => {
                self.rows = writer.write(rows).map_err(|source| unwritten(&self.out_path, source))?;
            }
            Out::Passed(batches) => {
                self.rows = Rows::with_capacity(BATCH_ROWS);
                batches.push(rows.into());
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that are in the file, or will be with the next batch.
    fn written_bytes(&self) -> u64 {
        let Out::File(writer) = &self.out else { return 0 };
        writer.written_bytes() + (self.addresses.len() * ROW_BYTES + self.numbering.len() * size_of::<u64>()) as u64
    }

    /// Returns the description of the trace so far.
    pub fn described(&self) -> Description {
        let known = self.description.clone();
        Description { times: known.times.or(Some(self.clock.times())), ..known }
    }

    /// Ends the trace file.
    ///
    /// # Errors
    /// A trace without requests.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.end()?;
        let description = self.described();
        let Out::File(writer) = self.out else { unreachable!("what passes has no file") };
        let finished = writer.finish(self.numbering.into_addresses(), &description);
        finished.map_err(|source| unwritten(&self.out_path, source))
    }

    /// Writes the last rows.
    fn end(&mut self) -> Result<(), TraceError> {
        if self.description.requests == 0 {
            let (path, malformed) = (self.path.clone(), self.description.malformed_records);
            return Err(if malformed == 0 {
                TraceError::Empty { path }
            } else {
                TraceError::OnlyMalformed { path, malformed }
            });
        }
        if let (Some(notes), Some(_)) = (&mut self.sample, &self.waiting) {
            notes.look_back();
            self.sample_waiting()?;
        }
        if self.addresses.is_empty() { Ok(()) } else { self.flush() }
    }
}

impl Normaliser<Vec<u8>> {
    /// Creates a pass over accesses without writing them: see [`passed`](Self::passed).
    pub(crate) fn passing(path: &str, block_size_bytes: u64) -> Self {
        Self::to_out(String::new(), path, block_size_bytes, Out::Passed(Vec::new()))
    }

    /// Takes the accesses that are ready.
    pub(crate) fn passed(&mut self) -> Vec<Accesses> {
        match &mut self.out {
            Out::Passed(batches) => std::mem::take(batches),
            Out::File(_) => Vec::new(),
        }
    }

    /// Makes the last accesses ready; returns the number of distinct blocks.
    ///
    /// # Errors
    /// A trace without requests.
    pub(crate) fn end_pass(&mut self) -> Result<u64, TraceError> {
        self.end()?;
        Ok(self.numbering.len() as u64)
    }

    /// Ends the trace and returns the sample that was [kept](Self::keep_sample), in memory.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish), and a sample without accesses.
    pub(crate) fn finish_sample(mut self) -> Result<Trace, TraceError> {
        self.end()?;
        let (path, notes) = (self.path.clone(), self.sample.take());
        let notes = notes.expect("a sample was asked for");
        if self.numbering.is_empty() {
            return Err(notes.nothing(path));
        }
        let trace = Trace::of_bytes(&path, self.finish()?)?;
        let sample = notes.finish(trace.addresses(), trace.accesses().map(|(block, _)| block), None);
        Ok(trace.into_sample(sample))
    }
}

fn unwritten(out: &str, source: io::Error) -> TraceError {
    TraceError::Io { path: out.to_owned(), source }
}
