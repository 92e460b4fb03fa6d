//! One run of the whole cache, the server's log, over the requests of a trace: RAM, admission rule, policy, log, device
//! and waiting, each optional.
//!
//! Steps are charged to a conventional SSD whose pages are those of the log. Headers, data and footers are written,
//! pages are read, and reset units are discarded if trim is on. Host-managed flash cannot hold this log: a footer is
//! written ahead of the write pointer, before the unit is full.

use std::collections::HashMap;

use flashwise_core::access::Op;
use flashwise_core::account;
use flashwise_core::block_cache::{FlashWrites, Tally};
use flashwise_core::cache::{Cache, Config, Event, Figures, Kind, LogCache, Request};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::Log;
use flashwise_core::step::{FlashStep, Step};
use flashwise_device::ArrayModel;
use flashwise_device::flash::{Device, DeviceCounters, Ftl};
use flashwise_engine::log as engine;
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::{CacheRequest, RequestFile};

use crate::array::{Arrivals, InTime, Waits};
use crate::cache_run::CacheRun;
use crate::pace::RequestPace;
use crate::simulate::Counting;
use crate::stretch::{Counts, Ran, Stretches, Whole};

/// The parts of a run.
pub(crate) struct WholeRun<'a> {
    pub trace: &'a Trace,
    pub requests: &'a RequestFile,
    pub counting: Counting,
    pub config: &'a Config,
    /// The SSD below the log, if one is simulated.
    pub ssd: Option<Ftl>,
    /// True if reset units are discarded on the SSD.
    pub trim: bool,
    /// The devices that requests wait for, and when requests come.
    pub waits: Option<(&'a ArrayModel, Arrivals)>,
    /// Receives the number of accesses done.
    pub progress: &'a dyn Progress,
}

impl WholeRun<'_> {
    /// Runs it. Warm-up and epochs end with the request in which they reach their length.
    pub fn run(self) -> Result<Ran, TraceError> {
        let WholeRun { trace, requests, counting, config, ssd, trim, waits, progress } = self;
        let log = LogCache::new(config.clone(), Log::new(config.geometry), HashMap::new());
        let charged = Charged { log, ssd, trim, waited_writes: 0, flash_flushes: 0, backend_flushes: 0 };
        let mut run = match waits {
            Some((model, arrivals)) => Driver::InTime(Box::new(InTime::of_log(charged, trim, model, arrivals))),
            None => Driver::AtOnce(Box::new(CacheRun::of(charged))),
        };
        let mut stretches = Stretches::new(counting, trace.len());
        let mut pace = RequestPace::new(progress, requests.len(), trace.len() as u64);
        let mut time_us = 0;
        requests.for_each(|request| {
            time_us = request.time_us.max(time_us);
            run.await_arrival(request);
            let cache = run.cache();
            let erased = || cache.ssd.as_ref().map(Ftl::erasures_by_unit);
            let counted = stretches.at(cache.accesses(), request.time_us, || counts(cache), erased);
            run.request(request, counted);
            stretches.note(run.cache().log.decision());
            pace.request_ends();
        })?;
        pace.end();
        run.await_answers();
        let end = counts(run.cache());
        let ssd = run.cache().ssd.as_ref();
        if ssd.is_some() {
            // Blocks waiting in memory for their segment are counted by cause already.
            let in_memory = end.tally.flash_writes.total_blocks().checked_sub(end.device.host_writes);
            assert!(in_memory.is_some_and(|blocks| blocks <= config.segment_blocks.into()), "each write has a cause");
        }
        let erased = ssd.map(Ftl::erasures_by_unit);
        let dirty_blocks = run.cache().log.blocks_to_write_back();
        Ok(Ran { dirty_blocks, ..stretches.end(time_us, end, run.finish(), erased) })
    }
}

/// The driver of a cache: without times its steps are done at once.
enum Driver {
    AtOnce(Box<CacheRun<Charged>>),
    InTime(Box<InTime<engine::Log<Charged>>>),
}

impl Driver {
    #[inline]
    fn cache(&self) -> &Charged {
        match self {
            Driver::AtOnce(run) => run.cache(),
            Driver::InTime(run) => run.cache(),
        }
    }

    /// Lets time pass until a request comes.
    #[inline]
    fn await_arrival(&mut self, request: &CacheRequest) {
        if let Driver::InTime(run) = self {
            run.await_arrival(request.time_us);
        }
    }

    #[inline]
    fn request(&mut self, request: &CacheRequest, counted: bool) {
        match self {
            Driver::AtOnce(run) => run.request(request),
            Driver::InTime(run) => run.request(request, counted),
        }
    }

    /// Lets time pass until all requests are answered.
    fn await_answers(&mut self) {
        if let Driver::InTime(run) = self {
            run.await_answers();
        }
    }

