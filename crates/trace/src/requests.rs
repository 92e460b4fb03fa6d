//! The requests of a trace of any kind, in order and in batches, as converting, cutting and joining traces read them.
//!
//! The requests of a normalised trace are reassembled from its accesses: the rows with one request number form one
//! request. Its volume and its blocks are those of the original. The exact first and last byte are not kept, so a
//! request spans whole blocks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flashwise_core::access::Op;
use flashwise_core::quantity::ByteSize;

use crate::error::TraceError;
use crate::files::{name_of, temporary_file, temporary_name};
use crate::formats::Batch;
use crate::input::Input;
use crate::merge::{Source, merge};
use crate::normalised::numbering::BlockAddress;
use crate::normalised::trace::{Accesses, Description, Trace};
use crate::normalised::trace_file::is_arrow;
use crate::original::{Original, head};
use crate::progress::Progress;
use crate::request::{ONLY_VOLUME, Request, Volumes};
use crate::settings::{DEFAULT_BLOCK_SIZE_BYTES, Settings};
use crate::sources::sources;

/// A trace that is open for reading its requests.
pub enum Requests<'a> {
    /// A trace in its original format.
    Original(Input<'a>, Original),
    /// A normalised trace.
    Normalised(Trace, &'a dyn Progress),
    /// Several traces, merged by time.
    Merged(Vec<Requests<'a>>, String, &'a dyn Progress),
}

impl<'a> Requests<'a> {
    /// Opens the trace at `path`, or merges several traces, as described in [`sources()`]; `-` is standard input.
    /// `progress` receives the number of bytes read.
    ///
    /// # Errors
    /// A normalised trace, if `settings` name another format; merged traces with different block sizes.
    pub fn open(path: impl AsRef<Path>, settings: &Settings, progress: &'a dyn Progress) -> Result<Self, TraceError> {
        let files = sources(path.as_ref())?;
        if let [file] = files.as_slice() {
            return Self::open_one(file, settings, progress);
        }
        if files.iter().filter(|file| *file == Path::new("-")).count() > 1 {
            let (found, expected) = ("standard input, -, more than once".to_owned(), "it once at most".to_owned());
            return Err(TraceError::Sources { path: name_of(path.as_ref()), found, expected });
        }
        let mut all = Vec::new();
        for file in &files {
            match Self::open_one(file, settings, progress) {
                Ok(requests) => all.push(requests),
                // Of several files, some may be empty, for example those of idle processors.
                Err(TraceError::Empty { path }) => progress.note(&path, "it holds no requests"),
                Err(error) => return Err(error),
            }
        }
        if all.is_empty() {
            return Err(TraceError::Empty { path: name_of(path.as_ref()) });
        }
        block_size_bytes(&all, settings)?;
        Ok(Requests::Merged(all, name_of(path.as_ref()), progress))
    }

    fn open_one(path: &Path, settings: &Settings, progress: &'a dyn Progress) -> Result<Self, TraceError> {
        if let Some(trace) = mapped(path)? {
            return Self::normalised(trace, settings, progress);
        }
        let mut input = Input::open(path, progress)?;
        let head = head(&mut input)?;
        if is_arrow(&head) {
            // From standard input or compressed: mapping needs a file.
            let file = spooled(&mut input, head)?;
            let trace = Trace::map(input.path(), &file)?;
            return Self::normalised(trace, settings, progress);
        }
        let original = Original::new(&mut input, head, settings)?;
        Ok(Requests::Original(input, original))
    }

    fn normalised(trace: Trace, settings: &Settings, progress: &'a dyn Progress) -> Result<Self, TraceError> {
        if let Some(format) = &settings.format {
            let found = format!("--format {}", format.format().name);
            let expected = "no format, since it is not in its original one any more".to_owned();
            return Err(TraceError::Normalised { path: trace.name().to_owned(), found, expected });
        }
        if settings.filter.is_some() {
            let found = "a filter by process".to_owned();
            let expected = "none, since it has no processes; use the original".to_owned();
            return Err(TraceError::Normalised { path: trace.name().to_owned(), found, expected });
        }
        Ok(Requests::Normalised(trace, progress))
    }

    /// Returns the name of the trace for errors and reports.
    pub fn name(&self) -> &str {
        match self {
            Requests::Original(input, _) => input.path(),
            Requests::Normalised(trace, _) => trace.name(),
            Requests::Merged(_, name, _) => name,
        }
    }

    /// Returns the live counters of the bytes read of each file, and the total length of the files. Returns `None` if
    /// the length is unknown, and for normalised traces.
    pub(crate) fn read_of(&self) -> Option<(Vec<Arc<AtomicU64>>, u64)> {
        match self {
            Requests::Original(input, _) => input.read_of().map(|(read, bytes)| (vec![read], bytes)),
            Requests::Normalised(..) => None,
            Requests::Merged(all, ..) => {
                let each = all.iter().map(Requests::read_of).collect::<Option<Vec<_>>>()?;
                let bytes = each.iter().map(|(_, bytes)| bytes).sum();
                Some((each.into_iter().flat_map(|(read, _)| read).collect(), bytes))
            }
        }
    }

    /// Returns the description that is available before reading. It has the original's format, the columns of a CSV,
    /// and the records skipped when the trace was normalised. For several traces, each format and column list appears
    /// once.
    pub fn about(&self) -> Description {
        match self {
            Requests::Original(_, original) => {
                let (format, columns) = (original.format().to_owned(), original.columns());
                Description { format, columns, ..Description::default() }
            }
            Requests::Normalised(trace, _) => {
                let Description { format, columns, skipped_records, malformed_records, .. } = trace.description();
                Description {
                    format: format.clone(),
                    columns: columns.clone(),
                    skipped_records: *skipped_records,
                    malformed_records: *malformed_records,
                    ..Description::default()
                }
            }
            Requests::Merged(all, ..) => about(all),
        }
    }

    /// Returns the block size for reading the trace.
    ///
    /// # Errors
    /// A normalised trace, if `settings` name another block size; merged traces with different block sizes.
    pub fn block_size_bytes(&self, settings: &Settings) -> Result<u64, TraceError> {
        let trace = match self {
            Requests::Original(..) => return Ok(settings.block_size_bytes.unwrap_or(DEFAULT_BLOCK_SIZE_BYTES)),
            Requests::Normalised(trace, _) => trace,
            Requests::Merged(all, ..) => return block_size_bytes(all, settings),
        };
        let own = trace.block_size_bytes();
        match settings.block_size_bytes {
            Some(given) if given != own => {
                let expected =
                    format!("its own of {} (flashwise trace convert can make blocks larger)", ByteSize::new(own));
                let found = format!("--block-size {}", ByteSize::new(given));
                Err(TraceError::Normalised { path: trace.name().to_owned(), found, expected })
            }
            _ => Ok(own),
        }
    }

    /// Hands all requests in order to `consume`, until it breaks off. Volumes are renumbered in each batch. In formats
    /// whose addresses count blocks, a block has `block_size_bytes`.
    ///
    /// # Errors
    /// Malformed records, unless they are to be skipped; errors of `consume`.
    pub fn for_each_batch(
        self,
        block_size_bytes: u64,
        consume: &mut dyn FnMut(Batch) -> Result<ControlFlow<()>, TraceError>,
    ) -> Result<(), TraceError> {
        match self {
            Requests::Original(mut input, original) => original.for_each_batch(&mut input, block_size_bytes, consume),
            Requests::Normalised(trace, progress) => Rebuilding::new(&trace)?.for_each_batch(progress, consume),
            Requests::Merged(all, _, progress) => {
                let source = |requests: Requests<'a>| {
                    let name = requests.name().to_owned();
                    Source {
                        name,
                        batches: Box::new(move |consume| requests.for_each_batch(block_size_bytes, consume)),
                    }
                };
                merge(all.into_iter().map(source).collect(), progress, consume)
            }
        }
    }
}

