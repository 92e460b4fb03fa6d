//! Every policy against a slow and obvious model of its paper, access by access, on seeded workloads of five kinds, with and
//! without blocks removed in between.

mod models;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::index::{Dense, Hashed};
use flashwise_core::policy::{Outcome, POLICIES, Policy, Spec, Visitor};
use models::{MODELS, Model};

const BLOCKS: u32 = 300;
const ACCESSES: usize = 6_000;
const CAPACITIES: [usize; 8] = [1, 2, 3, 7, 10, 33, 100, 400];

/// Splitmix64: the next of a sequence of random numbers.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `BLOCKS` that is the likelier the smaller it is, roughly as 1/n.
fn skewed(state: &mut u64) -> u32 {
    let exponent = (random(state) as f64 / u64::MAX as f64) * f64::from(BLOCKS).ln();
    (exponent.exp() as u32 - 1).min(BLOCKS - 1)
}

fn workload(kind: &str) -> Vec<Access<u32>> {
    let mut state = 42;
    let block = |position: usize, state: &mut u64| match kind {
        "uniform" => (random(state) % u64::from(BLOCKS)) as u32,
        "zipf" => skewed(state),
        "loop" => position as u32 % 110,
        "scans" if position % 1000 < 250 => position as u32 % BLOCKS,
        "scans" => skewed(state),
        "phases" => (skewed(state) + (position / 1500) as u32 * 75) % BLOCKS,
        _ => unreachable!(),
    };
    let blocks: Vec<u32> = (0..ACCESSES).map(|position| block(position, &mut state)).collect();
    let mut next_use_of = [NEVER; BLOCKS as usize];
    let mut accesses: Vec<_> = (0..ACCESSES)
        .rev()
        .map(|position| {
            let block = blocks[position];
            let next_use = std::mem::replace(&mut next_use_of[block as usize], position as u32);
            let op = if random(&mut state).is_multiple_of(3) { Op::Write } else { Op::Read };
            Access { block, op, request_blocks: 1, next_use }
        })
        .collect();
    accesses.reverse();
    accesses
}

const WORKLOADS: [&str; 5] = ["uniform", "zipf", "loop", "scans", "phases"];

/// The blocks to remove before each access: none mostly, one before three of a hundred accesses, and all of them once. Half
/// are blocks accessed shortly before, so that small caches and their ghosts lose some too.
fn removals(accesses: &[Access<u32>], capacity: usize) -> Vec<Vec<u32>> {
    let mut state = 7;
    let removal = |position: usize| {
        let (chance, recent, any) = (random(&mut state) % 100, random(&mut state), random(&mut state));
        let distance = 1 + any as usize % (2 * capacity + 1);
        match position {
            _ if position == ACCESSES / 2 => (0..BLOCKS).collect(),
            _ if chance >= 3 => vec![],
            _ if recent.is_multiple_of(2) => vec![accesses[position.saturating_sub(distance)].block],
            _ => vec![(any % u64::from(BLOCKS)) as u32],
        }
    };
    (0..accesses.len()).map(removal).collect()
}

struct Compare<'a> {
    what: String,
    accesses: &'a [Access<u32>],
    removals: &'a [Vec<u32>],
    model: Box<dyn Model>,
    capacity: usize,
}

impl Compare<'_> {
    fn remove<P: Policy<Key = u32>>(&mut self, policy: &mut P, block: u32, position: usize) {
        let what = format!("{}, {block} removed before access {position}", self.what);
        let (held, len) = (policy.contains(block), policy.len());
        assert_eq!(policy.remove(block), self.model.remove(block), "{what}");
        assert_eq!(policy.len() + usize::from(held), len, "{what}");
        assert!(!policy.contains(block) && !policy.remove(block), "{what}");
        policy.check();
    }
}

impl Visitor<u32> for Compare<'_> {
    type Output = Vec<Outcome<u32>>;

    fn visit<P: Policy<Key = u32>>(mut self, mut policy: P) -> Self::Output {
        let mut outcomes = Vec::new();
        for (position, &access) in self.accesses.iter().enumerate() {
            for &block in self.removals.get(position).into_iter().flatten() {
                self.remove(&mut policy, block, position);
            }
            let (held, full) = (policy.contains(access.block), policy.len() == self.capacity);
            let outcome = policy.access(access);
            let what = format!("{}, access {position}: {access:?}", self.what);
            assert_eq!(outcome, self.model.access(access), "{what}");
            assert_eq!(outcome == Outcome::Hit, held, "{what}");
            assert_eq!(policy.contains(access.block), outcome != Outcome::Bypass || held, "{what}");
            assert!(policy.len() <= self.capacity, "{what}");
            assert!(full || !matches!(outcome, Outcome::Admit { evicted: Some(_) }), "{what}");
            if let Outcome::Admit { evicted: Some(evicted) } = outcome {
                assert!(!policy.contains(evicted), "{what}");
            }
            if position.is_multiple_of(16) {
                policy.check();
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

fn compare_all(removals: impl Fn(&[Access<u32>], usize) -> Vec<Vec<u32>>) {
    for (text, make) in MODELS {
        let spec = Spec::parse(text).expect("a model is of a policy");
        for kind in WORKLOADS {
            let accesses = workload(kind);
            for capacity in CAPACITIES {
                let removals = removals(&accesses, capacity);
                let compare = || Compare {
                    what: format!("{text}, {kind}, capacity {capacity}"),
                    accesses: &accesses,
                    removals: &removals,
                    model: make(capacity),
                    capacity,
                };
                let dense = spec.build(Dense::new(BLOCKS as usize), capacity, compare());
                let hashed = spec.build(Hashed::new(), capacity, compare());
                assert_eq!(dense, hashed);
            }
        }
    }
}

#[test]
fn every_policy_does_what_its_model_does_with_either_index() {
    compare_all(|_, _| vec![]);
}

#[test]
fn every_policy_does_what_its_model_does_while_blocks_are_removed() {
    compare_all(removals);
}

#[test]
fn every_policy_has_a_model() {
    for info in POLICIES {
        let modelled = MODELS.iter().any(|(text, _)| *text == info.name);
        assert!(modelled, "{} with default options is not compared with a model", info.name);
    }
}
