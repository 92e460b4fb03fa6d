//! Adds steps to the table of uses by unfinished steps, and removes them.
//!
//! Within a plan, each step also waits for the one before it. Consecutive reads of different blocks run concurrently.

use flashwise_core::order::StepId;
use flashwise_core::wlfc::{FLASH, Step};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Work;

/// Buckets that were reset, and the flush that makes each reset durable, if one is planned.
#[derive(Debug, Default)]
pub(super) struct Resets(FxHashMap<u32, Option<StepId>>);

impl Resets {
    /// True if a bucket was reset and no flush was planned since.
    pub fn lacks_flush(&self, bucket: u32) -> bool {
        self.0.get(&bucket) == Some(&None)
    }

    /// Records a planned step. Returns the flush that it must wait for, so that the old content of a bucket cannot
    /// reappear after it was overwritten.
    pub fn begin(&mut self, id: StepId, step: &Step) -> Option<StepId> {
        match *step {
            Step::Reset { bucket } => drop(self.0.insert(bucket, None)),
            Step::FlushFlash => self.0.values_mut().filter(|flush| flush.is_none()).for_each(|flush| *flush = Some(id)),
            Step::Append { bucket, page: 0, .. } => return self.0.get(&bucket).copied().flatten(),
            _ => {}
        }
        None
    }

    /// Notes the end of a step.
    pub fn end(&mut self, id: StepId, step: &Step) {
        if step.flushes() == Some(FLASH) {
            self.0.retain(|_, flush| *flush != Some(id));
        }
    }
}

/// The last queued steps of a plan. Reads of different blocks run concurrently.
#[derive(Debug, Default)]
pub(super) struct Entered {
    /// Concurrent reads, with their blocks.
    together: Vec<(StepId, u64, u32)>,
    /// The steps that all of them wait for.
    before: SmallVec<[StepId; 4]>,
}

impl Entered {
    /// Queues the next step of the plan. Calls `after` with each step that it waits for.
    pub fn enter(&mut self, id: StepId, work: &Work, mut after: impl FnMut(StepId)) {
        let read = match work {
            Work::Step(Step::ReadFlash { block, blocks, .. } | Step::ReadBackend { block, blocks }) => {
                Some((*block, *blocks))
            }
            _ => None,
        };
        let apart = |(block, blocks): (u64, u32)| {
            let (end, other_end) = (block + u64::from(blocks), |first: u64, count: u32| first + u64::from(count));
            self.together
                .iter()
                .all(|&(_, first, count)| count > 0 && (end <= first || other_end(first, count) <= block))
        };
        match read {
            Some((block, blocks)) if apart((block, blocks)) => self.together.push((id, block, blocks)),
            _ => {
                self.before = self.together.drain(..).map(|(id, ..)| id).collect();
                let (block, blocks) = read.unwrap_or((0, 0));
                self.together.push((id, block, blocks));
            }
        }
        self.before.iter().for_each(|step| after(*step));
    }
}
