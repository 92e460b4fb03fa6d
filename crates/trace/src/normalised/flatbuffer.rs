//! Reads tables of the FlatBuffers format from untrusted bytes, and writes them.
//!
//! A reader checks each position before reading: no bytes make it panic, and it needs no unsafe code. A missing number
//! is 0, the default of all numbers in the Arrow schemas used here.
//!
//! Source: FlatBuffers, "Internals" (the binary format). A table begins with the distance back to its vtable. The
//! vtable contains two lengths and then the position of each field in the table, or 0. Offsets are relative to their
//! own position.

/// The bytes before the positions of fields in a vtable: its own length and that of the table.
const VTABLE_HEADER: usize = 4;
/// The size of an offset, and of the length of a vector, in bytes.
const OFFSET: usize = 4;

/// The error of bytes that are not a flatbuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} {problem}")]
pub struct Invalid {
    at: usize,
    problem: &'static str,
}

fn outside(at: usize) -> Invalid {
    Invalid { at, problem: "is out of bounds" }
}

fn too_long(at: usize) -> Invalid {
    Invalid { at, problem: "has a length that goes out of bounds" }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Invalid> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(outside(at))
}

/// Returns the target of the offset at `at`.
fn follow(bytes: &[u8], at: usize) -> Result<usize, Invalid> {
    let distance = u32::from_le_bytes(array(bytes, at)?);
    usize::try_from(distance).ok().and_then(|distance| at.checked_add(distance)).ok_or(outside(at))
}

/// A table in a flatbuffer.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: &'a [u8],
}

impl<'a> Table<'a> {
    /// Returns the root table of `bytes`.
    pub fn root(bytes: &'a [u8]) -> Result<Table<'a>, Invalid> {
        Table::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Table<'a>, Invalid> {
        let back = i32::from_le_bytes(array(bytes, at)?);
        let start = isize::try_from(back).ok().and_then(|back| at.checked_add_signed(back.checked_neg()?));
        let start = start.ok_or(outside(at))?;
        let length = u16::from_le_bytes(array(bytes, start)?);
        let vtable = bytes[start..].get(..length.into()).ok_or(too_long(start))?;
        Ok(Table { bytes, at, vtable })
    }

    /// Returns the position of a field, if the table has it.
    fn place(&self, field: usize) -> Option<usize> {
        let place = u16::from_le_bytes(array(self.vtable, VTABLE_HEADER + 2 * field).ok()?);
        (place != 0).then(|| self.at + usize::from(place))
    }

    fn scalar<const N: usize>(&self, field: usize) -> Result<[u8; N], Invalid> {
        self.place(field).map_or(Ok([0; N]), |at| array(self.bytes, at))
    }

    /// Returns the number in a field of one byte: a small enumeration or a boolean.
    pub fn u8(&self, field: usize) -> Result<u8, Invalid> {
        self.scalar(field).map(u8::from_le_bytes)
    }

    /// Returns the number in a field of four bytes.
    pub fn i32(&self, field: usize) -> Result<i32, Invalid> {
        self.scalar(field).map(i32::from_le_bytes)
    }

    /// Returns the number in a field of eight bytes.
    pub fn i64(&self, field: usize) -> Result<i64, Invalid> {
        self.scalar(field).map(i64::from_le_bytes)
    }

    /// Returns the table that a field refers to.
    pub fn table(&self, field: usize) -> Result<Option<Table<'a>>, Invalid> {
        self.place(field).map(|at| Table::at(self.bytes, follow(self.bytes, at)?)).transpose()
    }

    /// Returns the position of the first struct of a vector and all its structs, of `N` bytes each; none if the field
    /// is missing.
    fn elements<const N: usize>(&self, field: usize) -> Result<(usize, &'a [[u8; N]]), Invalid> {
        let Some(at) = self.place(field) else { return Ok((0, &[])) };
        let at = follow(self.bytes, at)?;
        let count = usize::try_from(u32::from_le_bytes(array(self.bytes, at)?)).ok();
        let (start, length) = (at + OFFSET, count.and_then(|count| count.checked_mul(N)));
        let elements = length.and_then(|length| self.bytes[start..].get(..length)).ok_or(too_long(at))?;
        Ok((start, elements.as_chunks().0))
    }