/// Returns the common description of several traces.
pub fn about(traces: &[Requests]) -> Description {
    let abouts: Vec<Description> = traces.iter().map(Requests::about).collect();
    let formats: BTreeSet<&str> = abouts.iter().flat_map(|about| about.format.split('+')).collect();
    let columns: BTreeSet<&str> = abouts.iter().filter_map(|about| about.columns.as_deref()).collect();
    let joined = |names: BTreeSet<&str>, between| names.into_iter().collect::<Vec<_>>().join(between);
    Description {
        format: joined(formats, "+"),
        columns: (!columns.is_empty()).then(|| joined(columns, "; ")),
        skipped_records: abouts.iter().map(|about| about.skipped_records).sum(),
        malformed_records: abouts.iter().map(|about| about.malformed_records).sum(),
        ..Description::default()
    }
}

/// Returns the block size for reading all of `traces`: that of the normalised ones, if any.
///
/// # Errors
/// Those of [`Requests::block_size_bytes`], and normalised traces with different block sizes.
pub fn block_size_bytes(traces: &[Requests], settings: &Settings) -> Result<u64, TraceError> {
    for requests in traces {
        requests.block_size_bytes(settings)?;
    }
    let sizes: Vec<(String, u64)> = traces.iter().flat_map(own_block_sizes).collect();
    let Some((other, expected)) = sizes.first().cloned() else {
        return Ok(settings.block_size_bytes.unwrap_or(DEFAULT_BLOCK_SIZE_BYTES));
    };
    match sizes.into_iter().find(|(_, size)| *size != expected) {
        None => Ok(expected),
        Some((path, found)) => {
            let (found, expected) = (ByteSize::new(found).to_string(), ByteSize::new(expected).to_string());
            Err(TraceError::BlockSizes { path, found, expected, other })
        }
    }
}

