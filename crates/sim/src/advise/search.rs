//! The search. Purchases are tried by price; estimates order the settings of each, and the most promising ones run
//! exactly.

use std::collections::HashMap;
use std::sync::Arc;

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::tiers::{YEAR_DAYS, YEAR_SECONDS};
use flashwise_device::TierModel;
use flashwise_device::offers::Offer;
use flashwise_trace::Trace;

use super::cache::{AdvisedCache, Purchase, Way};
use super::estimate::Estimate;
use super::{AdviseError, Question, Stages, Targets, Traffic, Workload};
use crate::array::{ArrayFigures, Arrivals};
use crate::endurance::days;
use crate::job::{Job, Runs, SampleBy, Written};
use crate::results::ResultRow;

/// Settings of one purchase that run exactly before the next purchase is tried.
const RUNS_OF_PURCHASE: usize = 8;
/// Runs in parallel.
const RUNS_AT_ONCE: usize = 4;
/// Caches of the whole catalogue that run if the first purchase is too slow.
const PROBES: usize = 4;
/// A cache is far too slow, or overloaded, if it exceeds the latency or the load by more than this factor.
const HOPELESS: f64 = 1.5;
/// Requests one after the other, for a trace without times.
pub(super) const ONE_BY_ONE: Arrivals = Arrivals::Closed { depth: 1 };

/// A purchase with its settings, and its estimates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    pub purchase: usize,
    pub way: usize,
    pub latency_us: f64,
    pub years: Option<f64>,
    /// Estimated factor by which it misses the targets.
    pub missed_by: f64,
    pub may_meet: bool,
    /// Its least possible cost.
    pub least_cost: f64,
}

/// A cache that ran.
#[derive(Clone, Debug)]
pub(super) struct RanCache {
    pub purchase: usize,
    pub way: usize,
    pub cache: AdvisedCache,
    pub traffic: Traffic,
}

impl RanCache {
    pub fn meets(&self) -> bool {
        self.cache.meets == 1
    }
}

/// A search in progress.
pub(super) struct Search<'a> {
    pub workload: &'a Workload,
    pub question: &'a Question<'a>,
    stages: &'a dyn Stages,
    pub purchases: Vec<Purchase<'a>>,
    pub ways: Vec<Way>,
    /// The common part of all jobs.
    pub base: Job,
    /// Days that the counted accesses take, if the trace has times.
    pub days: Option<f64>,
    estimates: HashMap<String, Estimate>,
    pub guesses: Vec<Guess>,
    pub found: Vec<RanCache>,
    /// Number of counted requests.
    requests: u64,
    /// True once the fastest caches of the catalogue ran.
    probed: bool,
    /// The largest purchases with the settings for which they are far too slow, once they ran.
    too_slow: Option<Vec<(usize, usize)>>,
    /// Ratio of a request's latency to that of a block access, if the storage answers everything and nothing waits.
    pub request_factor: f64,
}

