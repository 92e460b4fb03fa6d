//! The journal of ordered write-back: it makes a group of [epochs](crate::epochs) reach the backend as a whole.
//!
//! Source: our own. It is the double write of databases: Mohan et al.: ARIES. ACM TODS, 1992, has the idea of a redo
//! log.
//!
//! A group has the newest version of each block of some epochs. It is written to the journal, which is flushed, then
//! into place, and the backend is flushed. A mark states that. A start that finds a whole group without its mark writes
//! it into place again. Otherwise it skips a number, so that the next group never completes the rest of one. A
//! journal has one group at a time:
//!
//! | pages | hold |
//! | --- | --- |
//! | 0 and 1 | marks: that of group n is on page n mod 2 |
//! | from 2 on | the index of the last group, then its blocks in the same order |
//!
//! `docs/format.md` has every field.

use crate::checksum::crc32c;
use crate::format::{BLOCK_BYTES, Page, Place, array_at, put, u32_at, u64_at};

/// The magic number of a mark.
pub const MARK_MAGIC: [u8; 4] = *b"FWJM";
const INDEX_MAGIC: [u8; 4] = *b"FWJI";
const VERSION: u32 = 1;
/// The first page of the index.
pub const INDEX_START: u32 = 2;
const ENTRIES_START: usize = 96;
const ENTRY_BYTES: usize = 8;
/// Entries of a page of the index.
const ENTRIES: usize = (BLOCK_BYTES - ENTRIES_START) / ENTRY_BYTES;
/// Pages that are read at once.
const READ_PAGES: usize = 256;

/// Returns the pages of the index of this many blocks.
pub fn index_pages(blocks: usize) -> u32 {
    blocks.div_ceil(ENTRIES) as u32
}

/// Returns the maximum number of blocks of a group in a journal of this many pages.
pub fn blocks_max(pages: u64) -> usize {
    let rest = pages.saturating_sub(INDEX_START.into()) as usize;
    (rest * ENTRIES / (ENTRIES + 1)..=rest)
        .rev()
        .find(|&blocks| index_pages(blocks) as usize + blocks <= rest)
        .unwrap_or(0)
}

/// A journal that is ready for the next group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its size in pages.
    pub pages: u64,
    /// The last group in place. Its end belongs to the cache that uses the journal.
    pub last: Head,
}

/// Bytes of a new journal by default.
pub const BYTES_DEFAULT: u64 = 256 << 20;

impl Journal {
    /// Returns a new journal for a simulation.
    pub fn of_default_size() -> Journal {
        Journal { pages: BYTES_DEFAULT / BLOCK_BYTES as u64, last: Head::default() }
    }

    /// Makes it the journal of a cache. The last group of another one says nothing about its log.
    pub fn of_cache(mut self, cache: u64) -> Journal {
        let last = &mut self.last;
        if last.cache != cache {
            (last.cache, last.end, last.ended_unix_us) = (cache, Place::default(), 0);
        }
        self
    }
}

/// The identity of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The UUID of the journal, created when it is set up.
    pub journal: [u8; 16],
    /// The UUID of the backend.
    pub backend: [u8; 16],
    /// The first 8 bytes of the UUID of the cache.
    pub cache: u64,
    /// Counts the groups; 0 before the first.
    pub number: u64,
    /// The place in the log where its last epoch ends.
    pub end: Place,
    /// The time of that end, in microseconds since 1970; 0 if that is unknown.
    pub ended_unix_us: u64,
}

impl Head {
    fn encode(&self, magic: [u8; 4], blocks: u32, at: u32) -> Page {
        let mut page = [0; BLOCK_BYTES];
        put(&mut page, 0, &magic);
        put(&mut page, 8, &VERSION.to_le_bytes());
        put(&mut page, 12, &self.journal);
        put(&mut page, 28, &self.backend);
        put(&mut page, 44, &self.cache.to_le_bytes());
        put(&mut page, 52, &self.number.to_le_bytes());
        put(&mut page, 60, &self.end.sequence.to_le_bytes());
        put(&mut page, 68, &self.end.page.to_le_bytes());
        put(&mut page, 72, &self.ended_unix_us.to_le_bytes());
        put(&mut page, 80, &blocks.to_le_bytes());
        put(&mut page, 84, &at.to_le_bytes());
        page
    }

