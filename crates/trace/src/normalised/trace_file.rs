//! The file of a normalised trace: an Arrow IPC file, written as a stream and read by mapping it.
//!
//! One row per block access: `time_us`, `op`, `block`, `request`, `request_blocks`. `block` is dictionary-encoded: its indices
//! are the dense block ids, its dictionary is the table of block addresses. Since the dictionary is complete only when the whole
//! trace has been seen, it is written after the record batches, as the IPC file format allows; Arrow's own `FileWriter` cannot
//! do that, so the footer is put together here from the same parts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow_ipc::{self as ipc, Block, FooterBuilder, MetadataVersion, convert, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, DataType, Field, Metadata, Schema, SchemaRef};
use flashwise_core::access::Op;
use flatbuffers::FlatBufferBuilder;

use crate::normalised::checksum::{self, Kept, Summed};
use crate::normalised::description::Description;

/// The version of the file's layout; a reader refuses any other.
pub const VERSION: &str = "1";
/// Rows of a record batch, except the last.
pub const BATCH_ROWS: usize = 1 << 18;
/// Bytes of a row in the file.
pub const ROW_BYTES: usize = 8 + 1 + 4 + 4 + 4;

const VERSION_KEY: &str = "flashwise.trace.version";
const BLOCK_SIZE_KEY: &str = "flashwise.trace.block_size_bytes";
const DESCRIPTION_KEY: &str = "flashwise.trace.description";
const MAGIC: &[u8; 6] = b"ARROW1";
fn fields(block: DataType) -> Vec<Field> {
    vec![
        Field::new("time_us", DataType::Int64, false),
        Field::new("op", DataType::UInt8, false),
        Field::new("block", block, false),
        Field::new("request", DataType::UInt32, false),
        Field::new("request_blocks", DataType::UInt32, false),
    ]
}

fn schema(block_size_bytes: u64) -> Schema {
    let addresses = DataType::Dictionary(DataType::Int32.into(), DataType::UInt64.into());
    let metadata = [(VERSION_KEY, VERSION.to_owned()), (BLOCK_SIZE_KEY, block_size_bytes.to_string())];
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value));
    Schema::new(fields(addresses)).with_metadata(metadata.collect::<Metadata>())
}

/// The columns of a run of accesses, one element each per access.
#[derive(Debug, Default)]
pub struct Rows {
    /// Microseconds since the first request.
    pub time_us: Vec<i64>,
    /// [`Op`] codes.
    pub op: Vec<u8>,
    /// Dense block ids.
    pub block: Vec<i32>,
    /// The request's number, from 0.
    pub request: Vec<u32>,
    /// The request's length in blocks.
    pub request_blocks: Vec<u32>,
}

impl Rows {
    /// No rows, with room for `rows`.
    pub fn with_capacity(rows: usize) -> Self {
        Rows {
            time_us: Vec::with_capacity(rows),
            op: Vec::with_capacity(rows),
            block: Vec::with_capacity(rows),
            request: Vec::with_capacity(rows),
            request_blocks: Vec::with_capacity(rows),
        }
    }

    /// Adds `count` rows of one request, without their blocks.
    #[inline]
    pub fn extend(&mut self, count: usize, time_us: i64, op: Op, request: u32, request_blocks: u32) {
        if count == 1 {
            self.time_us.push(time_us);
            self.op.push(op as u8);
            self.request.push(request);
            self.request_blocks.push(request_blocks);
        } else {
            let rows = self.time_us.len() + count;
            self.time_us.resize(rows, time_us);
            self.op.resize(rows, op as u8);
            self.request.resize(rows, request);
            self.request_blocks.resize(rows, request_blocks);
        }
    }
}

