//! The layout of buckets, WLFC: the steps of a plan work on adjacent blocks in memory.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | plans: requests and background work of the cache |
//! | `ahead.rs` | changes that are acknowledged before they are appended |
//! | `memory.rs` | the memory of a plan |
//! | `order.rs` | the order of steps |
//! | `plans.rs` | the unfinished plans |
//! | `failures.rs` | the failures of the flash |
//! | `perform.rs` | the execution of each step |
//! | `read.rs` | the header pages, and the checksums that reads need |
//! | `read_steps.rs` | the execution of reads, and failed ones |
//! | `programs.rs` | the order of programs, and their durable end |
//! | `transfers.rs` | the joining of transfers |
//! | `started.rs` | the state at a start |
//! | `checksums.rs` | the location of checksums |
//!
//! An unreadable block fails only the requests that need it. If other data is programmed with it, its place is marked
//! as missing.
//!
//! If a device fails that the cache relies on, nothing new begins. The cache is recovered from flash, as after a crash
//! of the process, and the next engine avoids the failure. Requests without a reply are handed back and made again.

mod ahead;
pub mod checksums;
mod failures;
mod memory;
mod order;
mod perform;
mod plans;
mod programs;
mod read;
mod read_steps;
mod started;
mod transfers;

use std::collections::BTreeSet;
use std::marker::PhantomData;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::format::Witness;
use flashwise_core::order::{Bond, Order, StepId, Use};
use flashwise_core::wlfc::header::Crc;
use flashwise_core::wlfc::{BACKEND, FLASH, Scan, Shape, State, Step, Wlfc};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

pub use crate::engine::Settings;
use crate::engine::{self, Asked, Client, Joining, Layout, Meaning, Part};
use crate::memory::Memory;
use crate::request::{self, Done, Error, Request};
use crate::transfer::Operation;
use ahead::Ahead;
use checksums::HeaderPages;
pub use failures::Failures;
use memory::{Regions, blocks_of};
use order::{Entered, Resets};
use plans::{Plans, UnfinishedPlan};
pub use programs::BucketsEnd;
use programs::Programs;
use read::Reads;
pub use started::{OnFlash, Started, mark, run};

/// Maximum number of failing backend buckets that are tried again in each round of background work.
const TRIALS_MAX: usize = 4;

/// Maximum memory of requests in progress, in bytes, besides one more request.
const BYTES_MAX: u64 = 64 << 20;

/// The engine of buckets.
pub type Engine<C = Wlfc> = engine::Engine<Buckets<C>>;
type Running<C> = engine::Running<Buckets<C>>;

/// A step of the engine.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// One of the plan.
    Step(Step),
    /// The reply waits for flushes of other plans.
    Await,
}

/// The request that a step belongs to.
#[derive(Clone, Copy, Debug)]
enum AskedBy {
    /// A consequence of a request.
    NoOne,
    /// A client waits for the step.
    Waits(u32),
    /// A client got its reply before the step is done. The number is that of the request.
    Answered(u64),
}

/// The state of an unfinished step of buckets.
#[derive(Debug, Default)]
pub struct StepState {
    plan: u32,
    /// The number of its request, if the reply comes before the step is done.
    answered: Option<u64>,
    /// The state of the flash bucket that it reads.
    holds: State,
    /// True if the backend is read instead of the flash.
    falls_back: bool,
    /// True while a probe tests if the flash is readable at all.
    probes: bool,
    /// The remaining transfers, last first.
    next: Vec<Part>,
    /// True if its blocks are read one by one.
    apart: bool,
    /// True if a part of its read of the backend failed.
    unread: bool,
    /// The checksums of its read of the flash that are known so far.
    expected: SmallVec<[Crc; 4]>,
    /// The header page that is being read for more checksums, and whether it is read together with the data.
    header: Option<(u32, bool)>,
    /// The number of the program, or of the last program that a flush covers.
    sequence: u64,
    /// The previous program.
    before: Option<Witness>,
    /// Its own memory.
    memory: Option<Memory>,
}

impl<C: Cache<Step = Step>> Running<C> {
    /// True if a client requested it. False for consequences.
    fn is_asked_for(&self) -> bool {
        self.request.is_some() || self.state.answered.is_some()
    }
}

/// The layout of buckets.
pub struct Buckets<C = Wlfc> {
    /// Number of pages and blocks of a bucket.
    bucket_pages: u32,
    bucket_blocks: u32,
    /// Size of a cache bucket in bytes.
    unit_bytes: u64,
    shape: Shape,
    resets: Resets,
    plans: Plans,
    reads: Reads,
    programs: Programs,
    /// The frames of the read cache in RAM, and those without content.
    ram: Option<Memory>,
    bad_frames: FxHashSet<u32>,
    /// True if a flush of the backend has failed.
    backend_flush_failed: bool,
    failures: Failures,
    /// Reads that wait for the replies of changes, with their times of arrival.
    delayed: Vec<(Request, Done, Asked, u64)>,
    ahead: Ahead,
    cache: PhantomData<fn(C)>,
}

