//! The recommendation for a trace: a size and a policy.
//!
//! The size is the knee of a curve, which shows the most hits at each size. The knee is the point furthest above the
//! straight line from no cache to a cache of every block.
//! Source: Satopaa, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a haystack. SIMPLEX 2011.
//! Beyond the knee, each larger simulated size adds fewer hits per byte than the smaller one has on average. The line
//! does not end at the largest simulated size, so adding a larger size moves the knee only to that size.
//!
//! The policy is the one with the highest [`worth`] there, from its hits and the wear of the flash. Small differences
//! do not predict the next week: among similar policies, the one that leads at most sizes wins. No row dominates the
//! recommended one, which means: at least equal in hits, wear and size, and better in one of them.

use std::cmp::Reverse;

use crate::grid::{Grid, GridSize};
use crate::rows::erasures;
use flashwise_sim::results::ResultRow;

/// A policy with this share of the most hits is compared by its wear. The smallest share has to wear out the flash much
/// less, see [`worth`].
const COMPARED: f64 = 0.9;
/// Logarithm of wear that is worth one of hits: a tenth fewer flash writes are worth 1.3 % of the hits, and half of
/// them 8 %.
const WEAR_FOR_HITS: f64 = 8.0;
/// Policies within this share of the worth of the best are alike. Of these the one that leads at most sizes is taken.
pub const ALIKE: f64 = 0.01;
/// A smaller cache with as many hits is recommended up to this many times the wear.
const SMALLER_WEAR: f64 = 4.0 / 3.0;
/// The alternative to the recommended policy has at least this share of its hits.
const SPARING_HITS: f64 = 0.75;
/// The alternative has at most this share of the recommended policy's flash writes.
const SPARING_WRITES: f64 = 0.5;

/// Policies besides the recommended one that rules are tried before.
const OTHERS_MAX: usize = 3;

/// Wear of the flash by a run: erasures if they were simulated, otherwise blocks written.
pub fn wear(row: &ResultRow) -> u64 {
    erasures(row).unwrap_or(row.flash_writes_blocks)
}

/// True if a run hits as much as another in no larger cache and wears no more, and is better in one of these.
pub fn dominates(row: &ResultRow, other: &ResultRow) -> bool {
    let figures = |row: &ResultRow| (row.hits, wear(row), row.capacity_blocks);
    let is_as_good = row.hits >= other.hits && wear(row) <= wear(other) && row.capacity_blocks <= other.capacity_blocks;
    is_as_good && figures(row) != figures(other)
}

/// True if a run dominates another, or hits as much in a smaller cache and wears not much more.
fn is_better(row: &ResultRow, other: &ResultRow) -> bool {
    let is_smaller = row.capacity_blocks < other.capacity_blocks && row.hits >= other.hits;
    dominates(row, other) || is_smaller && wear(row) as f64 <= SMALLER_WEAR * wear(other) as f64
}

/// The worth of a run beside others, as a logarithm: its hits, less an eighth of its wear.
pub fn worth(row: &ResultRow) -> f64 {
    let log = |count: u64| (count.max(1) as f64).ln();
    log(row.hits) - log(wear(row)) / WEAR_FOR_HITS
}

/// A recommendation.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The size.
    pub size: GridSize<'a>,
    /// The policy's row at that size.
    pub row: &'a ResultRow,
    /// At how many sizes the policy has the most hits.
    pub leads: usize,
    /// The policy that has the most hits at most sizes, and at how many.
    pub leader: (&'a str, usize),
    /// A policy that wears the flash much less for a few hits.
    pub sparing: Option<&'a ResultRow>,
}

/// The rows with the most hits, one for each size at which something ran; of equal ones that of the first policy.
pub fn best_of_each_size<'a>(grid: &Grid<'a>) -> Vec<(GridSize<'a>, &'a ResultRow)> {
    let candidates = grid.candidates();
    let best = |&size: &GridSize<'a>| {
        let rows = candidates.iter().filter_map(|&policy| grid.row(policy, size));
        Some((size, rows.reduce(|best, row| if row.hits > best.hits { row } else { best })?))
    };
    grid.sizes.iter().filter_map(best).collect()
}

