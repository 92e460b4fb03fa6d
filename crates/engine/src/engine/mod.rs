//! The engine: performs the steps that the cache plans, as many at a time as their order allows.
//!
//! Steps run out of order like instructions in a processor: each waits for the steps before it that use the same frame, backend
//! block or flash pages, and for the flushes that [`Step`] names. What comes of it is what would have come of them one by one.
//!
//! The engine knows no more of a cache than [`Cache`] says. It does no I/O and knows no clock: it hands out [`Transfer`]s and is told when they are [done](Engine::completed). The
//! server gives them to disks, the crash tests to a disk that fails in every way.

mod append;
mod background;
mod clients;
mod depth;
mod forward;
mod late;
mod order;
mod perform;
mod places;
mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod unwritten;

use std::collections::{HashMap, VecDeque};

use flashwise_core::cache::{Cache, Event, LogCache};
use flashwise_core::format::{Page, Place, Record};
use flashwise_core::order::{Bond, Order, StepId};
use flashwise_core::step::{BATCHES, Step};
use rustc_hash::FxBuildHasher;
use smallvec::{SmallVec, smallvec};

use crate::disk::{Operation as DiskOperation, Transfer};
use crate::export::{Done, Error, Request};
use crate::memory::Memory;
use background::Background;
pub use clients::{Answered, Paused};
pub(crate) use clients::{Client, Clients, OfBuckets, insert, kind, leave_out_flushes};
use perform::{Group, Part, is_awaited_flush};
use places::Places;
pub use settings::{Bug, Settings};
use unwritten::Unwritten;

/// The disk number of the flash in transfers.
pub const FLASH: usize = 0;
/// The disk number of the backend in transfers.
pub const BACKEND: usize = 1;

/// Blocks that are transferred at once, at most.
const TRANSFER_BLOCKS: usize = 256;

#[derive(Debug)]
struct Running {
    step: Step,
    /// The request that waits for this step.
    request: Option<u32>,
    /// No client that has no answer yet needs it.
    background: bool,
    /// It is part of a write that may yet be answered with an error.
    undecided: bool,
    /// Steps that this one waits for.
    waiting: u32,
    /// Steps that wait for this one.
    dependents: SmallVec<[(StepId, Bond); 2]>,
    /// A step that it needs failed.
    doomed: bool,
    /// A step that it trusts failed, or was late.
    doubtful: bool,
    /// When it was planned.
    planned_us: u64,
    /// The places of blocks that were late, if it is a segment: it goes without them.
    late: Vec<u32>,
    /// The backend does not hold what it reads.
    stranded: bool,
    /// A client's write, whose content it reads from memory, failed: it has not happened, and may not be seen.
    unseen: bool,
    /// The place in memory that has the content of the block that it reads, or will have it: it is part of a segment under way.
    source: Option<u32>,
    /// The content of the block that it reads, from the memory of a write that failed.
    content: Option<Box<Page>>,
    /// A read of the flash that became one of the backend.
    falls_back: bool,
    transfers: u16,
    /// A flush of the backend failed while it was under way there, and may have taken it.
    may_be_gone: bool,
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
    /// By place in memory: its content is not what it should be.
    bad: Vec<bool>,
    order: Order,
    steps: Vec<Option<Running>>,
    free_steps: Vec<StepId>,
    clients: Clients,
    ready: VecDeque<StepId>,
    /// When segments are looked at next that wait for something late.
    look_for_late_us: u64,
    background: Background,
    /// A batch ended, and others may begin.
    goes_on: bool,
    calm: bool,
    /// A step that writes or flushes the flash failed: no other begins.
    flash_failed: bool,
    /// What was answered and could not be written, of blocks that are lost else.
    unwritten: Unwritten,
    /// How many times something was kept there.
    kept: u64,
    /// Dirty blocks that could not be read are read again from this one on.
    reread: u32,
    /// What a client that flushes has to hear of.
    errors: Errors,
    /// Of how many of these one has heard.
    errors_reported: Errors,
    /// Flushes of the backend that failed.
    failed_flushes: u64,
    /// Reads that are tried again later.
    postponed: Vec<Part>,
    /// Requests that failed with the flash.
    held: Vec<(Request, Done)>,
    /// Reads to begin anew.
    read_anew: Vec<Client>,
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
    /// Up to where the log was durable when that was asked last, ...
    seen: Place,
    /// ... and up to where somebody else was told so.
    noted: Place,
}

