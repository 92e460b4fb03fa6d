//! Recovery after a failure. It is the same for every layout, which states only what a failed step
//! [means](Meaning), and how its cache is [found again](Recovers).
//!
//! | failure | consequence | its requests |
//! | --- | --- | --- |
//! | of a step that the cache relies on | nothing begins until the cache is found again | are handed back |
//! | of the flash | nothing more is written to it | are handed back, until the volume stays with it |
//! | of another step | none: the cache handles it | fail |
//!
//! A failed read of the flash that would lose a block is [postponed](Engine::read_again). Unreadable blocks are
//! [read again](Engine::read_unreadable) from time to time.

use super::{Engine, FLASH, Layout, Part};
use crate::request::{Done, Request};
use crate::transfer::Operation;

/// The number of unreadable blocks that are read again per call.
const READ_AGAIN_MAX: usize = 8;

/// Failures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failed reads of the flash.
    pub flash_read_errors: u64,
    /// Blocks read from flash with a wrong checksum.
    pub flash_checksum_errors: u64,
    /// Failed writes, flushes and resets of the flash.
    pub flash_write_errors: u64,
    /// Failed reads of the backend.
    pub backend_read_errors: u64,
    /// Failed writes and flushes of the backend.
    pub backend_write_errors: u64,
}

impl Faults {
    /// Counts a failed transfer.
    pub(crate) fn count(&mut self, disk: usize, operation: Operation) {
        let counter = match (disk == FLASH, operation == Operation::Read) {
            (true, true) => &mut self.flash_read_errors,
            (true, false) => &mut self.flash_write_errors,
            (false, true) => &mut self.backend_read_errors,
            (false, false) => &mut self.backend_write_errors,
        };
        *counter += 1;
    }
}

/// The failures that an engine leaves to its successor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Legacy {
    /// All failures.
    pub faults: Faults,
    /// Failures of the backend that no client has heard of: flushes, and acknowledged writes.
    pub unreported: u64,
    /// Failed flushes of the backend.
    pub failed_flushes: u64,
}

/// The meaning of a failed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The cache handles it, or the request of the step fails.
    Local,
    /// The flash has failed.
    FlashFailed,
    /// The cache relied on the step, which changes or flushes this disk.
    Stops(usize),
}

/// The operation of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Course {
    /// It performs requests.
    #[default]
    Works,
    /// A step of this disk failed that the cache relies on, so nothing starts until the cache is recovered.
    Stopped(usize),
    /// Like [`Stopped`](Self::Stopped), with an unreadable flash. Requests fail until it can be read.
    Waits(usize),
    /// Like [`Stopped`](Self::Stopped), and the recovery failed for good. All requests fail.
    GivenUp(usize),
}

/// The state of the flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flash {
    /// It is written.
    #[default]
    Works,
    /// It is no longer written. Failed requests are handed back if it `holds` them, and answered otherwise.
    Failed { holds: bool },
}

/// The state of an engine after failures, and what waits for its recovery.
#[derive(Default)]
pub struct Recovery {
    course: Course,
    flash: Flash,
    /// Failed requests to hand back, by their numbers.
    held: Vec<(u64, Request, Done)>,
    /// Reads that are retried later.
    pub(super) postponed: Vec<Part>,
    /// The next unreadable block to retry.
    reread: u64,
}

impl Recovery {
    /// True if requests can start.
    pub(crate) fn works(&self) -> bool {
        self.course == Course::Works
    }

    /// Returns the disk whose failure stopped the engine. A stopped engine performs no requests.
    pub fn stopped(&self) -> Option<usize> {
        match self.course {
            Course::Works => None,
            Course::Stopped(disk) | Course::Waits(disk) | Course::GivenUp(disk) => Some(disk),
        }
    }

    /// True if the engine has stopped and its cache can be recovered.
    pub fn has_stopped(&self) -> bool {
        matches!(self.course, Course::Stopped(_) | Course::Waits(_))
    }