/// Returns the size that holds every block, and its hits; zeroes if the row does not have them.
fn whole(row: &ResultRow) -> (u64, u64) {
    match row.unique_blocks {
        0 => (0, 0),
        blocks => (blocks, row.accesses.saturating_sub(blocks)),
    }
}

/// The position of the knee among points of a size and its hits, the smallest size first; none without points. `all`:
/// the size that holds every block, and its hits, if they are known.
pub fn knee(points: &[(u64, u64)], all: (u64, u64)) -> Option<usize> {
    let largest = points.last()?.0.max(all.0).max(1) as f64;
    let most = points.iter().map(|point| point.1).max()?.max(all.1).max(1) as f64;
    let above = |&(size, hits): &(u64, u64)| hits as f64 / most - size as f64 / largest;
    let mut found = 0;
    for at in 1..points.len() {
        if above(&points[at]) > above(&points[found]) + 1e-12 {
            found = at;
        }
    }
    Some(found)
}

impl<'a> Choice<'a> {
    /// Returns the recommendation for the rows of a grid; `None` if nothing was counted.
    pub fn of(grid: &Grid<'a>) -> Option<Choice<'a>> {
        let best = best_of_each_size(grid);
        let points: Vec<_> = best.iter().map(|(size, row)| (size.blocks, row.hits)).collect();
        let (size, most) = best[knee(&points, whole(best.first()?.1))?];
        if most.accesses == 0 {
            return None;
        }
        let candidates = grid.candidates();
        let leads = |policy: &str| {
            let has_most = |(size, best): &&(GridSize, &ResultRow)| {
                let own = candidates.iter().find(|candidate| candidate.name == policy);
                own.and_then(|&own| grid.row(own, *size)).is_some_and(|row| row.hits == best.hits)
            };
            best.iter().filter(has_most).count()
        };
        let rows: Vec<_> = candidates.iter().filter_map(|&policy| grid.row(policy, size)).collect();
        let compared = || rows.iter().copied().filter(|row| row.hits as f64 >= COMPARED * most.hits as f64);
        let most_worth = compared().map(worth).fold(f64::NEG_INFINITY, f64::max);
        let alike = compared().filter(|row| worth(row) >= most_worth - ALIKE);
        // Of equal rows, the first wins.
        let better = |a: &'a ResultRow, b: &'a ResultRow| {
            let of = |row: &ResultRow| (leads(&row.policy), row.hits);
            if of(b) > of(a) { b } else { a }
        };
        let of_all_sizes = || {
            let policies = candidates.iter();
            policies.flat_map(|&policy| grid.sizes.iter().filter_map(move |&size| grid.row(policy, size)))
        };
        let better_than = |row| of_all_sizes().filter(move |other| is_better(other, row)).reduce(better_of_equals);
        let row = std::iter::successors(Some(alike.reduce(better)?), |&row| better_than(row)).last()?;
        let size = grid.sizes.iter().copied().find(|size| size.blocks == row.capacity_blocks)?;
        let rows: Vec<_> = candidates.iter().filter_map(|&policy| grid.row(policy, size)).collect();
        let spares = |other: &&&ResultRow| {
            other.hits as f64 >= SPARING_HITS * row.hits as f64
                && wear(other) as f64 <= SPARING_WRITES * wear(row) as f64
                && other.policy != row.policy
        };
        let sparing =
            rows.iter().filter(spares).copied().reduce(|best, row| if row.hits > best.hits { row } else { best });
        let led = candidates.iter().map(|policy| (policy.name, leads(policy.name)));
        let leader = led.reduce(|most, own| if own.1 > most.1 { own } else { most })?;
        Some(Choice { size, row, leads: leads(&row.policy), leader, sparing })
    }
}

/// The run with more hits; of equal hits the smaller one, then the one that wears less.
fn better_of_equals<'a>(one: &'a ResultRow, other: &'a ResultRow) -> &'a ResultRow {
    let key = |row: &ResultRow| (row.hits, Reverse(row.capacity_blocks), Reverse(wear(row)));
    if key(other) > key(one) { other } else { one }
}

/// The best few policies at the size of `choice` besides its own, and LRU: rules are tried before these too.
pub fn others<'a>(grid: &Grid<'a>, choice: &Choice<'a>) -> Vec<&'a str> {
    let rows = grid.candidates().into_iter().filter_map(|policy| grid.row(policy, choice.size));
    let mut rows: Vec<&ResultRow> = rows.filter(|row| row.policy != choice.row.policy).collect();
    rows.sort_by_key(|row| Reverse(row.hits));
    let mut names: Vec<&str> = rows.into_iter().take(OTHERS_MAX).map(|row| &row.policy[..]).collect();
    if !names.contains(&"lru") && choice.row.policy != "lru" {
        names.push("lru");
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grids of two sizes and four policies: no row of any size dominates the recommended one.
    #[test]
    fn no_row_dominates_the_recommended_one() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let mut of = Vec::new();
            for policy in ["a", "b", "d", "e"] {
                of.extend([10, 20].map(|size| (policy, size, 480 + random(30), 700 + random(150))));
            }
            let rows = rows(&of);
            let choice = Choice::of(&Grid::new(&rows)).unwrap();
            assert!(rows.iter().all(|row| !dominates(row, choice.row)), "{of:?}: {:?}", choice.row);
            assert_eq!(choice.size.blocks, choice.row.capacity_blocks);
        }
    }

