//! The layout of a log: one block, one frame.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the state of the layout, and its plans |
//! | `perform.rs` | the work of each step |
//! | `append.rs`, `streams.rs` | segments and footers |
//! | `frames.rs`, `places.rs` | the content of frames, and their places in memory |
//! | `forward.rs` | content of failed steps that is still in memory |
//! | `unwritten.rs` | answered content that no device took |
//! | `journal.rs` | writes to the journal |
//! | `late.rs` | segments that go without late blocks |
//! | `run.rs` | a client's reads of adjacent blocks, as one step |
//! | `room.rs` | changes that wait until more is written back |

mod append;
mod forward;
mod frames;
mod late;
mod perform;
mod places;
mod room;
mod run;
mod streams;
mod unwritten;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use flashwise_core::cache::{self, Cache, Event, LogCache};
use flashwise_core::filter::Caching;
use flashwise_core::format::{Page, Place, Record};
use flashwise_core::order::{Bond, Order, StepId, Use};
use flashwise_core::step::{BATCHES, Step};

use crate::engine::{self, Asked, Client, Layout, Legacy, Meaning, Part, Settings};
use crate::memory::Memory;
use crate::request::{Done, Error, Operation, Request};
use frames::Frames;
use perform::{BLOCK, is_awaited_flush};
use places::Places;
use run::Run;
use unwritten::Unwritten;

/// Number of unfinished steps at which requests start to wait before planning.
const STEPS_MAX: usize = 16_384;
/// The [spare frames](Settings::spare_frames) of a volume, 8 MiB. A hundred clients can wait for eight blocks each of a
/// slow backend, while as many blocks are admitted.
pub const SPARE_FRAMES: u32 = 2048;

/// The engine of a log.
pub type Engine<C = LogCache> = engine::Engine<Log<C>>;
type Running<C> = engine::Running<Log<C>>;

/// The state of an unfinished step of a log.
#[derive(Debug, Default)]
pub struct State {
    /// No unanswered client needs it.
    background: bool,
    /// It is part of a write that may yet be answered with an error.
    undecided: bool,
    /// The time when it was planned.
    planned_us: u64,
    /// The places of late blocks, if it is a segment: it goes without them.
    late: Vec<u32>,
    /// The place in memory with the content of the block that it reads. The content is part of a segment in progress,
    /// and may still have to come there.
    source: Option<u32>,
    /// The content of the block that it reads, from the memory of a failed write.
    content: Option<Box<Page>>,
    /// The blocks that it reads, if it is a run of them.
    run: Option<Box<Run>>,
    /// A read of the flash that became one of the backend.
    falls_back: bool,
    transfers: u16,
    /// A flush of the backend failed while it was in progress there, and may have taken it.
    may_be_gone: bool,
    /// The first failure of its transfers.
    error: Option<Error>,
    /// Errors that a client had heard of before.
    errors_before: Errors,
}

/// Errors that belong to no request, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Errors {
    /// Failed flushes of the flash, and writes to it.
    flash: u64,
    /// Failed flushes of the backend, and acknowledged writes that failed.
    backend: u64,
}

/// The layout of a log.
pub struct Log<C = LogCache> {
    frames: Frames,
    /// The checksum of the data in each slot.
    checksums: Vec<u32>,
    places: Places,
    /// True while the steps of a plan are entered.
    enters: bool,
    /// The time of the next check of segments that wait for late blocks.
    look_for_late_us: u64,
    /// A batch ended, and others may begin.
    goes_on: bool,
    calm: bool,
    unwritten: Unwritten,
    /// Errors that the next flush reports.
    errors: Errors,
    /// Of these, the reported ones.
    errors_reported: Errors,
    /// Failed flushes of the backend.
    failed_flushes: u64,
    /// The records of the unit that is being filled.
    unit_records: Vec<Record>,
    /// The index or the mark that is being written to the journal.
    of_journal: Option<Memory>,
    /// Changes that wait for room.
    room: room::Room,
    /// The list of the steps that a step waits for, between uses.
    waits: Vec<(StepId, Bond)>,
    /// The durable end of the log when that was asked last, ...
    seen: Place,
    /// ... and when it was reported last.
    noted: Place,
    cache: PhantomData<fn(C)>,
}

