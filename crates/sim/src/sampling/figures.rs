//! Figures of a row about the accuracy of estimates from a sample.

use flashwise_core::human;
use flashwise_core::quantity::Share;
use flashwise_trace::sampling::Sample;

use super::estimate::{Regression, Uncertainty};
use crate::columns::figures;

/// Groups of blocks that a sampled cache should hold at least. Below that its size errs by more than a twentieth.
pub const GROUPS_MIN: f64 = 400.0;

figures! {
    /// Figures about a sample and the accuracy of its estimates. All other figures of a row are of the whole trace:
    /// accesses are counted, their outcomes are estimates.
    pub struct SampleFigures {
        /// The requested share of the blocks.
        sample_rate: f64, "share";
        /// Size of a group of blocks, which is in the sample as a whole: one block, or 64 KiB with an admission rule.
        sample_group_bytes: u64, "bytes";
        /// Block accesses of the sample, including the warm-up.
        sample_accesses: u64, "block accesses";
        /// Size of the simulated small cache, in sampled blocks.
        sample_capacity_blocks: u64, "blocks";
        /// Size of the simulated small cache, in groups.
        sample_capacity_groups: f64, "groups";
        /// Standard error of `hit_ratio`, from the sampled accesses and from the size of the small cache.
        hit_ratio_standard_error: f64, "share", "error", "standard error of hits";
        /// Maximum distance of `hit_ratio` from that of the whole trace, in 95 of 100 samples.
        hit_ratio_margin: f64, "share";
        /// The lower end of the interval that holds the hit ratio of the whole trace in 95 of 100 samples.
        hit_ratio_low: f64, "share", "hits from", "the hits of the whole trace are between this and the next in 95 of \
            100 samples";
        /// The upper end of that interval.
        hit_ratio_high: f64, "share", "to", "";
        /// A warning if the sample is too small for the cache, with the right size, or if the flash does not shrink
        /// with the sample.
        sample_caveat: Option<String>, "";
    }
}

/// Policies that count, age or learn with numbers that do not shrink with the cache. For them, intervals held the true
/// hits in fewer than half of eight samples of 5 or 10 % of some trace (docs/results/sampling.md).
const UNSCALED: [&str; 5] = ["cacheus", "lecar", "lfu", "smq", "w-tinylfu"];

impl SampleFigures {
    /// Returns the figures for a cache of this many sampled blocks, whose hit ratio changes `by_size` with the error of
    /// its size.
    pub(super) fn new(
        sample: &Sample,
        block_size_bytes: u64,
        sampled_blocks: usize,
        regression: &Regression,
        by_size: f64,
        hit_ratio: f64,
    ) -> SampleFigures {
        let groups = sample.groups_of(sampled_blocks);
        let of_size = (by_size, groups.max(1.0));
        let Uncertainty { standard_error, margin } =
            Uncertainty::of(&[(regression.standard_error(), regression.freedom()), of_size]);
        let figures = SampleFigures {
            sample_rate: sample.sampling().rate(),
            sample_group_bytes: sample.sampling().group_bytes(block_size_bytes),
            sample_accesses: sample.sampled_before(u64::MAX),
            sample_capacity_blocks: sampled_blocks as u64,
            sample_capacity_groups: groups,
            hit_ratio_standard_error: standard_error,
            hit_ratio_margin: margin,
            hit_ratio_low: (hit_ratio - margin).max(0.0),
            hit_ratio_high: (hit_ratio + margin).min(1.0),
            sample_caveat: None,
        };
        SampleFigures { sample_caveat: figures.caveat(), ..figures }
    }

    /// Adds a caveat if this policy's learnt state does not shrink with its cache.
    pub(super) fn of_policy(self, name: &str) -> SampleFigures {
        let caveat = || {
            format!(
                "what {name} learns from does not become smaller with a sample: its hits may be further off than is \
                 said"
            )
        };
        let does = UNSCALED.contains(&name) && self.sample_rate < 1.0;
        SampleFigures { sample_caveat: self.sample_caveat.or_else(|| does.then(caveat)), ..self }
    }

    /// Adds a caveat for a cache on flash, whose erase units do not shrink.
    pub(crate) fn on_flash(self) -> SampleFigures {
        let caveat = "erase units are not smaller in a sample: hits of caches that evict them, and erasures, may be \
            further off than is said";
        let sample_caveat = self.sample_caveat.or_else(|| (self.sample_rate < 1.0).then(|| caveat.to_owned()));
        SampleFigures { sample_caveat, ..self }
    }

    /// Returns the figures around another hit ratio.
    pub(crate) fn around(&self, hit_ratio: f64) -> SampleFigures {
        SampleFigures {
            hit_ratio_low: (hit_ratio - self.hit_ratio_margin).max(0.0),
            hit_ratio_high: (hit_ratio + self.hit_ratio_margin).min(1.0),
            ..self.clone()
        }
    }

    /// True if the sample is too small for the size.
    pub fn is_small(&self) -> bool {
        self.sample_capacity_groups < GROUPS_MIN && self.sample_rate < 1.0
    }

    /// Returns a caveat if the sample is too small for the size, with a sufficient share.
    fn caveat(&self) -> Option<String> {
        if !self.is_small() {
            return None;
        }
        let groups = self.sample_capacity_groups;
        let wanted = self.sample_rate * GROUPS_MIN / groups;
        let expected = match Share::new((wanted * 1000.0).ceil() / 1000.0) {
            Some(share) if wanted < 0.5 => format!("--sample {share}"),
            _ => "a run without --sample".to_owned(),
        };
        let found = match groups == self.sample_capacity_blocks as f64 {
            true => human::counted(self.sample_capacity_blocks, "sampled block"),
            false => format!("{} groups of {}", human::number(groups), human::bytes(self.sample_group_bytes as f64)),
        };
        Some(format!("the sample is small: {found} fill the cache, expected {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caveat(sample_rate: f64, sample_capacity_groups: f64) -> Option<String> {
        let (sample_group_bytes, sample_capacity_blocks) = (65_536, 40);
        SampleFigures {
            sample_rate,
            sample_group_bytes,
            sample_capacity_blocks,
            sample_capacity_groups,
            ..SampleFigures::default()
        }
        .caveat()
    }

    #[test]
    fn policies_that_do_not_scale_are_reported() {
        let figures = |rate| SampleFigures { sample_rate: rate, ..SampleFigures::default() };
        let caveat = |rate, name| figures(rate).of_policy(name).sample_caveat;
        assert!(caveat(0.05, "lecar").unwrap().starts_with("what lecar learns from does not become smaller"));
        assert_eq!((caveat(1.0, "lecar"), caveat(0.05, "lru")), (None, None));
        for name in UNSCALED {
            assert!(flashwise_core::policy::POLICIES.iter().any(|info| info.name == name), "{name}");
        }
    }

    #[test]
    fn a_sample_that_is_too_small_says_how_large_it_should_be() {
        let said = "the sample is small: 40 sampled blocks fill the cache, expected --sample 10%";
        assert_eq!(caveat(0.01, 40.0).as_deref(), Some(said));
        let said = "the sample is small: 3 groups of 64 KiB fill the cache, expected a run without --sample";
        assert_eq!(caveat(0.01, 3.0).as_deref(), Some(said));
        assert_eq!((caveat(0.01, GROUPS_MIN), caveat(1.0, 1.0)), (None, None));
    }
}