    /// Policy, blocks, hits in 1000 accesses, blocks written to flash.
    fn rows(of: &[(&str, u64, u64, u64)]) -> Vec<ResultRow> {
        let row = |&(policy, capacity_blocks, hits, flash_writes_blocks): &(&str, u64, u64, u64)| ResultRow {
            policy: policy.into(),
            size: capacity_blocks.to_string(),
            capacity_blocks,
            block_size_bytes: 4096,
            accesses: 1000,
            hits,
            hit_ratio: hits as f64 / 1000.0,
            flash_writes_blocks,
            ..ResultRow::default()
        };
        of.iter().map(row).collect()
    }

    fn chosen(of: &[(&str, u64, u64, u64)]) -> (String, u64) {
        let rows = rows(of);
        let choice = Choice::of(&Grid::new(&rows)).unwrap();
        (choice.row.policy.to_string(), choice.size.blocks)
    }

    /// Above the line from (0, 0) to (50, 42): 0.05, 0.11, 0.29, 0.37, 0.35 and 0. The hits are those of the bundled
    /// trace in percent.
    #[test]
    fn the_knee_is_furthest_above_the_straight_line() {
        let knee_of = |points: &[(u64, u64)]| knee(points, (0, 0));
        assert_eq!(knee_of(&[(1, 286), (2, 640), (5, 1635), (10, 2412), (20, 3142), (50, 4190)]), Some(3));
        // A constant gain per step, and a growing one.
        assert_eq!((knee_of(&[(1, 1), (2, 10), (3, 30)]), knee_of(&[(1, 10), (2, 20), (3, 30)])), (Some(2), Some(0)));
        assert_eq!((knee_of(&[]), knee_of(&[(5, 0)]), knee_of(&[(1, 0), (5, 0)])), (None, Some(0), Some(0)));
    }

    /// Above the line from (0, 0) to (100, 60), which is all: 0.15, 0.2, 0.17, 0.13 and 0.
    #[test]
    fn a_larger_size_besides_does_not_move_the_knee() {
        let points = [(10, 15), (20, 24), (50, 40), (80, 56), (100, 60)];
        for simulated in 2..=points.len() {
            assert_eq!(knee(&points[..simulated], (100, 60)), Some(1), "{simulated}");
        }
    }

