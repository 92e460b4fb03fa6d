//! M_T and C_T: as many insertions as a budget of erasures allows.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.2, Algorithm H_T.
//!
//! A budget that is a share is one of the erasures that the algorithm has without it, as section 6.3 has it: "from 25%-75% of the EPBPD necessary
//! for M or C respectively". `of=m+` takes those of M+ for C_T too, so that both have the same budget.
//!
//! Departures from the paper: Step 2 takes from the number of insertions how many the budget allows. How many erasures come of an insertion
//! depends on which others are left out, so that here reruns try how many to leave out, between the most that were too few and the
//! fewest that were enough, until the budget is met.

/// A budget is met by at most this share less.
const CLOSE: f64 = 0.98;

/// What a limit to the erasures left of an algorithm.
pub(super) struct Within<'a> {
    /// How often the algorithm erases that leaves out this many insertions.
    pub erasures: &'a dyn Fn(u64) -> u64,
    /// How many insertions there are to leave out.
    pub insertions: u64,
}

impl Within<'_> {
    /// How many insertions to leave out: of those numbers that were tried and have at most `budget` erasures, the one with the most.
    pub fn budget(&self, budget: f64) -> u64 {
        let is_close = |erasures: u64| erasures as f64 >= CLOSE * budget || erasures as f64 > budget - 1.0;
        let all = (self.erasures)(0);
        if all as f64 <= budget {
            return 0;
        }
        // This many left out are too few, with this many erasures; and this many are enough.
        let (mut few, mut few_erasures) = (0, all as f64);
        let (mut enough, mut enough_erasures) = (self.insertions, 0.0);
        // The best number so far, and its erasures.
        let mut best: Option<(u64, u64)> = None;
        let mut tries = 0;
        while best.is_none_or(|(_, erasures)| !is_close(erasures)) && enough - few > 1 {
            tries += 1;
            let count = if tries % 3 == 0 {
                few + (enough - few) / 2
            } else {
                // A little below the budget, on the line between the two.
                let target = (1.0 + CLOSE) / 2.0 * budget;
                let share = (few_erasures - target) / (few_erasures - enough_erasures).max(1.0);
                few + ((enough - few) as f64 * share) as u64
            };
            let count = count.clamp(few + 1, enough - 1);
            let found = (self.erasures)(count);
            if found as f64 > budget {
                (few, few_erasures) = (count, found as f64);
            } else {
                (enough, enough_erasures) = (count, found as f64);
                if best.is_none_or(|(_, erasures)| erasures <= found) {
                    best = Some((count, found));
                }
            }
        }
        best.map_or(enough, |(count, _)| count)
    }
}
