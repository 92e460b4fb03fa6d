//! The file of a normalised trace: an Arrow IPC file, read by mapping it. [`writer`](super::writer) writes it.
//!
//! One row per block access: `time_us`, `op`, `block`, `request`, `request_blocks`. `block` is dictionary-encoded: its
//! indices are the dense block ids, its dictionary is the table of block addresses, which follows the record batches.
//! In persistent files, buffers are packed by Arrow's zstd compression if that makes them shorter.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;

use super::checksum;
use super::column::{Column, Element};
use super::flatbuffer::Invalid;
use super::ipc::{
    Block, CONTINUATION, Field, Footer, FooterSchema, Header, MAGIC, PREFIX, Packing, RecordBatch, Schema, Type,
};
use super::values::Values;
use crate::normalised::description::Description;
use crate::normalised::numbering::BLOCKS_MAX;

/// The version of the file's layout.
pub const VERSION: &str = "2";
/// The previous version, which is supported too: request numbers have 32 bits, and nothing is packed.
const NARROW_VERSION: &str = "1";
/// The number of rows in a record batch, except the last.
pub const BATCH_ROWS: usize = 1 << 18;
/// The size of a row without packing, in bytes.
pub const ROW_BYTES: usize = 8 + 1 + 4 + 8 + 4;
/// The maximum length of a file whose unpacked values stay in memory: 1 GiB, if all of it is used. Longer files are
/// unpacked piece by piece, in each pass.
const KEPT_BYTES_MAX: usize = 256 << 20;

const VERSION_KEY: &str = "flashwise.trace.version";
const BLOCK_SIZE_KEY: &str = "flashwise.trace.block_size_bytes";
/// The footer's key for the description of the trace.
pub const DESCRIPTION_KEY: &str = "flashwise.trace.description";

fn schema_of(version: &str, request: Type, block_size_bytes: u64) -> Schema {
    let metadata = [(BLOCK_SIZE_KEY, block_size_bytes.to_string()), (VERSION_KEY, version.to_owned())];
    let fields = vec![
        Field::new("time_us", Type::signed(64)),
        Field::new("op", Type::unsigned(8)),
        Field::new("block", Type::unsigned(64)).with_indices(Type::signed(32)),
        Field::new("request", request),
        Field::new("request_blocks", Type::unsigned(32)),
    ];
    Schema { fields, metadata: metadata.map(|(key, value)| (key.to_owned(), value)).into() }
}

/// Returns the schema of a trace file.
pub fn schema(block_size_bytes: u64) -> Schema {
    schema_of(VERSION, Type::unsigned(64), block_size_bytes)
}

/// The mapped columns of a record batch.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Microseconds since the first request.
    pub time_us: Column<i64>,
    /// [`Op`](flashwise_core::access::Op) codes: 0 for reads, 1 for writes.
    pub op: Column<u8>,
    /// Dense block ids, never negative.
    pub block: Column<i32>,
    /// The request's number, from 0.
    pub request: Column<u64>,
    /// The request's length in blocks.
    pub request_blocks: Column<u32>,
    /// The number of rows of each column.
    pub rows: usize,
    /// The number of bytes in the file, or of the columns in memory.
    pub bytes: u64,
}

impl Columns {
    /// Creates columns in memory, all of the same length.
    pub(crate) fn in_memory(
        time_us: Values<i64>,
        op: Values<u8>,
        block: Values<i32>,
        request: Values<u64>,
        request_blocks: Values<u32>,
    ) -> Columns {
        let rows = block.len();
        Columns {
            time_us: time_us.into(),
            op: op.into(),
            block: block.into(),
            request: request.into(),
            request_blocks: request_blocks.into(),
            rows,
            bytes: (rows * ROW_BYTES) as u64,
        }
    }

    /// Checks that ops are valid and block ids are below `blocks`, and unless `is_summed`, that the other columns can
    /// be unpacked.
    fn check(&self, blocks: usize, is_summed: bool) -> Result<(), Refused> {
        if !is_summed {
            self.time_us.checked().map_err(unpackable)?;
            self.request.checked().map_err(unpackable)?;
            self.request_blocks.checked().map_err(unpackable)?;
        }
        let (op, block) = (self.op.checked().map_err(unpackable)?, self.block.checked().map_err(unpackable)?);
        let block_max = block.iter().map(|&block| block as u32).max().unwrap_or(0) as usize;
        if !block.is_empty() && block_max >= blocks {
            return Err(refused(format!("block id {block_max}"), format!("ids below {blocks}")));
        }
        match op.iter().find(|&&op| op > 1) {
            Some(op) => Err(refused(format!("op {op}"), "0 (read) or 1 (write)")),
            None => Ok(()),
        }
    }
}

