//! One run of the whole cache, the server's log, over the requests of a trace: RAM, admission rule, policy, log, device
//! and waiting, each optional.
//!
//! Steps are charged to a conventional SSD whose pages are those of the log. Headers, data and footers are written,
//! pages are read, and reset units are discarded if trim is on. Host-managed flash cannot hold this log: a footer is
//! written ahead of the write pointer, before the unit is full.

use flashwise_core::access::Op;
use flashwise_core::account;
use flashwise_core::block_cache::{FlashWrites, Tally};
use flashwise_core::cache::{Cache, Config, Kind};
use flashwise_core::format::Geometry;
use flashwise_core::step::{FlashStep, Step};
use flashwise_device::flash::{Device, DeviceCounters, Ftl};
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;

use crate::array::Plans;
use crate::cache_run::{CacheRun, Observer};
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
    /// The devices that requests wait for.
    pub plans: Option<Plans>,
    /// Receives the number of accesses done.
    pub progress: &'a dyn Progress,
}

impl WholeRun<'_> {
    /// Runs it. Warm-up and epochs end with the request in which they reach their length.
    pub fn run(self) -> Result<Ran, TraceError> {
        let WholeRun { trace, requests, counting, config, ssd, trim, plans, progress } = self;
        let charged = Charged {
            geometry: config.geometry,
            ssd,
            trim,
            plans,
            coming: None,
            waited_writes: 0,
            flash_flushes: 0,
            backend_flushes: 0,
        };
        let mut run = CacheRun::observed(config.clone(), charged);
        let mut stretches = Stretches::new(counting, trace.len());
        let mut pace = RequestPace::new(progress, requests.len(), trace.len() as u64);
        requests.for_each(|request| {
            let erased = || run.observer().ssd.as_ref().map(Ftl::erasures_by_unit);
            let counted = stretches.at(run.accesses(), request.time_us, || counts(&run), erased);
            run.observer_mut().coming = Some((request.time_us, counted));
            run.request(request);
            run.observer_mut().request_ends();
            stretches.note(run.cache().decision());
            pace.request_ends();
        })?;
        pace.end();
        let end = counts(&run);
        if run.observer().ssd.is_some() {
            // Blocks waiting in memory for their segment are counted by cause already.
            let in_memory = end.tally.flash_writes.total_blocks().checked_sub(end.device.host_writes);
            assert!(in_memory.is_some_and(|blocks| blocks <= config.segment_blocks.into()), "each write has a cause");
        }
        let time_us = run.now_us();
        let Charged { ssd, plans, .. } = run.into_observer();
        let erased = ssd.as_ref().map(Ftl::erasures_by_unit);
        Ok(stretches.end(time_us, end, plans.map(Plans::finish), erased))
    }
}

/// Returns the counts so far.
fn counts(run: &CacheRun<Charged>) -> Counts {
    let (figures, counters, charged) = (run.cache().figures(), *run.cache().counters(), run.observer());
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

/// Charges steps to devices.
struct Charged {
    geometry: Geometry,
    ssd: Option<Ftl>,
    trim: bool,
    plans: Option<Plans>,
    /// The time of a request that has no plan yet, and true if it counts.
    coming: Option<(u64, bool)>,
    /// Blocks whose writes waited for the backend.
    waited_writes: u64,
    flash_flushes: u64,
    backend_flushes: u64,
}

impl Charged {
    fn request_ends(&mut self) {
        self.coming = None;
        if let Some(plans) = &mut self.plans {
            plans.end();
        }
    }

    /// Performs a step's flash operations on the SSD.
    fn charge(&mut self, step: &Step) {
        let Some(ssd) = &mut self.ssd else { return };
        let geometry = &self.geometry;
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

impl Observer for Charged {
    fn planned(&mut self, of: Option<Kind>, now_us: u64, steps: &[Step]) {
        if let Some(plans) = &mut self.plans {
            match (of, self.coming) {
                (Some(_), Some((time_us, counted))) => {
                    plans.begin(time_us, counted);
                    self.coming = None;
                }
                (None, Some(_)) => plans.idle_until(now_us),
                (_, None) => {}
            }
            plans.plan(now_us, steps);
        }
        if of == Some(Kind::Write) {
            let waited = steps.iter().take_while(|step| !matches!(step, Step::Reply));
            let is_write = |step: &&Step| matches!(step, Step::WriteBackend { acknowledged: false, batch: None, .. });
            self.waited_writes += waited.filter(is_write).count() as u64;
        }
        for step in steps {
            self.flash_flushes += u64::from(matches!(step, Step::FlushFlash { .. }));
            self.backend_flushes += u64::from(matches!(step, Step::FlushBackend { .. }));
            self.charge(step);
        }
    }
}
