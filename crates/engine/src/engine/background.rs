//! Writes of the backend that no client waits for: few at a time and in its order, so that others do not wait for them. They bring dirty blocks
//! back, or are [past](flashwise_core::cache) the flash and have their answers; the two kinds take turns. While a flush waits for the second kind, it
//! gives way to reads alone.

use std::collections::BTreeMap;

use flashwise_core::cache::Cache;
use flashwise_core::step::Step;

use super::{BACKEND, Engine, Group, Part, TRANSFER_BLOCKS};
use crate::disk::{Operation, Transfer};

/// Transfers that are under way at a time while nobody else uses the backend.
const TRANSFERS_MAX: usize = 8;
/// Transfers that are under way at a time while somebody else uses it, and so waits for this many.
const TRANSFERS_BESIDE_MAX: usize = 4;
/// Transfers past the flash that are under way at a time while nobody reads from the backend.
const TRANSFERS_PAST_MAX: usize = 16;
/// The same while a flush waits for them.
const TRANSFERS_FLUSHED_MAX: usize = 64;

/// The writes of a kind that wait, and where the backend's arm is, so to speak: it moves upwards, and begins anew behind the last one.
#[derive(Debug, Default)]
struct Waiting {
    /// By offset.
    parts: BTreeMap<u64, Part>,
    position: u64,
}

impl Waiting {
    fn push(&mut self, part: Part) {
        let before = self.parts.insert(part.offset, part);
        assert!(before.is_none(), "a block is written back once at a time");
    }

    /// The next writes in the backend's order, which can be one transfer.
    fn next(&mut self) -> Group {
        let mut group = Group::new();
        let ahead = self.parts.range(self.position..).next().or_else(|| self.parts.first_key_value());
        let Some((&first, _)) = ahead else { return group };
        self.position = first;
        while group.len() < TRANSFER_BLOCKS
            && let Some(part) = self.parts.remove(&self.position)
        {
            self.position += part.length;
            group.push(part);
        }
        group
    }
}

/// What waits, and what is under way.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// Of batches.
    back: Waiting,
    /// Past the flash.
    past: Waiting,
    /// Whose turn it is.
    past_is_next: bool,
    /// Flushes that wait for what goes past the flash.
    flushes: usize,
    under_way: usize,
    /// Reads of the backend for others.
    reads: usize,
    /// Other transfers of the backend for others.
    others: usize,
}

impl Background {
    /// A block of a batch is to be written back.
    pub(super) fn push_back(&mut self, part: Part) {
        self.back.push(part);
    }

    /// An answered write goes past the flash.
    pub(super) fn push_past(&mut self, part: Part) {
        self.past.push(part);
    }

    /// A flush waits for what goes past the flash.
    pub(super) fn flush_waits(&mut self) {
        self.flushes += 1;
    }

    /// It does not any more.
    pub(super) fn flush_goes(&mut self) {
        self.flushes -= 1;
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
        match part.operation {
            _ if part.background => &mut self.under_way,
            Operation::Read => &mut self.reads,
            _ => &mut self.others,
        }
    }

    /// The next writes in the backend's order, which can be one transfer; none if enough are under way.
    fn next(&mut self) -> Group {
        let most = if self.reads + self.others > 0 { TRANSFERS_BESIDE_MAX } else { TRANSFERS_MAX };
        let most_past = match (self.flushes > 0, self.reads > 0) {
            (true, true) => TRANSFERS_BESIDE_MAX + self.others,
            (true, false) => TRANSFERS_FLUSHED_MAX,
            (false, true) => TRANSFERS_BESIDE_MAX,
            (false, false) => TRANSFERS_PAST_MAX,
        };
        if self.under_way >= most.max(most_past) {
            return Group::new();
        }
        let hurried = self.under_way >= most;
        let past_first = hurried || self.past_is_next;
        let (first, second) =
            if past_first { (&mut self.past, &mut self.back) } else { (&mut self.back, &mut self.past) };
        let mut group = first.next();
        if group.is_empty() && !hurried {
            group = second.next();
        }
        self.past_is_next = !past_first;
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
        [9, 2, 3, 7, 4].into_iter().for_each(|block| background.push_back(part(4096 * block)));
        assert_eq!(next(&mut background), [2, 3, 4]);
        background.push_back(part(0));
        assert_eq!([next(&mut background), next(&mut background), next(&mut background)], [vec![7], vec![9], vec![0]]);
        assert_eq!(next(&mut background), [0; 0]);
    }

    #[test]
    fn both_kinds_take_turns_and_a_flush_hurries_what_goes_past_the_flash() {
        let mut background = Background::default();
        (0..20).for_each(|block| background.push_back(part(2 * 4096 * block)));
        (0..20).for_each(|block| background.push_past(part(2 * 4096 * (100 + block))));
        assert_eq!([0; 4].map(|_| next(&mut background)[0]), [0, 200, 2, 202]);
        let read = Part { background: false, operation: Operation::Read, ..part(0) };
        let write = Part { background: false, ..part(0) };
        [&read, &write, &write].into_iter().for_each(|part| background.started(part));
        assert_eq!(next(&mut background), [0; 0]);
        background.flush_waits();
        assert_eq!([0; 3].map(|_| next(&mut background)), [vec![204], vec![206], vec![]]);
        background.ended(&read);
        assert_eq!([0; 2].map(|_| next(&mut background)), [vec![208], vec![210]]);
        background.flush_goes();
        assert_eq!(next(&mut background), [212]);
        background.started(&read);
        assert_eq!(next(&mut background), [0; 0]);
    }

    #[test]
    fn few_are_under_way_at_a_time() {
        let mut background = Background::default();
        (0..20).for_each(|block| background.push_back(part(2 * 4096 * block)));
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