    /// Returns the head, and the number of blocks and of the page; `None` if it is no such page.
    fn decode(magic: [u8; 4], page: &Page) -> Option<(Head, u32, u32)> {
        let is_whole = array_at(page, 0) == magic && u32_at(page, 4) == crc32c(&page[8..]);
        (is_whole && u32_at(page, 8) == VERSION).then(|| {
            let head = Head {
                journal: array_at(page, 12),
                backend: array_at(page, 28),
                cache: u64_at(page, 44),
                number: u64_at(page, 52),
                end: Place { sequence: u64_at(page, 60), page: u32_at(page, 68) },
                ended_unix_us: u64_at(page, 72),
            };
            (head, u32_at(page, 80), u32_at(page, 84))
        })
    }

    /// Returns the mark that the group is in place.
    pub fn mark(&self) -> Page {
        sealed(self.encode(MARK_MAGIC, 0, 0))
    }

    /// Returns the page of the mark.
    pub fn mark_page(&self) -> u32 {
        (self.number % 2) as u32
    }

    /// Returns the last group that is in place, from the two pages of marks. `None` if neither is a mark.
    pub fn last(marks: &[Page; 2]) -> Option<Head> {
        let marks = marks.iter().filter_map(|page| Head::decode(MARK_MAGIC, page));
        marks.map(|(head, ..)| head).max_by_key(|head| head.number)
    }
}

fn sealed(mut page: Page) -> Page {
    let crc = crc32c(&page[8..]);
    put(&mut page, 4, &crc.to_le_bytes());
    page
}

/// A group in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its identity.
    pub head: Head,
    /// Its blocks with the CRC-32C of their content.
    pub blocks: Vec<(u32, u32)>,
}

impl Group {
    /// Returns the pages of the index.
    pub fn index(&self) -> impl Iterator<Item = Page> {
        self.blocks.chunks(ENTRIES).zip(0..).map(|(entries, at)| {
            let mut page = self.head.encode(INDEX_MAGIC, self.blocks.len() as u32, at);
            for (&(block, crc), bytes) in entries.iter().zip(page[ENTRIES_START..].chunks_exact_mut(ENTRY_BYTES)) {
                bytes[..4].copy_from_slice(&block.to_le_bytes());
                bytes[4..].copy_from_slice(&crc.to_le_bytes());
            }
            sealed(page)
        })
    }

    /// Returns the page of the first block.
    pub fn first_page(&self) -> u32 {
        INDEX_START + index_pages(self.blocks.len())
    }

