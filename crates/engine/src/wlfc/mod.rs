//! The engine of WLFC: performs the steps that it plans, as many at a time as their order allows.
//!
//! As the [engine](crate::engine) of the log it does no I/O and knows no clock: it hands out transfers and is told when they are done.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | plans: requests and what the cache does by itself |
//! | `memory.rs` | the memory of a plan |
//! | `order.rs` | which steps wait for which |
//! | `perform.rs` | what each step does |
//! | `start.rs` | reading what a flash holds |
//!
//! A block that cannot be read makes the requests fail that want it, and no other: what is programmed in its place says that it never came.
//! Once something fails that would have changed flash or backend, nothing changes them any more: the cache is found again by a start.

mod memory;
mod order;
mod perform;
pub mod start;

use std::collections::VecDeque;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::wlfc::{Log, State, Step, Wlfc};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::disk::{Operation as DiskOperation, Transfer};
use crate::engine::hazard::StepId;
use crate::engine::{Answered, Clients, Faults, Output, insert, kind, leave_out_flushes};
use crate::export::{Done, Error, Operation, Request};
use crate::memory::Memory;
use memory::Regions;
use order::Order;
use start::Started;

/// How the engine behaves, beyond the cache's own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// Which start of the cache this is.
    pub run: u64,
    /// How many times a transfer that fails is tried again.
    pub retries: u8,
    /// Whether buckets are zones.
    pub zoned: bool,
    /// Blocks that cannot be read are left out of what is written back, rather than that everything stops: only where nothing counts as
    /// written back before all is known to be.
    pub skips_bad: bool,
    /// Answers flushes, and writes that must be durable, as soon as they come: shows that tests would find it. Never in service.
    pub answers_flushes_at_once: bool,
}

/// What a unit of a plan is.
#[derive(Debug)]
enum Work {
    Step(Step),
    /// The answer waits for flushes that other plans began.
    Await,
}