impl<C: Cache<Step = Step>> Layout for Buckets<C> {
    type Cache = C;
    type Step = Work;
    type State = StepState;

    // Logs that are read together are adjacent on flash, with their headers.
    const SORTS: bool = true;

    /// Another plan that relies on a failed step does not begin, because the cache is recovered first. So bonds follow
    /// from the plans of both steps.
    #[inline]
    fn uses(&self, _cache: &C, work: &Work, state: &StepState, mut each: impl FnMut(Use, Bond)) {
        match work {
            Work::Await => [FLASH, BACKEND].into_iter().for_each(|device| each(Use::After(device), Bond::Follows)),
            Work::Step(step) => {
                step.uses(self.shape, |used| each(used, Bond::Follows));
                if let (true, Step::ReadFlash { block, .. }) = (state.falls_back, step) {
                    each(Use::ReadBlock(self.shape.bucket_of(*block)), Bond::Follows);
                }
            }
        }
    }

    fn planned(work: &Work) -> Option<&Step> {
        match work {
            Work::Step(step) => Some(step),
            Work::Await => None,
        }
    }

    /// A read waits if it depends on a change without a reply, because it must not return content of a change that then
    /// fails.
    fn admit(engine: &mut Engine<C>, request: Request, done: Done, asked: Asked, now_us: u64) {
        if request.operation == request::Operation::Read && engine.clients.is_being_changed(&request) {
            engine.layout.delayed.push((request, done, asked, now_us));
        } else {
            engine.begin_request(request, done, asked, now_us);
        }
    }

    fn begins(engine: &mut Engine<C>, client: &mut Client) {
        if client.asked.again {
            engine.layout.ahead.begin(client.asked.number);
        }
        client.alone = client.request.is_flush() && !engine.clients.any_changes();
    }

