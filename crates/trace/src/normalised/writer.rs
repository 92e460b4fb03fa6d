//! Writes the file of a normalised trace, which [`trace_file`](super::trace_file) reads.
//!
//! The dictionary of block addresses is complete only when the whole trace has been seen, so that it is written after the record batches, as
//! the IPC file format allows. Arrow's own `FileWriter` cannot do that: messages and footer are put together here from the same parts. Batches
//! of a file that is kept are packed by threads of their own, and written in order.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::thread::{self, JoinHandle};

use arrow_buffer::{Buffer, ToByteSlice};
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{self as ipc, Block, FooterBuilder, MetadataVersion, convert};
use arrow_schema::{ArrowError, Schema};
use flashwise_core::access::Op;
use flatbuffers::FlatBufferBuilder;

use super::checksum::{Kept, Summed};
use super::column::pack;
use super::description::Description;
use super::trace_file::{Columns, DESCRIPTION_KEY, MAGIC, schema};

/// Buffers begin at multiples of this.
const ALIGNMENT: usize = 64;

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
    pub request: Vec<u64>,
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
    pub fn extend(&mut self, count: usize, time_us: i64, op: Op, request: u64, request_blocks: u32) {
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

    /// The same room, empty.
    fn cleared(mut self) -> Self {
        self.time_us.clear();
        self.op.clear();
        self.block.clear();
        self.request.clear();
        self.request_blocks.clear();
        self
    }

    /// The bytes of the columns, in the order of the schema.
    fn bytes(&self) -> [&[u8]; 5] {
        [
            self.time_us.to_byte_slice(),
            self.op.to_byte_slice(),
            self.block.to_byte_slice(),
            self.request.to_byte_slice(),
            self.request_blocks.to_byte_slice(),
        ]
    }

    /// The message of these rows, packed. That of a batch with a dictionary column is that of the same batch with the column's indices.
    fn packed(self) -> EncodedData {
        let rows = self.time_us.len();
        let mut body = Body::new(Kept::ForOthers);
        body.column(Buffer::from_vec(self.time_us));
        body.column(Buffer::from_vec(self.op));
        // What every run reads is mapped as it is.
        body.plain(Buffer::from_vec(self.block));
        body.column(Buffer::from_vec(self.request));
        body.column(Buffer::from_vec(self.request_blocks));
        body.message(rows, Contents::Rows)
    }
}

impl From<Rows> for Columns {
    /// The rows as columns in memory.
    fn from(rows: Rows) -> Columns {
        let Rows { time_us, op, block, request, request_blocks } = rows;
        Columns::in_memory(time_us.into(), op.into(), block.into(), request.into(), request_blocks.into())
    }
}

/// What a message has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Rows,
    /// The block addresses.
    Dictionary,
}

/// The buffers of a message.
struct Body {
    bytes: Vec<u8>,
    buffers: Vec<ipc::Buffer>,
    kept: Kept,
}

impl Body {
    fn new(kept: Kept) -> Body {
        Body { bytes: Vec::new(), buffers: Vec::new(), kept }
    }

    /// Adds a column without nulls, packed if it is kept and shorter so.
    fn column(&mut self, values: Buffer) {
        let packed = if self.kept == Kept::ForOthers { pack(&values) } else { None };
        match packed {
            Some(packed) => self.buffer(values.len() as i64, &packed),
            None => self.plain(values),
        }
    }

    /// Adds a column without nulls as it is.
    fn plain(&mut self, values: Buffer) {
        self.buffer(-1, &values);
    }

