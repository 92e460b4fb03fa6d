//! The header pages of WLFC on flash without out-of-band bytes: programmed data starts with pages that describe it.
//!
//! Source: our own, after WLFC, section IV.B.1. `docs/format.md` has the same as a table. The first 512 bytes, which a
//! power failure does not tear, contain everything except the checksums of the data.

use super::bucket::{Log, Oob, State};
use crate::checksum;
use crate::format::{BLOCK_BYTES, Page, Witness, put, u32_at, u64_at};

/// Data blocks described by a header page.
pub const HEADER_BLOCKS: u32 = 896;

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"FWWL");
const RESET_MAGIC: u32 = u32::from_le_bytes(*b"FWWR");
const SECTOR: usize = 512;
/// Sectors of a page, which a power failure may separate.
pub const SECTORS_PER_PAGE: u32 = (BLOCK_BYTES / SECTOR) as u32;
/// The checksums of the other sectors, which distinguish a torn page from a damaged one.
const SECTORS: usize = 80;
const BEFORE: usize = 108;
const ABSENT: usize = 128;
const CHECKSUMS: usize = SECTOR;
/// The fields of a header, without checksums and absent blocks.
const FIELDS: std::ops::Range<usize> = 12..80;
/// A second copy of the fields, at the end of the page if the checksums leave room. A page with a damaged first sector
/// is then not mistaken for an unwritten one.
const TWIN: usize = BLOCK_BYTES - 8 - (FIELDS.end - FIELDS.start);
const TWIN_MAGIC: u32 = u32::from_le_bytes(*b"FWWT");

/// The contents of a header page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// The metadata of the programmed data: of all of it, if there are several header pages.
    pub oob: Oob,
    /// The run (start of the cache) that programmed it.
    pub run: u64,
    /// Counts writes of a run.
    pub sequence: u64,
    /// Everything with a smaller sequence number in this run was durable.
    pub durable: u64,
    /// Its first page in the bucket.
    pub page: u32,
    /// The page of the bucket up to which earlier pages were durable.
    pub durable_end: u32,
    /// The checksum of the first header page of the previous write to the bucket; 0 for the first.
    pub previous: u32,
    /// The number of this header page among those of the write.
    pub part: u32,
    /// The previous write, to any bucket: the one with the preceding sequence number.
    pub before: Option<Witness>,
}

/// The reason why a programmed block has no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Its newest content could not be read from flash: it is lost.
    Lost,
    /// The backend has it, but could not be read.
    OfBackend,
}

/// The checksum of a data block, or the reason for its absence.
pub type Crc = Result<u32, Missing>;

/// Stored instead of the checksum of a block that the backend has; 0 for a lost block.
const OF_BACKEND: u32 = 1;

impl Header {
    /// Returns the number of header pages of the write.
    pub fn parts(&self) -> u32 {
        headers(&self.oob)
    }

    /// Returns the pages of the write.
    pub fn pages(&self) -> u32 {
        match self.oob.log {
            Log::Data => headers(&self.oob) + self.oob.blocks,
            Log::Zeroes | Log::Passed => 1,
        }
    }

    /// Returns the page after it.
    pub fn end(&self) -> u32 {
        self.page + self.pages()
    }

    /// Returns the page of its first data block.
    pub fn data_page(&self) -> u32 {
        self.page + if self.oob.log == Log::Data { self.parts() } else { 0 }
    }

    /// Returns the blocks whose checksums its header pages hold.
    pub fn described_blocks(&self) -> u32 {
        if self.oob.log == Log::Data { self.oob.blocks } else { 0 }
    }

    /// Returns the blocks whose checksums this header page holds, counted from the first.
    pub fn described(&self) -> std::ops::Range<u32> {
        let blocks = self.described_blocks();
        let first = (self.part * HEADER_BLOCKS).min(blocks);
        first..(first + HEADER_BLOCKS).min(blocks)
    }