impl<C: Cache<Step = Step>> Layout for Log<C> {
    type Cache = C;
    type Step = Step;
    type State = State;

    /// Without a source in memory, the content of a read comes from the flash.
    #[inline]
    fn uses(&self, cache: &C, step: &Step, state: &State, mut each: impl FnMut(Use, Bond)) {
        if let Some(run) = &state.run {
            return run.uses(|used| each(used, Bond::Follows));
        }
        step.uses(cache.geometry(), |used, bond| match (used, state.source) {
            (Use::AfterPages(_), Some(place)) => each(Use::ReadMemory(place), Bond::Needs),
            (used, _) => each(used, bond),
        });
    }

    fn planned(step: &Step) -> Option<&Step> {
        Some(step)
    }

    /// Ticks that are due come first. Changes keep their order, so none overtakes one that waits for room.
    fn admit(engine: &mut Engine<C>, request: Request, done: Done, asked: Asked, now_us: u64) {
        engine.advance(now_us);
        let waits = |engine: &mut Engine<C>| engine.layout.room.len() > 0 || must_wait(&mut engine.cache, &request);
        if !request.changes() || !waits(engine) {
            return engine.begin_request(request, done, asked, now_us);
        }
        engine.layout.room.push((request, done, asked, now_us));
        engine.layout.goes_on = true;
        Self::go_on(engine);
    }

    fn begins(engine: &mut Engine<C>, client: &mut Client) {
        if !client.asked.again {
            client.replaces_kept = engine.layout.unwritten.change_begins(&engine.cache, &client.request);
        }
    }

    /// Plans a request piece by piece.
    fn plan_request(engine: &mut Engine<C>, number: u32, now_us: u64) {
        let Request { operation, offset, length, force_unit_access, caching, .. } = engine.clients.get(number).request;
        let plan = |engine: &mut Engine<C>, piece: cache::Request| {
            engine.plan_piece(number, &piece, (piece.offset - offset) as u32, now_us);
        };
        let client = engine.clients.get_mut(number);
        match engine.layout.unwritten.pieces_elsewhere(&engine.cache, client) {
            Some(pieces) => pieces.into_iter().for_each(|piece| plan(engine, piece)),
            None => {
                let pieces = cache::Request::pieces(engine::kind(operation), offset, length, force_unit_access);
                pieces.of_client(caching).for_each(|piece| plan(engine, piece));
            }
        }
    }

    fn enter(engine: &mut Engine<C>, steps: &mut Vec<Step>, request: Option<u32>, base: u32) {
        engine.enqueue_plan(steps, request, base);
    }

    fn is_full(engine: &Engine<C>, for_reads: bool) -> bool {
        if for_reads {
            return engine.running_for_clients() >= 2 * STEPS_MAX;
        }
        engine.running_for_clients() >= STEPS_MAX || engine.spare_places() < engine.settings.spare_frames as usize / 4
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

    fn meaning(step: &Step) -> Meaning {
        match step {
            Step::Append(_) | Step::FlushFlash { .. } | Step::ResetUnit { .. } | Step::Witness(_) => {
                Meaning::FlashFailed
            }
            _ => Meaning::Local,
        }
    }

    /// Lets the cache go on after batches ended, and begins changes that no longer have to wait.
    fn go_on(engine: &mut Engine<C>) {
        loop {
            while !engine.layout.calm && std::mem::take(&mut engine.layout.goes_on) {
                engine.plan_background(Event::GoOn);
            }
            if !engine.begin_waiting() {
                return;
            }
            // They may have ended an epoch that the next one waits for.
            engine.layout.goes_on = true;
        }
    }

    fn concludes(engine: &mut Engine<C>, client: &mut Client) {
        if let Some(before) = client.replaces_kept {
            let failed = client.error.is_some();
            engine.layout.unwritten.change_ends(&engine.cache, &client.request, failed, before);
        }
    }

    fn change_answered(engine: &mut Engine<C>, number: u64, change: Request) {
        if engine.settings.holds_failed && !engine.recovery.refuses_changes() {
            engine.clients.note_answered(number, &change);
        }
    }

    /// The effects of ticks do not depend on when this is called, if it is before the next request.
    fn advance(engine: &mut Engine<C>, now_us: u64) {
        while let Some(tick_us) = engine.cache.next_tick_us(now_us) {
            engine.tick(tick_us);
        }
        engine.now_us = engine.now_us.max(now_us);
        engine.go_without_late();
    }
}

impl Engine<LogCache> {
    /// Returns the durable end of the log, if it is to be noted. That is the case if whole units have become durable
    /// since the last note. It is also the case if nothing has become durable since the last call. The log itself does
    /// not record its last unit.
    pub fn pause(&mut self) -> Option<Place> {
        let flushed = self.cache.log().flushed();
        let Log { seen, noted, .. } = &mut self.layout;
        let seen = std::mem::replace(seen, flushed);
        let is_due = flushed.sequence > noted.sequence || flushed > *noted && flushed == seen;
        is_due.then(|| {
            *noted = flushed;
            flushed
        })
    }

