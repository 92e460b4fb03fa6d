//! Auto: the replacement policy itself follows the workload, by shadow caches with other policies.
//!
//! Source: the shadow caches and the controller of Moon, Reddy: Adaptive policies for balancing performance and lifetime of
//! mixed SSD arrays through workload sampling. MSST 2016, section V.B, with whole policies in place of thresholds.
//!
//! Departures from the paper:
//! - Where another policy becomes the best, it takes over the blocks in the cache in the order of their last use. It begins without
//!   ghosts, and nothing is evicted for it.
//! - There is nothing between two policies, so that equation 14 has no place. In its stead latency and hit ratio are smoothed with
//!   the same factor as wear before policies are compared.

use super::adaptive::{ALPHA, Decision, OBJECTIVE, SAMPLING, SEED, TIMEFRAME, Timeframes, WRITES_PER_DAY, aim};
use super::controller::{Aim, Controller};
use super::shadow::Shadows;
use super::size::Size;
use super::{Info, Rule, Setting};
use crate::access::Access;
use crate::blocks::{Blocks, List};
use crate::index::{Index, Key};
use crate::options::{Kind, OptionError, Options, Parameter};
use crate::policy::{self, Outcome, Policy, Visitor};

/// Auto's row in the table of rules.
pub static INFO: Info = Info {
    name: "auto",
    title: "Admits everything, and chooses the replacement policy by sampled shadow caches; --policy is the first",
    source: "the machinery of Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload sampling. MSST 2016, section V.B",
    parameters: &[
        Parameter {
            name: "policies",
            kind: Kind::Text,
            default: "lru+larc+2q+s3-fifo",
            meaning: "the policies to choose among, with their own defaults",
        },
        OBJECTIVE,
        Parameter {
            default: "",
            meaning: "the average latency that is not to be exceeded; without it any is allowed",
            ..super::adaptive::TARGET
        },
        TIMEFRAME,
        SAMPLING,
        ALPHA,
        WRITES_PER_DAY,
        SEED,
    ],
};

/// The policies that `options` name.
pub(super) fn candidates(options: &Options) -> Result<Vec<policy::Spec>, OptionError> {
    let text = options.text("policies");
    let refuse = |expected: &str| OptionError::BadValue {
        owner: INFO.name.to_owned(),
        name: "policies".to_owned(),
        found: text.to_owned(),
        expected: expected.to_owned(),
    };
    let candidates = text.split('+').map(policy::Spec::parse).collect::<Result<Vec<_>, _>>()?;
    if candidates.iter().any(|candidate| candidate.info().offline) {
        return Err(refuse("policies that do not know the future"));
    }
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.info().name).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(refuse("each policy once"));
    }
    Ok(candidates)
}

type AnyPolicy<K> = Box<dyn Policy<Key = K> + Send>;

struct Boxed;

impl<K: Key> Visitor<K> for Boxed {
    type Output = AnyPolicy<K>;

    fn visit<P: Policy<Key = K> + Send + 'static>(self, policy: P) -> AnyPolicy<K> {
        Box::new(policy)
    }
}

/// The blocks in the cache, last used first.
const CACHED: List = List(0);

/// See the module.
pub struct Auto<I: Index> {
    cache: AnyPolicy<I::Key>,
    current: usize,
    candidates: Vec<policy::Spec>,
    /// An index without blocks, for the next policy.
    empty: I,
    capacity: usize,
    cached: Blocks<I, ()>,
    shadows: Shadows<I::Key>,
    controller: Controller,
    timeframes: Timeframes,
    block_bytes: u64,
    decision: Option<Decision>,
}

