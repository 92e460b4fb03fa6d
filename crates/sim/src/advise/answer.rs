//! The answer of a search: the purchase, the alternatives, or the reasons to buy nothing.

use flashwise_core::human;

use super::alone;
use super::certainty;
use super::search::{Guess, RanCache, Search, busiest};
use super::sentences::{self, FASTEST, LONGEST, overload};
use super::words::{is_of_ram, latency, money};
use super::{Advice, AdviseError, AdvisedCache, Alternative, OrderCost, Verdict, Without};

/// Largest share of the latency for a cache to be called faster.
const FASTER: f64 = 0.9;
/// A faster cache may cost up to this many times as much.
const DEARER_MAX: f64 = 10.0;
/// Smallest ratio of lifetimes for a cache to be called longer-lived.
const LONGER: f64 = 1.25;
/// Number of caches that run in search of the nearest.
const NEAREST_RUNS: usize = 4;

/// Returns the advice of a search, which found a cache or none.
pub(super) fn of(mut search: Search, found: Option<usize>, no_cache: Without) -> Result<Advice, AdviseError> {
    let is_enough = search.missed_by(no_cache.latency_mean_us, None, no_cache.utilisation) <= 1.0;
    let is_searched = !(is_enough && no_cache.cost == 0.0);
    let (mut missing, mut found) = (None, found);
    if is_searched && found.is_none() {
        missing = Some(nearest(&mut search)?);
        // A cache that ran in search of the nearest may meet the targets.
        found = search.best();
    }
    let found = found.map(|found| safest(&mut search, found)).transpose()?;
    let all_flash = alone::all_flash(&search)?;
    let cost = found.map_or(f64::INFINITY, |found| search.found[found].cache.cost);
    let least = all_flash.as_ref().map_or(cost, |flash| flash.cost.min(cost));
    let least = if is_enough { least.min(no_cache.cost) } else { least };
    let in_ram = if is_searched { alone::ram_alone(&search, least)? } else { Vec::new() };
    let cheapest = |one: &&AdvisedCache, other: &&AdvisedCache| one.cost.total_cmp(&other.cost);
    let ram = in_ram.iter().filter(|cache| cache.meets == 1 && cache.cost < least).min_by(cheapest).cloned();
    let verdict = match (&all_flash, found) {
        _ if ram.is_some() => Verdict::RamOnly,
        _ if is_enough && no_cache.cost <= cost => Verdict::NoCache,
        (Some(flash), _) if flash.cost <= cost => Verdict::AllFlash,
        (_, Some(_)) => Verdict::Buy,
        (_, None) => Verdict::NothingMeets,
    };
    let (alternatives, answer) = match (&ram, found, missing) {
        (Some(ram), found, _) => (found.map(|found| of_flash(&search, found, ram)).into_iter().collect(), None),
        (None, Some(found), _) => (beside(&mut search, found)?, Some(found)),
        (None, None, Some((alternatives, nearest))) => (alternatives, nearest),
        (None, None, None) => (Vec::new(), None),
    };
    let mut cache = ram.or_else(|| answer.map(|answer| search.found[answer].cache.clone()));
    let mut help = None;
    if verdict == Verdict::NothingMeets {
        let by_miss =
            |one: &AdvisedCache, other: &AdvisedCache| missed(&search, one).total_cmp(&missed(&search, other));
        cache = cache.into_iter().chain(in_ram.iter().cloned()).min_by(by_miss);
        help = cache.as_ref().map(|cache| alone::more_storage(&search, cache)).transpose()?.flatten();
    }
    let is_of_flash = cache.as_ref().is_some_and(|cache| cache.device != alone::RAM_ONLY);
    let order_cost = answer.filter(|_| is_of_flash).map(|answer| OrderCost::of(&search, answer)).transpose()?.flatten();
    let certainty = certainty::of(&search, cache.as_ref());
    let mut runs: Vec<AdvisedCache> = search.found.iter().map(|found| found.cache.clone()).chain(in_ram).collect();
    runs.sort_by(|one, other| one.cost.total_cmp(&other.cost));
    let mut advice = Advice {
        trace: search.workload.trace().name().to_owned(),
        catalogue: search.question.catalogue.title.clone(),
        currency: search.question.catalogue.currency.clone(),
        targets: *search.targets(),
        verdict,
        sentences: Vec::new(),
        cautions: certainty.cautions.clone(),
        cache,
        alternatives,
        order_cost,
        help,
        no_cache,
        all_flash,
        certainty: certainty.certainty,
        caches: (search.purchases.len() * search.ways.len()) as u64,
        runs,
    };
    advice.sentences = sentences::of(&advice);
    if let Some(cache) = advice.cache.as_ref().filter(|cache| cache.device != alone::RAM_ONLY) {
        advice.cautions.extend(of_purchase(&search, cache));
    }
    Ok(advice)
}