    /// True if the engine waits for the flash to become readable.
    pub fn waits(&self) -> bool {
        matches!(self.course, Course::Waits(_))
    }

    /// True if all requests fail permanently.
    pub fn is_given_up(&self) -> bool {
        matches!(self.course, Course::GivenUp(_))
    }

    /// True if the flash has failed, or cannot be used for its contents.
    pub fn has_flash_failed(&self) -> bool {
        self.is_flash_failed() || self.waits() || self.is_given_up()
    }

    /// True if every change is answered with an error, because the flash has failed.
    pub fn refuses_changes(&self) -> bool {
        self.flash == Flash::Failed { holds: false }
    }

    /// From now on, requests that fail because of the flash are answered with an error. Returns those that failed
    /// earlier; no other call returns them. If the cache must be recovered, they are [handed back](super::Output::held)
    /// afterwards.
    #[must_use]
    pub fn stop_holding(&mut self) -> Vec<(Request, Done)> {
        if self.is_flash_failed() {
            self.flash = Flash::Failed { holds: false };
        }
        if self.works() { self.hand_back().collect() } else { Vec::new() }
    }

    /// Records a failed recovery. Requests fail until the next attempt if the cause `may_pass`, otherwise permanently.
    pub fn not_found(&mut self, may_pass: bool) {
        if let Some(disk) = self.stopped() {
            self.course = if may_pass { Course::Waits(disk) } else { Course::GivenUp(disk) };
        }
    }

    /// True if the flash is no longer written.
    pub fn is_flash_failed(&self) -> bool {
        self.flash != Flash::Works
    }

    /// True if requests that fail because the flash has failed are handed back.
    pub(crate) fn holds_with_flash(&self) -> bool {
        self.flash == Flash::Failed { holds: true }
    }

    /// Records the failure of a step that the cache relies on. If `holds`, the cache can be recovered.
    pub(crate) fn stop(&mut self, disk: usize, holds: bool) {
        if self.works() {
            self.course = if holds { Course::Stopped(disk) } else { Course::GivenUp(disk) };
        }
    }

    /// The flash has failed. Failed requests are handed back if it `holds` them.
    pub fn fail_flash(&mut self, holds: bool) {
        if self.flash == Flash::Works {
            self.flash = Flash::Failed { holds };
        }
    }

    /// Continues after an engine with a recovered cache. The flash stays failed, or fails and `holds` requests.
    pub(super) fn succeed_frozen(&mut self, before: &Recovery, holds: bool) {
        self.flash = before.flash;
        self.fail_flash(holds);
    }

    /// True if requests are held until the cache is recovered.
    pub(super) fn holds(&self) -> bool {
        matches!(self.course, Course::Stopped(_))
    }

    /// Holds a failed request, to hand it back.
    pub(super) fn hold(&mut self, number: u64, requests: impl IntoIterator<Item = (Request, Done)>) {
        self.held.extend(requests.into_iter().map(|(request, done)| (number, request, done)));
    }

    /// Takes the failed requests to hand back, in order.
    pub(super) fn hand_back(&mut self) -> impl Iterator<Item = (Request, Done)> {
        self.held.sort_by_key(|(number, ..)| *number);
        self.held.drain(..).map(|(_, request, done)| (request, done))
    }

    /// Returns the blocks to read again now, of these unreadable ones.
    pub(super) fn next_unreadable(&mut self, mut blocks: Vec<u64>) -> Vec<u64> {
        let from = self.reread;
        blocks.sort_unstable_by_key(|block| (*block < from, *block));
        blocks.truncate(READ_AGAIN_MAX);
        self.reread = blocks.last().map_or(from, |last| last + 1);
        blocks
    }
}

/// A layout whose cache can be recovered from the flash, as after a crash of the process.
pub trait Recovers: Layout {
    /// True if the flash of an engine is no longer written.
    fn is_frozen(engine: &Engine<Self>) -> bool;

    /// Repeats the acknowledged changes that `before` has not made.
    fn make_again(engine: &mut Engine<Self>, before: &mut Engine<Self>);
}
