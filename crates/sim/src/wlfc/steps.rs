//! Latencies at a queue depth of 1: each request comes when the previous one is answered.
//!
//! A step starts once the steps that it waits for have ended. These are steps that share a resource with it, as in the
//! engine ([`Order`]), and the earlier steps of its request. Consecutive reads run side by side, and so do writes and
//! erasures. Flash has a clock for each plane, the backend one for each of its channels. Steps that are left when a
//! request is answered are background work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashwise_core::access::Op;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::{Order, StepId, Use};
use flashwise_device::TierModel;
use flashwise_device::flash::Clock;
use flashwise_device::flash::clock::Operation;

use crate::array::Channels;

/// The work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An operation of the flash.
    Flash(Operation),
    /// One access to the backend.
    Backend { blocks: u32, op: Op },
    /// None: the step only waits.
    Nothing,
}

impl Work {
    /// Consecutive steps of a request with the same number run side by side.
    fn stage(self) -> u8 {
        match self {
            Work::Flash(Operation::Read { .. }) | Work::Backend { op: Op::Read, .. } => 0,
            Work::Flash(Operation::Program { .. }) | Work::Backend { op: Op::Write, .. } => 1,
            Work::Flash(Operation::Erase { .. }) => 2,
            Work::Nothing => 3,
        }
    }
}

/// A step. Those that have ended keep their memory for others.
#[derive(Debug)]
struct Step {
    work: Work,
    uses: Vec<Use>,
    /// The number of unfinished steps that it waits for.
    waiting: u32,
    /// The steps that wait for it.
    dependents: Vec<StepId>,
    /// True if the client waits for it.
    in_front: bool,
}

/// The unfinished steps, and the devices.
#[derive(Debug)]
pub(super) struct Steps {
    order: Order,
    flash: Clock,
    backend: Channels,
    now_ns: u64,
    steps: Vec<Step>,
    free: Vec<StepId>,
    /// The memory of the steps that a new one waits for, between uses.
    waits: Vec<StepId>,
    /// The ends of started steps, the earliest first. Steps that end at the same time are in the order of their starts.
    ends: BinaryHeap<Reverse<(u64, u64, StepId)>>,
    started: u64,
    /// The newest steps of the request, which run side by side, and their stage.
    together: Vec<StepId>,
    stage: u8,
    /// The step that these wait for.
    before: Option<StepId>,
    /// The number of steps that the client waits for.
    in_front: u32,
    /// True if the client waits for no further step of the request.
    is_answered: bool,
}

impl Steps {
    /// Returns devices without work.
    pub fn new(flash: Clock, backend: &TierModel) -> Steps {
        Steps {
            order: Order::default(),
            flash,
            backend: Channels::new(backend, BLOCK_BYTES as u64),
            now_ns: 0,
            steps: Vec::new(),
            free: Vec::new(),
            waits: Vec::new(),
            ends: BinaryHeap::new(),
            started: 0,
            together: Vec::new(),
            stage: 0,
            before: None,
            in_front: 0,
            is_answered: true,
        }
    }

    /// Erase blocks of a unit of flash.
    pub fn unit_blocks(&self) -> u32 {
        self.flash.unit_blocks()
    }

    /// The time of the last answer.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Starts a request.
    #[inline]
    pub fn begin(&mut self) {
        // Work that has ended by now delays nothing.
        while self.ends.peek().is_some_and(|Reverse((end_ns, ..))| *end_ns <= self.now_ns) {
            self.end_next();
        }
        self.together.clear();
        self.before = None;
        self.is_answered = false;
    }

    /// Adds the next step of the request, with the resources that it uses.
    #[inline]
    pub fn add(&mut self, work: Work, uses: impl IntoIterator<Item = Use>) {
        if work.stage() != self.stage {
            self.before = match self.together.len() {
                0 => None,
                1 => self.together.pop(),
                // One step ends with all of them, so later ones wait only for that.
                _ => {
                    let mut together = std::mem::take(&mut self.together);
                    let all = self.enter(Work::Nothing, together.drain(..), []);
                    self.together = together;
                    Some(all)
                }
            };
            self.stage = work.stage();
        }
        let step = self.enter(work, self.before, uses);
        self.together.push(step);
    }