/// Writes a trace file.
pub struct TraceWriter<W: Write> {
    out: Summed<W>,
    written: i64,
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    context: IpcWriteContext,
    batch_schema: SchemaRef,
    schema: Schema,
    batches: Vec<Block>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file.
    pub fn new(out: W, block_size_bytes: u64, kept: Kept) -> Result<Self, ArrowError> {
        let mut out = Summed::new(out, kept);
        out.write_all(MAGIC)?;
        out.write_all(&[0, 0])?;
        let schema = schema(block_size_bytes);
        let mut writer = TraceWriter {
            out,
            written: 8,
            options: IpcWriteOptions::try_new(64, false, MetadataVersion::V5)?,
            generator: IpcDataGenerator::default(),
            context: IpcWriteContext::default(),
            batch_schema: Arc::new(Schema::new(fields(DataType::Int32))),
            schema,
            batches: Vec::new(),
        };
        let mut tracker = DictionaryTracker::new(true);
        let message =
            writer.generator.schema_to_bytes_with_dictionary_tracker(&writer.schema, &mut tracker, &writer.options);
        writer.message(message)?;
        Ok(writer)
    }

    fn message(&mut self, message: EncodedData) -> Result<Block, ArrowError> {
        let offset = self.written;
        let (metadata, body) = write_message(&mut self.out, message, &self.options)?;
        self.written += (metadata + body) as i64;
        Ok(Block::new(offset, metadata as i32, body as i64))
    }

    /// Writes `rows` as one record batch. The message of a batch with a dictionary column is that of the same batch with the
    /// column's indices.
    pub fn write(&mut self, rows: Rows) -> Result<(), ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(rows.time_us)),
            Arc::new(UInt8Array::from(rows.op)),
            Arc::new(Int32Array::from(rows.block)),
            Arc::new(UInt32Array::from(rows.request)),
            Arc::new(UInt32Array::from(rows.request_blocks)),
        ];
        let batch = RecordBatch::try_new(self.batch_schema.clone(), columns)?;
        let mut tracker = DictionaryTracker::new(true);
        let (_, message) = self.generator.encode(&batch, &mut tracker, &self.options, &mut self.context)?;
        let block = self.message(message)?;
        self.batches.push(block);
        Ok(())
    }

    /// Writes the block addresses and the footer, and returns what was written to.
    pub fn finish(mut self, addresses: Vec<u64>, description: &Description) -> Result<W, ArrowError> {
        let addresses = DictionaryArray::<Int32Type>::try_new(
            Int32Array::from(Vec::<i32>::new()),
            Arc::new(UInt64Array::from(addresses)),
        )?;
        let field = self.schema.field_with_name("block")?.clone();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(addresses)])?;
        let mut tracker = DictionaryTracker::new(true);
        let generator = &self.generator;
        generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &self.options);
        let (messages, _) = generator.encode(&batch, &mut tracker, &self.options, &mut self.context)?;
        drop(batch);
        let mut dictionaries = Vec::new();
        for message in messages {
            dictionaries.push(self.message(message)?);
        }
        self.footer(&dictionaries, description)?;
        self.out.flush()?;
        Ok(self.out.into_inner())
    }

    fn footer(&mut self, dictionaries: &[Block], description: &Description) -> Result<(), ArrowError> {
        const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
        self.out.write_all(&END_OF_STREAM)?;
        let description =
            serde_json::to_string(description).map_err(|error| ArrowError::ExternalError(error.into()))?;
        let mut metadata = BTreeMap::from([(DESCRIPTION_KEY.to_owned(), description)]);
        metadata.extend(self.out.says());
        let metadata = metadata.into_iter().collect();
        let mut builder = FlatBufferBuilder::new();
        let dictionaries = builder.create_vector(dictionaries);
        let batches = builder.create_vector(&self.batches);
        let mut tracker = DictionaryTracker::new(true);
        let schema = convert::IpcSchemaEncoder::new()
            .with_dictionary_tracker(&mut tracker)
            .schema_to_fb_offset(&mut builder, &self.schema);
        let metadata = convert::metadata_to_fb(&mut builder, &metadata);
        let mut footer = FooterBuilder::new(&mut builder);
        footer.add_version(MetadataVersion::V5);
        footer.add_schema(schema);
        footer.add_dictionaries(dictionaries);
        footer.add_recordBatches(batches);
        footer.add_custom_metadata(metadata);
        let footer = footer.finish();
        builder.finish(footer, None);
        let footer = builder.finished_data();
        let end = [footer, &(footer.len() as i32).to_le_bytes(), MAGIC].concat();
        self.out.write_end(&end)?;
        Ok(())
    }
}

