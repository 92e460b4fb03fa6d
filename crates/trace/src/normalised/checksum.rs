//! The checksums of a persistent trace file.
//!
//! The footer has the CRC-32C of each message with rows and of the block addresses, in the order of the file. So damage
//! is located, and all cores verify in parallel. Between the end of the stream and the footer are 12 bytes,
//! `FW-CRC32CS` and two zeroes. After them is the little-endian CRC-32C of all other bytes of the file. Readers of
//! Arrow ignore them. The footer has a key for them, so that no flipped bit hides them.
//!
//! Files of version 1 have one checksum of the whole file after `FW-CRC32C` and three zeroes. Temporary files have
//! none. The two versions have different keys: an older program reports an unknown version instead of damage.

use std::io::{self, Write};
use std::ops::Range;

use flashwise_core::checksum::{crc32c, crc32c_append};

/// The footer's key for the checksums.
pub const KEY: &str = "flashwise.trace.checksums";
/// The footer's key of version 1, which has one checksum of the whole file.
pub const WHOLE_KEY: &str = "flashwise.trace.checksum";
/// The prefix of the list of checksums of messages, which are in hexadecimal.
const EACH: &str = "crc32c ";
/// The bytes before the checksum.
const TAG: &[u8; 12] = b"FW-CRC32CS\0\0";
/// The bytes before the checksum in version 1.
const WHOLE_TAG: &[u8; 12] = b"FW-CRC32C\0\0\0";
const BYTES: usize = TAG.len() + 4;

/// The reader of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// This process, soon: no checksum is needed.
    ForThisProcess,
    /// Any process at any time.
    ForOthers,
}

/// A writer that computes checksums of the written bytes, if they are required.
#[derive(Debug)]
pub struct Summed<W> {
    out: W,
    sums: Option<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    blocks: Vec<u32>,
    /// The checksum of the block that is being written.
    block: Option<u32>,
    /// The checksum of all bytes outside of blocks.
    rest: u32,
}

impl<W: Write> Summed<W> {
    /// Creates a writer to `out`.
    pub fn new(out: W, kept: Kept) -> Self {
        Summed { out, sums: (kept == Kept::ForOthers).then(Sums::default) }
    }

    /// Starts a block with its own checksum.
    pub fn begin_block(&mut self) {
        self.sums.iter_mut().for_each(|sums| sums.block = Some(0));
    }

    /// Ends the block of [`begin_block`](Self::begin_block).
    pub fn end_block(&mut self) {
        self.sums.iter_mut().for_each(|sums| sums.blocks.extend(sums.block.take()));
    }

    /// Returns the footer's key and value for the checksums.
    pub fn says(&self) -> Option<(String, String)> {
        let sums = self.sums.as_ref()?.blocks.iter().map(|sum| format!("{sum:08x}"));
        Some((KEY.to_owned(), format!("{EACH}{}", sums.collect::<Vec<_>>().join(" "))))
    }

    /// Writes `end`, everything from the footer on, after the checksum.
    pub fn write_end(&mut self, end: &[u8]) -> io::Result<()> {
        if self.sums.is_some() {
            self.write_all(TAG)?;
            let sum = self.sums.as_ref().map_or(0, |sums| crc32c_append(sums.rest, end));
            self.out.write_all(&sum.to_le_bytes())?;
        }
        self.out.write_all(end)
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        if let Some(Sums { block, rest, .. }) = &mut self.sums {
            let sum = block.as_mut().unwrap_or(rest);
            *sum = crc32c_append(*sum, &bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The checksums of a file's messages, if it has them.
#[derive(Debug, Default)]
pub struct BlockSums(Option<Vec<u32>>);

impl BlockSums {
    /// True if the file has them.
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Verifies the bytes of message `number`; `is` describes the message for the error.
    ///
    /// # Errors
    /// The difference, as found and expected.
    pub fn check(&self, number: usize, bytes: &[u8], is: impl FnOnce() -> String) -> Result<(), String> {
        let Some(sums) = &self.0 else { return Ok(()) };
        let (said, found) = (sums[number], crc32c(bytes));
        if said == found { Ok(()) } else { Err(differ(&is(), found, said)) }
    }
}

fn differ(what: &str, found: u32, said: u32) -> String {
    format!("found {what} of CRC-32C {found:08x}, expected {said:08x} as the file says")
}

/// Verifies the checksum before the footer, if there is one; `said` is the value of the footer's key. `blocks` are the
/// positions of the footer's messages, in order. The caller verifies their own checksums.
///
/// # Errors
/// The difference, as found and expected.
pub fn check(
    file: &[u8],
    footer_start: usize,
    said: Option<&str>,
    blocks: &[Range<usize>],
) -> Result<BlockSums, String> {
    let Some(start) = footer_start.checked_sub(BYTES) else { return Ok(BlockSums::default()) };
    let (tag, sum) = file[start..footer_start].split_at(TAG.len());
    if tag != TAG && tag != WHOLE_TAG && said.is_none() {
        return Ok(BlockSums::default());
    }
    let sums = said.and_then(|said| said.strip_prefix(EACH));
    let sums: Option<Vec<u32>> =
        sums.map(|sums| sums.split(' ').map_while(|sum| u32::from_str_radix(sum, 16).ok()).collect());
    let summed = footer_start - sum.len();
    let (mut found, mut end) = (0, 0);
    // Blocks with their own checksums are left out.
    for block in sums.iter().flat_map(|_| blocks) {
        if block.start < end || block.end > summed {
            return Err(format!(
                "found messages over one another at byte {}, expected one behind the other",
                block.start
            ));
        }
        found = crc32c_append(found, &file[end..block.start]);
        end = block.end;
    }
    found = crc32c_append(found, &file[end..summed]);
    found = crc32c_append(found, &file[footer_start..]);
    let said = u32::from_le_bytes(sum.try_into().expect("four bytes"));
    if said != found {
        return Err(differ("contents", found, said));
    }
    match &sums {
        Some(sums) if sums.len() != blocks.len() => {
            Err(format!("found {} checksums of messages, expected {}", sums.len(), blocks.len()))
        }
        _ => Ok(BlockSums(sums)),
    }
}
