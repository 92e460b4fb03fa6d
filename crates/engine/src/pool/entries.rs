//! The chunks of a logical disk, with counts of them that are kept as they change.

use std::ops::Deref;

use super::CHUNKS_MAX;

/// A chunk of a logical disk: its place in the pool, and what is to be known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// The chunks of a logical disk, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub fn resize(&mut self, chunks: usize) {
        self.all.resize(chunks, Entry::default());
        self.counts = Counts::of(&self.all);
    }

    /// Whether what is counted is what is there. Slow.
    pub fn is_counted(&self) -> bool {
        self.counts == Counts::of(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_what_is_there() {
        let mut entries = Entries::default();
        entries.resize(4);
        assert_eq!(entries.set(0, Entry::at(7, true)), Entry::default());
        entries.set(1, Entry::at(8, false));
        entries.set(2, Entry::LOST);
        assert_eq!((entries.counts(), entries.is_counted()), (Counts { placed: 2, lost: 1 }, true));
        entries.set(0, Entry::at(9, true));
        entries.set(1, Entry::default());
        entries.set(2, Entry::LOST.replaced_by(3));
        assert_eq!((entries.counts(), entries.is_counted()), (Counts { placed: 2, lost: 0 }, true));
        entries.resize(1);
        assert_eq!((entries.counts(), entries.len()), (Counts { placed: 1, lost: 0 }, 1));
    }
}
