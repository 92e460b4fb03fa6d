//! The characteristics of a trace: LARC's Table II and more.

use serde::Serialize;

use crate::Trace;
use crate::normalised::trace::Accesses;
use crate::sampling::Sample;
use crate::tools::pass::About;
use crate::tools::reuse::MinimalDistances;
use flashwise_core::human;

/// The characteristics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// The trace as the user named it.
    pub trace: String,
    /// The original format.
    pub format: String,
    /// The length of a block, in bytes.
    pub block_size_bytes: u64,
    /// The number of requests of the original.
    pub requests: u64,
    /// The number of read requests.
    pub read_requests: u64,
    /// The number of write requests.
    pub write_requests: u64,
    /// The length of the shortest request.
    pub request_bytes_min: u64,
    /// The mean length of requests.
    pub request_bytes_mean: f64,
    /// The length of the longest request.
    pub request_bytes_max: u64,
    /// The bytes of all read requests.
    pub read_bytes: u64,
    /// The bytes of all write requests.
    pub write_bytes: u64,
    /// The number of block accesses: Table II's requests.
    pub accesses: u64,
    /// The number of block reads.
    pub reads: u64,
    /// The number of block writes.
    pub writes: u64,
    /// Reads per access, 0 to 1.
    pub read_share: f64,
    /// The number of distinct blocks.
    pub unique_blocks: u64,
    /// The number of distinct blocks that are read.
    pub unique_blocks_read: u64,
    /// The number of distinct blocks that are written.
    pub unique_blocks_written: u64,
    /// The total length of all distinct blocks.
    pub working_set_bytes: u64,
    /// Repeated accesses per access, 0 to 1: the hit ratio of an unlimited cache.
    pub reaccess_ratio: f64,
    /// Reads of a block accessed before, per read, 0 to 1.
    pub read_reaccess_ratio: f64,
    /// LARC's minimal reuse distance (section III.B) of reads: the longest distance that at most 1 % of the reads fall
    /// short of. The reuse distance of a read is the number of accesses since the previous access to its block; it is
    /// infinite for a first access. Absent if at least 99 % of the reads are first accesses, or there are none.
    /// Distances of 131,072 accesses and more are rounded down, by less than 1/65,000.
    pub read_reuse_distance_min: Option<u64>,
    /// The minimal reuse distance of writes.
    pub write_reuse_distance_min: Option<u64>,
    /// The columns of its original with their units, if that was a CSV.
    pub columns: Option<String>,
    /// The time from the earliest request to the latest, without absurd times; 0 in traces without times.
    pub duration_us: u64,
    /// Requests per second of that time; absent if times are not a clock.
    pub requests_per_s: Option<f64>,
    /// Bytes that requests read and write, per second of that time; absent if times are not a clock.
    pub bytes_per_s: Option<f64>,
    /// The number of requests with an earlier time than the previous request.
    pub out_of_order_requests: u64,
    /// The number of requests with absurd times: more than a year away from those of most requests.
    pub absurd_requests: u64,
    /// The number of volumes.
    pub volumes: u64,
    /// The number of records of the original skipped because they have no data.
    pub skipped_records: u64,
    /// The number of records of the original skipped because they were malformed.
    pub malformed_records: u64,
}

/// Collects the characteristics of a trace while its accesses pass. Memory: 9 bytes for each distinct block, and some
/// MiB.
#[derive(Debug)]
pub struct InfoPass {
    /// The operations seen for each block, by id.
    seen: Vec<u8>,
    reads: u64,
    reaccesses: u64,
    read_reaccesses: u64,
    distances: MinimalDistances,
}

const READ: u8 = 1;
const WRITTEN: u8 = 2;

impl InfoPass {
    /// Creates an empty pass; `unique_blocks` is the expected number of distinct blocks, which may differ.
    pub fn new(unique_blocks: usize) -> InfoPass {
        let distances = MinimalDistances::new(unique_blocks);
        InfoPass { seen: vec![0; unique_blocks], reads: 0, reaccesses: 0, read_reaccesses: 0, distances }
    }

    /// Adds the next accesses.
    pub fn accesses(&mut self, columns: &Accesses) {
        for (&block, &op) in columns.block.iter().zip(columns.op.iter()) {
            if block as usize >= self.seen.len() {
                self.seen.resize(block as usize + 1, 0);
            }
            let seen = &mut self.seen[block as usize];
            let (again, read) = (u64::from(*seen != 0), u64::from(op == 0));
            self.reads += read;
            self.reaccesses += again;
            self.read_reaccesses += again & read;
            *seen |= if op == 0 { READ } else { WRITTEN };
        }
        self.distances.accesses(columns);
    }

