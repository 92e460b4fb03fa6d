//! Latencies of requests by operation, in bounded memory.
//!
//! Source: Tene, HdrHistogram: counts in buckets whose width is at most a thousandth of their value. Completed requests
//! are recorded in batches, with one lock for many requests.

use crate::time::Mutex;
use flashwise_core::recording::Operation;
use flashwise_engine::engine::Answered;
use hdrhistogram::Histogram;

use crate::status::{LatencyBucket, LatencyStatus};

/// Upper bounds of the buckets in the metrics: 1, 2.5 and 5 of each decade from 10 us to 10 s.
pub const BUCKET_BOUNDS_US: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Maximum recorded latency, one hour. Longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Percentiles have a relative error below 1/1000.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies of all operations of a volume.
#[derive(Debug)]
pub struct Latencies {
    by_operation: Mutex<[Distribution; Operation::ALL.len()]>,
}

#[derive(Debug)]
struct Distribution {
    /// About 180 KiB.
    histogram: Histogram<u64>,
    sum_us: u64,
    /// Number of latencies per bucket: up to its bound in [`BUCKET_BOUNDS_US`] and above the previous one. Longer ones
    /// are in none.
    buckets: [u64; BUCKET_BOUNDS_US.len()],
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS);
        let histogram = histogram.expect("the bounds are ones that a histogram can have");
        Distribution { histogram, sum_us: 0, buckets: [0; BUCKET_BOUNDS_US.len()] }
    }
}

impl Distribution {
    fn record(&mut self, latency_us: u64) {
        self.histogram.saturating_record(latency_us);
        self.sum_us = self.sum_us.saturating_add(latency_us);
        let bucket = BUCKET_BOUNDS_US.partition_point(|&bound_us| bound_us < latency_us);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
    }

    fn status(&self, operation: &str) -> LatencyStatus {
        let count = self.histogram.len();
        let bucket = |(&us_max, &count): (&u64, &u64)| LatencyBucket { us_max, count };
        LatencyStatus {
            operation: operation.to_owned(),
            count,
            mean_us: if count == 0 { 0.0 } else { self.sum_us as f64 / count as f64 },
            p50_us: self.histogram.value_at_quantile(0.5),
            p99_us: self.histogram.value_at_quantile(0.99),
            p999_us: self.histogram.value_at_quantile(0.999),
            max_us: self.histogram.max(),
            sum_us: self.sum_us,
            buckets: BUCKET_BOUNDS_US.iter().zip(&self.buckets).map(bucket).collect(),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { by_operation: Mutex::new(std::array::from_fn(|_| Distribution::default())) }
    }
}

impl Latencies {
    /// Records completed requests, including failed ones. `now_us` is on the clock of their start.
    pub fn record(&self, answered: &[Answered], now_us: u64) {
        if answered.is_empty() {
            return;
        }
        let mut by_operation = self.by_operation.lock();
        for request in answered {
            by_operation[request.operation.recorded() as usize].record(now_us.saturating_sub(request.started_us));
        }
    }

    /// Returns the status of the operations that occurred, in the order of [`Operation::ALL`].
    pub fn status(&self) -> Vec<LatencyStatus> {
        let by_operation = self.by_operation.lock();
        let asked_for = Operation::ALL.iter().zip(by_operation.iter()).filter(|(_, seen)| !seen.histogram.is_empty());
        asked_for.map(|(operation, seen)| seen.status(operation.name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Operation;

    fn answered(operation: Operation, started_us: u64) -> Answered {
        Answered { operation, started_us, failed: false }
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_exact_ones() {
        let latencies = Latencies::default();
        // 1 us to 10,000 us, once each: the mean is 5,000.5, the k-th smallest is k.
        let all: Vec<_> = (0..10_000).map(|started_us| answered(Operation::Read, started_us)).collect();
        latencies.record(&all, 10_000);
        let [read] = &latencies.status()[..] else { panic!("one operation") };
        assert_eq!(
            (read.operation.as_str(), read.count, read.mean_us, read.sum_us),
            ("read", 10_000, 5000.5, 50_005_000)
        );
        for (found, exact) in [(read.p50_us, 5000), (read.p99_us, 9900), (read.p999_us, 9990), (read.max_us, 10_000)] {
            assert!((exact..=exact + exact / 1000).contains(&found), "{found} for {exact}");
        }
        // Counts of 1..=10,000, up to each bound and above the previous one.
        let buckets: Vec<_> = read.buckets.iter().map(|bucket| bucket.count).collect();
        let expected = [10, 15, 25, 50, 150, 250, 500, 1500, 2500, 5000, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(buckets, expected);
        assert!(read.buckets.iter().map(|bucket| bucket.us_max).eq(BUCKET_BOUNDS_US));
    }

    #[test]
    fn operations_are_apart_and_only_those_asked_for_are_listed() {
        let latencies = Latencies::default();
        latencies.record(&[], 5);
        assert_eq!(latencies.status(), []);
        let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
        let all = [Operation::Cache, zeroes, Operation::Trim, Operation::Flush, Operation::Write, Operation::Read];
        latencies.record(&all.map(|operation| answered(operation, 0)), 7);
        latencies.record(&[answered(Operation::Flush, 90)], 100);
        let found: Vec<_> =
            latencies.status().into_iter().map(|seen| (seen.operation, seen.count, seen.max_us)).collect();
        let expected = super::Operation::ALL
            .map(super::Operation::name)
            .map(|name| if name == "flush" { (name, 2, 10) } else { (name, 1, 7) });
        assert_eq!(found, expected.map(|(name, count, max_us)| (name.to_owned(), count, max_us)));
    }

    #[test]
    fn a_clock_that_went_back_and_an_endless_request_do_no_harm() {
        let latencies = Latencies::default();
        latencies.record(&[answered(Operation::Read, 10)], 5);
        latencies.record(&[answered(Operation::Read, 0)], u64::MAX);
        let [read] = &latencies.status()[..] else { panic!("one operation") };
        assert_eq!((read.count, read.buckets.iter().map(|bucket| bucket.count).sum::<u64>()), (2, 1));
        assert!(read.max_us >= LATENCY_US_MAX && read.max_us < LATENCY_US_MAX + LATENCY_US_MAX / 1000);
    }
}
