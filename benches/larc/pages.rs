//! The guest's page cache: pages of files, evicted in LRU order.

use std::collections::{BTreeMap, HashMap};

use super::guest::FileId;

/// A page of a file, by number.
pub type Page = (FileId, u32);

/// The state of a page in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not in memory.
    Missing,
    /// The transfer of this number is reading it.
    Coming(u64),
    /// In memory.
    Here,
}

#[derive(Debug)]
struct Entry {
    used_last: u64,
    dirty: bool,
    coming: Option<u64>,
    /// Writes in flight.
    writes: u32,
}

impl Entry {
    fn is_idle(&self) -> bool {
        !self.dirty && self.coming.is_none() && self.writes == 0
    }
}

/// The pages that are in memory.
#[derive(Debug)]
pub struct PageCache {
    capacity: usize,
    entries: HashMap<Page, Entry>,
    /// Pages that can be evicted, by the time of their last use.
    idle: BTreeMap<u64, Page>,
    uses: u64,
    /// Pages that are dirty or being written.
    unwritten: usize,
}

impl PageCache {
    /// Creates an empty cache of this many pages.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), idle: BTreeMap::new(), uses: 0, unwritten: 0 }
    }

    /// Returns the capacity in pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of pages that are dirty or being written.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// Returns the state of a page.
    pub fn state(&self, page: Page) -> State {
        match self.entries.get(&page) {
            None => State::Missing,
            Some(Entry { coming: Some(transfer), .. }) => State::Coming(*transfer),
            Some(_) => State::Here,
        }
    }

    /// Changes a page, or creates it. Counts as a use.
    fn change(&mut self, page: Page, change: impl FnOnce(&mut Entry)) {
        self.uses += 1;
        let uses = self.uses;
        if !self.entries.contains_key(&page) {
            while self.entries.len() >= self.capacity
                && let Some((_, victim)) = self.idle.pop_first()
            {
                self.entries.remove(&victim);
            }
        }
        let entry =
            self.entries.entry(page).or_insert(Entry { used_last: uses, dirty: false, coming: None, writes: 0 });
        self.idle.remove(&entry.used_last);
        entry.used_last = uses;
        let before = entry.dirty || entry.writes > 0;
        change(entry);
        let after = entry.dirty || entry.writes > 0;
        self.unwritten = self.unwritten + usize::from(after) - usize::from(before);
        if entry.is_idle() {
            self.idle.insert(uses, page);
        }
    }

    /// Marks a page as used.
    pub fn touch(&mut self, page: Page) {
        self.change(page, |_| ());
    }

    /// Marks a page as being read.
    pub fn begin_read(&mut self, page: Page, transfer: u64) {
        self.change(page, |entry| entry.coming = Some(transfer));
    }

    /// Marks a page as dirty.
    pub fn dirty(&mut self, page: Page) {
        self.change(page, |entry| entry.dirty = true);
    }

    /// Marks a dirty page as being written.
    pub fn begin_write(&mut self, page: Page) {
        self.keep_place(page, |entry| {
            entry.dirty = false;
            entry.writes += 1;
        });
    }

    /// Handles the end of a page's transfer; the page may be gone.
    pub fn end(&mut self, page: Page, write: bool) {
        self.keep_place(page, |entry| match write {
            true => entry.writes -= 1,
            false => entry.coming = None,
        });
    }

    /// Changes a page in memory. Does not count as a use.
    fn keep_place(&mut self, page: Page, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&page) else { return };
        let before = entry.dirty || entry.writes > 0;
        change(entry);
        let after = entry.dirty || entry.writes > 0;
        self.unwritten = self.unwritten + usize::from(after) - usize::from(before);
        if entry.is_idle() {
            self.idle.insert(entry.used_last, page);
        }
    }

    /// Removes a page.
    pub fn remove(&mut self, page: Page) {
        if let Some(entry) = self.entries.remove(&page) {
            self.idle.remove(&entry.used_last);
            self.unwritten -= usize::from(entry.dirty || entry.writes > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_not_used_for_longest_makes_room_unless_it_is_dirty_or_under_way() {
        let mut cache = PageCache::new(3);
        let file = FileId::of(0);
        cache.dirty((file, 0));
        cache.begin_read((file, 1), 7);
        cache.touch((file, 2));
        assert_eq!(cache.state((file, 1)), State::Coming(7));
        // Only the last can be evicted.
        cache.touch((file, 3));
        assert_eq!((cache.state((file, 2)), cache.state((file, 3))), (State::Missing, State::Here));
        // After writing and reading both can be evicted, in the order of their use.
        cache.begin_write((file, 0));
        assert_eq!(cache.unwritten(), 1);
        cache.end((file, 0), true);
        cache.end((file, 1), false);
        assert_eq!(cache.unwritten(), 0);
        cache.touch((file, 0));
        cache.touch((file, 4));
        let states = [0, 1, 3, 4].map(|page| cache.state((file, page)));
        assert_eq!(states, [State::Here, State::Missing, State::Here, State::Here]);
        cache.remove((file, 0));
        assert_eq!(cache.state((file, 0)), State::Missing);
    }
}
