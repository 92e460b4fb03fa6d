//! The engine of WLFC: performs the steps that it plans, as many at a time as their order allows.
//!
//! As the [engine](crate::engine) of the log it does no I/O and knows no clock: it hands out transfers and is told when they are done.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | plans: requests and what the cache does by itself |
//! | `clients.rs` | requests of clients |
//! | `ahead.rs` | changes that are answered before they are appended |
//! | `memory.rs` | the memory of a plan |
//! | `order.rs` | which steps wait for which |
//! | `perform.rs` | what each step does |
//! | `read.rs` | reads of the flash, and what they are compared with |
//! | `failed_reads.rs` | what becomes of reads that failed |
//! | `transfers.rs` | what is handed out to devices |
//! | `start.rs` | what a flash holds, at a start and formatted |
//! | `start/scan.rs` | reading it |
//! | `mended.rs` | reading a flash of which some bits are wrong |
//! | `again.rs` | going on where something failed |
//! | `checksums.rs` | where the checksums of data are |
//!
//! A block that cannot be read makes the requests fail that want it, and no other: what is programmed in its place says that it never came.
//! Once something fails that the cache relies on, nothing is begun any more: the cache is found again from what is on flash, as after a crash
//! of the process, and its next engine is told what to go around. Requests that were not answered are handed back, and are made again.

pub mod again;
mod ahead;
pub mod checksums;
mod clients;
mod failed_reads;
mod failures;
pub(crate) mod made_up;
mod memory;
pub(crate) mod mended;
mod order;
mod perform;
mod read;
pub mod start;
mod transfers;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use flashwise_core::cache::{Cache, Event};
use flashwise_core::format::{Digest, RunEnd, Witness};
use flashwise_core::wlfc::{BACKEND, FLASH, Shape, State, Step, Wlfc};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::engine::{Answered, Clients, Faults, OfBuckets, insert};
use crate::export::{Done, Error, Request};
use crate::memory::Memory;
use ahead::Ahead;
use checksums::{Checksums, HeaderPages};
pub use failures::Failures;
use flashwise_core::order::{Order, StepId};
use flashwise_core::wlfc::header::Crc;
use memory::{Regions, blocks_of};
use order::{Entered, Resets};
use start::Started;
use transfers::Part;

/// Backend buckets that could not be written and are tried again, each time that it is looked at what is due.
const TRIALS_MAX: usize = 4;

/// How the engine behaves, beyond the cache's own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// Which start of the cache this is, ...
    pub start: u64,
    /// ... and how many times it was found again since.
    pub found_again: u32,
    /// How many times a transfer that fails is tried again.
    pub retries: u8,
    /// How many times after that what is to be moved is read again, [after a while](Engine::read_later), before it counts as lost.
    pub patience: u8,
    /// After how long a bucket is read again that cannot be read where the cache is found again.
    pub read_pause: Duration,
    /// True if buckets are zones.
    pub zoned: bool,
    /// Blocks that cannot be read are left out of what is written back, rather than that everything stops: only where nothing counts as
    /// written back before all is known to be.
    pub skips_bad: bool,
    /// True if requests that fail because the cache has to be found again are [handed back](crate::engine::Output::held) rather than answered.
    pub holds_failed: bool,
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

/// Whose request a step is part of.
#[derive(Clone, Copy, Debug)]
enum AskedBy {
    /// It follows from one.
    NoOne,
    /// A client that waits for it.
    Waits(u32),
    /// A client that is answered before it is done, as the request of this number.
    Answered(u64),
}

#[derive(Debug)]
struct Running {
    work: Work,
    plan: u32,
    asked_by: AskedBy,
    /// Steps that this one waits for.
    waiting: u32,
    dependents: SmallVec<[StepId; 2]>,
    /// A step that it waited for failed.
    doomed: bool,
    /// What the bucket of the flash that it reads holds.
    state: State,
    /// The backend is read in place of the flash.
    falls_back: bool,
    retries: u8,
    patience: u8,
    /// True if the flash can be read at all is being tried.
    probes: bool,
    /// What is to be transferred after this, last first.
    next: Vec<Part>,
    /// Its blocks are read one by one.
    apart: bool,
    /// Some of what it reads of the backend did not come.
    unread: bool,
    /// Of what it reads of the flash, the checksums so far, ...
    expected: SmallVec<[Crc; 4]>,
    /// ... and the header page that is read for more of them, and whether it is read with the data.
    header: Option<(u32, bool)>,
    /// The number of what is programmed; what a flush covers.
    sequence: u64,
    /// What was programmed before.
    before: Option<Witness>,
    /// Memory of its own.
    memory: Option<Memory>,
}

