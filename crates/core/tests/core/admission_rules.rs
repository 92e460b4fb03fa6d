//! Admission rules in front of every policy: compared with a plain model, and properties of each.

use crate::rules::{SETTING, skewed};
use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::{RULES, Spec};
use flashwise_core::index::{Dense, Hashed, Index};
use flashwise_core::policy::{self, Outcome, POLICIES, Policy, Visitor};

const BLOCKS: u32 = 300;
const ACCESSES: usize = 20_000;
const CAPACITY: usize = 40;

/// Skewed accesses with their next uses.
fn workload() -> Vec<Access<u32>> {
    let mut accesses = skewed(BLOCKS, ACCESSES);
    let mut next_use_of = [NEVER; BLOCKS as usize];
    for (position, access) in accesses.iter_mut().enumerate().rev() {
        access.next_use = std::mem::replace(&mut next_use_of[access.block as usize], position as u32);
    }
    accesses
}

/// The outcomes of all accesses.
struct Outcomes<'a>(&'a [Access<u32>]);

impl Visitor<u32> for Outcomes<'_> {
    type Output = Vec<Outcome<u32>>;

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut outcomes = Vec::new();
        for (position, &access) in self.0.iter().enumerate() {
            let held = policy.contains(access.block);
            let outcome = policy.access(access);
            assert_eq!(outcome == Outcome::Hit, held, "access {position}");
            assert_eq!(policy.contains(access.block), outcome != Outcome::Bypass, "access {position}");
            if position.is_multiple_of(97) {
                policy.check();
            }
            outcomes.push(outcome);
        }
        policy.check();
        outcomes
    }
}

fn admitted<I: Index<Key = u32> + Clone + Send + 'static>(
    policy: &str,
    rule: &str,
    index: I,
    accesses: &[Access<u32>],
) -> Vec<Outcome<u32>> {
    let (policy, rule) = (policy::Spec::parse(policy).unwrap(), Spec::parse(rule).unwrap());
    Outcomes(accesses).visit(rule.build(&policy, index, CAPACITY, &SETTING))
}

fn alone(policy: &str, accesses: &[Access<u32>]) -> Vec<Outcome<u32>> {
    policy::Spec::parse(policy).unwrap().build(Dense::new(BLOCKS as usize), CAPACITY, Outcomes(accesses))
}

fn dense() -> Dense {
    Dense::new(BLOCKS as usize)
}

#[test]
fn rules_that_admit_everything_leave_each_policy_as_it_is() {
    let accesses = workload();
    for info in POLICIES {
        let alone = alone(info.name, &accesses);
        assert!(alone.contains(&Outcome::Hit));
        for rule in ["probability:p=1", "size:max=128KiB", "hotness:min=1", "reject-x:x=0"] {
            assert!(admitted(info.name, rule, dense(), &accesses) == alone, "{}, {rule}", info.name);
        }
    }
}

#[test]
fn rules_that_admit_nothing_never_write_the_cache() {
    let accesses = workload();
    for info in POLICIES {
        for rule in [
            "probability:p=0",
            "size:max=4095",
            "hotness:history=0",
            "hotness:top=0",
            "reject-x:history=0",
            "write-budget",
        ] {
            let outcomes = admitted(info.name, rule, dense(), &accesses);
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Bypass), "{}, {rule}", info.name);
        }
    }
}

/// Models of the rules, with linear search.
trait Model {
    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool;

    /// Admits the block without asking the rule.
    fn note_admitted(&mut self, _access: &Access<u32>) {}
}

/// Creates a model of a rule with an empty history.
type Make = fn() -> Box<dyn Model>;

struct SizeModel(u64);

impl Model for SizeModel {
    fn admits(&mut self, access: &Access<u32>, _cached: bool) -> bool {
        4096 * u64::from(access.request_blocks) <= self.0
    }
}

/// The history, last referenced first, with counts.
struct MinModel(usize, Vec<(u32, usize)>);

impl Model for MinModel {
    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool {
        if cached {
            return false;
        }
        let at = self.1.iter().position(|(block, _)| *block == access.block);
        let count = 1 + at.map_or(0, |at| self.1.remove(at).1);
        if count >= self.0 {
            return true;
        }
        self.1.insert(0, (access.block, count));
        self.1.truncate(CAPACITY);
        false
    }

    fn note_admitted(&mut self, access: &Access<u32>) {
        self.1.retain(|(block, _)| *block != access.block);
    }
}

/// The misses to reject, and the history in the order of first misses, last first, with counts.
struct RejectXModel(usize, Vec<(u32, usize)>);