#[derive(Debug)]
struct Running {
    work: Work,
    plan: u32,
    /// The request that waits for this step.
    request: Option<u32>,
    /// Steps that this one waits for.
    waiting: u32,
    dependents: SmallVec<[StepId; 2]>,
    /// A step that it waited for failed.
    doomed: bool,
    /// What it reads of the flash the backend has too.
    clean: bool,
    /// The backend is read in place of the flash.
    falls_back: bool,
    retries: u8,
    /// What is to be transferred after this, last first.
    next: Vec<Part>,
    /// The number of what is programmed; what a flush covers.
    sequence: u64,
    /// Memory of its own.
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Plan {
    regions: Regions,
    /// Steps that are not done.
    unfinished: u32,
    /// What it counts of the bytes that plans take.
    bytes: u64,
}

/// A piece of a step that is transferred.
#[derive(Clone, Debug)]
struct Part {
    disk: usize,
    operation: DiskOperation,
    offset: u64,
    length: u64,
    buffers: SmallVec<[crate::disk::Buffer; 2]>,
}

/// What is known of a cache bucket on flash.
#[derive(Clone, Debug)]
struct OnFlash {
    /// The state of what was planned to be programmed last.
    state: State,
    /// The checksum of the header that was programmed last.
    last: u32,
    /// What was programmed and may not be durable: its number, and the page behind it.
    volatile: VecDeque<(u64, u32)>,
    /// Pages that are durable.
    durable_end: u32,
}

/// A WLFC and all that is under way for it: takes requests and ended transfers, and answers with transfers and replies.
pub struct Engine<C = Wlfc> {
    cache: C,
    settings: Settings,
    /// Pages and blocks of a bucket.
    bucket_pages: u32,
    bucket_blocks: u32,
    /// Bytes of a cache bucket.
    unit_bytes: u64,
    order: Order,
    steps: Vec<Option<Running>>,
    free_steps: Vec<StepId>,
    plans: Vec<Option<Plan>>,
    free_plans: Vec<u32>,
    clients: Clients,
    ready: VecDeque<StepId>,
    running: usize,
    /// Bytes that plans take.
    planned_bytes: u64,
    /// Checksums of the data in each page of the flash, ...
    checksums: Vec<u32>,
    /// ... except for these, whose data never came.
    absent: FxHashSet<u32>,
    on_flash: Vec<OnFlash>,
    /// Buckets that were reset, where no flush was planned since.
    reset: FxHashSet<u32>,
    /// The frames of the read cache in RAM, and those whose content never came.
    ram: Option<Memory>,
    bad_frames: FxHashSet<u32>,
    /// The number of what is programmed next, and below which everything is durable.
    sequence: u64,
    durable: u64,
    /// The device whose failure has stopped everything: the flash, as 0, or the backend, as 1.
    stopped: Option<usize>,
    /// Blocks that could not be read from flash and that the backend does not have.
    unreadable: FxHashSet<u64>,
    transfers: FxHashMap<u64, (StepId, Part)>,
    next_tag: u64,
    outgoing: Vec<(StepId, Part)>,
    answers: Vec<(Done, Result<Vec<u8>, Error>)>,
    answered: Vec<Answered>,
    planned: Vec<Step>,
    faults: Faults,
}

impl<C: std::fmt::Debug> std::fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("cache", &self.cache).field("running", &self.running).finish_non_exhaustive()
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// An engine for a cache and what a start found on its flash.
    pub fn new(cache: C, settings: Settings, started: Started) -> Engine<C> {
        let geometry = cache.geometry();
        let bucket_pages = started.unit_pages;
        let ram = cache.frame_count();
        let mut engine = Engine {
            bucket_pages,
            bucket_blocks: geometry.unit_pages,
            unit_bytes: u64::from(bucket_pages) * perform::BLOCK,
            order: Order::new(geometry.unit_pages, settings.zoned),
            steps: Vec::new(),
            free_steps: Vec::new(),
            plans: Vec::new(),
            free_plans: Vec::new(),
            clients: Clients::default(),
            ready: VecDeque::new(),
            running: 0,
            planned_bytes: 0,
            checksums: started.checksums,
            absent: started.absent,
            on_flash: started.on_flash,
            reset: FxHashSet::default(),
            ram: (ram > 0).then(|| Memory::new(ram as usize)),
            bad_frames: FxHashSet::default(),
            sequence: 0,
            durable: 0,
            stopped: None,
            unreadable: FxHashSet::default(),
            transfers: FxHashMap::with_hasher(FxBuildHasher),
            next_tag: 1,
            outgoing: Vec::new(),
            answers: Vec::new(),
            answered: Vec::new(),
            planned: Vec::new(),
            faults: Faults::default(),
            cache,
            settings,
        };
        // What a process that died has written to the backend may be in its volatile cache, of which this one's flushes would not know.
        let mut steps = vec![Step::FlushBackend];
        steps.extend(started.steps);
        engine.enqueue_plan(&mut steps, None, false);
        engine.run_ready();
        engine
    }

    /// The cache.
    pub fn cache(&self) -> &C {
        &self.cache
    }

    /// Steps that are not done.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Bytes of memory that plans take which are not done.
    pub fn planned_bytes(&self) -> u64 {
        self.planned_bytes
    }

    /// Requests that are under way.
    pub fn requests(&self) -> usize {
        self.clients.len()
    }

    /// Failures since the start.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Whether something failed that would have changed the flash, as 0, or the backend, as 1: every request fails.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// Below which number everything that this run programmed is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The blocks whose only copy could not be read, in order.
    pub fn unreadable(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.unreadable.iter().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// Whether the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.order.is_written(block.into()) || self.cache.is_newer_than_backend(block)
    }

    /// Starts to write back everything that is dirty.
    pub fn destage_all(&mut self, now_us: u64) {
        self.plan_background(Event::DestageAll { now_us });
    }

    /// Starts what a server that ends in order leaves behind.
    pub fn close(&mut self, now_us: u64) {
        self.plan_background(Event::Close { now_us });
    }

    fn plan_background(&mut self, event: Event<'_, Step>) {
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(event, &mut steps);
        self.enqueue_plan(&mut steps, None, false);
        self.planned = steps;
        self.run_ready();
    }

