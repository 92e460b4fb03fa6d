//! Probability: admit a random portion p of the missed blocks.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section III.C.
//!
//! Departures from the paper: each missed block is drawn separately, not all blocks of a request together.

use super::{Info, Judge, SEED, Thresholds, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::random::Random;

/// Probability's row in the table of rules.
pub static INFO: Info = Info {
    name: "probability",
    title: "Admits a portion of the misses at random",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through \
        workload sampling. MSST 2016, section III.C",
    parameters: &[
        Parameter::of("p", Kind::Number(0.0, 1.0), "0.3")
            .means("the portion of the missed blocks that is admitted; the best in the paper's Figure 5a"),
        WRITES,
        SEED,
    ],
    thresholds: Some(Thresholds { at, shown }),
    decides: None,
};

/// Even steps from 0.01 to 1.
fn at(position: f64, last: f64) -> f64 {
    let share = position / last;
    share + 0.01 * (1.0 - share)
}

fn shown(threshold: f64, _block_bytes: u64) -> String {
    format!("p={threshold:.2}")
}

/// Bits of the random numbers, as many as of `p`.
const BITS: u32 = 53;

/// Admits a portion of the missed blocks.
#[derive(Clone, Debug)]
pub struct Probability {
    /// `p` times 2^53: smaller random numbers admit.
    p: u64,
    random: Random,
}

impl Probability {
    /// Creates the rule with `options`.
    pub fn new(options: &Options) -> Self {
        Probability::with(options.number("p"), options.count("seed"))
    }

    /// Creates a rule that admits with the probability `p`, from 0 to 1.
    pub fn with(p: f64, seed: u64) -> Self {
        let mut rule = Probability { p: 0, random: Random::new(seed) };
        rule.set_p(p);
        rule
    }

    /// Sets the probability `p`, from 0 to 1.
    pub(super) fn set_p(&mut self, p: f64) {
        assert!((0.0..=1.0).contains(&p), "p = {p}");
        self.p = (p * (1_u64 << BITS) as f64) as u64;
    }

    /// True if the missed block is admitted.
    #[inline]
    pub(super) fn admits(&mut self) -> bool {
        self.random.bits() >> (64 - BITS) < self.p
    }
}

impl<I: Index> Judge<I> for Probability {
    fn build(options: &Options, _index: I, _capacity: usize, _block_bytes: u64) -> Self {
        Probability::new(options)
    }

    fn set_threshold(&mut self, p: f64) {
        self.set_p(p);
    }

    /// Judges an access. Every access draws a number, hits too.
    #[inline(always)]
    fn judge(&mut self, _access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.admits() || is_cached()
    }

    fn request_blocks_max(&self) -> u64 {
        if self.p == 0 { 0 } else { u64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portion_admitted_is_p_and_depends_on_the_seed_only() {
        let rule = |text| Probability::new(&Options::parse("probability", INFO.parameters, text).unwrap());
        let draw = |mut rule: Probability| (0..100_000).map(|_| rule.admits()).collect::<Vec<_>>();
        for (text, least, most) in [("p=0", 0, 0), ("p=1", 100_000, 100_000), ("p=30%", 29_500, 30_500)] {
            let admitted = draw(rule(text)).iter().filter(|&&admits| admits).count();
            assert!((least..=most).contains(&admitted), "{text}: {admitted}");
        }
        assert_eq!(draw(rule("p=0.5,seed=7")), draw(rule("p=0.5,seed=7")));
        assert_ne!(draw(rule("p=0.5,seed=7")), draw(rule("p=0.5,seed=8")));
    }
}
