//! Auto: the replacement policy itself adapts to the workload, by shadow caches with other policies.
//!
//! Source: the shadow caches and the controller of Moon, Reddy: Adaptive policies for balancing performance and
//! lifetime of mixed SSD arrays through workload sampling. MSST 2016, section V.B, with whole policies in place of
//! thresholds.
//!
//! Departures from the paper:
//! - When another policy becomes the best, it takes over the cached blocks, least recently used first: nothing is
//!   fetched or evicted. Its ghosts start empty.
//! - Policies have no intermediate positions, so equation 14 does not apply. They are compared by everything since the
//!   cache was full, with slowly decaying weights, as a continuation of the cache's own [`Past`]. The comparison looks
//!   ahead twice as far as that past, and at least ten timeframes. When policies begin to differ the past is short, and
//!   predicts little.
//! - Decisions do not wait for the end of a timeframe: one follows every 100 accesses of the sample. Until the cache is
//!   full policies hardly differ; then those that wear it needlessly do so at once.
//! - The policy stays while it is nearly as good as the best, because each change loses the next policy's ghosts. If
//!   another one was far better for several timeframes in a row, the past is forgotten and that one is chosen.

use super::adaptive::{
    ALPHA, HITS, OBJECTIVE, SAMPLED_ACCESSES_MIN, SAMPLING, SEED, TIMEFRAME, Timeframes, WRITES_PER_DAY, aim,
};
use super::budget::Budget;
use super::controller::{Aim, Controller, Past};
use super::shadow::Shadows;
use super::size::Size;
use super::{Behind, Decides, Info, Rule};
use crate::access::{Access, Op};
use crate::blocks::{Blocks, List, Queues};
use crate::decision::{Choice, Decision};
use crate::index::Index;
use crate::options::{Kind, OptionError, Options, Parameter};
use crate::policy::{self, AnyPolicy, Boxed, Outcome, Policy};

/// Auto's row in the table of rules.
pub static INFO: Info = Info {
    name: "auto",
    title: "Admits everything, and chooses the replacement policy by sampled shadow caches; --policy is the first",
    source: "the machinery of Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD \
        arrays through workload sampling. MSST 2016, section V.B",
    parameters: &[
        Parameter::of("policies", Kind::Text, "lru+larc+larc:writes=admit+2q+s3-fifo")
            .means("the policies to choose among"),
        OBJECTIVE,
        Parameter {
            default: "",
            meaning: "the maximum average latency; without it there is no limit",
            ..super::adaptive::TARGET
        },
        Parameter { meaning: "the time after which the weight of the past is multiplied by alpha", ..TIMEFRAME },
        SAMPLING,
        Parameter {
            default: "0.995",
            meaning: "weight of the past after a timeframe; higher than for adaptive, because a change of policy costs \
                more than one of a threshold",
            ..ALPHA
        },
        HITS,
        WRITES_PER_DAY,
        SEED,
    ],
    thresholds: None,
    decides: Some(Decides { choice, threshold: |_| None, candidates }),
};

/// Returns the policies that `options` name.
fn candidates(options: &Options) -> Result<Vec<policy::Spec>, OptionError> {
    let text = options.text("policies");
    let refuse = |expected: &str| OptionError::bad_value(INFO.name, "policies", text, expected);
    let candidates = text.split('+').map(policy::Spec::parse).collect::<Result<Vec<_>, _>>()?;
    if candidates.iter().any(|candidate| candidate.info().offline) {
        return Err(refuse("policies that do not know the future"));
    }
    let names: Vec<_> = candidates.iter().map(ToString::to_string).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(refuse("each policy once"));
    }
    Ok(candidates)
}

/// Returns the policies that `options` name, plus `first` if missing; and the index of `first`.
fn candidates_with(options: &Options, first: &policy::Spec) -> (Vec<policy::Spec>, usize) {
    let mut candidates = candidates(options).expect("the policies of a parsed rule are in order");
    let named = candidates.iter().position(|candidate| candidate.to_string() == first.to_string());
    let first = named.unwrap_or_else(|| {
        candidates.push(first.clone());
        candidates.len() - 1
    });
    (candidates, first)
}

/// Describes the policy after `decision`; the initial one is `first`.
fn choice(options: &Options, first: &policy::Spec, decision: Option<&Decision>, _block_bytes: u64) -> String {
    let (candidates, first) = candidates_with(options, first);
    let current = decision.map_or(first, |decision| decision.position as usize);
    format!("policy {}", candidates[current])
}

