//! WLFC over the requests of a trace.

use flashwise_core::access::Op;
use flashwise_core::cache::{Cache, Event, Kind, Request};
use flashwise_core::order::Use;
use flashwise_core::wlfc::{Config, ConfigError, Shape, Step, Wlfc};
use flashwise_device::TierModel;
use flashwise_device::flash::Clock;
use flashwise_device::flash::clock::Operation;
use flashwise_trace::request_file::CacheRequest;

use super::simulation::{Buckets, Latencies, accesses_of};
use super::steps::{Steps, Work};
use crate::stretch::Counts;

/// A WLFC on host-managed flash.
#[derive(Debug)]
pub struct Managed {
    wlfc: Wlfc,
    in_progress: Steps,
    shape: Shape,
    latencies: Latencies,
    /// The memory of a plan, and that of the resources of a step, between uses.
    steps: Vec<Step>,
    uses: Vec<Use>,
}

impl Managed {
    /// Returns an empty cache.
    ///
    /// # Errors
    /// See [`Config::check`].
    pub fn new(config: Config, flash: Clock, backend: &TierModel) -> Result<Managed, ConfigError> {
        let shape = Shape { bucket_pages: config.bucket_pages(), bucket_blocks: config.bucket_blocks, zoned: false };
        Ok(Managed {
            wlfc: Wlfc::new(config)?,
            in_progress: Steps::new(flash, backend),
            shape,
            latencies: Latencies::default(),
            steps: Vec::new(),
            uses: Vec::new(),
        })
    }

    /// The cache.
    pub fn wlfc(&self) -> &Wlfc {
        &self.wlfc
    }

    /// Runs a request.
    #[inline]
    pub fn request(&mut self, request: &CacheRequest) {
        let &CacheRequest { time_us: now_us, kind, offset_bytes: offset, length_bytes: length, durable, .. } = request;
        self.in_progress.begin();
        let mut steps = std::mem::take(&mut self.steps);
        let whole = Request::whole(kind, offset, length, durable);
        self.wlfc.on(Event::Request { request: &whole, now_us }, &mut steps);
        for step in steps.drain(..) {
            self.charge(step, kind, length);
            self.wlfc.on(Event::Done(&step), &mut self.steps);
        }
        self.steps = steps;
    }

    #[inline]
    fn charge(&mut self, step: Step, kind: Kind, length: u64) {
        let page_blocks = self.wlfc.config().page_blocks;
        let page = |bucket: u32, page: u32| bucket * self.shape.bucket_pages + page;
        // Reads name blocks, and the order of steps has pages.
        let step = match step {
            Step::ReadFlash { bucket, slot, block, blocks } => {
                let (first, last) = (slot / page_blocks, (slot + blocks - 1) / page_blocks);
                Step::ReadFlash { bucket, slot: first, block, blocks: last - first + 1 }
            }
            other => other,
        };
        let work = match step {
            Step::ReadFlash { bucket, slot, blocks, .. } => {
                Work::Flash(Operation::Read { page: page(bucket, slot), pages: blocks })
            }
            Step::Append { bucket, page: first, pages, .. } => {
                Work::Flash(Operation::Program { page: page(bucket, first), pages })
            }
            Step::Reset { bucket } => Work::Flash(Operation::Erase { unit: bucket }),
            Step::ReadBackend { blocks, .. } => Work::Backend { blocks, op: Op::Read },
            Step::WriteBackend { blocks, .. } => Work::Backend { blocks, op: Op::Write },
            Step::ZeroBackend { .. } => Work::Backend { blocks: 1, op: Op::Write },
            // Memory takes no time, and programs and writes are durable once they have ended.
            Step::Receive { .. }
            | Step::Send { .. }
            | Step::Zero { .. }
            | Step::ReadRam { .. }
            | Step::KeepInRam { .. }
            | Step::FlushFlash
            | Step::FlushBackend => return,
            Step::Reply => {
                let ns = self.in_progress.reply();
                return self.latencies.record(kind, length, ns);
            }
            Step::Fail => unreachable!("no step fails in a simulation"),
        };
        let mut uses = std::mem::take(&mut self.uses);
        step.uses(self.shape, |used| {
            // The others are those of flushes.
            if !matches!(used, Use::After(_) | Use::Join(_) | Use::AfterAll(_)) {
                uses.push(used);
            }
        });
        self.in_progress.add(work, uses.drain(..));
        self.uses = uses;
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let latencies = Latencies { elapsed_ns: self.in_progress.now_ns(), ..self.latencies };
        Buckets::of_wlfc(&self.wlfc, latencies, self.in_progress.unit_blocks())
    }

    /// Blocks that clients read and wrote so far.
    #[inline]
    pub fn accesses(&self) -> u64 {
        accesses_of(&self.wlfc)
    }

    /// The time of the last answer.
    #[inline]
    pub fn now_us(&self) -> u64 {
        self.in_progress.now_ns() / 1000
    }
}