    /// Starts a request at a time; its range lies within the volume.
    pub fn submit(&mut self, mut request: Request, done: Done, now_us: u64) {
        if self.settings.answers_flushes_at_once && leave_out_flushes(&mut request) {
            self.answers.push((done, Ok(Vec::new())));
            return;
        }
        let Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let number = self.clients.insert(request, done, now_us);
        let whole =
            cache::Request { caching, ..cache::Request::whole(kind(operation), offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        let durable = operation == Operation::Flush || force_unit_access && operation != Operation::Read;
        self.enqueue_plan(&mut steps, Some(number), durable);
        self.planned = steps;
        self.clients.get_mut(number).planned = true;
        self.run_ready();
        self.answer_if_complete(number);
    }

    fn plan(&mut self, number: u32) -> &mut Plan {
        self.plans[number as usize].as_mut().expect("a plan is there until its steps are done")
    }

    fn step(&mut self, id: StepId) -> &mut Running {
        self.steps[id as usize].as_mut().expect("a step is there until it is done")
    }

    /// Enters the steps of a plan; those before the `Reply` are waited for by the `request`.
    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, durable: bool) {
        if steps.is_empty() {
            return;
        }
        let mut regions = Regions::default();
        for step in steps.iter() {
            if let Some((block, blocks)) = blocks_of(step, self.bucket_blocks) {
                regions.add_use(block, blocks, self.bucket_blocks);
            }
        }
        let bytes = if request.is_some() { regions.bytes() } else { 0 };
        self.planned_bytes += bytes;
        // One more until all are entered.
        let plan = insert(&mut self.plans, &mut self.free_plans, Plan { regions, unfinished: 1, bytes });
        let mut entered = Entered::default();
        let mut client = request;
        for step in steps.drain(..) {
            match step {
                Step::Reply => {
                    if durable && client.is_some() {
                        self.enqueue(Work::Await, plan, client, &mut entered);
                    }
                    client = None;
                }
                Step::Append { bucket, page: 0, .. } if self.reset.contains(&bucket) => {
                    // What the bucket held must not come back once it is written over.
                    self.enqueue(Work::Step(Step::FlushFlash), plan, client, &mut entered);
                    self.enqueue(Work::Step(step), plan, client, &mut entered);
                }
                step => self.enqueue(Work::Step(step), plan, client, &mut entered),
            }
        }
        self.end_of_plan(plan);
    }

    fn end_of_plan(&mut self, number: u32) {
        let plan = self.plan(number);
        plan.unfinished -= 1;
        if plan.unfinished == 0 {
            let bytes = plan.bytes;
            self.planned_bytes -= bytes;
            self.plans[number as usize] = None;
            self.free_plans.push(number);
        }
    }

    fn enqueue(&mut self, work: Work, plan: u32, request: Option<u32>, entered: &mut Entered) {
        let running = Running {
            work: Work::Await,
            plan,
            request,
            waiting: 0,
            dependents: SmallVec::new(),
            doomed: false,
            clean: false,
            falls_back: false,
            retries: self.settings.retries,
            next: Vec::new(),
            sequence: 0,
            memory: None,
        };
        let id = insert(&mut self.steps, &mut self.free_steps, running);
        self.running += 1;
        self.plan(plan).unfinished += 1;
        if let Some(request) = request {
            self.clients.get_mut(request).pending += 1;
        }
        let mut waits: SmallVec<[StepId; 8]> = SmallVec::new();
        entered.enter(id, &work, |step| waits.push(step));
        match &work {
            Work::Await => waits.extend(self.order.flushes()),
            Work::Step(step) => {
                self.order.register(id, step, |step| waits.push(step));
                self.note_planned(id, step);
            }
        }
        self.step(id).work = work;
        waits.sort_unstable();
        waits.dedup();
        let mut waiting = 0;
        for other in waits {
            // Those that are done are known by the order of the plan alone.
            if let Some(other) = self.steps[other as usize].as_mut().filter(|_| other != id) {
                other.dependents.push(id);
                waiting += 1;
            }
        }
        self.step(id).waiting = waiting;
        if waiting == 0 {
            self.ready.push_back(id);
        }
    }

    /// What a step means for steps that are planned after it.
    fn note_planned(&mut self, id: StepId, step: &Step) {
        match *step {
            Step::Append { bucket, page, oob, .. } => {
                self.sequence += 1;
                let on_flash = &mut self.on_flash[bucket as usize];
                if page == 0 {
                    on_flash.state = oob.state;
                }
            }
            Step::Reset { bucket } => drop(self.reset.insert(bucket)),
            Step::FlushFlash => self.reset.clear(),
            Step::ReadFlash { bucket, .. } => {
                let clean = self.on_flash[bucket as usize].state == State::Read;
                self.step(id).clean = clean;
            }
            _ => {}
        }
        let sequence = self.sequence;
        self.step(id).sequence = sequence;
    }

    fn answer_if_complete(&mut self, number: u32) {
        let Some(client) = self.clients.take_complete(number) else { return };
        let (answered, done, result) = client.answer();
        self.answered.push(answered);
        self.answers.push((done, result));
    }

    /// The disk and the operation of a transfer that has not ended.
    pub fn transfer_of(&self, tag: u64) -> (usize, DiskOperation) {
        let (_, part) = &self.transfers[&tag];
        (part.disk, part.operation)
    }

    /// What is to be done after calls: transfers, and answers to give.
    pub fn take_output(&mut self, output: &mut Output) {
        for (step, part) in self.outgoing.drain(..) {
            let tag = self.next_tag;
            self.next_tag += 1;
            output.transfers.push(Transfer {
                tag,
                disk: part.disk,
                operation: part.operation,
                offset: part.offset,
                length: part.length,
                buffers: part.buffers.to_vec(),
            });
            self.transfers.insert(tag, (step, part));
        }
        output.answers.append(&mut self.answers);
        output.answered.append(&mut self.answered);
    }

    /// Is told that a transfer ended.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let (id, part) = self.transfers.remove(&tag).expect("a transfer ends once");
        self.part_completed(id, part, result);
        self.run_ready();
    }
}

