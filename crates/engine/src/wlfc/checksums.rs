//! Finds the checksums of data: in header pages on flash, which a bitmap marks. Recently used checksums are in memory.

use std::ops::Range;

use flashwise_core::format::Page;
use flashwise_core::wlfc::State;
use flashwise_core::wlfc::header::{Crc, HEADER_BLOCKS, Header};

/// Number of flash pages per checksum in memory, which takes 8 bytes.
const PAGES_PER_CELL: u32 = 16;
/// Minimum number of checksums taken from a header page, because adjacent pages are often read next.
const AHEAD: u32 = 64;
/// Not a page of the flash.
const NOWHERE: u32 = u32::MAX;

/// A bitmap of the header pages of all buckets.
#[derive(Clone, Debug)]
pub struct HeaderPages {
    bits: Vec<u64>,
    unit_pages: u32,
}

impl HeaderPages {
    /// Creates the bitmap for empty buckets.
    pub fn new(buckets: u32, unit_pages: u32) -> HeaderPages {
        let words = (u64::from(buckets) * u64::from(unit_pages)).div_ceil(64);
        HeaderPages { bits: vec![0; words as usize], unit_pages }
    }

    fn slot(&self, bucket: u32, page: u32) -> u32 {
        bucket * self.unit_pages + page
    }

    /// Marks a page as a header or as data.
    pub fn set(&mut self, bucket: u32, page: u32, is_header: bool) {
        let slot = self.slot(bucket, page);
        let word = &mut self.bits[slot as usize / 64];
        *word = *word & !(1 << (slot % 64)) | u64::from(is_header) << (slot % 64);
    }

    /// Copies the header pages of a bucket from `before`.
    pub fn take_over(&mut self, bucket: u32, before: &HeaderPages) {
        for page in 0..self.unit_pages {
            let slot = self.slot(bucket, page);
            self.set(bucket, page, before.bits[slot as usize / 64] >> (slot % 64) & 1 == 1);
        }
    }

    /// Returns the last header page of a bucket before a data page, if any.
    fn last_before(&self, bucket: u32, page: u32) -> Option<u32> {
        let (first, mut at) = (self.slot(bucket, 0), self.slot(bucket, page));
        while at > first {
            let below = at % 64;
            // The bits of this word below the page.
            let word =
                if below == 0 { self.bits[at as usize / 64 - 1] } else { self.bits[at as usize / 64] << (64 - below) };
            if word != 0 {
                let found = at.checked_sub(word.leading_zeros() + 1)?;
                return (found >= first).then(|| found - first);
            }
            at -= if below == 0 { 64.min(at) } else { below };
        }
        None
    }

    /// Returns the header page with the checksum of a data page, as far as the bitmap shows it.
    pub fn of(&self, bucket: u32, state: State, page: u32) -> Option<u32> {
        let last = self.last_before(bucket, page)?;
        // A copy has all its headers at the start.
        Some(if state == State::Write { last } else { ((page - last - 1) / HEADER_BLOCKS).min(last) })
    }
}

/// The contents of a header page about a data page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The checksum, or why there is no content.
    Checksum(Crc),
    /// Another header page has it.
    Elsewhere(u32),
    /// None: the header is damaged, or about other pages.
    Nothing,
}

/// Decodes the header page at this page of a bucket. Returns `None` unless it belongs to the current epoch of the
/// bucket.
pub fn header_at(bytes: &Page, cache: u64, epoch: u64, at: u32) -> Option<Header> {
    let (header, _) = Header::decode(bytes)?;
    ((header.cache, header.oob.epoch, header.page + header.part) == (cache, epoch, at)).then_some(header)
}

/// Looks up a data page in a header page.
pub fn says(header: Option<&Header>, bytes: &Page, page: u32) -> Says {
    let Some(header) = header.filter(|header| (header.data_page()..header.end()).contains(&page)) else {
        return Says::Nothing;
    };
    let (number, described) = (page - header.data_page(), header.described());
    if described.contains(&number) {
        return Says::Checksum(header.checksum(bytes, number - described.start));
    }
    Says::Elsewhere(header.page + number / HEADER_BLOCKS)
}

/// The recently used checksums. Each flash page has one cell that may hold its checksum.
#[derive(Debug)]
pub(super) struct Checksums {
    cells: Vec<(u32, u32)>,
}

impl Checksums {
    pub fn new(pages: u32) -> Checksums {
        Checksums { cells: vec![(NOWHERE, 0); (pages / PAGES_PER_CELL).max(AHEAD) as usize] }
    }

    fn cell(&mut self, slot: u32) -> &mut (u32, u32) {
        let cells = self.cells.len();
        &mut self.cells[slot as usize % cells]
    }

    /// Returns the checksum of a page, if it is in memory.
    pub fn get(&self, slot: u32) -> Option<u32> {
        let (of, crc) = self.cells[slot as usize % self.cells.len()];
        (of == slot).then_some(crc)
    }

