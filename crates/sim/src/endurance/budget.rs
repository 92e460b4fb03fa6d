//! M_T and C_T: as many insertions as a budget of erasures allows.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.2, Algorithm H_T.
//!
//! A budget that is a share refers to the erasures of the algorithm without it. Section 6.3: "from 25%-75% of the EPBPD
//! necessary for M or C respectively". With `of=m+`, C_T takes those of M+ too, so both have the same budget.
//!
//! Departures from the paper: Step 2 derives the number of insertions directly from the budget. But the erasures of an
//! insertion depend on which others are left out. So here reruns search for the number to leave out until the budget is
//! met. The search is between the largest number that was too few and the smallest that was enough.

/// A budget is met if at least this share of it is used.
const CLOSE: f64 = 0.98;

/// The search for the insertions that a limit to the erasures leaves out.
pub(super) struct Within<'a> {
    /// Returns the erasures of the algorithm without this many insertions.
    pub erasures: &'a dyn Fn(u64) -> u64,
    /// Number of insertions.
    pub insertions: u64,
}

impl Within<'_> {
    /// Returns the number of insertions to leave out: of the numbers tried with at most `budget` erasures, that with
    /// the most erasures.
    pub fn budget(&self, budget: f64) -> u64 {
        let is_close = |erasures: u64| erasures as f64 >= CLOSE * budget || erasures as f64 > budget - 1.0;
        let all = (self.erasures)(0);
        if all as f64 <= budget {
            return 0;
        }
        // A number that is too few, with its erasures, and a number that is enough.
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
                // Interpolates a little below the budget.
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