impl Model for RejectXModel {
    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool {
        if cached {
            return false;
        }
        if !self.1.iter().any(|(block, _)| *block == access.block) {
            self.1.insert(0, (access.block, 0));
            self.1.truncate(2 * CAPACITY);
        }
        let (_, misses) = self.1.iter_mut().find(|(block, _)| *block == access.block).unwrap();
        *misses += 1;
        *misses > self.0
    }
}

struct TopModel(f64, Vec<(u32, usize)>);

impl Model for TopModel {
    fn admits(&mut self, access: &Access<u32>, _cached: bool) -> bool {
        let at = self.1.iter().position(|(block, _)| *block == access.block);
        let count = (1 + at.map_or(0, |at| self.1.remove(at).1)).min(255);
        self.1.insert(0, (access.block, count));
        self.1.truncate(CAPACITY);
        let as_many = self.1.iter().filter(|(_, other)| *other >= count).count();
        as_many as f64 <= (self.0 * self.1.len() as f64).floor() || count == 255
    }

    fn note_admitted(&mut self, access: &Access<u32>) {
        self.admits(access, true);
    }
}

/// A rule that judges only reads.
struct ReadsModel<M>(M);

impl<M: Model> Model for ReadsModel<M> {
    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool {
        if access.op == Op::Write {
            self.0.note_admitted(access);
            return true;
        }
        self.0.admits(access, cached)
    }
}

#[test]
fn every_rule_matches_its_model_with_either_index() {
    let accesses = workload();
    let models: [(&str, Make); 12] = [
        ("size:max=16KiB", || Box::new(SizeModel(16 << 10))),
        ("size", || Box::new(SizeModel(64 << 10))),
        ("hotness", || Box::new(MinModel(2, vec![]))),
        ("hotness:min=4", || Box::new(MinModel(4, vec![]))),
        ("reject-x", || Box::new(RejectXModel(1, vec![]))),
        ("reject-x:x=3", || Box::new(RejectXModel(3, vec![]))),
        ("reject-x:x=1,writes=admit", || Box::new(ReadsModel(RejectXModel(1, vec![])))),
        ("hotness:top=10%", || Box::new(TopModel(0.1, vec![]))),
        ("hotness:top=50%", || Box::new(TopModel(0.5, vec![]))),
        ("size:max=4KiB,writes=admit", || Box::new(ReadsModel(SizeModel(4 << 10)))),
        ("hotness:min=4,writes=admit", || Box::new(ReadsModel(MinModel(4, vec![])))),
        ("hotness:top=10%,writes=admit", || Box::new(ReadsModel(TopModel(0.1, vec![])))),
    ];
    for (rule, model) in models {
        for info in POLICIES {
            let outcomes = admitted(info.name, rule, dense(), &accesses);
            assert_eq!(outcomes, admitted(info.name, rule, Hashed::new(), &accesses), "{}, {rule}", info.name);
            let mut model = model();
            // For accesses that the model accepts, the policy without a rule gives the same outcomes: it saw no others.
            let mut shown = Vec::new();
            for (access, outcome) in accesses.iter().zip(&outcomes) {
                let cached = *outcome == Outcome::Hit;
                let admits = model.admits(access, cached);
                if cached || admits {
                    shown.push((*access, *outcome));
                } else {
                    assert_eq!(*outcome, Outcome::Bypass, "{}, {rule}: {access:?}", info.name);
                }
            }
            if info.offline {
                continue; // Next uses of refused accesses would be missing.
            }
            let (accesses, outcomes): (Vec<_>, Vec<_>) = shown.into_iter().unzip();
            assert_eq!(alone(info.name, &accesses), outcomes, "{}, {rule}", info.name);
            let admissions = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Admit { .. })).count();
            assert!(admissions > 0 && outcomes.len() < ACCESSES, "{}, {rule}", info.name);
        }
    }
}

/// Every write is a hit or admitted, and no read is admitted; their hits were written before.
#[test]
fn with_writes_admitted_a_strict_rule_keeps_writes() {
    let accesses = workload();
    for rule in ["probability:p=0,writes=admit", "size:max=4095,writes=admit", "hotness:history=0,writes=admit"] {
        let outcomes = admitted("lru", rule, dense(), &accesses);
        for (access, outcome) in accesses.iter().zip(&outcomes) {
            let is_admitted = matches!(outcome, Outcome::Admit { .. });
            match access.op {
                Op::Read => assert!(!is_admitted, "{rule}: {access:?}"),
                Op::Write => assert_ne!(*outcome, Outcome::Bypass, "{rule}: {access:?}"),
            }
        }
        assert!(outcomes.contains(&Outcome::Hit) && outcomes.contains(&Outcome::Bypass), "{rule}");
    }
}