impl Engine<LogCache> {
    /// Asked once in a while: up to where the log is durable, if whole units have become so since it said that last, or nothing has since it was
    /// asked last. Nothing in the log itself says of its last unit that it was there.
    pub fn pause(&mut self) -> Option<Place> {
        let flushed = self.cache.log().flushed();
        let seen = std::mem::replace(&mut self.seen, flushed);
        let is_due = flushed.sequence > self.noted.sequence || flushed > self.noted && flushed == seen;
        is_due.then(|| {
            self.noted = flushed;
            flushed
        })
    }
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
            bad: vec![false; places.count() as usize],
            order: Order::new(places.count()),
            places,
            steps: Vec::new(),
            free_steps: Vec::new(),
            clients: Clients::default(),
            ready: VecDeque::new(),
            look_for_late_us: 0,
            background: Background::default(),
            goes_on: false,
            calm: false,
            flash_failed: false,
            unwritten: Unwritten::new(),
            kept: 0,
            reread: 0,
            errors: Errors::default(),
            errors_reported: Errors::default(),
            failed_flushes: 0,
            postponed: Vec::new(),
            held: Vec::new(),
            read_anew: Vec::new(),
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
            seen: Place::default(),
            noted: Place::default(),
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

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.order.blocks().is_used(block) || self.cache.is_newer_than_backend(block)
    }

    /// True if a step failed that writes or flushes the flash: no other begins.
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

    /// Places in memory that steps can still take.
    pub fn spare_places(&self) -> usize {
        self.places.spare()
    }

    /// Steps that are not done and that others wait for: without those that write dirty blocks back, which wait for a slow backend.
    pub fn running_for_clients(&self) -> usize {
        self.running.saturating_sub(2 * self.order.count_members(BATCHES))
    }

    /// Requests that are under way.
    pub fn requests(&self) -> usize {
        self.clients.len()
    }

    /// Makes the ticks that are due up to a time. What they do does not depend on when this is called, as long as it is called before
    /// the next request, which [`submit`](Self::submit) sees to.
    pub fn advance(&mut self, now_us: u64) {
        while let Some(tick_us) = self.cache.next_tick_us(now_us) {
            self.tick(tick_us);
        }
        self.now_us = self.now_us.max(now_us);
        self.go_without_late();
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

    /// Begins the reads anew whose content was not written, and lets the cache go on after batches ended. Not while a plan is being
    /// entered, whose steps come before.
    fn go_on(&mut self) {
        while let Some(client) = self.read_anew.pop() {
            self.begin_anew(client);
        }
        while !self.calm && std::mem::take(&mut self.goes_on) {
            self.plan_background(Event::GoOn);
        }
    }

    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, base: u32) {
        let mut client = request;
        let undecided = self.is_write(request) && steps.iter().any(Step::decides_answer);
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
                        let client = self.clients.get_mut(client);
                        client.until_us = client.until_us.max(*until_us);
                    }
                    continue;
                }
                _ => {}
            }
            self.place_frames(&mut step);
            if !self.try_at_once(&step, client) {
                self.enqueue(step, client, undecided);
            }
        }
    }

    /// The errors that a step does not tell of. A flush tells of all that none has told of yet; a change that is to be durable of those that come while
    /// it is under way, and a flush still has to tell of them.
    fn errors_before(&self, step: &Step, request: Option<u32>) -> Errors {
        let is_flush = matches!(step, Step::AwaitFlushes) && self.is_flush(request);
        if is_flush { self.errors_reported } else { self.errors }
    }

    /// `client`: the request that the step belongs to, if it has no answer yet. `undecided`: that one is a write whose answer is not known yet.
    fn enqueue(&mut self, step: Step, client: Option<u32>, undecided: bool) {
        let request = client.filter(|_| step.is_awaited());
        let errors_before = self.errors_before(&step, request);
        if is_awaited_flush(&step) {
            self.background.flush_waits();
        }
        let source = match step {
            Step::ReadFlash { slot, .. } if self.is_read(client) => self.on_its_way(slot),
            _ => None,
        };
        source.into_iter().for_each(|place| self.hurry(place));
        let running = Running {
            step,
            request,
            background: client.is_none(),
            undecided: undecided && client.is_some(),
            waiting: 0,
            dependents: SmallVec::new(),
            doomed: false,
            doubtful: false,
            planned_us: self.now_us,
            late: Vec::new(),
            stranded: false,
            unseen: false,
            source,
            content: None,
            falls_back: false,
            transfers: 0,
            may_be_gone: false,
            error: None,
            retries: self.settings.retries,
            patience: self.settings.patience,
            errors_before,
        };
        let id = insert(&mut self.steps, &mut self.free_steps, running);
        self.running += 1;
        if let Some(request) = request {
            self.clients.get_mut(request).pending += 1;
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

    /// The disk, the operation and the offset of a transfer that has not ended.
    pub fn transfer_of(&self, tag: u64) -> (usize, DiskOperation, u64) {
        let part = &self.groups[&tag][0];
        (part.disk, part.operation, part.offset)
    }

    /// Is told that a transfer ended; `Err` is what clients are told if that cannot be mended.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let parts = self.groups.remove(&tag).expect("a transfer ends once");
        if parts[0].disk == BACKEND {
            self.background.ended(&parts[0]);
        } else if parts[0].background {
            self.background.ended_from_flash(parts.len());
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

    /// True if reads are put off.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Has as much patience again with the reads that are put off.
    pub fn be_patient(&mut self) {
        let patience = self.settings.patience;
        for id in self.postponed.iter().map(|part| part.step).collect::<Vec<_>>() {
            self.step(id).patience = patience;
        }
    }

    /// The flash cannot be read for so long that it counts as failed: nothing on it changes any more, and what waits to be read from it fails.
    pub fn give_flash_up(&mut self) {
        self.flash_fails();
        self.tell(Event::Failed { step: &Step::FlushFlash { sequence: 0, page: 0 }, missing: false });
    }

    /// Nothing is written to the flash any more, and nothing waits until it can be read.
    fn flash_fails(&mut self) {
        self.errors.flash += 1;
        self.flash_failed = true;
        self.read_again();
    }

    /// Tries those reads again that failed and were put off.
    pub fn read_again(&mut self) {
        self.outgoing.append(&mut self.postponed);
    }

    /// Flushes of the backend that have failed: what they were to make durable may be gone.
    pub fn failed_flushes(&self) -> u64 {
        self.failed_flushes
    }

    /// While it is calm, nothing more begins to be written back by itself.
    pub fn set_calm(&mut self, calm: bool) {
        self.calm = calm;
    }

    /// Requests that fail from now on are answered. Hands back those that failed before: no other call does.
    #[must_use]
    pub fn stop_holding(&mut self) -> Vec<(Request, Done)> {
        self.settings.holds_failed = false;
        std::mem::take(&mut self.held)
    }

    /// True if every change is answered with an error, because the flash has failed.
    pub fn refuses_changes(&self) -> bool {
        self.flash_failed && !self.settings.holds_failed
    }

    /// The next flush has to tell of one that failed.
    pub fn owe_a_failed_flush(&mut self) {
        self.errors.backend += 1;
    }

    /// Takes over from an engine that has ended all steps: failures of the backend that no client has heard of.
    pub fn succeed(&mut self, before: &Engine<C>) {
        self.errors.backend = before.errors.backend - before.errors_reported.backend;
        self.faults = before.faults;
        self.failed_flushes = before.failed_flushes;
    }
}
