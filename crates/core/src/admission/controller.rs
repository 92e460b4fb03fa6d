//! The controller: it selects the best setting from the results of shadow caches in each timeframe.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section V.B, equations 1 and 11 to 13.
//!
//! Departures from the paper:
//! - Timeframes may have different lengths (one with too few samples is extended), so `w` is counted per second. After
//!   k timeframes at once, the old `w'` is weighted by `alpha`^k.
//! - `L` / `T`, latency over lifetime as in the paper, is one of several objectives. A write budget of the cache is
//!   optional; candidates that exceed it are excluded like those that exceed the target latency.

use super::shadow::Estimate;
use crate::tiers::{Array, Traffic, Wear, YEAR_SECONDS, latency_over_lifetime};

pub use crate::decision::{Choice, Prediction};

/// The figure to optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The lowest latency over lifetime.
    LatencyOverLifetime,
    /// The lowest latency.
    Latency,
    /// The longest lifetime.
    Lifetime,
    /// The most hits.
    HitRatio,
}

impl Objective {
    /// The names of the objectives.
    pub const NAMES: [&'static str; 4] = ["latency-over-lifetime", "latency", "lifetime", "hit-ratio"];

    /// Returns the objective with this name. Panics if there is none.
    pub fn named(name: &str) -> Objective {
        let objectives = [Objective::LatencyOverLifetime, Objective::Latency, Objective::Lifetime, Objective::HitRatio];
        let at =
            Objective::NAMES.iter().position(|known| *known == name).expect("an option's value is one of its words");
        objectives[at]
    }
}

/// The objective, constraints and smoothing of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// The figure to optimise.
    pub objective: Objective,
    /// `L_max`: the maximum latency of a candidate.
    pub latency_us_max: f64,
    /// Maximum full writes of the cache per day, without write amplification.
    pub writes_per_day_max: f64,
    /// Minimum hits of a candidate, as a share of the most hits of any candidate. Without it latency over lifetime
    /// would favour a cache that admits and wears nothing. 0 excludes no candidate.
    pub hits_min: f64,
    /// The smoothing factor.
    pub alpha: f64,
}

/// Returns the figures of a cache that is written `cache_writes` times per cell and second.
fn figures(array: &Array, latency_us: f64, lifetime_years: f64, hit_ratio: f64, cache_writes: f64) -> Prediction {
    Prediction {
        latency_us,
        lifetime_years,
        latency_over_lifetime: latency_over_lifetime(latency_us, lifetime_years),
        hit_ratio,
        writes_per_day: cache_writes / array.cache.write_amplification * 86_400.0,
    }
}

/// The wear of a candidate so far.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// `w'_c`, `w'_s`; `None` before the first timeframe.
    smoothed: Option<(f64, f64)>,
    /// Writes per cell up to the previous timeframe: the sums of equation 13.
    cache_writes: f64,
    storage_writes: f64,
}

/// Time to look ahead, as a multiple of the candidates' past; a short past has a given minimum.
const AHEAD: f64 = 2.0;

/// The decaying history of a cache. It sums accesses, so a busy time counts more than an idle one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    traffic: Traffic,
    /// Hits, in bytes like the traffic.
    hits: f64,
    seconds: f64,
}

impl Past {
    /// Adds the results of `seconds`; the earlier history has the weight `old`.
    pub fn add(&mut self, estimate: &Estimate, seconds: f64, old: f64) {
        let Estimate { traffic, hit_ratio } = estimate;
        *self = Past {
            traffic: self.traffic.scaled(old).plus(traffic),
            hits: old * self.hits + hit_ratio * traffic.client(),
            seconds: old * self.seconds + seconds,
        };
    }

    /// Returns this history followed by `other`, repeated `times` times.
    pub fn then(&self, other: &Past, times: f64) -> Past {
        Past {
            traffic: self.traffic.plus(&other.traffic.scaled(times)),
            hits: self.hits + times * other.hits,
            seconds: self.seconds + times * other.seconds,
        }
    }
}

