//! The metadata of an Arrow IPC file: its footer, and the metadata before the columns of each message. Only the types
//! of a trace file are written: integers without nulls, and a dictionary of them.
//!
//! Source: Apache Arrow, "Columnar Format", "Serialization and Interprocess Communication (IPC)", metadata version V5;
//! field numbers are those of `Schema.fbs`, `Message.fbs` and `File.fbs`.

use std::fmt;
use std::io::{self, Write};

use super::flatbuffer::{Builder, Invalid, Table, Value, Written};

/// The bytes at the beginning and the end of an Arrow IPC file.
pub const MAGIC: &[u8; 6] = b"ARROW1";
/// The bytes at the beginning of a message; its length follows.
pub const CONTINUATION: [u8; 4] = [0xFF; 4];
/// The number of bytes before the metadata of a message.
pub const PREFIX: usize = 8;
/// The alignment of messages, bodies and buffers, in bytes.
pub const ALIGNMENT: usize = 64;

/// `MetadataVersion.V5`.
const VERSION: Value = Value::I16(4);
/// `MessageHeader.Schema`.
const SCHEMA: u8 = 1;
/// `MessageHeader.DictionaryBatch`.
const DICTIONARY_BATCH: u8 = 2;
/// `MessageHeader.RecordBatch`.
const RECORD_BATCH: u8 = 3;
/// `Type.Int`.
const INT: u8 = 2;
/// `CompressionType.ZSTD`.
const ZSTD: u8 = 1;

/// The maximum number of columns that are read of a schema.
const FIELDS_MAX: usize = 16;

/// The members of `Type`, by number.
const TYPES: [&str; 27] = [
    "no type",
    "Null",
    "Int",
    "FloatingPoint",
    "Binary",
    "Utf8",
    "Bool",
    "Decimal",
    "Date",
    "Time",
    "Timestamp",
    "Interval",
    "List",
    "Struct",
    "Union",
    "FixedSizeBinary",
    "FixedSizeList",
    "Map",
    "Duration",
    "LargeBinary",
    "LargeUtf8",
    "LargeList",
    "RunEndEncoded",
    "BinaryView",
    "Utf8View",
    "ListView",
    "LargeListView",
];

/// The type of a column or of its indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Integers of this many bits.
    Int { bits: i32, is_signed: bool },
    /// Another type, by its number.
    Other(u8),
}

impl Type {
    /// Returns the type of signed integers.
    pub const fn signed(bits: i32) -> Type {
        Type::Int { bits, is_signed: true }
    }

    /// Returns the type of unsigned integers.
    pub const fn unsigned(bits: i32) -> Type {
        Type::Int { bits, is_signed: false }
    }

    /// Parses the table `Int`.
    fn of_int(int: Table<'_>) -> Result<Type, Invalid> {
        Ok(Type::Int { bits: int.i32(0)?, is_signed: int.u8(1)? != 0 })
    }

    /// Writes the table `Int`.
    fn write(self, to: &mut Builder) -> Written {
        match self {
            Type::Int { bits, is_signed } => to.table(&[(1, Value::U8(is_signed.into())), (0, Value::I32(bits))]),
            Type::Other(_) => unreachable!("traces have integers only"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Type::Int { bits, is_signed } => write!(f, "{}Int{bits}", if is_signed { "" } else { "U" }),
            Type::Other(number) => match TYPES.get(usize::from(number)) {
                Some(name) => f.write_str(name),
                None => write!(f, "type {number}"),
            },
        }
    }
}

/// A column of a schema.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The type of its values.
    pub values: Type,
    /// The type of its indices, if its values are in a dictionary.
    pub indices: Option<Type>,
}

impl Field {
    /// Creates a column of values.
    pub fn new(name: &str, values: Type) -> Field {
        Field { name: name.to_owned(), values, indices: None }
    }

    /// Returns the column with its values in a dictionary.
    pub fn with_indices(self, indices: Type) -> Field {
        Field { indices: Some(indices), ..self }
    }

