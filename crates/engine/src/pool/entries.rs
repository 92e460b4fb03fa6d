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

    /// Whether what it held is lost.
    pub fn is_lost(self) -> bool {
        self.chunk().is_none() && self.0 & Entry::WAS_LOST != 0
    }

    /// The first place of a chunk that was this before, not written down yet; requests for it wait.
    pub fn replaced_by(self, chunk: u32) -> Entry {
        Entry(Entry::at(chunk, true).0 | Entry::PENDING | Entry::HELD | self.0 & Entry::WAS_LOST)
    }

    /// Whether its place is not written down durably yet.
    pub fn is_pending(self) -> bool {
        self.0 & Entry::PENDING != 0
    }

    /// Whether requests for it wait.
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

/// The chunks of a logical disk, in order. What has no place takes no memory, but for addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entries {
    all: Vec<Entry>,
    counts: Counts,
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
    fn of(entries: &[Entry]) -> Counts {
        let count = |is: fn(&Entry) -> bool| entries.iter().filter(|entry| is(entry)).count();
        Counts { placed: count(|entry| entry.chunk().is_some()), lost: count(|entry| entry.is_lost()) }
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

    /// Makes a chunk another, and returns what it was.
    pub fn set(&mut self, at: usize, entry: Entry) -> Entry {
        let before = std::mem::replace(&mut self.all[at], entry);
        let (now, then) = (Counts::of(&[entry]), Counts::of(&[before]));
        self.counts.placed = self.counts.placed + now.placed - then.placed;
        self.counts.lost = self.counts.lost + now.lost - then.lost;
        before
    }

    /// Has this many chunks from now on; new ones have no place.
    ///
    /// # Errors
    /// There is no memory for more; all is as it was then.
    pub fn resize(&mut self, chunks: usize) -> Result<(), NoMemory> {
        if chunks <= self.all.len() {
            let gone = Counts::of(&self.all[chunks..]);
            self.counts.placed -= gone.placed;
            self.counts.lost -= gone.lost;
            self.all.truncate(chunks);
            return Ok(());
        }
        self.all = zeroed_but(&self.all, chunks)?;
        Ok(())
    }

    /// A copy of them.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn copy(&self) -> Result<Entries, NoMemory> {
        Ok(Entries { all: zeroed_but(&self.all, self.all.len())?, counts: self.counts })
    }

    /// Whether what is counted is what is there. Slow.
    pub fn is_counted(&self) -> bool {
        self.counts == Counts::of(&self.all)
    }
}

/// So many entries without a place, but for the first, which are as they are in `of`. Pages of memory that nothing is written to are not taken.
fn zeroed_but(of: &[Entry], chunks: usize) -> Result<Vec<Entry>, NoMemory> {
    const PAGE_ENTRIES: usize = 1024;
    let no_memory = |_| NoMemory { bytes: (chunks * size_of::<Entry>()) as u64 };
    let mut all = Entry::new_vec_zeroed(chunks).map_err(no_memory)?;
    for (page, old) in all.chunks_mut(PAGE_ENTRIES).zip(of.chunks(PAGE_ENTRIES)) {
        if old.iter().any(|entry| *entry != Entry::default()) {
            page[..old.len()].copy_from_slice(old);
        }
    }
    Ok(all)
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
        assert!(copy == entries && copy[1 << 28] == Entry::at(7, true) && copy.is_counted());
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
        entries.resize(1).unwrap();
        assert_eq!((entries.counts(), entries.len()), (Counts { placed: 1, lost: 0 }, 1));
    }
}
