//! Performing single steps, and what follows when one ends or fails.

use flashwise_core::cache::{Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::StepId;
use flashwise_core::step::{BATCHES, CLIENTS, Frame, Step};
use smallvec::{SmallVec, smallvec};

use super::{BACKEND, Bond, Bug, Engine, FLASH, TRANSFER_BLOCKS};
use crate::disk::{Buffer, Operation, Transfer};
use crate::export::Error;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// A piece of a transfer that is handed out next.
#[derive(Debug)]
pub(super) struct Part {
    pub disk: usize,
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub buffers: SmallVec<[Buffer; 1]>,
    pub step: StepId,
    /// It gives way to others.
    pub background: bool,
    /// The disk of the backend that has it.
    pub lane: u16,
    /// As [`Transfer::stream`].
    pub stream: u8,
}

/// What is transferred together.
pub(super) type Group = SmallVec<[Part; 1]>;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Does a step between a client's bytes and a frame that nothing else uses, without entering it into the table of steps.
    #[inline]
    pub(super) fn try_at_once(&mut self, step: &Step, client: Option<u32>) -> bool {
        let Some(client) = client else { return false };
        match step {
            Step::Send { block, frame, .. }
                if !self.order.place(frame.number).is_written() && !self.is_undecided(*block) => {}
            Step::Receive { frame, .. } | Step::Zero { frame, .. } if self.order.place(frame.number).is_idle() => {}
            _ => return false,
        }
        if !self.move_bytes(step, Some(client)) {
            self.fail_request(Some(client), Error::Io);
        }
        true
    }

    /// True if a client's write of a block may still fail, and nothing but the backend will have its content.
    fn is_undecided(&self, block: u32) -> bool {
        self.undecided(block).is_some()
    }

    /// Performs a step that needs no transfer on frames and a client's bytes; whether it succeeded. If not, the cache knows.
    fn move_bytes(&mut self, step: &Step, request: Option<u32>) -> bool {
        let moved = self.try_to_move(step, request);
        if !moved {
            self.tell_failed(&mut step.clone(), true);
        }
        moved
    }

    /// Moves bytes unless they never came.
    fn try_to_move(&mut self, step: &Step, request: Option<u32>) -> bool {
        match *step {
            Step::Receive { frame, at, length, from, .. } => {
                let whole = usize::from(length) == BLOCK_BYTES;
                let bad = &mut self.bad[frame.number as usize];
                if whole {
                    *bad = false;
                } else if *bad {
                    return false;
                }
                let request = request.expect("a request waits for its own bytes");
                let data = &self.clients.get(request).request.data;
                let bytes = &data[from as usize..from as usize + usize::from(length)];
                self.memory.page_mut(frame.number)[at.into()..][..bytes.len()].copy_from_slice(bytes);
            }
            Step::Send { frame, at, length, to, .. } => {
                if self.bad[frame.number as usize] {
                    return false;
                }
                let request = request.expect("a request waits for its own bytes");
                let reply = &mut self.clients.get_mut(request).reply;
                let bytes = &self.memory.page(frame.number)[at.into()..][..length.into()];
                reply[to as usize..to as usize + usize::from(length)].copy_from_slice(bytes);
            }
            Step::Zero { frame, at, length } => {
                let bad = &mut self.bad[frame.number as usize];
                if usize::from(length) == BLOCK_BYTES {
                    *bad = false;
                } else if *bad {
                    return false;
                }
                self.memory.page_mut(frame.number)[at.into()..][..length.into()].fill(0);
            }
            Step::Copy { from, to, .. } => {
                let bad = self.bad[from.number as usize];
                self.bad[to.number as usize] = bad;
                if bad {
                    return false;
                }
                self.memory.copy(from.number, to.number);
            }
            _ => unreachable!("a step that moves bytes"),
        }
        true
    }

    fn fail_request(&mut self, request: Option<u32>, error: Error) {
        if let Some(request) = request {
            let client = self.clients.get_mut(request);
            client.error = client.error.or(Some(error));
        }
    }

    pub(super) fn run_ready(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            self.start(id);
        }
    }

    fn start(&mut self, id: StepId) {
        let running = self.step(id);
        if let Some(content) = running.content.take() {
            return self.read_from_memory(id, &content);
        }
        let (doomed, source) = (running.doomed, running.source);
        if let Some(place) = source.filter(|_| !doomed)
            && self.read_from_place(id, place)
        {
            return;
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
        if self.steps[id as usize].is_some() {
            self.step(id).step = step;
        }
        if let Some(ok) = at_once {
            self.finish(id, if ok { Ok(()) } else { Err(Error::Io) });
        }
    }

    /// Starts a step. `Some` if it ended at once, with its success.
    fn begin(&mut self, id: StepId, step: &Step, doomed: bool, request: Option<u32>) -> Option<bool> {
        match step {
            Step::Send { .. } if self.step(id).unseen => {
                let request = request.expect("a request waits for its own bytes");
                self.clients.get_mut(request).reads_anew = true;
                return Some(false);
            }
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Copy { .. } => {
                return Some(self.move_bytes(step, request));
            }
            &Step::ReadFlash { slot, frame, .. } => {
                if self.step(id).background {
                    let part = self.background_part(id, FLASH, Operation::Read, slot, frame);
                    self.background.push_from_flash(part);
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
                if doomed || self.bad[frame.number as usize] {
                    return Some(false);
                }
                if batch.is_some() || acknowledged {
                    let part = self.background_part(id, BACKEND, Operation::Write, block, frame);
                    if batch.is_some() {
                        self.background.push_back(part);
                    } else {
                        self.background.push_past(part);
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
                if doomed || self.flash_failed {
                    return Some(false);
                }
                self.append(id, segment);
            }
            Step::Witness(footer) => {
                if doomed || self.flash_failed {
                    return Some(false);
                }
                self.append_footer(id, footer);
            }
            &Step::ResetUnit { unit } => {
                if doomed || self.flash_failed {
                    return Some(false);
                }
                if !self.settings.discard {
                    return Some(true);
                }
                let length = u64::from(self.cache.geometry().unit_pages) * BLOCK;
                self.transfer(id, FLASH, Operation::Discard, u64::from(unit) * length, length, SmallVec::new());
            }
            Step::FlushFlash { .. } => {
                if doomed || self.flash_failed {
                    return Some(false);
                }
                self.transfer(id, FLASH, Operation::Sync, 0, 0, SmallVec::new());
            }
            Step::FlushBackend { .. } => {
                self.transfer(id, BACKEND, Operation::Sync, 0, 0, SmallVec::new());
            }
            Step::Destaged { .. } => return Some(!doomed),
            Step::AwaitFlushes => {
                // Of several that waited for it, each hears of an error: what it had been answered before may be lost.
                let errors_before = self.step(id).errors_before;
                let failed = doomed || self.errors != errors_before;
                // One that is handed back tells nobody.
                if failed && self.is_flush(request) && !self.hands_back() {
                    self.errors_reported = self.errors;
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
        self.step(step).transfers += 1;
        let (offset, buffers) = (u64::from(block) * BLOCK, smallvec![self.memory.buffer(frame.number, 1)]);
        let lane = self.background.lane_of(disk, offset);
        Part { disk, operation, offset, length: BLOCK, buffers, step, background: true, lane, stream: 0 }
    }

    fn transfer_frame(&mut self, id: StepId, disk: usize, operation: Operation, block: u32, frame: Frame) {
        let buffer = self.memory.buffer(frame.number, 1);
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
        let lane = self.background.lane_of(disk, offset);
        self.hand_over(Part { disk, operation, offset, length, buffers, step, background: false, lane, stream: 0 });
    }

    pub(super) fn hand_over(&mut self, part: Part) {
        self.step(part.step).transfers += 1;
        self.outgoing.push(part);
    }

    pub(super) fn part_completed(&mut self, part: Part, result: Result<(), Error>) {
        let id = part.step;
        let result = result.and_then(|()| if self.data_is_right(id) { Ok(()) } else { Err(Error::Io) });
        // A flush that failed says nothing the second time: what it was to make durable may be gone.
        if result.is_err() && self.step(id).retries > 0 && part.operation != Operation::Sync {
            self.step(id).retries -= 1;
            self.outgoing.push(part);
            return;
        }
        // Nothing moves on a flash that has failed, and no unit is reset there.
        if result.is_err() && !self.flash_failed && self.step(id).patience > 0 && self.moves_dirty(id) {
            let retries = self.settings.retries;
            let running = self.step(id);
            (running.patience, running.retries) = (running.patience - 1, retries);
            self.postponed.push(part);
            return;
        }
        let running = self.step(id);
        running.transfers -= 1;
        running.error = running.error.or(result.err());
        if running.transfers > 0 {
            return;
        }
        let result = running.error.map_or(Ok(()), Err);
        if result.is_err() && self.falls_back(id) {
            return;
        }
        self.finish(id, result);
    }

    /// True if a step reads a dirty block that is about to be moved, or changed in part: it would be lost once its unit is reset. It is listed
    /// from now on, and the server's log says so.
    fn moves_dirty(&mut self, id: StepId) -> bool {
        let step = |id: StepId| self.steps[id as usize].as_ref().expect("a step is there until it is done");
        let running = step(id);
        let Step::ReadFlash { block, dirty: true, .. } = running.step else { return false };
        let moves_in = |step: &Step| matches!(step, Step::Append(_) | Step::Copy { .. });
        let moves = running.dependents.iter().any(|&(next, _)| moves_in(&step(next).step));
        if moves {
            // One line for all that cannot be read at a time.
            if self.postponed.is_empty() {
                tracing::warn!(
                    block,
                    "a block's only copy cannot be read from flash; until it is lost, it is tried again"
                );
            }
            self.faults.flash_read_errors += 1;
            let mut read = self.step(id).step.clone();
            self.unplace_frames(&mut read);
            self.tell(Event::Postponed(&read));
        }
        moves
    }

    /// True if what was read from flash has the checksum that it should have.
    fn data_is_right(&mut self, id: StepId) -> bool {
        let Step::ReadFlash { slot, frame, .. } = self.step(id).step else { return true };
        if self.step(id).falls_back {
            return true;
        }
        let right = checksum::crc32c(self.memory.page(frame.number)) == self.checksums[slot as usize];
        self.faults.flash_checksum_errors += u64::from(!right);
        right
    }

    /// Where flash cannot be read and the backend has the same, the backend is read; whether that was begun.
    fn falls_back(&mut self, id: StepId) -> bool {
        let retries = self.settings.retries;
        let running = self.step(id);
        let Step::ReadFlash { block, frame, dirty: false, .. } = running.step else { return false };
        if running.falls_back || running.stranded {
            return false;
        }
        running.falls_back = true;
        running.error = None;
        running.retries = retries;
        self.faults.flash_read_errors += 1;
        self.transfer_frame(id, BACKEND, Operation::Read, block, frame);
        true
    }

    pub(super) fn finish(&mut self, id: StepId, result: Result<(), Error>) {
        let mut running = self.steps[id as usize].take().expect("a step ends once");
        // What another flush that failed was to make durable may be gone, whatever this one says.
        let result =
            if running.doomed && matches!(running.step, Step::FlushBackend { .. }) { Err(Error::Io) } else { result };
        let ok = result.is_ok();
        if !ok && self.settings.planted != Some(Bug::ForgetsContent) {
            self.forward(&running);
        }
        self.unregister(id, &running.step, running.source);
        self.free_steps.push(id);
        self.running -= 1;
        let mut handed_on = false;
        if ok {
            self.succeeded(&mut running.step);
            // Whoever was told of that flush was told before this is answered.
            self.errors.backend += u64::from(running.may_be_gone);
            self.failed_flushes += u64::from(running.may_be_gone);
        } else {
            handed_on = self.failed(&mut running.step, running.request.is_some());
        }
        self.goes_on |= match running.step {
            Step::Destaged { .. } => true,
            Step::WriteBackend { .. } => self.cache.may_go_on(),
            _ => false,
        };
        if is_awaited_flush(&running.step) {
            self.background.flush_goes();
        }
        for (dependent, bond) in running.dependents {
            let next = self.step(dependent);
            next.doomed |= bond == Bond::Needs && !ok;
            next.doubtful |= bond == Bond::Trusts && !ok;
            next.stranded |= bond == Bond::Strands && !ok;
            next.unseen |= bond == Bond::Sees && !ok;
            // A flush that waits for this alone does not wait for what was to take its place.
            next.doomed |= handed_on && matches!(next.step, Step::FlushBackend { .. });
            next.waiting -= 1;
            if next.waiting == 0 {
                self.ready.push_back(dependent);
            }
        }
        if let Some(request) = running.request {
            let client = self.clients.get_mut(request);
            client.pending -= 1;
            client.error = client.error.or(result.err());
            self.answer_if_complete(request);
        }
    }

    fn succeeded(&mut self, step: &mut Step) {
        if let Step::ReadFlash { frame, .. } | Step::ReadBackend { frame, .. } = step {
            self.bad[frame.number as usize] = false;
        }
        self.unplace_frames(step);
        self.tell(Event::Done(step));
    }

    /// What a failed step leaves. Returns whether a newer step [takes its place](Self::hand_on).
    fn failed(&mut self, step: &mut Step, awaited: bool) -> bool {
        let mut missing = false;
        match step {
            Step::ReadFlash { frame, dirty, .. } => {
                // That a clean one failed was counted when the backend was read in its place.
                self.faults.flash_read_errors += u64::from(*dirty);
                self.faults.backend_read_errors += u64::from(!*dirty);
                self.bad[frame.number as usize] = true;
            }
            Step::ReadBackend { frame, .. } => {
                self.faults.backend_read_errors += 1;
                self.bad[frame.number as usize] = true;
            }
            &mut Step::WriteBackend { block, frame, ref mut acknowledged, ref mut replaces, logged, batch } => {
                let bad = &mut self.bad[frame.number as usize];
                // The log has the content still where it has a copy that is newer than the backend's.
                missing = std::mem::replace(bad, *bad || !(logged || batch.is_some()));
                self.faults.backend_write_errors += u64::from(!missing);
                let handed_on = (*replaces || *acknowledged) && batch.is_none() && !logged && self.hand_on(block);
                if handed_on {
                    (*acknowledged, *replaces) = (false, false);
                }
                let (acknowledged, replaces) = (*acknowledged, *replaces);
                // Of what waits to be written again, clients have heard.
                let was_kept = self.unwritten.contains_key(&block) && self.cache.is_kept(block);
                self.tell_failed(step, missing);
                // What a client was told has failed is as good as what was answered before it, if that is lost; what is written back may be older.
                if !missing && batch.is_none() && self.last_writer(block).is_none() {
                    self.keep(block, self.memory.page(frame.number).to_vec());
                }
                let is_known = was_kept || self.cache.leaves(block);
                self.errors.backend += u64::from(!is_known && (replaces || (acknowledged && !missing)));
                return handed_on;
            }
            Step::ZeroBackend { replaces, .. } => {
                let before = replaces.len();
                replaces.retain(|block| !self.hand_on(*block));
                let replaces = replaces.clone();
                self.faults.backend_write_errors += 1;
                self.tell_failed(step, missing);
                replaces.iter().for_each(|block| self.keep(*block, vec![0; BLOCK as usize]));
                self.errors.backend += u64::from(replaces.iter().any(|block| !self.cache.leaves(*block)));
                return replaces.len() < before;
            }
            Step::Append(_) | Step::FlushFlash { .. } | Step::ResetUnit { .. } | Step::Witness(_) => {
                self.faults.flash_write_errors += 1;
                self.flash_fails();
                if matches!(step, Step::Append(_)) {
                    self.append_failed(step);
                    return false;
                }
            }
            Step::FlushBackend { .. } => {
                self.faults.backend_write_errors += 1;
                self.errors.backend += 1;
                self.failed_flushes += 1;
                let flushes = self.order.last_of(CLIENTS..BATCHES.end);
                for flush in flushes.collect::<Vec<_>>() {
                    self.step(flush).doomed = true;
                }
                for write in self.order.members(CLIENTS).collect::<Vec<_>>() {
                    let running = self.step(write);
                    running.may_be_gone |= running.transfers > 0;
                }
            }
            // The cache knows already.
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Copy { .. } => return false,
            Step::AwaitFlushes | Step::Fail => assert!(awaited, "a client hears of it"),
            Step::Destaged { .. } | Step::Pause { .. } | Step::Reply => {}
        }
        self.tell_failed(step, missing);
        false
    }

    /// Tells the cache that a step failed, whose frames are then numbered as the cache knows them.
    pub(super) fn tell_failed(&mut self, step: &mut Step, missing: bool) {
        self.unplace_frames(step);
        self.tell(Event::Failed { step, missing });
    }

    /// Hands out transfers, neighbours joined.
    pub(super) fn hand_out(&mut self, transfers: &mut Vec<Transfer>) {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let mut group = Group::new();
        for part in outgoing.drain(..) {
            if !group.last().is_some_and(|last| continues(last, &part, group.len())) {
                self.hand_out_group(&mut group, transfers);
            }
            group.push(part);
        }
        self.hand_out_group(&mut group, transfers);
        self.outgoing = outgoing;
    }

    pub(super) fn hand_out_group(&mut self, group: &mut Group, transfers: &mut Vec<Transfer>) {
        let Some(first) = group.first() else { return };
        if first.disk == BACKEND {
            self.background.started(first);
        } else if first.background {
            self.background.started_from_flash(group.len());
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        transfers.push(Transfer {
            tag,
            disk: first.disk,
            operation: first.operation,
            offset: first.offset,
            length: group.iter().map(|part| part.length).sum(),
            buffers: joined(group.iter().flat_map(|part| part.buffers.iter().copied())),
            stream: first.stream,
        });
        self.groups.insert(tag, std::mem::take(group));
    }
}

/// True if `part` can be transferred together with the `count` parts before it.
pub(super) fn continues(last: &Part, part: &Part, count: usize) -> bool {
    matches!(part.operation, Operation::Read | Operation::Write)
        && part.length == BLOCK
        && last.length == BLOCK
        && (last.disk, last.operation, last.background, last.stream)
            == (part.disk, part.operation, part.background, part.stream)
        && last.offset + last.length == part.offset
        && count < TRANSFER_BLOCKS
}

/// The same memory in as few pieces as possible.
fn joined(buffers: impl Iterator<Item = Buffer>) -> Vec<Buffer> {
    let mut pieces: Vec<Buffer> = Vec::new();
    for buffer in buffers {
        match pieces.last_mut() {
            Some(last) if last.start.wrapping_add(last.length) == buffer.start => last.length += buffer.length,
            _ => pieces.push(buffer),
        }
    }
    pieces
}

/// True if a client or a segment waits for what goes past the flash.
pub(super) fn is_awaited_flush(step: &Step) -> bool {
    matches!(step, Step::AwaitFlushes | Step::FlushBackend { batch: None })
}
