//! Which steps wait for which, so that what comes of steps that overlap is what would have come of them one by one.
//!
//! - Within a plan each step waits for the one before it. Reads of different blocks that follow each other are done at the same time.
//! - A read of pages waits for what programs them, and a reset for all that uses its bucket. What is programmed to a bucket is programmed in
//!   order. Where buckets are zones, one is begun once all are reset or full that were to be before.
//! - What reads and writes blocks of a bucket of the backend waits for each other, and so do users of a frame of RAM.
//! - A flush waits for all that changed its device, and what changes a device for all flushes: so a power failure finds what it might
//!   have found after some of the steps, done one by one. What relies on no flush waits for none: data and zeroes that are appended to logs say
//!   what blocks are, whatever became of anything else, and the backend is written once what is written there is durable on flash.

use flashwise_core::wlfc::{Log, Oob, State, Step};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::Work;
use crate::engine::hazard::{Hazard, StepId};

/// What is being done to a cache bucket.
#[derive(Debug, Default)]
struct Bucket {
    hazard: Hazard,
    /// Pages that are being programmed: first, end, and the step.
    appends: Vec<(u32, u32, StepId)>,
}

/// Unfinished steps by what they use.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Blocks of a bucket of the backend.
    bucket_blocks: u32,
    /// Buckets are zones, of which few may be written at a time: one is begun once those are reset or full that were to be before.
    zoned: bool,
    /// Resets, and what makes a zone full at once.
    closing: FxHashSet<StepId>,
    buckets: FxHashMap<u32, Bucket>,
    backend: FxHashMap<u64, Hazard>,
    frames: FxHashMap<u32, Hazard>,
    /// Steps that change the flash, and the backend.
    changes: [FxHashSet<StepId>; 2],
    /// The last flush of each.
    flushes: [Option<StepId>; 2],
    /// Buckets that were reset, and the flush that makes it durable, if one was registered since.
    resets: FxHashMap<u32, Option<StepId>>,
}

/// What a step changes: the flash, as 0, or the backend, as 1.
pub(super) fn changed(step: &Step) -> Option<usize> {
    match step {
        Step::Append { .. } | Step::Reset { .. } => Some(0),
        Step::WriteBackend { .. } | Step::ZeroBackend { .. } => Some(1),
        _ => None,
    }
}

/// What a step flushes: the flash, as 0, or the backend, as 1.
pub(super) fn flushed(step: &Step) -> Option<usize> {
    match step {
        Step::FlushFlash => Some(0),
        Step::FlushBackend => Some(1),
        _ => None,
    }
}

impl Order {
    pub fn new(bucket_blocks: u32, zoned: bool) -> Order {
        Order { bucket_blocks, zoned, ..Order::default() }
    }

    fn backend_bucket(&self, block: u64) -> u64 {
        block / u64::from(self.bucket_blocks)
    }

    /// The flushes under way that a step relies on.
    fn flushes_before(&self, step: &Step) -> impl Iterator<Item = StepId> + use<> {
        let [flash, backend] = self.flushes;
        match step {
            Step::Append { oob: Oob { state: State::Write, log: Log::Data | Log::Zeroes, .. }, .. } => [None, None],
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => [flash, None],
            _ => [flash, backend],
        }
        .into_iter()
        .flatten()
    }

    /// Whether a bucket was reset and no flush was registered since.
    pub fn is_reset(&self, bucket: u32) -> bool {
        self.resets.get(&bucket) == Some(&None)
    }

    /// Flushes that are not done.
    pub fn flushes(&self) -> impl Iterator<Item = StepId> + use<> {
        self.flushes.into_iter().flatten()
    }

    /// Whether blocks of a bucket of the backend are being changed.
    pub fn is_written(&self, block: u64) -> bool {
        self.backend.get(&self.backend_bucket(block)).is_some_and(Hazard::is_written)
    }

    /// A step reads the backend in place of the flash from now on.
    pub fn also_reads_backend(&mut self, id: StepId, block: u64) {
        let bucket = self.backend_bucket(block);
        self.backend.entry(bucket).or_default().read(id, |_| ());
    }

