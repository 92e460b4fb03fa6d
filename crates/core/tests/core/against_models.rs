//! Compares every policy with a slow and simple model of its paper, access by access, on seeded workloads of five
//! kinds. It does so with and without removals, and while a log moves blocks in the policy's table.

use std::collections::BTreeMap;

use crate::models::{MODELS, Make, Model};
use crate::workloads::{ACCESSES, BLOCKS, WORKLOADS, random, workload};
use flashwise_core::access::Access;
use flashwise_core::directory::Directory;
use flashwise_core::index::{Dense, Hashed};
use flashwise_core::policy::{Outcome, POLICIES, Policy, Spec, Visitor};

const CAPACITIES: [usize; 8] = [1, 2, 3, 7, 10, 33, 100, 400];
/// The number of accesses, or of removals, between two checks of all invariants. It is prime, so no period of a
/// workload hides a position.
const CHECK_EVERY: usize = 61;

/// Returns the blocks to remove before each access: usually none, one before three of a hundred accesses, and all of
/// them once. Half are recently accessed blocks, so that small caches and their ghosts lose some too.
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
    log: Option<Log>,
    /// True for each removal of a cached block, among those of the model.
    removed: Vec<bool>,
    removals_done: usize,
}

/// The model's answers in an earlier run over the same accesses, reused because the model is slow.
struct Replay {
    outcomes: std::vec::IntoIter<Outcome<u32>>,
    removed: std::vec::IntoIter<bool>,
}

impl Model for Replay {
    fn access(&mut self, _: Access<u32>) -> Outcome<u32> {
        self.outcomes.next().expect("there is an answer for each access")
    }

    fn remove(&mut self, _: u32) -> bool {
        self.removed.next().expect("there is an answer for each removal")
    }

    fn refuse(&mut self, _: u32) {}
}

/// A user of a policy's table as a directory, with slots for some of the blocks.
struct Log {
    slots: u32,
    state: u64,
    block_at: BTreeMap<u32, u32>,
    slot_of: BTreeMap<u32, u32>,
}

impl Log {
    fn new(slots: u32) -> Log {
        Log { slots, state: 3, block_at: BTreeMap::new(), slot_of: BTreeMap::new() }
    }

    fn directory<P: Policy<Key = u32>>(policy: &mut P) -> &mut dyn Directory<u32> {
        policy.directory_mut().expect("every policy of a cache has a directory")
    }

    /// Empties a slot, or places a recent or arbitrary block in it.
    fn change<P: Policy<Key = u32>>(&mut self, policy: &mut P, recent: u32) {
        let (slot, any) = ((random(&mut self.state) % u64::from(self.slots)) as u32, random(&mut self.state));
        let moved = if let Some(block) = self.block_at.remove(&slot) {
            self.slot_of.remove(&block);
            Log::directory(policy).supersede(slot)
        } else {
            let block = if any.is_multiple_of(4) { (any >> 2) as u32 % BLOCKS } else { recent };
            if let Some(earlier) = self.slot_of.insert(block, slot) {
                self.block_at.remove(&earlier);
            }
            self.block_at.insert(slot, block);
            Log::directory(policy).place(block, slot)
        };
        moved.into_iter().for_each(|moved| policy.moved(moved));
    }

    fn check<P: Policy<Key = u32>>(&self, policy: &P) {
        let directory = policy.directory().expect("every policy of a cache has a directory");
        assert_eq!(directory.len(), self.block_at.len());
        for slot in 0..self.slots {
            let block = self.block_at.get(&slot);
            assert_eq!(directory.is_current(slot), block.is_some(), "slot {slot}");
            if let Some(&block) = block {
                assert_eq!((directory.block_at(slot), directory.slot_of(block)), (Some(block), Some(slot)));
            }
        }
    }
}

