//! Puts steps into the table of what unfinished steps use, and takes them out.
//!
//! Within a plan each step also waits for the one before it. Consecutive reads of different blocks are done at the same time.

use flashwise_core::order::{StepId, Use};
use flashwise_core::wlfc::{FLASH, Step};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Cache, Engine, Work};

/// Buckets that were reset, and the flush that makes the reset durable, if one was planned since.
#[derive(Debug, Default)]
pub(super) struct Resets(FxHashMap<u32, Option<StepId>>);

impl Resets {
    /// True if a bucket was reset and no flush was planned since.
    pub fn lacks_flush(&self, bucket: u32) -> bool {
        self.0.get(&bucket) == Some(&None)
    }

    /// A step is planned. Returns the flush that it has to wait for: the old content of a bucket must not come back once it is written over.
    fn begin(&mut self, id: StepId, step: &Step) -> Option<StepId> {
        match *step {
            Step::Reset { bucket } => drop(self.0.insert(bucket, None)),
            Step::FlushFlash => self.0.values_mut().filter(|flush| flush.is_none()).for_each(|flush| *flush = Some(id)),
            Step::Append { bucket, page: 0, .. } => return self.0.get(&bucket).copied().flatten(),
            _ => {}
        }
        None
    }

    fn end(&mut self, id: StepId, step: &Step) {
        if step.flushes() == Some(FLASH) {
            self.0.retain(|_, flush| *flush != Some(id));
        }
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// True if blocks of the backend bucket of a block are being changed.
    pub(super) fn is_written(&self, block: u64) -> bool {
        self.order.blocks().writer(self.layout.shape.bucket_of(block)).is_some()
    }

    /// From now on, a step reads the backend in place of the flash.
    pub(super) fn also_reads_backend(&mut self, id: StepId, block: u64) {
        self.order.begin(id, Use::ReadBlock(self.layout.shape.bucket_of(block)), |_| ());
    }

    /// Records the uses of a step; adds the steps that it waits for.
    pub(super) fn register(&mut self, id: StepId, step: &Step, waits: &mut SmallVec<[StepId; 8]>) {
        waits.extend(self.layout.resets.begin(id, step));
        step.uses(self.layout.shape, |used| self.order.begin(id, used, |other| waits.push(other)));
    }

    /// Removes the uses of a step that has ended; `read_backend`: it [also read the backend](Self::also_reads_backend).
    pub(super) fn unregister(&mut self, id: StepId, step: &Step, read_backend: bool) {
        self.layout.resets.end(id, step);
        step.uses(self.layout.shape, |used| self.order.end(id, used));
        if let (true, Step::ReadFlash { block, .. }) = (read_backend, step) {
            self.order.end(id, Use::ReadBlock(self.layout.shape.bucket_of(*block)));
        }
    }
}

/// The steps of a plan that were entered last: reads of different blocks are done at the same time.
#[derive(Debug, Default)]
pub(super) struct Entered {
    /// Reads that go on together, with the blocks that they read.
    together: Vec<(StepId, u64, u32)>,
    /// What they all wait for.
    before: SmallVec<[StepId; 4]>,
}

impl Entered {
    /// Enters the next step of the plan; `after` is told of each that it waits for.
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
