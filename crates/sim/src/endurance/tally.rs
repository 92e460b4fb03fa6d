//! Runs a plan on a device as fast as possible, to learn its erasures.

use flashwise_core::access::Op;
use flashwise_core::block_cache::BlockCache;
use flashwise_core::counters::Counters;
use flashwise_device::flash::{Device, Wear};
use flashwise_trace::progress::Progress;

use super::Endurance;
use super::planned::{Placed, Planned};
use crate::offline::FlashStream;
use crate::pace::may_end;
use crate::stretch::Counts;

/// Runs the whole plan of `cache` over `stream`, and counts after the warm-up. The counts have no days, because a
/// stream has no times.
pub(super) fn run<P: Placed>(
    stream: &FlashStream,
    mut cache: Planned<'_, P>,
    mut device: impl Device,
    unit_pages: u32,
    progress: &dyn Progress,
) -> Endurance {
    let (mut counters, mut steps) = (Counters::default(), Vec::new());
    let mut warm = None;
    for position in 0..stream.len() {
        if position == stream.warmup() {
            warm = Some((counted(&counters, &cache, &device), device.erasures_by_unit()));
        }
        let op = if stream.is_write(position) { Op::Write } else { Op::Read };
        may_end(position, progress);
        let outcome = cache.next(&mut steps);
        counters.record(op, &outcome);
        for step in steps.drain(..) {
            device.step(step);
        }
    }
    let (all, erased) = (counted(&counters, &cache, &device), device.erasures_by_unit());
    assert_eq!(all.tally.flash_writes.total_blocks(), all.device.host_writes, "each write to flash has a cause");
    let (before, erased_before) = warm.unwrap_or_else(|| (all, erased.clone()));
    let after = all - before;
    let (read_hits, ram_hits) = (stream.ram_hits() + after.read_hits, stream.ram_hits() + after.ram_hits);
    let counts = Counts { reads: stream.reads(), writes: stream.writes(), read_hits, ram_hits, ..after };
    Endurance { counts, wear: Wear::between(&erased_before, &erased), unit_pages, days: None }
}

/// Returns the counts so far, of accesses that reach the flash.
fn counted<P: Placed>(counters: &Counters, cache: &Planned<'_, P>, device: &impl Device) -> Counts {
    let (read, write, tally) = (counters.of(Op::Read), counters.of(Op::Write), cache.tally());
    Counts {
        reads: read.accesses(),
        writes: write.accesses(),
        read_hits: read.hits,
        write_hits: write.hits,
        ram_hits: tally.buffer_hits,
        counters: *counters,
        tally,
        device: *device.counters(),
        ..Counts::default()
    }
}