impl Running {
    /// The request that waits for it.
    fn request(&self) -> Option<u32> {
        match self.asked_by {
            AskedBy::Waits(request) => Some(request),
            AskedBy::NoOne | AskedBy::Answered(_) => None,
        }
    }

    /// True if it does what a client asked for: not what follows from it.
    fn is_asked_for(&self) -> bool {
        !matches!(self.asked_by, AskedBy::NoOne)
    }
}

#[derive(Debug)]
struct Plan {
    regions: Regions,
    /// Steps that are not done.
    unfinished: u32,
    /// What it counts of the bytes that plans take.
    bytes: u64,
    /// It puts blocks elsewhere, where they were then forgotten: in a copy, on the backend, or in the log with what a client changes of them.
    moves: bool,
}

/// What is known of a cache bucket on flash.
#[derive(Clone, Debug)]
struct OnFlash {
    /// The state of what was planned to be programmed last, ...
    state: State,
    /// ... and the epoch of what was programmed.
    epoch: u64,
    /// The checksum of the header that was programmed last.
    last: u32,
    /// What was programmed and may not be durable: its number, and the page behind it.
    volatile: VecDeque<(u64, u32)>,
    /// Pages that are durable.
    durable_end: u32,
    /// Pages that are programmed.
    end: u32,
}

