//! An advice in sentences. The first names the purchase and the resulting waits.

use flashwise_core::human;

use super::alone::RAM_ONLY;
use super::search::busiest;
use super::words::{is_of_ram, latency, money};
use super::{Advice, AdvisedCache, Alternative, OrderCost, Verdict};

/// A cache that makes the storage faster by less than this share is not worth its price.
const GAIN_MIN: f64 = 0.1;
/// The kinds of caches that meet one target if none meets both.
pub(super) const FASTEST: &str = "fastest that lasts";
pub(super) const LONGEST: &str = "longest-lived that is fast";

/// Returns the advice in sentences.
pub(super) fn of(advice: &Advice) -> Vec<String> {
    let words = Words { advice };
    match (advice.verdict, &advice.cache) {
        (Verdict::Buy, Some(cache)) => {
            let first = [words.buy(cache, &name(cache)), words.beside(cache), words.settings(cache)];
            first.into_iter().chain(words.order()).collect()
        }
        (Verdict::RamOnly, Some(cache)) => {
            let flash = advice.alternatives.first().map(|Alternative { cache, .. }| {
                format!("Of caches of flash, {} for {} meets the targets too.", name(cache), words.price(cache))
            });
            let what = format!("{} of RAM and no flash", human::bytes(cache.ram_bytes as f64));
            let words = [words.buy(cache, &what), words.beside(cache), words.settings(cache)];
            words.into_iter().chain(flash).collect()
        }
        (Verdict::NoCache, cache) => words.no_cache(cache.as_ref()),
        (Verdict::AllFlash, cache) => words.all_flash(cache.as_ref()),
        (_, Some(cache)) => words.nothing(cache),
        (_, None) => vec![format!("No cache here meets {}.", advice.targets.words())],
    }
}

/// Describes how far the busiest device of a cache is overloaded, if it is.
pub(super) fn overload(cache: &AdvisedCache) -> Option<String> {
    overload_by(cache, "")
}

/// Describes the same, with words before the number, such as "at least ".
fn overload_by(cache: &AdvisedCache, before: &str) -> Option<String> {
    let busiest = busiest(cache);
    let which = if cache.storage_utilisation == Some(busiest) { "storage" } else { "flash" };
    let times = if busiest < 1.01 {
        "more than".to_owned()
    } else {
        format!("{before}{} times", human::number(floor(busiest)))
    };
    (busiest > 1.0).then(|| format!("the {which} gets {times} the work it can do"))
}

/// Rounds a factor down to two decimals.
fn floor(factor: f64) -> f64 {
    (factor * 100.0).floor() / 100.0
}

struct Words<'a> {
    advice: &'a Advice,
}