/// The mapped columns of a record batch.
#[derive(Clone, Debug)]
pub struct Columns {
    /// See `Rows::time_us`.
    pub time_us: ScalarBuffer<i64>,
    /// See `Rows::op`.
    pub op: ScalarBuffer<u8>,
    /// See `Rows::block`; never negative.
    pub block: ScalarBuffer<i32>,
    /// See `Rows::request`.
    pub request: ScalarBuffer<u32>,
    /// See `Rows::request_blocks`.
    pub request_blocks: ScalarBuffer<u32>,
}

/// The longest working set, 1 EiB: the storage behind a cache is a few times as large, and still a number of bytes.
const WORKING_SET_BYTES_MAX: u64 = 1 << 60;

/// A mapped trace file; a clone shares what is mapped.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Record batches in order.
    pub batches: Vec<Columns>,
    /// Addresses by block id.
    pub addresses: ScalarBuffer<u64>,
    /// Length of a block.
    pub block_size_bytes: u64,
    /// What the footer says of the trace.
    pub description: Description,
}

/// Why a file is not a trace file: what was found and what was expected.
pub struct Refused {
    pub found: String,
    pub expected: String,
}

/// Why a file was not mapped.
pub enum Unmapped {
    /// The system would not: too little memory, perhaps.
    Io(io::Error),
    /// It is not a trace file.
    Refused(Refused),
    /// It was one, and has changed since.
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

/// Whether these are the first bytes of an Arrow IPC file.
pub fn is_arrow(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl TraceFile {
    /// Maps a file and checks that all of it is as [`TraceWriter`] writes it. Columns stay in the file; pages are read as they are
    /// used, and their contents are undefined if another process changes the file meanwhile.
    #[allow(unsafe_code)]
    pub fn map(file: &File) -> Result<Self, Unmapped> {
        // SAFETY: the map is read only; that nobody else writes to the file is the caller's to see to, as documented.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(Unmapped::Io)?;
        Self::read(Buffer::from(bytes::Bytes::from_owner(map)))
    }

    /// The same of a file's bytes, which stay in memory.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self, Unmapped> {
        Self::read(Buffer::from(bytes))
    }

    fn read(buffer: Buffer) -> Result<Self, Unmapped> {
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
        let footer = root_as_footer(&buffer[footer_start..footer_end])
            .map_err(|error| refused(format!("a damaged footer ({error})"), "an Arrow IPC footer"))?;
        let metadata = || footer.custom_metadata().into_iter().flatten();
        let says_checksum = metadata().any(|pair| pair.key() == Some(checksum::KEY));
        checksum::check(&buffer, footer_start, says_checksum).map_err(Unmapped::Damaged)?;
        let found = footer.schema().ok_or_else(|| refused("a footer without a schema", "a schema"))?;
        let found = convert::try_fb_to_schema(found).map_err(|error| refused(error, "an Arrow schema"))?;
        let block_size_bytes = check_schema(&found)?;
        let description = metadata().filter(|pair| pair.key() == Some(DESCRIPTION_KEY)).find_map(|pair| pair.value());
        let description = description.ok_or_else(|| refused("no description in the footer", DESCRIPTION_KEY))?;
        let description = serde_json::from_str(description).map_err(|error| {
            refused(format!("a description that does not parse ({error})"), "the description of a trace")
        })?;
        check_description(&description)?;

        let blocks =
            |blocks: Option<flatbuffers::Vector<'_, Block>>| blocks.into_iter().flatten().copied().collect::<Vec<_>>();
        let [dictionary] = blocks(footer.dictionaries())[..] else {
            return Err(refused("not one dictionary", "one, with all block addresses").into());
        };
        let addresses = Message::new(&buffer, &dictionary, footer_start)?.addresses()?;
        let working_set_bytes = (addresses.len() as u64).checked_mul(block_size_bytes);
        if working_set_bytes.is_none_or(|bytes| bytes > WORKING_SET_BYTES_MAX) {
            let found = format!("{} blocks of {block_size_bytes} bytes", addresses.len());
            return Err(refused(found, format!("at most {WORKING_SET_BYTES_MAX} bytes of blocks")).into());
        }
        let mut file = TraceFile { batches: Vec::new(), addresses, block_size_bytes, description };
        for block in blocks(footer.recordBatches()) {
            file.push(Message::new(&buffer, &block, footer_start)?.columns()?)?;
        }
        if file.batches.is_empty() {
            return Err(refused("no accesses", "at least one").into());
        }
        Ok(file)
    }

    fn push(&mut self, columns: Columns) -> Result<(), Refused> {
        let block_max = columns.block.iter().map(|&block| block as u32).max().unwrap_or(0) as usize;
        if !columns.block.is_empty() && block_max >= self.addresses.len() {
            return Err(refused(format!("block id {block_max}"), format!("ids below {}", self.addresses.len())));
        }
        if let Some(op) = columns.op.iter().find(|&&op| op > 1) {
            return Err(refused(format!("op {op}"), "0 (read) or 1 (write)"));
        }
        if !columns.block.is_empty() {
            self.batches.push(columns);
        }
        Ok(())
    }
}

/// A message of a mapped file. It is read here and not by arrow's own reader, since that one panics on damage.
struct Message {
    metadata: Buffer,
    body: Buffer,
}

impl Message {
    /// The message at `block`, which must end before byte `end` of the file.
    fn new(file: &Buffer, block: &Block, end: usize) -> Result<Message, Refused> {
        const CONTINUATION: [u8; 4] = [0xFF; 4];
        let wrong = || refused(format!("a message at {block:?}"), "messages within the file");
        let start = usize::try_from(block.offset()).map_err(|_| wrong())?;
        let metadata = usize::try_from(block.metaDataLength()).map_err(|_| wrong())?;
        let body = usize::try_from(block.bodyLength()).map_err(|_| wrong())?;
        let whole = metadata.checked_add(body).and_then(|len| start.checked_add(len));
        if whole.is_none_or(|whole| whole > end) || metadata < 8 || file[start..start + 4] != CONTINUATION {
            return Err(wrong());
        }
        let metadata_len = i32::from_le_bytes(file[start + 4..start + 8].try_into().expect("four bytes"));
        let metadata_len = usize::try_from(metadata_len).ok().filter(|len| *len <= metadata - 8).ok_or_else(wrong)?;
        Ok(Message {
            metadata: file.slice_with_length(start + 8, metadata_len),
            body: file.slice_with_length(start + metadata, body),
        })
    }