    /// Returns the structs in a vector, of `N` bytes each; none if the field is missing.
    pub fn structs<const N: usize>(&self, field: usize) -> Result<&'a [[u8; N]], Invalid> {
        self.elements(field).map(|(_, structs)| structs)
    }

    /// Returns the tables in a vector; none if the field is missing.
    pub fn tables(&self, field: usize) -> Result<impl Iterator<Item = Result<Table<'a>, Invalid>> + use<'a>, Invalid> {
        let (start, offsets) = self.elements::<OFFSET>(field)?;
        let bytes = self.bytes;
        Ok((0..offsets.len()).map(move |number| Table::at(bytes, follow(bytes, start + OFFSET * number)?)))
    }

    /// Returns the text in a field, as bytes; none if the field is missing.
    pub fn text_bytes(&self, field: usize) -> Result<&'a [u8], Invalid> {
        self.structs::<1>(field).map(<[[u8; 1]]>::as_flattened)
    }

    /// Returns the text in a field; empty if the field is missing.
    pub fn text(&self, field: usize) -> Result<&'a str, Invalid> {
        let wrong =
            |_| Invalid { at: self.place(field).unwrap_or(self.at), problem: "leads to text that is not UTF-8" };
        std::str::from_utf8(self.text_bytes(field)?).map_err(wrong)
    }
}

/// A written object: its distance from the end of the flatbuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(usize);

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    To(Written),
}

/// Writes a flatbuffer from its end to its beginning: the target of an offset is written before the offset.
#[derive(Debug, Default)]
pub struct Builder {
    /// The bytes so far, the last one first.
    reversed: Vec<u8>,
    alignment: usize,
    /// The positions of the distinct vtables.
    vtables: Vec<usize>,
}

