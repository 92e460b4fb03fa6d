//! The chunks of a logical disk, with counts of them that are kept as they change.

use std::ops::Deref;

use zerocopy::FromZeros;

use super::CHUNKS_MAX;

/// A chunk of a logical disk: its place in the pool, and what is to be known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(transparent)]
pub struct Entry(u32);

impl Entry {
    const UNWRITTEN: u32 = 1 << 31;
    const PENDING: u32 = 1 << 30;
    const HELD: u32 = 1 << 29;
    /// Without a place: what it held is lost. With one: it was, until that place is written down.
    const WAS_LOST: u32 = 1 << 28;
    const CHUNK: u32 = CHUNKS_MAX - 1;

    /// A chunk whose disk was given up: it answers with an error until all of it is written anew, or is trimmed.
    pub const LOST: Entry = Entry(Entry::WAS_LOST);

    /// A place; `written`: whether the chunk is more than zeroes.
    pub fn at(chunk: u32, written: bool) -> Entry {
        assert!(chunk > 0 && chunk < CHUNKS_MAX, "chunk {chunk} is for data");
        Entry(if written { chunk } else { chunk | Entry::UNWRITTEN })
    }

    /// Its place in the pool, if it has one.
    pub fn chunk(self) -> Option<u32> {
        (self.0 & Entry::CHUNK != 0).then_some(self.0 & Entry::CHUNK)
    }

    /// The place, if something was written there.
    pub fn written(self) -> Option<u32> {
        self.chunk().filter(|_| self.0 & Entry::UNWRITTEN == 0)
    }

    /// True if what it held is lost.
    pub fn is_lost(self) -> bool {
        self.chunk().is_none() && self.0 & Entry::WAS_LOST != 0
    }

    /// The first place of a chunk that was this before, not written down yet; requests for it wait.
    pub fn replaced_by(self, chunk: u32) -> Entry {
        Entry(Entry::at(chunk, true).0 | Entry::PENDING | Entry::HELD | self.0 & Entry::WAS_LOST)
    }

    /// True if its place is not written down durably yet.
    pub fn is_pending(self) -> bool {
        self.0 & Entry::PENDING != 0
    }

    /// True if requests for it wait.
    pub fn is_held(self) -> bool {
        self.0 & Entry::HELD != 0
    }

    /// The same, with requests waiting or not.
    pub fn held(self, held: bool) -> Entry {
        Entry(if held { self.0 | Entry::HELD } else { self.0 & !Entry::HELD })
    }

    /// The same, written down or not.
    pub fn pending(self, pending: bool) -> Entry {
        Entry(if pending { self.0 | Entry::PENDING } else { self.0 & !Entry::PENDING })
    }

    /// As the durable map has it.
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

/// There is no memory for the chunks of a logical disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for its map, which takes {bytes} bytes")]
pub struct NoMemory {
    bytes: u64,
}

/// Entries that are looked through together: those of a page of memory.
const PAGE_ENTRIES: usize = 1024;

/// The chunks of a logical disk, in order. What has no place takes no memory, but for addresses, and no time where others are looked through.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entries {
    all: Vec<Entry>,
    counts: Counts,
    /// Pages that may have more than entries without a place, by number, a bit each.
    touched: Vec<u64>,
}

/// How many chunks of a logical disk are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that have a place.
    pub placed: usize,
    /// Those that are lost.
    pub lost: usize,
}

impl Counts {
    fn add(self, entry: Entry) -> Counts {
        let (placed, lost) = (usize::from(entry.chunk().is_some()), usize::from(entry.is_lost()));
        Counts { placed: self.placed + placed, lost: self.lost + lost }
    }

    fn without(self, entry: Entry) -> Counts {
        let of_it = Counts::default().add(entry);
        Counts { placed: self.placed - of_it.placed, lost: self.lost - of_it.lost }
    }
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.all
    }
}

impl Entries {
    /// How many of them are what.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Those that have a place, or are lost, in order, with their numbers.
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

    /// Makes a chunk another, and returns what it was.
    pub fn set(&mut self, at: usize, entry: Entry) -> Entry {
        let before = std::mem::replace(&mut self.all[at], entry);
        self.counts = self.counts.add(entry).without(before);
        let page = at / PAGE_ENTRIES;
        self.touched[page / 64] |= 1 << (page % 64);
        before
    }

    /// Has this many chunks from now on; new ones have no place.
    ///
    /// # Errors
    /// There is no memory for more; all is as it was then.
    pub fn resize(&mut self, chunks: usize) -> Result<(), NoMemory> {
        if chunks <= self.all.len() {
            let gone = self.there().skip_while(|(at, _)| (*at as usize) < chunks).map(|(_, entry)| entry);
            self.counts = gone.fold(self.counts, Counts::without);
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

    /// A copy of them.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn copy(&self) -> Result<Entries, NoMemory> {
        Ok(Entries { all: self.zeroed_but(self.all.len())?, counts: self.counts, touched: self.touched.clone() })
    }

    /// True if what is counted is what is there.
    pub fn is_counted(&self) -> bool {
        self.counts == self.there().map(|(_, entry)| entry).fold(Counts::default(), Counts::add)
    }

    /// So many entries without a place, but for those that are there. Pages of memory that nothing is written to are not taken.
    fn zeroed_but(&self, chunks: usize) -> Result<Vec<Entry>, NoMemory> {
        let no_memory = |_| NoMemory { bytes: (chunks * size_of::<Entry>()) as u64 };
        let mut all = Entry::new_vec_zeroed(chunks).map_err(no_memory)?;
        self.there().for_each(|(at, entry)| all[at as usize] = entry);
        Ok(all)
    }
}

/// Words with a bit for each page of so many entries.
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
    fn what_is_counted_is_what_is_there() {
        let mut entries = Entries::default();
        entries.resize(4).unwrap();
        assert_eq!(entries.set(0, Entry::at(7, true)), Entry::default());
        entries.set(1, Entry::at(8, false));
        entries.set(2, Entry::LOST);
        assert_eq!((entries.counts(), entries.is_counted()), (Counts { placed: 2, lost: 1 }, true));
        entries.set(0, Entry::at(9, true));
        entries.set(1, Entry::default());
        entries.set(2, Entry::LOST.replaced_by(3));
        assert_eq!((entries.counts(), entries.is_counted()), (Counts { placed: 2, lost: 0 }, true));
        assert!(entries.there().eq([(0, Entry::at(9, true)), (2, Entry::LOST.replaced_by(3))]));
        entries.resize(1).unwrap();
        assert_eq!((entries.counts(), entries.len()), (Counts { placed: 1, lost: 0 }, 1));
        // What was there does not come back.
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
