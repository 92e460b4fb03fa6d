//! Alternatives to a flash cache: no cache, flash for all data, RAM without flash, and more storage devices. All run
//! with the requests of the trace, as caches do.

use flashwise_core::access::Op;
use flashwise_core::cache::WriteBackOrder;
use flashwise_core::tiers::{Device, Tier};
use flashwise_device::TierModel;
use flashwise_device::offers::Offer;

use super::search::{ONE_BY_ONE, Search, busiest};
use super::words::{gb, latency};
use super::{AdviseError, AdvisedCache, Without};
use crate::array::ArrayFigures;
use crate::cache_settings::Ram;
use crate::job::{Job, Written};
use crate::results::ResultRow;

/// Name of a cache without flash.
pub const RAM_ONLY: &str = "RAM only";
/// Numbers of storage devices to try, as multiples of the catalogue's number or of the minimum that may keep up.
const MORE_STORAGE: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Advice never contains more storage devices than this.
const STORAGE_DEVICES_MAX: f64 = 1024.0;
const GIB: u64 = 1 << 30;

/// Reads and writes of the counted accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    reads: f64,
    writes: f64,
    block_bytes: f64,
}

impl Demand {
    pub fn of(search: &Search) -> Demand {
        let trace = search.workload.trace();
        let skipped = search.question.warmup.accesses(trace.len()) as usize;
        let reads = trace.accesses().skip(skipped).filter(|(_, op)| *op == Op::Read).count();
        let writes = trace.len() - skipped - reads;
        Demand { reads: reads as f64, writes: writes as f64, block_bytes: trace.block_size_bytes() as f64 }
    }

    /// Returns the mean latency of a block if one device answers everything and nothing waits.
    pub fn latency_us(&self, device: &Device) -> f64 {
        let sum = self.reads * device.read_latency_us + self.writes * device.write_latency_us;
        sum / (self.reads + self.writes).max(1.0)
    }
}

/// Returns the job of a cache that admits nothing, behind this much RAM and in front of `storage`.
fn job(search: &Search, storage: TierModel, ram_bytes: u64) -> Result<Job, AdviseError> {
    let job = Job {
        policy: Some("lru".parse().expect("it is a policy")),
        size: Some("1MiB".parse().expect("it is a size")),
        admission: Some("probability:p=0".parse().expect("it is a rule")),
        ram: (ram_bytes > 0).then_some(Ram::Bytes(ram_bytes)),
        storage_device: Some(Written { text: storage.to_string(), value: storage }),
        sample: None,
        sample_by: None,
        ..search.base.clone()
    };
    Ok(job.plain()?)
}

fn run(search: &Search, jobs: &[Job], what: &str) -> Result<Vec<(ResultRow, ArrayFigures)>, AdviseError> {
    let rows = search.rows(jobs, what.to_owned(), false)?;
    Ok(rows.into_iter().map(|row| (row.clone(), row.array.unwrap_or_default())).collect())
}

fn without(search: &Search, what: String, price: f64, array: &ArrayFigures) -> Without {
    Without {
        what,
        cost: price + search.waiting_cost(array.latency_mean_us),
        latency_mean_us: array.latency_mean_us,
        utilisation: search.utilisation(array),
    }
}

/// Runs the storage without a cache.
pub(super) fn no_cache(search: &Search) -> Result<Without, AdviseError> {
    let job = job(search, search.question.catalogue.storage, 0)?;
    let ran = run(search, &[job], "the storage without a cache")?;
    let (_, array) = ran.first().expect("one job was run");
    Ok(without(search, "the storage without a cache".to_owned(), 0.0, array))
}

/// Sets the ratio of a request's latency to that of a block access, from the storage without a cache.
pub(super) fn compare_with(search: &mut Search, no_cache: &Without) -> Result<(), AdviseError> {
    let of_block = Demand::of(search).latency_us(&search.question.catalogue.storage.tier.device);
    let of_request = match search.base.arrivals {
        Some(ONE_BY_ONE) => no_cache.latency_mean_us,
        _ => {
            let arrivals = search.base.arrivals.replace(ONE_BY_ONE);
            let alone = self::no_cache(search);
            search.base.arrivals = arrivals;
            alone?.latency_mean_us
        }
    };
    if of_block > 0.0 && of_request > 0.0 {
        search.request_factor = of_request / of_block;
    }
    Ok(())
}

