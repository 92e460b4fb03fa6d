//! WLFC over the requests of a trace.

use flashwise_core::cache::{Cache, Event, Kind, Request};
use flashwise_core::wlfc::{Config, ConfigError, Step, Wlfc};
use flashwise_device::TierModel;
use flashwise_device::flash::Clock;
use flashwise_device::flash::clock::Operation;
use flashwise_trace::request_file::CacheRequest;

use super::schedule::{Schedule, Work};
use super::simulation::{Buckets, Latencies, accesses_of};
use crate::stretch::Counts;

/// A WLFC on host-managed flash.
#[derive(Debug)]
pub struct Managed {
    wlfc: Wlfc,
    schedule: Schedule,
    latencies: Latencies,
    steps: Vec<Step>,
}

impl Managed {
    /// Returns an empty cache.
    ///
    /// # Errors
    /// See [`Config::check`].
    pub fn new(config: Config, flash: Clock, backend: &TierModel) -> Result<Managed, ConfigError> {
        let schedule = Schedule::new(flash, backend, config.buckets);
        Ok(Managed { wlfc: Wlfc::new(config)?, schedule, latencies: Latencies::default(), steps: Vec::new() })
    }

    /// The cache.
    pub fn wlfc(&self) -> &Wlfc {
        &self.wlfc
    }

    /// Runs a request.
    #[inline]
    pub fn request(&mut self, request: &CacheRequest) {
        let &CacheRequest { time_us: now_us, kind, offset_bytes: offset, length_bytes: length, durable, .. } = request;
        self.schedule.begin();
        let mut steps = std::mem::take(&mut self.steps);
        let whole = Request::whole(kind, offset, length, durable);
        self.wlfc.on(Event::Request { request: &whole, now_us }, &mut steps);
        for step in steps.drain(..) {
            self.charge(step, kind, length);
            self.wlfc.on(Event::Done(&step), &mut self.steps);
        }
        self.steps = steps;
        self.schedule.end();
    }

    #[inline]
    fn charge(&mut self, step: Step, kind: Kind, length: u64) {
        let config = self.wlfc.config();
        let page = |bucket: u32, page: u32| bucket * config.bucket_pages() + page;
        match step {
            Step::ReadFlash { bucket, slot, blocks, .. } => {
                let (first, last) = (slot / config.page_blocks, (slot + blocks - 1) / config.page_blocks);
                let read = Operation::Read { page: page(bucket, first), pages: last - first + 1 };
                self.schedule.add(Work::Flash(read));
            }
            Step::Append { bucket, page: at, pages, .. } => {
                let program = Operation::Program { page: page(bucket, at), pages };
                if at == 0 {
                    self.schedule.wait_for(bucket);
                }
                self.schedule.add(Work::Flash(program));
            }
            Step::Reset { bucket } => {
                self.schedule.add(Work::Flash(Operation::Erase { unit: bucket }));
                self.schedule.add(Work::Release { bucket });
            }
            Step::ReadBackend { blocks, .. } => self.schedule.add(Work::Backend { blocks, write: false }),
            Step::WriteBackend { blocks, .. } => self.schedule.add(Work::Backend { blocks, write: true }),
            Step::ZeroBackend { .. } => self.schedule.add(Work::Backend { blocks: 1, write: true }),
            Step::Reply => {
                let ns = self.schedule.reply();
                self.latencies.record(kind, length, ns);
            }
            // Memory takes no time, and completed steps are durable.
            Step::Receive { .. }
            | Step::Send { .. }
            | Step::Zero { .. }
            | Step::ReadRam { .. }
            | Step::KeepInRam { .. }
            | Step::FlushFlash
            | Step::FlushBackend => {}
            Step::Fail => unreachable!("no step fails in a simulation"),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let latencies = Latencies { elapsed_ns: self.schedule.now_ns(), ..self.latencies };
        Buckets::of_wlfc(&self.wlfc, latencies, self.schedule.unit_blocks())
    }

    /// Blocks that clients read and wrote so far.
    #[inline]
    pub fn accesses(&self) -> u64 {
        accesses_of(&self.wlfc)
    }

    /// The time of the last answer.
    #[inline]
    pub fn now_us(&self) -> u64 {
        self.schedule.now_ns() / 1000
    }
}
