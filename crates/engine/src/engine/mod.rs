//! The engine: performs the steps that the cache plans, as many at a time as their order allows.
//!
//! Steps run out of order like instructions in a processor: each waits for the steps before it that use the same frame, backend
//! block or flash pages, and for the flushes that [`Step`] names. What comes of it is what would have come of them one by one.
//!
//! The engine knows no more of a cache than [`Cache`] says. It does no I/O and knows no clock: it hands out [`Transfer`]s and is told when they are [done](Engine::completed). The
//! server gives them to disks, the crash tests to a disk that fails in every way.

mod background;
mod hazard;
mod perform;
mod places;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use flashwise_core::cache::{self, Cache, Event, LogCache};
use flashwise_core::filter::Caching;
use flashwise_core::format::Record;
use flashwise_core::step::Step;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::disk::{Buffer, Operation as DiskOperation, Transfer};
use crate::export::{Done, Error, Operation, Request};
use crate::memory::Memory;
use background::Background;
use hazard::{Hazard, StepId};
use places::Places;

/// The disk number of the flash in transfers.
pub const FLASH: usize = 0;
/// The disk number of the backend in transfers.
pub const BACKEND: usize = 1;

/// Blocks that are transferred at once, at most.
const TRANSFER_BLOCKS: usize = 256;

/// How the engine behaves, beyond the cache's own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// The epoch of what is written.
    pub epoch: u64,
    /// How many times a transfer that fails is tried again.
    pub retries: u8,
    /// How many times a dirty block that is about to be moved and cannot be read is read again, whenever
    /// [`read_again`](Engine::read_again) says so, before it counts as lost.
    pub patience: u8,
    /// Whether requests that fail once the flash has failed are [handed back](Output::held) rather than answered.
    pub holds_failed: bool,
    /// Whether answers are held back as the cache asks.
    pub pauses: bool,
    /// Whether units are discarded when they are reset.
    pub discard: bool,
    /// Frames beyond the cache's own, so that quick steps need not wait for slow ones: about as many as blocks may be under way.
    pub spare_frames: u32,
    /// Answers flushes, and writes that must be durable, as soon as they come: shows that tests would find it. Never in service.
    pub answers_flushes_at_once: bool,
}

#[derive(Debug)]
struct Running {
    step: Step,
    /// The request that waits for this step.
    request: Option<u32>,
    /// Steps that this one waits for.
    waiting: u32,
    /// Steps that wait for this one.
    dependents: SmallVec<[(StepId, Bond); 2]>,
    /// A step that it needs failed.
    doomed: bool,
    /// A step that it trusts failed.
    doubtful: bool,
    /// The backend does not hold what it reads.
    stranded: bool,
    /// A read of the flash that became one of the backend.
    falls_back: bool,
    transfers: u8,
    /// The first failure of its transfers.
    error: Option<Error>,
    retries: u8,
    /// Further tries after some time.
    patience: u8,
    /// Errors that a client had heard of before.
    errors_before: Errors,
}

/// Errors that no request fails of by itself, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Errors {
    /// Flushes of the flash that failed, and writes to it.
    flash: u64,
    /// Flushes of the backend that failed, and writes that had been acknowledged.
    backend: u64,
}

/// What becomes of a step that waits for another one, if that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bond {
    /// Nothing.
    Follows,
    /// It fails too.
    Needs,
    /// It calls nothing clean.
    Trusts,
    /// The backend cannot stand in for the flash.
    Strands,
}

struct Client {
    data: Vec<u8>,
    reply: Vec<u8>,
    done: Option<Done>,
    pending: u32,
    /// All pieces are planned.
    planned: bool,
    error: Option<Error>,
    started_us: u64,
    operation: Operation,
    offset: u64,
    length: u64,
    force_unit_access: bool,
    /// It is not answered before this time.
    until_us: u64,
    caching: Caching,
}

#[derive(Debug, Default)]
struct FrameState {
    hazard: Hazard,
    /// Its content is not what it should be.
    bad: bool,
}

/// A piece of a transfer that is handed out next.
#[derive(Debug)]
struct Part {
    disk: usize,
    operation: DiskOperation,
    offset: u64,
    length: u64,
    buffers: SmallVec<[Buffer; 1]>,
    step: StepId,
    /// It gives way to others.
    background: bool,
}

/// What is transferred together.
type Group = SmallVec<[Part; 1]>;

