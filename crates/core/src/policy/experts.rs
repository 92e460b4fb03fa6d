//! Two policies that are trusted by weight: which of them evicts is drawn, and the one whose victims are missed loses weight. LeCaR and CACHEUS
//! learn so.
//!
//! Source: Vietri et al.: Driving cache replacement with ML-based LeCaR. HotStorage 2018, Algorithm 2; the bounds of a weight are those of
//! the authors' Python code.

use crate::random::Random;

/// No weight is greater.
const WEIGHT_MAX: f64 = 0.99;

/// The weights, which are 1 together.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    /// The weight of the first; that of the second is the rest to 1.
    pub first: f64,
    pub random: Random,
}

impl Experts {
    /// Two that are trusted alike.
    pub fn new(seed: u64) -> Experts {
        Experts { first: 0.5, random: Random::new(seed) }
    }

    /// Whether the first is drawn.
    #[inline]
    pub fn draw_first(&mut self) -> bool {
        self.random.share() < self.first
    }

    /// What the first evicted, or else the second, is missed: it keeps so much of its weight before both are 1 together again.
    #[inline]
    pub fn regret(&mut self, is_first: bool, kept: f64) {
        let (mut first, mut second) = (self.first, 1.0 - self.first);
        if is_first {
            first *= kept;
        } else {
            second *= kept;
        }
        self.first = (first / (first + second)).clamp(1.0 - WEIGHT_MAX, WEIGHT_MAX);
    }

    /// Asserts what always holds.
    pub fn check(&self) {
        assert!((1.0 - WEIGHT_MAX..=WEIGHT_MAX).contains(&self.first), "the first weighs {}", self.first);
    }
}