    fn read(field: Table<'_>) -> Result<Field, Invalid> {
        let values = match (field.u8(2)?, field.table(3)?) {
            (INT, Some(int)) => Type::of_int(int)?,
            (number, _) => Type::Other(number),
        };
        let indices = match field.table(4)? {
            // The default of indices is 32-bit integers.
            Some(dictionary) => Some(dictionary.table(1)?.map_or(Ok(Type::signed(32)), Type::of_int)?),
            None => None,
        };
        Ok(Field { name: field.text(0)?.to_owned(), values, indices })
    }

    /// Writes the field, which has no nulls; a dictionary has the number 0.
    fn write(&self, to: &mut Builder) -> Written {
        let (name, children) = (to.text(&self.name), to.tables(&[]));
        let values = self.values.write(to);
        let dictionary = self.indices.map(|indices| {
            let indices = indices.write(to);
            to.table(&[(1, Value::To(indices))])
        });
        let mut fields = vec![(0, Value::To(name))];
        fields.extend(dictionary.map(|dictionary| (4, Value::To(dictionary))));
        fields.extend([(2, Value::U8(INT)), (5, Value::To(children)), (3, Value::To(values))]);
        to.table(&fields)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.indices {
            Some(indices) => write!(f, "{}: Dictionary({indices}, {})", self.name, self.values),
            None => write!(f, "{}: {}", self.name, self.values),
        }
    }
}

/// The columns of a file, and its metadata: texts by key.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The columns in order.
    pub fields: Vec<Field>,
    /// Keys with their values, in order of keys.
    pub metadata: Vec<(String, String)>,
}

impl Schema {
    fn write(&self, to: &mut Builder) -> Written {
        let fields: Vec<Written> = self.fields.iter().map(|field| field.write(to)).collect();
        let fields = to.tables(&fields);
        let metadata = write_pairs(to, &self.metadata);
        to.table(&[(1, Value::To(fields)), (2, Value::To(metadata))])
    }

    /// Returns the metadata of the message with the schema, which has no body.
    pub fn message(&self) -> Vec<u8> {
        let mut to = Builder::default();
        let schema = self.write(&mut to);
        message(to, SCHEMA, schema, 0)
    }
}

/// Writes a vector of the table `KeyValue`.
fn write_pairs(to: &mut Builder, pairs: &[(String, String)]) -> Written {
    let mut pair = |(key, value): &(String, String)| {
        let (key, value) = (to.text(key), to.text(value));
        to.table(&[(0, Value::To(key)), (1, Value::To(value))])
    };
    let pairs: Vec<Written> = pairs.iter().map(&mut pair).collect();
    to.tables(&pairs)
}

/// Returns the first value of `key` in a vector of the table `KeyValue`.
fn value_of<'a>(table: Table<'a>, field: usize, key: &str) -> Result<Option<&'a str>, Invalid> {
    for pair in table.tables(field)? {
        let pair = pair?;
        if pair.text_bytes(0)? == key.as_bytes() {
            return pair.text(1).map(Some);
        }
    }
    Ok(None)
}

/// The position of a message in the file: the struct `Block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The byte offset.
    pub offset: i64,
    /// The number of bytes before its body.
    pub metadata_length: i32,
    /// The number of bytes of its body.
    pub body_length: i64,
}

impl Block {
    const BYTES: usize = 24;

    fn read(bytes: &[u8; Block::BYTES]) -> Block {
        let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        // Four unused bytes follow the length of the metadata.
        Block { offset: number(0), metadata_length: number(8) as i32, body_length: number(16) }
    }

    fn bytes(&self) -> [u8; Block::BYTES] {
        let numbers = [self.offset, i64::from(self.metadata_length as u32), self.body_length];
        std::array::from_fn(|byte| numbers[byte / 8].to_le_bytes()[byte % 8])
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { offset, metadata_length, body_length } = self;
        write!(f, "a message at byte {offset} with {metadata_length} bytes of metadata and {body_length} of columns")
    }
}