    /// Encodes the header, with the checksums of the blocks that it [describes](Self::described).
    ///
    /// # Panics
    /// If the number of checksums is different.
    pub fn encode(&self, checksums: &[Crc], page: &mut Page) {
        assert_eq!(checksums.len(), self.described().len(), "one checksum for each block");
        page.fill(0);
        let Header { cache, oob, run, sequence, durable, page: first, durable_end, previous, part, before } = *self;
        let state = match oob.state {
            State::Read => 1,
            State::Dirty => 2,
            State::Write => 3,
        };
        let log = match oob.log {
            Log::Data => 1,
            Log::Zeroes => 2,
            Log::Passed => 3,
        };
        put(page, 0, &MAGIC.to_le_bytes());
        put(page, 12, &[state, log]);
        put(page, 14, &(part as u16).to_le_bytes());
        put(page, 16, &cache.to_le_bytes());
        put(page, 24, &oob.epoch.to_le_bytes());
        put(page, 32, &run.to_le_bytes());
        put(page, 40, &sequence.to_le_bytes());
        put(page, 48, &durable.to_le_bytes());
        for (number, value) in [oob.backend, oob.at, oob.blocks, first, durable_end, previous].into_iter().enumerate() {
            put(page, 56 + 4 * number, &value.to_le_bytes());
        }
        Witness::encode(before, page, BEFORE);
        for (number, crc) in checksums.iter().enumerate() {
            match crc {
                Ok(crc) => put(page, CHECKSUMS + 4 * number, &crc.to_le_bytes()),
                Err(missing) => {
                    page[ABSENT + number / 8] |= 1 << (number % 8);
                    if *missing == Missing::OfBackend {
                        put(page, CHECKSUMS + 4 * number, &OF_BACKEND.to_le_bytes());
                    }
                }
            }
        }
        if CHECKSUMS + 4 * checksums.len() <= TWIN {
            let fields: Vec<u8> = page[FIELDS].to_vec();
            put(page, TWIN, &TWIN_MAGIC.to_le_bytes());
            put(page, TWIN + 4, &checksum::crc32c(&fields).to_le_bytes());
            put(page, TWIN + 8, &fields);
        }
        for number in 1..BLOCK_BYTES / SECTOR {
            let crc = checksum::crc32c(sector(page, number));
            put(page, SECTORS + 4 * (number - 1), &crc.to_le_bytes());
        }
        let sector = checksum::crc32c(&page[12..SECTOR]);
        put(page, 8, &sector.to_le_bytes());
        let whole = checksum::crc32c(&page[8..]);
        put(page, 4, &whole.to_le_bytes());
    }

    /// Decodes the first sector of a page, if it is a header's. The rest may be torn.
    pub fn of_sector(page: &Page) -> Option<Header> {
        if u32_at(page, 0) != MAGIC || u32_at(page, 8) != checksum::crc32c(&page[12..SECTOR]) {
            return None;
        }
        Header::of_fields(page)
    }

    /// Decodes a header page that may be damaged, from its first sector or from the copy at its end.
    pub fn trace(page: &Page) -> Option<Header> {
        Header::of_sector(page).or_else(|| {
            let fields = &page[TWIN + 8..];
            if u32_at(page, TWIN) != TWIN_MAGIC || u32_at(page, TWIN + 4) != checksum::crc32c(fields) {
                return None;
            }
            let mut twin = [0; BLOCK_BYTES];
            twin[FIELDS].copy_from_slice(fields);
            Header::of_fields(&twin)
        })
    }

    fn of_fields(page: &Page) -> Option<Header> {
        let state = match page[12] {
            1 => State::Read,
            2 => State::Dirty,
            3 => State::Write,
            _ => return None,
        };
        let log = match page[13] {
            1 => Log::Data,
            2 => Log::Zeroes,
            3 => Log::Passed,
            _ => return None,
        };
        let number = |index: usize| u32_at(page, 56 + 4 * index);
        let (backend, at, blocks) = (number(0), number(1), number(2));
        let header = Header {
            cache: u64_at(page, 16),
            oob: Oob { state, backend, epoch: u64_at(page, 24), log, at, blocks },
            run: u64_at(page, 32),
            sequence: u64_at(page, 40),
            durable: u64_at(page, 48),
            page: number(3),
            durable_end: number(4),
            previous: number(5),
            part: u16::from_le_bytes([page[14], page[15]]).into(),
            before: Witness::decode(page, BEFORE),
        };
        let possible =
            at.checked_add(blocks).is_some() && header.page.checked_add(blocks).is_some_and(|end| end < 1 << 20);
        (possible && header.part < header.parts().max(1)).then_some(header)
    }

    /// True if a power failure may have left this page, whose first sector is a header's. At least one sector is not
    /// the header's, and `is_other` accepts all such sectors.
    pub fn is_torn(page: &Page, is_other: impl Fn(u32) -> bool) -> bool {
        let is_own = |number: &u32| {
            let at = SECTORS + 4 * (*number as usize - 1);
            u32_at(page, at) == checksum::crc32c(sector(page, *number as usize))
        };
        let mut others = (1..SECTORS_PER_PAGE).filter(|number| !is_own(number)).peekable();
        others.peek().is_some() && others.all(is_other)
    }

    /// Returns the checksum field of a header page.
    pub fn checksum_of(page: &Page) -> u32 {
        u32_at(page, 4)
    }

