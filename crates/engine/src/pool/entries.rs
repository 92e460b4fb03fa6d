//! The chunks of a logical disk, with counts of them that are kept as they change.

use std::ops::Deref;

use super::map::Entry;

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

    /// Has so many chunks from now on; new ones have no place.
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
