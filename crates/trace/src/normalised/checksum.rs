//! The checksums of a trace file that is kept.
//!
//! The footer has the CRC-32C of each message of rows and of the block addresses, in the order in which they stand in the file, so that damage
//! is found where it is, on as many cores as there are. Between the end of the stream and the footer stand 12 bytes, `FW-CRC32CS` with two
//! zeroes behind, and the CRC-32C of all other bytes of the file, little-endian. Readers of Arrow pass over them. The footer says that they are
//! there, so that no flipped bit hides them. Files of version 1 have one sum over all of their bytes behind `FW-CRC32C` and three zeroes, and
//! temporary ones none. What is said of both has names of its own: a program that knows version 1 alone sees a version, and no damage.

use std::io::{self, Write};
use std::ops::Range;

use flashwise_core::checksum::{crc32c, crc32c_append};

/// The footer's key for the checksums, ...
pub const KEY: &str = "flashwise.trace.checksums";
/// ... and that of version 1, which says that there is one over the whole file.
pub const WHOLE_KEY: &str = "flashwise.trace.checksum";
/// What a sum of each message begins with; the sums follow, in hexadecimal.
const EACH: &str = "crc32c ";
/// What stands before the checksum.
const TAG: &[u8; 12] = b"FW-CRC32CS\0\0";
/// The same in version 1.
const WHOLE_TAG: &[u8; 12] = b"FW-CRC32C\0\0\0";
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
    sums: Option<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    blocks: Vec<u32>,
    /// Of the block that is being written.
    block: Option<u32>,
    /// Of all that is in no block.
    rest: u32,
}

impl<W: Write> Summed<W> {
    /// Writes to `out`.
    pub fn new(out: W, kept: Kept) -> Self {
        Summed { out, sums: (kept == Kept::ForOthers).then(Sums::default) }
    }

    /// Gives what is written from here on a sum of its own.
    pub fn begin_block(&mut self) {
        self.sums.iter_mut().for_each(|sums| sums.block = Some(0));
    }

    /// Ends what [`begin_block`](Self::begin_block) began.
    pub fn end_block(&mut self) {
        self.sums.iter_mut().for_each(|sums| sums.blocks.extend(sums.block.take()));
    }

    /// What the footer says of the checksums.
    pub fn says(&self) -> Option<(String, String)> {
        let sums = self.sums.as_ref()?.blocks.iter().map(|sum| format!("{sum:08x}"));
        Some((KEY.to_owned(), format!("{EACH}{}", sums.collect::<Vec<_>>().join(" "))))
    }

    /// Writes `end`, all from the footer on, behind the checksum.
    pub fn write_end(&mut self, end: &[u8]) -> io::Result<()> {
        if self.sums.is_some() {
            self.write_all(TAG)?;
            let sum = self.sums.as_ref().map_or(0, |sums| crc32c_append(sums.rest, end));
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

/// The sums of a file's messages, where it has them.
#[derive(Debug, Default)]
pub struct BlockSums(Option<Vec<u32>>);

impl BlockSums {
    /// Whether the file has them.
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the bytes of message `number`; a problem is told by what it `is`.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn check(&self, number: usize, bytes: &[u8], is: impl FnOnce() -> String) -> Result<(), String> {
        let Some(sums) = &self.0 else { return Ok(()) };
        let (said, found) = (sums[number], crc32c(bytes));
        if said == found { Ok(()) } else { Err(differ(&is(), found, said)) }
    }
}

fn differ(what: &str, found: u32, said: u32) -> String {
    format!("found {what} of CRC-32C {found:08x}, expected {said:08x} as the file says")
}

/// Checks the sum that stands before the footer, if there is one; `said` is what the footer says. `blocks` are where the messages of the footer
/// lie, in order. Their own sums are for the caller to check.
///
/// # Errors
/// What was found and what was expected.
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
    // Those with sums of their own are left out.
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
