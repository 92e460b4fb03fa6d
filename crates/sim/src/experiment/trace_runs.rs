//! Runs of all cases over one trace. Cases share their common work.

use std::collections::BTreeMap;

use flashwise_core::cache::Config;
use flashwise_core::index::Dense;
use flashwise_device::flash::Ftl;
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::{CacheRequest, RequestFile};
use rayon::prelude::*;

use super::{Case, Devices, Experiment, ExperimentError, Flash, Layout, Prepared, Run};
use crate::array::{Arrivals, Queues};
use crate::endurance::{Endurance, Geometry, Method, OfflineRun, flash_of, run_offline};
use crate::offline::{FlashStream, Plan};
use crate::online::Online;
use crate::pace::RequestPace;
use crate::stretch::Ran;
use crate::whole::WholeRun;
use crate::wlfc::{BucketError, BucketSettings, run_buckets};

/// A case's number and its result.
pub(super) type Done = (usize, Run);

/// The cases over one trace.
pub(super) struct TraceRuns<'a> {
    pub trace: &'a Trace,
    /// Accesses not counted.
    pub warmup: u64,
    pub days: Option<f64>,
    pub experiment: &'a Experiment,
    /// True if there are other traces.
    pub several: bool,
    pub progress: &'a dyn Progress,
}

