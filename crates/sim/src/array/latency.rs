//! Mean, percentiles and maximum of latencies, counted from device latencies or simulated with waits.
//!
//! Source: percentiles by nearest rank: the least latency that this share does not exceed. Those of waits come from
//! Tene's HdrHistogram, whose buckets are at most a thousandth of their value wide. So a percentile may be too great by
//! a thousandth, but never exceeds the maximum.

use flashwise_core::access::Op;
use flashwise_core::account::Counts;
use flashwise_core::tiers::Array;
use hdrhistogram::Histogram;

/// Largest distinguishable latency: 146 years.
const LATENCY_NS_MAX: u64 = 1 << 62;
/// Errors of percentiles are below a thousandth.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Statistics of latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Mean; exact.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum; exact.
    pub max_us: f64,
}

impl Latencies {
    /// Returns the latencies of accesses that do not wait: each takes its device's latency for a block of this many
    /// bytes. All figures are exact. `ram_hits` further accesses take no time.
    pub fn of_devices(array: &Array, counts: &Counts, ram_hits: u64, block_bytes: u64) -> Latencies {
        let (cache, storage) = (&array.cache.device, &array.storage.device);
        let [read, write] = [Op::Read as usize, Op::Write as usize];
        let mut classes = [
            (0.0, ram_hits),
            (cache.read_latency_us, counts.hits[read]),
            (storage.read_latency_us, counts.admissions[read] + counts.bypasses[read]),
            (cache.write_latency_us, counts.hits[write] + counts.admissions[write]),
            (storage.write_latency_us, counts.bypasses[write]),
        ];
        classes.sort_by(|one, other| one.0.total_cmp(&other.0));
        let accesses = ram_hits + counts.accesses();
        let quantile = |share: f64| {
            let rank = ((share * accesses as f64).ceil() as u64).clamp(1, accesses.max(1));
            let mut before = 0;
            let class = classes.iter().find(|(_, count)| {
                before += count;
                before >= rank
            });
            class.map_or(0.0, |(latency_us, _)| *latency_us)
        };
        let past_ram = if ram_hits == 0 { 1.0 } else { counts.accesses() as f64 / accesses as f64 };
        Latencies {
            mean_us: array.latency_mean_us(&counts.traffic(block_bytes)) * past_ram,
            p50_us: quantile(0.5),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: quantile(1.0),
        }
    }
}

/// Distribution of latencies, in bounded memory: about 430 KiB.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Distribution {
    pub fn new() -> Distribution {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        let histogram = histogram.expect("the bounds are ones that a histogram can have");
        Distribution { histogram, sum_ns: 0, max_ns: 0 }
    }

    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
        self.sum_ns += u128::from(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn latencies(&self) -> Latencies {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |share| us(self.histogram.value_at_quantile(share).min(self.max_ns));
        Latencies {
            mean_us: self.sum_ns as f64 / self.count().max(1) as f64 / 1e3,
            p50_us: quantile(0.5),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: us(self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_device::paper;

    /// 1,000 accesses: 900 read hits of 40 us; 50 read misses and 45 writes, 200 us either way; 5 refused writes of
    /// 1,000 us. So 95 % and 99 % take up to 200 us, 99.9 % and the maximum 1,000 us.
    #[test]
    fn percentiles_of_device_latencies_are_those_of_the_nearest_rank() {
        let mut counts = Counts { hits: [900, 30], admissions: [20, 15], bypasses: [30, 5], written_back: 7 };
        let latencies = Latencies::of_devices(&paper(), &counts, 0, 4096);
        let Latencies { p50_us, p95_us, p99_us, p999_us, max_us, .. } = latencies;
        assert_eq!([p50_us, p95_us, p99_us, p999_us, max_us], [40.0, 200.0, 200.0, 1000.0, 1000.0]);
        assert_eq!(latencies.mean_us, (900.0 * 40.0 + 95.0 * 200.0 + 5.0 * 1000.0) / 1000.0);
        // With one refused write fewer, 999 of 1,000 take up to 200 us.
        (counts.hits[1], counts.bypasses[1]) = (34, 1);
        let latencies = Latencies::of_devices(&paper(), &counts, 0, 4096);
        assert_eq!((latencies.p999_us, latencies.max_us), (200.0, 1000.0));
        assert_eq!(Latencies::of_devices(&paper(), &Counts::default(), 0, 4096), Latencies::default());
    }

    #[test]
    fn a_distribution_is_exact_but_for_a_thousandth_of_its_percentiles() {
        let mut distribution = Distribution::new();
        (1..=10_000).for_each(|us| distribution.record(us * 1000));
        let latencies = distribution.latencies();
        assert_eq!((distribution.count(), latencies.mean_us, latencies.max_us), (10_000, 5000.5, 10_000.0));
        let Latencies { p50_us, p95_us, p99_us, p999_us, .. } = latencies;
        for (found, exact) in [(p50_us, 5000.0), (p95_us, 9500.0), (p99_us, 9900.0), (p999_us, 9990.0)] {
            assert!((exact..=exact * 1.001).contains(&found), "{found} for {exact}");
        }
        distribution.record(u64::MAX);
        assert_eq!(distribution.latencies().max_us, u64::MAX as f64 / 1e3);
        assert_eq!(Distribution::new().latencies(), Latencies::default());
    }
}
