//! The execution of steps, once the steps that they wait for are done, and their results.

use flashwise_core::cache::{Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::{Bond, StepId};
use flashwise_core::wlfc::header::{Crc, Missing};
use flashwise_core::wlfc::{Log, State, Step};
use smallvec::smallvec;

use super::memory::{BLOCK, blocks_of};
use super::read::Run;
use super::{Engine, Running, Work};
use crate::engine::{BACKEND, FLASH, Part};
use crate::request::Error;
use crate::transfer::{Buffer, Operation};

/// The result of starting a step.
pub(super) enum Begun {
    /// It is done, with success or failure.
    Done(bool),
    /// A transfer is in progress.
    UnderWay,
}

/// True if it changes the backend for a client or a trial, not to evict something from the cache.
pub(super) fn goes_past(step: &Step) -> bool {
    matches!(step, Step::WriteBackend { gives_up: false, .. } | Step::ZeroBackend { .. })
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts a step that waits for nothing.
    pub(super) fn perform(&mut self, id: StepId) {
        if let Begun::Done(ok) = self.begin(id) {
            self.finish(id, if ok { Ok(()) } else { Err(Error::Io) });
        }
    }

    fn begin(&mut self, id: StepId) -> Begun {
        let stopped = !self.recovery.works();
        let running = self.step(id);
        if stopped {
            running.broken.add(Bond::Needs);
        }
        if running.is_doomed() {
            return Begun::Done(false);
        }
        let (plan, step) = match running.step {
            Work::Await => return Begun::Done(true),
            Work::Step(step) => (running.state.plan, step),
        };
        match step {
            Step::Receive { offset, length } => self.receive(id, plan, offset, length),
            Step::Send { offset, length } => self.send(id, plan, offset, length),
            Step::Zero { offset, length } => self.change_memory(id, plan, offset, length, |_, bytes| bytes.fill(0)),
            Step::ReadRam { block, frame } => {
                let bad = self.layout.bad_frames.contains(&frame);
                let ram = self.layout.ram.as_ref().expect("frames that are read are there");
                let plan = self.layout.plans.get(plan);
                let region = plan.regions.of(block);
                let bytes = region.bytes(block * BLOCK, BLOCK_BYTES);
                bytes.copy_from_slice(&ram.page(frame)[..bytes.len()]);
                region.set_missing(block, bad.then_some(Missing::Lost));
            }
            Step::KeepInRam { block, frame } => {
                let plan = self.layout.plans.get(plan);
                let region = plan.regions.of(block);
                if region.is_bad(block) {
                    self.layout.bad_frames.insert(frame);
                    return Begun::Done(false);
                }
                self.layout.bad_frames.remove(&frame);
                let ram = self.layout.ram.as_mut().expect("frames that are kept are there");
                let bytes = region.bytes(block * BLOCK, BLOCK_BYTES);
                ram.page_mut(frame)[..bytes.len()].copy_from_slice(bytes);
            }
            Step::ReadFlash { .. } => {
                self.read_flash(id);
                return Begun::UnderWay;
            }
            Step::ReadBackend { block, blocks } => {
                return self.transfer(id, BACKEND, Operation::Read, block * BLOCK, block, blocks);
            }
            Step::WriteBackend { block, blocks, .. } => {
                let region = self.layout.plans.region(plan, block);
                let (has_lost, has_bad) = (region.has_lost(block, blocks), region.has_bad(block, blocks));
                if has_lost && !self.settings.skips_bad {
                    // Lost blocks are recorded on flash.
                    self.layout.failures.lossy.insert(block);
                    return Begun::Done(false);
                }
                if has_bad {
                    return self.write_what_came(id, plan, block, blocks);
                }
                return self.transfer(id, BACKEND, Operation::Write, block * BLOCK, block, blocks);
            }
            Step::ZeroBackend { block, blocks, may_punch_holes } => {
                let length = u64::from(blocks) * BLOCK;
                self.hand_over_part(
                    id,
                    BACKEND,
                    Operation::Zero { may_punch_holes },
                    block * BLOCK,
                    length,
                    smallvec![],
                );
                return Begun::UnderWay;
            }
            Step::Append { .. } => {
                match self.says_backend_has(plan, &step) {
                    true => self.hand_over_part(id, BACKEND, Operation::Sync, 0, 0, smallvec![]),
                    false => self.append_with_next(id),
                }
                return Begun::UnderWay;
            }
            Step::FlushFlash | Step::FlushBackend => {
                let disk = if step == Step::FlushFlash { FLASH } else { BACKEND };
                self.hand_over_part(id, disk, Operation::Sync, 0, 0, smallvec![]);
                self.flush_on(id, disk, &step);
                return Begun::UnderWay;
            }
            Step::Reset { bucket } if self.layout.failures.worn.contains(&bucket) => {
                self.layout.failures.dead.insert(bucket);
                return Begun::Done(false);
            }
            Step::Reset { bucket } => {
                self.reset(id, bucket);
                return Begun::UnderWay;
            }
            Step::Fail => {
                // A flush reports this once, regardless of other failures.
                if let (false, Some(request)) = (self.recovery.holds_with_flash(), self.step(id).request) {
                    let client = self.clients.get_mut(request);
                    client.is_own |= client.request.is_flush();
                }
                return Begun::Done(false);
            }
            Step::Reply => unreachable!("the answer is not a step of its own"),
        }
        Begun::Done(true)
    }

    /// Returns the offset of a cache bucket. The first unit holds superblocks.
    pub(super) fn unit_offset(&self, bucket: u32) -> u64 {
        (u64::from(bucket) + 1) * self.layout.unit_bytes
    }

    fn receive(&mut self, id: StepId, plan: u32, offset: u64, length: u32) {
        let number = self.step(id).request.expect("a client waits for what it sends");
        let request = &mut self.clients.get_mut(number).request;
        let (data, start) = (std::mem::take(&mut request.data), request.offset);
        self.change_memory(id, plan, offset, length, |offset, bytes| {
            bytes.copy_from_slice(&data[(offset - start) as usize..][..bytes.len()]);
        });
        self.clients.get_mut(number).request.data = data;
    }

    /// Changes bytes in memory: `change` gets the offset of the first and the bytes. If a part of a block without
    /// content is changed, the request fails. Blocks with a lost change that waits in memory are left as on flash, for
    /// that change.
    fn change_memory(&mut self, id: StepId, plan: u32, offset: u64, length: u32, change: impl FnOnce(u64, &mut [u8])) {
        let (mut from, mut to) = (offset, offset + u64::from(length));
        for block in self.layout.ahead.lost_of(offset, length.into()) {
            if block * BLOCK < offset {
                from = (block + 1) * BLOCK;
            } else if (block + 1) * BLOCK > to {
                to = block * BLOCK;
            }
        }
        let region = self.layout.plans.region(plan, offset / BLOCK);
        if from < to {
            change(from, region.bytes(from, (to - from) as usize));
            (from.div_ceil(BLOCK)..to / BLOCK).for_each(|block| region.set_missing(block, None));
        }
        let (block, blocks) = blocks_of(&Step::Receive { offset, length }, 1).expect("it has bytes");
        let fails = to.saturating_sub(from) < length.into() || region.has_bad(block, blocks);
        if let (true, Some(number)) = (fails, self.step(id).request) {
            let client = self.clients.get_mut(number);
            client.error = Some(Error::Io);
            // The request is incomplete, so it must end with an error, regardless of other failures.
            client.is_own |= !client.asked.again;
        }
    }

    fn send(&mut self, id: StepId, plan: u32, offset: u64, length: u32) {
        let number = self.step(id).request.expect("a client waits for what it reads");
        let client = self.clients.get_mut(number);
        let region = self.layout.plans.region(plan, offset / BLOCK);
        let (block, blocks) = blocks_of(&Step::Send { offset, length }, 1).expect("it has bytes");
        if region.has_bad(block, blocks) {
            client.error = Some(Error::Io);
            return;
        }
        let to = (offset - client.request.offset) as usize;
        let made_since = std::mem::take(&mut client.made_since);
        let reply = client.put(to, region.bytes(offset, length as usize));
        made_since.iter().for_each(|change| change.put_over(offset, reply));
        self.layout.ahead.put_over(offset, reply);
        client.made_since = made_since;
    }

    /// Transfers blocks between a device and the memory of the plan.
    pub(super) fn transfer(
        &mut self,
        id: StepId,
        disk: usize,
        operation: Operation,
        offset: u64,
        block: u64,
        blocks: u32,
    ) -> Begun {
        let plan = self.step(id).state.plan;
        let buffer = self.layout.plans.region(plan, block).buffer(block, blocks);
        self.hand_over_part(id, disk, operation, offset, u64::from(blocks) * BLOCK, smallvec![buffer]);
        Begun::UnderWay
    }

    pub(super) fn hand_over_part(
        &mut self,
        id: StepId,
        disk: usize,
        operation: Operation,
        offset: u64,
        length: u64,
        buffers: smallvec::SmallVec<[Buffer; 1]>,
    ) {
        self.hand_over(Part { buffers, ..Part::new(id, disk, operation, offset, length) });
    }

    /// Writes only the blocks with content to the backend.
    fn write_what_came(&mut self, id: StepId, plan: u32, block: u64, blocks: u32) -> Begun {
        let all = block..block + u64::from(blocks);
        let mut parts = self.layout.plans.region(plan, block).apart(id, all, Operation::Write, |bad| bad.is_none());
        let Some(first) = parts.pop() else { return Begun::Done(true) };
        self.step(id).state.next = parts;
        self.hand_over(first);
        Begun::UnderWay
    }

    /// True if the append marks blocks as being on the backend, because they were unreadable there. Earlier writes to
    /// them must be durable first, because older copies on flash become invalid.
    fn says_backend_has(&mut self, plan: u32, step: &Step) -> bool {
        blocks_of(step, self.layout.bucket_blocks).is_some_and(|(block, blocks)| {
            self.layout.plans.region(plan, block).has_any(Missing::OfBackend, block, blocks)
        })
    }

    /// Handles the flush of the backend before an append.
    fn flushed_before(&mut self, id: StepId, ok: bool) {
        if ok {
            return self.append_with_next(id);
        }
        self.faults.count(BACKEND, Operation::Sync);
        self.layout.backend_flush_failed = true;
        self.recovery.stop(BACKEND, self.settings.holds_failed);
        self.tell(Event::Failed { step: &Step::FlushBackend, missing: false });
        self.finish(id, Err(Error::Io));
    }

    /// Programs data after header pages that describe it.
    fn append(&mut self, id: StepId) {
        let running = self.steps.get_mut(id);
        let Work::Step(Step::Append { bucket, page, oob, .. }) = running.step else { unreachable!("it is an append") };
        let plan = running.state.plan;
        let header = self.layout.programs.begin(&self.settings, (bucket, page, oob), &running.state);
        let has_data = oob.log == Log::Data;
        let block = u64::from(oob.backend) * u64::from(self.layout.bucket_blocks) + u64::from(oob.at);
        let mut checksums: Vec<Crc> = Vec::new();
        let mut data = None;
        if has_data {
            let plan = self.layout.plans.get(plan);
            let region = plan.regions.of(block);
            for block in block..block + u64::from(oob.blocks) {
                let crc = checksum::crc32c(region.bytes(block * BLOCK, BLOCK_BYTES));
                checksums.push(region.missing(block).map_or(Ok(crc), Err));
            }
            data = Some(region.buffer(block, oob.blocks));
            if oob.state == State::Write && region.has_bad(block, oob.blocks) {
                let missing = (0..).zip(&checksums).filter(|(_, crc)| crc.is_err()).map(|(number, _)| number);
                let missing: Vec<u32> = missing.collect();
                let step = Step::Append { bucket, page, pages: header.pages(), oob };
                self.cache.on(Event::Missing { step: &step, blocks: &missing }, &mut self.planned);
            }
        }
        if oob.state == State::Write && !self.layout.failures.unreadable.is_empty() {
            // These blocks are no longer unreadable.
            let is_there = |number: u32| !has_data || checksums[number as usize].is_ok();
            let anew = (0..oob.blocks).filter(|number| is_there(*number)).map(|number| block + u64::from(number));
            anew.for_each(|block| {
                self.layout.failures.unreadable.remove(&block);
            });
        }
        // A zone with a copy is filled, so that the device need not keep it open.
        let fills = self.settings.zoned && oob.state != State::Write;
        let padding = if fills { self.layout.bucket_pages - header.end() } else { 0 };
        let parts = header.parts();
        let (memory, sum) = self.layout.reads.program(&header, bucket, &checksums, padding);
        if let Some(sum) = sum {
            self.layout.programs.on_flash[bucket as usize].last = sum;
        }
        let mut buffers = smallvec![memory.buffer(0, parts)];
        buffers.extend(data);
        if padding > 0 {
            buffers.push(memory.buffer(parts, padding));
        }
        self.step(id).state.memory = Some(memory);
        let offset = self.unit_offset(bucket) + u64::from(page) * BLOCK;
        self.hand_over_part(id, FLASH, Operation::Write, offset, u64::from(header.pages() + padding) * BLOCK, buffers);
    }

    /// Programs an append and, in the same transfer, the appends that wait only for it.
    fn append_with_next(&mut self, mut id: StepId) {
        let mut buffers = 0;
        self.append(id);
        while let Some(next) = self.appended_next(id) {
            let running = self.step(next);
            let Work::Step(step) = running.step else { unreachable!("it is an append") };
            let plan = running.state.plan;
            if self.says_backend_has(plan, &step) {
                break;
            }
            self.begin_with(id, next);
            self.append(next);
            buffers += 2;
            if buffers >= super::transfers::BUFFERS_MAX - 4 {
                break;
            }
            id = next;
        }
    }

    /// Returns the next append that waits only for `id`.
    fn appended_next(&self, id: StepId) -> Option<StepId> {
        let Some(&Running { step: Work::Step(Step::Append { bucket, page, pages, .. }), .. }) = self.steps.find(id)
        else {
            return None;
        };
        let follows = |work: &Work| matches!(work, Work::Step(Step::Append { bucket: of, page: at, .. }) if (*of, *at) == (bucket, page + pages));
        self.waits_alone_for(id, follows)
    }

    /// Returns a matching step that waits only for `id`.
    fn waits_alone_for(&self, id: StepId, is_wanted: impl Fn(&Work) -> bool) -> Option<StepId> {
        let mut dependents = self.peek(id).dependents.iter().map(|(dependent, _)| *dependent);
        dependents.find(|next| {
            let next = self.peek(*next);
            next.waiting == 1 && !next.is_doomed() && is_wanted(&next.step)
        })
    }

    /// Removes the dependency of `next` on `id`, so that both begin together.
    fn begin_with(&mut self, id: StepId, next: StepId) {
        self.step(id).dependents.retain(|(dependent, _)| *dependent != next);
        self.step(next).waiting = 0;
    }

    /// Merges flushes that wait only for this one into it.
    fn flush_on(&mut self, mut id: StepId, disk: usize, flush: &Step) {
        while let Some(next) = self.waits_alone_for(id, |work| matches!(work, Work::Step(step) if step == flush)) {
            self.begin_with(id, next);
            self.hand_over_part(next, disk, Operation::Sync, 0, 0, smallvec![]);
            id = next;
        }
    }

    /// Empties a bucket: resets its zone or, without zones, overwrites its first page with a mark.
    fn reset(&mut self, id: StepId, bucket: u32) {
        let offset = self.unit_offset(bucket);
        if self.settings.zoned {
            return self.hand_over_part(id, FLASH, Operation::Discard, offset, self.layout.unit_bytes, smallvec![]);
        }
        // The rest is not discarded: it could vanish before this page is written, and would then be missing.
        let run = super::run(self.settings.start, self.settings.found_again);
        let memory = super::mark(self.settings.cache, bucket, (run, self.step(id).state.sequence));
        let buffers = smallvec![memory.buffer(0, 1)];
        self.step(id).state.memory = Some(memory);
        self.hand_over_part(id, FLASH, Operation::Write, offset, BLOCK, buffers);
    }

    pub(super) fn part_ended(&mut self, part: Part, result: Result<(), Error>) {
        let id = part.step;
        let read_flash = part.disk == FLASH && part.operation == Operation::Read;
        if std::mem::take(&mut self.step(id).state.probes) {
            return self.probed(id, result.is_ok());
        }
        if part.disk == BACKEND && matches!(self.step(id).step, Work::Step(Step::Append { .. })) {
            return self.flushed_before(id, result.is_ok());
        }
        if read_flash && result.is_ok() && self.expects_more(id) {
            return;
        }
        let wrong = if read_flash && result.is_ok() { self.compare(id) } else { false };
        let failed = result.is_err() || wrong;
        self.faults.flash_checksum_errors += u64::from(wrong);
        // A flush is not retried, because a second one would not report the failure.
        if failed && self.step(id).retries > 0 && part.operation != Operation::Sync {
            self.step(id).retries -= 1;
            if wrong {
                // The header page may be the wrong one.
                self.layout.reads.forget(Run::of(self.steps.get(id)));
                self.read_flash(id);
            } else {
                self.hand_over(part);
            }
            return;
        }
        if let Err(error) = result {
            self.count_fault(&part);
            if part.disk == BACKEND && part.operation == Operation::Read && self.read_apart(id, &part) {
                return;
            }
            let request = self.step(id).request;
            if matches!(part.operation, Operation::Read) {
                self.header_failed(id);
                if read_flash && self.is_patient(id, &part) {
                    return;
                }
                return self.read_failed(id, read_flash);
            }
            if let Some(request) = request {
                // An eviction between two parts of a request does not concern the client.
                let leaves = matches!(self.step(id).step, Work::Step(Step::WriteBackend { gives_up: true, .. }));
                let client = self.clients.get_mut(request);
                client.error.get_or_insert(error);
                client.is_own |= part.disk == BACKEND && !leaves;
            }
            if let Work::Step(step) = &self.steps.get(id).step {
                self.layout.failures.note(step);
            }
            return self.finish(id, Err(Error::Io));
        }
        if wrong {
            return self.read_failed(id, true);
        }
        if part.operation == Operation::Read && !read_flash {
            self.came(id, &part, true);
        }
        if read_flash {
            self.read_below(id);
        }
        self.next_part(id);
    }

    pub(super) fn next_part(&mut self, id: StepId) {
        match self.step(id).state.next.pop() {
            Some(next) => self.hand_over(next),
            None => self.finish(id, Ok(())),
        }
    }

    /// Handles the end of a step. Returns the result for the steps that wait for it.
    pub(super) fn step_ended(
        &mut self,
        id: StepId,
        running: &mut Running<C>,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        if let Work::Step(step) = running.step {
            self.layout.resets.end(id, &step);
            self.end_uses(id, running, |_| ());
            if let Some((block, _)) = blocks_of(&step, self.layout.bucket_blocks) {
                self.layout.plans.get(running.state.plan).regions.end_use(block);
            }
            self.note_ended(running, &step, result.is_ok());
        }
        // A frame that is not kept is marked as bad, which is not a failure, unless an earlier step failed.
        let is_frame = matches!(running.step, Work::Step(Step::KeepInRam { .. })) && !running.is_doomed();
        if is_frame { Ok(()) } else { result }
    }

    /// Reports the end of a step to the cache, and records its consequences.
    fn note_ended(&mut self, running: &Running<C>, step: &Step, ok: bool) {
        if ok {
            self.layout.programs.done(step, running.state.sequence);
            if let Step::WriteBackend { block, .. } = step {
                self.layout.failures.lossy.remove(block);
            }
            // The steps continue without the unread blocks, and the cache plans no more on them.
            let is_unread = running.state.unread && matches!(step, Step::ReadBackend { .. });
            let event = if is_unread { Event::Failed { step, missing: false } } else { Event::Done(step) };
            self.tell(event);
        } else {
            self.layout.backend_flush_failed |= *step == Step::FlushBackend;
            // A flush reports on changes acknowledged before it; the error of a change is only about that change.
            let told = running.request.is_some_and(|request| self.clients.get(request).alone);
            let told = told && !running.is_doomed();
            let missing = if *step == Step::FlushBackend { told } else { running.is_doomed() };
            self.tell(Event::Failed { step, missing });
        }
    }
}