    /// Writes content that no device took again like a client, because space may be available now. Not after a failure
    /// of the flash.
    pub fn write_unwritten(&mut self, now_us: u64) {
        if self.recovery.is_flash_failed() {
            return;
        }
        self.layout.unwritten.forget_written(&self.cache);
        for (number, block) in self.layout.unwritten.blocks().into_iter().enumerate() {
            // More than it has room for would never leave the log again.
            if !self.cache.may_write_again(number == 0) {
                continue;
            }
            let Some(data) = self.layout.unwritten.to_write(block).map(<[u8]>::to_vec) else { continue };
            let (operation, force_unit_access) = (Operation::Write, false);
            let (offset, length) = (u64::from(block) * BLOCK, BLOCK);
            // It does not wait in the write buffer, where it might be lost again.
            let caching = Caching::Through;
            // If that fails too, it stays.
            self.begin_own(Request { operation, offset, length, force_unit_access, data, caching }, now_us);
        }
    }

    /// Returns the kept blocks for which a start would use the flash, in order. They stay kept.
    pub fn unwritten_on_flash(&self) -> BTreeMap<u32, Vec<u8>> {
        self.layout.unwritten.on_flash(&self.cache)
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Creates the engine of a cache. `checksums` are those of the data in each slot of the flash, `head_records` the
    /// records of the unit that is being filled.
    pub fn new(cache: C, settings: Settings, checksums: Vec<u32>, head_records: Vec<Record>) -> Engine<C> {
        let geometry = cache.geometry();
        assert_eq!(checksums.len(), geometry.pages() as usize);
        let places = Places::new(cache.frame_count(), settings.spare_frames);
        let order = Order::new(places.count());
        let layout = Log {
            frames: Frames::new(places.count(), 1 + geometry.footer_pages(), settings.blank),
            checksums,
            places,
            enters: false,
            look_for_late_us: 0,
            goes_on: false,
            calm: false,
            unwritten: Unwritten::default(),
            errors: Errors::default(),
            errors_reported: Errors::default(),
            failed_flushes: 0,
            unit_records: head_records,
            of_journal: None,
            room: room::Room::default(),
            waits: Vec::new(),
            seen: Place::default(),
            noted: Place::default(),
            cache: PhantomData,
        };
        engine::Engine::with(cache, settings, layout, order, 1)
    }

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        self.order.blocks().is_used(block) || self.cache.is_newer_than_backend(block)
    }

    /// Returns the number of unanswered requests.
    pub fn requests(&self) -> usize {
        self.clients.len() + self.layout.room.len()
    }

    /// Returns the number of places in memory that steps can still take.
    pub fn spare_places(&self) -> usize {
        self.layout.places.spare()
    }

    /// Takes unwritten content, of blocks that are lost without it, in order.
    pub fn take_unwritten(&mut self) -> BTreeMap<u32, Vec<u8>> {
        self.layout.unwritten.take(&self.cache)
    }

    /// Takes over lost blocks from an engine that could not write them, to retry. Those without content stay lost.
    pub fn take_over_unwritten(&mut self, blocks: BTreeMap<u64, Option<Box<Page>>>) {
        let with_content = blocks.into_iter().filter_map(|(block, content)| Some((block as u32, content?)));
        with_content.for_each(|(block, content)| self.keep(block, content.to_vec()));
    }

