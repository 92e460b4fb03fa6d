//! Groups of epochs that are written back together.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;

use super::LogCache;
use crate::epochs::Epoch;
use crate::format::Place;
use crate::journal::{Head, blocks_max};

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

impl LogCache {
    /// Returns the maximum number of blocks of a group, if there is a journal.
    pub(super) fn journal_blocks(&self) -> Option<usize> {
        self.config.journal.map(|journal| blocks_max(journal.pages))
    }

    /// Returns the identity of the next group, which ends at a place in the log, if there is a journal.
    pub(super) fn next_head(&self, end: Place, ended_unix_us: u64) -> Option<Head> {
        let last = self.config.journal?.last;
        // A flash that failed may lose the rest of the log, and a start would reuse its places.
        let end = if self.flash_failed { end.min(self.log.flushed()) } else { end };
        Some(Head { number: last.number + 1, end, ended_unix_us, ..last })
    }

    /// Returns the next group: the oldest epoch, and as many others as the journal has room for.
    pub(super) fn next_group(&mut self, oldest: Epoch) -> Group {
        let most = self.journal_blocks();
        let flushed = self.unflushed.ended();
        let epochs = &self.in_order.as_ref().expect("data is written back in order").epochs;
        let may_join = |epoch: &&Epoch| most.is_some() && epoch.flushes <= flushed;
        let ended: Vec<Epoch> =
            [oldest].into_iter().chain(epochs.ended().skip(1).take_while(may_join).copied()).collect();
        let (done, last) = (epochs.done(), ended.last().map_or(oldest, |last| *last));
        let mut versions = self.log.versions(done, last.end);
        if self.flash_failed {
            versions.retain(|&(_, slot)| self.log.is_durable(slot));
        }
        let mut distinct: HashSet<u32, FxBuildHasher> = HashSet::default();
        let (mut joined, mut before_end, mut rest) = (oldest, 0, &versions[..]);
        for epoch in &ended {
            let count = rest.iter().take_while(|(_, slot)| self.log.is_before(*slot, epoch.end)).count();
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
        let head = self.next_head(end, ended_unix_us).filter(|_| end > oldest.end && !blocks.is_empty());
        let phase = if head.is_some() { Phase::Journal } else { Phase::Place };
        Group { phase, end, head, blocks, absorbed }
    }
}
