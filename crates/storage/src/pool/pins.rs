//! Reserved RAM of logical disks: each one with a reservation has a pin of the pool's read buffer.

use std::sync::atomic::Ordering;

use flashwise_core::human;
use flashwise_core::quantity::ByteSize;
use flashwise_core::ram::read_buffer::PINS_MAX;

use super::plan::pinned;
use super::record::Shape;
use super::{LogicalDisk, Pool, PoolError, Shared};

impl Pool {
    /// Reserves RAM of the read buffer for the most recently read blocks of a logical disk, durably.
    pub fn set_pinned(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        let _one = self.control();
        let disk = self.logical(name)?;
        self.check_pin(Some(&disk), bytes)?;
        self.pin(&disk, bytes)
    }

    /// Describes the effect of [`set_pinned`](Self::set_pinned).
    pub fn plan_pinned(&self, name: &str, bytes: u64) -> Result<String, PoolError> {
        let disk = self.logical(name)?;
        self.check_pin(Some(&disk), bytes)?;
        let before = disk.logical.shape().pinned_ram_bytes;
        let size = human::bytes(bytes as f64);
        Ok(match (bytes == before, bytes) {
            (true, _) => format!("The reserved RAM of {name} stays {size}."),
            (false, 0) => format!("No RAM will be reserved for {name}."),
            (false, _) => pinned(name, bytes),
        })
    }

    /// Checks that RAM can be reserved for a logical disk; `None` is a new one.
    pub(super) fn check_pin(&self, disk: Option<&LogicalDisk>, bytes: u64) -> Result<(), PoolError> {
        if bytes == 0 {
            return Ok(());
        }
        if !bytes.is_multiple_of(4096) {
            return Err(PoolError::Pinned { found: bytes });
        }
        let all = self.logical_disks();
        let others = || all.values().filter(|other| disk.is_none_or(|disk| disk.id != other.id));
        let kept = |other: &LogicalDisk| other.logical.shape().pinned_ram_bytes;
        if others().filter(|other| kept(other) > 0).count() >= usize::from(PINS_MAX) {
            return Err(self.refuse(format!("RAM is reserved for {PINS_MAX} logical disks already, the maximum")));
        }
        let (taken, room) = (others().map(|other| kept(other)).sum::<u64>(), self.volume().read_buffer_bytes());
        if taken.saturating_add(bytes) > room {
            let [bytes, room, taken] = [bytes, room, taken].map(ByteSize::new);
            let what = format!(
                "found {bytes} of RAM to keep, expected at most the {room} of the read buffer, because {taken} are \
                 kept for others"
            );
            return Err(self.refuse(what));
        }
        Ok(())
    }

    pub(super) fn pin(&self, disk: &LogicalDisk, bytes: u64) -> Result<(), PoolError> {
        let before = disk.logical.shape().pinned_ram_bytes;
        self.shared.pin(disk, bytes);
        let changed = self.reshape_one(disk, |shape| Shape { pinned_ram_bytes: bytes, ..shape });
        if changed.is_err() {
            self.shared.pin(disk, before);
        }
        changed
    }
}

impl Shared {
    /// Reserves RAM for a logical disk. False if all pins are in use.
    pub(super) fn pin(&self, disk: &LogicalDisk, bytes: u64) -> bool {
        let pin = &disk.figures.cache.pin;
        if bytes == 0 {
            self.unpin(disk);
            return true;
        }
        if pin.load(Ordering::Relaxed) == 0 {
            let exports = self.exports.read();
            let is_taken =
                |number: &u8| exports.values().any(|other| other.figures.cache.pin.load(Ordering::Relaxed) == *number);
            let Some(free) = (1..=PINS_MAX).find(|number| !is_taken(number)) else { return false };
            drop(exports);
            pin.store(free, Ordering::Relaxed);
        }
        self.volume().pin_ram(pin.load(Ordering::Relaxed), bytes)
    }

    /// Releases the reserved RAM of a logical disk.
    pub(super) fn unpin(&self, disk: &LogicalDisk) {
        let pin = disk.figures.cache.pin.swap(0, Ordering::Relaxed);
        if pin > 0 {
            self.volume().pin_ram(pin, 0);
        }
    }
}