    /// Keeps unwritten content of a block that would otherwise be lost.
    fn keep(&mut self, block: u32, data: Vec<u8>) {
        self.layout.unwritten.keep(&mut self.cache, block, data);
    }

    /// Returns the blocks whose only copy is lost or unreadable, in ascending order.
    pub fn lost_blocks(&self) -> Vec<u32> {
        let mut lost = self.cache.lost_blocks();
        lost.retain(|block| !self.cache.is_kept(*block));
        lost
    }

    /// Returns the number of blocks that wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.layout.unwritten.waiting(&self.cache)
    }

    /// Returns the number of unfinished steps that others wait for: without those that write dirty blocks back, which
    /// wait for a slow backend.
    pub fn running_for_clients(&self) -> usize {
        self.running().saturating_sub(2 * self.order.count_members(BATCHES))
    }

    /// Does the work that is due.
    pub fn tick(&mut self, now_us: u64) {
        self.plan_background(Event::Tick { now_us });
    }

    /// Starts to write back data that is not durable on a failed flash. Only after the flash was durably abandoned.
    pub fn destage_rest(&mut self, now_us: u64) {
        self.plan_background(Event::DestageRest { now_us });
    }

    /// Takes the waiting changes, in order, because this engine does not begin them.
    pub fn take_waiting(&mut self) -> Vec<(Request, Done)> {
        std::iter::from_fn(|| self.layout.room.pop()).map(|(request, done, ..)| (request, done)).collect()
    }

    /// Plans the changes that no longer have to wait. Returns true if there was one, and others still wait.
    fn begin_waiting(&mut self) -> bool {
        if !self.layout.room.begin() {
            return false;
        }
        let before = self.layout.room.len();
        while let Some((request, done, asked, since_us)) =
            self.layout.room.next(|request| must_wait(&mut self.cache, request))
        {
            let waited_us = asked.waited_us + self.now_us.saturating_sub(since_us);
            self.begin_request(request, done, Asked { waited_us, ..asked }, self.now_us);
        }
        self.layout.room.end(before)
    }

    fn enqueue_plan(&mut self, steps: &mut Vec<Step>, request: Option<u32>, base: u32) {
        let mut client = request;
        let undecided = self.asks_for(Operation::Write, request) && steps.iter().any(Step::decides_answer);
        let reads = self.asks_for(Operation::Read, request);
        self.layout.enters = true;
        let mut at = 0;
        while at < steps.len() {
            if let Some(number) = client.filter(|_| reads && matches!(steps[at], Step::ReadFlash { .. })) {
                let Log { places, .. } = &mut self.layout;
                if let Some(run) = Run::first_of(&steps[at..], base, &self.order, places) {
                    at += 2 * run.len();
                    self.enqueue_run(run, number);
                    continue;
                }
            }
            let mut step = std::mem::replace(&mut steps[at], Step::Fail);
            at += 1;
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
            self.layout.places.place_frames(&self.order, &mut step);
            if !self.try_at_once(&step, client) {
                self.enqueue(step, client, undecided);
            }
        }
        steps.clear();
        self.layout.enters = false;
        // Transfers of steps that could start are handed out in the order of the plan.
        self.run_ready();
    }

    /// Enters a run, which waits for nothing.
    fn enqueue_run(&mut self, run: Run, client: u32) {
        let (_, first, _) = run.steps().next().expect("a run has blocks");
        let state = State { planned_us: self.now_us, run: Some(Box::new(run)), ..State::default() };
        let id = self.add(first, Some(client), state);
        self.begin_uses(id, |_, _| unreachable!("it waits for nothing"));
        self.steps.wait_for(id, std::iter::empty());
    }

    /// Returns the errors that a step does not report. A flush reports all that none has reported yet. A durable change
    /// reports those that come while it is in progress, and a flush still has to report them.
    fn errors_before(&self, step: &Step, request: Option<u32>) -> Errors {
        let is_flush = matches!(step, Step::AwaitFlushes) && self.is_flush(request);
        if is_flush { self.layout.errors_reported } else { self.layout.errors }
    }