    /// Decodes a header page; returns the header and its own checksum. `None` if it is damaged or not a header.
    pub fn decode(page: &Page) -> Option<(Header, u32)> {
        let crc = u32_at(page, 4);
        Header::of_sector(page).filter(|_| crc == checksum::crc32c(&page[8..])).map(|header| (header, crc))
    }

    /// Returns the checksums in a header page.
    pub fn checksums(&self, page: &Page) -> Vec<Crc> {
        (0..self.described().len() as u32).map(|number| self.checksum(page, number)).collect()
    }

    /// Returns checksum `number`, counted from the first on this page.
    pub fn checksum(&self, page: &Page, number: u32) -> Crc {
        let number = number as usize;
        let (absent, word) = (page[ABSENT + number / 8] >> (number % 8) & 1 == 1, u32_at(page, CHECKSUMS + 4 * number));
        match (absent, word) {
            (false, crc) => Ok(crc),
            (true, OF_BACKEND) => Err(Missing::OfBackend),
            (true, _) => Err(Missing::Lost),
        }
    }
}

/// The time of a reset: its run and its sequence number.
pub type ResetAt = (u64, u64);

/// Returns the first page of a reset bucket that is not a zone. Each sector names the cache, the bucket and the time of
/// the reset. So a torn reset can be distinguished from damage.
pub fn reset_mark(cache: u64, bucket: u32, (run, sequence): ResetAt) -> Page {
    let mut page = [0; BLOCK_BYTES];
    for number in 0..SECTORS_PER_PAGE {
        let at = number as usize * SECTOR;
        put(&mut page, at, &RESET_MAGIC.to_le_bytes());
        put(&mut page, at + 8, &cache.to_le_bytes());
        put(&mut page, at + 16, &bucket.to_le_bytes());
        put(&mut page, at + 20, &number.to_le_bytes());
        put(&mut page, at + 24, &run.to_le_bytes());
        put(&mut page, at + 32, &sequence.to_le_bytes());
        let sector = checksum::crc32c(&page[at + 8..at + SECTOR]);
        put(&mut page, at + 4, &sector.to_le_bytes());
    }
    page
}

/// Returns the time of the reset in a sector of a bucket's first page, if it is part of a [mark](reset_mark). It is 0
/// in version 7.
pub fn reset_at(page: &Page, number: u32, cache: u64, bucket: u32) -> Option<ResetAt> {
    let sector = sector(page, number as usize);
    let is_mark = u32_at(sector, 0) == RESET_MAGIC && u32_at(sector, 4) == checksum::crc32c(&sector[8..]);
    let is_here = (u64_at(sector, 8), u32_at(sector, 16), u32_at(sector, 20)) == (cache, bucket, number);
    (is_mark && is_here).then(|| (u64_at(sector, 24), u64_at(sector, 32)))
}

/// Returns the bucket that a page [marks](reset_mark) as reset, at any location; `None` if it is not a mark of this
/// cache.
pub fn marked_bucket(page: &Page, cache: u64) -> Option<u32> {
    let bucket = u32_at(page, 16);
    reset_at(page, 0, cache, bucket).map(|_| bucket)
}

fn sector(page: &Page, number: usize) -> &[u8] {
    &page[number * SECTOR..(number + 1) * SECTOR]
}

/// Returns the header pages for `oob`.
fn headers(oob: &Oob) -> u32 {
    if oob.log == Log::Data { oob.blocks.div_ceil(HEADER_BLOCKS) } else { 1 }
}