    fn plan_request(engine: &mut Engine<C>, number: u32, now_us: u64) {
        let request = &engine.clients.get(number).request;
        let durable = request.makes_durable();
        let &Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let kind = engine::kind(operation);
        let whole = cache::Request { caching, ..cache::Request::whole(kind, offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut engine.planned);
        engine.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        engine.enqueue_plan(&mut steps, Some(number), durable);
        engine.planned = steps;
    }

    fn enter(engine: &mut Engine<C>, steps: &mut Vec<Step>, request: Option<u32>, _base: u32) {
        engine.enqueue_plan(steps, request, false);
    }

    fn is_full(engine: &Engine<C>, _for_reads: bool) -> bool {
        engine.layout.plans.bytes() + engine.layout.ahead.bytes() > BYTES_MAX
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
        engine.layout.plans.step_ended(running.state.plan);
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

    /// The cache does not rely on changes past it: the client gets an error, or they are tried again.
    fn meaning(work: &Work) -> Meaning {
        let Work::Step(step) = work else { return Meaning::Local };
        let device = step.changes().or(step.flushes()).filter(|_| !perform::goes_past(step));
        device.map_or(Meaning::Local, |device| {
            Meaning::Stops(if device == FLASH { engine::FLASH } else { engine::BACKEND })
        })
    }

    fn concludes(engine: &mut Engine<C>, client: &mut Client) {
        if client.error.is_none() && client.request.makes_durable() && engine.layout.ahead.has_lost() {
            (client.error, client.is_own) = (Some(Error::Io), true);
        }
    }

    /// Data of a failed flush of the backend is lost, and later changes may have replaced it.
    fn is_repeatable(engine: &Engine<C>, client: &Client) -> bool {
        let is_gone = client.passed && !client.incomplete && !client.asked.again && engine.layout.backend_flush_failed;
        !client.is_own && !is_gone
    }

    fn repeat(engine: &mut Engine<C>, client: Client) -> Vec<(Request, Done)> {
        engine.layout.ahead.repeat(client)
    }

    fn change_answered(engine: &mut Engine<C>, number: u64, change: Request) {
        engine.layout.ahead.answered(number, change).iter().for_each(|change| engine.clients.make(change));
    }

    fn own_ended(engine: &mut Engine<C>, number: u64, request: Request, succeeded: bool) {
        match succeeded {
            _ if !request.changes() => {}
            true => Self::change_answered(engine, number, request),
            false => engine.layout.ahead.lose(number, request),
        }
        engine.layout.ahead.end(number);
    }

    fn read_again(engine: &mut Engine<C>, part: Part) {
        engine.read_flash(part.step);
    }

    fn unreadable(engine: &Engine<C>) -> Vec<u64> {
        engine.layout.failures.unreadable.iter().copied().collect()
    }

    /// Programs are retried together, in order.
    fn splits(operation: Operation) -> bool {
        operation == Operation::Read
    }

    fn continues(&self, joining: &Joining, part: &Part) -> Option<u64> {
        self.gap_before(joining, part)
    }

    fn before_output(engine: &mut Engine<C>) {
        // The changes that they waited for may be answered now.
        for (request, done, asked, now_us) in std::mem::take(&mut engine.layout.delayed) {
            engine.admit(request, done, asked, now_us);
        }
        if engine.running() == 0 && engine.recovery.is_given_up() {
            engine.layout.ahead.give_up();
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
    /// Creates an engine from a cache and the result of a start.
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
            plans: Plans::default(),
            reads: Reads::new(started.headers, geometry.units * bucket_pages, bucket_pages, &settings),
            programs: Programs::new(started.on_flash),
            ram: (ram > 0).then(|| Memory::with_blank(ram as usize, if settings.blank { ram as usize } else { 0 })),
            bad_frames: FxHashSet::default(),
            backend_flush_failed: false,
            failures: Failures::new(started.worn, started.unreadable),
            delayed: Vec::new(),
            ahead: Ahead::default(),
            cache: PhantomData,
        };
        let mut engine = engine::Engine::with(cache, settings, layout, Order::new(ram), transfers::GAP_PAGES_MAX);
        let mut steps = started.steps;
        engine.enqueue_plan(&mut steps, None, false);
        engine.run_ready();
        engine
    }

    /// Number of requests in progress.
    pub fn requests(&self) -> usize {
        self.clients.len() + self.layout.delayed.len()
    }

    /// Called periodically. Returns the durable end of this run, if it is new and nothing was programmed since the last
    /// call. If no transfer is in progress, also flushes programs and resets that are not durable.
    pub fn pause(&mut self) -> Option<BucketsEnd> {
        let is_quiet = self.layout.programs.pause();
        if !self.recovery.works() || self.running() > 0 {
            return None;
        }
        let end = (is_quiet && self.layout.programs.note()).then(|| self.end());
        if !self.is_durable() {
            self.enqueue_plan(&mut vec![Step::FlushFlash], None, false);
            self.run_ready();
        }
        end
    }

    /// True if all programs and resets of this run are durable.
    pub fn is_durable(&self) -> bool {
        self.layout.programs.is_durable()
    }

    /// Returns the durable end of this run.
    pub fn end(&self) -> BucketsEnd {
        let Buckets { programs, failures, .. } = &self.layout;
        programs.end(&self.settings, &failures.worn, self.recovery.is_flash_failed())
    }

    /// True if the backend's copy of `block` is outdated or being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        let bucket = self.layout.shape.bucket_of(block.into());
        self.order.blocks().writer(bucket).is_some() || self.cache.is_newer_than_backend(block)
    }

    /// Returns the failures of the flash.
    pub fn failures(&self) -> &Failures {
        &self.layout.failures
    }

    /// Queues the steps of a plan. The `request` waits for the steps before the `Reply`. If it need not be `durable`,
    /// it does not wait for steps that may be [done after](ahead::is_done_after) the reply.
    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, durable: bool) {
        if steps.is_empty() {
            return;
        }
        let mut regions = Regions::new(self.settings.blank);
        for step in steps.iter() {
            if let Some((block, blocks)) = blocks_of(step, self.layout.bucket_blocks) {
                regions.add_use(block, blocks, self.layout.bucket_blocks);
            }
        }
        let bytes = if request.is_some() { regions.bytes() } else { 0 };
        // Counts one more until all steps are queued.
        let moves = steps.iter().any(|step| matches!(step, Step::Append { .. } | Step::WriteBackend { .. }));
        let plan = self.layout.plans.add(UnfinishedPlan { regions, unfinished: 1, bytes, moves });
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
                    // The old content must not reappear after the bucket was overwritten.
                    self.enqueue(Work::Step(Step::FlushFlash), plan, client, &mut entered);
                    self.enqueue(Work::Step(step), plan, client, &mut entered);
                }
                step => self.enqueue(Work::Step(step), plan, client, &mut entered),
            }
        }
        self.layout.plans.step_ended(plan);
    }

    /// Returns the number of first steps of a plan that the request waits for.
    fn waited_for(&self, steps: &[Step], request: Option<u32>, durable: bool) -> usize {
        let reply = steps.iter().position(|step| *step == Step::Reply).unwrap_or(steps.len());
        // Blocks that cannot be written back take room, which an acknowledged change might then lack.
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
        let state = StepState { plan, answered, holds: State::Write, ..StepState::default() };
        let id = self.add(work, request, state);
        self.layout.plans.get(plan).unfinished += 1;
        answered.into_iter().for_each(|number| self.layout.ahead.begin(number));
        let mut waits: SmallVec<[StepId; 8]> = SmallVec::new();
        entered.enter(id, &work, |step| waits.push(step));
        self.begin_uses(id, |step, _| waits.push(step));
        if let Work::Step(step) = &work {
            waits.extend(self.layout.resets.begin(id, step));
            self.layout.programs.plan(step, &mut self.steps.get_mut(id).state);
        }
        waits.sort_unstable();
        waits.dedup();
        // Finished steps remain only in the order of the plan.
        waits.retain(|other| *other != id && self.steps.find(*other).is_some());
        let is_asked_for = !matches!(asked_by, AskedBy::NoOne);
        let bond = |other: &Running<C>| {
            // Other plans that rely on it do not begin, because the cache is recovered first. Consequences of a request
            // do not depend on the steps for its client.
            let needs = other.state.plan == plan && (is_asked_for || !other.is_asked_for());
            if needs { Bond::Needs } else { Bond::Follows }
        };
        let waits: SmallVec<[(StepId, Bond); 8]> =
            waits.into_iter().map(|other| (other, bond(self.peek(other)))).collect();
        self.steps.wait_for(id, waits.into_iter());
    }

    /// Returns the memory of unfinished plans in bytes.
    pub fn planned_bytes(&self) -> u64 {
        self.layout.plans.bytes()
    }

    /// Returns the blocks whose only copy was unreadable, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        self.layout.failures.lost_blocks()
    }

    /// Returns the number of blocks that wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.layout.ahead.lost().count()
    }

    /// Returns the blocks whose newest content is only in memory or lost, in order.
    pub fn not_durable_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> =
            self.layout.failures.unreadable.iter().chain(self.layout.ahead.lost()).copied().collect();
        all.into_iter().collect()
    }

    /// Returns the acknowledged changes that could not be made, in order, restricted to lost blocks.
    pub fn unwritten(&self) -> Vec<Request> {
        self.layout.ahead.not_made()
    }

    /// Takes the acknowledged changes that could not be made, in order, restricted to lost blocks, to make them
    /// elsewhere.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        self.layout.ahead.take_not_made()
    }

    /// Makes the lost changes once nothing fails any more.
    pub fn make_what_was_lost(&mut self) {
        if !self.recovery.works() || self.cache.next_tick_us(u64::MAX).is_some() {
            return;
        }
        // A client's current change of these blocks is newer, and would be overwritten.
        let is_of_lost = |request: &Request| self.layout.ahead.lost_of(request.offset, request.length).next().is_some();
        if self.clients.requests().any(|request| request.changes() && is_of_lost(request)) {
            return;
        }
        for change in self.layout.ahead.take_not_made() {
            self.clients.make(&change);
            self.begin_own(change, 0);
        }
    }
}