/// An answered request, for latencies.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// What it was.
    pub operation: Operation,
    /// When it came.
    pub started_us: u64,
    /// Whether it failed.
    pub failed: bool,
}

/// The answer to a request that is not given before a time.
pub struct Paused {
    /// That time.
    pub until_us: u64,
    /// What was asked.
    pub answered: Answered,
    /// Who is to be told.
    pub done: Done,
    /// What.
    pub result: Result<Vec<u8>, Error>,
}

/// Failures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads of the flash that failed.
    pub flash_read_errors: u64,
    /// Blocks read from flash whose checksum was wrong.
    pub flash_checksum_errors: u64,
    /// Writes, flushes and resets of the flash that failed.
    pub flash_write_errors: u64,
    /// Reads of the backend that failed.
    pub backend_read_errors: u64,
    /// Writes and flushes of the backend that failed.
    pub backend_write_errors: u64,
}

/// A cache and all that is under way for it: takes requests and ended transfers, and answers with transfers and replies.
pub struct Engine<C = LogCache> {
    cache: C,
    settings: Settings,
    memory: Memory,
    checksums: Vec<u32>,
    places: Places,
    /// By place.
    frames: Vec<FrameState>,
    steps: Vec<Option<Running>>,
    free_steps: Vec<StepId>,
    clients: Vec<Option<Client>>,
    free_clients: Vec<u32>,
    ready: VecDeque<StepId>,
    backend: HashMap<u32, Hazard, FxBuildHasher>,
    /// Writes of the backend that are of no batch.
    backend_writes: FxHashSet<StepId>,
    /// Writes of the backend by batch.
    batch_writes: HashMap<u32, FxHashSet<StepId>, FxBuildHasher>,
    /// Segments being written: first and last slot.
    appends: Vec<(u32, u32, StepId)>,
    last_log: Option<StepId>,
    last_flash_flush: Option<StepId>,
    /// Of no batch.
    last_backend_flush: Option<StepId>,
    /// By batch.
    batch_flushes: HashMap<u32, StepId, FxBuildHasher>,
    background: Background,
    /// A batch ended, and others may begin.
    goes_on: bool,
    calm: bool,
    /// A step that writes or flushes the flash failed: no other begins.
    flash_failed: bool,
    /// What a client that flushes has to hear of.
    errors: Errors,
    /// Of how many of these one has heard.
    errors_reported: Errors,
    /// Reads that are tried again later.
    postponed: Vec<Part>,
    /// Requests that failed with the flash.
    held: Vec<(Request, Done)>,
    unit_records: Vec<Record>,
    outgoing: Vec<Part>,
    /// Parts that are not joined with others, because together they failed.
    alone: Vec<Part>,
    groups: HashMap<u64, Group, FxBuildHasher>,
    next_tag: u64,
    answers: Vec<(Done, Result<Vec<u8>, Error>)>,
    answered: Vec<Answered>,
    paused: Vec<Paused>,
    /// The time of the last call that told one.
    now_us: u64,
    planned: Vec<Step>,
    /// The list of the steps that a step waits for, between uses.
    waits: Vec<(StepId, Bond)>,
    faults: Faults,
    running: usize,
}

impl<C: std::fmt::Debug> std::fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("cache", &self.cache).field("running", &self.running).finish_non_exhaustive()
    }
}

