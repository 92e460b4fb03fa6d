//! The checksum of a trace file that is kept.
//!
//! Between the end of the stream and the footer stand 12 bytes, `FW-CRC32C` with three zeroes behind, and the CRC-32C of all other bytes of
//! the file, little-endian. Readers of Arrow pass over them. The footer says that they are there, so that no flipped bit hides them. Files
//! of earlier versions and temporary ones have none.

use std::io::{self, Write};

/// The footer's key for which checksum there is.
pub const KEY: &str = "flashwise.trace.checksum";
const KIND: &str = "crc32c";
/// What stands before the checksum.
const TAG: &[u8; 12] = b"FW-CRC32C\0\0\0";
const BYTES: usize = TAG.len() + 4;

/// Who reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// This process, soon: no checksum is needed.
    ForThisProcess,
    /// Whoever and whenever.
    ForOthers,
}

/// A writer that sums up what is written, if it is asked to.
#[derive(Debug)]
pub struct Summed<W> {
    out: W,
    crc32c: Option<u32>,
}

impl<W: Write> Summed<W> {
    /// Writes to `out`.
    pub fn new(out: W, kept: Kept) -> Self {
        Summed { out, crc32c: (kept == Kept::ForOthers).then_some(0) }
    }

    /// What the footer says of the checksum.
    pub fn says(&self) -> Option<(String, String)> {
        self.crc32c.map(|_| (KEY.to_owned(), KIND.to_owned()))
    }

    /// Writes `end`, all from the footer on, behind the checksum.
    pub fn write_end(&mut self, end: &[u8]) -> io::Result<()> {
        if self.crc32c.is_some() {
            self.write_all(TAG)?;
            let sum = self.crc32c.map_or(0, |before| crc32c::crc32c_append(before, end));
            self.out.write_all(&sum.to_le_bytes())?;
        }
        self.out.write_all(end)
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc32c = self.crc32c.map(|sum| crc32c::crc32c_append(sum, &bytes[..written]));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Checks the sum that stands before the footer, if there is one; `is_said` where the footer says so.
///
/// # Errors
/// What was found and what was expected.
pub fn check(file: &[u8], footer_start: usize, is_said: bool) -> Result<(), String> {
    let Some(start) = footer_start.checked_sub(BYTES) else { return Ok(()) };
    let (tag, sum) = file[start..footer_start].split_at(TAG.len());
    if tag != TAG && !is_said {
        return Ok(());
    }
    let found = crc32c::crc32c_append(crc32c::crc32c(&file[..footer_start - sum.len()]), &file[footer_start..]);
    let said = u32::from_le_bytes(sum.try_into().expect("four bytes"));
    if said == found {
        return Ok(());
    }
    Err(format!("found contents of CRC-32C {found:08x}, expected {said:08x} as the file says"))
}
