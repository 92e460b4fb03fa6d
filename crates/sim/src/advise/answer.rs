//! What is said of what was found: what to buy, what else to think of, and when to buy nothing.

use flashwise_core::access::Op;
use flashwise_core::quantity::ByteSize;
use flashwise_core::tiers::Device;
use flashwise_trace::human;

use super::certainty;
use super::search::{Found, Guess, Search};
use super::words::{gb, is_of_ram, latency, money, years};
use super::{Advice, AdviseError, AdvisedCache, Alternative, Verdict, Without, shown};

/// A cache is called faster if it takes at most this share of the latency.
const FASTER: f64 = 0.9;
/// A faster cache is looked for among those that cost up to this many times as much.
const DEARER_MAX: f64 = 10.0;
/// A cache is called longer-lived if it lasts this many times as long.
const LONGER: f64 = 1.25;
/// What does not make the storage faster by this share is not worth money.
const GAIN_MIN: f64 = 0.1;
/// Caches that are run to see which comes nearest.
const NEAREST_RUNS: usize = 4;
/// What is no more than this many times as far off is as good, if it is cheaper.
const HARDLY_MORE: f64 = 1.05;
/// What the caches are called that meet one target where none meets both.
const FASTEST: &str = "fastest that lasts";
const LONGEST: &str = "longest-lived that is fast";

/// What the accesses that are counted read and write.
#[derive(Clone, Copy, Debug)]
struct Asked {
    reads: f64,
    writes: f64,
    block_bytes: f64,
}

impl Asked {
    fn of(search: &Search) -> Asked {
        let trace = search.workload.trace();
        let skipped = search.question.warmup.accesses(trace.len()) as usize;
        let reads = trace.accesses().skip(skipped).filter(|(_, op)| *op == Op::Read).count();
        let writes = trace.len() - skipped - reads;
        Asked { reads: reads as f64, writes: writes as f64, block_bytes: trace.block_size_bytes() as f64 }
    }

    /// How long an access takes on average where one device answers all.
    fn latency_us(&self, device: &Device) -> f64 {
        let sum = self.reads * device.read_latency_us + self.writes * device.write_latency_us;
        sum / (self.reads + self.writes).max(1.0)
    }
}

/// The storage without a cache.
pub(super) fn no_cache(search: &Search) -> Without {
    let latency_mean_us = Asked::of(search).latency_us(&search.question.catalogue.storage.tier.device);
    let cost = search.waiting_cost(latency_mean_us);
    Without { what: "the storage without a cache".to_owned(), cost, latency_mean_us }
}

/// Flash for all data, of the offer that costs least for it and meets the targets.
fn all_flash(search: &Search) -> Option<Without> {
    let data_bytes = search.question.catalogue.data_bytes?;
    let asked = Asked::of(search);
    let of_offer = |offer: &flashwise_device::offers::Offer| {
        let number = (data_bytes / offer.capacity_bytes() as f64).ceil().max(1.0);
        let latency_mean_us = asked.latency_us(&offer.model.tier.device);
        let years = search.years(offer, asked.writes * asked.block_bytes / number);
        let meets = search.targets().missed_by(latency_mean_us, years) <= 1.0;
        let cost = number * offer.price + search.waiting_cost(latency_mean_us);
        let what = format!("{} of {} for all {}", number * offer.devices() as f64, offer.name, gb(data_bytes));
        meets.then_some(Without { what, cost, latency_mean_us })
    };
    let offers = search.question.catalogue.offers.iter().filter_map(of_offer);
    offers.min_by(|one, other| one.cost.total_cmp(&other.cost))
}

