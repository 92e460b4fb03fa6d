//! The trace of an advice. Exact runs use all of it, with its requests; estimates use a sample if it is long.

use std::sync::Arc;

use flashwise_core::quantity::Share;
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::sample;

use crate::job::Input;

/// Estimates run over about this many accesses.
const SAMPLE_ACCESSES: f64 = 500_000.0;
/// Estimates run over at least this many different blocks.
const SAMPLE_BLOCKS: f64 = 50_000.0;
/// Above this share the whole trace replaces the sample.
const SHARE_MAX: f64 = 0.5;

/// A trace, with its sample for estimates.
#[derive(Debug)]
pub struct Workload {
    pub(super) trace: [Trace; 1],
    pub(super) requests: Arc<[RequestFile]>,
    pub(super) sample: Option<(Share, [Trace; 1])>,
}

impl Workload {
    /// Opens a trace, with a sample of it if it is long.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn open(input: &Input, progress: &dyn Progress) -> Result<Workload, TraceError> {
        let (trace, requests) = match input {
            Input::File(path, settings) | Input::Volumes(path, settings) => {
                normalised::open_with_requests(path, settings, progress)?
            }
            Input::Open(trace) => (trace.clone(), normalised::requests_of(trace, progress)?),
        };
        let workload = Workload::new(trace, requests);
        let Some((share, sampling)) = workload.sampling() else { return Ok(workload) };
        let sample = match input {
            Input::File(path, settings) | Input::Volumes(path, settings) => {
                sample::open(path, settings, sampling, progress)?
            }
            Input::Open(trace) => sample::of(trace, sampling, progress)?,
        };
        Ok(workload.with_sample(share, sample))
    }

    /// Creates a workload of the whole trace.
    pub fn new(trace: Trace, requests: RequestFile) -> Workload {
        Workload { trace: [trace], requests: Arc::from([requests]), sample: None }
    }

    /// Returns the sample to open together with the trace, if it is long. It is drawn by groups, because rules may use
    /// the lengths of requests.
    pub fn sampling(&self) -> Option<(Share, Sampling)> {
        let [trace] = &self.trace;
        let of_accesses = SAMPLE_ACCESSES / trace.len().max(1) as f64;
        let of_blocks = SAMPLE_BLOCKS / trace.unique_blocks().max(1) as f64;
        let thousandths = (of_accesses.max(of_blocks) * 1000.0).ceil() / 1000.0;
        let share = Share::new(thousandths).filter(|share| share.of_one() <= SHARE_MAX)?;
        Some((share, Sampling::new(share.of_one(), 0)?.by_groups()))
    }

    /// Sets the opened sample.
    pub fn with_sample(self, share: Share, sample: Trace) -> Workload {
        Workload { sample: Some((share, [sample])), ..self }
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Trace {
        let [trace] = &self.trace;
        trace
    }

    /// Returns its original requests.
    pub fn requests(&self) -> Arc<[RequestFile]> {
        Arc::clone(&self.requests)
    }

    /// Returns the bytes of the blocks that it touches.
    pub fn touched_bytes(&self) -> u64 {
        let trace = self.trace();
        trace.unique_blocks() as u64 * trace.block_size_bytes()
    }
}
