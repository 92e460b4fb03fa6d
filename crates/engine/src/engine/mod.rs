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

use std::collections::HashMap;
use std::fmt;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::order::{Bond, Order, StepId, Use};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::memory::Memory;
use crate::request::{Done, Error, Request};
use crate::transfer::{Operation, Transfer};
pub use background::Backend;
use background::Background;
pub(crate) use background::continues;
use clients::Clients;
pub use clients::{Answered, Asked, Client, Paused};
pub(crate) use clients::{insert, kind};
pub use layout::Layout;
pub use recovery::{Meaning, Recovers, Recovery};
pub use settings::{Bug, Settings};
pub(crate) use steps::Steps;
pub use steps::{Bonds, Running};
use transfers::Group;
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

/// Failures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failed reads of the flash.
    pub flash_read_errors: u64,
    /// Blocks read from flash with a wrong checksum.
    pub flash_checksum_errors: u64,
    /// Failed writes, flushes and resets of the flash.
    pub flash_write_errors: u64,
    /// Failed reads of the backend.
    pub backend_read_errors: u64,
    /// Failed writes and flushes of the backend.
    pub backend_write_errors: u64,
}

impl Faults {
    /// Counts a failed transfer.
    pub(crate) fn count(&mut self, disk: usize, operation: Operation) {
        let counter = match (disk == FLASH, operation == Operation::Read) {
            (true, true) => &mut self.flash_read_errors,
            (true, false) => &mut self.flash_write_errors,
            (false, true) => &mut self.backend_read_errors,
            (false, false) => &mut self.backend_write_errors,
        };
        *counter += 1;
    }
}

/// The failures that an engine leaves to its successor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Legacy {
    /// All failures.
    pub faults: Faults,
    /// Failures of the backend that no client has heard of: flushes, and acknowledged writes.
    pub unreported: u64,
    /// Failed flushes of the backend.
    pub failed_flushes: u64,
}

/// A cache and its work in progress: takes requests and ended transfers, and returns transfers and replies.
pub struct Engine<L: Layout> {
    pub(crate) cache: L::Cache,
    pub(crate) settings: Settings,
    pub(crate) layout: L,
    pub(crate) order: Order,
    pub(crate) steps: Steps<L>,
    pub(crate) clients: Clients,
    /// The number of requests so far.
    pub(crate) requests: u64,
    pub(crate) answers: Vec<(Done, Result<Vec<u8>, Error>)>,
    pub(crate) answered: Vec<Answered>,
    /// Answers that wait.
    paused: Vec<Paused>,
    /// Reads to begin again.
    read_anew: Vec<Client>,
    pub(crate) recovery: Recovery,
    pub(crate) outgoing: Vec<Part>,
    groups: HashMap<u64, Group, FxBuildHasher>,
    next_tag: u64,
    pub(crate) background: Background,
    /// Receives the pages between those of a combined read. Its contents are unused, so transfers share it.
    pub(crate) gap: Memory,
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
            requests: 0,
            answers: Vec::new(),
            answered: Vec::new(),
            paused: Vec::new(),
            read_anew: Vec::new(),
            recovery: Recovery::default(),
            outgoing: Vec::new(),
            groups: HashMap::default(),
            next_tag: 1,
            background: Background::default(),
            gap: Memory::new(gap_pages),
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
            self.step_failed(&running.step);
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
}
