//! How far MIN's admissions are from the fewest: against a flow of least cost, on random traces and on pieces of a real
//! one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::workloads;
use flashwise_core::access::{Access, NEVER};
use flashwise_core::index::Dense;
use flashwise_core::policy::{Outcome, Policy, Spec, Visitor};

/// Hits, and the admissions they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    hits: usize,
    admissions: usize,
}

struct Arc {
    to: usize,
    room: usize,
    cost: i64,
}

/// A network whose arcs lead from lower to higher nodes. Arc 2a is one, 2a + 1 the way back.
struct Network {
    arcs: Vec<Arc>,
    of: Vec<Vec<usize>>,
}

impl Network {
    fn new(nodes: usize) -> Network {
        Network { arcs: vec![], of: vec![vec![]; nodes] }
    }

    fn arc(&mut self, from: usize, to: usize, room: usize, cost: i64) {
        for (from, to, room, cost) in [(from, to, room, cost), (to, from, 0, -cost)] {
            self.of[from].push(self.arcs.len());
            self.arcs.push(Arc { to, room, cost });
        }
    }

    /// The least cost of a flow of at most `flow` from the first node to the last: shortest paths, one after another.
    fn least_cost(&mut self, first: usize, last: usize, flow: usize) -> i64 {
        let nodes = self.of.len();
        let mut potential = vec![i64::MAX; nodes];
        potential[first] = 0;
        for node in 0..nodes {
            for &arc in self.of[node].iter().filter(|&&arc| self.arcs[arc].room > 0) {
                let Arc { to, cost, .. } = self.arcs[arc];
                if potential[node] < i64::MAX {
                    potential[to] = potential[to].min(potential[node] + cost);
                }
            }
        }
        let mut total = 0;
        for _ in 0..flow {
            let (mut distance, mut came_by) = (vec![i64::MAX; nodes], vec![usize::MAX; nodes]);
            distance[first] = 0;
            let mut heap = BinaryHeap::from([Reverse((0, first))]);
            while let Some(Reverse((at, node))) = heap.pop() {
                if at > distance[node] {
                    continue;
                }
                for &arc in self.of[node].iter().filter(|&&arc| self.arcs[arc].room > 0) {
                    let Arc { to, cost, .. } = self.arcs[arc];
                    // A node that is unreachable at first stays so.
                    let there = at + cost + potential[node] - potential[to];
                    if there < distance[to] {
                        (distance[to], came_by[to]) = (there, arc);
                        heap.push(Reverse((there, to)));
                    }
                }
            }
            let reachable = (0..nodes).filter(|&node| potential[node] < i64::MAX).collect::<Vec<_>>();
            reachable.into_iter().for_each(|node| potential[node] += distance[node].min(distance[last]));
            if potential[last] - potential[first] >= 0 {
                break;
            }
            total += potential[last] - potential[first];
            let mut node = last;
            while node != first {
                let arc = came_by[node];
                self.arcs[arc].room -= 1;
                self.arcs[arc ^ 1].room += 1;
                node = self.arcs[arc ^ 1].to;
            }
        }
        total
    }
}

/// Returns the most hits, and the fewest admissions for these. Each place of the cache is a unit of flow through time.
/// Access i has three nodes. At node 3 i, places arrive whose block is hit. At 3 i + 1, places are free. At 3 i + 2, a
/// place holds the block of the access until its hit. The edge from a free place costs an admission, that from a place
/// with the block nothing.
fn best(next_uses: &[u32], capacity: usize) -> Score {
    let accesses = next_uses.len();
    let hit = accesses as i64 + 1;
    let mut network = Network::new(3 * accesses + 3);
    for (at, &next_use) in next_uses.iter().enumerate() {
        let [hits, free, takes] = [0, 1, 2].map(|node| 3 * at + node);
        network.arc(hits, free, 1, 0);
        network.arc(free, free + 3, capacity, 0);
        if next_use != NEVER {
            network.arc(hits, takes, 1, 0);
            network.arc(free, takes, 1, 1);
            network.arc(takes, 3 * next_use as usize, 1, -hit);
        }
    }
    let cost = -network.least_cost(1, 3 * accesses + 1, capacity);
    let hits = (cost + hit - 1) / hit;
    Score { hits: hits as usize, admissions: (hits * hit - cost) as usize }
}

fn next_uses(blocks: &[u32]) -> Vec<u32> {
    let mut next_use_of = vec![NEVER; 1 + *blocks.iter().max().unwrap() as usize];
    let mut next_uses = vec![NEVER; blocks.len()];
    for (position, &block) in blocks.iter().enumerate().rev() {
        next_uses[position] = std::mem::replace(&mut next_use_of[block as usize], position as u32);
    }
    next_uses
}

