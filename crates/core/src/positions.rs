//! A set of positions in a trace that finds its maximum in six steps, for offline algorithms that need the furthest
//! next use.

/// Every level has a bit for each word of the level below: 64^6 positions, more than 32 bits can name.
const LEVELS: usize = 6;

/// A set of positions. Memory: one bit and 1/63 for each position up to the largest ever inserted.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    /// A bit of level 0 is set if its position is in the set. A bit of another level is set if the word below is not 0.
    levels: [Vec<u64>; LEVELS],
}

impl Positions {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts `position`; returns true if it was absent.
    #[inline]
    pub fn insert(&mut self, position: u32) -> bool {
        let mut at = position as usize;
        for level in &mut self.levels {
            let (word, bit) = (at / 64, 1 << (at % 64));
            if word >= level.len() {
                level.resize(word + 1, 0);
            }
            let before = level[word];
            level[word] |= bit;
            if before != 0 {
                return before & bit == 0;
            }
            at = word;
        }
        true
    }

    /// Removes `position`; returns true if it was present.
    #[inline]
    pub fn remove(&mut self, position: u32) -> bool {
        let mut at = position as usize;
        for level in &mut self.levels {
            let (word, bit) = (at / 64, 1 << (at % 64));
            match level.get_mut(word) {
                Some(bits) if *bits & bit != 0 => *bits &= !bit,
                _ => return false,
            }
            if level[word] != 0 {
                break;
            }
            at = word;
        }
        true
    }

    /// True if `position` is in the set.
    #[inline]
    pub fn contains(&self, position: u32) -> bool {
        let (word, bit) = (position as usize / 64, 1 << (position % 64));
        self.levels[0].get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Returns the maximum of the set, if any.
    #[inline]
    pub fn greatest(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + level.get(at)?.checked_ilog2()? as usize;
        }
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_greatest_position_is_found_across_words_and_levels() {
        let mut positions = Positions::new();
        assert_eq!(positions.greatest(), None);
        let ascending = [0, 63, 64, 4095, 4096, 262_144, 20_000_000];
        for position in ascending {
            assert!(positions.insert(position));
            assert!(!positions.insert(position));
            assert_eq!(positions.greatest(), Some(position));
        }
        for position in ascending.into_iter().rev() {
            assert_eq!(positions.greatest(), Some(position));
            assert!(positions.remove(position));
            assert!(!positions.remove(position));
        }
        assert_eq!(positions.greatest(), None);
    }

    #[test]
    fn it_matches_an_ordered_set() {
        let mut positions = Positions::new();
        let mut set = BTreeSet::new();
        let mut state = 1_u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let position = (state >> 8) % [70, 5_000, 300_000][(state >> 30) as usize % 3];
            assert_eq!(positions.contains(position), set.contains(&position));
            if state & 0x20 == 0 {
                assert_eq!(positions.insert(position), set.insert(position));
            } else {
                assert_eq!(positions.remove(position), set.remove(&position));
            }
            assert_eq!(positions.greatest(), set.last().copied());
        }
    }
}
