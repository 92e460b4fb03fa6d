//! The layout of buckets, WLFC: steps of blocks that a plan has side by side in memory.
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
//! | `transfers.rs` | which transfers are joined |
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
mod driver;
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
use std::marker::PhantomData;

use flashwise_core::cache::{Cache, Event};
use flashwise_core::format::{Digest, RunEnd, Witness};
use flashwise_core::order::{Bond, Order, StepId};
use flashwise_core::wlfc::header::Crc;
use flashwise_core::wlfc::{BACKEND, FLASH, Shape, State, Step, Wlfc};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::disk::Operation;
pub use crate::engine::Settings;
use crate::engine::{self, Asked, Client, Joining, Layout, Part, insert};
use crate::export::{Done, Error, Request};
use crate::memory::Memory;
use ahead::Ahead;
use checksums::{Checksums, HeaderPages};
pub(crate) use driver::open;
pub use failures::Failures;
use memory::{Regions, blocks_of};
use order::{Entered, Resets};
use start::Started;

/// Backend buckets that could not be written and are tried again, each time that it is looked at what is due.
const TRIALS_MAX: usize = 4;

/// The engine of buckets.
pub type Engine<C = Wlfc> = engine::Engine<Buckets<C>>;
type Running<C> = engine::Running<Buckets<C>>;

/// A step of the engine.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// One of the plan.
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

