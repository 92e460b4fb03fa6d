//! The levels of a stochastic multi-queue.

use crate::lists::Lists;

/// Levels of every queue.
pub(super) const LEVELS: u8 = 64;

/// A queue of entries, numbered from 1, on levels. Each level is a list with its oldest entry, the head, at the back.
/// Sentinels divide it into zones.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    lists: Lists,
    /// The position of each zone among a level's lists; the zone before the first sentinel comes first.
    zones: Vec<u8>,
    /// The total number of entries on the top levels, and the number of those levels.
    in_top_levels: u32,
    top_levels: u8,
    len: u32,
}

impl Queue {
    /// Creates an empty queue whose levels have this many zones.
    pub(super) fn new(zones: u8) -> Queue {
        Queue {
            lists: Lists::new(LEVELS * zones),
            zones: (0..zones).collect(),
            in_top_levels: 0,
            top_levels: 0,
            len: 0,
        }
    }

    /// Sets the number of top levels, and the number of entries on them together.
    pub(super) fn with_top_levels(self, top_levels: u8, in_top_levels: u32) -> Queue {
        Queue { top_levels, in_top_levels, ..self }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the list of a zone of a level.
    #[inline]
    fn list(&self, level: u8, zone: usize) -> u8 {
        level * self.zones.len() as u8 + self.zones[zone]
    }

    pub(super) fn last_zone(&self) -> usize {
        self.zones.len() - 1
    }

    #[inline]
    pub(super) fn level(&self, entry: u32) -> u8 {
        self.lists.list_of(entry).map_or(0, |list| list / self.zones.len() as u8)
    }

    fn level_len(&self, level: u8) -> u32 {
        (0..self.zones.len()).map(|zone| self.lists.len(self.list(level, zone))).sum()
    }

    /// Adds an entry at the end of a zone.
    #[inline]
    pub(super) fn push_in_zone(&mut self, entry: u32, level: u8, zone: usize) {
        self.lists.push_front(self.list(level, zone), entry);
        self.len += 1;
    }

    /// Adds an entry at the end of its level.
    #[inline]
    pub(super) fn push(&mut self, entry: u32, level: u8) {
        self.push_in_zone(entry, level, self.last_zone());
    }

    /// Removes an entry, and returns its level.
    #[inline]
    pub(super) fn remove(&mut self, entry: u32) -> u8 {
        let level = self.level(entry);
        self.lists.remove(entry);
        self.len -= 1;
        level
    }

    /// Returns the head of a level, ignoring sentinels.
    #[inline]
    pub(super) fn head(&self, level: u8) -> Option<u32> {
        (0..self.zones.len()).find_map(|zone| self.lists.back(self.list(level, zone)))
    }

    /// Returns the head of the lowest non-empty level from `level` on.
    #[inline]
    pub(super) fn head_from(&self, level: u8) -> Option<u32> {
        (level..LEVELS).find_map(|level| self.head(level))
    }

    /// Returns the head of the lowest level with an entry before its first sentinel.
    #[inline]
    pub(super) fn oldest(&self) -> Option<u32> {
        (0..LEVELS).find_map(|level| self.lists.back(self.list(level, 0)))
    }

    /// Moves an entry `levels` levels up, to the end of that level. That level's head takes its place, before the
    /// sentinel that ends `zone`.
    #[inline]
    pub(super) fn requeue(&mut self, entry: u32, zone: usize, levels: u8) {
        let level = self.remove(entry);
        let above = (level + levels).min(LEVELS - 1);
        if above > level
            && let Some(head) = self.head(above)
        {
            self.remove(head);
            self.push_in_zone(head, level, zone);
        }
        self.push(entry, above);
    }

    /// Returns the number of entries that a level should have.
    fn target(&self, level: u8) -> u32 {
        let lower_levels = LEVELS - self.top_levels;
        let (entries, levels, number) = if level < lower_levels {
            (self.len.saturating_sub(self.in_top_levels), lower_levels, level)
        } else {
            (self.in_top_levels, self.top_levels, level - lower_levels)
        };
        let levels = u32::from(levels);
        entries / levels + u32::from(u32::from(number) < entries % levels)
    }

    /// Gives each level its target number of entries.
    pub(super) fn redistribute(&mut self) {
        for level in 0..LEVELS - 1 {
            let (target, mut len) = (self.target(level), self.level_len(level));
            while len < target
                && let Some(entry) = self.head_from(level + 1)
            {
                self.lists.remove(entry);
                self.lists.push_front(self.list(level, self.last_zone()), entry);
                len += 1;
            }
            while len > target
                && let Some(entry) =
                    (0..self.zones.len()).rev().find_map(|zone| self.lists.front(self.list(level, zone)))
            {
                self.lists.remove(entry);
                self.lists.push_back(self.list(level + 1, 0), entry);
                len -= 1;
            }
        }
    }

    /// Moves the sentinel that ends zone `first` of each level to the level's end.
    pub(super) fn move_sentinels(&mut self, first: usize) {
        for level in 0..LEVELS {
            let (from, to) = (self.list(level, first + 1), self.list(level, first));
            while let Some(entry) = self.lists.back(from) {
                self.lists.remove(entry);
                self.lists.push_front(to, entry);
            }
        }
        // The zone behind it is empty now, and becomes the last.
        self.zones[first + 1..].rotate_left(1);
    }

    pub(super) fn check(&self) {
        self.lists.check();
        assert_eq!((0..LEVELS).map(|level| self.level_len(level)).sum::<u32>(), self.len);
    }
}

/// Draws the non-empty levels from the lowest, each from its head: `0: 1 2 | 3 |` has two sentinels.
#[cfg(test)]
pub(super) fn draw(queue: &Queue) -> String {
    let zone = |level, zone| {
        let entries = queue.lists.from_back(queue.list(level, zone));
        entries.map(|entry| format!(" {entry}")).collect::<String>()
    };
    let level = |level| {
        let zones: Vec<String> = (0..queue.zones.len()).map(|number| zone(level, number)).collect();
        format!("{level}:{}", zones.join(" |"))
    };
    (0..LEVELS).filter(|&of| queue.level_len(of) > 0).map(level).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of the destination level takes the entry's place: at the end, or before the second sentinel.
    #[test]
    fn an_entry_trades_its_place_with_the_head_of_a_level_above() {
        let mut hotspots = Queue::new(1);
        for (entry, level) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 63)] {
            hotspots.push(entry, level);
        }
        hotspots.requeue(1, 0, 1);
        assert_eq!(draw(&hotspots), "0: 2 3, 1: 4 1, 63: 5");
        hotspots.requeue(2, 0, 4);
        assert_eq!(draw(&hotspots), "0: 3, 1: 4 1, 4: 2, 63: 5", "no one to trade with");
        hotspots.requeue(2, 0, 64);
        assert_eq!(draw(&hotspots), "0: 3, 1: 4 1, 4: 5, 63: 2");
        hotspots.push(6, 63);
        hotspots.requeue(2, 0, 1);
        assert_eq!(draw(&hotspots), "0: 3, 1: 4 1, 4: 5, 63: 6 2", "at the top to the end of its level");
        hotspots.check();
        let mut cache = Queue::new(3);
        for (entry, level) in [(1, 0), (2, 0), (3, 1)] {
            cache.push(entry, level);
        }
        cache.requeue(1, 1, 1);
        assert_eq!(draw(&cache), "0: | 3 | 2, 1: | | 1");
        cache.check();
    }

    /// Only entries before the first sentinel are old. The older sentinel moves to the end, the first time the second
    /// one.
    #[test]
    fn sentinels_mark_old_blocks() {
        let mut cache = Queue::new(3);
        cache.push(1, 0);
        cache.move_sentinels(1);
        cache.push(2, 0);
        assert_eq!((draw(&cache).as_str(), cache.oldest()), ("0: | 1 | 2", None));
        cache.move_sentinels(0);
        assert_eq!((draw(&cache).as_str(), cache.oldest()), ("0: 1 | 2 |", Some(1)));
        cache.push(3, 0);
        cache.push_in_zone(4, 0, 0);
        assert_eq!(draw(&cache), "0: 1 4 | 2 | 3");
        cache.move_sentinels(0);
        assert_eq!(draw(&cache), "0: 1 4 2 | 3 |");
        cache.check();
    }

    /// Ten entries in a queue whose top eight levels have two together. The others have 8 on 56 levels, one on each of
    /// the first eight. 3 to 10 leave level 0 by its end for the head of level 1, one fewer at every level. 1 stays,
    /// and 9 and 10 end on levels 56 and 57.
    #[test]
    fn every_level_gets_its_due() {
        let mut hotspots = Queue::new(1).with_top_levels(8, 2);
        (1..=10).for_each(|entry| hotspots.push(entry, 0));
        hotspots.redistribute();
        assert_eq!(draw(&hotspots), "0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 56: 9, 57: 10");
        // Level 0 lacks one, and takes the head of the next non-empty level; so do all others.
        hotspots.remove(1);
        hotspots.redistribute();
        assert_eq!(draw(&hotspots), "0: 2, 1: 3, 2: 4, 3: 5, 4: 6, 5: 7, 6: 8, 56: 9, 57: 10");
        hotspots.check();
    }
}
