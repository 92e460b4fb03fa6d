//! The plans whose steps have not all ended, and their memory.

use super::memory::{Region, Regions};
use crate::engine::insert;

/// A plan.
#[derive(Debug)]
pub(super) struct UnfinishedPlan {
    pub regions: Regions,
    /// The number of unfinished steps.
    pub unfinished: u32,
    /// Its share of the memory of plans, in bytes.
    pub bytes: u64,
    /// True if it moves blocks whose old copies are then dropped: to a copy, to the backend, or to the log with a
    /// client's change.
    pub moves: bool,
}

/// The plans, by number.
#[derive(Debug, Default)]
pub(super) struct Plans {
    all: Vec<Option<UnfinishedPlan>>,
    free: Vec<u32>,
    bytes: u64,
}

impl Plans {
    /// Returns the memory of plans in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a plan.
    pub fn add(&mut self, plan: UnfinishedPlan) -> u32 {
        self.bytes += plan.bytes;
        insert(&mut self.all, &mut self.free, plan)
    }

    /// Returns a plan.
    pub fn get(&mut self, number: u32) -> &mut UnfinishedPlan {
        self.all[number as usize].as_mut().expect("a plan is there until its steps are done")
    }

    /// Returns the memory of a plan that has a block.
    pub fn region(&mut self, number: u32, block: u64) -> &mut Region {
        self.get(number).regions.of(block)
    }

    /// A step of a plan has ended.
    pub fn step_ended(&mut self, number: u32) {
        let plan = self.get(number);
        plan.unfinished -= 1;
        if plan.unfinished == 0 {
            self.bytes -= plan.bytes;
            self.all[number as usize] = None;
            self.free.push(number);
        }
    }
}