/// The state of an unfinished step of buckets.
#[derive(Debug)]
pub struct StepState {
    plan: u32,
    /// The number of the request that it is part of, if that is answered before it is done.
    answered: Option<u64>,
    /// What the bucket of the flash that it reads holds.
    holds: State,
    /// The backend is read in place of the flash.
    falls_back: bool,
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

impl<C: Cache<Step = Step>> Running<C> {
    /// True if it does what a client asked for: not what follows from it.
    fn is_asked_for(&self) -> bool {
        self.request.is_some() || self.state.answered.is_some()
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

/// The layout of buckets.
pub struct Buckets<C = Wlfc> {
    /// Pages and blocks of a bucket.
    bucket_pages: u32,
    bucket_blocks: u32,
    /// Bytes of a cache bucket.
    unit_bytes: u64,
    shape: Shape,
    resets: Resets,
    plans: Vec<Option<Plan>>,
    free_plans: Vec<u32>,
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
    /// What [`pause`](Engine::pause) saw and said last.
    seen: u64,
    noted: u64,
    /// The device whose failure has stopped everything: the flash, as 0, or the backend, as 1.
    stopped: Option<usize>,
    /// A flush of the backend has failed.
    backend_flush_failed: bool,
    failures: Failures,
    /// Cache buckets that failed before, and are not reset.
    worn: BTreeSet<u32>,
    /// Reads that wait for the answers of changes, each with the time at which it came.
    delayed: Vec<(Request, Done, Asked, u64)>,
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
    /// Steps that wait for a header page of a bucket that another reads.
    reading: FxHashMap<(u32, u32), Vec<StepId>>,
    cache: PhantomData<fn(C)>,
}

impl<C: Cache<Step = Step>> Layout for Buckets<C> {
    type Cache = C;
    type Step = Work;
    type State = StepState;

    // Logs that are read together are next to each other on flash, with their headers.
    const SORTS: bool = true;

    fn admit(engine: &mut Engine<C>, request: Request, done: Done, asked: Asked, now_us: u64) {
        let left = if Self::may_plan(engine) { engine.without_flushes(request, done) } else { Some((request, done)) };
        if let Some((request, done)) = left {
            engine.admit(request, done, asked, now_us);
        }
    }

    fn begins(engine: &mut Engine<C>, client: &mut Client) {
        if client.asked.again {
            engine.layout.ahead.begin(client.asked.number);
        }
        client.alone = client.request.is_flush() && !engine.clients.any_changes();
    }

    fn plan_request(engine: &mut Engine<C>, number: u32, now_us: u64) {
        engine.plan_whole(number, now_us);
    }

    fn enter(engine: &mut Engine<C>, steps: &mut Vec<Step>) {
        engine.enqueue_plan(steps, None, false);
    }

    fn may_plan(engine: &Engine<C>) -> bool {
        engine.layout.stopped.is_none()
    }

    fn start(engine: &mut Engine<C>, id: StepId) {
        engine.perform(id);
    }

    fn part_completed(engine: &mut Engine<C>, part: Part, result: Result<(), Error>) {
        engine.part_ended(part, result);
    }

    fn ended(
        engine: &mut Engine<C>,
        id: StepId,
        running: &mut Running<C>,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        engine.step_ended(id, running, result)
    }

    fn settled(engine: &mut Engine<C>, running: &Running<C>, result: Result<(), Error>) {
        engine.end_of_plan(running.state.plan);
        if let (Some(number), Ok(())) = (running.state.answered, result) {
            engine.layout.ahead.end(number);
        }
        if let Some(request) = running.request {
            let client = engine.clients.get_mut(request);
            if let Work::Step(step) = &running.step {
                client.passed |= perform::goes_past(step);
                client.incomplete |= result.is_err() && step.flushes().is_none();
            }
        }
    }

    fn conclude(engine: &mut Engine<C>, client: Client) {
        engine.answer(client);
    }

    /// What is programmed is tried again together, in order.
    fn splits(operation: Operation) -> bool {
        operation == Operation::Read
    }

    fn continues(engine: &Engine<C>, joining: &Joining, part: &Part) -> Option<u64> {
        engine.layout.gap_before(joining, part)
    }

    fn before_output(engine: &mut Engine<C>) {
        if engine.layout.stopped.is_some() && !engine.layout.postponed.is_empty() {
            // Nothing moves any more, and what did not is where it was.
            let postponed = std::mem::take(&mut engine.layout.postponed);
            postponed.into_iter().for_each(|id| engine.finish(id, Err(Error::Io)));
            engine.run_ready();
        }
        engine.admit_delayed();
        if engine.running() == 0 && engine.is_given_up() {
            engine.lose_answered();
        }
    }

    fn may_hand_back(engine: &Engine<C>) -> bool {
        engine.running() == 0
    }

    fn advance(engine: &mut Engine<C>, now_us: u64) {
        for _ in 0..TRIALS_MAX {
            if engine.cache.next_tick_us(now_us).is_some() {
                engine.plan_background(Event::Tick { now_us });
            }
        }
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// An engine for a cache and what a start found on its flash.
    pub fn new(cache: C, settings: Settings, started: Started) -> Engine<C> {
        let geometry = cache.geometry();
        let bucket_pages = started.unit_pages;
        let ram = cache.frame_count();
        let layout = Buckets {
            bucket_pages,
            bucket_blocks: geometry.unit_pages,
            unit_bytes: u64::from(bucket_pages) * memory::BLOCK,
            shape: Shape { bucket_pages, bucket_blocks: geometry.unit_pages, zoned: settings.zoned },
            resets: Resets::default(),
            plans: Vec::new(),
            free_plans: Vec::new(),
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
            delayed: Vec::new(),
            ahead: Ahead::default(),
            unreadable: started.unreadable,
            reread: 0,
            postponed: Vec::new(),
            lossy: BTreeSet::new(),
            waits: false,
            frozen: false,
            holds_frozen: false,
            reading: FxHashMap::default(),
            cache: PhantomData,
        };
        let mut engine = engine::Engine::with(cache, settings, layout, Order::new(ram), transfers::GAP_PAGES_MAX);
        let mut steps = started.steps;
        engine.enqueue_plan(&mut steps, None, false);
        engine.run_ready();
        engine
    }

    /// Bytes of memory that plans take which are not done.
    pub fn planned_bytes(&self) -> u64 {
        self.layout.planned_bytes
    }

    /// Requests that are under way.
    pub fn requests(&self) -> usize {
        self.clients.len() + self.layout.delayed.len()
    }

    /// Asked once in a while: up to where what this run programmed is durable, if nothing was programmed since it was asked before and it has not
    /// said so yet. If nothing is under way, it flushes programs and resets that are not durable.
    pub fn pause(&mut self) -> Option<BucketsEnd> {
        let seen = std::mem::replace(&mut self.layout.seen, self.layout.sequence);
        if self.layout.stopped.is_some() || self.layout.waits || self.running() > 0 {
            return None;
        }
        let quiet = seen == self.layout.sequence && self.layout.noted < self.layout.durable;
        let end = quiet.then(|| {
            self.layout.noted = self.layout.durable;
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
        self.layout.sequence == 0 || self.layout.durable > self.layout.sequence
    }

    /// Up to where what this run programmed is durable.
    pub fn end(&self) -> BucketsEnd {
        let Settings { start, found_again, .. } = self.settings;
        let run = start::run(start, found_again);
        let is_durable = self.is_durable();
        let last = self.layout.programmed.filter(|_| is_durable);
        let values = || {
            (0..)
                .zip(&self.layout.on_flash)
                .map(|(bucket, of)| if self.layout.worn.contains(&bucket) { 0 } else { of.last })
        };
        let digest = (is_durable && !self.layout.frozen).then(|| Digest::new(run, self.layout.sequence + 1, values()));
        BucketsEnd { run: RunEnd { run, sequence: self.layout.durable, last }, digest }
    }

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.is_written(block.into()) || self.cache.is_newer_than_backend(block)
    }

    fn plan(&mut self, number: u32) -> &mut Plan {
        self.layout.plans[number as usize].as_mut().expect("a plan is there until its steps are done")
    }

    /// Enters the steps of a plan; those before the `Reply` are waited for by the `request`, but for those that are [done after](ahead::is_done_after)
    /// a change was answered which need not be `durable` then.
    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, durable: bool) {
        if steps.is_empty() {
            return;
        }
        let mut regions = Regions::default();
        for step in steps.iter() {
            if let Some((block, blocks)) = blocks_of(step, self.layout.bucket_blocks) {
                regions.add_use(block, blocks, self.layout.bucket_blocks);
            }
        }
        let bytes = if request.is_some() { regions.bytes() } else { 0 };
        self.layout.planned_bytes += bytes;
        // One more until all are entered.
        let moves = steps.iter().any(|step| matches!(step, Step::Append { .. } | Step::WriteBackend { .. }));
        let plan =
            insert(&mut self.layout.plans, &mut self.layout.free_plans, Plan { regions, unfinished: 1, bytes, moves });
        let mut entered = Entered::default();
        let mut client = request.map_or(AskedBy::NoOne, AskedBy::Waits);
        let waited_for = self.waited_for(steps, request, durable);
        for (at, step) in steps.drain(..).enumerate() {
            if let (Some(request), true) = (request, at == waited_for && !durable) {
                client = AskedBy::Answered(self.clients.get(request).asked.number);
            }
            match step {
                Step::Reply => {
                    if durable && request.is_some() {
                        self.enqueue(Work::Await, plan, client, &mut entered);
                    }
                    client = AskedBy::NoOne;
                }
                Step::Append { bucket, page: 0, .. } if self.layout.resets.lacks_flush(bucket) => {
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
            self.layout.planned_bytes -= bytes;
            self.layout.plans[number as usize] = None;
            self.layout.free_plans.push(number);
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
        let (request, answered) = match asked_by {
            AskedBy::NoOne => (None, None),
            AskedBy::Waits(request) => (Some(request), None),
            AskedBy::Answered(number) => (None, Some(number)),
        };
        let state = StepState {
            plan,
            answered,
            holds: State::Write,
            falls_back: false,
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
        let id = self.add(work, request, state);
        self.plan(plan).unfinished += 1;
        answered.into_iter().for_each(|number| self.layout.ahead.begin(number));
        let mut waits: SmallVec<[StepId; 8]> = SmallVec::new();
        entered.enter(id, &work, |step| waits.push(step));
        match &work {
            Work::Await => waits.extend([FLASH, BACKEND].into_iter().filter_map(|device| self.order.last(device))),
            Work::Step(step) => {
                self.register(id, step, &mut waits);
                self.note_planned(id, step);
            }
        }
        waits.sort_unstable();
        waits.dedup();
        // Those that are done are known by the order of the plan alone.
        waits.retain(|other| *other != id && self.steps[*other as usize].is_some());
        let is_asked_for = !matches!(asked_by, AskedBy::NoOne);
        let bond = |other: &Running<C>| {
            // What others do that relies on it is not begun: the cache is found again.
            // What follows the answer does not need what the client alone has asked for.
            let needs = other.state.plan == plan && (is_asked_for || !other.is_asked_for());
            if needs { Bond::Needs } else { Bond::Follows }
        };
        let waits: SmallVec<[(StepId, Bond); 8]> =
            waits.into_iter().map(|other| (other, bond(self.peek(other)))).collect();
        self.wait_for(id, waits.into_iter());
    }

    /// What a step means for steps that are planned after it.
    fn note_planned(&mut self, id: StepId, step: &Step) {
        match *step {
            Step::Append { bucket, page, oob, .. } => {
                self.layout.sequence += 1;
                let witness = Witness { bucket, epoch: oob.epoch, page };
                self.step(id).state.before = self.layout.programmed.replace(witness);
                let on_flash = &mut self.layout.on_flash[bucket as usize];
                if page == 0 {
                    on_flash.state = oob.state;
                }
            }
            Step::ReadFlash { bucket, .. } => {
                self.step(id).state.holds = self.layout.on_flash[bucket as usize].state;
            }
            // A mark says when its bucket was reset.
            Step::Reset { .. } => self.layout.sequence += 1,
            _ => {}
        }
        let sequence = self.layout.sequence;
        self.step(id).state.sequence = sequence;
    }
}