/// The maximum working set, 1 EiB: the storage behind a cache is a few times as large, and must not overflow.
const WORKING_SET_BYTES_MAX: u64 = 1 << 60;

/// A mapped trace file; a clone shares the mapping.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Record batches in order.
    pub batches: Vec<Columns>,
    /// Addresses by block id.
    pub addresses: Values<u64>,
    /// The length of a block, in bytes.
    pub block_size_bytes: u64,
    /// The description of the trace, from the footer.
    pub description: Description,
}

/// The reason why a file is not a trace file, as found and expected.
pub struct Refused {
    pub found: String,
    pub expected: String,
}

/// The reason why a file was not mapped.
pub enum Unmapped {
    /// A system error, for example too little memory.
    Io(io::Error),
    /// It is not a trace file.
    Refused(Refused),
    /// It is a damaged trace file.
    Damaged(String),
}

impl From<Refused> for Unmapped {
    fn from(refused: Refused) -> Unmapped {
        Unmapped::Refused(refused)
    }
}

fn refused(found: impl ToString, expected: impl ToString) -> Refused {
    Refused { found: found.to_string(), expected: expected.to_string() }
}

/// True if these are the first bytes of an Arrow IPC file.
pub fn is_arrow(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl TraceFile {
    /// Maps a file and checks all of its structure. Columns stay in the file, and pages are read on first use. Their
    /// contents are undefined if another process changes the file meanwhile.
    #[allow(unsafe_code)]
    pub fn map(file: &File) -> Result<Self, Unmapped> {
        // SAFETY: the map is read-only; the caller ensures that no other process writes to the file, as documented.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(Unmapped::Io)?;
        Self::read(Bytes::from_owner(map))
    }

    /// Reads a trace file from bytes, which stay in memory.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self, Unmapped> {
        Self::read(bytes.into())
    }

    fn read(buffer: Bytes) -> Result<Self, Unmapped> {
        Self::read_keeping(buffer, KEPT_BYTES_MAX)
    }

    /// Reads a file, and keeps its unpacked values if it has at most `kept_bytes_max`.
    fn read_keeping(buffer: Bytes, kept_bytes_max: usize) -> Result<Self, Unmapped> {
        const TRAILER: usize = 4 + MAGIC.len();
        let cut =
            |bytes: usize| refused(format!("{bytes} bytes without a whole Arrow footer"), "a whole Arrow IPC file");
        let len = buffer.len();
        if len < 8 + TRAILER || !is_arrow(&buffer) || !buffer.ends_with(MAGIC) {
            return Err(cut(len).into());
        }
        let footer_len = i32::from_le_bytes(buffer[len - TRAILER..len - MAGIC.len()].try_into().expect("four bytes"));
        let footer_end = len - TRAILER;
        let footer_start = usize::try_from(footer_len)
            .ok()
            .and_then(|footer_len| footer_end.checked_sub(footer_len))
            .ok_or_else(|| cut(len))?;
        let damaged = |error: Invalid| refused(format!("a damaged footer ({error})"), "an Arrow IPC footer");
        let footer = Footer::read(&buffer[footer_start..footer_end]).map_err(damaged)?;
        let value = |key: &str| footer.value(key).map_err(damaged);
        let (batches, dictionaries) = (footer.batches().map_err(damaged)?, footer.dictionaries().map_err(damaged)?);
        let places = batches.iter().chain(&dictionaries).map(|block| place(&buffer, block, footer_start));
        let places = places.collect::<Result<Vec<_>, _>>();
        let said = value(checksum::KEY)?.or(value(checksum::WHOLE_KEY)?);
        // If the file has a checksum, an impossible position of a message is damage.
        let sums = checksum::check(&buffer, footer_start, said, places.as_deref().unwrap_or_default());
        let sums = sums.map_err(Unmapped::Damaged)?;
        let places = places?;
        let found =
            footer.schema().map_err(damaged)?.ok_or_else(|| refused("a footer without a schema", "a schema"))?;
        let (block_size_bytes, layout) = check_schema(found)?;
        let description =
            value(DESCRIPTION_KEY)?.ok_or_else(|| refused("no description in the footer", DESCRIPTION_KEY))?;
        let description = serde_json::from_str(description).map_err(|error| {
            refused(format!("a description that does not parse ({error})"), "the description of a trace")
        })?;
        check_description(&description)?;

        let [_] = dictionaries[..] else {
            return Err(refused("not one dictionary", "one, with all block addresses").into());
        };
        each_of(places.len(), |number| {
            let place = places[number].clone();
            let what = || format!("a message at bytes {} to {}", place.start, place.end - 1);
            sums.check(number, &buffer[place.clone()], what).map_err(Unmapped::Damaged)
        })?;
        let message = |(place, block)| Message::new(&buffer, place, block);
        let mut messages = places.iter().zip(batches.iter().chain(&dictionaries)).map(message);
        let all = messages.by_ref().take(batches.len()).map(|message| message?.columns(layout, len <= kept_bytes_max));
        let all: Vec<Columns> = all.collect::<Result<_, Refused>>()?;
        let addresses = messages.next().expect("there is a dictionary")?.addresses()?;
        let working_set_bytes = (addresses.len() as u64).checked_mul(block_size_bytes);
        if working_set_bytes.is_none_or(|bytes| bytes > WORKING_SET_BYTES_MAX) {
            let found = format!("{} blocks of {block_size_bytes} bytes", addresses.len());
            return Err(refused(found, format!("at most {WORKING_SET_BYTES_MAX} bytes of blocks")).into());
        }
        each_of(all.len(), |number| all[number].check(addresses.len(), sums.are_there()))?;
        let batches: Vec<Columns> = all.into_iter().filter(|columns| columns.rows > 0).collect();
        if batches.is_empty() {
            return Err(refused("no accesses", "at least one").into());
        }
        Ok(TraceFile { batches, addresses, block_size_bytes, description })
    }
}