impl<'a> Search<'a> {
    pub fn new(
        workload: &'a Workload,
        question: &'a Question<'a>,
        stages: &'a dyn Stages,
    ) -> Result<Search<'a>, AdviseError> {
        let Question { catalogue, targets, ways, warmup, .. } = question;
        let trace = workload.trace();
        let (skipped, accesses) = (warmup.accesses(trace.len()), trace.len());
        if skipped >= accesses as u64 {
            let (trace, warmup) = (trace.name().to_owned(), skipped);
            return Err(crate::job::JobError::Warmup { trace, warmup, accesses }.into());
        }
        let waits_cost = catalogue.waiting_price_per_hour > 0.0;
        if targets.latency_us.is_none() && !waits_cost {
            return Err(AdviseError::NoTarget);
        }
        if targets.years == 0.0 && waits_cost {
            return Err(AdviseError::NoYears);
        }
        let days = days(trace, skipped);
        if days.is_none() && (targets.years > 0.0 || waits_cost) {
            let refusal = trace.rates_refused().unwrap_or_else(|| "no time passes in it".to_owned());
            return Err(AdviseError::NoTimes { trace: trace.name().to_owned(), refusal });
        }
        let gib = f64::from(1 << 30);
        let of_offer = |offer: &'a Offer| {
            let purchase = move |&ram_bytes: &u64| Purchase {
                offer,
                ram_bytes,
                price: offer.price + ram_bytes as f64 / gib * catalogue.ram_price_per_gib,
            };
            catalogue.ram_bytes.iter().map(purchase)
        };
        let mut purchases: Vec<Purchase<'a>> = catalogue.offers.iter().flat_map(of_offer).collect();
        purchases.sort_by(|one, other| one.price.total_cmp(&other.price));
        purchases.iter().try_for_each(Purchase::check)?;
        let mut all = Vec::new();
        for policy in &ways.policies {
            for admission in &ways.admissions {
                for &mode in &ways.modes {
                    for &over_provision in &ways.over_provisions {
                        let order = if mode == "write-back" { question.order } else { WriteBackOrder::None };
                        let (policy, admission) = (policy.clone(), admission.clone());
                        all.push(Way { policy, admission, mode, order, over_provision });
                    }
                }
            }
        }
        let storage = Written { text: catalogue.storage.to_string(), value: catalogue.storage };
        let sample = workload.sample.as_ref().map(|(share, _)| *share);
        let at_times: Arrivals = "trace".parse().expect("it is a word for arrivals");
        let arrivals = match days.is_some() && at_times.check(trace).is_ok() {
            true => at_times,
            false => ONE_BY_ONE,
        };
        let base = Job {
            arrivals: Some(arrivals),
            warmup: Some(*warmup),
            storage_device: Some(storage),
            sample,
            sample_by: sample.map(|_| SampleBy::Groups),
            ..Job::default()
        };
        Ok(Search {
            workload,
            question,
            stages,
            purchases,
            ways: all,
            base,
            days,
            estimates: HashMap::new(),
            guesses: Vec::new(),
            found: Vec::new(),
            requests: requests(trace, skipped),
            probed: false,
            too_slow: None,
            request_factor: 1.0,
        })
    }

    /// Returns the work of the cache and of the storage, per time. Requests one after the other are no load.
    pub fn utilisations(&self, array: &ArrayFigures) -> [Option<f64>; 2] {
        match self.base.arrivals {
            Some(ONE_BY_ONE) => [None; 2],
            _ => [array.cache_utilisation, array.storage_utilisation],
        }
    }

    /// Returns the work of the busiest device, per time. Above 1 it cannot keep up.
    pub fn utilisation(&self, array: &ArrayFigures) -> f64 {
        self.utilisations(array).into_iter().flatten().fold(0.0, f64::max)
    }

    /// Returns the factor by which a cache misses the targets, or overloads its devices: at most 1 if it meets them.
    pub fn missed_by(&self, latency_us: f64, years: Option<f64>, utilisation: f64) -> f64 {
        self.targets().missed_by(latency_us, years).max(utilisation)
    }

    pub fn targets(&self) -> &Targets {
        &self.question.targets
    }

    /// Returns the cheapest cache that meets the targets, and the fastest among equally cheap ones.
    pub fn run(&mut self) -> Result<Option<usize>, AdviseError> {
        for purchase in 0..self.purchases.len() {
            if self.question.exhaustive {
                let all: Vec<_> = (0..self.ways.len()).map(|way| (purchase, way)).collect();
                self.run_exactly(&all)?;
                continue;
            }
            let least = self.best().map(|best| self.found[best].cache.cost);
            if least.is_some_and(|least| self.purchases[purchase].price >= least) {
                break;
            }
            let before = self.found.len();
            self.look_at(purchase)?;
            let is_slow = before < self.found.len() && (before..self.found.len()).all(|at| self.is_slow(at));
            if is_slow && !self.probed {
                self.probed = true;
                self.probe()?;
                if self.best().is_none() && (0..self.found.len()).all(|at| self.is_slow(at)) {
                    if self.found.iter().all(|found| busiest(&found.cache) > HOPELESS) {
                        break;
                    }
                    self.run_largest()?;
                }
            }
        }
        if self.best().is_none() {
            self.probe()?;
        }
        Ok(self.best())
    }

    /// True if a cache that ran is far too slow, or its devices cannot keep up.
    fn is_slow(&self, at: usize) -> bool {
        let cache = &self.found[at].cache;
        self.missed_by(cache.latency_mean_us, None, busiest(cache)) > HOPELESS
    }

    /// Runs the caches of the whole catalogue with the lowest estimated latency.
    fn probe(&mut self) -> Result<(), AdviseError> {
        let mut guesses = Vec::new();
        for purchase in 0..self.purchases.len() {
            guesses.extend(self.estimate(purchase)?);
        }
        guesses.sort_by(|one, other| one.latency_us.total_cmp(&other.latency_us));
        let lasts = |guess: &&Guess| guess.years.is_none_or(|years| years >= self.targets().years);
        let fastest = guesses.iter().take(PROBES).chain(guesses.iter().filter(lasts).take(PROBES));
        let mut caches: Vec<_> = fastest.map(|guess| (guess.purchase, guess.way)).collect();
        caches.sort_unstable();
        caches.dedup();
        self.run_exactly(&caches)
    }

    /// Runs the largest purchase of each device with all settings that may meet the targets. Settings that are far too
    /// slow there are too slow in smaller purchases.
    fn run_largest(&mut self) -> Result<(), AdviseError> {
        let mut too_slow = Vec::new();
        let all = 0..self.purchases.len();
        let largest: Vec<usize> = all.filter(|&purchase| self.largest(purchase) == purchase).collect();
        for purchase in largest {
            let guesses = self.estimate(purchase)?;
            let caches: Vec<_> =
                guesses.iter().filter(|guess| guess.may_meet).map(|guess| (purchase, guess.way)).collect();
            self.run_exactly(&caches)?;
            let slow = (0..self.found.len()).filter(|&at| self.found[at].purchase == purchase && self.is_slow(at));
            too_slow.extend(slow.map(|at| (purchase, self.found[at].way)));
        }
        self.too_slow = Some(too_slow);
        Ok(())
    }

    /// Returns the purchase of the same device, in the same number, with the most flash and the most RAM.
    fn largest(&self, purchase: usize) -> usize {
        let kind = |purchase: usize| {
            let TierModel { tier, service } = self.purchases[purchase].offer.model;
            (tier.devices, tier.device.read_latency_us, tier.device.write_latency_us, service)
        };
        let same = (0..self.purchases.len()).filter(|&other| kind(other) == kind(purchase));
        let size = |other: &usize| (self.purchases[*other].offer.capacity_bytes(), self.purchases[*other].ram_bytes);
        same.max_by_key(size).unwrap_or(purchase)
    }

    /// Runs the settings of a purchase that may be better than the best so far, in batches.
    fn look_at(&mut self, purchase: usize) -> Result<(), AdviseError> {
        let mut guesses = self.estimate(purchase)?;
        guesses.retain(|guess| guess.may_meet);
        let mut runs = RUNS_OF_PURCHASE;
        if let Some(too_slow) = &self.too_slow {
            let largest = self.largest(purchase);
            guesses.retain(|guess| !too_slow.contains(&(largest, guess.way)));
            runs = guesses.len().next_multiple_of(RUNS_AT_ONCE);
        }
        guesses.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
        for some in guesses.chunks(RUNS_AT_ONCE).take(runs / RUNS_AT_ONCE) {
            let least = self.best().map_or(f64::INFINITY, |best| self.found[best].cache.cost);
            let better = some.iter().filter(|guess| guess.least_cost < least).map(|guess| (purchase, guess.way));
            let better: Vec<_> = better.collect();
            self.run_exactly(&better)?;
            if self.best().is_some_and(|best| self.found[best].purchase == purchase) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the cheapest cache that ran and meets the targets. If several are equal, it is the fastest, then the
    /// longest-lived.
    pub fn best(&self) -> Option<usize> {
        let key = |at: usize| {
            let cache = &self.found[at].cache;
            (cache.cost, cache.latency_mean_us, -cache.cache_lifetime_years.unwrap_or(0.0))
        };
        let meet = (0..self.found.len()).filter(|&at| self.found[at].meets());
        meet.min_by(|&one, &other| key(one).partial_cmp(&key(other)).expect("figures are numbers"))
    }

    /// Estimates all settings of a purchase.
    pub fn estimate(&mut self, purchase: usize) -> Result<Vec<Guess>, AdviseError> {
        if self.guesses.iter().any(|guess| guess.purchase == purchase) {
            return Ok(self.guesses.iter().filter(|guess| guess.purchase == purchase).copied().collect());
        }
        let bought = &self.purchases[purchase];
        let touched = self.workload.touched_bytes();
        let jobs: Vec<Job> =
            self.ways.iter().map(|way| bought.estimating_job(way, &self.base, touched)).collect::<Result<_, _>>()?;
        let names: Vec<String> = jobs.iter().map(Job::to_string).collect();
        let mut missing: Vec<Job> = Vec::new();
        for (job, name) in jobs.into_iter().zip(&names) {
            if !self.estimates.contains_key(name) && !missing.contains(&job) {
                missing.push(job);
            }
        }
        let what = format!("estimating {}", bought.offer.name);
        let rows = self.rows(&missing, what, true)?;
        for (job, row) in missing.iter().zip(&rows) {
            self.estimates.insert(job.to_string(), Estimate::of(row));
        }
        let guesses: Vec<Guess> =
            names.iter().enumerate().map(|(way, name)| self.guess(purchase, way, &self.estimates[name])).collect();
        self.guesses.extend(&guesses);
        Ok(guesses)
    }

    fn guess(&self, purchase: usize, way: usize, estimate: &Estimate) -> Guess {
        let (bought, mode) = (&self.purchases[purchase], self.ways[way].mode);
        let (cache, storage) = (&bought.offer.model.tier.device, &self.question.catalogue.storage.tier.device);
        let latency_us = self.request_factor * estimate.latency_us(mode, cache, storage);
        let shortest_us = self.request_factor * estimate.shortest_us(mode, cache, storage);
        let years = self.years(bought.offer, estimate.flash_bytes(mode));
        let targets = self.targets();
        let latency_missed = targets.missed_by(latency_us, None);
        let years_missed = years.map_or(0.0, |years| targets.years / years);
        let slowest = self.request_factor * storage.read_latency_us.max(storage.write_latency_us);
        let storage_share = targets.latency_us.map_or(0.0, |most| slowest / most);
        Guess {
            purchase,
            way,
            latency_us,
            years,
            missed_by: latency_missed.max(years_missed),
            may_meet: estimate.may_meet(targets.missed_by(shortest_us, None), years_missed, storage_share),
            least_cost: bought.price + self.waiting_cost(estimate.least_latency_us(shortest_us, slowest)),
        }
    }

    /// Returns the lifetime of an offer's flash in years, if this many bytes are written to it in the time of the
    /// trace.
    pub fn years(&self, offer: &Offer, written_bytes: f64) -> Option<f64> {
        let seconds = self.days? * 86_400.0;
        let per_cell = offer.model.tier.writes_per_cell(written_bytes) / seconds;
        Some(offer.model.tier.device.endurance_cycles / per_cell / YEAR_SECONDS)
    }

    /// Returns the cost of the waits of all requests over the requested years.
    pub fn waiting_cost(&self, latency_us: f64) -> f64 {
        let price = self.question.catalogue.waiting_price_per_hour;
        let Some(days) = self.days.filter(|_| price > 0.0) else { return 0.0 };
        let per_year = self.requests as f64 / days * YEAR_DAYS;
        latency_us / 3600e6 * per_year * self.targets().years * price
    }

    /// Runs caches as a server does, unless they have run already.
    pub fn run_exactly(&mut self, caches: &[(usize, usize)]) -> Result<(), AdviseError> {
        let is_new = |&(purchase, way): &(usize, usize)| {
            !self.found.iter().any(|found| (found.purchase, found.way) == (purchase, way))
        };
        let new: Vec<(usize, usize)> = caches.iter().copied().filter(is_new).collect();
        let touched = self.workload.touched_bytes();
        let base = Job { sample: None, sample_by: None, ..self.base.clone() };
        let job = |&(purchase, way): &(usize, usize)| self.purchases[purchase].job(&self.ways[way], &base, touched);
        let jobs: Vec<Job> = new.iter().map(job).collect::<Result<_, _>>()?;
        let what = match &new[..] {
            [] => return Ok(()),
            [(purchase, way)] => format!("{} with {}", self.purchases[*purchase].offer.name, self.ways[*way].policy),
            _ => format!("{} caches", new.len()),
        };
        let rows = self.rows(&jobs, what, false)?;
        for (((purchase, way), job), row) in new.into_iter().zip(&jobs).zip(&rows) {
            let cache = self.figures(purchase, way, job, row);
            self.found.push(RanCache { purchase, way, cache, traffic: Traffic::of(row) });
        }
        Ok(())
    }

    fn figures(&self, purchase: usize, way: usize, job: &Job, row: &ResultRow) -> AdvisedCache {
        let (bought, way) = (&self.purchases[purchase], &self.ways[way]);
        let array = row.array.clone().unwrap_or_default();
        let latency_mean_us = array.latency_mean_us;
        let [cache_utilisation, storage_utilisation] = self.utilisations(&array);
        let written = row.flash_bytes_written as f64;
        let years = self.years(bought.offer, written);
        let waiting_cost = self.waiting_cost(latency_mean_us);
        AdvisedCache {
            device: bought.offer.name.clone(),
            devices: bought.offer.devices(),
            size_bytes: bought.offer.capacity_bytes(),
            ram_bytes: bought.ram_bytes,
            policy: way.policy.to_string(),
            admission: way.admission.to_string(),
            write_mode: way.mode.to_owned(),
            write_back_order: way.order.name().to_owned(),
            over_provision: way.over_provision.of_one(),
            price: bought.price,
            waiting_cost,
            cost: bought.price + waiting_cost,
            latency_mean_us,
            latency_worst_us: array.latency_worst_us,
            latency_worst_after_s: array.latency_worst_after_s,
            latency_worst_seconds: array.latency_worst_seconds,
            storage_utilisation,
            cache_utilisation,
            cache_lifetime_years: years,
            hit_ratio: row.hit_ratio,
            read_hit_ratio: row.read_hit_ratio,
            flash_bytes_per_day: self.days.map(|days| written / days),
            meets: u64::from(self.missed_by(latency_mean_us, years, self.utilisation(&array)) <= 1.0),
            job: job.to_string(),
        }
    }

    /// Returns the rows of jobs, over the sample or over the whole trace.
    pub fn rows(&self, jobs: &[Job], what: String, estimates: bool) -> Result<Vec<ResultRow>, AdviseError> {
        let traces = match &self.workload.sample {
            Some((_, sample)) if estimates => sample,
            _ => &self.workload.trace,
        };
        let runs = Runs::new(traces, Arc::clone(&self.workload.requests), jobs)?;
        let progress = self.stages.begin(what, runs.accesses());
        let rows = runs.run(&*progress)?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }
}

/// Returns the work of the busiest device of a cache that ran, per time.
pub(super) fn busiest(cache: &AdvisedCache) -> f64 {
    cache.storage_utilisation.unwrap_or(0.0).max(cache.cache_utilisation.unwrap_or(0.0))
}

/// Requests of a trace, without those of the first `skipped` accesses.
fn requests(trace: &Trace, skipped: u64) -> u64 {
    let (mut position, mut last, mut requests) = (0, None, 0);
    for columns in trace.batches() {
        for &request in columns.request.iter() {
            requests += u64::from(position >= skipped && last != Some(request));
            last = Some(request);
            position += 1;
        }
    }
    requests
}

/// Returns a key for sorting: estimates that meet the targets first, by latency, then the others by their distance.
fn rank(guess: &Guess) -> f64 {
    if guess.missed_by <= 1.0 { guess.latency_us / (guess.latency_us + 1e12) } else { guess.missed_by }
}