    /// Adds a column that is this many bytes long unpacked; -1 if it is not packed.
    fn buffer(&mut self, length: i64, contents: &[u8]) {
        let start = self.bytes.len();
        self.buffers.push(ipc::Buffer::new(start as i64, 0));
        if self.kept == Kept::ForOthers {
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(contents);
        self.buffers.push(ipc::Buffer::new(start as i64, (self.bytes.len() - start) as i64));
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    fn message(self, rows: usize, contents: Contents) -> EncodedData {
        let ipc_message = metadata(&self.buffers, self.bytes.len(), rows, contents, self.kept);
        EncodedData { ipc_message, arrow_data: self.bytes }
    }
}

/// What stands before a body of `body_bytes`, in which `buffers` lie.
fn metadata(buffers: &[ipc::Buffer], body_bytes: usize, rows: usize, contents: Contents, kept: Kept) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = vec![ipc::FieldNode::new(rows as i64, 0); buffers.len() / 2];
    let (nodes, buffers) = (builder.create_vector(&nodes), builder.create_vector(buffers));
    let compression = (kept == Kept::ForOthers).then(|| {
        let mut compression = ipc::BodyCompressionBuilder::new(&mut builder);
        compression.add_codec(ipc::CompressionType::ZSTD);
        compression.add_method(ipc::BodyCompressionMethod::BUFFER);
        compression.finish()
    });
    let mut batch = ipc::RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    compression.into_iter().for_each(|compression| batch.add_compression(compression));
    let batch = batch.finish();
    let (kind, header) = match contents {
        Contents::Rows => (ipc::MessageHeader::RecordBatch, batch.as_union_value()),
        Contents::Dictionary => {
            let mut dictionary = ipc::DictionaryBatchBuilder::new(&mut builder);
            dictionary.add_id(0);
            dictionary.add_data(batch);
            (ipc::MessageHeader::DictionaryBatch, dictionary.finish().as_union_value())
        }
    };
    let mut message = ipc::MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_bodyLength(body_bytes as i64);
    message.add_header(header);
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// Writes a trace file.
pub struct TraceWriter<W: Write> {
    out: Summed<W>,
    kept: Kept,
    written: i64,
    options: IpcWriteOptions,
    schema: Schema,
    /// Batches that are being packed, in order; at most as many as there are cores.
    packing: VecDeque<JoinHandle<EncodedData>>,
    packing_max: usize,
    batches: Vec<Block>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file. What is kept for others is packed and has checksums.
    pub fn new(out: W, block_size_bytes: u64, kept: Kept) -> Result<Self, ArrowError> {
        let mut out = Summed::new(out, kept);
        out.write_all(MAGIC)?;
        out.write_all(&[0, 0])?;
        let mut writer = TraceWriter {
            out,
            kept,
            written: 8,
            options: IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?,
            schema: schema(block_size_bytes),
            packing: VecDeque::new(),
            packing_max: thread::available_parallelism().map_or(1, |cores| cores.get()),
            batches: Vec::new(),
        };
        let mut tracker = DictionaryTracker::new(true);
        let generator = IpcDataGenerator::default();
        let message = generator.schema_to_bytes_with_dictionary_tracker(&writer.schema, &mut tracker, &writer.options);
        writer.message(message)?;
        Ok(writer)
    }

    /// Bytes that are written.
    pub fn written_bytes(&self) -> u64 {
        self.written as u64
    }

    fn message(&mut self, message: EncodedData) -> Result<Block, ArrowError> {
        let offset = self.written;
        let (metadata, body) = write_message(&mut self.out, message, &self.options)?;
        self.written += (metadata + body) as i64;
        Ok(Block::new(offset, metadata as i32, body as i64))
    }

    /// Writes a message that the footer lists.
    fn block(&mut self, message: EncodedData) -> Result<Block, ArrowError> {
        self.out.begin_block();
        let block = self.message(message)?;
        self.out.end_block();
        Ok(block)
    }

    /// Writes `rows` as one record batch. Returns room for as many more.
    pub fn write(&mut self, rows: Rows) -> Result<Rows, ArrowError> {
        if self.kept == Kept::ForThisProcess {
            self.write_plain(&rows)?;
            return Ok(rows.cleared());
        }
        if self.packing.len() == self.packing_max {
            self.write_first_packed()?;
        }
        let room = Rows::with_capacity(rows.time_us.len());
        self.packing.push_back(thread::spawn(move || rows.packed()));
        Ok(room)
    }

    /// Writes the columns from where they are: a body of them would be another copy, in memory that is new to the process.
    fn write_plain(&mut self, rows: &Rows) -> Result<(), ArrowError> {
        let columns = rows.bytes();
        let (mut buffers, mut body_bytes) = (Vec::with_capacity(2 * columns.len()), 0);
        for column in columns {
            buffers.push(ipc::Buffer::new(body_bytes as i64, 0));
            buffers.push(ipc::Buffer::new(body_bytes as i64, column.len() as i64));
            body_bytes += column.len().next_multiple_of(ALIGNMENT);
        }
        let ipc_message = metadata(&buffers, body_bytes, rows.time_us.len(), Contents::Rows, self.kept);
        let before = self.message(EncodedData { ipc_message, arrow_data: Vec::new() })?;
        for column in columns {
            self.out.write_all(column)?;
            self.out.write_all(&[0; ALIGNMENT][..column.len().next_multiple_of(ALIGNMENT) - column.len()])?;
        }
        self.written += body_bytes as i64;
        self.batches.push(Block::new(before.offset(), before.metaDataLength(), body_bytes as i64));
        Ok(())
    }

    fn write_first_packed(&mut self) -> Result<(), ArrowError> {
        let Some(first) = self.packing.pop_front() else { return Ok(()) };
        let block = self.block(first.join().expect("packing does not panic"))?;
        self.batches.push(block);
        Ok(())
    }

    /// Writes the block addresses and the footer, and returns what was written to.
    pub fn finish(mut self, addresses: Vec<u64>, description: &Description) -> Result<W, ArrowError> {
        while !self.packing.is_empty() {
            self.write_first_packed()?;
        }
        let blocks = addresses.len();
        let mut body = Body::new(self.kept);
        body.column(Buffer::from_vec(addresses));
        let dictionary = self.block(body.message(blocks, Contents::Dictionary))?;
        self.footer(dictionary, description)?;
        self.out.flush()?;
        Ok(self.out.into_inner())
    }

    fn footer(&mut self, dictionary: Block, description: &Description) -> Result<(), ArrowError> {
        const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
        self.out.write_all(&END_OF_STREAM)?;
        let description =
            serde_json::to_string(description).map_err(|error| ArrowError::ExternalError(error.into()))?;
        let mut metadata = BTreeMap::from([(DESCRIPTION_KEY.to_owned(), description)]);
        metadata.extend(self.out.says());
        let metadata = metadata.into_iter().collect();
        let mut builder = FlatBufferBuilder::new();
        let dictionaries = builder.create_vector(&[dictionary]);
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
