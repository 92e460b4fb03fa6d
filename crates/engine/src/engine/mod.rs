//! The engine: performs the steps that a cache plans, concurrently as far as their order allows.
//!
//! Steps run out of order, like instructions in a processor. Each waits for earlier steps that use the same memory,
//! blocks or pages; its [layout](Layout) defines them. The result is that of steps executed one by one.
//!
//! The engine does no I/O and has no clock. It returns [`Transfer`]s, and the caller reports when they are
//! [done](Engine::completed). The server passes the transfers to disks. The crash tests pass them to a disk that fails
//! in every way.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the engine, and the life of a step |
//! | `steps.rs` | the unfinished steps |
//! | `layout.rs` | the part that depends on the layout of the flash |
//! | `clients.rs` | requests |
//! | `transfers.rs` | transfers |
//! | `background.rs`, `depth.rs` | transfers of the backend that no client waits for |
//! | `recovery.rs` | recovery after a failure |
//! | `waiting.rs` | requests that wait before they are planned |

mod background;
mod clients;
mod depth;
mod layout;
mod recovery;
mod settings;
mod steps;
mod transfers;
mod waiting;

use std::fmt;
use std::sync::Arc;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::order::{Bond, Order, StepId, Use};
use smallvec::SmallVec;

use crate::request::{self, Done, Error, Request};
use crate::transfer::{Operation, Transfer};
pub use background::Backend;
pub(crate) use background::continues;
pub use clients::{Answered, Asked, Client, Paused};
use clients::{Answers, BLOCK, Clients};
pub(crate) use clients::{insert, kind};
pub use layout::Layout;
pub use recovery::{Faults, Legacy, Meaning, Recovers, Recovery};
pub use settings::{Bug, Settings};
pub(crate) use steps::Steps;
pub use steps::{Bonds, Running};
use transfers::{Group, Transfers};
pub use transfers::{Joining, Part};
pub use waiting::WaitingRequests;

/// The disk number of the flash in transfers.
pub const FLASH: usize = 0;
/// The disk number of the backend in transfers.
pub const BACKEND: usize = 1;
/// The disk number of the journal in transfers.
pub const JOURNAL: usize = 2;

/// The most blocks of a transfer of the backend that no client waits for.
pub(crate) const TRANSFER_BLOCKS: usize = 256;

/// The step of the cache of a layout.
pub type Planned<L> = <<L as Layout>::Cache as Cache>::Step;

/// A cache and its work in progress: takes requests and ended transfers, and returns transfers and replies.
pub struct Engine<L: Layout> {
    pub(crate) cache: L::Cache,
    pub(crate) settings: Settings,
    pub(crate) layout: L,
    pub(crate) order: Order,
    pub(crate) steps: Steps<L>,
    pub(crate) clients: Clients,
    answers: Answers,
    pub(crate) recovery: Recovery,
    pub(crate) transfers: Transfers,
    /// The time of the last call that included one.
    pub(crate) now_us: u64,
    /// The memory of plans, between uses.
    pub(crate) planned: Vec<Planned<L>>,
    pub(crate) faults: Faults,
}

impl<L: Layout> fmt::Debug for Engine<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("running", &self.running()).finish_non_exhaustive()
    }
}

/// The work that the engine has for its caller.
#[derive(Default)]
pub struct Output {
    /// Transfers to start, on [`FLASH`], [`BACKEND`] and [`JOURNAL`].
    pub transfers: Vec<Transfer>,
    /// Requests to answer.
    pub answers: Vec<(Done, Result<Vec<u8>, Error>)>,
    /// The answered requests, for latencies.
    pub answered: Vec<Answered>,
    /// Requests to answer later.
    pub paused: Vec<Paused>,
    /// Requests that failed with a device, to be answered or repeated; only with
    /// [`holds_failed`](Settings::holds_failed).
    pub held: Vec<(Request, Done)>,
}

impl<L: Layout> Engine<L> {
    /// Creates an engine without work. `order` has room for all places in memory. A transfer
    /// [skips](Layout::continues) at most `gap_pages` between two parts; at least 1.
    pub fn with(cache: L::Cache, settings: Settings, layout: L, order: Order, gap_pages: usize) -> Engine<L> {
        Engine {
            cache,
            settings,
            layout,
            order,
            steps: Steps::default(),
            clients: Clients::default(),
            answers: Answers::default(),
            recovery: Recovery::default(),
            transfers: Transfers::new(gap_pages),
            now_us: 0,
            planned: Vec::new(),
            faults: Faults::default(),
        }
    }

    /// Returns the cache.
    pub fn cache(&self) -> &L::Cache {
        &self.cache
    }

    /// Returns the cache, to change its settings.
    pub fn cache_mut(&mut self) -> &mut L::Cache {
        &mut self.cache
    }

