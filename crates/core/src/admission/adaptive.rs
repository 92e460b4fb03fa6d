//! Adaptive: a rule whose threshold adapts to the workload, by shadow caches with other thresholds.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section V.B, equations 11 to 14. [`shadow`](super::shadow) has the shadow caches,
//! [`controller`](super::controller) equations 11 to 13.
//!
//! Thresholds are on a scale with a position for each shadow. The last position admits everything, which leaves only
//! the replacement policy. The adapted rule's row maps positions to thresholds.
//!
//! Departures from the paper:
//! - Equation 14 moves the position on the scale: for probability that is the paper's, for size it halves and doubles.
//! - The target latency has priority over smoothing. If the threshold between the old and the chosen one would miss the
//!   target, the chosen one applies at once. This is computed by linear interpolation between the neighbouring shadows.
//!   If the cache itself missed the target in the last timeframe but some shadow did not, the fastest threshold
//!   applies: the cache must fill first.
//! - The smoothed excess of the cache's latency over its shadows' prediction is added to their latencies, if positive.
//!   (Otherwise a sample that is slightly too fast would make the cache miss its target every few timeframes.) If no
//!   shadow then meets the target, but one does without the excess, the fastest applies.
//! - A timeframe with fewer than 100 sampled accesses continues for another.
//! - Until the first timeframe ends everything is admitted. From then on the chosen threshold applies at once until a
//!   timeframe has begun with a full cache; afterwards equation 14 smooths it. Smoothing from the start, at the
//!   threshold that admits everything, cost a quarter of the rule's gain over 100 timeframes.

use super::budget::Budget;
use super::controller::{Aim, Controller, Objective};
use super::shadow::Shadows;
use super::{ADAPTABLE, Admitted, Behind, Decides, EVERYTHING, Info, JUDGES, Rule, Thresholds, WRITES, admits_writes};
use crate::access::Access;
use crate::decision::Choice;
use crate::index::{Dense, Index};
use crate::options::{self, Options, Parameter};
use crate::policy::{self, AnyPolicy, Outcome, Policy, pass_on};

pub use crate::decision::Decision;

/// Adaptive's row in the table of rules.
pub static INFO: Info = Info {
    name: "adaptive",
    title: "Adapts the threshold of another rule by sampled shadow caches",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through \
        workload sampling. MSST 2016, section V.B",
    parameters: &[
        Parameter::of("kind", options::Kind::Choice(&ADAPTABLE), "probability")
            .means("the rule whose threshold is adapted"),
        WRITES,
        TARGET,
        TIMEFRAME,
        Parameter::of("shadows", options::Kind::Count(2, 32), "10").means("shadow caches, and so thresholds"),
        SAMPLING,
        ALPHA,
        OBJECTIVE,
        HITS,
        WRITES_PER_DAY,
        SEED,
    ],
    thresholds: None,
    decides: Some(Decides { choice, threshold, candidates: |_| Ok(Vec::new()) }),
};

/// `target`: the constraint of equation 1.
pub(super) const TARGET: Parameter = Parameter::of("target", options::Kind::Duration(1, 3_600_000_000), "400us")
    .means("the maximum average latency; the paper's");
/// `timeframe`: the time between decisions.
pub(super) const TIMEFRAME: Parameter =
    Parameter::of("timeframe", options::Kind::Duration(1000, 30 * 86_400_000_000), "10min")
        .means("time between two decisions; the paper does not give its value");
/// `sampling`: the share of blocks that shadows see.
pub(super) const SAMPLING: Parameter = Parameter::of("sampling", options::Kind::Number(0.0001, 1.0), "1%")
    .means("share of the blocks that the shadow caches see; the paper's");
/// `alpha`: the smoothing factor.
pub(super) const ALPHA: Parameter = Parameter::of("alpha", options::Kind::Number(0.0, 0.999), "")
    .means("smoothing factor; without it as in the paper, 0.8 below a sampling of 5%, 0.9 from there");
/// `objective`: the figure to optimise.
pub(super) const OBJECTIVE: Parameter =
    Parameter::of("objective", options::Kind::Choice(&Objective::NAMES), "latency-over-lifetime")
        .means("the objective; the default is the paper's");
/// `writes-per-day`: a budget.
pub(super) const WRITES_PER_DAY: Parameter = Parameter::of("writes-per-day", options::Kind::Number(0.0, f64::MAX), "")
    .means("full writes of the cache allowed per day (DWPD); without it there is no such limit");
/// `hits`: a bound against caches that are hardly used.
pub(super) const HITS: Parameter = Parameter::of("hits", options::Kind::Number(0.0, 1.0), "0").means(
    "the minimum hits, as a share of those of the candidate with the most hits. Candidates with fewer \
         are not chosen, even with the best latency over lifetime. The paper has only the target",
);
/// `seed`: selects the sampled blocks.
pub(super) const SEED: Parameter = Parameter { meaning: "seed of the sample and of the random numbers", ..super::SEED };

