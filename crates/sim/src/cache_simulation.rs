//! Runs whole caches over traces and counts: every (trace, policy, size), in parallel.

use flashwise_core::cache::Config;
use rayon::prelude::*;

use crate::cache_run::{CacheCounts, CacheRun};
use crate::simulate::Counting;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::{CacheRequest, RequestFile};

/// A cache to run over one trace.
#[derive(Clone, Debug)]
pub struct CacheJob {
    /// Position of the trace among the traces.
    pub trace: usize,
    /// Its size as it was asked for.
    pub size: String,
    /// The cache.
    pub config: Config,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct CacheResult {
    /// The job.
    pub job: CacheJob,
    /// What was counted after the warm-up.
    pub counts: CacheCounts,
    /// What was counted in each epoch, warm-up included. Empty if no epoch was asked for.
    pub epochs: Vec<CacheCounts>,
    /// Accesses not counted.
    pub warmup_accesses: u64,
}

/// Runs all jobs, on all cores; the results come in the order of the jobs, whatever the number of threads. Warm-up and epochs end
/// with the request in which they reach their length; `accesses` is the number of block accesses of each trace. `progress` is
/// told of block accesses.
pub fn simulate_caches(
    traces: &[(RequestFile, usize)],
    jobs: Vec<CacheJob>,
    counting: Counting,
    progress: &dyn Progress,
) -> Result<Vec<CacheResult>, TraceError> {
    let run = |job: CacheJob| {
        let (requests, accesses) = &traces[job.trace];
        let mut replay = Replay::new(CacheRun::new(job.config.clone()), counting, *accesses);
        let mut told = 0;
        requests.for_each(|request| {
            let accesses = replay.request(request);
            if accesses - told >= PROGRESS_ACCESSES {
                progress.advance(accesses - told);
                told = accesses;
            }
        })?;
        Ok(replay.finish(job))
    };
    jobs.into_par_iter().with_max_len(1).map(run).collect()
}

/// Accesses between two reports of progress.
const PROGRESS_ACCESSES: u64 = 1 << 16;

struct Replay {
    run: CacheRun,
    warmup: u64,
    epoch: u64,
    counting: Counting,
    /// What was counted when the warm-up ended, ...
    before: CacheCounts,
    /// ... if it has.
    counted: bool,
    epoch_began: CacheCounts,
    epochs: Vec<CacheCounts>,
}

impl Replay {
    fn new(run: CacheRun, counting: Counting, accesses: usize) -> Replay {
        let warmup = counting.warmup.accesses(accesses);
        Replay {
            run,
            warmup,
            epoch: counting.epoch.unwrap_or(u64::MAX),
            counting,
            before: CacheCounts::default(),
            counted: warmup == 0,
            epoch_began: CacheCounts::default(),
            epochs: Vec::new(),
        }
    }

    /// Runs a request; returns how many accesses there were so far.
    #[inline]
    fn request(&mut self, request: &CacheRequest) -> u64 {
        self.run.request(request);
        let accesses = self.run.accesses();
        if !self.counted && accesses >= self.warmup {
            self.counted = true;
            self.before = self.run.counts();
        }
        if accesses - self.epoch_began.accesses() >= self.epoch {
            self.end_epoch();
        }
        accesses
    }

    fn end_epoch(&mut self) {
        let counts = self.run.counts();
        self.epochs.push(counts - self.epoch_began);
        self.epoch_began = counts;
    }

    fn finish(mut self, job: CacheJob) -> CacheResult {
        if self.counting.epoch.is_some() && self.run.accesses() > self.epoch_began.accesses() {
            self.end_epoch();
        }
        let Replay { run, before, epochs, .. } = self;
        CacheResult { job, counts: run.counts() - before, epochs, warmup_accesses: before.accesses() }
    }
}