/// What the engine wants done after it was called.
#[derive(Default)]
pub struct Output {
    /// Transfers to start, on [`FLASH`] and [`BACKEND`].
    pub transfers: Vec<Transfer>,
    /// Requests to answer.
    pub answers: Vec<(Done, Result<Vec<u8>, Error>)>,
    /// What was answered.
    pub answered: Vec<Answered>,
    /// Requests to answer later.
    pub paused: Vec<Paused>,
    /// Requests that failed because the flash failed, and are to be answered or made again, where
    /// [`holds_failed`](Settings::holds_failed) is set.
    pub held: Vec<(Request, Done)>,
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// An engine for a cache; `checksums` are those of the data in each slot of the flash, `head_records` the records of the unit that
    /// the log goes on in.
    pub fn new(cache: C, settings: Settings, checksums: Vec<u32>, head_records: Vec<Record>) -> Engine<C> {
        let geometry = cache.geometry();
        assert_eq!(checksums.len(), geometry.pages() as usize);
        let places = Places::new(cache.frame_count(), settings.spare_frames);
        let memory = Memory::new((places.count() + 1 + geometry.footer_pages()) as usize);
        Engine {
            cache,
            settings,
            memory,
            checksums,
            frames: (0..places.count()).map(|_| FrameState::default()).collect(),
            places,
            steps: Vec::new(),
            free_steps: Vec::new(),
            clients: Vec::new(),
            free_clients: Vec::new(),
            ready: VecDeque::new(),
            backend: HashMap::default(),
            backend_writes: FxHashSet::default(),
            batch_writes: HashMap::default(),
            appends: Vec::new(),
            last_log: None,
            last_flash_flush: None,
            last_backend_flush: None,
            batch_flushes: HashMap::default(),
            background: Background::default(),
            goes_on: false,
            calm: false,
            flash_failed: false,
            errors: Errors::default(),
            errors_reported: Errors::default(),
            postponed: Vec::new(),
            held: Vec::new(),
            unit_records: head_records,
            outgoing: Vec::new(),
            alone: Vec::new(),
            groups: HashMap::default(),
            next_tag: 1,
            answers: Vec::new(),
            answered: Vec::new(),
            paused: Vec::new(),
            now_us: 0,
            planned: Vec::new(),
            waits: Vec::new(),
            faults: Faults::default(),
            running: 0,
        }
    }

    /// The cache.
    pub fn cache(&self) -> &C {
        &self.cache
    }

    /// The cache, to change its settings.
    pub fn cache_mut(&mut self) -> &mut C {
        &mut self.cache
    }