impl Builder {
    /// Aligns the position after `length` more bytes.
    fn align(&mut self, length: usize, alignment: usize) {
        self.alignment = self.alignment.max(alignment);
        let end = (self.reversed.len() + length).next_multiple_of(alignment);
        self.reversed.resize(end - length, 0);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    /// Writes a number at a multiple of its length.
    fn number(&mut self, bytes: &[u8]) -> Written {
        self.align(bytes.len(), bytes.len());
        self.put(bytes);
        Written(self.reversed.len())
    }

    fn offset(&mut self, to: Written) -> Written {
        self.align(OFFSET, OFFSET);
        let distance = self.reversed.len() + OFFSET - to.0;
        self.number(&(distance as u32).to_le_bytes())
    }

    /// Writes text.
    pub fn text(&mut self, text: &str) -> Written {
        self.align(text.len() + 1, OFFSET);
        self.put(&[0]);
        self.put(text.as_bytes());
        self.number(&(text.len() as u32).to_le_bytes())
    }

    /// Writes a vector of structs whose longest number has eight bytes.
    pub fn structs<const N: usize>(&mut self, structs: &[[u8; N]]) -> Written {
        let bytes = structs.as_flattened();
        self.align(bytes.len(), 8);
        self.put(bytes);
        self.number(&(structs.len() as u32).to_le_bytes())
    }

    /// Writes a vector of offsets to tables.
    pub fn tables(&mut self, tables: &[Written]) -> Written {
        self.align(0, OFFSET);
        for &table in tables.iter().rev() {
            self.offset(table);
        }
        self.number(&(tables.len() as u32).to_le_bytes())
    }

    /// Writes a table with these fields, by number. Numbers that are 0 are left out.
    pub fn table(&mut self, fields: &[(usize, Value)]) -> Written {
        let end = self.reversed.len();
        let mut places = Vec::with_capacity(fields.len());
        for &(field, value) in fields {
            let place = match value {
                Value::U8(0) | Value::I16(0) | Value::I32(0) | Value::I64(0) => continue,
                Value::U8(value) => self.number(&value.to_le_bytes()),
                Value::I16(value) => self.number(&value.to_le_bytes()),
                Value::I32(value) => self.number(&value.to_le_bytes()),
                Value::I64(value) => self.number(&value.to_le_bytes()),
                Value::To(written) => self.offset(written),
            };
            places.push((field, place));
        }
        let table = self.number(&[0; OFFSET]);
        let fields = places.iter().map(|(field, _)| field + 1).max().unwrap_or(0);
        let mut vtable = vec![0; VTABLE_HEADER + 2 * fields];
        let mut put = |at: usize, number: usize| vtable[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
        put(0, VTABLE_HEADER + 2 * fields);
        put(2, table.0 - end);
        places.iter().for_each(|(field, place)| put(VTABLE_HEADER + 2 * field, table.0 - place.0));
        let back = self.vtable(&vtable) as i32 - table.0 as i32;
        self.reversed[table.0 - OFFSET..table.0].copy_from_slice(&back.to_be_bytes());
        table
    }

    /// Returns the position of this vtable: tables with the same layout share a vtable.
    fn vtable(&mut self, vtable: &[u8]) -> usize {
        let is_same = |start: &&usize| {
            let written = &self.reversed[..**start];
            written.iter().rev().take(vtable.len()).eq(vtable)
        };
        if let Some(&start) = self.vtables.iter().find(is_same) {
            return start;
        }
        self.put(vtable);
        self.vtables.push(self.reversed.len());
        self.reversed.len()
    }

    /// Returns the bytes of the flatbuffer whose root is `root`.
    pub fn finish(mut self, root: Written) -> Vec<u8> {
        self.align(OFFSET, self.alignment);
        self.offset(root);
        self.reversed.reverse();
        self.reversed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a table of all kinds of fields, with a table of the same layout in a vector of two.
    fn written() -> Vec<u8> {
        let mut builder = Builder::default();
        let text = builder.text("zstd");
        let inner = builder.table(&[(0, Value::I64(-7)), (1, Value::To(text))]);
        let other = builder.table(&[(0, Value::I64(8)), (1, Value::To(text))]);
        let (tables, structs) = (builder.tables(&[inner, other]), builder.structs(&[[1; 16], [2; 16]]));
        let root = builder.table(&[
            (0, Value::U8(1)),
            (1, Value::I16(-2)),
            (2, Value::I32(0)),
            (3, Value::I64(4)),
            (4, Value::To(tables)),
            (5, Value::To(structs)),
            (7, Value::To(other)),
        ]);
        builder.finish(root)
    }

    /// Reads all fields of a table of [`written`].
    fn walk(bytes: &[u8]) -> Result<Vec<i64>, Invalid> {
        let root = Table::root(bytes)?;
        let mut found = vec![root.u8(0)?.into(), root.i32(2)?.into(), root.i64(3)?];
        for table in root.tables(4)?.chain(root.table(6)?.map(Ok)).chain(root.table(7)?.map(Ok)) {
            found.extend([table?.i64(0)?, table?.text(1)?.len() as i64]);
        }
        found.extend(root.structs::<16>(5)?.iter().map(|bytes| i64::from(bytes[15])));
        found.extend([root.text(8)?.len() as i64, root.structs::<8>(9)?.len() as i64]);
        Ok(found)
    }

    #[test]
    fn tables_are_read_as_they_were_written() {
        assert_eq!(walk(&written()), Ok(vec![1, 0, 4, -7, 4, 8, 4, 8, 4, 1, 2, 0, 0]));
    }

    /// The vtable of the first table has 6 bytes, and the other tables are aligned by two bytes: they have the same
    /// layout.
    #[test]
    fn tables_of_one_layout_share_a_vtable() {
        let mut builder = Builder::default();
        let tables = [1, 2, 3].map(|number| builder.table(&[(0, Value::I32(number))]));
        let tables = builder.tables(&tables);
        let root = builder.table(&[(0, Value::To(tables))]);
        let bytes = builder.finish(root);
        let tables = Table::root(&bytes).unwrap().tables(0).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(tables.iter().map(|table| table.i32(0).unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(tables[1].vtable.as_ptr(), tables[2].vtable.as_ptr());
        assert!(bytes.len().is_multiple_of(4));
    }

    #[test]
    fn damage_is_an_error_or_another_value_and_never_a_panic() {
        let whole = written();
        for at in 0..whole.len() {
            let _ = walk(&whole[..at]);
            for byte in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = walk(&damaged);
            }
        }
        assert_eq!(walk(&[]), Err(outside(0)));
        assert_eq!(walk(&[0xFF; 64]).unwrap_err().to_string(), "byte 4294967295 is out of bounds");
    }
}