impl Words<'_> {
    fn price(&self, cache: &AdvisedCache) -> String {
        money(cache.price, &self.advice.currency)
    }

    fn buy(&self, cache: &AdvisedCache, what: &str) -> String {
        format!("Buy {what} for {}: {}.", self.price(cache), waits(cache))
    }

    /// Returns the waits in the worst interval and without a cache, the lifetime of the flash, and the cost of waits.
    fn beside(&self, cache: &AdvisedCache) -> String {
        let worst = worst(cache)
            .map(|worst| format!("A request waits {worst}; without"))
            .unwrap_or_else(|| "Without".to_owned());
        let uncached = latency(self.advice.no_cache.latency_mean_us);
        let lasts = cache.cache_lifetime_years.filter(|_| cache.device != RAM_ONLY);
        let lasts = lasts.map(|found| format!(", and the flash lasts {}", human::lifetime(found))).unwrap_or_default();
        let waits = match cache.waiting_cost > 0.0 {
            true => {
                let cost = money(cache.cost, &self.advice.currency);
                format!(" With the waits of {} it costs {cost}.", human::lifetime(self.advice.targets.years))
            }
            false => String::new(),
        };
        format!("{worst} a cache it waits {uncached} on average{lasts}.{waits}")
    }

    fn settings(&self, cache: &AdvisedCache) -> String {
        if cache.device == RAM_ONLY {
            return "Give it to the page cache of the storage's host; writes go straight to the storage.".to_owned();
        }
        let behind = if cache.admission == "none" { String::new() } else { format!(" behind {}", cache.admission) };
        let per_day = cache
            .flash_bytes_per_day
            .map(|bytes| format!(", and {} a day are written to flash", human::bytes(bytes)))
            .unwrap_or_default();
        format!(
            "Run {}{behind}, {}, with {} of the flash kept free: {} of the accesses hit{per_day}.",
            cache.policy,
            cache.writes(),
            human::percent(cache.over_provision),
            human::percent(cache.hit_ratio),
        )
    }

    /// Describes the cost of the order of write-back, if there is one.
    fn order(&self) -> impl Iterator<Item = String> {
        self.advice.order_cost.iter().flat_map(OrderCost::sentences)
    }

    fn no_cache(&self, cache: Option<&AdvisedCache>) -> Vec<String> {
        let alone = &self.advice.no_cache;
        let mut sentences =
            vec![format!("Buy no cache: without one, a request waits {} on average.", latency(alone.latency_mean_us))];
        if alone.cost > 0.0 {
            let [cost, dearer] = [alone.cost, cache.map_or(0.0, |cache| cache.cost)];
            let [cost, dearer] = [cost, dearer].map(|cost| money(cost, &self.advice.currency));
            let dearer = cache.map(|cache| format!(", less than the best cache: {} for {dearer}", name(cache)));
            sentences.push(format!("Its waits cost {cost}{}.", dearer.unwrap_or_default()));
        }
        sentences
    }

    fn all_flash(&self, cache: Option<&AdvisedCache>) -> Vec<String> {
        let flash = self.advice.all_flash.as_ref().expect("it is advised");
        let (takes, cost) = (latency(flash.latency_mean_us), money(flash.cost, &self.advice.currency));
        let beside = match cache.filter(|cache| cache.meets == 1) {
            Some(cache) => format!("The best cache costs no less: {} for {}.", name(cache), self.price(cache)),
            None => "No cache here meets the targets.".to_owned(),
        };
        let first =
            format!("Buy no cache but {}: that costs {cost}, and a request waits {takes} on average.", flash.what);
        vec![first, beside]
    }

    /// No cache meets the targets; `cache` is the nearest that ran.
    fn nothing(&self, cache: &AdvisedCache) -> Vec<String> {
        let (targets, advice) = (self.advice.targets.words(), self.advice);
        let targets = if targets.is_empty() { "the load".to_owned() } else { targets };
        let least = advice.runs.iter().min_by(|one, other| busiest(one).total_cmp(&busiest(other)));
        let what = format!("{} for {}", name(cache), self.price(cache));
        let ran = human::counted(advice.runs.len() as u64, "cache");
        let mut sentences = match least.and_then(|least| overload_by(least, "at least ")) {
            Some(overload) => vec![
                format!("No cache here meets {targets} at this load: {overload}."),
                format!("The nearest of {ran} that ran is {what}: {}.", waits(cache)),
            ],
            None => vec![
                format!("No cache here meets {targets}: with {what}, {}.", waits(cache)),
                format!("That is the nearest of {ran} that ran."),
            ],
        };
        sentences.push(self.beside(cache));
        if cache.latency_mean_us > (1.0 - GAIN_MIN) * advice.no_cache.latency_mean_us {
            sentences.push("Buy none: that cache hardly helps.".to_owned());
        } else {
            sentences.push(self.settings(cache));
            sentences.extend(self.order());
        }
        sentences.extend(advice.help.clone());
        sentences.extend(self.relaxed());
        sentences
    }

    /// Returns the targets to relax, and the values that a cache meets.
    fn relaxed(&self) -> Vec<String> {
        let of = |kind: &str| self.advice.alternatives.iter().find(|told| told.kind == kind).map(|told| &told.cache);
        let latency = of(FASTEST).map(|cache| {
            format!(
                "Relax the latency: with --latency {}, {} meets the targets.",
                up(cache.latency_mean_us),
                name(cache)
            )
        });
        let years = of(LONGEST).and_then(|cache| {
            let years = down(cache.cache_lifetime_years?);
            Some(format!("Relax the lifetime: with --years {years}, {} meets the targets.", name(cache)))
        });
        [latency, years].into_iter().flatten().collect()
    }
}

/// Describes the mean wait of a request.
fn waits(cache: &AdvisedCache) -> String {
    let ram = if is_of_ram(cache.latency_mean_us) { ", since RAM answers it" } else { "" };
    format!("a request waits {} on average{ram}", latency(cache.latency_mean_us))
}

/// Describes the wait of a request in the worst interval, and the time of that.
pub(super) fn worst(cache: &AdvisedCache) -> Option<String> {
    Some(format!("{} in the worst {}", latency(cache.latency_worst_us?), cache.worst_interval()?))
}

/// Describes a purchase.
fn name(cache: &AdvisedCache) -> String {
    let size = human::bytes(cache.ram_bytes as f64);
    if cache.device == RAM_ONLY {
        return format!("{size} of RAM without flash");
    }
    let number = if cache.devices > 1 { format!("{} x ", cache.devices) } else { String::new() };
    format!("{number}{} with {size} of RAM", cache.device)
}

/// Formats a latency as the value of an option, rounded up.
fn up(us: f64) -> String {
    format!("{}us", us.ceil())
}

/// Formats years as the value of an option, rounded down.
fn down(years: f64) -> String {
    if years.is_finite() { format!("{}", (years * 1e4).floor() / 1e4) } else { "100".to_owned() }
}