/// The footer of a file, which lists all other parts.
#[derive(Clone, Copy, Debug)]
pub struct Footer<'a>(Table<'a>);

impl<'a> Footer<'a> {
    /// Parses the footer in `bytes`.
    pub fn read(bytes: &'a [u8]) -> Result<Footer<'a>, Invalid> {
        Table::root(bytes).map(Footer)
    }

    /// Returns the schema, if there is one.
    pub fn schema(&self) -> Result<Option<FooterSchema<'a>>, Invalid> {
        Ok(self.0.table(1)?.map(FooterSchema))
    }

    /// Returns the messages with dictionaries.
    pub fn dictionaries(&self) -> Result<Vec<Block>, Invalid> {
        Ok(self.0.structs(2)?.iter().map(Block::read).collect())
    }

    /// Returns the messages with rows, in order.
    pub fn batches(&self) -> Result<Vec<Block>, Invalid> {
        Ok(self.0.structs(3)?.iter().map(Block::read).collect())
    }

    /// Returns the value of `key` in the footer's own metadata.
    pub fn value(&self, key: &str) -> Result<Option<&'a str>, Invalid> {
        value_of(self.0, 4, key)
    }

    /// Returns the bytes of a footer.
    pub fn write(schema: &Schema, dictionaries: &[Block], batches: &[Block], metadata: &[(String, String)]) -> Vec<u8> {
        let mut to = Builder::default();
        let mut blocks = |blocks: &[Block]| Value::To(to.structs(&blocks.iter().map(Block::bytes).collect::<Vec<_>>()));
        let (dictionaries, batches) = (blocks(dictionaries), blocks(batches));
        let schema = schema.write(&mut to);
        let metadata = write_pairs(&mut to, metadata);
        let metadata = Value::To(metadata);
        let footer = to.table(&[(0, VERSION), (1, Value::To(schema)), (2, dictionaries), (3, batches), (4, metadata)]);
        to.finish(footer)
    }
}

/// The schema in a footer.
#[derive(Clone, Copy, Debug)]
pub struct FooterSchema<'a>(Table<'a>);

impl<'a> FooterSchema<'a> {
    /// Returns the first columns: more than a trace has, and few enough that their names fit in memory.
    pub fn fields(&self) -> Result<Vec<Field>, Invalid> {
        self.0.tables(1)?.take(FIELDS_MAX).map(|field| Field::read(field?)).collect()
    }

    /// Returns the value of `key` in the metadata.
    pub fn value(&self, key: &str) -> Result<Option<&'a str>, Invalid> {
        value_of(self.0, 2, key)
    }
}

/// The position of a buffer in the body of its message: the struct `Buffer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The byte offset.
    pub offset: i64,
    /// The length in bytes.
    pub length: i64,
}

impl Span {
    const BYTES: usize = 16;

    fn read(bytes: &[u8; Span::BYTES]) -> Span {
        let [offset, length] = pair(bytes);
        Span { offset, length }
    }
}

/// Returns the two numbers of a struct `Buffer` or `FieldNode`.
fn pair(bytes: &[u8; 16]) -> [i64; 2] {
    let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    [number(0), number(8)]
}

fn pair_bytes(numbers: [i64; 2]) -> [u8; 16] {
    std::array::from_fn(|byte| numbers[byte / 8].to_le_bytes()[byte % 8])
}

/// The compression of a message's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// No compression.
    Plain,
    /// Each buffer by zstd.
    Zstd,
    /// Another compression.
    Other,
}

/// The metadata of a message with rows.
#[derive(Clone, Copy, Debug)]
pub struct RecordBatch<'a> {
    /// The number of rows.
    pub rows: i64,
    /// The compression of the buffers.
    pub packing: Packing,
    nodes: &'a [[u8; 16]],
    buffers: &'a [[u8; 16]],
}

