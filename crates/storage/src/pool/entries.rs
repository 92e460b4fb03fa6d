//! The chunks of a logical disk, with counters that are updated on each change.

use std::ops::Deref;

use zerocopy::FromZeros;

use super::CHUNKS_MAX;

/// A chunk of a logical disk: its place in the pool and its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(transparent)]
pub struct Entry(u32);

impl Entry {
    const UNWRITTEN: u32 = 1 << 31;
    const PENDING: u32 = 1 << 30;
    const HELD: u32 = 1 << 29;
    /// Without a place: the chunk is lost. With a place: it was lost, and the new place is not recorded yet.
    const WAS_LOST: u32 = 1 << 28;
    const CHUNK: u32 = CHUNKS_MAX - 1;

    /// A chunk of a disk that was given up. It returns errors until it is completely rewritten or trimmed.
    pub const LOST: Entry = Entry(Entry::WAS_LOST);

    /// An entry with a place. `written` is false if the chunk is all zeroes.
    pub fn at(chunk: u32, written: bool) -> Entry {
        assert!(chunk > 0 && chunk < CHUNKS_MAX, "chunk {chunk} is for data");
        Entry(if written { chunk } else { chunk | Entry::UNWRITTEN })
    }

    /// The place in the pool, if any.
    pub fn chunk(self) -> Option<u32> {
        (self.0 & Entry::CHUNK != 0).then_some(self.0 & Entry::CHUNK)
    }

    /// The place, if data was written there.
    pub fn written(self) -> Option<u32> {
        self.chunk().filter(|_| self.0 & Entry::UNWRITTEN == 0)
    }

    /// True if the content is lost.
    pub fn is_lost(self) -> bool {
        self.chunk().is_none() && self.0 & Entry::WAS_LOST != 0
    }

    /// Returns the entry for the first place of this chunk, which is not recorded yet. Requests for the chunk wait.
    pub fn replaced_by(self, chunk: u32) -> Entry {
        Entry(Entry::at(chunk, true).0 | Entry::PENDING | Entry::HELD | self.0 & Entry::WAS_LOST)
    }

    /// True if the place is not durably recorded yet.
    pub fn is_pending(self) -> bool {
        self.0 & Entry::PENDING != 0
    }

    /// True if requests for the chunk wait.
    pub fn is_held(self) -> bool {
        self.0 & Entry::HELD != 0
    }

    /// Returns the entry with the held flag set or cleared.
    pub fn held(self, held: bool) -> Entry {
        Entry(if held { self.0 | Entry::HELD } else { self.0 & !Entry::HELD })
    }

    /// Returns the entry with the pending flag set or cleared.
    pub fn pending(self, pending: bool) -> Entry {
        Entry(if pending { self.0 | Entry::PENDING } else { self.0 & !Entry::PENDING })
    }

    /// Returns the entry as the durable map has it.
    pub(super) fn durable(self, thick: bool) -> Entry {
        let flags = Entry::HELD | Entry::PENDING | Entry::WAS_LOST;
        if self.is_lost() || (self.is_pending() && self.0 & Entry::WAS_LOST != 0) {
            return Entry::LOST;
        }
        let plain = Entry(self.0 & !flags);
        match (self.is_pending(), thick) {
            (false, _) => plain,
            (true, false) => Entry::default(),
            (true, true) => Entry(plain.0 | Entry::UNWRITTEN),
        }
    }
}

/// Not enough memory for the map of a logical disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for its map, which takes {bytes} bytes")]
pub struct NoMemory {
    bytes: u64,
}

/// Number of entries that are scanned together: one page of memory.
const PAGE_ENTRIES: usize = 1024;

/// The chunks of a logical disk, in order. Chunks without a place take only address space, and scans skip pages of
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entries {
    all: Vec<Entry>,
    counts: ChunkCounts,
    /// Bitmap of the pages that may have entries with a place or a loss.
    touched: Vec<u64>,
}

/// Counts of the chunks of a logical disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Chunks that have a place.
    pub placed: usize,
    /// Chunks that are lost.
    pub lost: usize,
}

impl ChunkCounts {
    fn add(self, entry: Entry) -> ChunkCounts {
        let (placed, lost) = (usize::from(entry.chunk().is_some()), usize::from(entry.is_lost()));
        ChunkCounts { placed: self.placed + placed, lost: self.lost + lost }
    }

    fn without(self, entry: Entry) -> ChunkCounts {
        let of_it = ChunkCounts::default().add(entry);
        ChunkCounts { placed: self.placed - of_it.placed, lost: self.lost - of_it.lost }
    }
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.all
    }
}

impl Entries {
    /// The current counts.
    pub fn counts(&self) -> ChunkCounts {
        self.counts
    }

