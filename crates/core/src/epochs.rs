//! Epochs: an order of write-back that keeps the backend a state of the volume at every moment.
//!
//! Source: our own. RBD's persistent write log and LSVD (Hajkazemi et al., EuroSys 2022) give the same promise.
//!
//! After a power failure, a disk with a volatile cache has everything up to some flush. Of the writes between that
//! flush and the next, it has any. A backend has such a state at every moment if data is written back by these rules:
//!
//! - A flush ends an epoch, and so does a write that is durable before its answer. Otherwise it ends some seconds after
//!   its first change. A change belongs to the epoch in which it was planned.
//! - A restart ends an epoch, because clients take for durable what they find then.
//! - A block is written back in the version that it had at the end of the epoch. A later epoch does not replace it.
//! - Nothing of an epoch reaches the backend before everything of the epochs before it is durable there.
//!
//! An epoch may end earlier: that only adds order. Two epochs are joined only if they reach the backend as a whole, by
//! way of a [journal](crate::journal).
//!
//! This is the list of the epochs that the backend lacks. Epochs are intervals of places in a log, from the end of one
//! to the end of the next. So they need no lists of blocks.

use std::collections::VecDeque;

use crate::format::Place;

/// An epoch that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The place in the log where it ends.
    pub end: Place,
    /// The time of its first change.
    pub begun_us: u64,
    /// The time when it ended, in microseconds since 1970; 0 if that is unknown.
    pub ended_unix_us: u64,
    /// The number of flushes of the backend that make its changes past the log durable.
    pub flushes: u64,
}

/// A broken order: the flash lost a version of a block, so the backend is no state of the volume.
///
/// It is one again once it has a newer version of the block, and everything before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// The time of the loss, in microseconds since 1970; 0 if that is unknown.
    pub since_unix_us: u64,
    /// The first lost block; `None` if an earlier run lost it.
    pub block: Option<u32>,
    /// The end of the newer versions, as far as there are any.
    until: Place,
    /// True if a lost block has no newer version.
    lacks: bool,
}

/// The epochs that the backend lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// Those that have ended, oldest first.
    ended: VecDeque<Epoch>,
    /// The time of the first change since the end of the last one.
    changed_us: Option<u64>,
    /// The end of the last epoch that the backend has.
    done: Place,
    /// The time of that end.
    done_unix_us: Option<u64>,
    /// The end of the last epoch.
    last: Place,
    /// The order of dirty data is known from this place on. Until the backend has everything up to it, the backend is
    /// a mixture.
    from: Place,
    broken: Option<Break>,
}

/// The state that the backend has without its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// A mixture of old and new blocks: some of the data that was dirty before its order was known is missing. Or the
    /// order is [broken](Break).
    Mixed,
    /// The volume at a moment in microseconds since 1970; `None` if the moment is unknown.
    Of(Option<u64>),
}

impl Epochs {
    /// Returns the epochs that a recovery found, whose records count `from` a place on. The backend has all up to the
    /// place `done`, which has its time since 1970.
    pub fn found(from: Place, done: (Place, u64), ended: impl IntoIterator<Item = Epoch>) -> Epochs {
        let (done, unix_us) = done;
        let ended: VecDeque<Epoch> = ended.into_iter().filter(|epoch| epoch.end > done).collect();
        let last = ended.back().map_or(done, |epoch| epoch.end);
        Epochs { ended, done, done_unix_us: (unix_us > 0).then_some(unix_us), last, from, ..Epochs::default() }
    }

    /// Returns the epochs of a log whose dirty data before a place has no known order.
    pub fn unordered(from: Place) -> Epochs {
        Epochs { from, ..Epochs::default() }
    }

    /// Returns no epochs: the backend is the volume at this moment, in microseconds since 1970; 0 if that is unknown.
    pub fn begun(unix_us: u64) -> Epochs {
        Epochs { done_unix_us: (unix_us > 0).then_some(unix_us), ..Epochs::default() }
    }

    /// Returns the state of the backend. The log begins with the unit of sequence number `first`; the time 0 is
    /// `start_unix_us` after 1970.
    pub fn backend_state(&self, first: u64, start_unix_us: u64) -> BackendState {
        if self.broken.is_some() || self.done < self.from && first <= self.from.sequence {
            return BackendState::Mixed;
        }
        // The times of changes in an earlier run are unknown.
        let changed_us = self.oldest_us().filter(|us| *us > 0);
        BackendState::Of(changed_us.map(|us| start_unix_us + us).or(self.done_unix_us))
    }

    /// Notes a change in the open epoch.
    #[inline]
    pub fn changed(&mut self, now_us: u64) {
        self.changed_us.get_or_insert(now_us);
    }

    /// Returns the time of the first change in the open epoch; `None` if there is none.
    pub fn changed_us(&self) -> Option<u64> {
        self.changed_us
    }

