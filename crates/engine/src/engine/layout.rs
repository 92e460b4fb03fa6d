//! The part of an engine that depends on the layout of the flash.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::order::{Bond, StepId, Use};

use super::clients::{Asked, Client, kind};
use super::{Engine, Joining, Meaning, Part, Planned, Running, continues};
use crate::request::{Done, Error, Request};
use crate::transfer::Operation;

/// The number of unfinished steps at which the requests of most layouts start to wait before they are planned.
const STEPS_MAX: usize = 16_384;

/// A layout of a cache on flash: the resources that its steps use, the transfers that they consist of, and the
/// consequences of their failures.
///
/// The engine holds the unfinished steps, their order, the requests and the transfers. It calls the layout for the
/// rest. A layout of another crate needs [`uses`](Self::uses), [`enter`](Self::enter), [`start`](Self::start) and
/// [`planned`](Self::planned). The other functions have defaults: those of a cache that keeps no answered data of its
/// own.
pub trait Layout: Sized {
    /// The cache that plans the steps.
    type Cache: Cache;
    /// A step of the engine: a planned one, or one of its own.
    type Step;
    /// The state of an unfinished step.
    type State;

    /// True if transfers are handed out in the order of their offsets, rather than of the plan.
    const SORTS: bool = false;

    /// Passes each resource that a step uses to `each`, with the bond to the steps that it has to wait for.
    fn uses(&self, cache: &Self::Cache, step: &Self::Step, state: &Self::State, each: impl FnMut(Use, Bond));

    /// Returns the step of the cache's plan, if it is one.
    fn planned(step: &Self::Step) -> Option<&Planned<Self>>;

    /// [Queues](Engine::queue) the steps of a plan, and leaves the list empty. The `request` waits for them up to the
    /// reply; the plan is that of its bytes from `base` on. `None`: no client waits.
    fn enter(engine: &mut Engine<Self>, steps: &mut Vec<Planned<Self>>, request: Option<u32>, base: u32);

    /// Starts a step that waits for no other one: [hands over](Engine::hand_over) its transfers, or
    /// [finishes](Engine::finish) it. If it is [doomed](Running::is_doomed), it fails.
    fn start(engine: &mut Engine<Self>, id: StepId);

    /// Handles the end of a transfer, which belongs to one step. By default it is the step's only one.
    fn part_completed(engine: &mut Engine<Self>, part: Part, result: Result<(), Error>) {
        if let Err((part, error)) = engine.retry(part, result) {
            engine.count_fault(&part);
            engine.finish(part.step, Err(error));
        }
    }

    /// Handles the end of a step, before the steps that wait for it hear of it. Returns the result for these, and for
    /// its client.
    fn ended(
        engine: &mut Engine<Self>,
        id: StepId,
        running: &mut Running<Self>,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        engine.end_uses(id, running, |_| ());
        if let Some(step) = Self::planned(&running.step) {
            engine.tell(if result.is_ok() { Event::Done(step) } else { Event::Failed { step, missing: false } });
        }
        result
    }

    /// Handles the end of a step, after the steps that wait for it have heard of it. Its client, if it has one, has
    /// not.
    fn settled(_engine: &mut Engine<Self>, _running: &Running<Self>, _result: Result<(), Error>) {}

    /// Returns the meaning of the failure of a step.
    fn meaning(_step: &Self::Step) -> Meaning {
        Meaning::Local
    }

    /// Starts a request of a client, or lets it wait.
    fn admit(engine: &mut Engine<Self>, request: Request, done: Done, asked: Asked, now_us: u64) {
        engine.begin_request(request, done, asked, now_us);
    }

    /// Called before a request is planned.
    fn begins(_engine: &mut Engine<Self>, _client: &mut Client) {}

    /// Plans the request of a client. By default, it is planned piece by piece.
    fn plan_request(engine: &mut Engine<Self>, number: u32, now_us: u64) {
        let Request { operation, offset, length, force_unit_access, caching, .. } = engine.client(number).request;
        let pieces = cache::Request::pieces(kind(operation), offset, length, force_unit_access);
        pieces
            .of_client(caching)
            .for_each(|piece| engine.plan_piece(number, &piece, (piece.offset - offset) as u32, now_us));
    }

    /// True if requests have to wait before they are planned. Reads wait later than others, which may have to wait for
    /// the backend, so steps and memory are left for reads of RAM and flash.
    fn is_full(engine: &Engine<Self>, for_reads: bool) -> bool {
        engine.running() >= if for_reads { 2 * STEPS_MAX } else { STEPS_MAX }
    }

    /// Starts work that became possible.
    fn go_on(_engine: &mut Engine<Self>) {}

    /// Notes that the steps of a request have ended.
    fn concludes(_engine: &mut Engine<Self>, _client: &mut Client) {}

    /// True if a failed request can be repeated once the cache is found again.
    fn is_repeatable(_engine: &Engine<Self>, _client: &Client) -> bool {
        true
    }

    /// Returns the requests that repeat a failed one once the cache is found again.
    fn repeat(_engine: &mut Engine<Self>, client: Client) -> Vec<(Request, Done)> {
        client.repeat()
    }

    /// Notes that the change of a client is answered.
    fn change_answered(_engine: &mut Engine<Self>, _number: u64, _change: Request) {}

    /// Notes the end of a request of the engine itself.
    fn own_ended(_engine: &mut Engine<Self>, _number: u64, _request: Request, _succeeded: bool) {}

    /// Retries a postponed read.
    fn read_again(engine: &mut Engine<Self>, part: Part) {
        engine.transfers.push(part);
    }

    /// Returns the dirty blocks that could not be read from flash.
    fn unreadable(engine: &Engine<Self>) -> Vec<u64> {
        engine.cache.unreadable().into_iter().map(u64::from).collect()
    }

    /// True if the parts of a failed transfer are transferred again one by one.
    fn splits(_operation: Operation) -> bool {
        true
    }

    /// Returns the bytes between a transfer and a part, if the part can join it. By default, only the next block of the
    /// same kind does.
    fn continues(&self, joining: &Joining, part: &Part) -> Option<u64> {
        let parts = joining.parts();
        parts.last().is_some_and(|last| continues(last, part, parts.len())).then_some(0)
    }

    /// Prepares for the output.
    fn before_output(_engine: &mut Engine<Self>) {}

    /// True if failed requests can be handed back now.
    fn may_hand_back(_engine: &Engine<Self>) -> bool {
        true
    }

    /// Makes the ticks that are due up to a time.
    fn advance(engine: &mut Engine<Self>, now_us: u64) {
        while let Some(tick_us) = engine.cache.next_tick_us(now_us) {
            engine.plan_background(Event::Tick { now_us: tick_us });
        }
        engine.now_us = engine.now_us.max(now_us);
    }
}