    /// Records programmed data: old checksums of these pages are dropped, and the new ones are kept if they are few.
    pub fn program(&mut self, first: u32, checksums: &[Crc]) {
        let keeps = checksums.len() <= AHEAD as usize;
        self.forget(first, checksums.len() as u32);
        for (slot, crc) in (first..).zip(checksums).filter(|_| keeps) {
            if let Ok(crc) = crc {
                *self.cell(slot) = (slot, *crc);
            }
        }
    }

    /// Drops the checksums of `pages` pages from `first` on.
    pub fn forget(&mut self, first: u32, pages: u32) {
        for slot in first..first + pages {
            if self.get(slot).is_some() {
                *self.cell(slot) = (NOWHERE, 0);
            }
        }
    }

    /// Keeps the checksums of a header page for the wanted pages, which begin at `slot`, and for some after them.
    pub fn keep(&mut self, header: &Header, bytes: &Page, slot: u32, page: u32, wanted: u32) {
        let described = header.described();
        let numbers: Range<u32> = page - header.data_page()..described.end;
        for number in numbers.take(wanted.max(AHEAD) as usize) {
            if let Ok(crc) = header.checksum(bytes, number - described.start) {
                let slot = slot + (number + header.data_page() - page);
                *self.cell(slot) = (slot, crc);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_core::format::BLOCK_BYTES;
    use flashwise_core::wlfc::header::Missing;
    use flashwise_core::wlfc::{Log, Oob};

    #[test]
    fn the_header_of_a_page_is_the_last_before_it() {
        let mut headers = HeaderPages::new(3, 200);
        for page in [0, 3, 4, 130] {
            headers.set(1, page, true);
        }
        headers.set(0, 199, true);
        headers.set(1, 4, false);
        let of = |page| headers.of(1, State::Write, page);
        assert_eq!([1, 2, 3, 4, 5, 129, 130, 131, 199].map(of), [0, 0, 0, 3, 3, 3, 3, 130, 130].map(Some));
        assert_eq!((of(0), headers.of(2, State::Write, 199)), (None, None));
        // All bits at the borders of words.
        for page in 0..200 {
            let mut headers = HeaderPages::new(2, 200);
            headers.set(1, page, true);
            let found = (0..200).filter(|&at| headers.of(1, State::Write, at).is_some()).min();
            assert_eq!(found, (page < 199).then_some(page + 1), "header {page}");
        }
    }

    #[test]
    fn the_headers_of_a_copy_are_at_its_start() {
        let oob = Oob { state: State::Dirty, backend: 7, epoch: 9, log: Log::Data, at: 0, blocks: 1000 };
        let first = Header { cache: 1, oob, run: 2, sequence: 3, durable: 4, durable_end: 5, ..Header::default() };
        let mut headers = HeaderPages::new(1, 1024);
        headers.set(0, 0, true);
        headers.set(0, 1, true);
        let of = |page| headers.of(0, State::Dirty, page);
        assert_eq!([2, 897, 898, 1001].map(of), [0, 0, 1, 1].map(Some));
        let mut page = [0; BLOCK_BYTES];
        Header { part: 1, ..first }.encode(
            &(896..1000).map(|n| if n == 900 { Err(Missing::Lost) } else { Ok(n) }).collect::<Vec<_>>(),
            &mut page,
        );
        let header = header_at(&page, 1, 9, 1);
        let of = |number| says(header.as_ref(), &page, number);
        assert_eq!(
            [898, 902, 5].map(of),
            [Says::Checksum(Ok(896)), Says::Checksum(Err(Missing::Lost)), Says::Elsewhere(0)]
        );
        assert_eq!([1, 1002].map(of), [Says::Nothing; 2]);
        let others = [(2, 9, 1), (1, 8, 1), (1, 9, 0)];
        assert_eq!(others.map(|(cache, epoch, at)| header_at(&page, cache, epoch, at)), [None; 3]);
        page[600] ^= 1;
        assert_eq!(header_at(&page, 1, 9, 1), None, "it is damaged");
    }

    #[test]
    fn checksums_in_memory_are_those_of_the_last_programs() {
        let mut checksums = Checksums::new(2048);
        checksums.program(5, &[Ok(1), Err(Missing::Lost), Ok(3)]);
        assert_eq!([5, 6, 7, 133].map(|slot| checksums.get(slot)), [Some(1), None, Some(3), None]);
        checksums.program(133, &[Ok(4)]);
        assert_eq!([5, 133].map(|slot| checksums.get(slot)), [None, Some(4)], "they share a cell");
        checksums.program(100, &vec![Ok(9); 100]);
        assert_eq!([7, 133, 150].map(|slot| checksums.get(slot)), [Some(3), None, None], "what many have is on flash");
    }
}
