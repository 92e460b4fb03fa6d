//! Latency and lifetime of an array in a run over a trace.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section IV.

use flashwise_core::admission::Setting;
use flashwise_core::tiers::latency_over_lifetime;

use super::arrivals::Arrivals;
use super::clients::Waits;
use super::latency::Latencies;
use crate::columns::{Show, figures};
use crate::stretch::Counts;

figures! {
    /// Latency and lifetime of an array in a run over a trace. Lifetimes of devices without wear are infinite, `null`
    /// in JSON.
    pub struct ArrayFigures {
        /// Times of the requests: `none`, `trace` or `closed`, with options.
        arrivals: String, "";
        /// Mean latency: of a block access if requests do not wait, otherwise of a request until its answer.
        latency_mean_us: f64, "us", "latency", "mean, of a block access, or of a request where requests wait";
        /// The latency that half of them do not exceed.
        latency_p50_us: f64, "us", "p50", "";
        /// The latency that 95 % do not exceed.
        latency_p95_us: f64, "us", "p95", "";
        /// The latency that 99 % do not exceed.
        latency_p99_us: f64, "us", "p99", "";
        /// The latency that 99.9 % do not exceed.
        latency_p999_us: f64, "us", "p99.9", "";
        /// The longest latency.
        latency_max_us: f64, "us", "max", "";
        /// Mean latency of the worst interval. A run has at most 48 equal ones, unless they exceed an hour. None if
        /// requests do not wait.
        latency_worst_us: Option<f64>, "us";
        /// Start of that interval, after the first counted request.
        latency_worst_after_s: Option<f64>, "s";
        /// Length of that interval.
        latency_worst_seconds: Option<f64>, "s";
        /// Requests answered per second of a closed loop.
        requests_per_s: Option<f64>, "requests a second", "requests/s", "";
        /// The work of the busiest device of the cache, per time of its channels. Above 1 it cannot keep up. None if
        /// requests do not wait.
        cache_utilisation: Option<f64>, "share", "cache use", "work of the busiest device, per time of its channels";
        /// The work of the busiest device of the storage, per time of its channels. Above 1 it cannot keep up. None if
        /// requests do not wait.
        storage_utilisation: Option<f64>, "share", "storage use", "the same";
        /// Lifetime of the array: that of the tier that wears out first.
        lifetime_years: f64, "years", "lifetime years", "of the array, cache and storage", Show::Rate;
        /// Latency over lifetime: microseconds of `latency_mean_us` per year of `lifetime_years`.
        latency_over_lifetime: f64, "us a year", "us per year", "latency over lifetime", Show::Rate;
        /// `w_c`: writes per cell of the cache and second.
        cache_write_rate: f64, "writes a cell and second", "cache writes", "per cell and second";
        /// `w_s`: writes per cell of the storage and second.
        storage_write_rate: f64, "writes a cell and second", "storage writes", "the same";
    }
}

impl ArrayFigures {
    /// Returns the figures of an array with `setting`, from the `counts` of this many seconds.
    pub fn of(setting: &Setting, counts: &Counts, seconds: f64) -> ArrayFigures {
        let traffic = counts.traffic(setting.block_bytes);
        let wear = setting.array.wear(&traffic, seconds);
        let ram = counts.answered_by_ram();
        let latencies = Latencies::of_devices(&setting.array, &counts.answered, ram, setting.block_bytes);
        let figures = ArrayFigures {
            arrivals: Arrivals::None.to_string(),
            lifetime_years: wear.lifetime_years(),
            cache_write_rate: wear.cache_writes,
            storage_write_rate: wear.storage_writes,
            ..ArrayFigures::default()
        };
        figures.with_latencies(&latencies)
    }

    /// Returns the figures with simulated waits. Lifetimes still follow the times of the trace.
    pub fn with_waits(self, waits: &Waits) -> ArrayFigures {
        let figures = ArrayFigures {
            arrivals: waits.arrivals.to_string(),
            latency_worst_us: waits.worst.map(|worst| worst.mean_us),
            latency_worst_after_s: waits.worst.map(|worst| worst.after_s),
            latency_worst_seconds: waits.worst.map(|worst| worst.seconds),
            requests_per_s: waits.requests_per_s,
            cache_utilisation: waits.cache_utilisation,
            storage_utilisation: waits.storage_utilisation,
            ..self
        };
        figures.with_latencies(&waits.latencies)
    }

    fn with_latencies(self, latencies: &Latencies) -> ArrayFigures {
        let Latencies { mean_us, p50_us, p95_us, p99_us, p999_us, max_us } = *latencies;
        ArrayFigures {
            latency_mean_us: mean_us,
            latency_p50_us: p50_us,
            latency_p95_us: p95_us,
            latency_p99_us: p99_us,
            latency_p999_us: p999_us,
            latency_max_us: max_us,
            latency_over_lifetime: latency_over_lifetime(mean_us, self.lifetime_years),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_core::access::Op;
    use flashwise_core::account;
    use flashwise_core::counters::Counters;
    use flashwise_core::policy::Outcome;
    use flashwise_core::tiers::YEAR_SECONDS;
    use flashwise_device::paper;

    /// 100 blocks of 10 bytes in the cache, storage for 1,000 blocks. 30 hits, 10 admissions and 10 refusals of each op
    /// in 2 s:
    ///
    ///     written to the cache: 10 + 40 blocks: 0.5 a cell, 0.25 a second, of 100,000
    ///     written to the storage: 10 and 5 written back: 0.015 a cell, 0.0075 a second, of 10,000: 0.75e-6 a second
    ///     L = (30 * 40 + 20 * 200 + 40 * 200 + 10 * 1000) / 100 = 232 us
    #[test]
    fn a_run_has_the_figures_of_its_counts() {
        let setting = Setting::of(&paper(), 10, 100.0 * 10.0, 10_000.0);
        let answered = account::Counts { hits: [30, 30], admissions: [10, 10], bypasses: [10, 10], written_back: 5 };
        let mut counters = Counters::default();
        for op in [Op::Read, Op::Write] {
            (0..10).for_each(|_| counters.record(op, &Outcome::<u32>::Bypass));
        }
        let counts = Counts { reads: 50, writes: 50, counters, answered, ..Counts::default() };
        let figures = ArrayFigures::of(&setting, &counts, 2.0);
        assert_eq!((figures.cache_write_rate, figures.storage_write_rate), (0.25, 0.0075));
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9 * expected;
        assert!(near(figures.latency_mean_us, 232.0), "{figures:?}");
        assert!(near(figures.lifetime_years, 1.0 / 2.5e-6 / YEAR_SECONDS), "{figures:?}");
        assert!(near(figures.latency_over_lifetime * figures.lifetime_years, 232.0), "{figures:?}");
    }
}