const _: () = assert!(CHECKSUMS + 4 * HEADER_BLOCKS as usize == BLOCK_BYTES);
const _: () = assert!(ABSENT + HEADER_BLOCKS as usize / 8 <= SECTOR);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_a_changed_byte_is_noticed() {
        let oob = Oob { state: State::Dirty, backend: 7, epoch: 9, log: Log::Data, at: 0, blocks: 1000 };
        let first =
            Header { cache: 1, oob, run: 2, sequence: 3, durable: 4, durable_end: 5, previous: 6, ..Header::default() };
        let second = Header { part: 1, ..first };
        assert_eq!((first.parts(), first.data_page(), first.end()), (2, 2, 1002));
        assert_eq!((first.described(), second.described()), (0..896, 896..1000));
        let checksums: Vec<Crc> = (0..104)
            .map(|number| match number % 10 {
                3 => Err(Missing::Lost),
                5 => Err(Missing::OfBackend),
                _ => Ok(number * 7),
            })
            .collect();
        let mut page = [0xAA; BLOCK_BYTES];
        second.encode(&checksums, &mut page);
        let (read, _) = Header::decode(&page).unwrap();
        assert_eq!((read, read.checksums(&page)), (second, checksums));
        for at in 0..BLOCK_BYTES {
            let mut damaged = page;
            damaged[at] ^= 1;
            assert!(Header::decode(&damaged).is_none(), "byte {at}");
            assert_eq!(Header::of_sector(&damaged).is_some(), (4..8).contains(&at) || at >= SECTOR, "byte {at}");
            assert!(at < SECTOR || !Header::is_torn(&damaged, |_| false), "byte {at}");
        }
    }

    #[test]
    fn a_header_that_is_damaged_in_one_sector_leaves_a_trace() {
        let header = |blocks| {
            let oob = Oob { state: State::Write, backend: 7, epoch: 9, log: Log::Data, at: 0, blocks };
            Header { cache: 1, oob, run: 1, sequence: 3, page: 5, previous: 6, ..Header::default() }
        };
        // 4,020 bytes minus 512 hold 877 checksums beside the copy of the fields.
        for (blocks, has_twin) in [(1, true), (877, true), (878, false), (896, false)] {
            let mut page = [0; BLOCK_BYTES];
            header(blocks).encode(&vec![Ok(0x0101_0101); blocks as usize], &mut page);
            assert_eq!(Header::decode(&page).unwrap().0, header(blocks));
            for number in 0..BLOCK_BYTES / SECTOR {
                let mut damaged = page;
                damaged[number * SECTOR..(number + 1) * SECTOR].fill(0xEE);
                assert!(Header::decode(&damaged).is_none());
                let expected = (number > 0 || has_twin).then(|| header(blocks));
                assert_eq!(Header::trace(&damaged), expected, "{blocks} blocks, sector {number}");
            }
            assert_eq!(Header::trace(&[0; BLOCK_BYTES]), None);
        }
    }

    #[test]
    fn a_torn_header_has_new_and_old_sectors() {
        let oob = Oob { state: State::Write, backend: 7, epoch: 9, log: Log::Data, at: 0, blocks: 800 };
        let header = Header { cache: 1, oob, run: 1, sequence: 3, ..Header::default() };
        let mut page = [0; BLOCK_BYTES];
        header.encode(&[Ok(0x0101_0101); 800], &mut page);
        let whole = page;
        assert!(!Header::is_torn(&page, |_| true), "all of it is there");
        page[1024..2048].fill(0);
        let is_zero = |number: u32| sector(&page, number as usize).iter().all(|byte| *byte == 0);
        assert!(Header::decode(&page).is_none() && Header::of_sector(&page) == Some(header));
        assert!(Header::is_torn(&page, is_zero) && !Header::is_torn(&page, |_| false));
        page[2048] ^= 1;
        assert!(!Header::is_torn(&page, |number| number < 4), "it is damaged");
        // The reset of its bucket was torn.
        let mut page = whole;
        page[1024..2048].copy_from_slice(&reset_mark(1, 5, (2, 9))[1024..2048]);
        assert!(Header::is_torn(&page, |number| reset_at(&page, number, 1, 5) == Some((2, 9))));
    }

    #[test]
    fn a_mark_of_a_reset_is_of_its_bucket_and_a_changed_byte_is_noticed() {
        let page = reset_mark(0x11, 7, (3, 4));
        assert!(Header::trace(&page).is_none());
        for number in 0..SECTORS_PER_PAGE {
            assert_eq!(reset_at(&page, number, 0x11, 7), Some((3, 4)));
            assert_eq!((reset_at(&page, number, 0x11, 8), reset_at(&page, number, 0x12, 7)), (None, None));
        }
        for at in 0..BLOCK_BYTES {
            let mut damaged = page;
            damaged[at] ^= 1;
            let whole = (0..SECTORS_PER_PAGE).filter(|number| reset_at(&damaged, *number, 0x11, 7).is_some());
            assert!(whole.eq((0..SECTORS_PER_PAGE).filter(|number| *number as usize != at / SECTOR)), "byte {at}");
        }
    }

    #[test]
    fn a_log_without_data_is_only_a_header() {
        let oob = Oob { state: State::Write, backend: 7, epoch: 9, log: Log::Passed, at: 3, blocks: 90 };
        let header = Header { cache: 1, oob, run: 1, sequence: 3, page: 8, previous: 6, ..Header::default() };
        assert_eq!((header.parts(), header.data_page(), header.end(), header.described()), (1, 8, 9, 0..0));
        let mut page = [0; BLOCK_BYTES];
        header.encode(&[], &mut page);
        assert_eq!(Header::decode(&page).unwrap().0, header);
    }
}
