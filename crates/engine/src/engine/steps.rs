//! The unfinished steps, and those that they wait for.

use std::collections::VecDeque;

use flashwise_core::order::{Bond, StepId};
use smallvec::SmallVec;

use super::Layout;
use super::clients::insert;

/// Bonds between steps, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bonds(u8);

impl Bonds {
    /// Adds a bond.
    pub fn add(&mut self, bond: Bond) {
        self.0 |= 1 << bond as u8;
    }

    /// True if the set contains a bond.
    pub fn has(self, bond: Bond) -> bool {
        self.0 >> bond as u8 & 1 == 1
    }
}

/// An unfinished step.
pub struct Running<L: Layout> {
    /// The step.
    pub step: L::Step,
    /// The request that waits for it.
    pub request: Option<u32>,
    /// The number of unfinished steps that it waits for.
    pub(crate) waiting: u32,
    /// The steps that wait for it.
    pub(crate) dependents: SmallVec<[(StepId, Bond); 2]>,
    /// The bonds to steps that have failed.
    pub(crate) broken: Bonds,
    /// The number of retries left for a failed transfer.
    pub(crate) retries: u8,
    /// The number of later retries left.
    pub(crate) patience: u8,
    /// Its state.
    pub state: L::State,
}

impl<L: Layout> Running<L> {
    /// True if a step that it needs has failed.
    pub fn is_doomed(&self) -> bool {
        self.broken.has(Bond::Needs)
    }

    /// Uses one of the later retries, which has `retries` immediate ones. Returns false if none is left.
    pub(super) fn wait_again(&mut self, retries: u8) -> bool {
        self.retries = retries;
        let waits = self.patience > 0;
        self.patience -= u8::from(waits);
        waits
    }
}

/// The unfinished steps, by number.
pub(crate) struct Steps<L: Layout> {
    all: Vec<Option<Running<L>>>,
    free: Vec<StepId>,
    count: usize,
    /// Steps that wait for nothing and have not started.
    ready: VecDeque<StepId>,
}

impl<L: Layout> Default for Steps<L> {
    fn default() -> Steps<L> {
        Steps { all: Vec::new(), free: Vec::new(), count: 0, ready: VecDeque::new() }
    }
}

impl<L: Layout> Steps<L> {
    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Adds a step.
    pub fn add(&mut self, step: Running<L>) -> StepId {
        self.count += 1;
        insert(&mut self.all, &mut self.free, step)
    }

    /// Returns a step, if it is unfinished.
    pub fn find(&self, id: StepId) -> Option<&Running<L>> {
        self.all[id as usize].as_ref()
    }

    /// Returns an unfinished step.
    pub fn get(&self, id: StepId) -> &Running<L> {
        self.find(id).expect("the step is unfinished")
    }

    /// Returns an unfinished step, to be changed.
    pub fn get_mut(&mut self, id: StepId) -> &mut Running<L> {
        self.all[id as usize].as_mut().expect("the step is unfinished")
    }

    /// Returns all steps.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Running<L>> {
        self.all.iter_mut().flatten()
    }

    /// Takes a step that ends. Its number is in use until it is [released](Self::release).
    pub fn take(&mut self, id: StepId) -> Running<L> {
        self.count -= 1;
        self.all[id as usize].take().expect("a step ends once")
    }

    /// Allows the number of an ended step to be used again.
    pub fn release(&mut self, id: StepId) {
        self.free.push(id);
    }

    /// Makes a new step wait for others. Without any, it is ready.
    pub fn wait_for(&mut self, id: StepId, others: impl Iterator<Item = (StepId, Bond)>) {
        let mut waiting = 0;
        for (other, bond) in others {
            self.get_mut(other).dependents.push((id, bond));
            waiting += 1;
        }
        self.get_mut(id).waiting = waiting;
        if waiting == 0 {
            self.ready.push_back(id);
        }
    }

    /// A step waits for one other less.
    pub fn wait_less(&mut self, id: StepId) {
        let running = self.get_mut(id);
        running.waiting -= 1;
        if running.waiting == 0 {
            self.ready.push_back(id);
        }
    }

    /// Takes a step that waits for nothing and has not started.
    pub fn next_ready(&mut self) -> Option<StepId> {
        self.ready.pop_front()
    }
}