/// Returns the factor by which a cache that ran misses the targets.
fn missed(search: &Search, cache: &AdvisedCache) -> f64 {
    search.missed_by(cache.latency_mean_us, cache.cache_lifetime_years, busiest(cache))
}

/// Returns the flash cache as an alternative to cheaper RAM.
fn of_flash(search: &Search, found: usize, ram: &AdvisedCache) -> Alternative {
    let cache = search.found[found].cache.clone();
    let more = money(cache.cost - ram.cost, &search.question.catalogue.currency);
    Alternative { kind: "flash", but: format!("costs {more} more"), cache }
}

/// Returns alternatives to the cache that was found.
fn beside(search: &mut Search, found: usize) -> Result<Vec<Alternative>, AdviseError> {
    let answer = search.found[found].clone();
    let own = answer.cache.clone();
    let price = |search: &Search, purchase: usize| search.purchases[purchase].price;
    let mut told = Vec::new();
    // Cheaper purchases miss a target; the nearest of them shows by how much.
    let cheaper: Vec<usize> =
        (0..search.purchases.len()).filter(|&purchase| price(search, purchase) < own.price).collect();
    if let Some(cheaper) = nearest_of(search, &cheaper)? {
        let cache = search.found[cheaper].cache.clone();
        told.push(Alternative { kind: "cheaper", but: misses(search, &cache), cache });
    }
    let mut dearer: Vec<usize> = (0..search.purchases.len())
        .filter(|&purchase| price(search, purchase) > own.price && price(search, purchase) <= DEARER_MAX * own.price)
        // No cache is faster than a latency of 0.
        .filter(|_| own.latency_mean_us > 0.0)
        .collect();
    dearer.dedup_by_key(|purchase| price(search, *purchase));
    for purchase in dearer {
        let guesses = search.estimate(purchase)?;
        let fast =
            guesses.iter().filter(|guess| guess.missed_by <= 1.0 && guess.latency_us <= FASTER * own.latency_mean_us);
        let Some(&Guess { way, .. }) = fast.min_by(|one, other| one.latency_us.total_cmp(&other.latency_us)) else {
            continue;
        };
        search.run_exactly(&[(purchase, way)])?;
        let ran = search.found.iter().find(|found| (found.purchase, found.way) == (purchase, way));
        let Some(cache) = ran.map(|found| found.cache.clone()) else { continue };
        if cache.meets == 1 && cache.latency_mean_us <= FASTER * own.latency_mean_us {
            let more = format!("costs {} more", money(cache.price - own.price, &search.question.catalogue.currency));
            told.push(Alternative { kind: "faster", but: more, cache });
            break;
        }
    }
    if own.write_mode == "write-back"
        && let Some(at) = safer(search, &answer)?
    {
        let cache = search.found[at].cache.clone();
        let but = if cache.meets == 1 { slower(&cache, &own) } else { misses(search, &cache) };
        told.push(Alternative { kind: "safer", but, cache });
    }
    let years = own.cache_lifetime_years.unwrap_or(f64::INFINITY);
    let longer = search.found.iter().filter(|found| found.purchase == answer.purchase && found.meets());
    let longer = longer.map(|found| &found.cache).filter(|cache| {
        cache.cache_lifetime_years.is_some_and(|other| other >= LONGER * years)
            && told.iter().all(|told| told.cache != **cache)
    });
    let longest = longer.max_by(|one, other| {
        one.cache_lifetime_years.partial_cmp(&other.cache_lifetime_years).expect("figures are numbers")
    });
    if let Some(cache) = longest {
        told.push(Alternative { kind: "longer-lived", but: slower(cache, &own), cache: cache.clone() });
    }
    Ok(told)
}