/// A removed block counts as new: the history forgets it as well.
#[test]
fn a_removed_block_is_forgotten_by_the_history() {
    struct Remove;
    impl Visitor<u32> for Remove {
        type Output = ();
        fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) {
            assert_eq!(policy.access(Access::read(1)), Outcome::Bypass);
            assert!(!policy.remove(1));
            assert_eq!(policy.access(Access::read(1)), Outcome::Bypass);
            assert_eq!(policy.access(Access::read(1)), Outcome::Admit { evicted: None });
            assert!(policy.remove(1) && !policy.contains(1) && policy.is_empty());
            assert_eq!(policy.warm(2), Outcome::Admit { evicted: None }, "a warm start asks no rule");
            policy.check();
        }
    }
    Remove.visit(Spec::parse("hotness").unwrap().build(
        &policy::Spec::parse("lru").unwrap(),
        dense(),
        CAPACITY,
        &SETTING,
    ));
}

/// Tests every policy as the first, under an objective that favours others, with removals in between. One of the others
/// does not admit each block at once.
#[test]
fn auto_is_a_policy_whichever_it_begins_with() {
    struct Switch;
    impl Visitor<u32> for Switch {
        type Output = u64;
        fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> u64 {
            let mut held = std::collections::HashSet::new();
            let (mut switches, mut before) = (0, None);
            for (position, access) in workload().into_iter().enumerate() {
                policy.tick(position as u64 * 1000);
                let now = policy.decision().map(|decision| decision.position as u64);
                switches += u64::from(before.is_some() && now != before);
                before = now;
                if position.is_multiple_of(50) {
                    policy.check();
                    let removed = access.block.wrapping_mul(7) % BLOCKS;
                    assert_eq!(policy.remove(removed), held.remove(&removed));
                }
                let outcome = policy.access(access);
                assert_eq!(outcome == Outcome::Hit, held.contains(&access.block));
                if let Outcome::Admit { evicted } = outcome {
                    assert!(evicted.is_none_or(|evicted| held.remove(&evicted)) && held.insert(access.block));
                }
                assert_eq!(policy.len(), held.len());
            }
            switches
        }
    }
    let policies: Vec<_> = policy::online().map(|info| info.name).collect();
    let rule = format!("auto:policies={},timeframe=300ms,objective=hit-ratio,alpha=0", policies.join("+"));
    let mut switches = 0;
    for first in ["lru", "larc:fill=ghost", "2q:kin=100%", "lirs:hirs=100%"] {
        let (rule, first) = (Spec::parse(&rule).unwrap(), policy::Spec::parse(first).unwrap());
        switches += Switch.visit(rule.build(&first, dense(), CAPACITY, &SETTING));
        switches += Switch.visit(rule.build(&first, Hashed::new(), CAPACITY, &SETTING));
    }
    assert!(switches > 20, "{switches} switches");
}

#[test]
fn a_write_hit_of_any_size_stays_in_the_cache() {
    let write = |block, request_blocks| Access { block, op: Op::Write, request_blocks, next_use: NEVER };
    let outcomes = admitted("lru", "size:max=8KiB", dense(), &[write(1, 2), write(1, 3), write(2, 3), write(1, 1)]);
    assert_eq!(outcomes, [Outcome::Admit { evicted: None }, Outcome::Hit, Outcome::Bypass, Outcome::Hit]);
}

#[test]
fn rules_are_named_and_misspellings_are_answered_with_the_nearest() {
    for info in RULES {
        assert_eq!(Spec::parse(info.name).unwrap().info().name, info.name);
    }
    let error = |text| Spec::parse(text).unwrap_err().to_string();
    assert!(error("sise").starts_with("unknown admission rule 'sise' (did you mean 'size'?); expected one of: size, "));
    assert_eq!(error("probability:p=1.5"), "probability: p: found '1.5', expected a number from 0 to 1");
    assert!(error("size:max=64PB").starts_with("size: max: size '64PB': unknown unit 'PB', expected B, KiB, MiB"));
    assert!(error("auto:policies=lru+lrac").starts_with("unknown policy 'lrac' (did you mean 'larc'?)"));
    let repeated = "auto: policies: found 'lru+lru', expected each policy once";
    assert_eq!(error("auto:policies=lru+lru"), repeated);
    assert!(error("auto:policies=lru+fif").ends_with("expected policies that do not know the future"));
    assert!(error("adaptive:target=4").starts_with("adaptive: target: duration '4' has no unit"));
    assert_eq!(error("hotness:min=0"), "hotness: min: found '0', expected a whole number from 1 to 255");
}
