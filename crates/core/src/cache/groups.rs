//! Groups of epochs that are written back together, and the state of that.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;

use super::order_lost::LostVersions;
use crate::epochs::{Epoch, Epochs};
use crate::format::Place;
use crate::journal::{Head, Journal, blocks_max};
use crate::layout::containers::Log;

/// A group has at most this part of the log's data pages. Units become free when a group ends, as its blocks are in the
/// backend's order. Larger groups would let writers wait for all of the log.
const LOG_PART: u64 = 16;

/// A phase of the write-back of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is written to the journal.
    Journal,
    /// It is written into place.
    Place,
    /// It is marked as being in place.
    Mark,
}

/// Epochs that are written back together: the oldest one, or several by way of the journal.
#[derive(Debug)]
pub(super) struct Group {
    pub phase: Phase,
    /// The end of the last one.
    pub end: Place,
    /// The group in the journal.
    pub head: Option<Head>,
    /// The newest version of each block, as (block, slot), in the backend's order.
    pub blocks: Vec<(u32, u32)>,
    /// Older versions, which the journal makes superfluous.
    pub absorbed: Vec<(u32, u32)>,
}

/// Returns the identity of the next group of a journal, which ends at a place in the log.
pub(super) fn next_head(journal: &Journal, end: Place, ended_unix_us: u64, log_end: Option<Place>) -> Head {
    // A flash that failed may lose the rest of the log, and a start would reuse its places.
    let end = log_end.map_or(end, |log_end| end.min(log_end));
    Head { number: journal.last.number + 1, end, ended_unix_us, ..journal.last }
}

/// Returns the maximum number of blocks of several epochs in a group of this journal.
pub(super) fn group_blocks(journal: &Journal, data_pages: u64) -> usize {
    blocks_max(journal.pages).min((data_pages / LOG_PART) as usize)
}

impl Group {
    /// Returns the next group: the oldest epoch, and with a journal the next ones, up to a number of blocks. The
    /// backend has ended `flushed` flushes. `log_end` is the durable end of the log, if its flash has failed.
    pub fn next(
        (oldest, epochs): (Epoch, &Epochs),
        journal: Option<(&Journal, usize)>,
        log: &mut Log,
        flushed: u64,
        log_end: Option<Place>,
    ) -> Group {
        let most = journal.map(|(_, most)| most);
        let may_join = |epoch: &&Epoch| most.is_some() && epoch.flushes <= flushed;
        let ended: Vec<Epoch> =
            [oldest].into_iter().chain(epochs.ended().skip(1).take_while(may_join).copied()).collect();
        let (done, last) = (epochs.done(), ended.last().map_or(oldest, |last| *last));
        let mut versions = log.versions(done, last.end);
        if log_end.is_some() {
            versions.retain(|&(_, slot)| log.is_durable(slot));
        }
        let mut distinct: HashSet<u32, FxBuildHasher> = HashSet::default();
        let (mut joined, mut before_end, mut rest) = (oldest, 0, &versions[..]);
        for epoch in &ended {
            let count = rest.iter().take_while(|(_, slot)| log.is_before(*slot, epoch.end)).count();
            distinct.extend(rest[..count].iter().map(|(block, _)| *block));
            if epoch.end > oldest.end && most.is_some_and(|most| distinct.len() > most) {
                break;
            }
            rest = &rest[count..];
            (joined, before_end) = (*epoch, versions.len() - rest.len());
        }
        versions.truncate(before_end);
        distinct.clear();
        // The newest version of a block comes last.
        let (mut blocks, absorbed): (Vec<_>, Vec<_>) =
            versions.into_iter().rev().partition(|(block, _)| distinct.insert(*block));
        blocks.sort_unstable();
        let Epoch { end, ended_unix_us, .. } = joined;
        let head = journal.map(|(journal, _)| next_head(journal, end, ended_unix_us, log_end));
        let head = head.filter(|_| end > oldest.end && !blocks.is_empty());
        let phase = if head.is_some() { Phase::Journal } else { Phase::Place };
        Group { phase, end, head, blocks, absorbed }
    }
}

/// The state of ordered write-back.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    pub epochs: Epochs,
    /// Versions that the flash lost.
    pub lost: LostVersions,
    /// The epochs that are being written back.
    pub group: Option<Group>,
    /// Its versions that the current phase has not begun to write, as (block, slot), in the backend's order backwards.
    pub todo: Vec<(u32, u32)>,
    /// Its batches in progress.
    pub batches: usize,
    /// True if a part of it could not be written in this phase.
    pub failed: bool,
    /// True if the journal may have a whole group without its mark.
    pub in_journal: bool,
    /// True until all epochs that have ended are done.
    pub drains: bool,
    /// True until few enough blocks are dirty.
    pub cleans: bool,
    /// True until the epoch ends that the last run left open. Clients take what they find at a start for durable.
    pub starts: bool,
    /// True if the next epoch waits for a flush of the backend.
    pub waits_for_flush: bool,
    /// The end of the last epoch that the log records as done.
    pub said: Place,
    /// The blocks of later epochs that are done.
    pub unsaid: HashSet<u32, FxBuildHasher>,
}

impl InOrder {
    /// Ends the current phase of the group, if all of it was written. Returns the group if it is durably in place.
    pub fn end_phase(&mut self, log: &mut Log) -> Option<Group> {
        if !self.todo.is_empty() || self.batches > 0 {
            return None;
        }
        let mut group = self.group.take()?;
        let lacks_versions = group.phase != Phase::Mark && self.lost.has_unread();
        let failed = std::mem::take(&mut self.failed) || lacks_versions;
        if !failed {
            for (_, slot) in group.absorbed.drain(..) {
                log.drop_kept(slot);
            }
        }
        match (group.phase, failed) {
            // It is given up. What is missing belongs to the next one.
            (Phase::Journal | Phase::Place, true) if group.phase == Phase::Journal || group.head.is_none() => {
                log.find_all_versions();
                return None;
            }
            (Phase::Journal, false) => {
                group.phase = Phase::Place;
                self.todo.extend(group.blocks.iter().rev());
                self.lost.begin_attempt();
            }
            (Phase::Journal | Phase::Place, true) => {
                group.blocks.retain(|&(_, slot)| log.is_dirty(slot) || log.is_kept(slot));
                self.todo.extend(group.blocks.iter().rev());
                self.lost.begin_attempt();
            }
            (Phase::Place, false) if group.head.is_some() => group.phase = Phase::Mark,
            (Phase::Mark, true) => {}
            (Phase::Place | Phase::Mark, false) => return Some(group),
        }
        self.group = Some(group);
        None
    }
}