/// The advice that follows from a search that found a cache, or none.
pub(super) fn of(mut search: Search, found: Option<usize>) -> Result<Advice, AdviseError> {
    let found = found.map(|found| safest(&mut search, found)).transpose()?;
    let no_cache = no_cache(&search);
    let all_flash = all_flash(&search);
    let is_enough = search.targets().missed_by(no_cache.latency_mean_us, None) <= 1.0;
    let cost = found.map_or(f64::INFINITY, |found| search.found[found].cache.cost);
    let verdict = match (&all_flash, found) {
        _ if is_enough && no_cache.cost <= cost => Verdict::NoCache,
        (Some(flash), _) if flash.cost <= cost => Verdict::AllFlash,
        (_, Some(_)) => Verdict::Buy,
        (_, None) => Verdict::NothingMeets,
    };
    let (alternatives, answer) = match (verdict, found) {
        (Verdict::NoCache, None) => (Vec::new(), None),
        (_, Some(found)) => (beside(&mut search, found)?, Some(found)),
        (_, None) => nearest(&mut search)?,
    };
    let certainty = certainty::of(&search, answer.map(|answer| &search.found[answer]))?;
    let cache = answer.map(|answer| search.found[answer].cache.clone());
    let mut runs: Vec<AdvisedCache> = search.found.iter().map(|found| found.cache.clone()).collect();
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
        no_cache,
        all_flash,
        certainty: certainty.certainty,
        caches: (search.purchases.len() * search.ways.len()) as u64,
        runs,
    };
    advice.sentences = sentences(&advice);
    if let Some(cache) = &advice.cache {
        advice.cautions.extend(of_purchase(&search, cache));
    }
    Ok(advice)
}