    /// Ends the open epoch, which has changes, at a place in the log.
    pub fn end(&mut self, end: Place, ended_unix_us: u64, flushes: u64) {
        let begun_us = self.changed_us.take().expect("an epoch without changes does not end");
        assert!(end >= self.last, "a log grows");
        self.last = end;
        self.ended.push_back(Epoch { end, begun_us, ended_unix_us, flushes });
    }

    /// Returns the end of the last epoch that has ended.
    pub fn last(&self) -> Place {
        self.last
    }

    /// Returns the oldest epoch that the backend lacks, if it has ended.
    pub fn oldest(&self) -> Option<&Epoch> {
        self.ended.front()
    }

    /// Returns the epochs that have ended and that the backend lacks, oldest first.
    pub fn ended(&self) -> impl Iterator<Item = &Epoch> {
        self.ended.iter()
    }

    /// Notes that the backend durably has everything up to a place, which is an end of an epoch.
    pub fn finish_until(&mut self, end: Place) {
        while self.ended.front().is_some_and(|epoch| epoch.end <= end) {
            self.finish_oldest();
        }
        (self.done, self.last) = (self.done.max(end), self.last.max(end));
    }

    /// Notes that the backend durably has the oldest epoch.
    pub fn finish_oldest(&mut self) {
        let Epoch { end, ended_unix_us, .. } = self.ended.pop_front().expect("an epoch was written back");
        self.done = end;
        if self.broken.is_some_and(|broken| !broken.lacks && broken.until <= end) {
            self.broken = None;
        }
        if self.broken.is_none() {
            self.done_unix_us = (ended_unix_us > 0).then_some(ended_unix_us);
        }
    }

    /// Notes that a flush of the backend failed, when `before` had ended. Epochs that waited for it or for later ones
    /// wait for flush number `next`.
    pub fn flush_failed(&mut self, before: u64, next: u64) {
        self.ended.iter_mut().filter(|epoch| epoch.flushes > before).for_each(|epoch| epoch.flushes = next);
    }

    /// Notes a lost version of a block, or, without a block, that an earlier run lost one. Newer versions end at
    /// `until`.
    pub fn break_order(&mut self, block: Option<u32>, since_unix_us: u64, until: Place) {
        let broken = self.broken.get_or_insert(Break { since_unix_us, block, until, lacks: false });
        broken.until = broken.until.max(until);
    }

    /// Notes whether a lost block still lacks a newer version. Without a break, that has no effect.
    pub fn set_lacking(&mut self, lacks: bool) {
        if let Some(broken) = &mut self.broken {
            broken.lacks = lacks;
        }
    }

    /// Returns the break of the order, if the backend is no state of the volume.
    pub fn broken(&self) -> Option<&Break> {
        self.broken.as_ref()
    }

    /// True if the backend has all epochs that have ended. Then changes of the open one may reach it.
    #[inline]
    pub fn all_done(&self) -> bool {
        self.ended.is_empty()
    }

    /// Returns the place in the log up to which the backend has everything.
    pub fn done(&self) -> Place {
        self.done
    }

    /// True if the order is broken, and becomes good again when the backend has everything.
    pub fn heals(&self) -> bool {
        self.broken.is_some_and(|broken| !broken.lacks)
    }

    /// Returns the end of the last epoch that the backend has, in microseconds since 1970; `None` before the first. It
    /// stays the same while the order is broken.
    pub fn done_unix_us(&self) -> Option<u64> {
        self.done_unix_us
    }

    /// Returns the number of epochs that have ended and that the backend lacks.
    pub fn unfinished(&self) -> usize {
        self.ended.len()
    }