    fn enter(
        &mut self,
        work: Work,
        after: impl IntoIterator<Item = StepId>,
        uses: impl IntoIterator<Item = Use>,
    ) -> StepId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.steps.push(Step { work, uses: Vec::new(), waiting: 0, dependents: Vec::new(), in_front: false });
            self.steps.len() as StepId - 1
        });
        let mut waits = std::mem::take(&mut self.waits);
        waits.extend(after);
        for used in uses {
            self.order.begin(id, used.clone(), |other| waits.push(other));
            self.steps[id as usize].uses.push(used);
        }
        waits.sort_unstable();
        waits.dedup();
        waits.retain(|other| *other != id);
        let waiting = waits.len() as u32;
        waits.drain(..).for_each(|other| self.steps[other as usize].dependents.push(id));
        self.waits = waits;
        let step = &mut self.steps[id as usize];
        (step.work, step.waiting, step.in_front) = (work, waiting, !self.is_answered);
        self.in_front += u32::from(step.in_front);
        if waiting == 0 {
            self.start(id);
        }
        id
    }

    /// Ends the part that the client waits for. Returns the time until all steps added so far have ended.
    #[inline]
    pub fn reply(&mut self) -> u64 {
        let began_ns = self.now_ns;
        while self.in_front > 0 {
            self.end_next();
        }
        self.together.clear();
        self.before = None;
        self.is_answered = true;
        self.now_ns - began_ns
    }

    fn start(&mut self, id: StepId) {
        let end_ns = match self.steps[id as usize].work {
            Work::Flash(operation) => self.flash.run(operation, self.now_ns),
            Work::Backend { blocks, op } => self.backend.access_run(blocks, op, self.now_ns),
            Work::Nothing => self.now_ns,
        };
        self.started += 1;
        self.ends.push(Reverse((end_ns, self.started, id)));
    }

    /// Lets time pass until the next step ends.
    fn end_next(&mut self) {
        let Reverse((end_ns, _, id)) = self.ends.pop().expect("a step that is waited for ends");
        self.now_ns = self.now_ns.max(end_ns);
        let step = &mut self.steps[id as usize];
        step.uses.drain(..).for_each(|used| self.order.end(id, used));
        self.in_front -= u32::from(step.in_front);
        let mut dependents = std::mem::take(&mut step.dependents);
        for dependent in dependents.drain(..) {
            let step = &mut self.steps[dependent as usize];
            step.waiting -= 1;
            if step.waiting == 0 {
                self.start(dependent);
            }
        }
        self.steps[id as usize].dependents = dependents;
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_device::flash::Profile;
    use flashwise_device::tier_model_of_option;

    const READ: Work = Work::Flash(Operation::Read { page: 0, pages: 1 });
    const WRITE_BACK: Work = Work::Backend { blocks: 1, op: Op::Write };
    const ERASE: Work = Work::Flash(Operation::Erase { unit: 0 });

    fn program(page: u32) -> Work {
        Work::Flash(Operation::Program { page, pages: 1 })
    }

    fn steps() -> Steps {
        let flash = Clock::new(&Profile::find("wlfc", "wlfc").unwrap(), 4 << 20).unwrap();
        Steps::new(flash, &tier_model_of_option("backend", "hdd").unwrap())
    }

    /// Runs a request of these steps, which the client waits for. Returns its latency in us.
    fn request(steps: &mut Steps, of: &[(Work, Use)]) -> f64 {
        steps.begin();
        of.iter().for_each(|(work, used)| steps.add(*work, [used.clone()]));
        steps.reply() as f64 / 1000.0
    }

    /// Two blocks of the hard disk take 11,560 us and 20.48 us; then two pages on two planes are programmed in
    /// parallel.
    #[test]
    fn steps_of_a_kind_run_side_by_side_and_kinds_one_after_the_other() {
        let read = (Work::Backend { blocks: 2, op: Op::Read }, Use::ReadBlock(0));
        let programs = [0, 256].map(|page| (program(page), Use::WritePages(page..page + 1)));
        let [first, second] = programs;
        assert_eq!(request(&mut steps(), &[read, first, second]), 11_560.0 + 20.48 + 500.0);
    }

    /// A bucket is read (50 us), written back (12,360 us) and then erased: a request that needs it waits for that.
    #[test]
    fn a_request_waits_for_a_bucket_that_is_erased_in_the_background() {
        let mut steps = steps();
        assert_eq!(request(&mut steps, &[]), 0.0);
        let background = [(READ, Use::KeepPages(0..1)), (WRITE_BACK, Use::WriteBlocks(0..1)), (ERASE, Use::Next(0))];
        background.into_iter().for_each(|(work, used)| steps.add(work, [used]));
        // Another plane is free.
        assert_eq!(request(&mut steps, &[(program(256), Use::Next(1))]), 500.0);
        let waits = 50.0 + 12_360.0 + 5000.0 - 500.0;
        assert_eq!(request(&mut steps, &[(program(0), Use::Next(0))]), waits + 500.0);
    }
}