    /// Whether the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.backend.contains_key(&block) || self.cache.is_newer_than_backend(block)
    }

    /// Whether a step failed that writes or flushes the flash: no other begins.
    pub fn has_flash_failed(&self) -> bool {
        self.flash_failed
    }

    /// Failures since the start.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Steps that are not done.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Steps that are not done and that others wait for: without those that write dirty blocks back, which wait for a slow backend.
    pub fn running_for_clients(&self) -> usize {
        let writes: usize = self.batch_writes.values().map(FxHashSet::len).sum();
        self.running.saturating_sub(2 * writes)
    }

    /// Requests that are under way.
    pub fn requests(&self) -> usize {
        self.clients.len() - self.free_clients.len()
    }

    /// Starts a request at a time; its range lies within the volume. Ticks that are due come first.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.advance(now_us);
        let Request { operation, offset, length, mut force_unit_access, data, caching } = request;
        if self.settings.answers_flushes_at_once {
            force_unit_access = false;
            if operation == Operation::Flush {
                self.answers.push((done, Ok(Vec::new())));
                return;
            }
        }
        let reply = if operation == Operation::Read { vec![0; length as usize] } else { Vec::new() };
        let client = Client {
            data,
            reply,
            done: Some(done),
            pending: 0,
            planned: false,
            error: None,
            started_us: now_us,
            operation,
            offset,
            length,
            force_unit_access,
            until_us: 0,
            caching,
        };
        let number = match self.free_clients.pop() {
            Some(number) => {
                self.clients[number as usize] = Some(client);
                number
            }
            None => {
                self.clients.push(Some(client));
                (self.clients.len() - 1) as u32
            }
        };
        let pieces = cache::Request::pieces(kind(operation), offset, length, force_unit_access);
        for piece in pieces.of_client(caching) {
            let mut steps = std::mem::take(&mut self.planned);
            self.cache.on(Event::Request { request: &piece, now_us }, &mut steps);
            self.enqueue_plan(&mut steps, Some(number), (piece.offset - offset) as u32);
            self.planned = steps;
        }
        let client = self.client(number);
        client.planned = true;
        self.run_ready();
        self.go_on();
        self.answer_if_complete(number);
    }

    /// Makes the ticks that are due up to a time. What they do does not depend on when this is called, as long as it is called before
    /// the next request, which [`submit`](Self::submit) sees to.
    pub fn advance(&mut self, now_us: u64) {
        while let Some(tick_us) = self.cache.next_tick_us(now_us) {
            self.tick(tick_us);
        }
    }

    /// Does what is due at a time.
    pub fn tick(&mut self, now_us: u64) {
        self.plan_background(Event::Tick { now_us });
    }

    /// Starts what a server that ends in order leaves behind.
    pub fn close(&mut self, now_us: u64) {
        self.plan_background(Event::Close { now_us });
    }

    /// Starts to write back everything that is dirty.
    pub fn destage_all(&mut self, now_us: u64) {
        self.plan_background(Event::DestageAll { now_us });
    }

    /// Starts to write back what a flash that failed does not hold durably; only once the flash is durably detached.
    pub fn destage_rest(&mut self, now_us: u64) {
        self.plan_background(Event::DestageRest { now_us });
    }

    fn plan_background(&mut self, event: Event<'_>) {
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(event, &mut steps);
        self.enqueue_plan(&mut steps, None, 0);
        self.planned = steps;
        self.run_ready();
    }

    /// Tells the cache what became of a step.
    fn tell(&mut self, event: Event<'_>) {
        self.cache.on(event, &mut self.planned);
        assert!(self.planned.is_empty(), "what became of a step gets no steps as its answer");
    }

    /// Lets the cache go on after batches ended. Not while a plan is being entered, whose steps come before.
    fn go_on(&mut self) {
        while !self.calm && std::mem::take(&mut self.goes_on) {
            self.plan_background(Event::GoOn);
        }
    }

    fn client(&mut self, number: u32) -> &mut Client {
        self.clients[number as usize].as_mut().expect("a request is there until it is answered")
    }

    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, base: u32) {
        let mut client = request;
        for mut step in steps.drain(..) {
            match &mut step {
                Step::Reply => {
                    client = None;
                    continue;
                }
                Step::Receive { from, .. } => *from += base,
                Step::Send { to, .. } => *to += base,
                Step::Pause { until_us } => {
                    if let Some(client) = client
                        && self.settings.pauses
                    {
                        let client = self.client(client);
                        client.until_us = client.until_us.max(*until_us);
                    }
                    continue;
                }
                _ => {}
            }
            self.place_frames(&mut step);
            let waits = client.filter(|_| step.is_awaited());
            if !self.try_at_once(&step, client) {
                self.enqueue(step, waits);
            }
        }
    }

    fn enqueue(&mut self, step: Step, request: Option<u32>) {
        let running = Running {
            step,
            request,
            waiting: 0,
            dependents: SmallVec::new(),
            doomed: false,
            doubtful: false,
            stranded: false,
            falls_back: false,
            transfers: 0,
            error: None,
            retries: self.settings.retries,
            patience: self.settings.patience,
            errors_before: self.errors_reported,
        };
        let id = match self.free_steps.pop() {
            Some(id) => {
                self.steps[id as usize] = Some(running);
                id
            }
            None => {
                self.steps.push(Some(running));
                (self.steps.len() - 1) as StepId
            }
        };
        self.running += 1;
        if let Some(request) = request {
            self.client(request).pending += 1;
        }
        let mut waits = std::mem::take(&mut self.waits);
        self.register(id, &mut waits);
        let waiting = waits.len() as u32;
        for (other, bond) in waits.drain(..) {
            self.step(other).dependents.push((id, bond));
        }
        self.waits = waits;
        self.step(id).waiting = waiting;
        if waiting == 0 {
            self.ready.push_back(id);
            // Transfers of steps that could start are handed out in the order of the plan.
            self.run_ready();
        }
    }

    fn step(&mut self, id: StepId) -> &mut Running {
        self.steps[id as usize].as_mut().expect("the step is not done")
    }

    /// Records what the step uses; adds the steps that it waits for.
    fn register(&mut self, id: StepId, waits: &mut Vec<(StepId, Bond)>) {
        let mut after = |step: StepId| waits.push((step, Bond::Follows));
        let step = &self.steps[id as usize].as_ref().expect("the step was just made").step;
        let mut follows_flash = false;
        let frames = &mut self.frames;
        match step {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
            }
            Step::Send { frame, .. } => frames[frame.number as usize].hazard.read(id, &mut after),
            Step::Copy { from, to, .. } => {
                frames[from.number as usize].hazard.read(id, &mut after);
                frames[to.number as usize].hazard.write(id, &mut after);
            }
            Step::ReadFlash { block, slot, frame, dirty } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
                if !dirty {
                    // Where it may fall back to the backend.
                    self.backend.entry(*block).or_default().read(id, |write| waits.push((write, Bond::Strands)));
                }
                // What is on the page if the append fails belongs to another block.
                let appends = self.appends.iter().filter(|(first, last, _)| (*first..=*last).contains(slot));
                waits.extend(appends.map(|&(.., append)| (append, Bond::Needs)));
            }
            Step::ReadBackend { block, frame } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
                // After a write that failed, the backend may hold less than what was acknowledged.
                self.backend.entry(*block).or_default().read(id, |write| waits.push((write, Bond::Needs)));
            }
            Step::WriteBackend { block, frame, batch, .. } => {
                frames[frame.number as usize].hazard.read(id, &mut after);
                self.backend.entry(*block).or_default().write(id, &mut after);
                match batch {
                    Some(batch) => self.batch_writes.entry(*batch).or_default().insert(id),
                    None => self.backend_writes.insert(id),
                };
                follows_flash = true;
            }
            Step::ZeroBackend { block, count, .. } => {
                for block in *block..*block + *count {
                    self.backend.entry(block).or_default().write(id, &mut after);
                }
                self.backend_writes.insert(id);
                follows_flash = true;
            }
            Step::Append(segment) => {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    frames[record.frame.number as usize].hazard.read(id, &mut after);
                }
                self.last_log.replace(id).into_iter().for_each(&mut after);
                let first = self.cache.geometry().slot(segment.unit, segment.page);
                self.appends.push((first, first + segment.data_pages, id));
                waits.extend(self.last_backend_flush.map(|flush| (flush, Bond::Trusts)));
                follows_flash = true;
            }
            Step::Witness(_) => {
                self.last_log.replace(id).into_iter().for_each(&mut after);
                follows_flash = true;
            }
            Step::ResetUnit { unit } => {
                self.last_log.replace(id).into_iter().for_each(&mut after);
                // Units are reset so seldom that to look at all steps then costs less than to know the readers of each.
                let unit_pages = self.cache.geometry().unit_pages;
                let reads = |running: &Running| matches!(running.step, Step::ReadFlash { slot, .. } if slot / unit_pages == *unit);
                let steps = self.steps.iter().zip(0..);
                let readers =
                    steps.filter(|(running, _)| running.as_ref().is_some_and(reads)).map(|(_, reader)| reader);
                readers.for_each(&mut after);
                follows_flash = true;
            }
            Step::FlushFlash { .. } => {
                self.last_log.into_iter().for_each(&mut after);
                waits.extend(self.last_flash_flush.replace(id).map(|flush| (flush, Bond::Needs)));
            }
            Step::FlushBackend { batch: None } => {
                self.backend_writes.iter().copied().for_each(&mut after);
                self.last_backend_flush.replace(id).into_iter().for_each(after);
            }
            Step::FlushBackend { batch: Some(batch) } => {
                self.batch_writes.get(batch).into_iter().flatten().copied().for_each(&mut after);
                self.batch_flushes.insert(*batch, id);
            }
            Step::Destaged { batch } => {
                waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
                waits.extend(self.batch_flushes.get(batch).map(|&flush| (flush, Bond::Needs)));
            }
            Step::AwaitFlushes => {
                waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
                waits.extend(self.last_backend_flush.map(|flush| (flush, Bond::Needs)));
            }
            Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
        if follows_flash {
            waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
        }
    }

    /// Takes the step out of what it used.
    fn unregister(&mut self, id: StepId, step: &Step) {
        match step {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } | Step::Send { frame, .. } => {
                self.end_frame(id, *frame);
            }
            Step::Copy { from, to, .. } => {
                self.end_frame(id, *from);
                self.end_frame(id, *to);
            }
            Step::ReadFlash { frame, block, dirty, .. } => {
                self.end_frame(id, *frame);
                if !dirty {
                    self.end_backend(*block, id);
                }
            }
            Step::ReadBackend { block, frame } => {
                self.end_frame(id, *frame);
                self.end_backend(*block, id);
            }
            Step::WriteBackend { block, frame, batch, .. } => {
                self.end_frame(id, *frame);
                self.end_backend(*block, id);
                self.backend_writes.remove(&id);
                if let Some(batch) = batch
                    && let Some(writes) = self.batch_writes.get_mut(batch)
                {
                    writes.remove(&id);
                    if writes.is_empty() {
                        self.batch_writes.remove(batch);
                    }
                }
            }
            Step::ZeroBackend { block, count, .. } => {
                for block in *block..*block + *count {
                    self.end_backend(block, id);
                }
                self.backend_writes.remove(&id);
            }
            Step::Append(segment) => {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    self.end_frame(id, record.frame);
                }
                self.appends.retain(|&(.., append)| append != id);
                self.last_log.take_if(|last| *last == id);
            }
            Step::ResetUnit { .. } | Step::Witness(_) => {
                self.last_log.take_if(|last| *last == id);
            }
            Step::FlushFlash { .. } => {
                self.last_flash_flush.take_if(|last| *last == id);
            }
            Step::FlushBackend { batch: None } => {
                self.last_backend_flush.take_if(|last| *last == id);
            }
            Step::FlushBackend { batch: Some(batch) } => {
                self.batch_flushes.remove(batch);
            }
            Step::Destaged { .. } | Step::AwaitFlushes | Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
    }

    fn end_backend(&mut self, block: u32, id: StepId) {
        if let Some(hazard) = self.backend.get_mut(&block) {
            hazard.end(id);
            if hazard.is_idle() {
                self.backend.remove(&block);
            }
        }
    }

    /// The disk and the operation of a transfer that has not ended.
    pub fn transfer_of(&self, tag: u64) -> (usize, DiskOperation) {
        let part = &self.groups[&tag][0];
        (part.disk, part.operation)
    }

    /// Is told that a transfer ended; `Err` is what clients are told if that cannot be mended.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let parts = self.groups.remove(&tag).expect("a transfer ends once");
        if parts[0].disk == BACKEND {
            self.background.ended(&parts[0]);
        }
        if result.is_err() && parts.len() > 1 {
            // Which of them failed is found out one by one.
            self.alone.extend(parts);
            return;
        }
        for part in parts {
            self.part_completed(part, result);
        }
        self.run_ready();
        self.go_on();
    }

    /// What is to be done after calls: transfers, and answers to give.
    pub fn take_output(&mut self, output: &mut Output) {
        for part in std::mem::take(&mut self.alone) {
            self.hand_out_group(&mut smallvec![part], &mut output.transfers);
        }
        self.hand_out(&mut output.transfers);
        self.hand_out_background(&mut output.transfers);
        output.answers.append(&mut self.answers);
        output.answered.append(&mut self.answered);
        output.paused.append(&mut self.paused);
        output.held.append(&mut self.held);
    }

    /// Tries those reads again that failed and were put off.
    pub fn read_again(&mut self) {
        self.outgoing.append(&mut self.postponed);
    }

    /// While it is calm, nothing more begins to be written back by itself.
    pub fn set_calm(&mut self, calm: bool) {
        self.calm = calm;
    }

    /// Requests that fail from now on are answered.
    pub fn stop_holding(&mut self) {
        self.settings.holds_failed = false;
    }

    /// Takes over from an engine that has ended all steps: failures of the backend that no client has heard of.
    pub fn succeed(&mut self, before: &Engine<C>) {
        self.errors.backend = before.errors.backend - before.errors_reported.backend;
        self.faults = before.faults;
    }

    fn answer_if_complete(&mut self, number: u32) {
        let Some(client) = &mut self.clients[number as usize] else { return };
        if client.pending > 0 || !client.planned {
            return;
        }
        let mut client = self.clients[number as usize].take().expect("checked above");
        self.free_clients.push(number);
        let done = client.done.take().expect("a request is answered once");
        let Client { operation, offset, length, force_unit_access, caching, data, .. } = client;
        let Client { started_us, error, reply, until_us, .. } = client;
        if error.is_some() && self.settings.holds_failed && self.flash_failed {
            let request = Request { operation, offset, length, force_unit_access, data, caching };
            self.held.push((request, done));
            return;
        }
        let answered = Answered { operation, started_us, failed: error.is_some() };
        let result = error.map_or(Ok(reply), Err);
        if until_us > self.now_us && result.is_ok() {
            self.paused.push(Paused { until_us, answered, done, result });
            return;
        }
        self.answered.push(answered);
        self.answers.push((done, result));
    }
}

/// What the cache calls an operation.
pub fn kind(operation: Operation) -> cache::Kind {
    match operation {
        Operation::Read => cache::Kind::Read,
        Operation::Write => cache::Kind::Write,
        Operation::Flush => cache::Kind::Flush,
        Operation::Trim => cache::Kind::Trim,
        Operation::WriteZeroes { may_punch_holes, .. } => cache::Kind::WriteZeroes { may_punch_holes },
        Operation::Cache => cache::Kind::Prefetch,
    }
}
