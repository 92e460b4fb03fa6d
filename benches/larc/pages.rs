//! The guest's page cache: pages of files, of which the one not used for longest makes room.

use std::collections::{BTreeMap, HashMap};

use super::guest::FileId;

/// A page of a file, by number.
pub type Page = (FileId, u32);

/// What the cache has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Missing,
    /// It is being read, by the transfer of this number.
    Coming(u64),
    /// Its content.
    Here,
}

#[derive(Debug)]
struct Entry {
    used_last: u64,
    dirty: bool,
    coming: Option<u64>,
    /// Writes under way.
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
    /// Those that may make room, by when they were used last.
    idle: BTreeMap<u64, Page>,
    uses: u64,
    /// Pages that are dirty or being written.
    unwritten: usize,
}

impl PageCache {
    /// An empty cache of this many pages.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), idle: BTreeMap::new(), uses: 0, unwritten: 0 }
    }

    /// Number of pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Pages that are dirty or being written.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// What the cache has of a page.
    pub fn state(&self, page: Page) -> State {
        match self.entries.get(&page) {
            None => State::Missing,
            Some(Entry { coming: Some(transfer), .. }) => State::Coming(*transfer),
            Some(_) => State::Here,
        }
    }

    /// Changes a page, which is made if there is none, and counts as a use of it.
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

    /// A page is used.
    pub fn touch(&mut self, page: Page) {
        self.change(page, |_| ());
    }

    /// A page is being read.
    pub fn begin_read(&mut self, page: Page, transfer: u64) {
        self.change(page, |entry| entry.coming = Some(transfer));
    }

    /// A page is new in memory.
    pub fn dirty(&mut self, page: Page) {
        self.change(page, |entry| entry.dirty = true);
    }

    /// A dirty page is being written.
    pub fn begin_write(&mut self, page: Page) {
        self.keep_place(page, |entry| {
            entry.dirty = false;
            entry.writes += 1;
        });
    }

    /// A transfer of a page has ended; the page may be gone.
    pub fn end(&mut self, page: Page, write: bool) {
        self.keep_place(page, |entry| match write {
            true => entry.writes -= 1,
            false => entry.coming = None,
        });
    }

    /// Changes a page that is in memory, which is no use of it.
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

    /// A page is of no use any more.
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
        // Only the last may go.
        cache.touch((file, 3));
        assert_eq!((cache.state((file, 2)), cache.state((file, 3))), (State::Missing, State::Here));
        // Written and read, both may go, in the order in which they were used.
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