    /// Returns the group that follows `last`, if all of it is in a journal of this many pages. `read` fills bytes from
    /// a page on.
    pub fn find<E>(
        last: &Head,
        pages: u64,
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Group>, E> {
        let mut page = [0; BLOCK_BYTES];
        read(INDEX_START, &mut page)?;
        let Some((head, count, _)) = Head::decode(INDEX_MAGIC, &page) else { return Ok(None) };
        let follows = head.number == last.number + 1 && (head.journal, head.backend) == (last.journal, last.backend);
        if !follows || count as usize > blocks_max(pages) {
            return Ok(None);
        }
        let mut group = Group { head, blocks: Vec::with_capacity(count as usize) };
        for at in 0..index_pages(count as usize) {
            read(INDEX_START + at, &mut page)?;
            if Head::decode(INDEX_MAGIC, &page) != Some((head, count, at)) {
                return Ok(None);
            }
            let rest = (count as usize - group.blocks.len()).min(ENTRIES);
            group.blocks.extend(
                (0..rest)
                    .map(|entry| ENTRIES_START + ENTRY_BYTES * entry)
                    .map(|entry| (u32_at(&page, entry), u32_at(&page, entry + 4))),
            );
        }
        let is_whole = group.read(&mut read, |_, _| Ok(()))?;
        Ok(is_whole.then_some(group))
    }

    /// Reads the blocks from a journal and passes them on in runs: their numbers and their bytes. Returns false at the
    /// first whose content is another.
    pub fn read<E>(
        &self,
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
        mut each: impl FnMut(&[(u32, u32)], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut bytes = vec![0; READ_PAGES.min(self.blocks.len()) * BLOCK_BYTES];
        for (blocks, number) in self.blocks.chunks(READ_PAGES).zip(0..) {
            let bytes = &mut bytes[..blocks.len() * BLOCK_BYTES];
            read(self.first_page() + number * READ_PAGES as u32, bytes)?;
            if !blocks.iter().zip(bytes.chunks(BLOCK_BYTES)).all(|((_, crc), page)| crc32c(page) == *crc) {
                return Ok(false);
            }
            each(blocks, bytes)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const HEAD: Head = Head {
        journal: [1; 16],
        backend: [2; 16],
        cache: 3,
        number: 4,
        end: Place { sequence: 5, page: 6 },
        ended_unix_us: 7,
    };

    fn find(last: &Head, pages: &[Page]) -> Option<Group> {
        let bytes = pages.as_flattened();
        let read = |page: u32, into: &mut [u8]| -> Result<(), Infallible> {
            into.copy_from_slice(&bytes[page as usize * BLOCK_BYTES..][..into.len()]);
            Ok(())
        };
        let Ok(found) = Group::find(last, pages.len() as u64, read);
        found
    }

    #[test]
    fn the_newest_mark_counts_and_a_torn_one_does_not() {
        let next = Head { number: 5, end: Place { sequence: 9, page: 1 }, ..HEAD };
        let marks = [HEAD.mark(), next.mark()];
        assert_eq!((HEAD.mark_page(), next.mark_page()), (0, 1));
        assert_eq!(Head::last(&marks), Some(next));
        for sectors in 1..8 {
            // The mark replaces that of group 3.
            let mut torn = Head { number: 3, ..HEAD }.mark();
            torn[..512 * sectors].copy_from_slice(&next.mark()[..512 * sectors]);
            let whole = torn == next.mark();
            assert_eq!(Head::last(&[marks[0], torn]), Some(if whole { next } else { HEAD }), "{sectors} sectors");
        }
        for at in 0..BLOCK_BYTES {
            let mut damaged = HEAD.mark();
            damaged[at] ^= 1;
            assert_eq!(Head::last(&[damaged, [0; BLOCK_BYTES]]), None, "byte {at}");
        }
    }

    /// A group is written over an older one, in any order: every prefix and every missing page.
    #[test]
    fn a_group_is_found_once_all_of_it_is_there() {
        for count in [1, ENTRIES, ENTRIES + 1] {
            let data: Vec<Page> = (0..count).map(|number| [number as u8 | 1; BLOCK_BYTES]).collect();
            let blocks = data.iter().zip(0..).map(|(page, block)| (block * 3, crc32c(page))).collect();
            let group = Group { head: Head { number: 5, ..HEAD }, blocks };
            let old = Group { head: HEAD, blocks: vec![(1, 1); count] };
            let filler = [[0; BLOCK_BYTES]; 2].into_iter();
            let mut pages: Vec<Page> = filler.chain(old.index()).chain(data.iter().map(|_| [0; BLOCK_BYTES])).collect();
            let new: Vec<Page> = group.index().chain(data).collect();
            for (at, page) in new.iter().enumerate() {
                assert_eq!(find(&HEAD, &pages), None, "{at} of {} pages", new.len());
                pages[INDEX_START as usize + at] = *page;
            }
            assert_eq!(find(&HEAD, &pages), Some(group.clone()));
            assert_eq!(find(&Head { number: 3, ..HEAD }, &pages), None, "it does not follow");
            assert_eq!(find(&group.head, &pages), None, "it is in place");
            assert_eq!(find(&Head { journal: [9; 16], ..HEAD }, &pages), None, "of another journal");
            for at in [0, new.len() / 2, new.len() - 1] {
                for sector in 0..8 {
                    let mut torn = pages.clone();
                    torn[INDEX_START as usize + at][512 * sector..][..512].fill(0xee);
                    assert_eq!(find(&HEAD, &torn), None, "sector {sector} of page {at}");
                }
            }
        }
    }

    #[test]
    fn a_journal_has_room_for_its_index_and_blocks() {
        for pages in [0, 3, 4, 502, 503, 504, 1004, 16384, 262_144] {
            let most = blocks_max(pages);
            let needs = |blocks: usize| u64::from(INDEX_START + index_pages(blocks)) + blocks as u64;
            assert!(most == 0 || needs(most) <= pages, "{pages} pages");
            assert!(needs(most + 1) > pages, "{pages} pages");
        }
    }
}