/// Minimum number of sampled accesses for a decision.
pub(super) const SAMPLED_ACCESSES_MIN: u64 = 100;

/// Returns the aim of `options`.
pub(super) fn aim(options: &Options) -> Aim {
    let alpha = match options.number("sampling") {
        _ if options.has("alpha") => options.number("alpha"),
        sampling if sampling < 0.05 => 0.8,
        _ => 0.9,
    };
    Aim {
        objective: Objective::named(options.text("objective")),
        latency_us_max: if options.has("target") { options.duration_us("target") as f64 } else { f64::INFINITY },
        writes_per_day_max: if options.has("writes-per-day") {
            options.number("writes-per-day")
        } else {
            f64::INFINITY
        },
        hits_min: options.number("hits"),
        alpha,
    }
}

/// Divides time into timeframes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeframes {
    length_us: u64,
    /// The start of the current timeframe; `None` before the first access.
    start_us: Option<u64>,
    end_us: u64,
}

impl Timeframes {
    pub fn new(options: &Options) -> Self {
        Timeframes { length_us: options.duration_us("timeframe"), start_us: None, end_us: 0 }
    }

    /// Returns the length of a timeframe in seconds.
    pub fn seconds(&self) -> f64 {
        self.length_us as f64 / 1e6
    }

    /// Starts a timeframe at `time_us`.
    pub fn begin(&mut self, time_us: u64) {
        self.start_us = Some(time_us);
    }

    /// Ends the current timeframe at `time_us` if time has passed. Returns its length in seconds and in timeframes.
    pub fn cut(&mut self, time_us: u64) -> Option<(f64, f64)> {
        let start_us = *self.start_us.get_or_insert(time_us);
        if time_us <= start_us {
            return None;
        }
        self.start_us = Some(time_us);
        let length_us = (time_us - start_us) as f64;
        Some((length_us / 1e6, length_us / self.length_us as f64))
    }

    /// True if the first timeframe starts at `time_us` or one may end.
    #[inline]
    pub fn is_due(&self, time_us: u64) -> bool {
        time_us >= self.end_us
    }

    /// Ends the timeframe if it has enough `sampled_accesses`. Returns its length in seconds and in timeframes.
    pub fn end(&mut self, time_us: u64, sampled_accesses: u64) -> Option<(f64, f64)> {
        self.end_us = time_us.saturating_add(self.length_us);
        if self.start_us.is_some() && sampled_accesses < SAMPLED_ACCESSES_MIN {
            return None;
        }
        let (seconds, timeframes) = self.cut(time_us)?;
        Some((seconds, timeframes.round().max(1.0)))
    }
}

/// The thresholds of the adapted rule, with a position for each shadow.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    rule: &'static Info,
    thresholds: &'static Thresholds,
    shadows: usize,
}

impl Scale {
    fn new(options: &Options) -> Self {
        let kind = options.text("kind");
        let rule = JUDGES.iter().find(|info| info.name == kind).expect("an option's value is one of its words");
        let thresholds = rule.thresholds.as_ref().expect("a rule that can be adapted has thresholds");
        Scale { rule, thresholds, shadows: options.count("shadows") as usize }
    }

    /// Returns the position that admits everything.
    fn last(&self) -> f64 {
        (self.shadows - 1) as f64
    }

    /// Applies equation 14: interpolates between `position`, with weight `old`, and `chosen`. The result is at most the
    /// last position, despite rounding.
    fn between(&self, position: f64, chosen: f64, old: f64) -> f64 {
        (old * position + (1.0 - old) * chosen).min(self.last())
    }

    /// Returns the threshold at `position`: a portion, blocks or references.
    pub fn threshold(&self, position: f64) -> f64 {
        (self.thresholds.at)(position, self.last())
    }

    /// Creates the rule with the threshold at `position`, `seed` if it draws random numbers, and defaults for its other
    /// options.
    fn rule<I: Index>(&self, position: f64, index: I, capacity: usize, block_bytes: u64, seed: u64) -> Rule<I> {
        let Info { name, parameters, .. } = self.rule;
        let draws = parameters.iter().any(|parameter| parameter.name == SEED.name);
        let seeded = if draws { format!("{}={seed}", SEED.name) } else { String::new() };
        let options = Options::parse(name, parameters, &seeded).expect("a seed may be any");
        let mut rule = Rule::new(self.rule, &options, index, capacity, block_bytes);
        rule.set_threshold(self.threshold(position));
        rule
    }
}

