//! What each step does, once all that it waits for is done, and what becomes of it.

use flashwise_core::cache::{Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::wlfc::header::{Crc, Header};
use flashwise_core::wlfc::{Log, Oob, State, Step};
use smallvec::smallvec;

use super::memory::Region;
use super::order::{changed, flushed};
use super::{Engine, Part, Running, Work, blocks_of};
use crate::disk::{Buffer, Operation};
use crate::engine::hazard::StepId;
use crate::engine::{BACKEND, FLASH};
use crate::export::Error;
use crate::memory::Memory;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// What came of a step that was begun.
enum Begun {
    /// It is done, or it failed.
    Done(bool),
    /// It is being transferred.
    UnderWay,
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Begins what waits for nothing any more.
    pub(super) fn run_ready(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            if let Begun::Done(ok) = self.begin(id) {
                self.finish(id, ok);
            }
        }
    }

    fn begin(&mut self, id: StepId) -> Begun {
        let Running { work, plan, doomed, .. } = self.step(id);
        let (plan, doomed) = (*plan, *doomed);
        let step = match work {
            Work::Await => return Begun::Done(!doomed),
            Work::Step(step) => *step,
        };
        let changes = changed(&step).or(flushed(&step)).is_some();
        if doomed || changes && self.stopped.is_some() {
            return Begun::Done(false);
        }
        match step {
            Step::Receive { offset, length } => self.receive(id, plan, offset, length),
            Step::Send { offset, length } => self.send(id, plan, offset, length),
            Step::Zero { offset, length } => {
                let region = self.plan(plan).regions.of(offset / BLOCK);
                region.bytes(offset, length as usize).fill(0);
                let (first, end) = (offset.div_ceil(BLOCK), (offset + u64::from(length)) / BLOCK);
                (first..end).for_each(|block| region.set_bad(block, false));
            }
            Step::ReadRam { block, frame } => {
                let bad = self.bad_frames.contains(&frame);
                let ram = self.ram.as_ref().expect("frames that are read are there");
                let plan = self.plans[plan as usize].as_mut().expect("the plan is not done");
                let region = plan.regions.of(block);
                region.bytes(block * BLOCK, BLOCK_BYTES).copy_from_slice(ram.page(frame));
                region.set_bad(block, bad);
            }
            Step::KeepInRam { block, frame } => {
                let plan = self.plans[plan as usize].as_mut().expect("the plan is not done");
                let region = plan.regions.of(block);
                if region.is_bad(block) {
                    self.bad_frames.insert(frame);
                    return Begun::Done(false);
                }
                self.bad_frames.remove(&frame);
                let ram = self.ram.as_mut().expect("frames that are kept are there");
                ram.page_mut(frame).copy_from_slice(region.bytes(block * BLOCK, BLOCK_BYTES));
            }
            Step::ReadFlash { bucket, slot, block, blocks } => {
                let offset = self.unit_offset(bucket) + u64::from(slot) * BLOCK;
                return self.transfer(id, FLASH, Operation::Read, offset, block, blocks);
            }
            Step::ReadBackend { block, blocks } => {
                return self.transfer(id, BACKEND, Operation::Read, block * BLOCK, block, blocks);
            }
            Step::WriteBackend { block, blocks } => {
                if self.plan(plan).regions.of(block).has_bad(block, blocks) {
                    if self.settings.skips_bad {
                        return self.write_what_came(id, plan, block, blocks);
                    }
                    self.stopped.get_or_insert(FLASH);
                    return Begun::Done(false);
                }
                return self.transfer(id, BACKEND, Operation::Write, block * BLOCK, block, blocks);
            }
            Step::ZeroBackend { block, blocks, may_punch_holes } => {
                let length = u64::from(blocks) * BLOCK;
                self.hand_out(id, BACKEND, Operation::Zero { may_punch_holes }, block * BLOCK, length, smallvec![]);
                return Begun::UnderWay;
            }
            Step::Append { bucket, page, oob, .. } => {
                self.append(id, plan, bucket, page, oob);
                return Begun::UnderWay;
            }
            Step::FlushFlash => {
                self.hand_out(id, FLASH, Operation::Sync, 0, 0, smallvec![]);
                return Begun::UnderWay;
            }
            Step::FlushBackend => {
                self.hand_out(id, BACKEND, Operation::Sync, 0, 0, smallvec![]);
                return Begun::UnderWay;
            }
            Step::Reset { bucket } => {
                self.reset(id, bucket);
                return Begun::UnderWay;
            }
            Step::Fail => return Begun::Done(false),
            Step::Reply => unreachable!("the answer is not a step of its own"),
        }
        Begun::Done(true)
    }

    /// Bytes before a cache bucket: the first unit holds superblocks.
    fn unit_offset(&self, bucket: u32) -> u64 {
        (u64::from(bucket) + 1) * self.unit_bytes
    }

    fn receive(&mut self, id: StepId, plan: u32, offset: u64, length: u32) {
        let number = self.step(id).request.expect("a client waits for what it sends");
        let client = self.clients.get(number);
        let from = (offset - client.request.offset) as usize;
        let region = self.plans[plan as usize].as_mut().expect("the plan is not done").regions.of(offset / BLOCK);
        region.bytes(offset, length as usize).copy_from_slice(&client.request.data[from..from + length as usize]);
        let (first, end) = (offset.div_ceil(BLOCK), (offset + u64::from(length)) / BLOCK);
        for block in first..end {
            region.set_bad(block, false);
            self.unreadable.remove(&block);
        }
        // Of a block whose rest never came, the request fails.
        let (block, blocks) = blocks_of(&Step::Receive { offset, length }, 1).expect("it has bytes");
        if region.has_bad(block, blocks) {
            self.clients.get_mut(number).error = Some(Error::Io);
        }
    }

    fn send(&mut self, id: StepId, plan: u32, offset: u64, length: u32) {
        let number = self.step(id).request.expect("a client waits for what it reads");
        let client = self.clients.get_mut(number);
        let region = self.plans[plan as usize].as_mut().expect("the plan is not done").regions.of(offset / BLOCK);
        let (block, blocks) = blocks_of(&Step::Send { offset, length }, 1).expect("it has bytes");
        if region.has_bad(block, blocks) {
            client.error = Some(Error::Io);
            return;
        }
        let to = (offset - client.request.offset) as usize;
        client.reply[to..to + length as usize].copy_from_slice(region.bytes(offset, length as usize));
    }

    /// Transfers blocks between a device and the memory of the plan.
    fn transfer(
        &mut self,
        id: StepId,
        disk: usize,
        operation: Operation,
        offset: u64,
        block: u64,
        blocks: u32,
    ) -> Begun {
        let plan = self.step(id).plan;
        let buffer = self.plan(plan).regions.of(block).buffer(block, blocks);
        self.hand_out(id, disk, operation, offset, u64::from(blocks) * BLOCK, smallvec![buffer]);
        Begun::UnderWay
    }

    fn hand_out(
        &mut self,
        id: StepId,
        disk: usize,
        operation: Operation,
        offset: u64,
        length: u64,
        buffers: smallvec::SmallVec<[Buffer; 2]>,
    ) {
        self.outgoing.push((id, Part { disk, operation, offset, length, buffers }));
    }

    /// Writes the blocks whose content came to the backend.
    fn write_what_came(&mut self, id: StepId, plan: u32, block: u64, blocks: u32) -> Begun {
        let region = self.plan(plan).regions.of(block);
        let mut parts = Vec::new();
        for block in (block..block + u64::from(blocks)).rev().filter(|block| !region.is_bad(*block)).collect::<Vec<_>>()
        {
            let buffers = smallvec![region.buffer(block, 1)];
            parts.push(Part {
                disk: BACKEND,
                operation: Operation::Write,
                offset: block * BLOCK,
                length: BLOCK,
                buffers,
            });
        }
        let Some(first) = parts.pop() else { return Begun::Done(true) };
        self.step(id).next = parts;
        self.outgoing.push((id, first));
        Begun::UnderWay
    }

    /// Programs data behind header pages that describe it.
    fn append(&mut self, id: StepId, plan: u32, bucket: u32, page: u32, oob: Oob) {
        let (durable, settings) = (self.durable, self.settings);
        let sequence = self.step(id).sequence;
        let on_flash = &mut self.on_flash[bucket as usize];
        if page == 0 {
            (on_flash.last, on_flash.durable_end) = (0, 0);
            on_flash.volatile.clear();
        }
        while let Some(&(number, end)) = on_flash.volatile.front()
            && number < durable
        {
            on_flash.durable_end = end;
            on_flash.volatile.pop_front();
        }
        let header = Header {
            cache: settings.cache,
            oob,
            run: settings.run,
            sequence,
            durable,
            page,
            durable_end: on_flash.durable_end,
            previous: on_flash.last,
            part: 0,
        };
        on_flash.volatile.push_back((sequence, header.end()));
        let has_data = oob.log == Log::Data;
        let block = u64::from(oob.backend) * u64::from(self.bucket_blocks) + u64::from(oob.at);
        let mut checksums: Vec<Crc> = Vec::new();
        let mut data = None;
        if has_data {
            let plan = self.plans[plan as usize].as_mut().expect("the plan is not done");
            let region = plan.regions.of(block);
            for block in block..block + u64::from(oob.blocks) {
                let crc = checksum::crc32c(region.bytes(block * BLOCK, BLOCK_BYTES));
                checksums.push((!region.is_bad(block)).then_some(crc));
            }
            data = Some(region.buffer(block, oob.blocks));
        }
        let first_slot = bucket * self.bucket_pages + header.data_page();
        for (slot, crc) in (first_slot..).zip(&checksums) {
            match crc {
                Some(crc) => {
                    self.checksums[slot as usize] = *crc;
                    self.absent.remove(&slot);
                }
                None => drop(self.absent.insert(slot)),
            }
        }
        let parts = header.parts();
        // A zone that holds a copy is full, so that the device need not keep it open.
        let padding = if settings.zoned && oob.state != State::Write { self.bucket_pages - header.end() } else { 0 };
        let mut memory = Memory::new((parts + padding) as usize);
        for part in 0..parts {
            let header = Header { part, ..header };
            let described = header.described();
            header.encode(&checksums[described.start as usize..described.end as usize], memory.page_mut(part));
        }
        let (_, crc) = Header::decode(memory.page(0)).expect("it was just encoded");
        self.on_flash[bucket as usize].last = crc;
        let mut buffers = smallvec![memory.buffer(0, parts)];
        buffers.extend(data);
        if padding > 0 {
            buffers.push(memory.buffer(parts, padding));
        }
        self.step(id).memory = Some(memory);
        let offset = self.unit_offset(bucket) + u64::from(page) * BLOCK;
        self.hand_out(id, FLASH, Operation::Write, offset, u64::from(header.pages() + padding) * BLOCK, buffers);
    }

    /// Empties a bucket: the zone is reset or, where it is none, its first page says nothing any more.
    fn reset(&mut self, id: StepId, bucket: u32) {
        let offset = self.unit_offset(bucket);
        if self.settings.zoned {
            return self.hand_out(id, FLASH, Operation::Discard, offset, self.unit_bytes, smallvec![]);
        }
        // What is behind is not discarded: it may go before this page does, and is then missed.
        let memory = Memory::new(1);
        let buffers = smallvec![memory.buffer(0, 1)];
        self.step(id).memory = Some(memory);
        self.hand_out(id, FLASH, Operation::Write, offset, BLOCK, buffers);
    }

    pub(super) fn part_completed(&mut self, id: StepId, part: Part, result: Result<(), Error>) {
        let read_flash = part.disk == FLASH && part.operation == Operation::Read;
        let wrong = if read_flash && result.is_ok() { self.compare(id) } else { false };
        let failed = result.is_err() || wrong;
        self.faults.flash_checksum_errors += u64::from(wrong);
        // A flush that failed says nothing the second time.
        if failed && self.step(id).retries > 0 && part.operation != Operation::Sync {
            self.step(id).retries -= 1;
            self.outgoing.push((id, part));
            return;
        }
        if let Err(error) = result {
            self.count_failure(part.disk, part.operation);
            let request = self.step(id).request;
            if matches!(part.operation, Operation::Read) {
                return self.read_failed(id, read_flash);
            }
            if let Some(request) = request {
                self.clients.get_mut(request).error.get_or_insert(error);
            }
            return self.finish(id, false);
        }
        if wrong {
            return self.read_failed(id, true);
        }
        if let Some(next) = self.step(id).next.pop() {
            self.outgoing.push((id, next));
            return;
        }
        if part.operation == Operation::Read && !read_flash {
            self.set_bad(id, |_, _| false);
        }
        self.finish(id, true);
    }

    fn count_failure(&mut self, disk: usize, operation: Operation) {
        let faults = &mut self.faults;
        let counter = match (disk == FLASH, operation == Operation::Read) {
            (true, true) => &mut faults.flash_read_errors,
            (true, false) => &mut faults.flash_write_errors,
            (false, true) => &mut faults.backend_read_errors,
            (false, false) => &mut faults.backend_write_errors,
        };
        *counter += 1;
    }

    /// Compares what was read with its checksums; whether anything is wrong that may be right when it is read again.
    fn compare(&mut self, id: StepId) -> bool {
        let running = self.step(id);
        let (plan, Work::Step(step)) = (running.plan, &running.work) else { return false };
        let Step::ReadFlash { bucket, slot, block, blocks } = *step else { return false };
        let first = bucket * self.bucket_pages + slot;
        let region = self.plans[plan as usize].as_mut().expect("the plan is not done").regions.of(block);
        let mut wrong = false;
        for (slot, block) in (first..).zip(block..block + u64::from(blocks)) {
            let absent = self.absent.contains(&slot);
            let page = region.bytes(block * BLOCK, BLOCK_BYTES);
            let right = !absent && checksum::crc32c(page) == self.checksums[slot as usize];
            region.set_bad(block, !right);
            wrong |= !right;
        }
        wrong
    }

    /// What could not be read is in the backend too, or is known to be bad from now on.
    fn read_failed(&mut self, id: StepId, flash: bool) {
        let retries = self.settings.retries;
        let running = self.step(id);
        let Work::Step(Step::ReadFlash { block, blocks, .. } | Step::ReadBackend { block, blocks }) = running.work
        else {
            unreachable!("it reads")
        };
        let (plan, clean, fell_back) = (running.plan, running.clean, running.falls_back);
        if flash && clean && !fell_back && !self.order.is_written(block) {
            let running = self.step(id);
            (running.falls_back, running.retries) = (true, retries);
            self.order.also_reads_backend(id, block);
            self.faults.flash_read_errors += 1;
            self.transfer(id, BACKEND, Operation::Read, block * BLOCK, block, blocks);
            return;
        }
        // Where a checksum was wrong, it is known which blocks are; where nothing came, all.
        let known = flash && self.plan(plan).regions.of(block).has_bad(block, blocks);
        self.set_bad(id, |region, block| !known || region.is_bad(block));
        if flash && !clean {
            let region = self.plans[plan as usize].as_mut().expect("the plan is not done").regions.of(block);
            let bad = (block..block + u64::from(blocks)).filter(|block| region.is_bad(*block));
            self.unreadable.extend(bad);
        }
        self.finish(id, true);
    }

    /// Remembers of each block that a step reads whether its content came.
    fn set_bad(&mut self, id: StepId, is_bad: impl Fn(&Region, u64) -> bool) {
        let running = self.step(id);
        let (Work::Step(step), plan) = (&running.work, running.plan) else { return };
        let Some((block, blocks)) = blocks_of(step, 1) else { return };
        let region = self.plan(plan).regions.of(block);
        for block in block..block + u64::from(blocks) {
            let bad = is_bad(region, block);
            region.set_bad(block, bad);
        }
    }

    fn finish(&mut self, id: StepId, ok: bool) {
        let running = self.steps[id as usize].take().expect("a step ends once");
        self.free_steps.push(id);
        self.running -= 1;
        if let Work::Step(step) = &running.work {
            self.order.end(id, step, running.falls_back);
            if let Some((block, _)) = blocks_of(step, self.bucket_blocks) {
                self.plan(running.plan).regions.end_use(block);
            }
            self.ended(&running, step, ok);
        }
        // A frame that is not kept is known to be bad.
        let dooms = !ok && !matches!(running.work, Work::Step(Step::KeepInRam { .. }));
        for dependent in running.dependents {
            let next = self.step(dependent);
            next.doomed |= dooms;
            next.waiting -= 1;
            if next.waiting == 0 {
                self.ready.push_back(dependent);
            }
        }
        self.end_of_plan(running.plan);
        if let Some(request) = running.request {
            let client = self.clients.get_mut(request);
            client.pending -= 1;
            if dooms {
                client.error.get_or_insert(Error::Io);
            }
            self.answer_if_complete(request);
        }
    }

    /// Tells the cache what became of a step, and remembers what follows from it.
    fn ended(&mut self, running: &Running, step: &Step, ok: bool) {
        if ok {
            if *step == Step::FlushFlash {
                self.durable = self.durable.max(running.sequence + 1);
            }
            self.cache.on(Event::Done(step), &mut self.planned);
        } else {
            if let Some(device) = changed(step).or(flushed(step)) {
                self.stopped.get_or_insert(device);
            }
            self.cache.on(Event::Failed { step, missing: false }, &mut self.planned);
        }
        assert!(self.planned.is_empty(), "what became of a step gets no steps as its answer");
    }
}
