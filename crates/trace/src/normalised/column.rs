//! A column of a record batch: values that stand in the file as they are, packed ones that are unpacked when they are used, or some of
//! another column, picked when they are used.
//!
//! Packed buffers are those of Arrow's own compression by buffer: the length of the values in 8 bytes, little-endian, and a frame of zstd; a
//! length of -1 says that the values follow as they are.
//!
//! Source: Apache Arrow, "Columnar Format", "Compression" of record batches (`BodyCompression`, method `BUFFER`).

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use bytes::Bytes;

use super::values::Values;

/// What a column may have: numbers of a fixed length.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// Values of a column.
#[derive(Debug)]
pub struct Column<T: Element> {
    values: Arc<OnceLock<Values<T>>>,
    source: Source<T>,
}

/// Where values come from.
#[derive(Clone, Debug)]
enum Source<T: Element> {
    /// They are there.
    Here,
    Packed(Packed<T>),
    Picked(Arc<Vec<(Column<T>, Rows)>>),
}

/// The numbers of rows, which the columns of a batch share.
pub type Rows = Arc<Vec<u32>>;

/// Values that are not as they are used.
#[derive(Clone, Debug)]
struct Packed<T: Element> {
    bytes: Bytes,
    rows: usize,
    unpack: fn(&Bytes, usize) -> Result<Values<T>, String>,
    is_kept: bool,
}

/// How many times as long as its frame of zstd a buffer is at most; more is damage, and not worth its memory.
const PACKED_MAX: usize = 1 << 16;
/// The level of zstd: the lowest, since higher ones save a tenth at most and take several times as long.
const LEVEL: i32 = 1;

impl<T: Element> Column<T> {
    /// `rows` values in a frame of zstd. If what is unpacked `is_kept`, a clone has it too; else each clone unpacks for itself.
    pub(super) fn packed(bytes: Bytes, rows: usize, is_kept: bool) -> Column<T> {
        Column { values: Arc::default(), source: Source::Packed(Packed { bytes, rows, unpack: unpack::<T>, is_kept }) }
    }

    /// The values of each column at its rows, one after the other. Where nobody uses them, none is unpacked for them.
    pub fn picked(of: Vec<(Column<T>, Rows)>) -> Column<T> {
        Column { values: Arc::default(), source: Source::Picked(Arc::new(of)) }
    }

    /// The values.
    pub fn buffer(&self) -> &Values<T> {
        self.values.get_or_init(|| self.unpacked().expect("what is packed was checked when the file was opened"))
    }

    /// The values, which are not kept here if they are packed.
    ///
    /// # Errors
    /// What is wrong with what they are packed in.
    pub(super) fn unpacked(&self) -> Result<Values<T>, String> {
        match (self.values.get(), &self.source) {
            (Some(values), _) => Ok(values.clone()),
            (None, Source::Packed(Packed { bytes, rows, unpack, .. })) => unpack(bytes, *rows),
            (None, Source::Picked(of)) => {
                let mut picked = Vec::with_capacity(of.iter().map(|(_, rows)| rows.len()).sum());
                for (column, rows) in of.iter() {
                    let values = column.unpacked()?;
                    picked.extend(rows.iter().map(|&row| values[row as usize]));
                }
                Ok(picked.into())
            }
            (None, Source::Here) => Ok(Vec::new().into()),
        }
    }

    /// The same, and keeps them if clones are to have them.
    pub(super) fn checked(&self) -> Result<Values<T>, String> {
        let values = self.unpacked()?;
        if matches!(&self.source, Source::Packed(Packed { is_kept: true, .. })) {
            // Another thread may have been faster, with the same values.
            let _ = self.values.set(values.clone());
        }
        Ok(values)
    }
}

impl Column<u64> {
    /// Values that are half as wide in the file.
    pub(super) fn of_narrow(values: Values<u32>, is_kept: bool) -> Column<u64> {
        fn widened(bytes: &Bytes, _: usize) -> Result<Values<u64>, String> {
            Ok(Values::<u32>::of_bytes(bytes.clone()).iter().map(|&value| u64::from(value)).collect::<Vec<_>>().into())
        }
        let (rows, bytes) = (values.len(), values.bytes().clone());
        Column { values: Arc::default(), source: Source::Packed(Packed { bytes, rows, unpack: widened, is_kept }) }
    }
}

impl<T: Element> Clone for Column<T> {
    fn clone(&self) -> Self {
        let values = match &self.source {
            Source::Packed(Packed { is_kept: false, .. }) => Arc::default(),
            _ => self.values.clone(),
        };
        Column { values, source: self.source.clone() }
    }
}

impl<T: Element> From<Values<T>> for Column<T> {
    fn from(values: Values<T>) -> Self {
        Column { values: Arc::new(OnceLock::from(values)), source: Source::Here }
    }
}

impl<T: Element> From<Vec<T>> for Column<T> {
    fn from(values: Vec<T>) -> Self {
        Values::from(values).into()
    }
}

/// The values. Where they are asked for one by one, they are had from here once before.
impl<T: Element> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer()
    }
}

/// The `rows` values of a frame of zstd.
fn unpack<T: Element>(frame: &Bytes, rows: usize) -> Result<Values<T>, String> {
    let bytes = rows.checked_mul(size_of::<T>()).filter(|bytes| bytes / PACKED_MAX <= frame.len());
    let bytes = bytes.ok_or_else(|| format!("{rows} values in {} bytes", frame.len()))?;
    let mut values: Vec<T> = bytemuck::zeroed_vec(rows);
    let unpacked = zstd::bulk::decompress_to_buffer(frame, bytemuck::cast_slice_mut::<T, u8>(&mut values));
    match unpacked.map_err(|error| format!("damaged zstd data ({error})"))? {
        found if found == bytes => Ok(values.into()),
        found => Err(format!("{found} bytes of values for {rows} rows")),
    }
}

/// `values` packed, where that makes them shorter by an eighth at least.
pub(super) fn pack(values: &[u8]) -> Option<Vec<u8>> {
    let frame = zstd::bulk::compress(values, LEVEL).ok()?;
    (frame.len() < values.len() / 8 * 7).then_some(frame)
}