/// A message of a mapped file.
struct Message {
    metadata: Bytes,
    body: Bytes,
}

impl Message {
    /// Returns the message of `block`, at `place` of the file.
    fn new(file: &Bytes, place: &Range<usize>, block: &Block) -> Result<Message, Refused> {
        let metadata = block.metadata_length as usize;
        let length = i32::from_le_bytes(file[place.start + 4..place.start + 8].try_into().expect("four bytes"));
        let length = usize::try_from(length).ok().filter(|length| *length <= metadata - PREFIX);
        let length = length.ok_or_else(|| misplaced(block))?;
        Ok(Message {
            metadata: file.slice(place.start + PREFIX..place.start + PREFIX + length),
            body: file.slice(place.start + metadata..place.end),
        })
    }

    fn header(&self) -> Result<Header<'_>, Refused> {
        Header::read(&self.metadata)
            .map_err(|error| refused(format!("a damaged message ({error})"), "an Arrow message"))
    }

    /// Returns the columns, whose unpacked values stay if `is_kept`.
    fn columns(&self, layout: TraceLayout, is_kept: bool) -> Result<Columns, Refused> {
        let Header::Rows(rows) = self.header()? else { return Err(refused("another message", "a record batch")) };
        let request = match layout {
            TraceLayout::Wide => self.column(&rows, 3, is_kept)?,
            TraceLayout::Narrow => {
                Column::of_narrow(self.column(&rows, 3, is_kept)?.unpacked().map_err(unpackable)?, is_kept)
            }
        };
        Ok(Columns {
            time_us: self.column(&rows, 0, is_kept)?,
            op: self.column(&rows, 1, is_kept)?,
            block: self.column(&rows, 2, is_kept)?,
            request,
            request_blocks: self.column(&rows, 4, is_kept)?,
            rows: rows.rows as usize,
            bytes: (self.metadata.len() + self.body.len()) as u64,
        })
    }

    fn addresses(&self) -> Result<Values<u64>, Refused> {
        let Header::Dictionary(values) = self.header()? else {
            return Err(refused("another message", "a whole dictionary"));
        };
        let addresses = self.column(&values, 0, false)?;
        addresses.unpacked().map_err(unpackable)
    }

    /// Returns the column of that number; each has a buffer of null bits, and one of values.
    fn column<T: Element>(&self, batch: &RecordBatch, number: usize, is_kept: bool) -> Result<Column<T>, Refused> {
        let wrong = |found: &str| unpackable(format!("column {number} with {found}"));
        if batch.packing == Packing::Other {
            return Err(wrong("values packed by something else"));
        }
        let (node, values) = (batch.node(number), batch.buffer(2 * number + 1));
        let ([rows, nulls], values) = node.zip(values).ok_or_else(|| wrong("no values"))?;
        if nulls != 0 || rows != batch.rows {
            return Err(wrong("nulls or another number of rows"));
        }
        let (rows, start) = (usize::try_from(rows).ok(), usize::try_from(values.offset).ok());
        let end = start.zip(usize::try_from(values.length).ok()).and_then(|(start, length)| start.checked_add(length));
        let within = rows.zip(start.zip(end).filter(|&(start, end)| start <= end && end <= self.body.len()));
        let (rows, (mut start, end)) = within.ok_or_else(|| wrong("values outside of its message"))?;
        let bytes = rows.checked_mul(size_of::<T>()).ok_or_else(|| wrong("more rows than there can be"))?;
        if batch.packing == Packing::Zstd {
            let length = self.body[start..end].first_chunk().map(|length| i64::from_le_bytes(*length));
            let length = length.ok_or_else(|| wrong("no length"))?;
            start += size_of::<i64>();
            if length >= 0 {
                // The addresses are the longest of all columns.
                if length as usize != bytes || rows as u64 > BLOCKS_MAX + 1 {
                    return Err(wrong("another number of rows"));
                }
                return Ok(Column::packed(self.body.slice(start..end), rows, is_kept));
            }
        }
        if bytes > end - start {
            return Err(wrong("values outside of its message"));
        }
        // Buffers in files of this program are aligned.
        Ok(Values::of_bytes(self.body.slice(start..start + bytes)).into())
    }
}