/// Builds the rule with its policies.
pub(super) fn build<I: Index + Clone + Send + 'static>(options: &Options, behind: Behind<I>) -> AnyPolicy<I::Key> {
    Box::new(Auto::new(options, behind))
}

/// The cached blocks, most recently used first.
const CACHED: List = List(0);

/// A policy stays while it is worse than the best by at most this share of the distance from the best to the worst.
const NEAR: f64 = 0.02;
/// If a policy was recently worse by more than this share of that distance for [`BEHIND_MAX`] timeframes in a row, the
/// workload has changed.
const FAR: f64 = 0.5;
const BEHIND_MAX: f64 = 8.0;
const ALPHA_LATELY: f64 = 0.7;

/// Timeframes to look ahead, at least.
const AHEAD_TIMEFRAMES_MIN: f64 = 10.0;

/// A cache whose policy changes.
pub struct Auto<I: Index> {
    /// The current policy.
    policy: AnyPolicy<I::Key>,
    current: usize,
    candidates: Vec<policy::Spec>,
    /// An empty index for the next policy.
    empty: I,
    capacity: usize,
    /// The policy's blocks, which stay when another policy takes over.
    cached: Blocks<I, ()>,
    shadows: Shadows<I::Key>,
    controller: Controller,
    /// The history of the cache, from the shadows of the policies that it had.
    own: Past,
    /// The history of each candidate.
    pasts: Vec<Past>,
    /// A controller with short memory, to detect a change of the workload.
    lately: Controller,
    pasts_lately: Vec<Past>,
    /// Number of consecutive timeframes in which another policy was far better.
    behind: f64,
    /// True once the cache has been full.
    was_full: bool,
    budget: Option<Budget>,
    timeframes: Timeframes,
    ticked_us: Option<u64>,
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
    /// Creates an empty cache that starts with the policy `behind` the rule.
    fn new(options: &Options, behind: Behind<I>) -> Self {
        let Behind { policy: first, index, capacity, setting } = behind;
        let (candidates, current) = candidates_with(options, first);
        let mut shadows =
            Shadows::new(options.number("sampling"), options.count("seed"), capacity, setting.block_bytes);
        for candidate in &candidates {
            shadows.add(candidate, Rule::Size(Size::with(u64::MAX)), capacity);
        }
        let aim = aim(options);
        let pasts = vec![Past::default(); candidates.len()];
        Auto {
            policy: candidates[current].build(index.clone(), capacity, Boxed),
            current,
            controller: Controller::new(setting.array, aim, candidates.len()),
            lately: Controller::new(setting.array, Aim { alpha: ALPHA_LATELY.min(aim.alpha), ..aim }, candidates.len()),
            own: Past::default(),
            pasts_lately: pasts.clone(),
            pasts,
            behind: 0.0,
            was_full: false,
            budget: Budget::of(INFO.parameters, options, capacity),
            candidates,
            cached: Blocks::new(index.clone(), 1, 0),
            empty: index,
            capacity,
            shadows,
            timeframes: Timeframes::new(options),
            ticked_us: None,
            block_bytes: setting.block_bytes,
            decision: None,
        }
    }

    /// Starts the comparison; the past does not count.
    #[cold]
    fn begin(&mut self, time_us: u64) {
        self.was_full = true;
        self.shadows.estimates(u64::MAX);
        self.timeframes.begin(time_us);
        self.forget();
    }

    fn forget(&mut self) {
        self.own = Past::default();
        self.pasts.fill(Past::default());
    }

