//! The work of an array in an epoch of a run, and the choice of an adaptive rule by then. Each is a row of Moon and
//! Reddy's Figure 9.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section VI.C.

use flashwise_core::admission::Setting;
use flashwise_core::admission::adaptive::Decision;

use super::latency::Latencies;
use crate::columns::figures;
use crate::stretch::Stretch;

figures! {
    /// Figures of an array in an epoch. The rule's choice is null before its first decision, and for rules that do not
    /// adapt.
    pub struct ArrayEpoch {
        /// Start of the epoch, in seconds since the beginning of the trace.
        start_s: f64, "s";
        /// Length of the epoch.
        seconds: f64, "s";
        /// Misses per access.
        miss_ratio: f64, "share";
        /// Writes per access.
        write_share: f64, "share";
        /// Mean latency of a block access.
        latency_mean_us: f64, "us";
        /// `w_c`: writes per cell of the cache and second.
        cache_write_rate: f64, "writes a cell and second";
        /// `w_s`: writes per cell of the storage and second.
        storage_write_rate: f64, "writes a cell and second";
        /// `f_c`: share of the cache's endurance used per second.
        cache_wear_rate: f64, "share of endurance a second";
        /// `f_s`: share of the storage's endurance used per second.
        storage_wear_rate: f64, "share of endurance a second";
        /// The threshold at the end of the epoch: a portion, blocks or references. Null also if every length is
        /// admitted.
        threshold: Option<f64>, "of the rule";
        /// Position among the thresholds, from 0 to 1; at 1 everything is admitted.
        threshold_position: Option<f64>, "share";
        /// The policy at the end of the epoch, if the rule chooses policies.
        chosen_policy: Option<String>, "";
    }
}

impl ArrayEpoch {
    /// The figures of `stretch`, a part of a run with the array of `setting` and these `decisions`.
    pub fn of(setting: &Setting, stretch: &Stretch, decisions: &[Decision]) -> ArrayEpoch {
        let Stretch { start_s, seconds, counts, .. } = stretch;
        let traffic = counts.traffic(setting.block_bytes);
        let ram = counts.answered_by_ram();
        let latencies = Latencies::of_devices(&setting.array, &counts.answered, ram, setting.block_bytes);
        let accesses = counts.accesses() as f64;
        let wear = setting.array.wear(&traffic, *seconds);
        let decision = decisions[..stretch.decisions].last();
        let adapted = decision.filter(|decision| decision.policy.is_none());
        let last = |decision: &Decision| (decision.shadows.len() - 1) as f64;
        ArrayEpoch {
            start_s: *start_s,
            seconds: *seconds,
            miss_ratio: 1.0 - counts.hits() as f64 / accesses,
            write_share: counts.writes as f64 / accesses,
            latency_mean_us: latencies.mean_us,
            cache_write_rate: wear.cache_writes,
            storage_write_rate: wear.storage_writes,
            cache_wear_rate: wear.cache_rate,
            storage_wear_rate: wear.storage_rate,
            // No request has 2^64 - 1 blocks, so that threshold admits every length.
            threshold: adapted.map(|decision| decision.threshold).filter(|threshold| *threshold < u64::MAX as f64),
            threshold_position: adapted.map(|decision| decision.position / last(decision)),
            chosen_policy: decision.and_then(|decision| decision.policy.clone()),
        }
    }
}
