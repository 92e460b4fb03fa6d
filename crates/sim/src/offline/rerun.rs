//! M+, M_N and M_T: a plan without its least useful insertions.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.2, Algorithms H, H_T and H_N; function OnInsert of section 4.2.

use flashwise_core::access::NEVER;
use flashwise_core::positions::Positions;
use flashwise_trace::progress::Progress;

use super::plan::Planner;
use super::{FlashStream, Insertion, NOT_EVICTING, Plan};

/// The insertions of a plan that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Insertions with fewer read hits are left out: N of H_N, R of H_T.
    pub hits: u32,
    /// Also the first this many of those with exactly as many read hits: L of H_T.
    pub leftover: u64,
}

impl Threshold {
    /// Leaves out insertions with fewer than `hits` read hits: R_N of Table 1.
    pub fn least_hits(hits: u32) -> Threshold {
        Threshold { hits, leftover: 0 }
    }

    /// Leaves out `count` insertions of `plan`, those with the fewest read hits, and of equals the first: Step 2 of
    /// H_T.
    pub fn of_count(plan: &Plan, count: u64) -> Threshold {
        let hits = |insertion: &Insertion| insertion.hits;
        let most = plan.insertions().iter().map(hits).max().unwrap_or(0);
        let mut with_hits = vec![0_u64; most as usize + 1];
        for insertion in plan.insertions() {
            with_hits[insertion.hits as usize] += 1;
        }
        let mut leftover = count;
        for (hits, &insertions) in (0..).zip(&with_hits) {
            if leftover < insertions {
                return Threshold { hits, leftover };
            }
            leftover -= insertions;
        }
        Threshold { hits: most + 1, leftover: 0 }
    }
}

impl Plan {
    /// Repeats the decisions over the same stream with a cache of `capacity` blocks, without the insertions below
    /// `threshold`. Blocks with room then stay longer than in this plan. `progress` may end it.
    pub fn rerun(&self, stream: &FlashStream, capacity: usize, threshold: Threshold, progress: &dyn Progress) -> Plan {
        let mut rerun = Rerun {
            stream,
            capacity,
            planner: Planner::new(stream, progress),
            planned: Positions::new(),
            overdue: Positions::new(),
            len: 0,
        };
        let mut leftover = threshold.leftover;
        let mut insertions = self.insertions().iter();
        for decision in self.decisions() {
            if *decision != super::Decision::Insert {
                rerun.access(false);
                continue;
            }
            let insertion = insertions.next().expect("there is an insertion for each decision to insert");
            rerun.evict_by_plan(insertion.evicts);
            let mut worth_it = insertion.hits >= threshold.hits;
            if insertion.hits == threshold.hits && leftover > 0 {
                leftover -= 1;
                worth_it = false;
            }
            rerun.access(worth_it);
        }
        rerun.planner.finish()
    }
}

/// MIN_Q in two parts, each with the next reads of its blocks.
struct Rerun<'a> {
    stream: &'a FlashStream,
    capacity: usize,
    planner: Planner<'a>,
    /// Blocks that the plan has in its cache. With those left out they fit there, so they fit here.
    planned: Positions,
    /// Blocks that the plan has evicted, or would not have inserted. They stay while there is room.
    overdue: Positions,
    /// Number of both.
    len: usize,
}

impl Rerun<'_> {
    /// Performs the plan's eviction of the block that is next read at `evicts`.
    #[inline]
    fn evict_by_plan(&mut self, evicts: u32) {
        if evicts != NOT_EVICTING && self.planned.remove(evicts) {
            self.overdue.insert(evicts);
        }
    }

    /// Decides about the next access. `inserts` is true if the plan inserts the block and the insertion is not left
    /// out.
    #[inline]
    fn access(&mut self, inserts: bool) {
        let position = self.planner.position();
        let next_read = self.stream.next_read(position);
        let planned = self.planned.remove(position as u32);
        if planned || self.overdue.remove(position as u32) {
            self.planner.hit();
            if next_read == NEVER {
                self.len -= 1;
            } else if planned || inserts {
                self.planned.insert(next_read);
            } else {
                self.overdue.insert(next_read);
            }
        } else if inserts {
            let mut evicts = NOT_EVICTING;
            if self.len == self.capacity {
                evicts =
                    self.overdue.greatest().expect("what the plan has in its cache leaves room for what it inserts");
                self.overdue.remove(evicts);
            } else {
                self.len += 1;
            }
            self.planned.insert(next_read);
            self.planner.insert(evicts);
        } else {
            self.planner.bypass();
        }
    }
}