    /// Returns the time of the oldest change that the backend may lack.
    fn oldest_us(&self) -> Option<u64> {
        self.ended.front().map(|epoch| epoch.begun_us).or(self.changed_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(page: u32) -> Place {
        Place { sequence: 1, page }
    }

    #[test]
    fn without_epochs_the_backend_is_the_volume_at_its_start() {
        let mut epochs = Epochs::begun(7_000);
        assert_eq!(epochs.backend_state(1, 7_000), BackendState::Of(Some(7_000)));
        // Changes at the start may be those of an earlier run.
        epochs.changed(0);
        epochs.end(place(3), 9_000, 0);
        assert_eq!(epochs.backend_state(1, 7_000), BackendState::Of(Some(7_000)));
        assert_eq!(Epochs::begun(0).backend_state(1, 0), BackendState::Of(None));
    }

    #[test]
    fn epochs_end_and_are_written_back_in_turn() {
        let mut epochs = Epochs::default();
        assert!(epochs.all_done() && epochs.oldest_us().is_none());
        for (page, now_us) in [(3, 10), (7, 20)] {
            epochs.changed(now_us);
            epochs.changed(now_us + 5);
            epochs.end(place(page), now_us + 6, 0);
        }
        assert_eq!((epochs.last(), epochs.oldest_us(), epochs.unfinished()), (place(7), Some(10), 2));
        assert_eq!(epochs.oldest().map(|epoch| epoch.end), Some(place(3)));
        epochs.finish_oldest();
        assert_eq!((epochs.done(), epochs.done_unix_us(), epochs.all_done()), (place(3), Some(16), false));
        epochs.finish_oldest();
        assert!(epochs.all_done() && epochs.oldest_us().is_none());
        assert_eq!((epochs.done(), epochs.last()), (place(7), place(7)));
        epochs.changed(30);
        epochs.end(place(9), 36, 0);
        epochs.finish_until(place(8));
        assert_eq!((epochs.done(), epochs.ended().count()), (place(8), 1));
        epochs.finish_until(place(9));
        assert_eq!((epochs.done(), epochs.done_unix_us(), epochs.all_done()), (place(9), Some(36), true));
    }

    #[test]
    fn a_recovery_leaves_out_what_the_backend_has() {
        let epoch = |page| Epoch { end: place(page), begun_us: 0, ended_unix_us: 0, flushes: 0 };
        let mut epochs = Epochs::found(place(0), (place(4), 7), [2, 4, 6].map(epoch));
        assert_eq!((epochs.unfinished(), epochs.done(), epochs.last()), (1, place(4), place(6)));
        assert_eq!(epochs.done_unix_us(), Some(7));
        epochs.finish_oldest();
        assert_eq!(epochs.done_unix_us(), None, "the time of its end is unknown");
        assert_eq!(Epochs::found(place(0), (place(4), 0), []).last(), place(4));
    }

    #[test]
    fn the_backend_is_as_old_as_the_oldest_change_that_it_lacks() {
        let mut epochs = Epochs::unordered(place(5));
        epochs.changed(0);
        epochs.end(place(6), 1_010, 0);
        assert_eq!(epochs.backend_state(1, 1_000), BackendState::Mixed);
        assert_eq!(epochs.backend_state(2, 1_000), BackendState::Of(None), "the log has no unit of that time");
        epochs.changed(30);
        epochs.finish_oldest();
        assert_eq!(epochs.backend_state(1, 1_000), BackendState::Of(Some(1_030)));
        epochs.end(place(8), 1_050, 0);
        epochs.changed(60);
        assert_eq!(epochs.backend_state(1, 1_000), BackendState::Of(Some(1_030)));
        epochs.finish_oldest();
        assert_eq!(epochs.backend_state(1, 1_000), BackendState::Of(Some(1_060)));
        // After a restart, the moment is the end of the last epoch that the log records as done.
        let ended = Epoch { end: place(9), begun_us: 0, ended_unix_us: 0, flushes: 0 };
        let found = Epochs::found(place(5), (place(8), 1_050), [ended]);
        assert_eq!(found.backend_state(1, 2_000), BackendState::Of(Some(1_050)));
    }

    #[test]
    fn a_broken_order_heals_with_newer_versions_of_all_lost_blocks() {
        let epoch = |page| Epoch { end: place(page), begun_us: 0, ended_unix_us: u64::from(page), flushes: 0 };
        let mut epochs = Epochs::found(place(0), (Place::default(), 0), [2, 4, 6, 8].map(epoch));
        epochs.finish_oldest();
        epochs.break_order(Some(7), 100, place(6));
        epochs.break_order(Some(8), 200, place(5));
        let since = |epochs: &Epochs| epochs.broken().map(|broken| (broken.since_unix_us, broken.block));
        epochs.finish_oldest();
        assert_eq!((since(&epochs), epochs.done_unix_us()), (Some((100, Some(7))), Some(2)));
        epochs.set_lacking(true);
        epochs.finish_oldest();
        assert_eq!((since(&epochs), epochs.done_unix_us()), (Some((100, Some(7))), Some(2)));
        epochs.set_lacking(false);
        epochs.finish_oldest();
        assert_eq!((since(&epochs), epochs.done_unix_us()), (None, Some(8)));
    }

    #[test]
    fn epochs_wait_for_another_flush_after_one_that_failed() {
        let epoch = |flushes| Epoch { end: place(flushes as u32), begun_us: 0, ended_unix_us: 0, flushes };
        let mut epochs = Epochs::found(place(0), (Place::default(), 0), [1, 2, 3].map(epoch));
        epochs.flush_failed(1, 4);
        let flushes = [(); 3].map(|()| {
            let oldest = *epochs.oldest().unwrap();
            epochs.finish_oldest();
            oldest.flushes
        });
        assert_eq!(flushes, [1, 4, 4]);
    }
}