impl<I: Index> std::fmt::Debug for Auto<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = self.candidates[self.current].to_string();
        f.debug_struct("Auto").field("policy", &policy).field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl<I: Index + Clone + Send + 'static> Auto<I> {
    /// An empty cache of `capacity` blocks that begins with the policy `first`. `index` is empty.
    pub fn new(options: &Options, first: &policy::Spec, index: I, capacity: usize, setting: &Setting) -> Self {
        let mut candidates = candidates(options).expect("the policies of a parsed rule are in order");
        let named = candidates.iter().position(|candidate| candidate.to_string() == first.to_string());
        let current = named.unwrap_or_else(|| {
            candidates.push(first.clone());
            candidates.len() - 1
        });
        let mut shadows =
            Shadows::new(options.number("sampling"), options.count("seed"), capacity, setting.block_bytes);
        for candidate in &candidates {
            shadows.add(candidate, Rule::Size(Size::with(u64::MAX)), capacity);
        }
        let aim = Aim { smooth_all: true, ..aim(options) };
        Auto {
            cache: candidates[current].build(index.clone(), capacity, Boxed),
            current,
            controller: Controller::new(setting.array, aim, candidates.len()),
            candidates,
            cached: Blocks::new(index.clone(), 1),
            empty: index,
            capacity,
            shadows,
            timeframes: Timeframes::new(options),
            block_bytes: setting.block_bytes,
            decision: None,
        }
    }

    #[cold]
    fn end_timeframe(&mut self, time_us: u64) {
        let Some((seconds, timeframes)) = self.timeframes.end(time_us, self.shadows.sampled_accesses()) else { return };
        let own = self.shadows.own();
        self.controller.weigh(&self.shadows.estimates(u64::MAX), seconds, timeframes);
        let choice = self.controller.choose(0.0);
        if choice.candidate != self.current {
            self.hand_over(choice.candidate);
        }
        self.decision = Some(Decision {
            time_us,
            number: 1 + self.decision.as_ref().map_or(0, |decision| decision.number),
            choice,
            shadows: self.controller.figures().to_vec(),
            latency_us: self.controller.array().latency_mean_us(&own.traffic(self.block_bytes)),
            position: self.current as f64,
            threshold: self.current as f64,
            policy: Some(self.candidates[self.current].to_string()),
        });
    }

    /// Gives the blocks in the cache to the policy `next`, unless it would not take them all.
    fn hand_over(&mut self, next: usize) {
        let mut cache = self.candidates[next].build(self.empty.clone(), self.capacity, Boxed);
        let mut take = |block| cache.warm(block) == Outcome::Admit { evicted: None };
        let last_used_first: Vec<_> = self.cached.keys(CACHED).collect();
        // A policy with a filter of its own, such as larc:fill=ghost, takes a block the second time.
        if last_used_first.iter().rev().all(|&block| take(block) || take(block)) {
            (self.cache, self.current) = (cache, next);
        }
    }

    /// Follows what the policy did with `block`.
    #[inline]
    fn note(&mut self, block: I::Key, outcome: &Outcome<I::Key>) {
        match *outcome {
            Outcome::Hit => {
                if let Some(node) = self.cached.find(block) {
                    self.cached.move_front(node, CACHED);
                }
            }
            Outcome::Admit { evicted } => {
                if let Some(evicted) = evicted {
                    self.cached.forget(evicted);
                }
                self.cached.insert_front(CACHED, block, ());
            }
            Outcome::Bypass => {}
        }
    }
}

impl<I: Index + Clone + Send + 'static> Policy for Auto<I> {
    type Key = I::Key;

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let outcome = self.cache.access(access);
        self.note(access.block, &outcome);
        self.shadows.access(&access, &outcome);
        outcome
    }

    fn remove(&mut self, block: I::Key) -> bool {
        self.shadows.remove(block);
        self.cached.forget(block);
        self.cache.remove(block)
    }

    fn contains(&self, block: I::Key) -> bool {
        self.cache.contains(block)
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        if self.timeframes.is_due(time_us) {
            self.end_timeframe(time_us);
        }
    }

    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        self.shadows.warm(block);
        let outcome = self.cache.warm(block);
        self.note(block, &outcome);
        outcome
    }

    fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.cache.prefetch(soon, later);
        self.cached.prefetch_node(soon);
        self.cached.prefetch_index(later);
    }

    fn check(&self) {
        self.cache.check();
        self.cached.check(self.capacity);
        self.shadows.check();
        assert_eq!(self.cached.len(CACHED), self.cache.len());
        assert!(self.cached.keys(CACHED).all(|block| self.cache.contains(block)));
    }
}
