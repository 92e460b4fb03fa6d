//! The part of an engine that depends on the layout of the flash.

use flashwise_core::cache::Cache;
use flashwise_core::order::StepId;

use super::clients::{Asked, Client};
use super::{Engine, Joining, Meaning, Part, Running};
use crate::request::{Done, Error, Request};
use crate::transfer::Operation;

/// A layout of a cache on flash: the way its engine performs steps, and the consequences of their failures.
///
/// The engine holds the unfinished steps, their order, the requests and the transfers. It calls the layout for the
/// rest.
pub trait Layout: Sized {
    /// The cache that plans the steps.
    type Cache: Cache;
    /// A step of the engine: a planned one, or one of its own.
    type Step;
    /// The state of an unfinished step.
    type State;

    /// True if transfers are handed out in the order of their offsets, rather than of the plan.
    const SORTS: bool;

    /// Starts a request of a client, or lets it wait.
    fn admit(engine: &mut Engine<Self>, request: Request, done: Done, asked: Asked, now_us: u64);

    /// Called before a request is planned.
    fn begins(engine: &mut Engine<Self>, client: &mut Client);

    /// Plans the request of a client.
    fn plan_request(engine: &mut Engine<Self>, number: u32, now_us: u64);

    /// Enters the steps of a plan that belongs to no client.
    fn enter(engine: &mut Engine<Self>, steps: &mut Vec<<Self::Cache as Cache>::Step>);

    /// True if requests have to wait before they are planned. Reads wait later than others, which may have to wait for
    /// the backend, so steps and memory are left for reads of RAM and flash.
    fn is_full(engine: &Engine<Self>, for_reads: bool) -> bool;

    /// Starts a step that waits for no other one.
    fn start(engine: &mut Engine<Self>, id: StepId);

    /// Handles the end of a transfer, which belongs to one step.
    fn part_completed(engine: &mut Engine<Self>, part: Part, result: Result<(), Error>);

    /// Handles the end of a step, before the steps that wait for it hear of it. Returns the result for these, and for
    /// its client.
    fn ended(
        engine: &mut Engine<Self>,
        id: StepId,
        running: &mut Running<Self>,
        result: Result<(), Error>,
    ) -> Result<(), Error>;

    /// Handles the end of a step, after the steps that wait for it have heard of it. Its client, if it has one, has
    /// not.
    fn settled(_engine: &mut Engine<Self>, _running: &Running<Self>, _result: Result<(), Error>) {}

    /// Returns the meaning of the failure of a step.
    fn meaning(step: &Self::Step) -> Meaning;

    /// Starts work that became possible.
    fn go_on(_engine: &mut Engine<Self>) {}

    /// Notes that the steps of a request have ended.
    fn concludes(engine: &mut Engine<Self>, client: &mut Client);

    /// True if a failed request can be repeated once the cache is found again.
    fn is_repeatable(_engine: &Engine<Self>, _client: &Client) -> bool {
        true
    }

    /// Returns the requests that repeat a failed one once the cache is found again.
    fn repeat(_engine: &mut Engine<Self>, client: Client) -> Vec<(Request, Done)> {
        client.repeat()
    }

    /// Notes that the change of a client is answered.
    fn change_answered(engine: &mut Engine<Self>, number: u64, change: Request);

    /// Notes the end of a request of the engine itself.
    fn own_ended(_engine: &mut Engine<Self>, _number: u64, _request: Request, _succeeded: bool) {}

    /// Retries a postponed read.
    fn read_again(engine: &mut Engine<Self>, part: Part);

    /// Returns the dirty blocks that could not be read from flash.
    fn unreadable(engine: &Engine<Self>) -> Vec<u64>;

    /// True if the parts of a failed transfer are transferred again one by one.
    fn splits(operation: Operation) -> bool;

    /// Returns the bytes between a transfer and a part, if the part can join it.
    fn continues(engine: &Engine<Self>, joining: &Joining, part: &Part) -> Option<u64>;

    /// Prepares for the output.
    fn before_output(_engine: &mut Engine<Self>) {}

    /// True if failed requests can be handed back now.
    fn may_hand_back(_engine: &Engine<Self>) -> bool {
        true
    }

    /// Makes the ticks that are due up to a time.
    fn advance(engine: &mut Engine<Self>, now_us: u64);
}