/// The width of request numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceLayout {
    Wide,
    /// The width in version 1.
    Narrow,
}

fn unpackable(found: String) -> Refused {
    refused(found, "as many values as rows, plain or packed by zstd")
}

fn misplaced(block: &Block) -> Refused {
    refused(block, "messages within the file")
}

/// Returns the position of the message of `block`, which must end before byte `end` of the file.
fn place(file: &[u8], block: &Block, end: usize) -> Result<Range<usize>, Refused> {
    let number = |number: i64| usize::try_from(number).map_err(|_| misplaced(block));
    let (start, metadata) = (number(block.offset)?, number(block.metadata_length.into())?);
    let length = metadata.checked_add(number(block.body_length)?);
    let message_end = length.and_then(|length| start.checked_add(length)).filter(|whole| *whole <= end);
    match message_end {
        Some(message_end) if metadata >= PREFIX && file[start..].starts_with(&CONTINUATION) => Ok(start..message_end),
        _ => Err(misplaced(block)),
    }
}

/// Does `work` for each number below `all`, on all cores.
///
/// # Errors
/// The error at the lowest number.
fn each_of<E: Send>(all: usize, work: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
    // A thread is only worthwhile for several items.
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(all / 4);
    if threads <= 1 {
        return (0..all).try_for_each(work);
    }
    let next = AtomicUsize::new(0);
    let some = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= all {
                return None;
            }
            if let Err(error) = work(number) {
                // The other threads can stop.
                next.store(all, Ordering::Relaxed);
                return Some((number, error));
            }
        }
    };
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let ended = threads.into_iter().filter_map(|thread| thread.join().expect("checks do not panic"));
        ended.min_by_key(|(number, _)| *number)
    });
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// Checks that partial figures do not exceed their totals, and that sums do not overflow.
fn check_description(about: &Description) -> Result<(), Refused> {
    let Description { requests, read_requests, read_bytes, write_bytes, .. } = about;
    if read_requests > requests {
        return Err(refused(format!("{read_requests} read requests of {requests}"), "no more than there are requests"));
    }
    if read_bytes.checked_add(*write_bytes).is_none() {
        let found = format!("{read_bytes} bytes read and {write_bytes} written");
        return Err(refused(found, "fewer than 2^64 together"));
    }
    Ok(())
}

