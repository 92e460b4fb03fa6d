//! Runs a plan through a cache on a device, and counts what comes after the warm-up.

use super::Counts;
use crate::offline::{Decision, FlashStream, NOT_EVICTING, Plan};
use flashwise_core::block_cache::FlashWrites;
use flashwise_device::flash::{Device, Wear};

/// Accesses between the hint that a block will be accessed and when it is.
const PREFETCH_DISTANCE: usize = 12;

/// What only the cache knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Reads that the write buffer had.
    pub buffer_hits: u64,
    pub flash_writes: FlashWrites,
    pub copy_forward_wasted_blocks: u64,
    pub evicted_live_blocks: u64,
}

/// A cache that is told what to do.
pub(super) trait Cache {
    /// The next access of the stream; `evicts`: see [`Insertion::evicts`](crate::offline::Insertion::evicts).
    fn access(&mut self, position: usize, decision: Decision, evicts: u32);
    /// A hint that `block` will be accessed soon.
    fn prefetch(&self, block: u32);
    /// What was counted so far.
    fn tally(&self) -> Tally;
    /// The device that it is on.
    fn device(&self) -> &impl Device;
}

/// Runs all of `plan`.
pub(super) fn run<C: Cache>(cache: &mut C, stream: &FlashStream, plan: &Plan, unit_pages: u32) -> Counts {
    let mut counts = Counts::none(unit_pages, cache.device().wear());
    let mut insertions = plan.insertions().iter();
    let (mut before, mut erased_before) = (counts, cache.device().erasures_by_unit());
    for (position, &decision) in plan.decisions().iter().enumerate() {
        if position + PREFETCH_DISTANCE < stream.len() {
            cache.prefetch(stream.block(position + PREFETCH_DISTANCE));
        }
        if position == stream.warmup() {
            (before, erased_before) = (counted(counts, cache), cache.device().erasures_by_unit());
        }
        let mut evicts = NOT_EVICTING;
        match decision {
            Decision::Bypass => counts.bypasses += 1,
            // Those that the write buffer had are taken off below.
            Decision::Hit | Decision::LastHit => counts.flash_hits += 1,
            Decision::Insert => {
                evicts = insertions.next().expect("there is an insertion for each decision to insert").evicts;
                counts.count_insertion(stream.is_write(position));
            }
        }
        cache.access(position, decision, evicts);
    }
    let all = counted(counts, cache);
    all.check();
    let erased = cache.device().erasures_by_unit();
    if stream.warmup() == stream.len() {
        (before, erased_before) = (all, erased.clone());
    }
    let after = Counts { wear: Wear::between(&erased_before, &erased), ..all.since(&before) };
    let ram_hits = stream.ram_hits() + after.buffer_hits;
    Counts { reads: stream.reads(), writes: stream.writes(), ram_hits, ..after }
}

/// With what cache and device counted.
fn counted<C: Cache>(counts: Counts, cache: &C) -> Counts {
    let Tally { buffer_hits, flash_writes, copy_forward_wasted_blocks, evicted_live_blocks } = cache.tally();
    let (device, wear) = (*cache.device().counters(), cache.device().wear());
    let flash_hits = counts.flash_hits - buffer_hits;
    let known = Counts { flash_hits, buffer_hits, flash_writes, device, wear, ..counts };
    Counts { copy_forward_wasted_blocks, evicted_live_blocks, ..known }
}
