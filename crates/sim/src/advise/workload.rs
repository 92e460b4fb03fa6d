//! The trace that advice is for: all of it, with its requests, for exact runs, and a sample of it for estimates where it is long.

use std::sync::Arc;

use flashwise_core::quantity::Share;
use flashwise_trace::Trace;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::sampling::Sampling;

/// Estimates run over about this many accesses.
const SAMPLE_ACCESSES: f64 = 500_000.0;
/// Estimates run over at least this many different blocks.
const SAMPLE_BLOCKS: f64 = 50_000.0;
/// A sample that would be larger than this is all of the trace.
const SHARE_MAX: f64 = 0.5;

/// A trace, and how it is estimated.
#[derive(Debug)]
pub struct Workload {
    pub(super) trace: [Trace; 1],
    pub(super) requests: Arc<[RequestFile]>,
    pub(super) sample: Option<(Share, [Trace; 1])>,
}

impl Workload {
    /// All of a trace.
    pub fn new(trace: Trace, requests: RequestFile) -> Workload {
        Workload { trace: [trace], requests: Arc::from([requests]), sample: None }
    }

    /// The sample that is to be opened beside the trace, if it is long. It is drawn by groups, since rules may ask how long requests are.
    pub fn sampling(&self) -> Option<(Share, Sampling)> {
        let [trace] = &self.trace;
        let of_accesses = SAMPLE_ACCESSES / trace.len().max(1) as f64;
        let of_blocks = SAMPLE_BLOCKS / trace.unique_blocks().max(1) as f64;
        let thousandths = (of_accesses.max(of_blocks) * 1000.0).ceil() / 1000.0;
        let share = Share::new(thousandths).filter(|share| share.of_one() <= SHARE_MAX)?;
        Some((share, Sampling::new(share.of_one(), 0)?.by_groups()))
    }

    /// With the sample that was opened.
    pub fn with_sample(self, share: Share, sample: Trace) -> Workload {
        Workload { sample: Some((share, [sample])), ..self }
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        let [trace] = &self.trace;
        trace
    }

    /// Its requests as they came.
    pub fn requests(&self) -> Arc<[RequestFile]> {
        Arc::clone(&self.requests)
    }

    /// Bytes of the blocks that it touches.
    pub fn touched_bytes(&self) -> u64 {
        let trace = self.trace();
        trace.unique_blocks() as u64 * trace.block_size_bytes()
    }
}
