//! What the cache does when steps fail: nothing is served that may be wrong, and what was lost is remembered as lost.

use super::Cache;
use crate::format::Kind as RecordKind;
use crate::step::{Frame, LogRecord};

impl Cache {
    /// The content that `block` was to have in `frame` never came: a step that fills it failed.
    pub fn frame_failed(&mut self, block: u32, frame: Frame) {
        if self.read_buffer.peek(block) == Some(frame) {
            self.forget_read(block);
        }
        if self.write_buffer.get(block) == Some(frame) {
            self.write_buffer.remove(block);
            self.frames.release(frame);
            if self.backend_lacks.remove(&block) {
                self.lost.entry(block).or_insert(0);
            }
        }
        if let Some(slot) = self.log.find(block)
            && self.log.in_memory(slot) == Some(frame)
        {
            if self.log.is_dirty(slot) {
                // To be copied forward, and read by a client before: it is listed under the slot that it moves to.
                self.unreadable.insert(block, slot);
            } else {
                self.log.drop_slot(block, slot);
                self.log.policy_mut().remove(block);
            }
        }
    }

    /// The segment with `record` could not be written. What was copied forward is where it was; a dirty block is lost.
    pub fn record_failed(&mut self, record: &LogRecord, sequence: u64) {
        let LogRecord { block, slot, .. } = *record;
        let newest = self.log.is_newest(block, slot, sequence);
        let dirty = newest && self.log.is_dirty(slot);
        self.log.vacate(block, slot, sequence);
        if !newest {
            return;
        }
        self.log.policy_mut().remove(block);
        // The flash failed, so that its old unit is not reset either.
        let back =
            record.copied && record.old.is_some_and(|(old, _)| dirty && self.log.bring_back(block, old, true, true));
        if dirty && !back {
            self.lost.insert(block, 0);
        }
    }

    /// The data of `record` never came: it could not be read. Returns what is recorded in its place in the unit of `sequence`.
    ///
    /// No acknowledged write is in such data: a write into a frame whose old content did not come fails.
    pub fn data_missing(&mut self, record: &LogRecord, sequence: u64) -> RecordKind {
        let LogRecord { kind, block, slot, old, copied, .. } = *record;
        let current = self.log.is_newest(block, slot, sequence);
        self.log.vacate(block, slot, sequence);
        if current {
            self.log.policy_mut().remove(block);
        }
        match old {
            _ if kind == RecordKind::Clean => RecordKind::Void,
            Some((old, dirty)) if current && !copied && self.log.bring_back(block, old, dirty, false) => {
                RecordKind::Void
            }
            // Without the write that failed, the backend has it, unless one before it failed there.
            None | Some((_, false)) if !(current && self.backend_lacks.remove(&block)) => RecordKind::Forget,
            _ => {
                if current {
                    self.lost.insert(block, sequence);
                }
                RecordKind::Lost
            }
        }
    }

    /// The backend may not hold what a clean `record` says that it holds: from now on it is dirty.
    pub fn distrust(&mut self, record: &LogRecord, sequence: u64) {
        if self.log.is_newest(record.block, record.slot, sequence) {
            self.log.set_dirty(record.slot, true);
            (self.clean_from, self.pace.clean_until) = (0, 0);
        }
    }

    /// A flush of the backend failed: what it was to make durable waits for the next.
    pub fn backend_flush_failed(&mut self) {
        self.backend_unflushed = true;
        self.log.need_backend_flush();
    }

    /// A dirty block could not be read from its slot on flash, which may be for now or for good; or could be again.
    pub fn set_unreadable(&mut self, block: u32, slot: u32, unreadable: bool) {
        if unreadable {
            self.unreadable.insert(block, slot);
        } else if !self.unreadable.is_empty() {
            self.unreadable.remove(&block);
        }
    }

    /// What a block should hold in memory never came. If it waits there for the flash, it cannot be read before it is written anew.
    pub fn memory_unreadable(&mut self, block: u32) {
        if let Some(slot) = self.log.find(block)
            && self.log.is_dirty(slot)
        {
            self.unreadable.insert(block, slot);
        }
    }

    /// The blocks whose only copy was lost, or cannot be read, in order.
    pub fn lost_blocks(&self) -> Vec<u32> {
        let is_still =
            |(block, slot): &(&u32, &u32)| self.log.find(**block) == Some(**slot) && self.log.is_dirty(**slot);
        let unreadable = self.unreadable.iter().filter(is_still).map(|(block, _)| block);
        let mut lost: Vec<u32> = self.lost.keys().chain(unreadable).copied().collect();
        lost.retain(|&block| self.write_buffer.get(block).is_none());
        lost.sort_unstable();
        lost
    }

    /// Data that was acknowledged could not be written to the backend.
    pub fn backend_write_failed(&mut self, block: u32) {
        self.forget_read(block);
        // A clean copy that was planned since is one of the same data, or less; a later write may still make it good.
        let is_newer = self.log.find(block).is_some_and(|slot| self.log.is_dirty(slot));
        if !is_newer && self.write_buffer.get(block).is_none() {
            self.lost.entry(block).or_insert(0);
        } else {
            self.backend_lacks.insert(block);
        }
    }

    /// A block was written to the backend, whole.
    pub fn backend_written(&mut self, block: u32) {
        if !self.backend_lacks.is_empty() {
            self.backend_lacks.remove(&block);
        }
        if !self.lost.is_empty() && self.lost.get(&block) == Some(&0) {
            self.lost.remove(&block);
        }
    }

    /// The flash device can no longer be written: from now on the cache only reads.
    ///
    /// Writing on, to the backend alone, could not be made safe: what the device still holds would be taken for newer at the next start.
    pub fn flash_failed(&mut self) {
        self.flash_failed = true;
    }

    /// Whether no block's newest data is only on flash, or lost: a flash that failed can be given up.
    pub fn can_give_up_flash(&self) -> bool {
        let nothing_dirty = self.log.dirty_blocks() == 0 || self.durable_dirty_blocks() == 0;
        nothing_dirty && self.lost_blocks().is_empty()
    }

    /// Whether the flash device can no longer be written.
    pub fn has_flash_failed(&self) -> bool {
        self.flash_failed
    }
}