    #[cold]
    fn decide(&mut self, time_us: u64) {
        let Some((seconds, timeframes)) = self.timeframes.cut(time_us) else { return };
        let own = self.shadows.own();
        let estimates = self.shadows.estimates(u64::MAX);
        let old = self.controller.aim().alpha.powf(timeframes);
        let old_lately = self.lately.aim().alpha.powf(timeframes);
        self.own.add(&estimates[self.current], seconds, old);
        for (number, estimate) in estimates.iter().enumerate() {
            self.pasts[number].add(estimate, seconds, old);
            self.pasts_lately[number].add(estimate, seconds, old_lately);
        }
        let choice = self.choose(timeframes);
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

    /// Returns the best policy, or the current one if nearly as good, `timeframes` after the last choice.
    fn choose(&mut self, timeframes: f64) -> Choice {
        self.controller.compare(&self.own, &self.pasts, AHEAD_TIMEFRAMES_MIN * self.timeframes.seconds());
        self.lately.compare(&Past::default(), &self.pasts_lately, 0.0);
        let (choice, lately) = (self.controller.choose(0.0), self.lately.choose(0.0));
        let far = !self.lately.is_near(self.current, lately, FAR);
        // After an idle time a decision counts as one timeframe.
        self.behind = if far { self.behind + timeframes.min(1.0) } else { 0.0 };
        if self.behind >= BEHIND_MAX {
            self.forget();
            self.behind = 0.0;
            return lately;
        }
        let near = self.controller.is_near(self.current, choice, NEAR);
        if near { Choice { candidate: self.current, ..choice } } else { choice }
    }

    /// Hands the cached blocks over to the policy `next`.
    fn hand_over(&mut self, next: usize) {
        let mut policy = self.candidates[next].build(self.empty.clone(), self.capacity, Boxed);
        let last_used_first: Vec<_> = self.cached.keys(CACHED).collect();
        for block in last_used_first.into_iter().rev() {
            let outcome = policy.warm(block);
            assert_eq!(
                outcome,
                Outcome::Admit { evicted: None },
                "a policy takes over as many blocks as it has room for"
            );
        }
        (self.policy, self.current) = (policy, next);
    }

    /// Passes the access to the policy, unless the budget is used up.
    #[inline]
    fn access_within_budget(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let Some(budget) = &mut self.budget else { return self.policy.access(access) };
        if budget.refuses(&access, &mut self.policy) {
            return Outcome::Bypass;
        }
        let outcome = self.policy.access(access);
        if outcome.writes(access.op) {
            budget.note_written();
        }
        outcome
    }

    /// Applies the policy's outcome for `block` to the list of cached blocks.
    #[inline]
    fn follow(&mut self, block: I::Key, op: Op, outcome: &Outcome<I::Key>) {
        match outcome {
            Outcome::Hit => {
                let node = self.cached.find(block).expect("what the policy holds is cached");
                self.cached.move_front(node, CACHED);
            }
            Outcome::Admit { evicted } => {
                if let Some(evicted) = evicted {
                    self.cached.forget(*evicted);
                }
                self.cached.insert_front(CACHED, block, ());
            }
            Outcome::Bypass if op == Op::Write => {
                self.cached.forget(block);
            }
            Outcome::Bypass => {}
        }
    }
}

impl<I: Index + Clone + Send + 'static> Policy for Auto<I> {
    type Key = I::Key;

    /// Returns the cached blocks, independent of the current policy.
    fn blocks(&self) -> Option<&dyn Queues<I::Key>> {
        Some(&self.cached)
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<I::Key>> {
        Some(&mut self.cached)
    }

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let outcome = self.access_within_budget(access);
        self.follow(access.block, access.op, &outcome);
        self.shadows.access(&access, &outcome);
        outcome
    }

    fn remove(&mut self, block: I::Key) -> bool {
        self.shadows.remove(block);
        self.policy.remove(block);
        self.cached.forget(block).is_some()
    }

    fn refuse(&mut self, block: I::Key) {
        self.policy.refuse(block);
        self.cached.forget(block);
    }

    fn space_is_full(&mut self) {
        self.policy.space_is_full();
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        if let Some(budget) = &mut self.budget {
            budget.tick(time_us);
        }
        let before_us = self.ticked_us.replace(time_us);
        // Skip between the parts of a request, which have the same time.
        if before_us == Some(time_us) {
            return;
        }
        if !self.was_full && self.len() == self.capacity {
            self.begin(time_us);
        } else if self.shadows.sampled_accesses() >= SAMPLED_ACCESSES_MIN || before_us.is_none() {
            self.decide(time_us);
        }
    }

    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        self.shadows.warm(block);
        let outcome = self.policy.warm(block);
        self.follow(block, Op::Read, &outcome);
        outcome
    }

    fn note_others_written(&mut self, blocks: f64) {
        if let Some(budget) = &mut self.budget {
            budget.note_others(blocks);
        }
    }

    fn is_overdrawn(&self) -> bool {
        self.budget.as_ref().is_some_and(Budget::is_overdrawn)
    }

    fn limit_budget(&mut self, blocks: f64) {
        if let Some(budget) = &mut self.budget {
            budget.limit(blocks);
        }
    }

    fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.policy.prefetch(soon, later);
        self.cached.prefetch_node(soon);
        self.cached.prefetch_index(later);
    }

    fn check(&self) {
        self.policy.check();
        self.cached.check(self.capacity);
        self.shadows.check();
        assert_eq!(self.policy.len(), self.len());
        assert!(self.cached.keys(CACHED).all(|block| self.policy.contains(block)));
    }
}