/// Returns the normalised traces among `requests`, by name, with their block sizes.
fn own_block_sizes(requests: &Requests) -> Vec<(String, u64)> {
    match requests {
        Requests::Normalised(trace, _) => vec![(trace.name().to_owned(), trace.block_size_bytes())],
        Requests::Original(..) => Vec::new(),
        Requests::Merged(all, ..) => all.iter().flat_map(own_block_sizes).collect(),
    }
}

/// Hands the requests of a normalised trace to `consume`, in order.
pub fn rebuild(
    trace: &Trace,
    progress: &dyn Progress,
    mut consume: impl FnMut(Batch) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    Rebuilding::new(trace)?.for_each_batch(progress, &mut |batch| consume(batch).map(ControlFlow::Continue))
}

/// Returns the normalised trace at `path`, if it can be mapped directly.
fn mapped(path: &Path) -> Result<Option<Trace>, TraceError> {
    let io = |source| TraceError::Io { path: name_of(path), source };
    if path == Path::new("-") {
        return Ok(None);
    }
    // A path that is not a file is opened only once: a named pipe that is opened twice ends for its writer.
    let is_file = match std::fs::metadata(path) {
        // It may be in an archive.
        Err(error) if error.kind() == ErrorKind::NotADirectory => false,
        metadata => metadata.map_err(io)?.is_file(),
    };
    if !is_file {
        return Ok(None);
    }
    let mut file = File::open(path).map_err(io)?;
    let mut magic = [0; 8];
    if file.read_exact(&mut magic).is_err() || !is_arrow(&magic) {
        return Ok(None);
    }
    file.rewind().map_err(io)?;
    Trace::map(&name_of(path), &file).map(Some)
}