/// Returns the same purchase with write-through, if it is as good in all other respects; otherwise the found one.
fn safest(search: &mut Search, found: usize) -> Result<usize, AdviseError> {
    let own = search.found[found].clone();
    if own.cache.write_mode != "write-back" {
        return Ok(found);
    }
    let Some(at) = safer(search, &own)? else { return Ok(found) };
    let (cache, own) = (&search.found[at].cache, &own.cache);
    let is_as_good = cache.meets == own.meets && cache.cost <= own.cost && cache.latency_mean_us <= own.latency_mean_us;
    Ok(if is_as_good { at } else { found })
}

/// Returns the same purchase with write-through.
fn safer(search: &mut Search, answer: &RanCache) -> Result<Option<usize>, AdviseError> {
    let guesses = search.estimate(answer.purchase)?;
    let through = guesses.iter().filter(|guess| search.ways[guess.way].mode == "write-through");
    let best = through.min_by(|one, other| one.missed_by.total_cmp(&other.missed_by)).copied();
    let Some(Guess { purchase, way, .. }) = best else { return Ok(None) };
    search.run_exactly(&[(purchase, way)])?;
    Ok(search.found.iter().position(|found| (found.purchase, found.way) == (purchase, way)))
}

/// Returns the cache of some purchases that misses the targets least, among those that ran.
fn nearest_of(search: &mut Search, purchases: &[usize]) -> Result<Option<usize>, AdviseError> {
    let mut guesses = Vec::new();
    for &purchase in purchases {
        guesses.extend(search.estimate(purchase)?);
    }
    run_least(search, &guesses, |guess| guess.missed_by)?;
    let all = (0..search.found.len()).filter(|&at| purchases.contains(&search.found[at].purchase));
    Ok(least(search, all, |at| missed(search, &search.found[at].cache)))
}

/// Runs the caches with the lowest estimated `measure`.
fn run_least(search: &mut Search, guesses: &[Guess], measure: impl Fn(&Guess) -> f64) -> Result<(), AdviseError> {
    let mut guesses = guesses.to_vec();
    let price = |guess: &Guess| search.purchases[guess.purchase].price;
    guesses.sort_by(|one, other| measure(one).total_cmp(&measure(other)).then(price(one).total_cmp(&price(other))));
    let caches: Vec<_> = guesses.iter().take(NEAREST_RUNS).map(|guess| (guess.purchase, guess.way)).collect();
    search.run_exactly(&caches)
}

/// Returns the cache with the lowest `measure` among those that ran; of equal ones the cheapest.
fn least(search: &Search, all: impl Iterator<Item = usize>, measure: impl Fn(usize) -> f64) -> Option<usize> {
    let key = |at: usize| (measure(at), search.found[at].cache.price);
    all.min_by(|&one, &other| key(one).partial_cmp(&key(other)).expect("figures are numbers"))
}

