//! Every policy against a slow and obvious model of its paper, access by access, on seeded workloads of five kinds.

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

struct Compare<'a> {
    what: String,
    accesses: &'a [Access<u32>],
    model: Box<dyn Model>,
    capacity: usize,
}

impl Visitor<u32> for Compare<'_> {
    type Output = Vec<Outcome<u32>>;

    fn visit<P: Policy<Key = u32>>(mut self, mut policy: P) -> Self::Output {
        let mut outcomes = Vec::new();
        for (position, &access) in self.accesses.iter().enumerate() {
            let held = policy.contains(access.block);
            let outcome = policy.access(access);
            let what = format!("{}, access {position}: {access:?}", self.what);
            assert_eq!(outcome, self.model.access(access), "{what}");
            assert_eq!(outcome == Outcome::Hit, held, "{what}");
            assert_eq!(policy.contains(access.block), outcome != Outcome::Bypass || held, "{what}");
            assert!(policy.len() <= self.capacity, "{what}");
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

#[test]
fn every_policy_does_what_its_model_does_with_either_index() {
    for (text, make) in MODELS {
        let spec = Spec::parse(text).unwrap();
        for kind in WORKLOADS {
            let accesses = workload(kind);
            for capacity in CAPACITIES {
                let compare = || Compare {
                    what: format!("{text}, {kind}, capacity {capacity}"),
                    accesses: &accesses,
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
fn every_policy_has_a_model() {
    for info in POLICIES {
        let modelled = MODELS.iter().any(|(text, _)| *text == info.name);
        assert!(modelled, "{} with default options is not compared with a model", info.name);
    }
}