    /// Ends the work in progress, and returns the waits.
    fn finish(&mut self) -> Option<Waits> {
        match self {
            Driver::AtOnce(_) => None,
            Driver::InTime(run) => Some(run.finish()),
        }
    }
}

/// Returns the counts so far.
fn counts(charged: &Charged) -> Counts {
    let (figures, counters) = (charged.log.figures(), *charged.log.counters());
    let read_hits = figures.ram_read_hits + figures.flash_read_hits;
    let answered = account::Counts {
        hits: [figures.flash_read_hits, 0],
        admissions: [0, 0],
        // Reads of lost blocks would have no answer, but here nothing is lost.
        bypasses: [figures.reads - read_hits, charged.waited_writes],
        written_back: figures.destaged_blocks,
    };
    let flash_writes = FlashWrites {
        client_blocks: figures.flash_client_blocks,
        admission_blocks: figures.flash_admission_blocks,
        copy_forward_blocks: figures.flash_copy_forward_blocks,
        metadata_blocks: figures.flash_metadata_blocks,
    };
    Counts {
        reads: figures.reads,
        writes: figures.writes,
        read_hits,
        write_hits: figures.ram_write_hits + counters.of(Op::Write).hits,
        ram_hits: figures.ram_read_hits,
        counters,
        answered,
        tally: Tally { flash_writes, ..Tally::default() },
        device: charged.ssd.as_ref().map_or(DeviceCounters::default(), |ssd| *ssd.counters()),
        whole: Some(Whole { figures, flash_flushes: charged.flash_flushes, backend_flushes: charged.backend_flushes }),
        ..Counts::default()
    }
}

/// The cache, whose steps are charged to devices.
struct Charged {
    log: LogCache,
    ssd: Option<Ftl>,
    trim: bool,
    /// Blocks whose writes waited for the backend.
    waited_writes: u64,
    flash_flushes: u64,
    backend_flushes: u64,
}

impl Charged {
    /// Number of blocks that clients read and wrote so far.
    fn accesses(&self) -> u64 {
        let figures = self.log.figures();
        figures.reads + figures.writes
    }

    /// Performs a step's flash operations on the SSD.
    fn charge(&mut self, step: &Step) {
        let Some(ssd) = &mut self.ssd else { return };
        let geometry = self.log.geometry();
        let mut write =
            |first: u32, count: u32| (first..first + count).for_each(|page| ssd.step(FlashStep::Write { page }));
        match step {
            Step::Append(segment) => write(geometry.slot(segment.unit, segment.page), 1 + segment.data_pages),
            Step::Witness(footer) => write(geometry.slot(footer.unit, geometry.segments_end()), footer.pages),
            Step::ReadFlash { slot, .. } => ssd.step(FlashStep::Read { page: *slot }),
            Step::ResetUnit { unit } if self.trim => {
                let pages = geometry.slot(*unit, 0)..geometry.slot(unit + 1, 0);
                pages.for_each(|page| ssd.step(FlashStep::Discard { page }));
            }
            _ => {}
        }
    }
}

impl Cache for Charged {
    type Step = Step;
    type Figures = Figures;

    #[inline]
    fn on(&mut self, event: Event<'_>, steps: &mut Vec<Step>) {
        let is_write = matches!(&event, Event::Request { request, .. } if request.kind == Kind::Write);
        self.log.on(event, steps);
        if is_write {
            let waited = steps.iter().take_while(|step| !matches!(step, Step::Reply));
            let is_write = |step: &&Step| matches!(step, Step::WriteBackend { acknowledged: false, batch: None, .. });
            self.waited_writes += waited.filter(is_write).count() as u64;
        }
        for step in steps.iter() {
            self.flash_flushes += u64::from(matches!(step, Step::FlushFlash { .. }));
            self.backend_flushes += u64::from(matches!(step, Step::FlushBackend { .. } | Step::FlushJournal { .. }));
            self.charge(step);
        }
    }

    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        self.log.next_tick_us(now_us)
    }

    fn geometry(&self) -> Geometry {
        self.log.geometry()
    }

    fn frame_count(&self) -> u32 {
        self.log.frame_count()
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.log.is_newer_than_backend(block)
    }

    fn blocks_to_write_back(&self) -> u64 {
        self.log.blocks_to_write_back()
    }

    fn lost_blocks(&self) -> Vec<u32> {
        self.log.lost_blocks()
    }

    fn may_go_on(&self) -> bool {
        self.log.may_go_on()
    }

    fn waits(&mut self, request: &Request) -> bool {
        self.log.waits(request)
    }

    fn figures(&self) -> Figures {
        self.log.figures()
    }

    fn check(&self) {
        self.log.check();
    }
}