    fn parsed(&self) -> Result<arrow_ipc::Message<'_>, Refused> {
        root_as_message(&self.metadata)
            .map_err(|error| refused(format!("a damaged message ({error})"), "an Arrow message"))
    }

    fn columns(&self) -> Result<Columns, Refused> {
        let message = self.parsed()?;
        let rows = message.header_as_record_batch().ok_or_else(|| refused("another message", "a record batch"))?;
        Ok(Columns {
            time_us: self.column(&rows, 0)?,
            op: self.column(&rows, 1)?,
            block: self.column(&rows, 2)?,
            request: self.column(&rows, 3)?,
            request_blocks: self.column(&rows, 4)?,
        })
    }

    fn addresses(&self) -> Result<ScalarBuffer<u64>, Refused> {
        let message = self.parsed()?;
        let dictionary = message.header_as_dictionary_batch().filter(|dictionary| !dictionary.isDelta());
        let values = dictionary.and_then(|dictionary| dictionary.data());
        self.column(&values.ok_or_else(|| refused("another message", "a whole dictionary"))?, 0)
    }

    /// The column of that number; each has a buffer that says which rows are null, and one of values.
    fn column<T: ArrowNativeType>(&self, rows: &ipc::RecordBatch, number: usize) -> Result<ScalarBuffer<T>, Refused> {
        let wrong =
            |found: &str| refused(format!("column {number} with {found}"), "as many values as rows, uncompressed");
        if rows.compression().is_some() {
            return Err(wrong("compressed values"));
        }
        let node = rows.nodes().filter(|nodes| number < nodes.len()).map(|nodes| *nodes.get(number));
        let values = rows.buffers().filter(|all| 2 * number + 1 < all.len()).map(|all| *all.get(2 * number + 1));
        let (node, values) = node.zip(values).ok_or_else(|| wrong("no values"))?;
        if node.null_count() != 0 || node.length() != rows.length() {
            return Err(wrong("nulls or another number of rows"));
        }
        let bytes = usize::try_from(node.length()).ok().and_then(|rows| rows.checked_mul(size_of::<T>()));
        let start = usize::try_from(values.offset()).ok();
        let within = bytes.zip(start).filter(|(bytes, start)| {
            let end = start.checked_add(*bytes);
            end.is_some_and(|end| end <= self.body.len())
                && i64::try_from(*bytes).is_ok_and(|bytes| bytes <= values.length())
        });
        let (bytes, start) = within.ok_or_else(|| wrong("values outside of its message"))?;
        let values = self.body.slice_with_length(start, bytes);
        let aligned = values.as_ptr().align_offset(align_of::<T>()) == 0;
        // Files of this program are aligned; a copy is.
        Ok(ScalarBuffer::from(if aligned { values } else { Buffer::from(values.as_slice()) }))
    }
}