    /// Returns the layout.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// Returns the layout, to change it.
    pub fn layout_mut(&mut self) -> &mut L {
        &mut self.layout
    }

    /// Returns the layout, to change it, and the cache.
    pub fn layout_and_cache(&mut self) -> (&mut L, &L::Cache) {
        (&mut self.layout, &self.cache)
    }

    /// Returns the resources that unfinished steps use.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Counts the failed transfer of a part.
    pub fn count_fault(&mut self, part: &Part) {
        self.faults.count(part.disk, part.operation);
    }

    /// Returns an unanswered request.
    pub fn client(&mut self, request: u32) -> &mut Client {
        self.clients.get_mut(request)
    }

    /// Returns the layout and an unanswered request, to move bytes between the two.
    pub fn layout_and_client(&mut self, request: u32) -> (&mut L, &mut Client) {
        (&mut self.layout, self.clients.get_mut(request))
    }

    /// Returns the number of requests that wait for steps.
    pub fn unanswered(&self) -> usize {
        self.clients.len()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the failures since the start.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Returns the number of unfinished steps.
    pub fn running(&self) -> usize {
        self.steps.len()
    }

    /// True if requests have to [wait](WaitingRequests) before they are planned, as [`Layout::is_full`] says.
    pub fn is_full(&self, for_reads: bool) -> bool {
        L::is_full(self, for_reads)
    }

    /// Makes the ticks that are due up to a time.
    pub fn advance(&mut self, now_us: u64) {
        L::advance(self, now_us);
    }

    /// Starts the work of a clean shutdown.
    pub fn close(&mut self, now_us: u64) {
        self.plan_background(Event::Close { now_us });
    }

    /// Starts to write back everything that is dirty.
    pub fn destage_all(&mut self, now_us: u64) {
        self.plan_background(Event::DestageAll { now_us });
    }

    /// Plans the consequences of an event that belongs to no client.
    pub fn plan_background(&mut self, event: Event<'_, Planned<L>>) {
        if !self.recovery.works() {
            return;
        }
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(event, &mut steps);
        L::enter(self, &mut steps, None, 0);
        self.planned = steps;
        self.run_ready();
    }

    /// Plans a piece of a client's request. Its bytes begin at `base` in those of the request.
    pub(crate) fn plan_piece(&mut self, number: u32, piece: &cache::Request, base: u32, now_us: u64) {
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: piece, now_us }, &mut steps);
        L::enter(self, &mut steps, Some(number), base);
        self.planned = steps;
    }

    /// Passes the result of a step to the cache.
    pub fn tell(&mut self, event: Event<'_, Planned<L>>) {
        self.cache.on(event, &mut self.planned);
        assert!(self.planned.is_empty(), "the result of a step gets no steps in reply");
    }

    /// Adds a step, which waits for nothing yet. `request` waits for it.
    pub(crate) fn add(&mut self, step: L::Step, request: Option<u32>, state: L::State) -> StepId {
        let running = Running {
            step,
            request,
            waiting: 0,
            dependents: SmallVec::new(),
            broken: Bonds::default(),
            retries: self.settings.retries,
            patience: self.settings.patience,
            state,
        };
        if let Some(request) = request {
            self.clients.get_mut(request).pending += 1;
        }
        self.steps.add(running)
    }

    /// Adds a step, and records its [uses](Layout::uses). It starts once the steps that it has to wait for have ended.
    /// `request` waits for it.
    pub fn queue(&mut self, step: L::Step, request: Option<u32>, state: L::State) {
        let id = self.add(step, request, state);
        let mut waits: SmallVec<[(StepId, Bond); 8]> = SmallVec::new();
        self.begin_uses(id, |other, bond| waits.push((other, bond)));
        self.steps.wait_for(id, waits.into_iter());
    }

    /// Records the uses of a new step; `wait` receives each unfinished step that it has to wait for.
    #[inline]
    pub(crate) fn begin_uses(&mut self, id: StepId, mut wait: impl FnMut(StepId, Bond)) {
        let Engine { layout, cache, order, steps, .. } = self;
        let Running { step, state, .. } = steps.get(id);
        layout.uses(cache, step, state, |used, bond| order.begin(id, used, |other| wait(other, bond)));
    }

    /// Removes the uses of a step that has ended. `idle` receives each place in memory that no step uses any more.
    #[inline]
    pub fn end_uses(&mut self, id: StepId, running: &Running<L>, mut idle: impl FnMut(u32)) {
        let Engine { layout, cache, order, .. } = self;
        layout.uses(cache, &running.step, &running.state, |used, _| {
            let place = match used {
                Use::ReadMemory(place) | Use::WriteMemory(place) => Some(place),
                _ => None,
            };
            order.end(id, used);
            place.filter(|&place| order.place(place).is_idle()).into_iter().for_each(&mut idle);
        });
    }

    /// Returns an unfinished step.
    pub fn step(&mut self, id: StepId) -> &mut Running<L> {
        self.steps.get_mut(id)
    }

    /// Returns an unfinished step.
    pub fn peek(&self, id: StepId) -> &Running<L> {
        self.steps.get(id)
    }

    /// Starts the steps that wait for nothing.
    pub(crate) fn run_ready(&mut self) {
        while let Some(id) = self.steps.next_ready() {
            L::start(self, id);
        }
    }

    /// Removes a step; `by` puts others in its place.
    pub(crate) fn replace(&mut self, id: StepId, by: impl FnOnce(&mut Self, Running<L>)) {
        let running = self.steps.take(id);
        by(self, running);
        self.steps.release(id);
    }

    /// Ends a step.
    pub fn finish(&mut self, id: StepId, result: Result<(), Error>) {
        let mut running = self.steps.take(id);
        if result.is_err() {
            match L::meaning(&running.step) {
                Meaning::Local => {}
                Meaning::FlashFailed => self.flash_fails(),
                Meaning::Stops(disk) => self.recovery.stop(disk, self.settings.holds_failed),
            }
        }
        let result = L::ended(self, id, &mut running, result);
        self.steps.release(id);
        for (dependent, bond) in std::mem::take(&mut running.dependents) {
            if result.is_err() {
                self.step(dependent).broken.add(bond);
            }
            self.steps.wait_less(dependent);
        }
        L::settled(self, &running, result);
        if let Some(request) = running.request {
            let client = self.clients.get_mut(request);
            client.pending -= 1;
            client.error = client.error.or(result.err());
            self.answer_if_complete(request);
        }
    }

    /// Answers a request, if all steps that it waits for have ended.
    fn answer_if_complete(&mut self, number: u32) {
        if let Some(client) = self.clients.take_complete(number) {
            self.conclude(client);
        }
    }

    /// Answers a request whose steps have ended, unless it restarts or is held.
    fn conclude(&mut self, mut client: Client) {
        L::concludes(self, &mut client);
        let Asked { number, again, .. } = client.asked;
        if client.error.is_some() {
            if self.recovery.has_stopped() && L::is_repeatable(self, &client) {
                let held = L::repeat(self, client);
                return self.recovery.hold(number, held);
            }
            if self.recovery.holds_with_flash() && !again {
                return self.recovery.hold(number, client.repeat());
            }
        }
        if client.reads_anew && !again {
            return self.clients.read_anew.push(client);
        }
        match self.answers.give(client, self.now_us) {
            (request, succeeded) if again => L::own_ended(self, number, request, succeeded),
            (request, true) if request.changes() => L::change_answered(self, number, request),
            _ => {}
        }
    }

    /// Starts a request at time `now_us`. Its range must lie within the volume.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.submit_waited(request, done, now_us, 0);
    }

    /// Like [`submit`](Self::submit), for a request that has waited.
    pub fn submit_waited(&mut self, mut request: Request, done: Done, now_us: u64, waited_us: u64) {
        self.now_us = self.now_us.max(now_us);
        let asked = self.clients.next(waited_us, false);
        if self.recovery.works() && self.settings.answers_flushes_at_once {
            request.force_unit_access = false;
            if request.operation == request::Operation::Flush {
                return self.answers.skip(done);
            }
        }
        self.admit(request, done, asked, now_us);
    }

    /// Starts a request, or holds or refuses it if the engine has stopped.
    pub(crate) fn admit(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        if self.recovery.works() {
            L::admit(self, request, done, asked, now_us);
        } else if self.recovery.holds() {
            self.recovery.hold(asked.number, [(request, done)]);
        } else {
            self.answers.refuse(&request, done, now_us.saturating_sub(asked.waited_us));
        }
    }

    /// Plans a request of the engine itself, without a waiting client.
    pub(crate) fn begin_own(&mut self, request: Request, now_us: u64) {
        let asked = self.clients.next(0, true);
        self.begin_request(request, Box::new(|_| ()), asked, now_us);
    }

    /// Plans a request.
    pub(crate) fn begin_request(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        let mut client = Client::new(request, done, asked, now_us);
        L::begins(self, &mut client);
        let number = self.clients.insert(client);
        L::plan_request(self, number, now_us);
        self.clients.get_mut(number).planned = true;
        self.run_ready();
        self.go_on();
        self.answer_if_complete(number);
    }

    /// Begins the reads again whose content was not written, and what else may begin after calls. Not while a plan is
    /// being entered, whose steps come before.
    fn go_on(&mut self) {
        while let Some((request, done, asked)) = self.clients.next_read_anew(self.now_us) {
            self.begin_request(request, done, asked, self.now_us);
        }
        L::go_on(self);
    }

    /// Starts to measure this backend, to keep each of its disks busy in the background.
    pub fn set_backend(&mut self, backend: Arc<dyn Backend>) {
        self.transfers.background.measure(backend);
    }

    /// Returns the disk, the operation and the offset of an unfinished transfer.
    pub fn transfer_of(&self, tag: u64) -> (usize, Operation, u64) {
        let part = self.transfers.first(tag);
        (part.disk, part.operation, part.offset)
    }

    /// Hands out a part later, with its neighbours.
    pub fn hand_over(&mut self, mut part: Part) {
        part.lane = self.transfers.background.lane_of(part.disk, part.offset);
        self.transfers.push(part);
    }

    /// Handles the end of a transfer. An error that cannot be resolved goes to clients.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let parts = self.transfers.end(tag);
        if result.is_err() && parts.len() > 1 && L::splits(parts[0].operation) {
            self.transfers.split(parts);
        } else {
            for part in parts {
                L::part_completed(self, part, result);
                // Its bytes are still in the processor's caches.
                self.run_ready();
            }
        }
        self.go_on();
    }

    /// Finishes the step of a part that ended, or hands a failed part over again. Returns a failed part without retries
    /// left. A flush is not retried, because a second one would not report the failure.
    pub fn retry(&mut self, part: Part, result: Result<(), Error>) -> Result<(), (Part, Error)> {
        let Err(error) = result else {
            self.finish(part.step, Ok(()));
            return Ok(());
        };
        let running = self.step(part.step);
        if running.retries == 0 || part.operation == Operation::Sync {
            return Err((part, error));
        }
        running.retries -= 1;
        self.transfers.push(part);
        Ok(())
    }

    /// Returns the work for the caller: transfers to start, requests to hand back, and answers. If the engine has
    /// stopped, postponed reads fail first: nothing is moved any more.
    pub fn take_output(&mut self, output: &mut Output) {
        if !self.recovery.works() && self.has_postponed() {
            let postponed = std::mem::take(&mut self.recovery.postponed);
            postponed.into_iter().for_each(|part| self.finish(part.step, Err(Error::Io)));
            self.run_ready();
        }
        L::before_output(self);
        if L::may_hand_back(self) {
            output.held.extend(self.recovery.hand_back());
        }
        let Engine { layout, transfers, .. } = self;
        transfers.hand_out(L::SORTS, |joining, part| layout.continues(joining, part), &mut output.transfers);
        self.answers.take(output);
    }

    /// Returns the state of the engine after failures.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the state of the engine after failures, to change it.
    pub fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    /// Stops writes to the flash, and waiting for reads of it.
    pub(crate) fn flash_fails(&mut self) {
        self.recovery.fail_flash(self.settings.holds_failed);
        self.read_again();
    }

    /// Postpones a failed read. Returns false if its retries are used up.
    pub(crate) fn postpone(&mut self, part: Part) -> bool {
        let waits = self.steps.get_mut(part.step).wait_again(self.settings.retries);
        if waits {
            self.recovery.postponed.push(part);
        }
        waits
    }

    /// True if reads are postponed.
    pub fn has_postponed(&self) -> bool {
        !self.recovery.postponed.is_empty()
    }

    /// Resets the retries of postponed reads.
    pub fn be_patient(&mut self) {
        for part in &self.recovery.postponed {
            self.steps.get_mut(part.step).patience = self.settings.patience;
        }
    }

    /// Retries the postponed reads.
    pub fn read_again(&mut self) {
        std::mem::take(&mut self.recovery.postponed).into_iter().for_each(|part| L::read_again(self, part));
    }

    /// Reads some unreadable dirty blocks again. Readable ones are no longer listed.
    pub fn read_unreadable(&mut self, now_us: u64) {
        if !self.recovery.works() {
            return;
        }
        let blocks = L::unreadable(self);
        for block in self.recovery.next_unreadable(blocks) {
            let (offset, length) = (block * BLOCK, BLOCK);
            let (operation, data, caching) = (request::Operation::Cache, Vec::new(), Default::default());
            self.begin_own(Request { operation, offset, length, force_unit_access: false, data, caching }, now_us);
        }
    }

    /// Continues as `next`, whose cache was recovered after this engine [stopped](Recovery::stopped) and all its
    /// transfers ended. Then requests can start again.
    pub fn continue_as(&mut self, mut next: Engine<L>)
    where
        L: Recovers,
    {
        if L::is_frozen(&next) {
            next.recovery.succeed_frozen(&self.recovery, self.settings.holds_failed);
        }
        (next.faults, next.clients.count) = (self.faults, self.clients.count);
        L::make_again(&mut next, self);
        *self = next;
    }
}