    /// Records what a step uses; `after` is told of each step that it waits for.
    pub fn register(&mut self, id: StepId, step: &Step, mut after: impl FnMut(StepId)) {
        if let Some(device) = changed(step) {
            self.flushes_before(step).for_each(&mut after);
            self.changes[device].insert(id);
        }
        match *step {
            Step::ReadFlash { bucket, slot, blocks, .. } => {
                let bucket = self.buckets.entry(bucket).or_default();
                bucket.hazard.read(id, &mut after);
                let of_pages = bucket.appends.iter().filter(|(first, end, _)| *first < slot + blocks && slot < *end);
                of_pages.for_each(|(.., append)| after(*append));
            }
            Step::Append { bucket, page, pages, oob } => {
                if page == 0 && self.zoned {
                    self.closing.iter().copied().for_each(&mut after);
                }
                if oob.state != State::Write {
                    self.closing.insert(id);
                }
                if page == 0 {
                    // What the bucket held must not come back once it is written over.
                    self.resets.get(&bucket).into_iter().flatten().copied().for_each(&mut after);
                }
                let bucket = self.buckets.entry(bucket).or_default();
                bucket.hazard.read(id, &mut after);
                bucket.appends.last().into_iter().for_each(|(.., append)| after(*append));
                bucket.appends.push((page, page + pages, id));
            }
            Step::Reset { bucket } => {
                self.closing.insert(id);
                self.resets.insert(bucket, None);
                self.buckets.entry(bucket).or_default().hazard.write(id, &mut after);
            }
            Step::ReadBackend { block, .. } => {
                let bucket = self.backend_bucket(block);
                self.backend.entry(bucket).or_default().read(id, &mut after);
            }
            Step::WriteBackend { block, .. } | Step::ZeroBackend { block, .. } => {
                let bucket = self.backend_bucket(block);
                self.backend.entry(bucket).or_default().write(id, &mut after);
            }
            Step::ReadRam { frame, .. } => self.frames.entry(frame).or_default().read(id, &mut after),
            Step::KeepInRam { frame, .. } => self.frames.entry(frame).or_default().write(id, &mut after),
            Step::FlushFlash | Step::FlushBackend => {
                let device = flushed(step).expect("it is a flush");
                self.changes[device].iter().copied().for_each(&mut after);
                self.flushes[device].replace(id).into_iter().for_each(&mut after);
                if device == 0 {
                    self.resets.values_mut().filter(|flush| flush.is_none()).for_each(|flush| *flush = Some(id));
                }
            }
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Fail | Step::Reply => {}
        }
    }

    /// A step is done, or failed.
    pub fn end(&mut self, id: StepId, step: &Step, read_backend: bool) {
        if let Some(device) = changed(step) {
            self.changes[device].remove(&id);
        }
        if let Some(device) = flushed(step) {
            self.flushes[device].take_if(|last| *last == id);
            if device == 0 {
                self.resets.retain(|_, flush| *flush != Some(id));
            }
        }
        if matches!(step, Step::Append { .. } | Step::Reset { .. }) {
            self.closing.remove(&id);
        }
        match *step {
            Step::ReadFlash { bucket, .. } | Step::Append { bucket, .. } | Step::Reset { bucket } => {
                let of = self.buckets.get_mut(&bucket).expect("the step was registered");
                of.hazard.end(id);
                of.appends.retain(|(.., append)| *append != id);
                if of.hazard.is_idle() {
                    self.buckets.remove(&bucket);
                }
            }
            Step::ReadRam { frame, .. } | Step::KeepInRam { frame, .. } => {
                let of = self.frames.get_mut(&frame).expect("the step was registered");
                of.end(id);
                if of.is_idle() {
                    self.frames.remove(&frame);
                }
            }
            _ => {}
        }
        let uses_backend =
            matches!(step, Step::ReadBackend { .. } | Step::WriteBackend { .. } | Step::ZeroBackend { .. });
        let (Step::ReadBackend { block, .. }
        | Step::WriteBackend { block, .. }
        | Step::ZeroBackend { block, .. }
        | Step::ReadFlash { block, .. }) = *step
        else {
            return;
        };
        if uses_backend || read_backend {
            let bucket = self.backend_bucket(block);
            let of = self.backend.get_mut(&bucket).expect("the step was registered");
            of.end(id);
            if of.is_idle() {
                self.backend.remove(&bucket);
            }
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