/// Returns the nearest caches if none meets the targets, and those that meet one target.
fn nearest(search: &mut Search) -> Result<(Vec<Alternative>, Option<usize>), AdviseError> {
    let all: Vec<usize> = (0..search.purchases.len()).collect();
    let nearest = nearest_of(search, &all)?;
    let (guesses, targets, mut told) = (search.guesses.clone(), *search.targets(), Vec::new());
    let lasts = |years: Option<f64>| years.is_none_or(|years| years >= targets.years);
    let is_fast = |latency_us: f64| targets.missed_by(latency_us, None) <= 1.0;
    let short = |years: Option<f64>| 1.0 / years.unwrap_or(f64::INFINITY);
    let lasting: Vec<Guess> = guesses.iter().filter(|guess| lasts(guess.years)).copied().collect();
    run_least(search, &lasting, |guess| guess.latency_us)?;
    let fast: Vec<Guess> = guesses.iter().filter(|guess| is_fast(guess.latency_us)).copied().collect();
    run_least(search, &fast, |guess| short(guess.years))?;
    let keeps_up = |at: usize| busiest(&search.found[at].cache) <= 1.0;
    let caches = || (0..search.found.len()).filter(|&at| keeps_up(at)).map(|at| (at, &search.found[at].cache));
    let lasting = caches().filter(|(_, cache)| lasts(cache.cache_lifetime_years)).map(|(at, _)| at);
    let fastest = least(search, lasting, |at| search.found[at].cache.latency_mean_us);
    let fast = caches().filter(|(_, cache)| is_fast(cache.latency_mean_us)).map(|(at, _)| at);
    let longest = least(search, fast, |at| short(search.found[at].cache.cache_lifetime_years));
    for (kind, at) in [(FASTEST, fastest), (LONGEST, longest)] {
        let cache = at.map(|at| search.found[at].cache.clone());
        told.extend(cache.map(|cache| Alternative { kind, but: misses(search, &cache), cache }));
    }
    Ok((told, nearest))
}

/// Describes the missed targets of a cache, with the factors.
fn misses(search: &Search, cache: &AdvisedCache) -> String {
    let targets = search.targets();
    let slow = targets.latency_us.filter(|most| cache.latency_mean_us > *most);
    let slow = slow.map(|most| format!("takes {} in place of {}", latency(cache.latency_mean_us), latency(most)));
    let short = cache.cache_lifetime_years.filter(|years| *years < targets.years);
    let short =
        short.map(|found| format!("lasts {} in place of {}", human::lifetime(found), human::lifetime(targets.years)));
    let missed: Vec<String> = [overload(cache), slow, short].into_iter().flatten().collect();
    if missed.is_empty() { "waits cost more".to_owned() } else { missed.join(", and ") }
}

fn slower(cache: &AdvisedCache, own: &AdvisedCache) -> String {
    format!("takes {} in place of {}", latency(cache.latency_mean_us), latency(own.latency_mean_us))
}

/// Describes the position of the purchase in the catalogue.
fn of_purchase(search: &Search, cache: &AdvisedCache) -> Vec<String> {
    let (mut told, catalogue) = (Vec::new(), &search.question.catalogue);
    let sizes = || catalogue.offers.iter().map(|offer| offer.capacity_bytes());
    let touched = search.workload.touched_bytes();
    let [size, all] = [cache.size_bytes, touched].map(|bytes| human::bytes(bytes as f64));
    if Some(cache.size_bytes) == sizes().max() && cache.size_bytes < touched {
        told.push(format!("{size} is the most flash that the catalogue has: a larger cache might be better."));
    } else if catalogue.offers.first().is_some_and(|cheapest| cheapest.name == cache.device) {
        told.push(format!("{} is the cheapest flash that the catalogue has: less might do.", cache.device));
    }
    if cache.size_bytes >= touched {
        told.push(format!(
            "The trace touches {all}, which is no more than the cache holds: a longer trace may touch more."
        ));
    }
    if is_of_ram(cache.latency_mean_us) {
        told.push(
            "RAM answers writes before they are on flash. A client that flushes waits for the flash; the latency does \
             not include that."
                .to_owned(),
        );
    }
    if cache.write_mode == "write-back" {
        let ordered = match &cache.write_back_order[..] {
            "none" => "",
            "journal" => {
                " The storage is then a consistent older state, once a start has completed it from the journal."
            }
            _ => " The storage is then a consistent older state.",
        };
        told.push(format!(
            "In write-back, the newest writes are only on this flash: if it fails for good, they are lost.{ordered}"
        ));
    }
    if cache.devices > 1 {
        told.push(format!(
            "{} devices make one cache: stripe them (RAID 0). If one fails, the whole cache fails.",
            cache.devices
        ));
    }
    told
}