/// Returns flash for all data, from the cheapest offer that meets the targets.
pub(super) fn all_flash(search: &Search) -> Result<Option<Without>, AdviseError> {
    let Some(data_bytes) = search.question.catalogue.data_bytes else { return Ok(None) };
    let asked = Demand::of(search);
    let number_of = |offer: &Offer| (data_bytes / offer.capacity_bytes() as f64).ceil().max(1.0);
    let mut offers: Vec<&Offer> = search.question.catalogue.offers.iter().collect();
    offers.sort_by(|one, other| (number_of(one) * one.price).total_cmp(&(number_of(other) * other.price)));
    let mut found: Option<Without> = None;
    for offer in offers {
        let (number, tier) = (number_of(offer), offer.model.tier);
        let price = number * offer.price;
        if found.as_ref().is_some_and(|found| found.cost <= price) {
            break;
        }
        let storage = TierModel { tier: Tier { devices: number * tier.devices, ..tier }, ..offer.model };
        let ran = run(search, &[job(search, storage, 0)?], "flash for all data")?;
        let (_, array) = ran.first().expect("one job was run");
        let years = search.years(offer, asked.writes * asked.block_bytes / number);
        if search.missed_by(array.latency_mean_us, years, search.utilisation(array)) > 1.0 {
            continue;
        }
        let what = format!("{} of {} for all {}", number * offer.devices() as f64, offer.name, gb(data_bytes));
        let this = without(search, what, price, array);
        if found.as_ref().is_none_or(|found| this.cost < found.cost) {
            found = Some(this);
        }
    }
    Ok(found)
}

/// Returns sizes of RAM for a cache without flash: those of the catalogue, and powers of two up to the size of all
/// touched blocks.
fn ram_sizes(search: &Search) -> Vec<u64> {
    let touched = search.workload.touched_bytes();
    let mut sizes = search.question.catalogue.ram_bytes.clone();
    let mut next = GIB;
    while !sizes.iter().any(|size| *size >= touched) {
        if !sizes.contains(&next) {
            sizes.push(next);
        }
        next *= 2;
    }
    sizes.sort_unstable();
    sizes
}

/// Runs RAM without flash, as a read cache, in each size that costs less than `less_than`. Sizes that cost more than
/// one that meets the targets are omitted. Writes go directly to the storage.
pub(super) fn ram_alone(search: &Search, less_than: f64) -> Result<Vec<AdvisedCache>, AdviseError> {
    let price = |bytes: u64| bytes as f64 / GIB as f64 * search.question.catalogue.ram_price_per_gib;
    let (mut ran, mut most) = (Vec::new(), less_than);
    for ram_bytes in ram_sizes(search) {
        if price(ram_bytes) >= most {
            break;
        }
        let job = job(search, search.question.catalogue.storage, ram_bytes)?;
        let rows = run(search, std::slice::from_ref(&job), RAM_ONLY)?;
        let (row, array) = rows.first().expect("one job was run");
        let waiting_cost = search.waiting_cost(array.latency_mean_us);
        let [_, storage_utilisation] = search.utilisations(array);
        let cache = AdvisedCache {
            device: RAM_ONLY.to_owned(),
            ram_bytes,
            policy: "lru".to_owned(),
            admission: "none".to_owned(),
            write_mode: "write-through".to_owned(),
            write_back_order: WriteBackOrder::None.name().to_owned(),
            price: price(ram_bytes),
            waiting_cost,
            cost: price(ram_bytes) + waiting_cost,
            latency_mean_us: array.latency_mean_us,
            latency_worst_us: array.latency_worst_us,
            latency_worst_after_s: array.latency_worst_after_s,
            latency_worst_seconds: array.latency_worst_seconds,
            storage_utilisation,
            hit_ratio: row.hit_ratio,
            read_hit_ratio: row.read_hit_ratio,
            meets: u64::from(search.missed_by(array.latency_mean_us, None, search.utilisation(array)) <= 1.0),
            job: job.to_string(),
            ..AdvisedCache::default()
        };
        if cache.meets == 1 {
            most = most.min(cache.cost);
        }
        ran.push(cache);
    }
    Ok(ran)
}

/// Returns a sentence on more storage devices behind `cache`, which misses the load or the latency. It has the fewest
/// devices that meet the targets, or the wait with the most that ran. None if the flash wears out too soon.
pub(super) fn more_storage(search: &Search, cache: &AdvisedCache) -> Result<Option<String>, AdviseError> {
    let storage = search.question.catalogue.storage;
    let (years, now) = (cache.cache_lifetime_years, storage.tier.devices);
    if years.is_some_and(|years| years < search.targets().years)
        || busiest(cache) > cache.storage_utilisation.unwrap_or(0.0).max(1.0)
    {
        return Ok(None);
    }
    let least = cache.storage_utilisation.unwrap_or(0.0).max(1.0);
    let mut most = None;
    for times in MORE_STORAGE {
        let devices = (least * times * now).ceil();
        if devices > STORAGE_DEVICES_MAX {
            break;
        }
        if devices <= now {
            continue;
        }
        let more = TierModel { tier: Tier { devices, ..storage.tier }, ..storage };
        let job: Job = cache.job.parse().expect("it was written by a job");
        let job = Job { storage_device: Some(Written { text: more.to_string(), value: more }), ..job };
        let rows = run(search, &[job.plain()?], "more storage")?;
        let (_, array) = rows.first().expect("one job was run");
        let waits = latency(array.latency_mean_us);
        let with =
            format!("{devices} such storage devices in place of {now}, a request would wait {waits} on average.");
        if search.missed_by(array.latency_mean_us, years, search.utilisation(array)) <= 1.0 {
            return Ok(Some(format!("With {with}")));
        }
        most = Some(format!("Even with {with}"));
    }
    Ok(most)
}