    /// `client`: the unanswered request that the step belongs to. `undecided`: that is a write whose answer is not
    /// known yet.
    fn enqueue(&mut self, step: Step, client: Option<u32>, undecided: bool) {
        let request = client.filter(|_| step.is_awaited());
        let errors_before = self.errors_before(&step, request);
        if is_awaited_flush(&step) {
            self.transfers.background.flush_waits();
        }
        let source = match step {
            Step::ReadFlash { slot, .. } if self.asks_for(Operation::Read, client) => {
                self.layout.on_its_way(&self.order, &self.steps, slot)
            }
            _ => None,
        };
        // A client waits for the content there.
        if let Some(writer) = source.and_then(|place| self.order.place(place).writer()) {
            self.step(writer).state.background = false;
            self.transfers.hurry(writer);
        }
        let state = State {
            background: client.is_none(),
            undecided: undecided && client.is_some(),
            planned_us: self.now_us,
            source,
            errors_before,
            ..State::default()
        };
        let id = self.add(step, request, state);
        let mut waits = std::mem::take(&mut self.layout.waits);
        if let Step::Send { block, .. } = self.peek(id).step {
            waits.extend(self.undecided(block).map(|write| (write, Bond::Sees)));
        }
        self.begin_uses(id, |other, bond| waits.push((other, bond)));
        self.steps.wait_for(id, waits.drain(..));
        self.layout.waits = waits;
        // Transfers of steps that could start are handed out in the order of the plan.
        self.run_ready();
    }

    /// Treats the flash as failed, because it cannot be read. Its contents no longer change, and postponed reads fail.
    pub fn give_flash_up(&mut self) {
        self.layout.errors.flash += 1;
        self.flash_fails();
        self.tell(Event::Failed { step: &Step::FlushFlash { sequence: 0, page: 0 }, missing: false });
    }

    /// Writes segments without blocks whose read from the backend takes too long; these blocks are not cached. After a
    /// slow write or flush of the backend, a segment does not mark blocks as clean.
    fn go_without_late(&mut self) {
        if self.order.pages_are_idle() || self.now_us < self.layout.look_for_late_us || !self.settings.pauses {
            return;
        }
        self.layout.look_for_late_us = self.now_us + late::LOOK_US;
        for (id, read) in late::go_without(&mut self.steps, &self.order, self.now_us) {
            let append = self.step(id);
            match read {
                Some(place) => append.state.late.push(place),
                None => append.broken.add(Bond::Trusts),
            }
            self.steps.wait_less(id);
        }
        self.run_ready();
    }

    /// Returns the number of failed flushes of the backend: their data may be gone.
    pub fn failed_flushes(&self) -> u64 {
        self.layout.failed_flushes
    }

    /// In calm mode, no write-back starts on its own.
    pub fn set_calm(&mut self, calm: bool) {
        self.layout.calm = calm;
    }

    /// Returns the failures that a successor takes over. Without unfinished steps.
    pub fn legacy(&self) -> Legacy {
        let Log { errors, errors_reported, failed_flushes, .. } = &self.layout;
        let unreported = errors.backend - errors_reported.backend;
        Legacy { faults: self.faults, unreported, failed_flushes: *failed_flushes }
    }

    /// Takes over the failures of a predecessor.
    pub fn succeed(&mut self, before: Legacy) {
        self.layout.errors.backend = before.unreported;
        self.faults = before.faults;
        self.layout.failed_flushes = before.failed_flushes;
    }

    /// True if the request asks for a flush.
    fn is_flush(&self, request: Option<u32>) -> bool {
        request.is_some_and(|request| self.clients.get(request).request.is_flush())
    }

    /// True if the request asks for this operation.
    fn asks_for(&self, operation: Operation, request: Option<u32>) -> bool {
        request.is_some_and(|request| self.clients.get(request).request.operation == operation)
    }
}

/// True if a change has to wait until more is written back.
fn must_wait(cache: &mut impl Cache, request: &Request) -> bool {
    let Request { operation, offset, length, force_unit_access, caching, .. } = *request;
    let whole = cache::Request::whole(engine::kind(operation), offset, length, force_unit_access);
    cache.waits(&cache::Request { caching, ..whole })
}