/// Compares candidates, timeframe by timeframe.
#[derive(Clone, Debug)]
pub struct Controller {
    array: Array,
    aim: Aim,
    candidates: Vec<Candidate>,
    figures: Vec<Prediction>,
    /// The costs to minimise, according to the objective.
    costs: Vec<f64>,
}

impl Controller {
    /// Creates a controller of this many `candidates` for a cache in `array`.
    pub fn new(array: Array, aim: Aim, candidates: usize) -> Self {
        assert!(candidates > 0 && (0.0..1.0).contains(&aim.alpha), "{candidates} candidates, {aim:?}");
        let (figures, costs) = (vec![Prediction::default(); candidates], vec![0.0; candidates]);
        Controller { array, aim, candidates: vec![Candidate::default(); candidates], figures, costs }
    }

    /// Returns the aim of the controller.
    pub fn aim(&self) -> &Aim {
        &self.aim
    }

    /// Returns the array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns the figures of the candidates in the last timeframe.
    pub fn figures(&self) -> &[Prediction] {
        &self.figures
    }

    /// Adds the results of the candidates in `seconds`, which span this many `timeframes`.
    pub fn weigh(&mut self, estimates: &[Estimate], seconds: f64, timeframes: f64) {
        assert_eq!(estimates.len(), self.candidates.len());
        for (number, estimate) in estimates.iter().enumerate() {
            self.figures[number] = self.figures_of(number, estimate, seconds, timeframes);
            self.costs[number] = self.cost(&self.figures[number]);
        }
    }

    /// Compares candidates by their histories. The cache's own history `own` is extended as if the cache continued like
    /// each candidate, for twice as long and at least `ahead_seconds_min`. The reason: latency times wear of a mixture
    /// of two policies can be worse than that of both, and a short past should decide little.
    pub fn compare(&mut self, own: &Past, pasts: &[Past], ahead_seconds_min: f64) {
        assert_eq!(pasts.len(), self.candidates.len());
        for (number, past) in pasts.iter().enumerate() {
            let times = AHEAD.max(ahead_seconds_min / past.seconds);
            self.figures[number] = self.figures_of_past(past);
            self.costs[number] = self.cost(&self.figures_of_past(&own.then(past, times)));
        }
    }

    fn figures_of_past(&self, past: &Past) -> Prediction {
        let Past { traffic, hits, seconds } = past;
        let wear = self.array.wear(traffic, *seconds);
        let (latency_us, lifetime_years) = (self.array.latency_mean_us(traffic), wear.lifetime_years());
        figures(&self.array, latency_us, lifetime_years, hits / traffic.client(), wear.cache_writes)
    }

    /// Chooses a candidate. The cache is expected to be slower than the figures by `excess_us`.
    pub fn choose(&self, excess_us: f64) -> Choice {
        let latency_us_max = self.aim.latency_us_max;
        let careful = self.best(latency_us_max - excess_us);
        if careful.meets_latency {
            return careful;
        }
        Choice { meets_latency: self.figures[careful.candidate].latency_us <= latency_us_max, ..careful }
    }

    /// Applies equations 11 to 13 to one candidate.
    fn figures_of(&mut self, number: usize, estimate: &Estimate, seconds: f64, timeframes: f64) -> Prediction {
        let Array { cache, storage } = &self.array;
        let candidate = &mut self.candidates[number];
        let Wear { cache_writes: w_c, storage_writes: w_s, .. } = self.array.wear(&estimate.traffic, seconds);
        let old = self.aim.alpha.powf(timeframes);
        let latency_us = self.array.latency_mean_us(&estimate.traffic);
        let (before_c, before_s) = candidate.smoothed.unwrap_or((w_c, w_s));
        let (smooth_c, smooth_s) = (old * before_c + (1.0 - old) * w_c, old * before_s + (1.0 - old) * w_s);
        let left = |endurance: f64, writes: f64| (endurance - writes).max(0.0);
        let left_c = left(cache.device.endurance_cycles, candidate.cache_writes);
        let left_s = left(storage.device.endurance_cycles, candidate.storage_writes);
        candidate.smoothed = Some((smooth_c, smooth_s));
        candidate.cache_writes += w_c * seconds;
        candidate.storage_writes += w_s * seconds;
        // Without writes the lifetime is infinite, even with no endurance left: this avoids 0 / 0.
        let lasts = |left: f64, rate: f64| if rate > 0.0 { left / rate / YEAR_SECONDS } else { f64::INFINITY };
        let lifetime_years = lasts(left_c, smooth_c).min(lasts(left_s, smooth_s));
        figures(&self.array, latency_us, lifetime_years, estimate.hit_ratio, smooth_c)
    }