impl TraceRuns<'_> {
    pub fn run(&self, cases: &[&Prepared]) -> Result<Vec<Done>, ExperimentError> {
        let is_offline = |prepared: &&&Prepared| matches!(prepared.case.algorithm.method(), Method::Offline(_));
        let (offline, online): (Vec<&Prepared>, Vec<&Prepared>) = cases.iter().partition(is_offline);
        let online = || {
            online.par_iter().with_max_len(1).map(|prepared| self.online(prepared)).collect::<Result<Vec<Done>, _>>()
        };
        let of_number: BTreeMap<usize, &Prepared> =
            offline.iter().map(|prepared| (prepared.number, *prepared)).collect();
        let performed = |run: &OfflineRun, stream: &FlashStream, plan: &Plan| {
            let run_of = self.run_of(of_number[&run.number]);
            run_of.planned(stream, plan, &run.geometry, run.method.placement)
        };
        let runs: Vec<OfflineRun> = offline.into_iter().map(offline_run).collect();
        let planned = || run_offline(self.trace, self.warmup, self.days, &runs, &performed, self.progress);
        let (online, planned) = rayon::join(online, planned);
        let planned = planned?.into_iter().map(|(number, ran)| self.done(of_number[&number], ran));
        Ok(online?.into_iter().chain(planned).collect())
    }

    fn online(&self, prepared: &Prepared) -> Result<Done, ExperimentError> {
        let ran = match (&prepared.whole, &self.experiment.layout) {
            (Some(config), _) => self.whole(prepared, config)?,
            (None, Layout::Buckets(settings, requests)) => {
                let (ran, capacity_blocks) = self.buckets(&prepared.case, settings, &requests[prepared.case.trace])?;
                let (number, run) = self.done(prepared, ran);
                return Ok((number, Run { capacity_blocks, ..run }));
            }
            _ => self.blocks(prepared),
        };
        Ok(self.done(prepared, ran))
    }

    /// Adds the wear of the flash, if there is one.
    fn done(&self, prepared: &Prepared, ran: Ran) -> Done {
        let Prepared { number, case, whole, geometry, setting, ram_bytes, .. } = prepared;
        let flash = geometry.as_ref().zip(ran.wear).map(|(geometry, wear)| {
            let (counts, unit_pages) = (ran.counted.counts, geometry.unit_pages);
            let counts = Endurance { counts, wear, unit_pages, days: self.days };
            Flash { geometry: geometry.clone(), counts }
        });
        let capacity_blocks = whole.as_ref().map_or(case.capacity_blocks, Config::capacity_blocks) as u64;
        let (setting, whole, ram_bytes) = (*setting, whole.clone(), *ram_bytes);
        (*number, Run { setting, flash, whole, capacity_blocks, ram_bytes, ..Run::new(case.clone(), ran) })
    }

    /// The devices that requests wait for.
    fn waited_for(&self) -> Option<&Devices> {
        self.experiment.devices.as_ref().filter(|devices| devices.arrivals != Arrivals::None)
    }

    /// A run of a cache that handles single block accesses.
    fn run_of<'b>(&'b self, prepared: &'b Prepared) -> Online<'b> {
        let queues = |devices: &Devices| Queues::new(&devices.model, self.trace.block_size_bytes(), devices.arrivals);
        Online {
            trace: self.trace,
            counting: self.experiment.counting,
            ram_blocks: prepared.read_cache_blocks,
            flash: prepared.geometry.as_ref(),
            trim: self.experiment.trims(),
            queues: self.waited_for().map(queues),
            progress: self.progress,
        }
    }

    /// Runs an online cache that handles single block accesses.
    fn blocks(&self, prepared: &Prepared) -> Ran {
        let Prepared { case, setting, .. } = prepared;
        let run = self.run_of(prepared);
        match case.algorithm.method() {
            Method::Policy(policy) => {
                run.policy(policy, case.admission.as_ref().zip(setting.as_ref()), case.capacity_blocks)
            }
            Method::ContainerPolicy(policy) => {
                let geometry = prepared.geometry.clone().expect("containers lie on flash");
                let (flash, _) = flash_of(policy, geometry).expect("the case was checked");
                policy.build(Dense::new(self.trace.unique_blocks()), flash, run)
            }
            Method::Offline(_) | Method::Buckets(_) => unreachable!("it is asked for single blocks as they come"),
        }
    }

    /// Runs a cache of buckets.
    fn buckets(
        &self,
        case: &Case,
        settings: &BucketSettings,
        requests: &RequestFile,
    ) -> Result<(Ran, u64), ExperimentError> {
        let Method::Buckets(system) = case.algorithm.method() else { unreachable!("it lies in buckets") };
        let (trace, accesses) = (self.trace, self.trace.len());
        let each = |consume: &mut dyn FnMut(&CacheRequest)| -> Result<(), BucketError> {
            let mut pace = RequestPace::new(self.progress, requests.len(), accesses as u64);
            requests.for_each(|request| {
                consume(request);
                pace.request_ends();
            })?;
            pace.end();
            Ok(())
        };
        let flash_bytes = case.capacity_blocks as u64 * trace.block_size_bytes();
        let counting = (self.experiment.counting, accesses);
        let times = self.waited_for().map(|devices| (&devices.model, devices.arrivals));
        run_buckets(settings, *system, flash_bytes, counting, times, each)
            .map_err(|error| ExperimentError::Bucket(error).of(trace, self.several))
    }

    /// Runs the whole cache, which handles requests.
    fn whole(&self, prepared: &Prepared, config: &Config) -> Result<Ran, TraceError> {
        let Layout::Log(log) = &self.experiment.layout else { unreachable!("the whole cache keeps a log") };
        let ssd = |geometry: &Geometry| Ftl::new(geometry.ftl.clone()).expect("the geometry is that of a device");
        let run = WholeRun {
            trace: self.trace,
            requests: &log.requests[prepared.case.trace],
            counting: self.experiment.counting,
            config,
            ssd: prepared.geometry.as_ref().map(ssd),
            trim: self.experiment.trims(),
            waits: self.waited_for().map(|devices| (&devices.model, devices.arrivals)),
            progress: self.progress,
        };
        run.run()
    }
}

fn offline_run(Prepared { number, case, geometry, .. }: &Prepared) -> OfflineRun {
    let Method::Offline(method) = case.algorithm.method() else { unreachable!("it knows the future") };
    let geometry = geometry.clone().expect("an offline algorithm has a layout");
    let (number, algorithm, size) = (*number, case.algorithm.to_string(), case.size.clone());
    OfflineRun { number, method: *method, algorithm, size, geometry }
}