/// Checks that `found` is the schema of a supported version; returns the block size and the layout.
fn check_schema(found: FooterSchema<'_>) -> Result<(u64, TraceLayout), Refused> {
    let damaged = |error: Invalid| refused(format!("a damaged schema ({error})"), "an Arrow schema");
    let (version, layout) = match found.value(VERSION_KEY).map_err(damaged)? {
        None => {
            return Err(refused(
                "an Arrow file of another schema",
                format!("schema metadata {VERSION_KEY} = {VERSION}"),
            ));
        }
        Some(VERSION) => (VERSION, TraceLayout::Wide),
        Some(NARROW_VERSION) => (NARROW_VERSION, TraceLayout::Narrow),
        Some(other) => {
            let expected = format!("version {NARROW_VERSION} or {VERSION}");
            return Err(refused(format!("a trace of version {other}"), expected));
        }
    };
    let block_size = found.value(BLOCK_SIZE_KEY).map_err(damaged)?.unwrap_or_default();
    let block_size_bytes = match block_size.parse() {
        Ok(bytes) if bytes > 0 => bytes,
        _ => return Err(refused(format!("{BLOCK_SIZE_KEY} = '{block_size}'"), "a number of bytes")),
    };
    let request = match layout {
        TraceLayout::Wide => Type::unsigned(64),
        TraceLayout::Narrow => Type::unsigned(32),
    };
    let describe = |fields: &[Field]| fields.iter().map(Field::to_string).collect::<Vec<_>>().join(", ");
    let found = describe(&found.fields().map_err(damaged)?);
    let expected = describe(&schema_of(version, request, block_size_bytes).fields);
    if found != expected {
        return Err(refused(format!("columns {found}"), format!("columns {expected}")));
    }
    Ok((block_size_bytes, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalised::checksum::Kept;
    use crate::normalised::writer::{Rows, TraceWriter};
    use flashwise_core::access::Op;

    /// Returns the error for a file of one access to the last of its blocks.
    fn refusal(block_size_bytes: u64, description: &Description) -> String {
        let mut writer = TraceWriter::new(Vec::new(), block_size_bytes, Kept::ForThisProcess).unwrap();
        let mut rows = Rows::default();
        (rows.time_us, rows.op, rows.block) = (vec![0], vec![0], vec![1]);
        (rows.request, rows.request_blocks) = (vec![0], vec![1]);
        writer.write(rows).unwrap();
        let bytes = writer.finish(vec![0, 1], description).unwrap();
        match TraceFile::read(bytes.into()) {
            Err(Unmapped::Refused(Refused { found, expected })) => format!("found {found}, expected {expected}"),
            Err(_) => "something else".to_owned(),
            Ok(_) => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_description_whose_figures_do_not_add_up_is_refused() {
        let reads = Description { requests: 1, read_requests: 2, ..Description::default() };
        let bytes = Description { read_bytes: u64::MAX, write_bytes: 1, ..Description::default() };
        assert_eq!(refusal(4096, &reads), "found 2 read requests of 1, expected no more than there are requests");
        assert_eq!(
            refusal(4096, &bytes),
            "found 18446744073709551615 bytes read and 1 written, expected fewer than 2^64 together"
        );
        let right = Description { requests: 2, read_requests: 2, read_bytes: u64::MAX, ..Description::default() };
        assert_eq!(refusal(4096, &right), "nothing");
    }

    /// Requests of one access each, with numbers of more than 32 bits, and the last with an odd time.
    const REQUESTS: usize = 300;

    fn request(number: usize) -> u64 {
        (1 << 40) + number as u64
    }

    /// Returns a file of two batches, and the same without packing and checksums.
    fn files() -> [Vec<u8>; 2] {
        [Kept::ForOthers, Kept::ForThisProcess].map(|kept| {
            let mut writer = TraceWriter::new(Vec::new(), 4096, kept).unwrap();
            for half in [0..200, 200..REQUESTS] {
                let mut rows = Rows::default();
                half.clone().for_each(|at| rows.extend(1, 1000 * at as i64, Op::Write, request(at), 1));
                rows.block = half.map(|at| (at * at % 2) as i32).collect();
                writer.write(rows).unwrap();
            }
            let description =
                Description { format: "test".to_owned(), requests: REQUESTS as u64, ..Description::default() };
            writer.finish(vec![7, 9], &description).unwrap()
        })
    }

    #[test]
    fn packed_rows_are_those_that_were_written_whether_they_are_kept_or_not() {
        let [packed, plain] = files();
        assert!(packed.len() < plain.len(), "{} and {} bytes", packed.len(), plain.len());
        for (bytes, kept_bytes_max) in [(&packed, usize::MAX), (&packed, 0), (&plain, 0)] {
            let file = TraceFile::read_keeping(bytes.clone().into(), kept_bytes_max).ok().unwrap();
            assert_eq!(&file.addresses[..], [7, 9]);
            let mut at = 0;
            // Twice, since values that are not kept are unpacked again.
            for columns in file.batches.iter().cloned().chain(file.batches.iter().cloned()) {
                for row in 0..columns.rows {
                    let found = (columns.time_us[row], columns.op[row], columns.block[row], columns.request[row]);
                    let number = at % REQUESTS;
                    assert_eq!(found, (1000 * number as i64, 1, (number * number % 2) as i32, request(number)));
                    assert_eq!(columns.request_blocks[row], 1);
                    at += 1;
                }
            }
            assert_eq!(at, 2 * REQUESTS);
        }
    }

    #[test]
    fn damage_is_reported_with_its_message() {
        let [mut file, _] = files();
        let middle = file.len() / 4;
        file[middle] ^= 1;
        let Err(Unmapped::Damaged(found)) = TraceFile::read(file.into()) else { panic!("it is damaged") };
        assert!(found.starts_with("found a message at bytes "), "{found}");
    }

    #[test]
    fn damaged_archives_are_errors() {
        let frame = |values: &[u8]| Bytes::from(crate::normalised::column::pack(values).unwrap());
        let packed = frame(&[7; 4000]);
        assert_eq!(Column::<u32>::packed(packed.clone(), 1000, false).unpacked().unwrap().len(), 1000);
        let unpacked = |bytes: Bytes, rows: usize| Column::<u32>::packed(bytes, rows, true).unpacked().unwrap_err();
        assert_eq!(unpacked(packed.clone(), 1001), "4000 bytes of values for 1001 rows");
        assert!(unpacked(packed.clone(), 999).starts_with("damaged zstd data"), "too long");
        assert!(unpacked(packed.slice(1..), 1000).starts_with("damaged zstd data"));
        assert!(unpacked(packed, 1 << 40).contains("1099511627776 values in"), "no memory is taken for them");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let [whole, _] = files();
        assert!(TraceFile::read(whole.clone().into()).is_ok());
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(TraceFile::read(flipped.into()).is_err(), "bit {bit} of {}", 8 * whole.len());
        }
    }

    /// In a file without a checksum, only the checks of each position prevent a panic.
    #[test]
    fn no_changed_or_missing_byte_of_a_file_without_a_checksum_panics() {
        let [_, whole] = files();
        let mut refusals = 0;
        let mut read = |bytes: Vec<u8>| match TraceFile::read(bytes.into()) {
            Ok(file) => file.batches.iter().for_each(|columns| {
                let lens = [columns.time_us.len(), columns.block.len(), columns.request_blocks.len()];
                assert_eq!(lens, [columns.rows; 3]);
            }),
            Err(_) => refusals += 1,
        };
        for at in 0..whole.len() {
            read(whole[..at].to_vec());
            for changed in [0, 1, 0x7F, 0x80, 0xFF, !whole[at], whole[at] ^ 4, whole[at].wrapping_add(8)] {
                let mut bytes = whole.clone();
                bytes[at] = changed;
                read(bytes);
            }
        }
        assert!(refusals > whole.len(), "{refusals} of {}", 9 * whole.len());
    }

    #[test]
    fn a_file_without_a_checksum_is_read_as_before() {
        let [with, without] = files();
        assert!(!without.windows(9).any(|bytes| bytes == b"FW-CRC32C"), "a temporary file needs none");
        let [with, without] = [with, without].map(|file| TraceFile::read(file.into()).ok().unwrap());
        assert_eq!((with.addresses, with.description), (without.addresses, without.description));
    }

    #[test]
    fn blocks_that_are_together_longer_than_any_storage_are_refused() {
        let description = Description::default();
        assert_eq!(refusal(WORKING_SET_BYTES_MAX / 2, &description), "nothing");
        for block_size_bytes in [WORKING_SET_BYTES_MAX / 2 + 1, u64::MAX] {
            let expected = format!(
                "found 2 blocks of {block_size_bytes} bytes, expected at most 1152921504606846976 bytes of blocks"
            );
            assert_eq!(refusal(block_size_bytes, &description), expected);
        }
    }
}
