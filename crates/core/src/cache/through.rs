//! Blocks that are written through while the log has a dirty copy of them.
//!
//! What is written there takes the place of the dirty copy, dirty itself: no crash may bring the older one back. It goes to the backend too, before it
//! is answered, and is clean from when it is written to flash, if the backend has made it durable by then: see [`LogCache::is_through`].

use std::collections::BTreeMap;

use super::LogCache;
use crate::step::{Cause, Frame, LogRecord, Segment, Step};

/// No slot.
const NONE: u32 = u32::MAX;

/// What is on its way to flash and to the backend of a block.
#[derive(Clone, Copy, Debug)]
struct OnItsWay {
    /// Where the log has it.
    slot: u32,
    /// Steps that write it to the backend and have not ended.
    unfinished: u32,
    /// One of them failed.
    refused: bool,
}

/// Blocks whose newest copy waits in memory for the flash and goes to the backend as well.
#[derive(Debug, Default)]
pub(super) struct Through(BTreeMap<u32, OnItsWay>);

impl Through {
    /// A dirty copy stays dirty until it is written back.
    pub fn stays(&mut self, block: u32) {
        match self.0.get_mut(&block) {
            Some(OnItsWay { unfinished: 0, .. }) => drop(self.0.remove(&block)),
            Some(on_its_way) => on_its_way.slot = NONE,
            None => {}
        }
    }

    /// A flush of the backend failed: what it was to make durable may be gone, and no later one tells.
    pub fn doubt_all(&mut self) {
        self.0.values_mut().for_each(|on_its_way| on_its_way.refused = true);
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A step that writes a block to the backend has ended.
    fn ended(&mut self, block: u32, ok: bool) {
        if let Some(on_its_way) = self.0.get_mut(&block) {
            on_its_way.unfinished -= 1;
            on_its_way.refused |= !ok;
            if on_its_way.unfinished == 0 && on_its_way.slot == NONE {
                self.0.remove(&block);
            }
        }
    }
}

impl LogCache {
    /// Plans the new dirty copy of a block, after a step that writes the same to the backend.
    pub(super) fn add_through(&mut self, block: u32, frame: Frame, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        self.lost.remove(&block);
        self.log_add(block, frame, true, Cause::Client, steps);
        self.log.need_backend_flush();
        let slot = self.log.find(block).unwrap_or(NONE);
        // What was refused before stands for no later one, unless that is on its way with it.
        let before = self.through.0.get(&block).filter(|before| before.unfinished > 0);
        let (unfinished, refused) = before.map_or((1, false), |before| (before.unfinished + 1, before.refused));
        self.through.0.insert(block, OnItsWay { slot, unfinished, refused });
    }

    /// A step that writes to the backend what the log has too has ended, or failed.
    pub(super) fn through_ended(&mut self, step: &Step, ok: bool) {
        match step {
            Step::WriteBackend { block, logged: true, .. } => self.through.ended(*block, ok),
            Step::ZeroBackend { logged, .. } => logged.iter().for_each(|block| self.through.ended(*block, ok)),
            _ => {}
        }
    }

    /// Whether a dirty record of a segment that is about to be written is clean: the backend has the same durably. From now on its copy is.
    pub(super) fn is_through(&mut self, record: &LogRecord, segment: &Segment, doubtful: bool) -> bool {
        let LogRecord { block, slot, .. } = *record;
        let Some(OnItsWay { unfinished, refused, .. }) =
            self.through.0.get(&block).copied().filter(|it| it.slot == slot)
        else {
            return false;
        };
        self.through.stays(block);
        // What the backend was flushed for before this segment has it all.
        let is_clean = unfinished == 0 && !refused && !doubtful && segment.needs_backend_flush;
        let is_newest = is_clean && self.log.is_newest(block, slot, segment.sequence);
        if is_newest {
            self.log.set_dirty(slot, false);
        }
        is_newest
    }
}
