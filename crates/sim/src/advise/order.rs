//! The cost of write-back in order: the same cache runs without the order too.

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::human;
use serde::Serialize;

use super::AdviseError;
use super::search::Search;
use super::words::latency;
use crate::job::Job;
use crate::results::ResultRow;

/// Figures that the order of write-back changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Bytes written to the storage: past the flash, or back.
    pub backend_bytes_written: u64,
    /// Flushes of the storage.
    pub backend_flushes: u64,
    /// Bytes written to flash.
    pub flash_bytes_written: u64,
    /// Mean wait of a request, in microseconds.
    pub latency_mean_us: f64,
    /// Hits per access.
    pub hit_ratio: f64,
}

impl Traffic {
    pub(super) fn of(row: &ResultRow) -> Traffic {
        let cache = row.cache.as_ref();
        let blocks = cache.map_or(0, |cache| cache.destaged_blocks + cache.backend_written_blocks);
        Traffic {
            backend_bytes_written: blocks * BLOCK_BYTES as u64,
            backend_flushes: cache.map_or(0, |cache| cache.backend_flushes),
            flash_bytes_written: row.flash_bytes_written,
            latency_mean_us: row.array.as_ref().map_or(0.0, |array| array.latency_mean_us),
            hit_ratio: row.hit_ratio,
        }
    }
}

/// The cost of the order in which the advised cache writes back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OrderCost {
    /// The order.
    pub order: &'static str,
    /// The advised cache.
    pub with: Traffic,
    /// The same cache, which writes back in any order.
    pub without: Traffic,
}

impl OrderCost {
    /// Runs a found cache without its order. `None` if it has none.
    pub(super) fn of(search: &Search, found: usize) -> Result<Option<OrderCost>, AdviseError> {
        let found = &search.found[found];
        let way = &search.ways[found.way];
        if way.order == WriteBackOrder::None {
            return Ok(None);
        }
        let any = super::cache::Way { order: WriteBackOrder::None, ..way.clone() };
        let base = Job { sample: None, sample_by: None, ..search.base.clone() };
        let job = search.purchases[found.purchase].job(&any, &base, search.workload.touched_bytes())?;
        let rows = search.rows(&[job], "the same cache without an order".to_owned(), false)?;
        let without = Traffic::of(rows.first().expect("one job was run"));
        Ok(Some(OrderCost { order: way.order.name(), with: found.traffic, without }))
    }

    /// Describes the cost.
    pub(super) fn sentences(&self) -> [String; 3] {
        let OrderCost { order, with, without } = self;
        let times = |with: u64, without: u64| human::number(with as f64 / without.max(1) as f64);
        let storage = times(with.backend_bytes_written, without.backend_bytes_written);
        let flash = times(with.flash_bytes_written, without.flash_bytes_written);
        let [flushes, fewer] = [with, without].map(|traffic| human::count(traffic.backend_flushes));
        let waits = latency(without.latency_mean_us);
        let hits = human::percent(without.hit_ratio);
        [
            format!(
                "Write-back in order ({order}) writes {storage} times as much to the storage as in any order, \
                 and {flash} times as much to flash."
            ),
            format!("It flushes the storage {flushes} times, not {fewer} times."),
            format!("In any order, a request waits {waits} on average, and {hits} of the accesses hit."),
        ]
    }
}
