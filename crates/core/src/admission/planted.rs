//! Planted: a minimal rule for tests of the table. This file and its row are all that a new rule needs, and `adaptive`
//! can adapt it.
//!
//! Source: none. It admits one of every few accesses.

use super::{Info, Judge, Thresholds, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// The planted rule's row in the table of rules.
pub static INFO: Info = Info {
    name: "planted",
    title: "Planted by a test",
    source: "none",
    parameters: &[
        Parameter::of("every", Kind::Count(1, 1000), "2").means("of this many accesses one is admitted"),
        WRITES,
    ],
    thresholds: Some(Thresholds {
        at: |position, last| (1.0 + last - position).round(),
        shown: |threshold, _block_bytes| format!("every={threshold}"),
    }),
    decides: None,
};

/// Admits one of `every` accesses.
#[derive(Clone, Debug)]
pub struct Planted {
    every: u64,
    seen: u64,
}

impl<I: Index> Judge<I> for Planted {
    fn build(options: &Options, _index: I, _capacity: usize, _block_bytes: u64) -> Self {
        Planted { every: options.count("every"), seen: 0 }
    }

    fn set_threshold(&mut self, every: f64) {
        self.every = every as u64;
    }

    #[inline]
    fn judge(&mut self, _access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.seen += 1;
        self.seen.is_multiple_of(self.every) || is_cached()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{RULES, Setting, Spec};
    use crate::index::Dense;
    use crate::policy::{self, Outcome, Policy, Visitor};
    use crate::tiers::{Array, Device, Tier};

    const TIER: Tier = Tier {
        device: Device { capacity_bytes: 1e6, endurance_cycles: 1e4, read_latency_us: 100.0, write_latency_us: 100.0 },
        devices: 1.0,
        write_amplification: 1.0,
    };
    const SETTING: Setting = Setting { block_bytes: 4096, array: Array { cache: TIER, storage: TIER } };

    /// Runs accesses to this many blocks, one per second; returns the admitted ones, and the last decision's threshold.
    struct Run(u32);

    impl Visitor<u32> for Run {
        type Output = (Vec<u32>, Option<f64>);

        fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
            let admitted = (0..self.0).filter(|&block| {
                policy.tick(u64::from(block) * 1_000_000);
                matches!(policy.access(Access::read(block)), Outcome::Admit { .. })
            });
            let admitted = admitted.collect();
            policy.check();
            (admitted, policy.decision().map(|decision| decision.threshold))
        }
    }

    fn run(rule: &str, blocks: u32) -> (Vec<u32>, Option<f64>) {
        let lru: policy::Spec = "lru".parse().unwrap();
        let rule: Spec = rule.parse().unwrap();
        Run(blocks).visit(rule.build(&lru, Dense::new(0), 1000, &SETTING))
    }

    #[test]
    fn a_file_and_a_row_make_a_rule() {
        assert!(RULES.iter().any(|info| info.name == "planted"));
        assert_eq!(run("planted", 6), (vec![1, 3, 5], None));
        assert_eq!(run("planted:every=3", 6), (vec![2, 5], None));
    }

    /// Everything is admitted before the first decision. No access repeats, so each admitted block is written in vain.
    /// The first shadow, which admits the fewest, makes the cache last longest.
    #[test]
    fn adaptive_adapts_any_rule_with_thresholds() {
        let rule = "adaptive:kind=planted,shadows=4,timeframe=200s,sampling=1,objective=lifetime,target=1h,alpha=0";
        let (admitted, threshold) = run(rule, 1000);
        assert_eq!(admitted[..200], (0..200).collect::<Vec<_>>());
        assert!(admitted.len() < 600, "{} of 1000 are admitted", admitted.len());
        assert_eq!(threshold, Some(4.0));
        let decided: Spec = rule.parse().unwrap();
        assert_eq!(decided.choice(&"lru".parse().unwrap(), None, 4096).as_deref(), Some("everything"));
    }
}
