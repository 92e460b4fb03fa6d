//! Writes the file of a normalised trace, which [`trace_file`](super::trace_file) reads.
//!
//! The dictionary of block addresses is complete at the end of the trace. So it is written after the record batches, as
//! the IPC file format allows. Batches of a persistent file are packed by separate threads, and written in order.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::thread::{self, JoinHandle};

use bytemuck::cast_slice;
use flashwise_core::access::Op;

use super::checksum::{Kept, Summed};
use super::column::pack;
use super::description::Description;
use super::ipc::{self, ALIGNMENT, Block, CONTINUATION, Contents, Footer, MAGIC, Packing, Schema, Span};
use super::trace_file::{Columns, DESCRIPTION_KEY, schema};

/// The columns of a run of accesses, with one element each per access.
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
    /// Creates empty columns with capacity for `rows`.
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

    /// Clears the columns, keeping their capacity.
    fn cleared(mut self) -> Self {
        self.time_us.clear();
        self.op.clear();
        self.block.clear();
        self.request.clear();
        self.request_blocks.clear();
        self
    }

    /// Returns the bytes of the columns, in the order of the schema.
    fn bytes(&self) -> [&[u8]; 5] {
        [
            cast_slice(&self.time_us),
            &self.op,
            cast_slice(&self.block),
            cast_slice(&self.request),
            cast_slice(&self.request_blocks),
        ]
    }

    /// Returns the packed message of these rows. A dictionary column is represented by its indices.
    fn packed(self) -> Message {
        let [time_us, op, block, request, request_blocks] = self.bytes();
        let mut body = Body::new(Kept::ForOthers);
        body.column(time_us);
        body.column(op);
        // Columns that every run reads are mapped without unpacking.
        body.plain(block);
        body.column(request);
        body.column(request_blocks);
        body.message(self.time_us.len(), Contents::Rows)
    }
}

impl From<Rows> for Columns {
    /// Converts the rows to columns in memory.
    fn from(rows: Rows) -> Columns {
        let Rows { time_us, op, block, request, request_blocks } = rows;
        Columns::in_memory(time_us.into(), op.into(), block.into(), request.into(), request_blocks.into())
    }
}

/// A message, ready to be written.
struct Message {
    metadata: Vec<u8>,
    body: Vec<u8>,
}

/// Returns the compression of a file's buffers.
fn packing(kept: Kept) -> Packing {
    match kept {
        Kept::ForOthers => Packing::Zstd,
        Kept::ForThisProcess => Packing::Plain,
    }
}

/// The buffers of a message.
struct Body {
    bytes: Vec<u8>,
    buffers: Vec<Span>,
    kept: Kept,
}

impl Body {
    fn new(kept: Kept) -> Body {
        Body { bytes: Vec::new(), buffers: Vec::new(), kept }
    }

    /// Adds a column without nulls, packed if the file is persistent and that makes it shorter.
    fn column(&mut self, values: &[u8]) {
        let packed = if self.kept == Kept::ForOthers { pack(values) } else { None };
        match packed {
            Some(packed) => self.buffer(values.len() as i64, &packed),
            None => self.plain(values),
        }
    }

    /// Adds a column without nulls, unpacked.
    fn plain(&mut self, values: &[u8]) {
        self.buffer(-1, values);
    }

