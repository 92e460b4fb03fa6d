//! Lines with quotes, as in RFC 4180.

use super::super::Malformed;
use super::super::fields::Columns;

/// The fields of a line with quotes, without the quotes.
pub struct Quoted<'a> {
    pub line: &'a [u8],
    pub fields: csv::ByteRecordIter<'a>,
}

impl<'a> Columns<'a> for Quoted<'a> {
    fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        let missing = || Malformed::new(self.line, format!("a line with one more field: {expected}"));
        self.fields.next().ok_or_else(missing)
    }

    fn end_after(&self, more: usize, width: usize) -> Result<(), Malformed> {
        let surplus = self.fields.clone().skip(more).any(|field| !field.trim_ascii().is_empty());
        if surplus { Err(Malformed::new(self.line, format!("a line of {width} fields"))) } else { Ok(()) }
    }
}