impl Compare<'_> {
    fn remove<P: Policy<Key = u32>>(&mut self, policy: &mut P, block: u32, position: usize) {
        // Formatted only on failure: there are millions of accesses.
        let run = &self.what;
        let what = || format!("{run}, {block} removed before access {position}");
        let (held, len) = (policy.contains(block), policy.len());
        if held && position.is_multiple_of(3) {
            policy.refuse(block);
            self.model.refuse(block);
        } else {
            let removed = policy.remove(block);
            assert_eq!(removed, self.model.remove(block), "{}", what());
            self.removed.push(removed);
        }
        assert_eq!(policy.len() + usize::from(held), len, "{}", what());
        assert!(!policy.contains(block), "{}", what());
        self.removals_done += 1;
        if self.removals_done.is_multiple_of(CHECK_EVERY) {
            policy.check();
        }
    }
}

impl Visitor<u32> for Compare<'_> {
    type Output = Replay;

    fn visit<P: Policy<Key = u32>>(mut self, mut policy: P) -> Self::Output {
        let mut outcomes = Vec::new();
        if let Some(log) = &self.log {
            Log::directory(&mut policy).set_slots(log.slots);
        }
        for (position, &access) in self.accesses.iter().enumerate() {
            for &block in self.removals.get(position).into_iter().flatten() {
                self.remove(&mut policy, block, position);
            }
            let (held, full) = (policy.contains(access.block), policy.len() == self.capacity);
            let outcome = policy.access(access);
            let run = &self.what;
            let what = || format!("{run}, access {position}: {access:?}");
            assert_eq!(outcome, self.model.access(access), "{}", what());
            assert_eq!(outcome == Outcome::Hit, held, "{}", what());
            assert_eq!(policy.contains(access.block), outcome != Outcome::Bypass || held, "{}", what());
            assert!(policy.len() <= self.capacity, "{}", what());
            assert!(full || !matches!(outcome, Outcome::Admit { evicted: Some(_) }), "{}", what());
            if let Outcome::Admit { evicted: Some(evicted) } = outcome {
                assert!(!policy.contains(evicted), "{}", what());
            }
            if let Some(log) = &mut self.log {
                log.change(&mut policy, access.block);
            }
            if position.is_multiple_of(CHECK_EVERY) {
                policy.check();
                self.log.iter().for_each(|log| log.check(&policy));
            }
            outcomes.push(outcome);
        }
        Replay { outcomes: outcomes.into_iter(), removed: self.removed.into_iter() }
    }
}

fn compare_all(removals: impl Fn(&[Access<u32>], usize) -> Vec<Vec<u32>> + Sync, in_a_log: bool) {
    // Half of the models each.
    std::thread::scope(|scope| {
        for half in 0..2 {
            let removals = &removals;
            scope.spawn(move || {
                MODELS.iter().skip(half).step_by(2).for_each(|model| compare(model, removals, in_a_log))
            });
        }
    });
}

fn compare(&(text, make): &(&str, Make), removals: impl Fn(&[Access<u32>], usize) -> Vec<Vec<u32>>, in_a_log: bool) {
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
                log: None,
                removed: Vec::new(),
                removals_done: 0,
            };
            let replay = spec.build(Dense::new(BLOCKS as usize), capacity, compare());
            let log = (in_a_log && !spec.info().offline).then(|| Log::new(capacity as u32 + 5));
            spec.build(Hashed::new(), capacity, Compare { model: Box::new(replay), log, ..compare() });
        }
    }
}

#[test]
fn every_policy_matches_its_model_with_either_index() {
    compare_all(|_, _| vec![], false);
}

#[test]
fn every_policy_matches_its_model_while_blocks_are_removed_or_moved() {
    compare_all(removals, true);
}

#[test]
fn every_policy_has_a_model() {
    for info in POLICIES {
        let modelled = MODELS.iter().any(|(text, _)| *text == info.name);
        assert!(modelled, "{} with default options is not compared with a model", info.name);
    }
}