/// Describes the threshold after `decision`.
fn choice(options: &Options, _policy: &policy::Spec, decision: Option<&Decision>, block_bytes: u64) -> String {
    let shown = Scale::new(options).thresholds.shown;
    decision.map_or_else(|| EVERYTHING.to_owned(), |decision| shown(decision.threshold, block_bytes))
}

/// Returns the threshold after `decision`, unless it admits everything by size.
fn threshold(decision: &Decision) -> Option<f64> {
    Some(decision.threshold).filter(|threshold| *threshold < u64::MAX as f64)
}

/// Builds the policy behind the rule, both as one policy.
pub(super) fn build<I>(options: &Options, behind: Behind<I>) -> AnyPolicy<I::Key>
where
    I: Index + Clone + Send + 'static,
{
    Box::new(Adaptive::new(options, behind.policy(), behind))
}

/// A policy behind a rule whose threshold adapts.
#[derive(Debug)]
pub struct Adaptive<P, I: Index> {
    cache: Admitted<P, I>,
    scale: Scale,
    position: f64,
    shadows: Shadows<I::Key>,
    controller: Controller,
    timeframes: Timeframes,
    block_bytes: u64,
    /// The smoothed excess of the cache's latency over its shadows' prediction.
    excess_us: f64,
    /// The capacity in blocks, and true once the cache was full at a decision, which starts the smoothing.
    capacity: usize,
    was_full: bool,
    decision: Option<Decision>,
}

impl<P: Policy<Key = I::Key>, I: Index> Adaptive<P, I> {
    /// Creates the rule in front of `policy`, which is the one `behind` it.
    fn new(options: &Options, policy: P, behind: Behind<I>) -> Self {
        let Behind { policy: spec, index, capacity, setting } = behind;
        let seed = options.count("seed");
        let scale = Scale::new(options);
        let (admits_writes, block_bytes) = (admits_writes(options), setting.block_bytes);
        let shadows = Shadows::new(options.number("sampling"), seed, capacity, block_bytes);
        let mut shadows = shadows.admitting_writes(admits_writes);
        for number in 0..scale.shadows {
            let own_seed = seed.wrapping_add(1 + number as u64);
            let rule = scale.rule(number as f64, Dense::new(0), shadows.capacity(capacity), block_bytes, own_seed);
            shadows.add(spec, rule, capacity);
        }
        let position = scale.last();
        Adaptive {
            cache: Admitted::new(scale.rule(position, index, capacity, block_bytes, seed), policy)
                .admitting_writes(admits_writes)
                .within(Budget::of(INFO.parameters, options, capacity)),
            scale,
            position,
            shadows,
            controller: Controller::new(setting.array, aim(options), scale.shadows),
            timeframes: Timeframes::new(options),
            block_bytes,
            excess_us: 0.0,
            capacity,
            was_full: false,
            decision: None,
        }
    }

    #[cold]
    fn end_timeframe(&mut self, time_us: u64) {
        let Some((seconds, timeframes)) = self.timeframes.end(time_us, self.shadows.sampled_accesses()) else { return };
        let own = self.shadows.own();
        let estimates = self.shadows.estimates(self.cache.rule().request_blocks_max());
        let latency_us = self.controller.array().latency_mean_us(&own.traffic(self.block_bytes));
        self.controller.weigh(&estimates, seconds, timeframes);
        let old = self.controller.aim().alpha.powf(timeframes);
        let excess_us = latency_us - self.latency_us_at(self.position);
        self.excess_us = (old * self.excess_us + (1.0 - old) * excess_us).max(0.0);
        let choice = self.controller.choose(self.excess_us);
        self.position = self.next_position(choice, latency_us, if self.was_full { old } else { 0.0 });
        self.was_full |= self.cache.len() == self.capacity;
        self.cache.rule_mut().set_threshold(self.scale.threshold(self.position));
        self.decision = Some(Decision {
            time_us,
            number: 1 + self.decision.as_ref().map_or(0, |decision| decision.number),
            choice,
            shadows: self.controller.figures().to_vec(),
            latency_us,
            position: self.position,
            threshold: self.scale.threshold(self.position),
            policy: None,
        });
    }

    /// Applies equation 14, unless the target latency is in danger. `old` is the weight of the old position.
    fn next_position(&self, choice: Choice, latency_us: f64, old: f64) -> f64 {
        let latency_us_max = self.controller.aim().latency_us_max;
        let chosen = choice.candidate as f64;
        if !choice.meets_latency {
            // Plain replacement, as in the paper, if no budget forbids it.
            return if self.controller.has_budget() { chosen } else { self.scale.last() };
        }
        if latency_us > latency_us_max {
            return self.controller.fastest() as f64;
        }
        let position = self.scale.between(self.position, chosen, old);
        if self.latency_us_at(position) + self.excess_us > latency_us_max { chosen } else { position }
    }