    /// Adds a column with its unpacked length in bytes, or -1 if it is not packed.
    fn buffer(&mut self, length: i64, contents: &[u8]) {
        let start = self.bytes.len();
        self.buffers.push(Span { offset: start as i64, length: 0 });
        if self.kept == Kept::ForOthers {
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(contents);
        self.buffers.push(Span { offset: start as i64, length: (self.bytes.len() - start) as i64 });
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    fn message(self, rows: usize, contents: Contents) -> Message {
        let metadata = ipc::batch(contents, rows, &self.buffers, packing(self.kept), self.bytes.len());
        Message { metadata, body: self.bytes }
    }
}

/// Writes a trace file.
pub struct TraceWriter<W: Write> {
    out: Summed<W>,
    kept: Kept,
    written: i64,
    schema: Schema,
    /// Batches that are being packed, in order; at most as many as there are cores.
    packing: VecDeque<JoinHandle<Message>>,
    packing_max: usize,
    batches: Vec<Block>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file. A persistent file is packed and has checksums.
    pub fn new(out: W, block_size_bytes: u64, kept: Kept) -> io::Result<Self> {
        let mut out = Summed::new(out, kept);
        out.write_all(MAGIC)?;
        out.write_all(&[0, 0])?;
        let mut writer = TraceWriter {
            out,
            kept,
            written: 8,
            schema: schema(block_size_bytes),
            packing: VecDeque::new(),
            packing_max: thread::available_parallelism().map_or(1, |cores| cores.get()),
            batches: Vec::new(),
        };
        let metadata = writer.schema.message();
        writer.message(Message { metadata, body: Vec::new() })?;
        Ok(writer)
    }

    /// Returns the number of bytes written.
    pub fn written_bytes(&self) -> u64 {
        self.written as u64
    }

    fn message(&mut self, message: Message) -> io::Result<Block> {
        let offset = self.written;
        let metadata = ipc::write_metadata(&mut self.out, &message.metadata)?;
        self.out.write_all(&message.body)?;
        self.written += (metadata + message.body.len()) as i64;
        Ok(Block { offset, metadata_length: metadata as i32, body_length: message.body.len() as i64 })
    }

    /// Writes a message that the footer lists.
    fn block(&mut self, message: Message) -> io::Result<Block> {
        self.out.begin_block();
        let block = self.message(message)?;
        self.out.end_block();
        Ok(block)
    }

    /// Writes `rows` as one record batch. Returns empty columns with the same capacity.
    pub fn write(&mut self, rows: Rows) -> io::Result<Rows> {
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

    /// Writes the columns directly: a body would be another copy, in memory that is new to the process.
    fn write_plain(&mut self, rows: &Rows) -> io::Result<()> {
        let columns = rows.bytes();
        let (mut buffers, mut body_bytes) = (Vec::with_capacity(2 * columns.len()), 0);
        for column in columns {
            let offset = body_bytes as i64;
            buffers.extend([Span { offset, length: 0 }, Span { offset, length: column.len() as i64 }]);
            body_bytes += column.len().next_multiple_of(ALIGNMENT);
        }
        let metadata = ipc::batch(Contents::Rows, rows.time_us.len(), &buffers, packing(self.kept), body_bytes);
        let before = self.message(Message { metadata, body: Vec::new() })?;
        for column in columns {
            self.out.write_all(column)?;
            self.out.write_all(&[0; ALIGNMENT][..column.len().next_multiple_of(ALIGNMENT) - column.len()])?;
        }
        self.written += body_bytes as i64;
        self.batches.push(Block { body_length: body_bytes as i64, ..before });
        Ok(())
    }

    fn write_first_packed(&mut self) -> io::Result<()> {
        let Some(first) = self.packing.pop_front() else { return Ok(()) };
        let block = self.block(first.join().expect("packing does not panic"))?;
        self.batches.push(block);
        Ok(())
    }

    /// Writes the block addresses and the footer, and returns the output.
    pub fn finish(mut self, addresses: Vec<u64>, description: &Description) -> io::Result<W> {
        while !self.packing.is_empty() {
            self.write_first_packed()?;
        }
        let blocks = addresses.len();
        let mut body = Body::new(self.kept);
        body.column(cast_slice(&addresses));
        let dictionary = self.block(body.message(blocks, Contents::Dictionary))?;
        self.footer(dictionary, description)?;
        self.out.flush()?;
        Ok(self.out.into_inner())
    }

    fn footer(&mut self, dictionary: Block, description: &Description) -> io::Result<()> {
        self.out.write_all(&CONTINUATION)?;
        self.out.write_all(&[0; 4])?;
        let mut metadata = vec![(DESCRIPTION_KEY.to_owned(), serde_json::to_string(description)?)];
        metadata.extend(self.out.says());
        metadata.sort();
        let footer = Footer::write(&self.schema, &[dictionary], &self.batches, &metadata);
        let end = [&footer[..], &(footer.len() as i32).to_le_bytes(), MAGIC].concat();
        self.out.write_end(&end)
    }
}