/// Creates a temporary file with `head` and the rest of `input`.
fn spooled(input: &mut Input, head: Vec<u8>) -> Result<File, TraceError> {
    let io = |source| TraceError::Io { path: temporary_name(), source };
    let mut file = temporary_file()?;
    let mut chunk = head;
    let mut filled = chunk.len();
    while filled > 0 {
        file.write_all(&chunk[..filled]).map_err(io)?;
        chunk.resize(1 << 20, 0);
        filled = input.fill(&mut chunk)?;
    }
    Ok(file)
}

/// Reassembles the requests of a normalised trace.
struct Rebuilding<'a> {
    trace: &'a Trace,
    volumes: Volumes,
    batch: Batch,
    /// The request whose accesses are being read.
    open: Option<OpenRequest>,
}

struct OpenRequest {
    number: u64,
    time_us: i64,
    op: u8,
    first: BlockAddress,
    accesses: u32,
    blocks: u32,
}

impl<'a> Rebuilding<'a> {
    fn new(trace: &'a Trace) -> Result<Self, TraceError> {
        let mut volumes = Volumes::default();
        let Description { volumes: names, tells_volumes, .. } = trace.description();
        if tells_volumes.map_or(names.len() == 1 && names[0].as_bytes() == ONLY_VOLUME, |tells| !tells) {
            volumes.only();
        }
        for name in names {
            volumes.number(name.as_bytes());
        }
        let named = trace.description().volumes.len();
        if volumes.names().len() != named {
            return Err(refused(trace, format!("{named} volumes, two with the same name"), "different names"));
        }
        Ok(Rebuilding { trace, batch: Batch { volumes: volumes.clone(), ..Batch::default() }, volumes, open: None })
    }

    fn for_each_batch(
        mut self,
        progress: &dyn Progress,
        consume: &mut dyn FnMut(Batch) -> Result<ControlFlow<()>, TraceError>,
    ) -> Result<(), TraceError> {
        for columns in self.trace.batches() {
            self.rows(&columns)?;
            let next = Batch { volumes: self.volumes.clone(), ..Batch::default() };
            if consume(std::mem::replace(&mut self.batch, next))?.is_break() {
                return Ok(());
            }
            progress.advance(columns.bytes);
        }
        self.close()?;
        consume(self.batch).map(|_| ())
    }