/// Checks that figures are parts of those that they are parts of, and that their sums are numbers.
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

/// Checks that `found` is the schema of a trace of this version; returns the block size.
fn check_schema(found: &Schema) -> Result<u64, Refused> {
    match found.metadata().get(VERSION_KEY).map(String::as_str) {
        None => {
            return Err(refused(
                "an Arrow file of another schema",
                format!("schema metadata {VERSION_KEY} = {VERSION}"),
            ));
        }
        Some(VERSION) => {}
        Some(other) => return Err(refused(format!("a trace of version {other}"), format!("version {VERSION}"))),
    }
    let block_size = found.metadata().get(BLOCK_SIZE_KEY).map(String::as_str).unwrap_or_default();
    let block_size_bytes = match block_size.parse() {
        Ok(bytes) if bytes > 0 => bytes,
        _ => return Err(refused(format!("{BLOCK_SIZE_KEY} = '{block_size}'"), "a number of bytes")),
    };
    let describe = |schema: &Schema| {
        let fields = schema.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let (found, expected) = (describe(found), describe(&schema(block_size_bytes)));
    if found != expected {
        return Err(refused(format!("columns {found}"), format!("columns {expected}")));
    }
    Ok(block_size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a file of one access to the last of its blocks.
    fn refusal(block_size_bytes: u64, description: &Description) -> String {
        let mut writer = TraceWriter::new(Vec::new(), block_size_bytes, Kept::ForThisProcess).unwrap();
        let mut rows = Rows::default();
        (rows.time_us, rows.op, rows.block) = (vec![0], vec![0], vec![1]);
        (rows.request, rows.request_blocks) = (vec![0], vec![1]);
        writer.write(rows).unwrap();
        let bytes = writer.finish(vec![0, 1], description).unwrap();
        match TraceFile::read(Buffer::from(bytes)) {
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

    /// A file of three requests, and the same without a checksum.
    fn files() -> [Vec<u8>; 2] {
        [Kept::ForOthers, Kept::ForThisProcess].map(|kept| {
            let mut writer = TraceWriter::new(Vec::new(), 4096, kept).unwrap();
            let mut rows = Rows::default();
            (0..3).for_each(|request| rows.extend(1, 1000 * i64::from(request), Op::Write, request, 1));
            rows.block = vec![0, 1, 0];
            writer.write(rows).unwrap();
            let description = Description { format: "test".to_owned(), requests: 3, ..Description::default() };
            writer.finish(vec![7, 9], &description).unwrap()
        })
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let [whole, _] = files();
        assert!(TraceFile::read(Buffer::from(whole.clone())).is_ok());
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(TraceFile::read(Buffer::from(flipped)).is_err(), "bit {bit} of {}", 8 * whole.len());
        }
    }

    #[test]
    fn a_file_without_a_checksum_is_read_as_before() {
        let [with, without] = files();
        assert!(with.len() > without.len());
        let [with, without] = [with, without].map(|file| TraceFile::read(Buffer::from(file)).ok().unwrap());
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