/// The blocks of memory that a step uses.
fn blocks_of(step: &Step, bucket_blocks: u32) -> Option<(u64, u32)> {
    let bytes = |offset: u64, length: u32| {
        let (first, end) = (offset / perform::BLOCK, (offset + u64::from(length)).div_ceil(perform::BLOCK));
        Some((first, (end - first) as u32))
    };
    match *step {
        Step::Receive { offset, length } | Step::Send { offset, length } | Step::Zero { offset, length } => {
            bytes(offset, length)
        }
        Step::ReadRam { block, .. } | Step::KeepInRam { block, .. } => Some((block, 1)),
        Step::ReadFlash { block, blocks, .. }
        | Step::ReadBackend { block, blocks }
        | Step::WriteBackend { block, blocks } => Some((block, blocks)),
        Step::Append { oob, .. } if oob.log == Log::Data => {
            Some((u64::from(oob.backend) * u64::from(bucket_blocks) + u64::from(oob.at), oob.blocks))
        }
        Step::Append { .. }
        | Step::ZeroBackend { .. }
        | Step::FlushFlash
        | Step::FlushBackend
        | Step::Reset { .. }
        | Step::Fail
        | Step::Reply => None,
    }
}

/// The steps of a plan that were entered last: reads of different blocks are done at the same time.
#[derive(Debug, Default)]
struct Entered {
    /// Reads that go on together, with the blocks that they read.
    together: Vec<(StepId, u64, u32)>,
    /// What they all wait for.
    before: SmallVec<[StepId; 4]>,
}

impl Entered {
    fn enter(&mut self, id: StepId, work: &Work, mut after: impl FnMut(StepId)) {
        let read = match work {
            Work::Step(Step::ReadFlash { block, blocks, .. } | Step::ReadBackend { block, blocks }) => {
                Some((*block, *blocks))
            }
            _ => None,
        };
        let apart = |(block, blocks): (u64, u32)| {
            let (end, other_end) = (block + u64::from(blocks), |first: u64, count: u32| first + u64::from(count));
            self.together
                .iter()
                .all(|&(_, first, count)| count > 0 && (end <= first || other_end(first, count) <= block))
        };
        match read {
            Some((block, blocks)) if apart((block, blocks)) => self.together.push((id, block, blocks)),
            _ => {
                self.before = self.together.drain(..).map(|(id, ..)| id).collect();
                let (block, blocks) = read.unwrap_or((0, 0));
                self.together.push((id, block, blocks));
            }
        }
        self.before.iter().for_each(|step| after(*step));
    }
}