    fn rows(&mut self, columns: &Accesses) -> Result<(), TraceError> {
        let (requests, blocks) = (&columns.request[..], &columns.block[..]);
        for row in 0..columns.rows {
            let number = requests[row];
            let address = BlockAddress(self.trace.addresses()[blocks[row] as usize]);
            match &mut self.open {
                Some(open) if open.number == number => {
                    if open.first.0.checked_add(open.accesses.into()) != Some(address.0) {
                        let found = format!("request {number} with blocks that do not follow one another");
                        return Err(refused(self.trace, found, "requests of consecutive blocks"));
                    }
                    open.accesses += 1;
                }
                _ => {
                    self.close()?;
                    let (time_us, op, blocks) = (columns.time_us[row], columns.op[row], columns.request_blocks[row]);
                    self.open = Some(OpenRequest { number, time_us, op, first: address, accesses: 1, blocks });
                }
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), TraceError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let OpenRequest { number, time_us, op, first, accesses, blocks } = open;
        if accesses != blocks {
            let found = format!("request {number} of {blocks} blocks with {accesses} accesses");
            return Err(refused(self.trace, found, "one access for each block of a request"));
        }
        if first.volume() as usize >= self.volumes.names().len() {
            let found = format!("a block of volume {}", first.volume());
            return Err(refused(self.trace, found, format!("{} volumes", self.volumes.names().len())));
        }
        let block_size_bytes = self.trace.block_size_bytes();
        let length_bytes = u64::from(blocks).checked_mul(block_size_bytes);
        let range = first.block().checked_mul(block_size_bytes).zip(length_bytes);
        let Some((offset_bytes, length_bytes)) =
            range.filter(|(offset, length)| offset.checked_add(length - 1).is_some())
        else {
            let found = format!("block {} of {block_size_bytes} bytes", first.block());
            return Err(refused(self.trace, found, "a byte address below 2^64"));
        };
        self.batch.requests.push(Request {
            time_us: self.trace.description().start_us.saturating_add(time_us),
            op: if op == 0 { Op::Read } else { Op::Write },
            volume: first.volume(),
            offset_bytes,
            length_bytes,
        });
        self.batch.records += 1;
        Ok(())
    }
}

fn refused(trace: &Trace, found: String, expected: impl ToString) -> TraceError {
    TraceError::NotATrace { path: trace.name().into(), found, expected: expected.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalised::checksum::Kept;
    use crate::normalised::writer::{Rows, TraceWriter};
    use crate::progress::Silent;

    /// Creates a normalised trace of one op and time with these rows (block, request, request_blocks) in record
    /// batches.
    fn trace(batches: &[&[(i32, u64, u32)]], addresses: &[u64], volumes: &[&str]) -> Trace {
        let mut writer = TraceWriter::new(tempfile::tempfile().unwrap(), 4096, Kept::ForOthers).unwrap();
        for batch in batches {
            let mut rows = Rows { time_us: vec![7; batch.len()], op: vec![1; batch.len()], ..Rows::default() };
            for &(block, request, request_blocks) in *batch {
                rows.block.push(block);
                rows.request.push(request);
                rows.request_blocks.push(request_blocks);
            }
            writer.write(rows).unwrap();
        }
        let volumes = volumes.iter().map(|&name| name.to_owned()).collect();
        let description = Description { start_us: 100, volumes, ..Description::default() };
        Trace::map("test", &writer.finish(addresses.to_vec(), &description).unwrap()).unwrap()
    }

    fn requests(trace: Trace) -> Result<Vec<Request>, TraceError> {
        let mut requests = Vec::new();
        Requests::Normalised(trace, &Silent).for_each_batch(4096, &mut |batch| {
            requests.extend(batch.requests);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(requests)
    }

    const SECOND: u64 = 1 << 48;

    #[test]
    fn requests_are_put_together_again_across_record_batches() {
        let request = |volume, block: u64, blocks: u64| Request {
            time_us: 107,
            op: Op::Write,
            volume,
            offset_bytes: 4096 * block,
            length_bytes: 4096 * blocks,
        };
        let batches: &[&[_]] = &[&[(0, 0, 1), (0, 1, 3), (1, 1, 3)], &[(2, 1, 3), (3, 2, 1)]];
        let trace = trace(batches, &[5, 6, 7, SECOND | 9], &["a", "b"]);
        assert_eq!(requests(trace).unwrap(), [request(0, 5, 1), request(0, 5, 3), request(1, 9, 1)]);
    }

    #[test]
    fn rows_that_make_no_requests_are_refused() {
        let refused = |batch: &[(i32, u64, u32)], addresses: &[u64], volumes: &[&str]| {
            requests(trace(&[batch], addresses, volumes)).unwrap_err().to_string()
        };
        let errors = [
            refused(&[(0, 0, 2), (1, 0, 2)], &[5, 7], &["a"]),
            refused(&[(0, 0, 2)], &[5], &["a"]),
            refused(&[(0, 0, 1)], &[SECOND | 5], &["a"]),
            refused(&[(0, 0, 1)], &[5], &["a", "a"]),
            refused(&[(0, 0, 2), (1, 0, 2)], &[u64::MAX, 0], &["a"]),
        ];
        let expected = [
            "found request 0 with blocks that do not follow one another, expected requests of consecutive blocks",
            "found request 0 of 2 blocks with 1 accesses, expected one access for each block of a request",
            "found a block of volume 1, expected 1 volumes",
            "found 2 volumes, two with the same name, expected different names",
            "found request 0 with blocks that do not follow one another, expected requests of consecutive blocks",
        ];
        assert_eq!(errors, expected.map(|expected| format!("test: not a flashwise trace: {expected}")));
    }
}
