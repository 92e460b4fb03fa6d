//! Two policies trusted by weight: a random draw selects which one evicts, and the one whose victims are missed loses
//! weight. LeCaR and CACHEUS learn this way.

use crate::random::Random;

/// The maximum of a weight.
const WEIGHT_MAX: f64 = 0.99;

/// The weights, which sum to 1.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    /// The weight of the first policy.
    pub first: f64,
    pub random: Random,
}

impl Experts {
    /// Creates two policies with equal weights.
    pub fn new(seed: u64) -> Experts {
        Experts { first: 0.5, random: Random::new(seed) }
    }

    /// True if the first policy is drawn.
    #[inline]
    pub fn draw_first(&mut self) -> bool {
        self.random.share() < self.first
    }

    /// Penalises the policy whose victim is missed: its weight is multiplied by `kept`, and both are normalised to sum
    /// to 1.
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

    /// Asserts the invariants.
    pub fn check(&self) {
        assert!((1.0 - WEIGHT_MAX..=WEIGHT_MAX).contains(&self.first), "the first weighs {}", self.first);
    }
}