impl Engine {
    /// Creates the engine that [continues](engine::Engine::continue_as) after `before`, whose cache was found again as
    /// `wlfc`. `settled` is true if the flash took the changes of the recovery.
    pub fn after(before: &Engine, mut wlfc: Wlfc, started: Started, settled: bool) -> Engine {
        wlfc.succeed(&before.cache);
        let settings = Settings { found_again: before.settings.found_again + 1, ..before.settings };
        let mut engine = Engine::new(wlfc, settings, started);
        // A later flush does not cover the data of a failed one.
        engine.layout.failures.flushes = !settled;
        engine.layout.failures.unreadable.extend(&before.layout.failures.unreadable);
        engine
    }

    /// Returns the contents of a bucket that this engine knows, if it knows them.
    pub fn remembered(&self, bucket: u32) -> Option<Scan> {
        let OnFlash { epoch, end, .. } = self.layout.programs.on_flash[bucket as usize];
        self.cache.remembered(bucket, epoch, end)
    }

    /// Returns the number of backend buckets that are not written back, because the flash has lost some of their dirty
    /// blocks.
    pub fn lossy(&self) -> usize {
        self.layout.failures.lossy(self.cache.failing(), self.layout.bucket_blocks)
    }

    /// Returns the header pages.
    pub fn headers(&self) -> &HeaderPages {
        &self.layout.reads.headers
    }

    /// Returns the failures that a successor takes over. Without unfinished steps.
    pub fn legacy(&self) -> engine::Legacy {
        let unreported = self.cache.owes_a_failed_flush().into();
        engine::Legacy { faults: self.faults, unreported, failed_flushes: 0 }
    }
}