    /// Half of the blocks gives the most hits, but LRU is within 0.1 points there. Another policy leads at three of six
    /// sizes.
    #[test]
    fn it_is_not_the_largest_cache_and_the_policy_that_leads_at_most_sizes_is_named() {
        let lru = [10, 16, 51, 118, 303, 418];
        let s3_fifo = [8, 20, 107, 238, 290, 419];
        let mq = [17, 64, 164, 241, 312, 416];
        let sizes = [1, 2, 5, 10, 20, 50];
        let of = |policy: &'static str, hits: [u64; 6]| {
            sizes.into_iter().zip(hits).map(move |(size, hits)| (policy, size, hits, 1000 - hits))
        };
        let all: Vec<_> = of("lru", lru).chain(of("s3-fifo", s3_fifo)).chain(of("mq", mq)).collect();
        let rows = rows(&all);
        let choice = Choice::of(&Grid::new(&rows)).unwrap();
        assert_eq!((&choice.row.policy[..], choice.size.blocks), ("mq", 10));
        assert_eq!((choice.leads, choice.leader), (5, ("mq", 5)));
    }

    /// At size 10 both lead at one size, and d has less than 90 % of the hits.
    #[test]
    fn a_few_hits_are_given_up_for_much_less_wear() {
        let of = |hits, writes| {
            [("a", 10, 500, 800), ("b", 10, hits, writes), ("d", 10, 440, 1), ("a", 20, 520, 800), ("b", 20, 530, 700)]
        };
        let chosen = |hits, writes| chosen(&of(hits, writes)).0;
        // Within a hundredth of the worth, the one with more hits.
        assert_eq!([790, 720, 600].map(|writes| chosen(496, writes)), ["a", "a", "b"]);
        // 5 % of the hits for 55 % of the writes, as larc beside lru on the bundled trace, but not for 30 %.
        assert_eq!((chosen(475, 360), chosen(475, 560)), ("b".to_owned(), "a".to_owned()));
        // Hits and erasures of the bundled trace.
        assert_eq!(super::tests::chosen(&[("lru", 10, 342, 1788), ("larc", 10, 325, 1058)]).0, "larc");
    }

    #[test]
    fn a_smaller_cache_with_more_hits_is_recommended() {
        let of = |hits| {
            let car = [("car", 10, 100, 900), ("car", 12, 502, 500)];
            let mq = [("mq", 10, hits, 650), ("mq", 12, 510, 790), ("mq", 1000, 520, 700)];
            car.into_iter().chain(mq).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&of(501)), ("car".to_owned(), 12));
        assert_eq!(chosen(&of(502)), ("mq".to_owned(), 10));
    }

    #[test]
    fn a_policy_that_spares_the_flash_is_named_beside_it() {
        let with = |hits, writes| {
            let rows = rows(&[("a", 10, 400, 1000), ("b", 10, hits, writes), ("d", 10, 300, 400)]);
            Choice::of(&Grid::new(&rows)).unwrap().sparing.map(|row| row.policy.clone())
        };
        assert_eq!(with(320, 500).as_deref(), Some("b"));
        assert_eq!(with(320, 501).as_deref(), Some("d"));
        assert_eq!(with(299, 1).as_deref(), Some("d"));
    }

    #[test]
    fn offline_policies_are_not_recommended() {
        assert_eq!(chosen(&[("min", 10, 900, 10), ("lru", 10, 100, 900)]), ("lru".to_owned(), 10));
        let mut none = rows(&[("lru", 10, 0, 0)]);
        none[0].accesses = 0;
        assert!(Choice::of(&Grid::new(&none)).is_none() && Choice::of(&Grid::new(&[])).is_none());
    }
}