    /// True if writes to the cache are limited.
    pub fn has_budget(&self) -> bool {
        self.aim.writes_per_day_max.is_finite()
    }

    /// Returns the candidate with the lowest latency in the last timeframe, among those within the budget if there are
    /// any.
    pub fn fastest(&self) -> usize {
        let all = || self.with_hits();
        let in_budget = |number: &usize| self.figures[*number].writes_per_day <= self.aim.writes_per_day_max;
        let any = all().any(|number| in_budget(&number));
        least(all().filter(|number| !any || in_budget(number)), |number| self.figures[*number].latency_us)
    }

    /// True if the candidate `current` is about as good as `choice`. It must meet the constraints, and its cost must
    /// exceed the chosen one by at most a `share` of the distance to the worst.
    pub fn is_near(&self, current: usize, choice: Choice, share: f64) -> bool {
        let figures = &self.figures[current];
        if !self.has_hits(current) {
            return false;
        }
        if !choice.meets_latency || !choice.meets_budget {
            return false;
        }
        let worst = self.costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let best = self.costs[choice.candidate];
        let keeps =
            figures.latency_us <= self.aim.latency_us_max && figures.writes_per_day <= self.aim.writes_per_day_max;
        keeps && self.costs[current] - best <= share * (worst - best)
    }

    /// Returns the cost to minimise, according to the objective.
    fn cost(&self, figures: &Prediction) -> f64 {
        match self.aim.objective {
            Objective::LatencyOverLifetime => figures.latency_over_lifetime,
            Objective::Latency => figures.latency_us,
            Objective::Lifetime => 1.0 / figures.lifetime_years,
            Objective::HitRatio => -figures.hit_ratio,
        }
    }

    /// True if a candidate has enough hits.
    fn has_hits(&self, number: usize) -> bool {
        let most = self.figures.iter().map(|figures| figures.hit_ratio).fold(0.0, f64::max);
        // A ratio of no accesses is not a number, and passes.
        let too_few = self.figures[number].hit_ratio < self.aim.hits_min * most;
        !too_few
    }

    /// Returns the candidates with enough hits; the one with the most is among them.
    fn with_hits(&self) -> impl Iterator<Item = usize> {
        (0..self.candidates.len()).filter(|&number| self.has_hits(number))
    }

    fn best(&self, latency_us_max: f64) -> Choice {
        let all = || self.with_hits();
        let latency = |&number: &usize| self.figures[number].latency_us;
        let in_budget: Vec<_> =
            all().filter(|&number| self.figures[number].writes_per_day <= self.aim.writes_per_day_max).collect();
        if in_budget.is_empty() {
            let candidate = least(all(), |number| self.figures[*number].writes_per_day);
            let meets_latency = latency(&candidate) <= latency_us_max;
            return Choice { candidate, meets_latency, meets_budget: false };
        }
        let fast = in_budget.iter().copied().filter(|number| latency(number) <= latency_us_max);
        let fast: Vec<_> = fast.collect();
        if fast.is_empty() {
            let candidate = least(in_budget.into_iter(), latency);
            return Choice { candidate, meets_latency: false, meets_budget: true };
        }
        // Among equal costs, for instance without writes, the fastest.
        let cost = |number: &usize| (self.costs[*number], latency(number));
        let candidate = fast.into_iter().min_by(|a, b| {
            let ((cost_a, latency_a), (cost_b, latency_b)) = (cost(a), cost(b));
            cost_a.total_cmp(&cost_b).then(latency_a.total_cmp(&latency_b))
        });
        Choice { candidate: candidate.expect("one candidate is fast enough"), meets_latency: true, meets_budget: true }
    }
}