/// The durable end of a run, with the digest of all buckets if everything is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketsEnd {
    /// The end of the run.
    pub run: RunEnd,
    /// The digest of the buckets.
    pub digest: Option<Digest>,
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
    shape: Shape,
    order: Order,
    resets: Resets,
    steps: Vec<Option<Running>>,
    free_steps: Vec<StepId>,
    plans: Vec<Option<Plan>>,
    free_plans: Vec<u32>,
    clients: Clients,
    ready: VecDeque<StepId>,
    running: usize,
    /// Bytes that plans take.
    planned_bytes: u64,
    /// Which pages are headers, and the checksums of data that were used last.
    headers: HeaderPages,
    checksums: Checksums,
    on_flash: Vec<OnFlash>,
    /// The frames of the read cache in RAM, and those whose content never came.
    ram: Option<Memory>,
    bad_frames: FxHashSet<u32>,
    /// The number of what was programmed or reset last, and below which everything is durable.
    sequence: u64,
    durable: u64,
    /// What was planned to be programmed last.
    programmed: Option<Witness>,
    /// What [`pause`](Self::pause) saw and said last.
    seen: u64,
    noted: u64,
    /// The device whose failure has stopped everything: the flash, as 0, or the backend, as 1.
    stopped: Option<usize>,
    /// A flush of the backend has failed.
    backend_flush_failed: bool,
    failures: Failures,
    /// Cache buckets that failed before, and are not reset.
    worn: BTreeSet<u32>,
    requests: u64,
    held: Vec<(u64, Request, Done)>,
    /// Reads that wait for the answers of changes, each with the time at which it came.
    delayed: Vec<(Request, Done, OfBuckets, u64)>,
    ahead: Ahead,
    /// Blocks that could not be read from flash and that the backend does not have.
    unreadable: FxHashSet<u64>,
    /// Which of them is read again next.
    reread: u64,
    /// Reads of the flash that are put off.
    postponed: Vec<StepId>,
    /// First blocks of what was not written back, as some of it is lost.
    lossy: BTreeSet<u64>,
    /// The flash cannot be read for now: all requests fail until the cache is found again.
    waits: bool,
    /// Nothing is written to the flash any more since the cache was found again, ...
    frozen: bool,
    /// ... and requests that fail are handed back.
    holds_frozen: bool,
    transfers: FxHashMap<u64, SmallVec<[(StepId, Part); 1]>>,
    next_tag: u64,
    outgoing: Vec<(StepId, Part)>,
    /// Where what is between pages goes that are read together: nobody looks at it, so that transfers share it.
    gap: Memory,
    /// Steps that wait for a header page of a bucket that another reads.
    reading: FxHashMap<(u32, u32), Vec<StepId>>,
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
            unit_bytes: u64::from(bucket_pages) * memory::BLOCK,
            shape: Shape { bucket_pages, bucket_blocks: geometry.unit_pages, zoned: settings.zoned },
            order: Order::new(ram),
            resets: Resets::default(),
            steps: Vec::new(),
            free_steps: Vec::new(),
            plans: Vec::new(),
            free_plans: Vec::new(),
            clients: Clients::default(),
            ready: VecDeque::new(),
            running: 0,
            planned_bytes: 0,
            checksums: Checksums::new(geometry.units * bucket_pages),
            headers: started.headers,
            on_flash: started.on_flash,
            ram: (ram > 0).then(|| Memory::new(ram as usize)),
            bad_frames: FxHashSet::default(),
            sequence: 0,
            durable: 0,
            programmed: None,
            seen: 0,
            noted: 0,
            stopped: None,
            backend_flush_failed: false,
            failures: Failures::default(),
            worn: started.worn,
            requests: 0,
            held: Vec::new(),
            delayed: Vec::new(),
            ahead: Ahead::default(),
            unreadable: started.unreadable,
            reread: 0,
            postponed: Vec::new(),
            lossy: BTreeSet::new(),
            waits: false,
            frozen: false,
            holds_frozen: false,
            transfers: FxHashMap::with_hasher(FxBuildHasher),
            next_tag: 1,
            outgoing: Vec::new(),
            gap: Memory::new(transfers::GAP_PAGES_MAX),
            reading: FxHashMap::default(),
            answers: Vec::new(),
            answered: Vec::new(),
            planned: Vec::new(),
            faults: Faults::default(),
            cache,
            settings,
        };
        let mut steps = started.steps;
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
        self.clients.len() + self.delayed.len()
    }

    /// Failures since the start.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Asked once in a while: up to where what this run programmed is durable, if nothing was programmed since it was asked before and it has not
    /// said so yet. If nothing is under way, it flushes programs and resets that are not durable.
    pub fn pause(&mut self) -> Option<BucketsEnd> {
        let seen = std::mem::replace(&mut self.seen, self.sequence);
        if self.stopped.is_some() || self.waits || self.running > 0 {
            return None;
        }
        let quiet = seen == self.sequence && self.noted < self.durable;
        let end = quiet.then(|| {
            self.noted = self.durable;
            self.end()
        });
        if !self.is_durable() {
            self.enqueue_plan(&mut vec![Step::FlushFlash], None, false);
            self.run_ready();
        }
        end
    }

    /// True if all programs and resets of this run are durable.
    fn is_durable(&self) -> bool {
        self.sequence == 0 || self.durable > self.sequence
    }

    /// Up to where what this run programmed is durable.
    pub fn end(&self) -> BucketsEnd {
        let Settings { start, found_again, .. } = self.settings;
        let run = start::run(start, found_again);
        let is_durable = self.is_durable();
        let last = self.programmed.filter(|_| is_durable);
        let values =
            || (0..).zip(&self.on_flash).map(|(bucket, of)| if self.worn.contains(&bucket) { 0 } else { of.last });
        let digest = (is_durable && !self.frozen).then(|| Digest::new(run, self.sequence + 1, values()));
        BucketsEnd { run: RunEnd { run, sequence: self.durable, last }, digest }
    }

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.is_written(block.into()) || self.cache.is_newer_than_backend(block)
    }

    /// Starts to write back everything that is dirty.
    pub fn destage_all(&mut self, now_us: u64) {
        self.plan_background(Event::DestageAll { now_us });
    }

    /// Starts what a server that ends in order leaves behind.
    pub fn close(&mut self, now_us: u64) {
        self.plan_background(Event::Close { now_us });
    }

    /// Does what is due.
    pub fn advance(&mut self, now_us: u64) {
        for _ in 0..TRIALS_MAX {
            if self.cache.next_tick_us(now_us).is_some() {
                self.plan_background(Event::Tick { now_us });
            }
        }
    }

    fn plan_background(&mut self, event: Event<'_, Step>) {
        if self.stopped.is_some() {
            return;
        }
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(event, &mut steps);
        self.enqueue_plan(&mut steps, None, false);
        self.planned = steps;
        self.run_ready();
    }

    fn plan(&mut self, number: u32) -> &mut Plan {
        self.plans[number as usize].as_mut().expect("a plan is there until its steps are done")
    }

    fn step(&mut self, id: StepId) -> &mut Running {
        self.steps[id as usize].as_mut().expect("a step is there until it is done")
    }

    /// Enters the steps of a plan; those before the `Reply` are waited for by the `request`, but for those that are [done after](ahead::is_done_after)
    /// a change was answered which need not be `durable` then.
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
        let moves = steps.iter().any(|step| matches!(step, Step::Append { .. } | Step::WriteBackend { .. }));
        let plan = insert(&mut self.plans, &mut self.free_plans, Plan { regions, unfinished: 1, bytes, moves });
        let mut entered = Entered::default();
        let mut client = request.map_or(AskedBy::NoOne, AskedBy::Waits);
        let waited_for = self.waited_for(steps, request, durable);
        for (at, step) in steps.drain(..).enumerate() {
            if let (Some(request), true) = (request, at == waited_for && !durable) {
                client = AskedBy::Answered(self.clients.get(request).of_buckets.number);
            }
            match step {
                Step::Reply => {
                    if durable && request.is_some() {
                        self.enqueue(Work::Await, plan, client, &mut entered);
                    }
                    client = AskedBy::NoOne;
                }
                Step::Append { bucket, page: 0, .. } if self.resets.lacks_flush(bucket) => {
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

    /// How many of the first steps of a plan the request waits for.
    fn waited_for(&self, steps: &[Step], request: Option<u32>, durable: bool) -> usize {
        let reply = steps.iter().position(|step| *step == Step::Reply).unwrap_or(steps.len());
        // What cannot be written back takes room that an answered change might not find.
        let may_wait = request.is_some_and(|request| self.clients.get(request).request.changes())
            && self.cache.next_tick_us(u64::MAX).is_none();
        if !may_wait || durable {
            return reply;
        }
        steps[..reply].iter().rposition(|step| !ahead::is_done_after(step)).map_or(0, |last| last + 1)
    }

    fn enqueue(&mut self, work: Work, plan: u32, asked_by: AskedBy, entered: &mut Entered) {
        let running = Running {
            work: Work::Await,
            plan,
            asked_by,
            waiting: 0,
            dependents: SmallVec::new(),
            doomed: false,
            state: State::Write,
            falls_back: false,
            retries: self.settings.retries,
            patience: self.settings.patience,
            probes: false,
            next: Vec::new(),
            apart: false,
            unread: false,
            expected: SmallVec::new(),
            header: None,
            sequence: 0,
            before: None,
            memory: None,
        };
        let id = insert(&mut self.steps, &mut self.free_steps, running);
        self.running += 1;
        self.plan(plan).unfinished += 1;
        match asked_by {
            AskedBy::NoOne => {}
            AskedBy::Waits(request) => self.clients.get_mut(request).pending += 1,
            AskedBy::Answered(number) => self.ahead.begin(number),
        }
        let mut waits: SmallVec<[StepId; 8]> = SmallVec::new();
        entered.enter(id, &work, |step| waits.push(step));
        match &work {
            Work::Await => waits.extend([FLASH, BACKEND].into_iter().filter_map(|device| self.order.last(device))),
            Work::Step(step) => {
                self.register(id, step, &mut waits);
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
                let witness = Witness { bucket, epoch: oob.epoch, page };
                self.step(id).before = self.programmed.replace(witness);
                let on_flash = &mut self.on_flash[bucket as usize];
                if page == 0 {
                    on_flash.state = oob.state;
                }
            }
            Step::ReadFlash { bucket, .. } => {
                self.step(id).state = self.on_flash[bucket as usize].state;
            }
            // A mark says when its bucket was reset.
            Step::Reset { .. } => self.sequence += 1,
            _ => {}
        }
        let sequence = self.sequence;
        self.step(id).sequence = sequence;
    }
}