    /// Returns the entries that have a place or are lost, in order, with their indices.
    pub fn there(&self) -> impl Iterator<Item = (u32, Entry)> + '_ {
        self.touched().flat_map(|page| {
            let first = page * PAGE_ENTRIES;
            let entries = &self.all[first..(first + PAGE_ENTRIES).min(self.all.len())];
            (first as u32..).zip(entries.iter().copied()).filter(|(_, entry)| *entry != Entry::default())
        })
    }

    fn touched(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * word + bit)
        };
        self.touched.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(bits)
    }

    /// Replaces an entry and returns the old one.
    pub fn set(&mut self, at: usize, entry: Entry) -> Entry {
        let before = std::mem::replace(&mut self.all[at], entry);
        self.counts = self.counts.add(entry).without(before);
        let page = at / PAGE_ENTRIES;
        self.touched[page / 64] |= 1 << (page % 64);
        before
    }

    /// Makes requests for a chunk wait, or lets them go on.
    pub fn hold(&mut self, at: usize, held: bool) {
        self.set(at, self.all[at].held(held));
    }

    /// Changes the number of chunks. New chunks have no place.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn resize(&mut self, chunks: usize) -> Result<(), NoMemory> {
        if chunks <= self.all.len() {
            let gone = self.there().skip_while(|(at, _)| (*at as usize) < chunks).map(|(_, entry)| entry);
            self.counts = gone.fold(self.counts, ChunkCounts::without);
            self.all.truncate(chunks);
            self.touched.truncate(words(chunks));
            let last = chunks.div_ceil(PAGE_ENTRIES);
            if let Some(word) = self.touched.get_mut(last / 64) {
                *word &= (1 << (last % 64)) - 1;
            }
            return Ok(());
        }
        self.all = self.zeroed_but(chunks)?;
        self.touched.resize(words(chunks), 0);
        Ok(())
    }

    /// Returns a copy.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn copy(&self) -> Result<Entries, NoMemory> {
        Ok(Entries { all: self.zeroed_but(self.all.len())?, counts: self.counts, touched: self.touched.clone() })
    }

    /// True if the counts match the entries.
    pub fn is_counted(&self) -> bool {
        self.counts == self.there().map(|(_, entry)| entry).fold(ChunkCounts::default(), ChunkCounts::add)
    }

    /// Returns `chunks` entries with a copy of the existing ones. Pages without a place take no memory.
    fn zeroed_but(&self, chunks: usize) -> Result<Vec<Entry>, NoMemory> {
        let no_memory = |_| NoMemory { bytes: (chunks * size_of::<Entry>()) as u64 };
        let mut all = Entry::new_vec_zeroed(chunks).map_err(no_memory)?;
        self.there().for_each(|(at, entry)| all[at as usize] = entry);
        Ok(all)
    }
}

/// Returns the number of 64-bit words of a bitmap of the pages of `chunks` entries.
fn words(chunks: usize) -> usize {
    chunks.div_ceil(PAGE_ENTRIES).div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A logical disk of 64 TiB has 2^30 chunks.
    #[test]
    fn chunks_without_a_place_take_no_memory() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            4096 * status.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        let mut entries = Entries::default();
        entries.resize(1 << 29).unwrap();
        entries.set(1 << 28, Entry::at(7, true));
        entries.resize(1 << 30).unwrap();
        let copy = entries.copy().unwrap();
        assert!(copy.there().eq([(1 << 28, Entry::at(7, true))]) && copy.len() == 1 << 30 && copy.is_counted());
        let taken = resident().saturating_sub(before);
        assert!(taken < 64 << 20, "{taken} bytes of 8 GiB");
        let error = entries.resize(usize::MAX / 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("there is no memory for its map, which takes {} bytes", usize::MAX / 8 * 4)
        );
        assert_eq!((entries.len(), entries.counts().placed), (1 << 30, 1));
    }

    #[test]
    fn counts_match_the_entries() {
        let mut entries = Entries::default();
        entries.resize(4).unwrap();
        assert_eq!(entries.set(0, Entry::at(7, true)), Entry::default());
        entries.set(1, Entry::at(8, false));
        entries.set(2, Entry::LOST);
        assert_eq!((entries.counts(), entries.is_counted()), (ChunkCounts { placed: 2, lost: 1 }, true));
        entries.set(0, Entry::at(9, true));
        entries.set(1, Entry::default());
        entries.set(2, Entry::LOST.replaced_by(3));
        assert_eq!((entries.counts(), entries.is_counted()), (ChunkCounts { placed: 2, lost: 0 }, true));
        assert!(entries.there().eq([(0, Entry::at(9, true)), (2, Entry::LOST.replaced_by(3))]));
        entries.resize(1).unwrap();
        assert_eq!((entries.counts(), entries.len()), (ChunkCounts { placed: 1, lost: 0 }, 1));
        // Removed entries do not come back.
        for (chunks, at) in [(70_000, 66_000), (70_000, 65_536), (2000, 1024), (2000, 1999)] {
            entries.resize(chunks).unwrap();
            entries.set(at, Entry::LOST);
            assert!(entries.there().map(|(at, _)| at).eq([0, at as u32]), "{at}");
            entries.resize(at).unwrap();
            assert!(entries.there().map(|(at, _)| at).eq([0]) && entries.is_counted(), "{at}");
            entries.resize(chunks).unwrap();
            assert!(entries.there().map(|(at, _)| at).eq([0]) && entries.is_counted(), "{at}");
        }
    }
}
