//! Every policy and every admission rule with each of its options at both ends of its range: built, and consistent
//! while it runs.

use crate::rules::SETTING;
use crate::workloads::{WORKLOADS, workload};
use flashwise_core::admission::{self, RULES};
use flashwise_core::index::Hashed;
use flashwise_core::options::{Kind, Parameter};
use flashwise_core::policy::{Outcome, POLICIES, Policy, Spec, Visitor};
use flashwise_core::quantity::{ByteSize, Duration};

const CAPACITY: usize = 10;

/// Runs a workload over time.
struct Run {
    what: String,
}

impl Visitor<u32> for Run {
    type Output = ();

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) {
        for (position, &access) in workload(WORKLOADS[0]).iter().take(2000).enumerate() {
            policy.tick(position as u64 * 10_000_000);
            policy.access(access);
            assert!(policy.len() <= CAPACITY, "{}", self.what);
            if position % 64 == 0 {
                policy.check();
            }
        }
        policy.check();
    }
}

/// Returns the plain name, and the name with each option at both of its ends.
fn texts(name: &str, parameters: &[Parameter]) -> Vec<String> {
    let ends = |kind: Kind| match kind {
        Kind::Number(min, max) => vec![min.to_string(), max.to_string()],
        Kind::Positive(max) => vec![max.to_string()],
        Kind::Count(min, max) => vec![min.to_string(), max.to_string()],
        Kind::Share(max) => vec!["0".to_owned(), max.to_string()],
        Kind::Size(min, max) | Kind::PowerOfTwo(min, max) => {
            [min, max].map(|bytes| ByteSize::new(bytes).to_string()).to_vec()
        }
        Kind::Duration(min, max) => [min, max].map(|us| Duration::from_us(us).to_string()).to_vec(),
        Kind::Choice(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Kind::Text | Kind::List => Vec::new(),
    };
    let with = |parameter: &Parameter| {
        let text = |value: String| format!("{name}:{}={value}", parameter.name);
        ends(parameter.kind).into_iter().map(text).collect::<Vec<_>>()
    };
    std::iter::once(name.to_owned()).chain(parameters.iter().flat_map(with)).collect()
}

#[test]
fn every_policy_runs_with_each_option_at_both_ends_of_its_range() {
    for info in POLICIES.iter().filter(|info| !info.offline) {
        for what in texts(info.name, info.parameters) {
            let spec = Spec::parse(&what).expect("an end of a range is allowed");
            spec.build(Hashed::new(), CAPACITY, Run { what });
        }
    }
}

/// Admits as many blocks as it has room for, as after a restart or from another policy.
struct TakeOver {
    what: String,
}

impl Visitor<u32> for TakeOver {
    type Output = ();

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) {
        for block in 0..CAPACITY as u32 {
            assert_eq!(policy.warm(block), Outcome::Admit { evicted: None }, "{}, block {block}", self.what);
        }
        assert!((0..CAPACITY as u32).all(|block| policy.contains(block)), "{}", self.what);
        policy.check();
    }
}

#[test]
fn every_policy_takes_over_a_full_cache_with_each_option_at_both_ends_of_its_range() {
    for info in POLICIES.iter().filter(|info| !info.offline) {
        for what in texts(info.name, info.parameters) {
            let spec = Spec::parse(&what).expect("an end of a range is allowed");
            spec.build(Hashed::new(), CAPACITY, TakeOver { what });
        }
    }
}

#[test]
fn every_admission_rule_runs_with_each_option_at_both_ends_of_its_range() {
    let policy = Spec::parse("lru").expect("a policy of the table");
    for info in RULES {
        for what in texts(info.name, info.parameters) {
            let rule = match admission::Spec::parse(&what) {
                Ok(rule) => rule,
                // A budget covers all writes, so unconditional admission is rejected.
                Err(error) if what.ends_with("writes=admit") => {
                    assert!(error.to_string().contains("writes-per-day"), "{what}: {error}");
                    continue;
                }
                Err(error) => panic!("an end of a range is allowed: {error}"),
            };
            Run { what }.visit(rule.build(&policy, Hashed::new(), CAPACITY, &SETTING));
        }
    }
}
