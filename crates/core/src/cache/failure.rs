//! What the cache does when steps fail: nothing is served that may be wrong, and what was lost is remembered as lost.

use super::Cache;
use crate::step::Frame;

impl Cache {
    /// The content that `block` was to have in `frame` never came: a step that fills it failed.
    pub fn frame_failed(&mut self, block: u32, frame: Frame) {
        if self.read_buffer.peek(block) == Some(frame) {
            self.forget_read(block);
        }
        if self.write_buffer.get(block) == Some(frame) {
            self.write_buffer.remove(block);
            self.frames.release(frame);
        }
        if let Some(slot) = self.log.find(block)
            && self.log.in_memory(slot) == Some(frame)
            && !self.log.is_dirty(slot)
        {
            self.log.drop_slot(block, slot);
            self.policy.remove(block);
        }
    }

    /// The data of a record never reached its slot. If it was the newest of a dirty block, the block is lost.
    pub fn record_failed(&mut self, block: u32, slot: u32) {
        if self.log.find(block) != Some(slot) {
            return;
        }
        let dirty = self.log.is_dirty(slot);
        self.log.drop_slot(block, slot);
        self.policy.remove(block);
        if dirty {
            self.lost.insert(block, 0);
        }
    }

    /// A dirty block could not be read when it was to be copied forward to `slot`; a record that says so is written in its place.
    pub fn copy_lost(&mut self, block: u32, slot: u32) {
        if self.log.find(block) == Some(slot) {
            self.log.drop_slot(block, slot);
            self.policy.remove(block);
            let sequences = self.log.sequences();
            let unit = slot / self.log.geometry().unit_pages;
            let said = sequences.into_iter().find(|&sequence| self.log.geometry().unit_of(sequence) == unit);
            self.lost.insert(block, said.unwrap_or(0));
        }
    }

    /// Data that was acknowledged could not be written to the backend.
    pub fn backend_write_failed(&mut self, block: u32) {
        self.forget_read(block);
        if self.log.find(block).is_none() && self.write_buffer.get(block).is_none() {
            self.lost.insert(block, 0);
        }
    }

    /// The flash device can no longer be written: from now on the cache only reads.
    ///
    /// Writing on, to the backend alone, could not be made safe: what the device still holds would be taken for newer at the next start.
    pub fn flash_failed(&mut self) {
        self.flash_failed = true;
    }

    /// Whether the flash device can no longer be written.
    pub fn has_flash_failed(&self) -> bool {
        self.flash_failed
    }
}
