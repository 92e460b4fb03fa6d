//! A column of a record batch. Its values are mapped, packed, or picked from other columns; the latter two are unpacked
//! on first use.
//!
//! Packed buffers use Arrow's own compression by buffer: the length of the values in 8 bytes, little-endian, and a
//! frame of zstd. A length of -1 means that the values are not compressed.
//!
//! Source: Apache Arrow, "Columnar Format", "Compression" of record batches (`BodyCompression`, method `BUFFER`).

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use bytes::Bytes;

use super::values::Values;

/// A type of values in a column: numbers of a fixed length.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// The values of a column.
#[derive(Debug)]
pub struct Column<T: Element> {
    values: Arc<OnceLock<Values<T>>>,
    source: Source<T>,
}

/// The source of values.
#[derive(Clone, Debug)]
enum Source<T: Element> {
    /// The values are in memory.
    Here,
    Packed(Packed<T>),
    Picked(Arc<Vec<(Column<T>, Rows)>>),
}

/// Row numbers, which the columns of a batch share.
pub type Rows = Arc<Vec<u32>>;

/// Values that must be unpacked before use.
#[derive(Clone, Debug)]
struct Packed<T: Element> {
    bytes: Bytes,
    rows: usize,
    unpack: fn(&Bytes, usize) -> Result<Values<T>, String>,
    is_kept: bool,
}

/// The maximum ratio between a buffer and its frame of zstd; a larger one is damage and must not allocate memory.
const PACKED_MAX: usize = 1 << 16;
/// The level of zstd: the lowest, since higher ones save at most a tenth and take several times as long.
const LEVEL: i32 = 1;

impl<T: Element> Column<T> {
    /// Creates a column of `rows` values in a frame of zstd. If `is_kept`, clones share the unpacked values; otherwise
    /// each clone unpacks its own.
    pub(super) fn packed(bytes: Bytes, rows: usize, is_kept: bool) -> Column<T> {
        Column { values: Arc::default(), source: Source::Packed(Packed { bytes, rows, unpack: unpack::<T>, is_kept }) }
    }

    /// Creates a column of the values of each column at its rows, one after the other. Nothing is unpacked before the
    /// first use.
    pub fn picked(of: Vec<(Column<T>, Rows)>) -> Column<T> {
        Column { values: Arc::default(), source: Source::Picked(Arc::new(of)) }
    }

    /// Returns the values.
    pub fn buffer(&self) -> &Values<T> {
        self.values.get_or_init(|| self.unpacked().expect("packed values were checked when the file was opened"))
    }

    /// Returns the values without keeping them, if they are packed.
    ///
    /// # Errors
    /// Damage in the packed data.
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

    /// Returns the values, and keeps them if clones share them.
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
    /// Creates a column from values that are half as wide in the file.
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

/// Dereferences to the values. For access one by one, dereference once before the loop.
impl<T: Element> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer()
    }
}

/// Unpacks the `rows` values of a frame of zstd.
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

/// Packs `values`, if that makes them at least an eighth shorter.
pub(super) fn pack(values: &[u8]) -> Option<Vec<u8>> {
    let frame = zstd::bulk::compress(values, LEVEL).ok()?;
    (frame.len() < values.len() / 8 * 7).then_some(frame)
}