    /// Interpolates the shadows' latencies at `position`.
    fn latency_us_at(&self, position: f64) -> f64 {
        let figures = self.controller.figures();
        let (below, above) = (position.floor() as usize, position.ceil() as usize);
        let share = position - position.floor();
        (1.0 - share) * figures[below].latency_us + share * figures[above].latency_us
    }
}

impl<P: Policy<Key = I::Key>, I: Index> Policy for Adaptive<P, I> {
    type Key = I::Key;

    pass_on!(self => self.cache);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let outcome = self.cache.access(access);
        self.shadows.access(&access, &outcome);
        outcome
    }

    fn remove(&mut self, block: I::Key) -> bool {
        self.shadows.remove(block);
        self.cache.remove(block)
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        self.cache.tick(time_us);
        if self.timeframes.is_due(time_us) {
            self.end_timeframe(time_us);
        }
    }

    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        self.shadows.warm(block);
        self.cache.warm(block)
    }

    fn note_others_written(&mut self, blocks: f64) {
        self.cache.note_others_written(blocks);
    }

    fn is_overdrawn(&self) -> bool {
        self.cache.is_overdrawn()
    }

    fn limit_budget(&mut self, blocks: f64) {
        self.cache.limit_budget(blocks);
    }

    fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.cache.prefetch(soon, later);
    }

    fn check(&self) {
        assert!((0.0..=self.scale.last()).contains(&self.position), "position {}", self.position);
        self.cache.check();
        self.shadows.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> Scale {
        Scale::new(&Options::parse("adaptive", INFO.parameters, text).unwrap())
    }

    #[test]
    fn smoothing_at_the_end_of_the_scale_stays_on_it() {
        let weights = (1..100).map(|timeframes| 0.8_f64.powi(timeframes));
        let sums: Vec<_> = weights.clone().map(|old| old * 9.0 + (1.0 - old) * 9.0).collect();
        assert!(sums.iter().any(|sum| *sum > 9.0), "rounding leads past the end");
        assert!(weights.into_iter().all(|old| scale("").between(9.0, 9.0, old) <= 9.0));
    }

    #[test]
    fn scales_end_where_everything_is_admitted() {
        let thresholds = |scale: Scale| (0..scale.shadows).map(|at| scale.threshold(at as f64)).collect::<Vec<_>>();
        let p = thresholds(scale("shadows=4"));
        assert!(p.iter().zip([0.01, 0.34, 0.67]).all(|(p, expected)| (p - expected).abs() < 1e-12), "{p:?}");
        assert!((2..=32).all(|shadows| scale(&format!("shadows={shadows}")).threshold(f64::from(shadows - 1)) == 1.0));
        assert_eq!(thresholds(scale("shadows=4,kind=size")), [1.0, 2.0, 4.0, u64::MAX as f64]);
        assert_eq!(thresholds(scale("shadows=4,kind=hotness")), [4.0, 3.0, 2.0, 1.0]);
        // Between two positions: half way in p, a factor of the square root of two (rounded down) in size.
        assert!((scale("shadows=3").threshold(1.5) - 0.7525).abs() < 1e-12);
        assert_eq!([2.5, 8.4, 8.6].map(|at| scale("kind=size").threshold(at)), [5.0, 337.0, u64::MAX as f64]);
        assert_eq!([8.4, 8.6].map(|at| scale("kind=hotness").threshold(at)), [2.0, 1.0]);
    }

    #[test]
    fn alpha_follows_the_sampling_rate_unless_it_is_given() {
        let alpha = |text| aim(&Options::parse("adaptive", INFO.parameters, text).unwrap()).alpha;
        assert_eq!(["", "sampling=5%", "sampling=10%", "alpha=0.5"].map(alpha), [0.8, 0.9, 0.9, 0.5]);
    }

    #[test]
    fn a_timeframe_with_too_few_samples_goes_on() {
        let options = Options::parse("adaptive", INFO.parameters, "timeframe=1s").unwrap();
        let mut timeframes = Timeframes::new(&options);
        assert!(timeframes.is_due(0));
        assert_eq!(timeframes.end(5_000_000, 0), None, "the first begins");
        assert!(!timeframes.is_due(5_999_999) && timeframes.is_due(6_000_000));
        assert_eq!(timeframes.end(6_000_000, 99), None);
        assert!(!timeframes.is_due(6_999_999));
        assert_eq!(timeframes.end(8_250_000, 100), Some((3.25, 3.0)));
        assert_eq!(timeframes.end(9_250_000, 100), Some((1.0, 1.0)));
        assert_eq!(timeframes.end(u64::MAX, 0), None);
        assert!(timeframes.is_due(u64::MAX));
    }
}