/// What to think of beside the cache that was found.
fn beside(search: &mut Search, found: usize) -> Result<Vec<Alternative>, AdviseError> {
    let answer = search.found[found].clone();
    let own = answer.cache.clone();
    let price = |search: &Search, purchase: usize| search.purchases[purchase].price;
    let mut told = Vec::new();
    // Cheaper purchases miss a target; the nearest of them says by how much.
    let cheaper: Vec<usize> =
        (0..search.purchases.len()).filter(|&purchase| price(search, purchase) < own.price).collect();
    if let Some(cheaper) = nearest_of(search, &cheaper)? {
        let cache = search.found[cheaper].cache.clone();
        told.push(Alternative { kind: "cheaper", but: misses(search, &cache), cache });
    }
    let mut dearer: Vec<usize> = (0..search.purchases.len())
        .filter(|&purchase| price(search, purchase) > own.price && price(search, purchase) <= DEARER_MAX * own.price)
        // Nothing is faster than no time at all.
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

/// The same purchase where nothing is only on flash, if that is as good in all that counts; else what was found.
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

/// The same purchase where nothing is only on flash.
fn safer(search: &mut Search, answer: &Found) -> Result<Option<usize>, AdviseError> {
    let guesses = search.estimate(answer.purchase)?;
    let through = guesses.iter().filter(|guess| search.ways[guess.way].mode == "write-through");
    let best = through.min_by(|one, other| one.missed_by.total_cmp(&other.missed_by)).copied();
    let Some(Guess { purchase, way, .. }) = best else { return Ok(None) };
    search.run_exactly(&[(purchase, way)])?;
    Ok(search.found.iter().position(|found| (found.purchase, found.way) == (purchase, way)))
}

/// Of some purchases the cache that misses the targets least, by its run; of those that hardly miss them more, the cheapest.
fn nearest_of(search: &mut Search, purchases: &[usize]) -> Result<Option<usize>, AdviseError> {
    let mut guesses = Vec::new();
    for &purchase in purchases {
        guesses.extend(search.estimate(purchase)?);
    }
    run_least(search, &guesses, |guess| guess.missed_by)?;
    let missed = |at: usize| {
        let cache = &search.found[at].cache;
        search.targets().missed_by(cache.latency_mean_us, cache.cache_lifetime_years)
    };
    let all = (0..search.found.len()).filter(|&at| purchases.contains(&search.found[at].purchase));
    Ok(least(search, all, missed))
}

/// Runs the caches of the least `measure` by what is estimated; of those that have hardly more, the cheapest.
fn run_least(search: &mut Search, guesses: &[Guess], measure: impl Fn(&Guess) -> f64) -> Result<(), AdviseError> {
    let mut guesses = guesses.to_vec();
    guesses.sort_by(|one, other| measure(one).total_cmp(&measure(other)));
    let Some(first) = guesses.first().copied() else { return Ok(()) };
    guesses.retain(|guess| measure(guess) <= HARDLY_MORE * measure(&first));
    guesses
        .sort_by(|one, other| search.purchases[one.purchase].price.total_cmp(&search.purchases[other.purchase].price));
    let cheap = guesses.iter().take(NEAREST_RUNS - 1).chain([&first]);
    let mut caches: Vec<_> = cheap.map(|guess| (guess.purchase, guess.way)).collect();
    caches.dedup();
    search.run_exactly(&caches)
}

/// Of caches that were run the one of the least `measure`; of those that have hardly more, the cheapest, and of these again the least.
fn least(search: &Search, all: impl Iterator<Item = usize>, measure: impl Fn(usize) -> f64) -> Option<usize> {
    let all: Vec<usize> = all.collect();
    let least = all.iter().map(|&at| measure(at)).reduce(f64::min)?;
    let close = all.into_iter().filter(|&at| measure(at) <= HARDLY_MORE * least);
    let key = |at: usize| (search.found[at].cache.price, measure(at));
    close.min_by(|&one, &other| key(one).partial_cmp(&key(other)).expect("figures are numbers"))
}

/// Where no cache meets the targets: the nearest, and what meets each target by itself.
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
    let caches = || (0..search.found.len()).map(|at| (at, &search.found[at].cache));
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

/// Which targets a cache misses, and by how much.
fn misses(search: &Search, cache: &AdvisedCache) -> String {
    let targets = search.targets();
    let slow = targets.latency_us.filter(|most| cache.latency_mean_us > *most);
    let slow = slow.map(|most| format!("takes {} in place of {}", latency(cache.latency_mean_us), latency(most)));
    let short = cache.cache_lifetime_years.filter(|years| *years < targets.years);
    let short = short.map(|found| format!("lasts {} in place of {}", years(found), years(targets.years)));
    let missed: Vec<String> = [slow, short].into_iter().flatten().collect();
    if missed.is_empty() { "waits cost more".to_owned() } else { missed.join(", and ") }
}

fn slower(cache: &AdvisedCache, own: &AdvisedCache) -> String {
    format!("takes {} in place of {}", latency(cache.latency_mean_us), latency(own.latency_mean_us))
}

/// The advice in sentences.
fn sentences(advice: &Advice) -> Vec<String> {
    let alone = latency(advice.no_cache.latency_mean_us);
    let currency = &advice.currency;
    let how = |cache: &AdvisedCache| {
        let lasts = cache
            .cache_lifetime_years
            .map(|found| format!(", and the flash lasts {}", years(found)))
            .unwrap_or_default();
        let takes = latency(cache.latency_mean_us);
        let ram = if is_of_ram(cache.latency_mean_us) { ", since RAM answers it" } else { "" };
        format!("an access takes {takes} on average{ram}, where the storage alone takes {alone}{lasts}")
    };
    let cost = |cache: &AdvisedCache| match cache.waiting_cost > 0.0 {
        true => format!(
            "{}, and {} with the waits of {} years",
            money(cache.price, currency),
            money(cache.cost, currency),
            shown(advice.targets.years)
        ),
        false => money(cache.price, currency),
    };
    let set = |cache: &AdvisedCache| {
        let behind = if cache.admission == "none" { String::new() } else { format!(" behind {}", cache.admission) };
        let per_day = cache
            .flash_bytes_per_day
            .map(|bytes| format!(", and {} a day are written to flash", human::bytes(bytes)))
            .unwrap_or_default();
        format!(
            "Run {}{behind}, {}, with {} of the flash kept free: {} of the accesses hit{per_day}.",
            cache.policy,
            cache.write_mode,
            human::percent(cache.over_provision).replace(".00", ""),
            human::percent(cache.hit_ratio),
        )
    };
    match (advice.verdict, &advice.cache) {
        (Verdict::Buy, Some(cache)) => {
            vec![format!("Buy {} for {}: {}.", name(cache), cost(cache), how(cache)), set(cache)]
        }
        (Verdict::NoCache, cache) => {
            let dearer =
                cache.as_ref().map(|cache| format!(", less than the best cache: {} for {}", name(cache), cost(cache)));
            let waits = if advice.no_cache.cost > 0.0 {
                format!(" Its waits cost {}{}.", money(advice.no_cache.cost, currency), dearer.unwrap_or_default())
            } else {
                String::new()
            };
            vec![format!("Buy no cache: the storage alone answers in {alone} on average.{waits}")]
        }
        (Verdict::AllFlash, cache) => {
            let flash = advice.all_flash.as_ref().expect("it is what is advised");
            let beside = match cache.as_ref().filter(|cache| cache.meets == 1) {
                Some(cache) => format!("no more than the cheapest cache, {} for {}", name(cache), cost(cache)),
                None => "and no cache meets the targets".to_owned(),
            };
            let takes = latency(flash.latency_mean_us);
            vec![format!(
                "Buy no cache but {}: that costs {}, {beside}, and an access takes {takes}.",
                flash.what,
                money(flash.cost, currency)
            )]
        }
        (_, Some(cache)) => {
            let mut sentences = vec![format!("No cache of the catalogue reaches {}.", advice.targets.words())];
            if cache.latency_mean_us > (1.0 - GAIN_MIN) * advice.no_cache.latency_mean_us {
                sentences.push(format!("Buy none: the nearest, {}, hardly helps; {}.", name(cache), how(cache)));
            } else {
                sentences.push(format!("The nearest is {} for {}: {}.", name(cache), cost(cache), how(cache)));
                sentences.push(set(cache));
            }
            sentences.push(gives(advice));
            sentences
        }
        (_, None) => vec![format!("No cache of the catalogue reaches {}.", advice.targets.words())],
    }
}

/// Which target would have to give.
fn gives(advice: &Advice) -> String {
    let of = |kind: &str| advice.alternatives.iter().find(|told| told.kind == kind).map(|told| &told.cache);
    let (lasting, fast) = (of(FASTEST), of(LONGEST));
    let latency_gives =
        lasting.map(|cache| format!("with --latency {}, {} would do", duration_up(cache.latency_mean_us), name(cache)));
    let years_give = fast.and_then(|cache| {
        Some(format!("with --years {}, {} would do", down(cache.cache_lifetime_years?), name(cache)))
    });
    match (latency_gives, years_give) {
        (Some(latency), Some(years)) => format!("One target would have to give: {latency}; {years}."),
        (Some(latency), None) => format!("The latency would have to give, since no cache is fast enough: {latency}."),
        (None, Some(years)) => {
            format!("The lifetime would have to give, since no cache that is tried lasts long enough: {years}.")
        }
        (None, None) => "No cache reaches either target.".to_owned(),
    }
}

/// What follows from where the purchase stands in the catalogue.
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
            "RAM answers what is written before it is on flash. A client that flushes waits for the flash: that is not in the latency."
                .to_owned(),
        );
    }
    if cache.write_mode == "write-back" {
        told.push(
            "In write-back, what was written last is on this flash alone: if it fails for good, that is lost."
                .to_owned(),
        );
    }
    if cache.devices > 1 {
        told.push(format!(
            "{} devices make one cache: stripe them (RAID 0), and if one fails, all of the cache has.",
            cache.devices
        ));
    }
    told
}

/// A purchase in words.
fn name(cache: &AdvisedCache) -> String {
    let number = if cache.devices > 1 { format!("{} x ", cache.devices) } else { String::new() };
    format!("{number}{} with {} of RAM", cache.device, ByteSize::new(cache.ram_bytes))
}

/// A latency as an option takes it, no shorter.
fn duration_up(us: f64) -> String {
    format!("{}us", us.ceil())
}

/// Years as an option takes them, no more.
fn down(years: f64) -> String {
    if years.is_finite() { format!("{}", (years * 1e4).floor() / 1e4) } else { "100".to_owned() }
}
