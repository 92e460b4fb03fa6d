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

use super::clients::BLOCK;
use super::{Answered, Asked, Client, Engine, Layout, Output, Part, Paused};
use crate::request::{Done, Error, Operation, Request};

/// The number of unreadable blocks that are read again per call.
const READ_AGAIN_MAX: usize = 8;

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
    postponed: Vec<Part>,
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
    /// earlier; no other call returns them. If the cache must be recovered, they are [handed back](Output::held)
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

    /// Takes the failed requests to hand back, in order.
    fn hand_back(&mut self) -> impl Iterator<Item = (Request, Done)> {
        self.held.sort_by_key(|(number, ..)| *number);
        self.held.drain(..).map(|(_, request, done)| (request, done))
    }
}

/// A layout whose cache can be recovered from the flash, as after a crash of the process.
pub trait Recovers: Layout {
    /// True if the flash of an engine is no longer written.
    fn is_frozen(engine: &Engine<Self>) -> bool;

    /// Repeats the acknowledged changes that `before` has not made.
    fn make_again(engine: &mut Engine<Self>, before: &mut Engine<Self>);
}

impl<L: Recovers> Engine<L> {
    /// Continues as `next`, whose cache was recovered after this engine [stopped](Recovery::stopped) and all its
    /// transfers ended. Then requests can start again.
    pub fn continue_as(&mut self, mut next: Engine<L>) {
        if L::is_frozen(&next) {
            next.recovery.flash = self.recovery.flash;
            next.recovery.fail_flash(self.settings.holds_failed);
        }
        (next.faults, next.requests) = (self.faults, self.requests);
        L::make_again(&mut next, self);
        *self = next;
    }
}

impl<L: Layout> Engine<L> {
    /// Returns the state of the engine after failures.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the state of the engine after failures, to change it.
    pub fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    /// Starts a request, or holds or refuses it if the engine has stopped.
    pub(crate) fn admit(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        match self.recovery.course {
            Course::Works => L::admit(self, request, done, asked, now_us),
            Course::Stopped(_) => self.recovery.held.push((asked.number, request, done)),
            Course::Waits(_) | Course::GivenUp(_) => {
                let started_us = now_us.saturating_sub(asked.waited_us);
                self.answered.push(Answered { operation: request.operation, started_us, failed: true });
                self.answers.push((done, Err(Error::Io)));
            }
        }
    }

    /// Records the failure of a step.
    pub(super) fn step_failed(&mut self, step: &L::Step) {
        match L::meaning(step) {
            Meaning::Local => {}
            Meaning::FlashFailed => self.flash_fails(),
            Meaning::Stops(disk) => self.recovery.stop(disk, self.settings.holds_failed),
        }
    }

    /// Stops writes to the flash, and waiting for reads of it.
    pub(crate) fn flash_fails(&mut self) {
        self.recovery.fail_flash(self.settings.holds_failed);
        self.read_again();
    }

    /// Answers a request whose steps have ended, unless it restarts or is held.
    pub(super) fn conclude(&mut self, mut client: Client) {
        L::concludes(self, &mut client);
        let Asked { number, again, .. } = client.asked;
        if client.error.is_some() {
            let held = match self.recovery.course {
                Course::Stopped(_) | Course::Waits(_) if L::is_repeatable(self, &client) => L::repeat(self, client),
                _ if self.recovery.holds_with_flash() && !again => client.repeat(),
                _ => return self.begin_anew_or_answer(client),
            };
            self.recovery.held.extend(held.into_iter().map(|(request, done)| (number, request, done)));
            return;
        }
        self.begin_anew_or_answer(client);
    }

    fn begin_anew_or_answer(&mut self, client: Client) {
        let Asked { number, again, .. } = client.asked;
        if client.reads_anew && !again {
            self.read_anew.push(client);
            return;
        }
        let until_us = client.until_us;
        let (answered, done, result, request) = client.answer();
        if again {
            return L::own_ended(self, number, request, result.is_ok());
        }
        if result.is_ok() && request.changes() {
            L::change_answered(self, number, request);
        }
        if until_us > self.now_us && result.is_ok() {
            self.paused.push(Paused { until_us, answered, done, result });
            return;
        }
        self.answered.push(answered);
        self.answers.push((done, result));
    }

    /// Hands failed requests back, and ends postponed reads if the engine has stopped: nothing is moved any more.
    pub(super) fn prepare_output(&mut self, output: &mut Output) {
        if !self.recovery.works() && !self.recovery.postponed.is_empty() {
            let postponed = std::mem::take(&mut self.recovery.postponed);
            postponed.into_iter().for_each(|part| self.finish(part.step, Err(Error::Io)));
            self.run_ready();
        }
        L::before_output(self);
        if !self.recovery.held.is_empty() && L::may_hand_back(self) {
            output.held.extend(self.recovery.hand_back());
        }
    }

    /// Postpones a failed read. Returns false if its retries are used up.
    pub(crate) fn postpone(&mut self, part: Part) -> bool {
        let retries = self.settings.retries;
        let running = self.step(part.step);
        running.retries = retries;
        if running.patience == 0 {
            return false;
        }
        running.patience -= 1;
        self.recovery.postponed.push(part);
        true
    }

    /// True if reads are postponed.
    pub fn has_postponed(&self) -> bool {
        !self.recovery.postponed.is_empty()
    }

    /// Resets the retries of postponed reads.
    pub fn be_patient(&mut self) {
        let patience = self.settings.patience;
        for id in self.recovery.postponed.iter().map(|part| part.step).collect::<Vec<_>>() {
            self.step(id).patience = patience;
        }
    }

    /// Retries the postponed reads.
    pub fn read_again(&mut self) {
        std::mem::take(&mut self.recovery.postponed).into_iter().for_each(|part| L::read_again(self, part));
    }

    /// Reads some unreadable dirty blocks again. Readable ones are no longer listed.
    pub fn read_unreadable(&mut self, now_us: u64) {
        if !self.recovery.works() {
            return;
        }
        let (mut blocks, from) = (L::unreadable(self), self.recovery.reread);
        blocks.sort_unstable_by_key(|block| (*block < from, *block));
        for block in blocks.into_iter().take(READ_AGAIN_MAX) {
            self.recovery.reread = block + 1;
            let (offset, length) = (block * BLOCK, BLOCK);
            let (operation, data, caching) = (Operation::Cache, Vec::new(), Default::default());
            self.begin_own(Request { operation, offset, length, force_unit_access: false, data, caching }, now_us);
        }
    }
}
