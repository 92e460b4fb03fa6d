//! Running without flash, and its removal.

use super::{LogCache, Mode};

impl LogCache {
    /// Runs without flash. Reads stay in the read buffer. Writes stay in the write buffer until they are evicted or
    /// flushed, and then go to the backend. A block that the backend does not accept is lost, and flushes fail until it
    /// is rewritten.
    pub fn do_without_flash(&mut self) {
        (self.admitting, self.has_flash) = (false, false);
    }

    /// Prepares the removal of the flash: reads are not admitted, and the cleaner writes back all dirty blocks. Writes
    /// of dirty blocks still go to the flash. Other writes go there at half the write-back rate, so clients only wait
    /// for the backend if they write faster.
    pub fn stop_admitting(&mut self) {
        self.admitting = false;
    }

    /// Switches to write-around: writes bypass the flash if possible.
    pub fn write_around(&mut self) {
        self.config.mode = Mode::WriteAround;
    }

    /// True if the flash is being removed.
    pub(super) fn is_leaving(&self) -> bool {
        self.has_flash && !self.admitting
    }

    /// Cancels the removal of the flash: reverts [`stop_admitting`](Self::stop_admitting), with the earlier write mode.
    pub fn admit_again(&mut self, mode: Mode) {
        self.admitting = true;
        self.config.mode = mode;
    }
}
