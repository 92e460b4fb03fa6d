//! Performs single steps, and handles their ends and failures.

use flashwise_core::cache::{Cache, Event};
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::order::{Bond, StepId, Use};
use flashwise_core::step::{BATCHES, CLIENTS, Frame, Step};
use smallvec::{SmallVec, smallvec};

use super::{Engine, Log, Running, State};
use crate::engine::{self, BACKEND, Bug, FLASH, JOURNAL, Part};
use crate::request::Error;
use crate::transfer::{Buffer, Operation};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Does a step between a client's bytes and a frame that nothing else uses, without entering it into the table of
    /// steps.
    #[inline]
    pub(super) fn try_at_once(&mut self, step: &Step, client: Option<u32>) -> bool {
        let Some(client) = client else { return false };
        match step {
            Step::Send { block, frame, .. }
                if !self.order.place(frame.number).is_written() && self.undecided(*block).is_none() => {}
            Step::Receive { frame, .. } | Step::Zero { frame, .. } if self.order.place(frame.number).is_idle() => {}
            _ => return false,
        }
        if !self.move_bytes(step, Some(client)) {
            self.fail_request(Some(client), Error::Io);
        }
        true
    }

    /// Returns the unfinished write of a client that goes only to the backend, if it is the last writer of a block.
    /// Until it succeeds, no client may see its content: a later read could return the old content.
    pub(super) fn undecided(&self, block: u32) -> Option<StepId> {
        let writer = self.order.blocks().writer(block)?;
        let step = &self.peek(writer).step;
        let is_undecided =
            matches!(step, Step::WriteBackend { acknowledged: false, replaces: false, logged: false, batch: None, .. });
        (is_undecided && self.settings.planted != Some(Bug::ShowsRefusedWrites)).then_some(writer)
    }

    /// Performs a step that needs no transfer on frames and a client's bytes; whether it succeeded. If not, the cache
    /// knows.
    fn move_bytes(&mut self, step: &Step, request: Option<u32>) -> bool {
        let client = request.map(|request| self.clients.get_mut(request));
        let moved = self.layout.frames.move_bytes(step, client);
        if !moved {
            self.tell_failed(&mut step.clone(), true);
        }
        moved
    }

    fn fail_request(&mut self, request: Option<u32>, error: Error) {
        if let Some(request) = request {
            let client = self.clients.get_mut(request);
            client.error = client.error.or(Some(error));
        }
    }

    /// Starts a step that waits for nothing.
    pub(super) fn perform(&mut self, id: StepId) {
        let running = self.steps.get_mut(id);
        if let Some(run) = &running.state.run {
            let part = run.read(id, &mut self.layout.frames);
            return self.hand_over_part(part);
        }
        if let Some(content) = running.state.content.take() {
            return self.read_from_memory(id, &content);
        }
        let (doomed, source) = (running.is_doomed(), running.state.source);
        if let Some(place) = source.filter(|&place| !doomed && !self.layout.frames.is_bad(place)) {
            let content = *self.layout.frames.page(place);
            return self.read_from_memory(id, &content);
        }
        let running = self.step(id);
        let (doomed, request) = (doomed || source.is_some(), running.request);
        if doomed && matches!(running.step, Step::ReadFlash { .. }) {
            if !self.falls_back(id) {
                self.finish(id, Err(Error::Io));
            }
            return;
        }
        let running = self.step(id);
        let step = std::mem::replace(&mut running.step, Step::Fail);
        let at_once = self.begin(id, &step, doomed, request);
        if self.steps.find(id).is_some() {
            self.step(id).step = step;
        }
        if let Some(ok) = at_once {
            self.finish(id, if ok { Ok(()) } else { Err(Error::Io) });
        }
    }

    /// Ends a read whose content was still in memory.
    fn read_from_memory(&mut self, id: StepId, content: &Page) {
        let (Step::ReadFlash { frame, .. } | Step::ReadBackend { frame, .. }) = self.step(id).step else {
            unreachable!("only reads get content from memory")
        };
        self.layout.frames.page_mut(frame.number).copy_from_slice(content);
        self.finish(id, Ok(()));
    }

    /// Starts a step. `Some` if it ended at once, with its success.
    fn begin(&mut self, id: StepId, step: &Step, doomed: bool, request: Option<u32>) -> Option<bool> {
        match step {
            Step::Send { .. } if self.step(id).broken.has(Bond::Sees) => {
                let request = request.expect("a request waits for its own bytes");
                self.clients.get_mut(request).reads_anew = true;
                return Some(false);
            }
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Copy { .. } => {
                return Some(self.move_bytes(step, request));
            }
            &Step::ReadFlash { slot, frame, .. } => {
                if self.step(id).state.background {
                    let part = self.background_part(id, FLASH, Operation::Read, slot, frame);
                    self.transfers.background.push_from_flash(part);
                } else {
                    self.transfer_frame(id, FLASH, Operation::Read, slot, frame);
                }
            }
            &Step::ReadBackend { block, frame } => {
                if doomed {
                    return Some(false);
                }
                self.transfer_frame(id, BACKEND, Operation::Read, block, frame);
            }
            &Step::WriteBackend { block, frame, batch, acknowledged, .. } => {
                if doomed || self.layout.frames.is_bad(frame.number) {
                    return Some(false);
                }
                if batch.is_some() || acknowledged {
                    let part = self.background_part(id, BACKEND, Operation::Write, block, frame);
                    if batch.is_some() {
                        self.transfers.background.push_back(part);
                    } else {
                        self.transfers.background.push_past(part);
                    }
                    return None;
                }
                self.transfer_frame(id, BACKEND, Operation::Write, block, frame);
            }
            &Step::ZeroBackend { block, count, may_punch_holes, .. } => {
                if doomed {
                    return Some(false);
                }
                let (offset, length) = (u64::from(block) * BLOCK, u64::from(count) * BLOCK);
                self.transfer(id, BACKEND, Operation::Zero { may_punch_holes }, offset, length, SmallVec::new());
            }
            Step::Append(segment) => {
                if doomed || self.recovery.is_flash_failed() {
                    return Some(false);
                }
                let running = self.step(id);
                let (late, doubtful) = (std::mem::take(&mut running.state.late), running.broken.has(Bond::Trusts));
                let engine::Engine { layout, cache, settings, .. } = self;
                let parts = layout.append(cache, settings, (id, segment), &late, doubtful);
                parts.into_iter().for_each(|part| self.hand_over_part(part));
            }
            Step::Witness(footer) => {
                if doomed || self.recovery.is_flash_failed() {
                    return Some(false);
                }
                let parts = self.layout.append_footer(&self.cache, &self.settings, id, footer);
                parts.into_iter().for_each(|part| self.hand_over_part(part));
            }
            &Step::ResetUnit { unit } => {
                if doomed || self.recovery.is_flash_failed() {
                    return Some(false);
                }
                if !self.settings.discard {
                    return Some(true);
                }
                let length = u64::from(self.cache.geometry().unit_pages) * BLOCK;
                self.transfer(id, FLASH, Operation::Discard, u64::from(unit) * length, length, SmallVec::new());
            }
            Step::FlushFlash { .. } => {
                if doomed || self.recovery.is_flash_failed() {
                    return Some(false);
                }
                self.transfer(id, FLASH, Operation::Sync, 0, 0, SmallVec::new());
            }
            Step::FlushBackend { .. } => {
                self.transfer(id, BACKEND, Operation::Sync, 0, 0, SmallVec::new());
            }
            Step::WriteJournal(_) | Step::FlushJournal { .. } if doomed => return Some(false),
            Step::WriteJournal(write) => match self.layout.write_journal(id, write) {
                Some(part) => self.hand_over_part(part),
                None => return Some(false),
            },
            Step::FlushJournal { .. } => self.transfer(id, JOURNAL, Operation::Sync, 0, 0, SmallVec::new()),
            Step::Destaged { .. } => return Some(!doomed),
            Step::AwaitFlushes => {
                // All steps that waited for it report the error, because earlier acknowledged data may be lost.
                let errors_before = self.step(id).state.errors_before;
                let failed = doomed || self.layout.errors != errors_before;
                // A request that is handed back reports nothing.
                if failed && self.is_flush(request) && !self.recovery.holds_with_flash() {
                    self.layout.errors_reported = self.layout.errors;
                }
                return Some(!failed);
            }
            Step::Fail => return Some(false),
            Step::Pause { .. } | Step::Reply => unreachable!("the answer is not a step of its own"),
        }
        None
    }

    /// The transfer of a block that no client waits for.
    fn background_part(&mut self, step: StepId, disk: usize, operation: Operation, block: u32, frame: Frame) -> Part {
        self.step(step).state.transfers += 1;
        let (offset, buffers) =
            (u64::from(block) * BLOCK, smallvec![self.layout.frames.buffer(operation, frame.number)]);
        let lane = self.transfers.background.lane_of(disk, offset);
        Part { buffers, background: true, lane, ..Part::new(step, disk, operation, offset, BLOCK) }
    }

    fn transfer_frame(&mut self, id: StepId, disk: usize, operation: Operation, block: u32, frame: Frame) {
        let buffer = self.layout.frames.buffer(operation, frame.number);
        self.transfer(id, disk, operation, u64::from(block) * BLOCK, BLOCK, smallvec![buffer]);
    }

    fn transfer(
        &mut self,
        step: StepId,
        disk: usize,
        operation: Operation,
        offset: u64,
        length: u64,
        buffers: SmallVec<[Buffer; 1]>,
    ) {
        self.hand_over_part(Part { buffers, ..Part::new(step, disk, operation, offset, length) });
    }

    pub(super) fn hand_over_part(&mut self, part: Part) {
        self.step(part.step).state.transfers += 1;
        self.hand_over(part);
    }

    pub(super) fn part_ended(&mut self, part: Part, result: Result<(), Error>) {
        let id = part.step;
        let running = self.steps.get_mut(id);
        if let Some(run) = &running.state.run {
            running.state.transfers -= 1;
            let client = self.clients.get_mut(running.request.expect("a client waits for a run"));
            let Log { frames, checksums, .. } = &mut self.layout;
            return match result.is_ok() && run.send(frames, checksums, client) {
                true => self.finish(id, Ok(())),
                false => self.split(id),
            };
        }
        let result = result.and_then(|()| if self.data_is_right(id) { Ok(()) } else { Err(Error::Io) });
        // The retry of a failed flush proves nothing: its data may be lost.
        if result.is_err() && self.step(id).retries > 0 && part.operation != Operation::Sync {
            self.step(id).retries -= 1;
            self.transfers.push(part);
            return;
        }
        // Nothing moves on a flash that has failed, and no unit is reset there.
        let may_wait = result.is_err() && !self.recovery.is_flash_failed() && self.step(id).patience > 0;
        if may_wait && self.moves_dirty(id) && self.postpone(part) {
            return;
        }
        let running = self.step(id);
        let state = &mut running.state;
        state.transfers -= 1;
        state.error = state.error.or(result.err());
        if state.transfers > 0 {
            return;
        }
        let result = state.error.map_or(Ok(()), Err);
        if result.is_err() && self.falls_back(id) {
            return;
        }
        self.finish(id, result);
    }

    /// Puts steps for each block in the place of a run.
    fn split(&mut self, id: StepId) {
        self.replace(id, |engine, running| {
            let (run, request) = (running.state.run.expect("the step is a run"), running.request);
            let mut steps = Vec::with_capacity(2 * run.len());
            for (slot, read, send) in run.steps() {
                let Step::Send { block, frame, .. } = send else { unreachable!("a run sends its blocks") };
                let state = || State { planned_us: running.state.planned_us, ..State::default() };
                let (read, send) = (engine.add(read, None, state()), engine.add(send, request, state()));
                engine.order.replace(id, (read, send), frame.number, block, slot);
                engine.steps.wait_for(send, std::iter::once((read, Bond::Follows)));
                steps.extend([read, send]);
            }
            engine.order.end(id, Use::KeepPages(0..0));
            engine.clients.get_mut(request.expect("a client waits for a run")).pending -= 1;
            for (dependent, bond) in running.dependents {
                steps.iter().for_each(|&step| engine.step(step).dependents.push((dependent, bond)));
                engine.step(dependent).waiting += steps.len() as u32 - 1;
            }
            steps.into_iter().step_by(2).for_each(|read| engine.steps.wait_for(read, std::iter::empty()));
        });
        self.run_ready();
    }

    /// True if a step reads a dirty block that is about to be moved, or changed in part. Without the read, the block
    /// would be lost with the reset of its unit. Then the server lists it, and logs a line. The same holds for blocks
    /// whose write-back [gives them up](Cache::gives_up_unread).
    fn moves_dirty(&mut self, id: StepId) -> bool {
        let running = self.peek(id);
        let Step::ReadFlash { block, dirty: true, .. } = running.step else { return false };
        let gives_up = self.cache.gives_up_unread();
        let moves_in = |step: &Step| match step {
            Step::Append(_) | Step::Copy { .. } => true,
            Step::WriteBackend { batch: Some(_), .. } => gives_up,
            _ => false,
        };
        let moves = running.dependents.iter().any(|&(next, _)| moves_in(&self.peek(next).step));
        if moves {
            // One line for all that are unreadable now.
            if !self.has_postponed() {
                tracing::warn!(
                    event = "block-unreadable",
                    block,
                    "the only copy of a block cannot be read from flash; it is retried before it counts as lost"
                );
            }
            self.faults.flash_read_errors += 1;
            let mut read = self.step(id).step.clone();
            self.layout.places.unplace_frames(&mut read);
            self.tell(Event::Postponed(&read));
        }
        moves
    }

    /// True if the data read from flash has its checksum.
    fn data_is_right(&mut self, id: StepId) -> bool {
        let Step::ReadFlash { slot, frame, .. } = self.step(id).step else { return true };
        if self.step(id).state.falls_back {
            return true;
        }
        let right = self.layout.frames.is_right(frame.number, self.layout.checksums[slot as usize]);
        self.faults.flash_checksum_errors += u64::from(!right);
        right
    }

    /// Where flash cannot be read and the backend has the same, the backend is read; whether that was begun.
    fn falls_back(&mut self, id: StepId) -> bool {
        let retries = self.settings.retries;
        let running = self.step(id);
        let Step::ReadFlash { block, frame, dirty: false, .. } = running.step else { return false };
        if running.state.falls_back || running.broken.has(Bond::Strands) {
            return false;
        }
        running.state.falls_back = true;
        running.state.error = None;
        running.retries = retries;
        self.faults.flash_read_errors += 1;
        self.transfer_frame(id, BACKEND, Operation::Read, block, frame);
        true
    }

    /// Handles the end of a step. Returns the result for the steps that wait for it.
    pub(super) fn step_ended(
        &mut self,
        id: StepId,
        running: &mut Running<C>,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        // The data of another flush that failed may be gone, whatever the result of this one.
        let is_doomed_flush = running.is_doomed() && matches!(running.step, Step::FlushBackend { .. });
        let result = if is_doomed_flush { Err(Error::Io) } else { result };
        let ok = result.is_ok();
        if !ok && self.settings.planted != Some(Bug::ForgetsContent) {
            self.layout.forward(&mut self.steps, running);
        }
        let mut idle: SmallVec<[u32; 4]> = SmallVec::new();
        self.end_uses(id, running, |place| idle.push(place));
        for place in idle {
            let is_free = !self.layout.enters && self.cache.is_free(self.layout.places.frame_at(place));
            self.layout.places.idle(place, is_free);
        }
        if let Some(run) = &running.state.run {
            run.steps().for_each(|(_, mut read, _)| self.succeeded(&mut read));
        } else if ok {
            self.succeeded(&mut running.step);
            // That flush was reported before this answer.
            self.layout.errors.backend += u64::from(running.state.may_be_gone);
            self.layout.failed_flushes += u64::from(running.state.may_be_gone);
        } else if self.failed(&mut running.step, running.request.is_some()) {
            // A flush that waits only for this step does not wait for its replacement.
            for &(dependent, _) in &running.dependents {
                let next = self.step(dependent);
                if matches!(next.step, Step::FlushBackend { .. }) {
                    next.broken.add(Bond::Needs);
                }
            }
        }
        self.layout.goes_on |= match running.step {
            Step::Destaged { .. } => true,
            Step::WriteBackend { .. } | Step::FlushBackend { batch: None } => self.cache.may_go_on(),
            _ => false,
        };
        if is_awaited_flush(&running.step) {
            self.transfers.background.flush_goes();
        }
        result
    }

    fn succeeded(&mut self, step: &mut Step) {
        if let Step::ReadFlash { frame, .. } | Step::ReadBackend { frame, .. } = step {
            self.layout.frames.set_bad(frame.number, false);
        }
        self.layout.places.unplace_frames(step);
        self.tell(Event::Done(step));
    }

    /// Handles the failure of a step. Returns true if a newer step [replaces](Self::hand_on) it.
    fn failed(&mut self, step: &mut Step, awaited: bool) -> bool {
        let mut missing = false;
        match step {
            Step::ReadFlash { frame, dirty, .. } => {
                // That a clean one failed was counted when the backend was read in its place.
                self.faults.flash_read_errors += u64::from(*dirty);
                self.faults.backend_read_errors += u64::from(!*dirty);
                self.layout.frames.set_bad(frame.number, true);
            }
            Step::ReadBackend { frame, .. } => {
                self.faults.backend_read_errors += 1;
                self.layout.frames.set_bad(frame.number, true);
            }
            &mut Step::WriteBackend { block, frame, ref mut acknowledged, ref mut replaces, logged, batch } => {
                missing = self.layout.frames.is_bad(frame.number);
                // The log still has the content if its copy is newer than the backend's.
                self.layout.frames.set_bad(frame.number, missing || !(logged || batch.is_some()));
                self.faults.backend_write_errors += u64::from(!missing);
                let handed_on = (*replaces || *acknowledged) && batch.is_none() && !logged && self.hand_on(block);
                if handed_on {
                    (*acknowledged, *replaces) = (false, false);
                }
                let (acknowledged, replaces) = (*acknowledged, *replaces);
                // Clients already know of blocks that wait to be written again.
                let was_kept = self.layout.unwritten.waits(&self.cache, block);
                self.tell_failed(step, missing);
                // A failed write may have taken effect, so its content may replace lost acknowledged content.
                // Written-back content may be older.
                if !missing && batch.is_none() && self.order.blocks().writer(block).is_none() {
                    self.keep(block, self.layout.frames.page(frame.number).to_vec());
                }
                let is_known = was_kept || self.cache.leaves(block);
                self.layout.errors.backend += u64::from(!is_known && (replaces || (acknowledged && !missing)));
                return handed_on;
            }
            Step::ZeroBackend { replaces, .. } => {
                let before = replaces.len();
                replaces.retain(|block| !self.hand_on(*block));
                let replaces = replaces.clone();
                self.faults.backend_write_errors += 1;
                self.tell_failed(step, missing);
                replaces.iter().for_each(|block| self.keep(*block, vec![0; BLOCK as usize]));
                self.layout.errors.backend += u64::from(replaces.iter().any(|block| !self.cache.leaves(*block)));
                return replaces.len() < before;
            }
            Step::Append(_) | Step::FlushFlash { .. } | Step::ResetUnit { .. } | Step::Witness(_) => {
                self.faults.flash_write_errors += 1;
                self.layout.errors.flash += 1;
                if matches!(step, Step::Append(_)) {
                    self.append_failed(step);
                    return false;
                }
            }
            Step::FlushBackend { .. } => {
                let loses = u64::from(self.cache.relies_on_flush());
                self.faults.backend_write_errors += 1;
                self.layout.errors.backend += loses;
                self.layout.failed_flushes += loses;
                let flushes = self.order.last_of(CLIENTS..BATCHES.end);
                for flush in flushes.collect::<Vec<_>>() {
                    self.step(flush).broken.add(Bond::Needs);
                }
                for write in self.order.members(CLIENTS).collect::<Vec<_>>() {
                    let running = self.step(write);
                    running.state.may_be_gone |= running.state.transfers > 0;
                }
            }
            Step::WriteJournal(_) | Step::FlushJournal { .. } => self.faults.backend_write_errors += 1,
            // The cache knows already.
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Copy { .. } => return false,
            Step::AwaitFlushes | Step::Fail => assert!(awaited, "a client hears of it"),
            Step::Destaged { .. } | Step::Pause { .. } | Step::Reply => {}
        }
        self.tell_failed(step, missing);
        false
    }

    /// Handles the failure of a segment. Its lost blocks are kept, in case they can be written elsewhere.
    fn append_failed(&mut self, step: &mut Step) {
        let Step::Append(segment) = &*step else { unreachable!("a segment is appended") };
        let (mut missing, mut new) = (Vec::new(), Vec::new());
        for (number, record) in (0..).zip(&segment.records).filter(|(_, record)| record.kind.has_data()) {
            if self.layout.frames.is_bad(record.frame.number) {
                missing.push(number);
            } else if !self.cache.is_lost(record.block) {
                new.push((record.block, record.frame.number));
            }
        }
        if !missing.is_empty() {
            self.tell(Event::Missing { step, blocks: &missing });
        }
        self.tell_failed(step, false);
        new.into_iter().for_each(|(block, place)| self.keep(block, self.layout.frames.page(place).to_vec()));
    }

    /// The content of a block did not reach the backend. If a newer write of the block is in progress, its result
    /// counts instead. Returns true in that case.
    fn hand_on(&mut self, block: u32) -> bool {
        let Some(newer) = self.order.blocks().writer(block) else { return false };
        match &mut self.step(newer).step {
            Step::WriteBackend { replaces, logged: false, batch: None, .. } => *replaces = true,
            Step::ZeroBackend { replaces, .. } if replaces.contains(&block) => {}
            Step::ZeroBackend { replaces, .. } => replaces.push(block),
            _ => return false,
        }
        true
    }

    /// Reports a failed step to the cache, with the cache's own frame numbers.
    pub(super) fn tell_failed(&mut self, step: &mut Step, missing: bool) {
        self.layout.places.unplace_frames(step);
        self.tell(Event::Failed { step, missing });
    }
}

/// True for a flush of writes that bypass the flash, if a client or a segment waits for it.
pub(super) fn is_awaited_flush(step: &Step) -> bool {
    matches!(step, Step::AwaitFlushes | Step::FlushBackend { batch: None })
}
