//! MIN with bypass compared with an exhaustive search over every choice of a cache, on all short traces and many random
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_core::access::{Access, NEVER};
use flashwise_core::index::Dense;
use flashwise_core::policy::{Outcome, Policy, Spec, Visitor};

/// Hits, and the admissions that they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    hits: u32,
    admissions: u32,
}

/// Returns the most hits, and the fewest admissions for them, of any cache of `capacity` blocks. The cached blocks are
/// a set of bits.
fn best(capacity: u32, blocks: &[u32]) -> Score {
    let mut scores = BTreeMap::from([(0_u32, Score { hits: 0, admissions: 0 })]);
    for &block in blocks {
        let mut next: BTreeMap<u32, Score> = BTreeMap::new();
        let mut offer = |cached: u32, score: Score| {
            let known = next.entry(cached).or_insert(score);
            if (score.hits, known.admissions) > (known.hits, score.admissions) {
                *known = score;
            }
        };
        for (&cached, &score) in &scores {
            if cached >> block & 1 == 1 {
                offer(cached, Score { hits: score.hits + 1, ..score });
                continue;
            }
            offer(cached, score);
            let admitted = Score { admissions: score.admissions + 1, ..score };
            if cached.count_ones() < capacity {
                offer(cached | 1 << block, admitted);
            }
            for evicted in (0..32).filter(|evicted| cached >> evicted & 1 == 1) {
                offer(cached & !(1 << evicted) | 1 << block, admitted);
            }
        }
        scores = next;
    }
    let better = |a: &Score, b: &Score| (a.hits, b.admissions).cmp(&(b.hits, a.admissions));
    scores.into_values().max_by(better).expect("there is an empty cache at least")
}

struct Run<'a> {
    blocks: &'a [u32],
    foresees: bool,
}

impl Visitor<u32> for Run<'_> {
    type Output = Score;

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Score {
        let next_use = |(at, block): (usize, &u32)| {
            let later = self.blocks[at + 1..].iter().position(|later| later == block);
            later.map_or(NEVER, |distance| (at + 1 + distance) as u32)
        };
        let next_uses: Vec<u32> = self.blocks.iter().enumerate().map(next_use).collect();
        if self.foresees {
            policy.foresee(&next_uses);
        }
        let mut score = Score { hits: 0, admissions: 0 };
        let mut admitted = BTreeSet::new();
        for (&block, &next_use) in self.blocks.iter().zip(&next_uses) {
            match policy.access(Access { next_use, ..Access::read(block) }) {
                Outcome::Hit => {
                    score.hits += 1;
                    admitted.remove(&block);
                }
                Outcome::Admit { .. } => {
                    score.admissions += 1;
                    admitted.insert(block);
                }
                Outcome::Bypass => {}
            }
            policy.check();
        }
        assert!(!self.foresees || admitted.is_empty(), "{admitted:?} are admitted and never hit: {:?}", self.blocks);
        score
    }
}

fn run(policy: &str, capacity: usize, blocks: &[u32], foresees: bool) -> Score {
    let spec = Spec::parse(policy).expect("a policy of the table");
    spec.build(Dense::new(32), capacity, Run { blocks, foresees })
}

/// Returns all traces of four blocks and seven accesses, the first to block 0.
fn short_traces() -> impl Iterator<Item = Vec<u32>> {
    (0..4_u32.pow(6)).map(|number| [0].into_iter().chain((0..6).map(|digit| number >> (2 * digit) & 3)).collect())
}

/// Returns traces of 40 accesses to at most 9 blocks, some much more popular than others.
fn random_traces() -> impl Iterator<Item = Vec<u32>> {
    let mut state = 11_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..300).map(move |_| {
        let blocks = 3 + random(7);
        (0..40).map(|_| (1 + random(blocks)).min(1 + random(blocks)) as u32 - 1).collect()
    })
}

#[test]
fn no_cache_hits_more_than_min_and_none_online_or_offline_more_than_the_search() {
    let mut compared = 0;
    for blocks in short_traces().chain(random_traces()) {
        for capacity in 1..=4 {
            let best = best(capacity, &blocks);
            for foresees in [false, true] {
                let found = run("min", capacity as usize, &blocks, foresees);
                assert_eq!(found.hits, best.hits, "{blocks:?} in {capacity}");
                assert!(found.admissions >= best.admissions, "{blocks:?} in {capacity}");
            }
            for policy in ["fif", "larc", "lru"] {
                assert!(
                    run(policy, capacity as usize, &blocks, false).hits <= best.hits,
                    "{policy} on {blocks:?} in {capacity}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 17_000, "{compared}");
}

/// `1 2 x 1 2 y ...` with two blocks, where x and y are never accessed again: FIF has to admit them.
#[test]
fn larc_is_not_better_than_the_best_where_single_accesses_come_between() {
    let blocks: Vec<u32> = (0..20).flat_map(|round| [0, 1, 2 + round]).collect();
    let [min, fif, larc] = ["min", "fif", "larc"].map(|policy| run(policy, 2, &blocks, policy == "min"));
    assert_eq!((min.hits, min.admissions), (38, 2));
    assert_eq!((larc.hits, larc.admissions), (38, 2));
    assert_eq!((fif.hits, fif.admissions), (19, 41));
}