fn least(numbers: impl Iterator<Item = usize>, figure: impl Fn(&usize) -> f64) -> usize {
    numbers.min_by(|a, b| figure(a).total_cmp(&figure(b))).expect("there is a candidate")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Device, Tier, Traffic};

    /// A cache of 1,000 bytes with 1,000 write cycles, storage of 1,000 bytes with 100.
    fn array() -> Array {
        let tier = |endurance_cycles, read_latency_us, write_latency_us| Tier {
            device: Device { capacity_bytes: 1000.0, endurance_cycles, read_latency_us, write_latency_us },
            devices: 1.0,
            write_amplification: 1.0,
        };
        Array { cache: tier(1000.0, 10.0, 20.0), storage: tier(100.0, 100.0, 200.0) }
    }

    fn aim(objective: Objective) -> Aim {
        Aim { objective, latency_us_max: 1e9, writes_per_day_max: f64::INFINITY, hits_min: 0.0, alpha: 0.8 }
    }

    /// Returns an estimate with `read_hits` of 100 bytes read, and these writes.
    fn estimate(read_hits: f64, cache_written: f64, storage_written: f64) -> Estimate {
        let read_misses = 100.0 - read_hits;
        let traffic = Traffic { read_hits, read_misses, cache_written, storage_written, ..Traffic::default() };
        Estimate { traffic, hit_ratio: read_hits / 100.0 }
    }

    fn choose(controller: &mut Controller, estimates: &[Estimate], excess_us: f64) -> Choice {
        controller.weigh(estimates, 1.0, 1.0);
        controller.choose(excess_us)
    }

    fn years(seconds: f64) -> f64 {
        seconds / YEAR_SECONDS
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "found {found}, expected {expected}");
    }

    /// Two timeframes of 10 s: the cache is written 0.1 times a second, then 0.2 times, the storage 0.002 times in
    /// both.
    ///
    ///     s = 1:  w'_c = 0.1,                           l'_c = 1000:      10,000 s;   storage 100 / 0.002 = 50,000 s
    ///     s = 2:  w'_c = 0.8 * 0.1 + 0.2 * 0.2 = 0.12,  l'_c = 1000 - 1:  8,325 s;    storage 99.98 / 0.002 = 49,990 s
    ///
    /// Half of the reads hit: L = (10 + 100) / 2.
    #[test]
    fn lifetime_is_the_remaining_endurance_over_the_smoothed_rate() {
        let mut controller = Controller::new(array(), aim(Objective::LatencyOverLifetime), 1);
        controller.weigh(&[estimate(50.0, 1000.0, 20.0)], 10.0, 1.0);
        near(controller.figures()[0].lifetime_years, years(10_000.0));
        near(controller.figures()[0].latency_us, 55.0);
        controller.weigh(&[estimate(50.0, 2000.0, 20.0)], 10.0, 1.0);
        near(controller.figures()[0].lifetime_years, years(8_325.0));
        near(controller.figures()[0].latency_over_lifetime, 55.0 / years(8_325.0));
        near(controller.figures()[0].writes_per_day, 0.12 * 86_400.0);
        // Three timeframes at once without writes: 0.8^3 of the rates is left, and 3 of 1000 cycles are used.
        controller.weigh(&[estimate(50.0, 0.0, 0.0)], 30.0, 3.0);
        near(controller.figures()[0].lifetime_years, years(997.0 / (0.12 * 0.512)));
    }

    #[test]
    fn each_objective_has_its_own_best() {
        // Latencies 19, 55 and 91 us; lifetimes 100, 1,000 and 50,000 s by the cache.
        let candidates = [estimate(90.0, 10_000.0, 0.0), estimate(50.0, 1000.0, 0.0), estimate(10.0, 20.0, 0.0)];
        let choose = |aim| choose(&mut Controller::new(array(), aim, 3), &candidates, 0.0);
        let best = |objective| choose(aim(objective)).candidate;
        assert_eq!([Objective::Latency, Objective::HitRatio].map(best), [0, 0]);
        assert_eq!([Objective::Lifetime, Objective::LatencyOverLifetime].map(best), [2, 2]);
        let met = |candidate| Choice { candidate, meets_latency: true, meets_budget: true };
        assert_eq!(choose(Aim { latency_us_max: 60.0, ..aim(Objective::LatencyOverLifetime) }), met(1));
        // 2 writes a second, which only the first exceeds.
        assert_eq!(choose(Aim { writes_per_day_max: 2.0 * 86_400.0, ..aim(Objective::HitRatio) }), met(1));
    }

    #[test]
    fn without_a_valid_candidate_the_fastest_or_most_sparing_is_taken() {
        let candidates = [estimate(50.0, 1000.0, 0.0), estimate(90.0, 10_000.0, 0.0), estimate(10.0, 20.0, 0.0)];
        let choose = |latency_us_max, writes_per_day_max, excess_us| {
            let aim = Aim { latency_us_max, writes_per_day_max, ..aim(Objective::LatencyOverLifetime) };
            choose(&mut Controller::new(array(), aim, 3), &candidates, excess_us)
        };
        assert_eq!(choose(1.0, f64::INFINITY, 0.0), Choice { candidate: 1, meets_latency: false, meets_budget: true });
        assert_eq!(choose(1.0, 86_400.0, 0.0), Choice { candidate: 0, meets_latency: false, meets_budget: true });
        assert_eq!(choose(1e9, 1.0, 0.0), Choice { candidate: 2, meets_latency: true, meets_budget: false });
        // 55 us and 19 us: with 10 us more the first is too slow. With 50 us more the second is too, but not without
        // the excess.
        let met = |candidate| Choice { candidate, meets_latency: true, meets_budget: true };
        assert_eq!([0.0, 10.0, 50.0].map(|excess_us| choose(60.0, f64::INFINITY, excess_us)), [met(0), met(1), met(1)]);
    }

    /// 10, 50 and 90 of 100 reads hit: by hits the second is half way from the best to the worst.
    #[test]
    fn a_candidate_is_near_by_its_share_of_the_way_to_the_worst_unless_it_misses_the_target() {
        let near = |latency_us_max, share| {
            let aim = Aim { latency_us_max, ..aim(Objective::HitRatio) };
            let mut controller = Controller::new(array(), aim, 3);
            let choice = choose(&mut controller, &[10.0, 50.0, 90.0].map(|hits| estimate(hits, 1.0, 1.0)), 0.0);
            assert_eq!(choice.candidate, 2);
            [0, 1, 2].map(|current| controller.is_near(current, choice, share))
        };
        assert_eq!(
            [0.4, 0.6, 1.0].map(|share| near(1e9, share)),
            [[false, false, true], [false, true, true], [true, true, true]]
        );
        // 91, 55 and 19 us.
        assert_eq!([60.0, 20.0].map(|target| near(target, 1.0)), [[false, true, true], [false, false, true]]);
    }

    /// Ten reads in the first second with 50 % hits, and 1,000 in the next with 90 %. That is 905 of 1,010, or with the
    /// weights 0.5 and 1, 902.5 of 1,005. 100.5 bytes were written in 1.5 s to 1,000 bytes of cells.
    #[test]
    fn a_busy_time_counts_more_in_the_past_and_one_long_ago_less() {
        let mut controller = Controller::new(array(), aim(Objective::HitRatio), 1);
        let mut past = Past::default();
        for (reads, hit_ratio) in [(10.0, 0.5), (1000.0, 0.9)] {
            let (read_hits, cache_written) = (hit_ratio * reads, reads / 10.0);
            let traffic = Traffic { read_hits, read_misses: reads - read_hits, cache_written, ..Traffic::default() };
            past.add(&Estimate { traffic, hit_ratio }, 1.0, 0.5);
        }
        controller.compare(&Past::default(), &[past], 0.0);
        let figures = controller.figures()[0];
        near(figures.hit_ratio, 902.5 / 1005.0);
        near(figures.latency_us, (902.5 * 10.0 + 102.5 * 100.0) / 1005.0);
        near(figures.writes_per_day, 100.5 / 1000.0 / 1.5 * 86_400.0);
    }

    /// One candidate takes 19 us and writes 1,000 bytes a second, the other 91 us and 200 bytes: 19,000 and 18,200 are
    /// about the same. One third of the first and two of the second take 67 us and write 467 bytes. Two thirds of the
    /// first and one of the second take 43 us and write 733 bytes. These are 31,000 and more. Extended a thousand times
    /// as long, the past hardly counts: the second is best with any history.
    #[test]
    fn past_figures_of_the_cache_count_too() {
        let past = |read_hits, cache_written| {
            let mut past = Past::default();
            past.add(&estimate(read_hits, cache_written, 0.0), 1.0, 1.0);
            past
        };
        let pasts = [past(90.0, 1000.0), past(10.0, 200.0)];
        let best_after = |ahead_seconds_min: f64| {
            [Past::default(), pasts[0], pasts[1]].map(|own| {
                let mut controller = Controller::new(array(), aim(Objective::LatencyOverLifetime), 2);
                controller.compare(&own, &pasts, ahead_seconds_min);
                controller.choose(0.0).candidate
            })
        };
        assert_eq!([0.0, 2.0, 1000.0].map(best_after), [[1, 0, 1], [1, 0, 1], [1, 1, 1]]);
    }

    /// One candidate hits 30 % of the reads and writes 1,000 bytes per second, the other hits 0.1 % and writes 2. They
    /// take 73 us for 1,000 s and 99.9 us for 500,000 s. A cache that is hardly used wears least, but is useless.
    #[test]
    fn a_cache_that_hardly_hits_does_not_win_where_hits_are_asked_for() {
        let candidates = [estimate(30.0, 1000.0, 0.0), estimate(0.1, 2.0, 0.0)];
        let best_of = |hits_min| {
            let aim = Aim { hits_min, ..aim(Objective::LatencyOverLifetime) };
            let mut controller = Controller::new(array(), aim, 2);
            let choice = choose(&mut controller, &candidates, 0.0);
            assert!(controller.is_near(choice.candidate, choice, 1.0));
            (choice.candidate, controller.is_near(1, choice, 1.0))
        };
        assert_eq!([0.0, 0.003, 0.5, 1.0].map(best_of), [(1, true), (1, true), (0, false), (0, false)]);
        // If nothing hits, none is excluded.
        let mut idle = Controller::new(array(), Aim { hits_min: 1.0, ..aim(Objective::Latency) }, 2);
        assert_eq!(choose(&mut idle, &[estimate(0.0, 0.0, 0.0), estimate(0.0, 0.0, 0.0)], 0.0).candidate, 0);
    }

    #[test]
    fn worn_out_devices_cost_most_and_idle_ones_nothing() {
        let mut controller = Controller::new(array(), aim(Objective::LatencyOverLifetime), 2);
        // 1,000 writes of each cell in the first timeframe: no endurance is left in the second.
        for _ in 0..2 {
            controller.weigh(&[estimate(90.0, 1e6, 0.0), estimate(10.0, 10.0, 0.0)], 1.0, 1.0);
        }
        assert_eq!(controller.figures()[0].lifetime_years, 0.0);
        assert_eq!(controller.choose(0.0).candidate, 1);
        let mut idle = Controller::new(array(), aim(Objective::Lifetime), 2);
        let choice = choose(&mut idle, &[estimate(10.0, 0.0, 0.0), estimate(90.0, 0.0, 0.0)], 0.0);
        assert_eq!((choice.candidate, idle.figures()[1].lifetime_years), (1, f64::INFINITY));
    }
}
