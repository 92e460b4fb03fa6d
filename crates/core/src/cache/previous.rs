//! The previous copies of blocks, which become valid again if their successors fail.

use std::collections::{HashMap, HashSet};

use crate::layout::containers::{Log, Segment};
use crate::step::LogRecord;

/// Maximum number of remembered copies that were written back before old ones are forgotten.
const WRITTEN_BACK_MAX: usize = 4096;

/// The previous copies whose state differs from that in the records.
#[derive(Debug, Default)]
pub(super) struct Previous {
    /// Failed copies that were not the newest, by block and slot, with the slot of their dirty predecessor.
    failed: HashMap<(u32, u32), Option<u32>>,
    /// Dirty copies that were written back after plans had replaced them, by block, slot and sequence number of the
    /// unit. If their replacement fails, the backend's data is valid.
    written_back: HashSet<(u32, u32, u64)>,
}

impl Previous {
    /// Returns the slot of the block's previous copy, and true if that is dirty. Copies that failed are skipped.
    pub fn before(&self, record: &LogRecord, sequence: u64, log: &Log) -> Option<(u32, bool)> {
        let (old, is_dirty) = match record.old {
            Some((old, true)) => {
                self.failed.get(&(record.block, old)).map_or(record.old, |before| Some(((*before)?, true)))?
            }
            old => old?,
        };
        let written_back = (record.block, old, log.sequence_before(old, sequence));
        Some((old, is_dirty && !self.written_back.contains(&written_back)))
    }

    /// Records a copy that failed and was not the newest, with its previous one.
    pub fn fail(&mut self, record: &LogRecord, old: Option<(u32, bool)>) {
        self.failed.insert((record.block, record.slot), only_dirty(old));
    }

    /// Records a copy whose content is there.
    pub fn came(&mut self, block: u32, slot: u32) {
        self.failed.remove(&(block, slot));
    }

    /// Records copies in the unit of `sequence` that were written back and had been replaced by plans, while their
    /// replacements are not durable.
    pub fn note_written_back(&mut self, sequence: u64, written_back: &[(u32, u32)], log: &Log) {
        for &(block, slot) in written_back {
            let newest = log.find(block);
            if newest.is_some_and(|newest| newest != slot && !log.is_durable(newest)) {
                self.written_back.insert((block, slot, sequence));
            }
        }
        let (units, head) = (u64::from(log.geometry().log_units()), *log.sequences().end());
        if self.written_back.len() > WRITTEN_BACK_MAX {
            self.written_back.retain(|(_, _, sequence)| sequence + units > head);
        }
    }

    /// Forgets the copies that a written segment replaces.
    pub fn appended(&mut self, segment: &Segment, log: &Log) {
        if self.written_back.is_empty() {
            return;
        }
        for (record, old) in segment.records.iter().filter_map(|record| Some((record, record.old?.0))) {
            self.written_back.remove(&(record.block, old, log.sequence_before(old, segment.sequence)));
        }
    }
}

/// Returns the slot of a dirty place.
pub(super) fn only_dirty(place: Option<(u32, bool)>) -> Option<u32> {
    place.and_then(|(slot, dirty)| dirty.then_some(slot))
}