struct Run<'a>(&'a [u32]);

impl Visitor<u32> for Run<'_> {
    type Output = Score;

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Score {
        let next_uses = next_uses(self.0);
        policy.foresee(&next_uses);
        let mut score = Score { hits: 0, admissions: 0 };
        for (&block, &next_use) in self.0.iter().zip(&next_uses) {
            match policy.access(Access { next_use, ..Access::read(block) }) {
                Outcome::Hit => score.hits += 1,
                Outcome::Admit { .. } => score.admissions += 1,
                Outcome::Bypass => {}
            }
        }
        score
    }
}

fn min(blocks: &[u32], capacity: usize) -> Score {
    Spec::parse("min").unwrap().build(Dense::new(0), capacity, Run(blocks))
}

/// Every choice: the blocks kept from each access to the next of the same block, in at most `capacity` slots.
fn best_of_all(blocks: &[u32], capacity: usize) -> Score {
    let next_uses = next_uses(blocks);
    let intervals: Vec<(usize, usize)> = (0..)
        .zip(&next_uses)
        .filter(|(_, next_use)| **next_use != NEVER)
        .map(|(at, &next_use)| (at, next_use as usize))
        .collect();
    assert!(intervals.len() <= 16, "{} intervals", intervals.len());
    let score = |kept: u32| {
        let kept: Vec<_> = (0..).zip(&intervals).filter(|(bit, _)| kept >> bit & 1 == 1).map(|(_, of)| *of).collect();
        let fits =
            (0..blocks.len()).all(|at| kept.iter().filter(|(from, to)| (*from..*to).contains(&at)).count() <= capacity);
        let admitted = kept.iter().filter(|(from, _)| !kept.iter().any(|(_, to)| to == from));
        fits.then(|| (kept.len(), Reverse(admitted.count())))
    };
    let (hits, Reverse(admissions)) = (0..1 << intervals.len()).filter_map(score).max().unwrap();
    Score { hits, admissions }
}

/// Blocks, some of them accessed much more often than others.
fn random_blocks(state: &mut u64, accesses: usize, blocks: u64) -> Vec<u32> {
    let mut random = |below: u64| workloads::random(state) % below;
    (0..accesses).map(|_| random(blocks).min(random(blocks)) as u32).collect()
}

#[test]
fn the_flow_finds_the_best_of_all_choices() {
    let mut state = 5;
    for number in 0..150 {
        let blocks = random_blocks(&mut state, 8 + number % 7, 3 + number as u64 % 4);
        for capacity in 1..=3 {
            let flow = best(&next_uses(&blocks), capacity);
            assert_eq!(flow, best_of_all(&blocks, capacity), "{blocks:?} in {capacity}");
        }
    }
}

/// MIN hits as often as is possible and admits more than is needed. By how much is what its documentation says.
#[test]
fn min_has_the_most_hits_and_not_many_more_admissions_than_the_fewest() {
    let all: Vec<u32> = workloads::bundled().accesses().map(|(block, _)| block).collect();
    let mut state = 11;
    let mut table = Vec::new();
    let mut compare = |name: &str, pieces: &[Vec<u32>], capacity: usize| {
        let (mut found, mut fewest) = (0, 0);
        for blocks in pieces {
            let (min, best) = (min(blocks, capacity), best(&next_uses(blocks), capacity));
            assert_eq!(min.hits, best.hits, "{name} in {capacity}");
            assert!(min.admissions >= best.admissions, "{name} in {capacity}");
            (found, fewest) = (found + min.admissions, fewest + best.admissions);
        }
        table.push(format!("{name} in {capacity}: {found} admissions, {fewest} needed"));
    };
    let random: Vec<_> = (0..5).map(|_| random_blocks(&mut state, 3000, 500)).collect();
    let real: Vec<_> = all.chunks_exact(4000).step_by(40).map(<[u32]>::to_vec).collect();
    for capacity in [10, 50, 150] {
        compare("random", &random, capacity);
        compare("real", &real, capacity);
    }
    let expected = [
        "random in 10: 2230 admissions, 1909 needed",
        "real in 10: 42 admissions, 42 needed",
        "random in 50: 3388 admissions, 2821 needed",
        "real in 50: 76 admissions, 76 needed",
        "random in 150: 2947 admissions, 2529 needed",
        "real in 150: 76 admissions, 76 needed",
    ];
    assert_eq!(table, expected);
}