    /// Returns the characteristics of the trace, which has passed completely and is described by `about`.
    pub fn finish(self, about: About) -> Info {
        let InfoPass { seen, reads, reaccesses, read_reaccesses, distances } = self;
        let About { name, block_size_bytes, accesses, unique_blocks, description: about, times } = about;
        let [read_reuse_distance_min, write_reuse_distance_min] = distances.finish();
        let count = |bit: u8| seen.iter().filter(|&&seen| seen & bit != 0).count() as u64;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let is_clock = times.duration_us() > 0 && times.refusal(about.requests).is_none();
        let per_s = |amount: u64| is_clock.then(|| amount as f64 / (times.duration_us() as f64 / 1e6));
        Info {
            trace: name,
            format: about.format.clone(),
            block_size_bytes,
            requests: about.requests,
            read_requests: about.read_requests,
            write_requests: about.requests - about.read_requests,
            request_bytes_min: about.request_bytes_min,
            request_bytes_mean: ratio(about.read_bytes + about.write_bytes, about.requests),
            request_bytes_max: about.request_bytes_max,
            read_bytes: about.read_bytes,
            write_bytes: about.write_bytes,
            accesses,
            reads,
            writes: accesses - reads,
            read_share: ratio(reads, accesses),
            unique_blocks,
            unique_blocks_read: count(READ),
            unique_blocks_written: count(WRITTEN),
            working_set_bytes: unique_blocks * block_size_bytes,
            reaccess_ratio: ratio(reaccesses, accesses),
            read_reaccess_ratio: ratio(read_reaccesses, reads),
            read_reuse_distance_min,
            write_reuse_distance_min,
            columns: about.columns.clone(),
            duration_us: times.duration_us(),
            requests_per_s: per_s(about.requests),
            bytes_per_s: per_s(about.read_bytes + about.write_bytes),
            out_of_order_requests: times.out_of_order_requests,
            absurd_requests: times.absurd_requests,
            volumes: about.volumes.len() as u64,
            skipped_records: about.skipped_records,
            malformed_records: about.malformed_records,
        }
    }
}

impl Info {
    /// Returns the characteristics of `trace`.
    pub fn of(trace: &Trace) -> Info {
        let mut pass = InfoPass::new(trace.unique_blocks());
        for columns in trace.batches() {
            pass.accesses(&columns);
        }
        let info = pass.finish(About::of(trace));
        trace.sample().map_or_else(|| info.clone(), |sample| info.of_whole(sample, trace.whole_unique_blocks()))
    }

    /// Extrapolates the characteristics of a sample to the whole trace with this many distinct blocks: accesses are
    /// exact, the rest are estimates.
    fn of_whole(&self, sample: &Sample, unique_blocks: u64) -> Info {
        let (accesses, reads) = (sample.accesses(), sample.reads_before(u64::MAX));
        let times = |count: u64, by: f64| (count as f64 * by).round() as u64;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        // The number of blocks that a sampled block stands for, and of accesses that a sampled access stands for.
        let blocks = ratio(unique_blocks, self.unique_blocks);
        let by_accesses = ratio(accesses, self.accesses);
        Info {
            accesses,
            reads,
            writes: accesses - reads,
            read_share: ratio(reads, accesses),
            unique_blocks,
            unique_blocks_read: times(self.unique_blocks_read, blocks),
            unique_blocks_written: times(self.unique_blocks_written, blocks),
            working_set_bytes: unique_blocks * self.block_size_bytes,
            reaccess_ratio: 1.0 - ratio(unique_blocks, accesses).min(1.0),
            read_reuse_distance_min: self.read_reuse_distance_min.map(|distance| times(distance, by_accesses)),
            write_reuse_distance_min: self.write_reuse_distance_min.map(|distance| times(distance, by_accesses)),
            ..self.clone()
        }
    }

    /// Returns the formatted characteristics with their names. Every trace has the same ones in the same order.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let bytes = |bytes: u64| human::bytes(bytes as f64);
        let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
        let distance = |distance: Option<u64>| or_none(distance.map(human::count));
        vec![
            ("format", self.format.clone()),
            ("columns", or_none(self.columns.clone())),
            ("block size", bytes(self.block_size_bytes)),
            ("volumes", human::count(self.volumes)),
            ("duration", human::duration(self.duration_us as f64)),
            ("  requests per second", or_none(self.requests_per_s.map(human::number))),
            ("  bytes per second", or_none(self.bytes_per_s.map(human::bytes))),
            ("out of order", human::count(self.out_of_order_requests)),
            ("absurd times", human::count(self.absurd_requests)),
            ("requests", human::count(self.requests)),
            ("  reads", human::count(self.read_requests)),
            ("  writes", human::count(self.write_requests)),
            ("request size, least", bytes(self.request_bytes_min)),
            ("  mean", human::bytes(self.request_bytes_mean)),
            ("  most", bytes(self.request_bytes_max)),
            ("bytes read", bytes(self.read_bytes)),
            ("bytes written", bytes(self.write_bytes)),
            ("block accesses", human::count(self.accesses)),
            ("  reads", human::count(self.reads)),
            ("  writes", human::count(self.writes)),
            ("  read share", human::percent(self.read_share)),
            ("unique blocks", human::count(self.unique_blocks)),
            ("  read", human::count(self.unique_blocks_read)),
            ("  written", human::count(self.unique_blocks_written)),
            ("working set", bytes(self.working_set_bytes)),
            ("re-accesses", human::percent(self.reaccess_ratio)),
            ("  of reads", human::percent(self.read_reaccess_ratio)),
            ("minimal reuse distance, reads", distance(self.read_reuse_distance_min)),
            ("  writes", distance(self.write_reuse_distance_min)),
            ("records without data", human::count(self.skipped_records)),
            ("malformed records", human::count(self.malformed_records)),
        ]
    }
}