impl<'a> RecordBatch<'a> {
    fn read(batch: Table<'a>) -> Result<RecordBatch<'a>, Invalid> {
        let packing = match batch.table(3)? {
            None => Packing::Plain,
            Some(by) if (by.u8(0)?, by.u8(1)?) == (ZSTD, 0) => Packing::Zstd,
            Some(_) => Packing::Other,
        };
        Ok(RecordBatch { rows: batch.i64(0)?, packing, nodes: batch.structs(1)?, buffers: batch.structs(2)? })
    }

    /// Returns the number of rows and of nulls of a column.
    pub fn node(&self, column: usize) -> Option<[i64; 2]> {
        self.nodes.get(column).map(pair)
    }

    /// Returns the position of a buffer.
    pub fn buffer(&self, number: usize) -> Option<Span> {
        self.buffers.get(number).map(Span::read)
    }
}

/// The contents of a message.
#[derive(Clone, Copy, Debug)]
pub enum Header<'a> {
    /// Rows.
    Rows(RecordBatch<'a>),
    /// All values of a dictionary.
    Dictionary(RecordBatch<'a>),
    /// Other contents.
    Other,
}

impl<'a> Header<'a> {
    /// Parses the header of the message whose metadata is `bytes`.
    pub fn read(bytes: &'a [u8]) -> Result<Header<'a>, Invalid> {
        let message = Table::root(bytes)?;
        match (message.u8(1)?, message.table(2)?) {
            (RECORD_BATCH, Some(rows)) => RecordBatch::read(rows).map(Header::Rows),
            (DICTIONARY_BATCH, Some(dictionary)) if dictionary.u8(2)? == 0 => match dictionary.table(1)? {
                Some(values) => RecordBatch::read(values).map(Header::Dictionary),
                None => Ok(Header::Other),
            },
            _ => Ok(Header::Other),
        }
    }
}

/// The contents of a message to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Rows,
    /// The values of dictionary 0.
    Dictionary,
}

/// Returns the metadata of a message of `rows` rows without nulls, whose `body_bytes` have two of `buffers` for each
/// column.
pub fn batch(contents: Contents, rows: usize, buffers: &[Span], packing: Packing, body_bytes: usize) -> Vec<u8> {
    let mut to = Builder::default();
    let nodes = to.structs(&vec![pair_bytes([rows as i64, 0]); buffers.len() / 2]);
    let spans: Vec<_> = buffers.iter().map(|span| pair_bytes([span.offset, span.length])).collect();
    let buffers = to.structs(&spans);
    let packing = (packing == Packing::Zstd).then(|| to.table(&[(0, Value::U8(ZSTD))]));
    let mut fields = vec![(0, Value::I64(rows as i64)), (1, Value::To(nodes)), (2, Value::To(buffers))];
    fields.extend(packing.map(|packing| (3, Value::To(packing))));
    let batch = to.table(&fields);
    match contents {
        Contents::Rows => message(to, RECORD_BATCH, batch, body_bytes),
        Contents::Dictionary => {
            let dictionary = to.table(&[(1, Value::To(batch))]);
            message(to, DICTIONARY_BATCH, dictionary, body_bytes)
        }
    }
}

fn message(mut to: Builder, kind: u8, header: Written, body_bytes: usize) -> Vec<u8> {
    let body = Value::I64(body_bytes as i64);
    let message = to.table(&[(0, VERSION), (1, Value::U8(kind)), (3, body), (2, Value::To(header))]);
    to.finish(message)
}

/// Writes the metadata of a message; returns the number of bytes before its body.
pub fn write_metadata(out: &mut impl Write, metadata: &[u8]) -> io::Result<usize> {
    let length = (PREFIX + metadata.len()).next_multiple_of(ALIGNMENT);
    out.write_all(&CONTINUATION)?;
    out.write_all(&((length - PREFIX) as u32).to_le_bytes())?;
    out.write_all(metadata)?;
    out.write_all(&[0; ALIGNMENT][..length - PREFIX - metadata.len()])?;
    Ok(length)
}
