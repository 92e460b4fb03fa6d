//! Writes that bring dirty blocks back to the backend: few at a time and in its order, so that others do not wait for them.

use std::collections::BTreeMap;

use flashwise_core::cache::Cache;
use flashwise_core::step::Step;

use super::{BACKEND, Engine, Group, Part, TRANSFER_BLOCKS};
use crate::disk::Transfer;

/// Transfers that are under way at a time while nobody else uses the backend.
const TRANSFERS_MAX: usize = 8;
/// Transfers that are under way at a time while somebody else uses it, and so waits for this many.
const TRANSFERS_BESIDE_MAX: usize = 4;

/// The writes that wait, and where the backend's arm is, so to speak: it moves upwards, and begins anew behind the last one.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// By offset.
    waiting: BTreeMap<u64, Part>,
    position: u64,
    under_way: usize,
    /// Transfers of the backend for others.
    others: usize,
}

impl Background {
    pub(super) fn push(&mut self, part: Part) {
        let before = self.waiting.insert(part.offset, part);
        assert!(before.is_none(), "a block is written back once at a time");
    }

    /// A transfer was handed out, with this part and maybe others.
    pub(super) fn started(&mut self, part: &Part) {
        *self.count(part) += 1;
    }

    /// One ended.
    pub(super) fn ended(&mut self, part: &Part) {
        *self.count(part) -= 1;
    }

    fn count(&mut self, part: &Part) -> &mut usize {
        if part.background { &mut self.under_way } else { &mut self.others }
    }

    /// The next writes in the backend's order, which can be one transfer; none if enough are under way.
    fn next(&mut self) -> Group {
        let mut group = Group::new();
        if self.under_way >= if self.others > 0 { TRANSFERS_BESIDE_MAX } else { TRANSFERS_MAX } {
            return group;
        }
        let ahead = self.waiting.range(self.position..).next().or_else(|| self.waiting.first_key_value());
        let Some((&first, _)) = ahead else { return group };
        self.position = first;
        while group.len() < TRANSFER_BLOCKS
            && let Some(part) = self.waiting.remove(&self.position)
        {
            self.position += part.length;
            group.push(part);
        }
        group
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Hands out writes of the background.
    pub(super) fn hand_out_background(&mut self, transfers: &mut Vec<Transfer>) {
        loop {
            let mut group = self.background.next();
            if group.is_empty() {
                break;
            }
            debug_assert!(group.iter().all(|part| part.disk == BACKEND));
            self.hand_out_group(&mut group, transfers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Operation;

    fn part(offset: u64) -> Part {
        let (disk, operation, buffers) = (BACKEND, Operation::Write, smallvec::SmallVec::new());
        Part { disk, operation, offset, length: 4096, buffers, step: 0, background: true, stream: 0 }
    }

    fn next(background: &mut Background) -> Vec<u64> {
        let group = background.next();
        group.first().into_iter().for_each(|part| background.started(part));
        group.iter().map(|part| part.offset / 4096).collect()
    }

    #[test]
    fn neighbours_go_together_upwards_and_then_from_the_start() {
        let mut background = Background::default();
        [9, 2, 3, 7, 4].into_iter().for_each(|block| background.push(part(4096 * block)));
        assert_eq!(next(&mut background), [2, 3, 4]);
        background.push(part(0));
        assert_eq!([next(&mut background), next(&mut background), next(&mut background)], [vec![7], vec![9], vec![0]]);
        assert_eq!(next(&mut background), [0; 0]);
    }

    #[test]
    fn few_are_under_way_at_a_time() {
        let mut background = Background::default();
        (0..20).for_each(|block| background.push(part(2 * 4096 * block)));
        (0..TRANSFERS_MAX as u64).for_each(|block| assert_eq!(next(&mut background), [2 * block]));
        assert_eq!(next(&mut background), [0; 0]);
        background.ended(&part(0));
        assert_eq!(next(&mut background), [2 * TRANSFERS_MAX as u64]);
        let other = Part { background: false, ..part(0) };
        background.started(&other);
        (0..TRANSFERS_MAX - TRANSFERS_BESIDE_MAX).for_each(|_| background.ended(&part(0)));
        assert_eq!(next(&mut background), [0; 0]);
        background.ended(&other);
        assert_eq!(next(&mut background).len(), 1);
    }
}
