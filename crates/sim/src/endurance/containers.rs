//! C and its variants: container-optimised placement. Blocks gather in a write buffer of several erase units. They are
//! cut into units by the time when they will leave the cache, and written to host-managed flash one unit at a time. The
//! unit with the fewest valid blocks is erased when space is needed, and its valid blocks go back into the write
//! buffer.
//!
//! Source: Cheng et al., USENIX ATC 2016, sections 3.3, 3.5 and 4, Figures 2 to 4.
//!
//! A block on flash is valid from the seal of its unit until it leaves the cache. Then it is evict-pending or, once
//! overwritten, invalid (Figure 4). Both leave a unit's priority, V, and neither is read again, so they are one state
//! here. Blocks that leave while in the write buffer are removed at once and never written.
//!
//! Departures from the paper:
//!
//! - The write buffer is sorted when it is full, not kept sorted: the units are the same.
//! - CFR: "exact" takes the time of a block's last hit from the plan, which no number of rounds quite finds. A round
//!   marks the insertions with a useless copy. Later rounds no longer copy their blocks after that many hits. Rounds
//!   differ in their copies but not in the cache's contents, so such a copy would be useless again.
//! - A unit is free when it is collected, and erased when it is written again.
//! - Blocks in the write buffer at the end of the trace are not written.

use flashwise_core::block_cache::Tally;
use flashwise_core::index::Dense;
use flashwise_core::layout::units::Units;
use flashwise_core::prefetch::prefetch;
use flashwise_core::step::FlashStep;
use flashwise_trace::progress::Progress;

use super::algorithm::{CopyForwardReduction, Order};
use super::planned::{Placed, Planned};
use super::settings::Geometry;
use super::write_buffer::{Cause, UnitBuffer};
use crate::offline::{Decision, FlashStream, Insertion, NOT_EVICTING, Plan};

/// Returns a cache for `plan` on host-managed flash, trained in as many earlier rounds as allowed. `progress` may end
/// these.
pub(super) fn containers<'a>(
    stream: &'a FlashStream,
    plan: &'a Plan,
    geometry: &Geometry,
    reduction: CopyForwardReduction,
    order: Order,
    progress: &dyn Progress,
) -> Containers<'a> {
    let new = |wasted: Wasted| Containers::new(stream, plan, geometry, order, wasted);
    let CopyForwardReduction::Rounds(rounds) = reduction else { return new(Wasted::Known) };
    let mut wasted = Wasted::Marked(vec![false; if rounds > 0 { plan.insertions().len() } else { 0 }]);
    for _ in 0..rounds {
        let mut round = Planned::new(stream, plan, new(wasted));
        round.rehearse(progress);
        wasted = round.into_placed().wasted;
    }
    new(wasted)
}

/// Insertions for which a copy after their last hit is known to be useless.
enum Wasted {
    /// All insertions.
    Known,
    /// The marked insertions; none if this is empty.
    Marked(Vec<bool>),
}

/// A write buffer, and erase units that are written whole.
pub(super) struct Containers<'a> {
    stream: &'a FlashStream,
    insertions: &'a [Insertion],
    order: Order,
    wasted: Wasted,
    /// Number of insertions so far.
    inserted: u32,
    /// The latest insertion of each block.
    insertion_of: Vec<u32>,
    buffer: UnitBuffer,
    /// Number of units into which a full write buffer is cut.
    write_buffers: u32,
    units: Units<Dense>,
    /// Units to erase before they are written again.
    collected: Vec<bool>,
    /// Blocks of a unit on the way from write buffer to flash.
    unit: Vec<u32>,
    /// Steps of a unit that follow others.
    later: Vec<FlashStep>,
    tally: Tally,
}

impl<'a> Containers<'a> {
    fn new(
        stream: &'a FlashStream,
        plan: &'a Plan,
        geometry: &Geometry,
        order: Order,
        wasted: Wasted,
    ) -> Containers<'a> {
        let Geometry { units, unit_pages, write_buffers, capacity_blocks, .. } = *geometry;
        let unique_blocks = stream.unique_blocks();
        // So the emptiest units, as many as the write buffer is cut into, always hold fewer blocks than it does.
        assert!(units > write_buffers && u64::from(units) * u64::from(unit_pages) > capacity_blocks as u64);
        Containers {
            stream,
            insertions: plan.insertions(),
            order,
            wasted,
            inserted: 0,
            insertion_of: vec![0; unique_blocks],
            buffer: UnitBuffer::new(unique_blocks, write_buffers as usize * unit_pages as usize),
            write_buffers,
            units: Units::new(Dense::new(unique_blocks), units, unit_pages),
            collected: vec![false; units as usize],
            unit: Vec::with_capacity(unit_pages as usize),
            later: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Removes a block from the cache, wherever it is.
    #[inline]
    fn leave(&mut self, block: u32) {
        if !self.buffer.remove(block) {
            // It is on flash, unless it was not copied forward.
            self.units.invalidate(block);
        }
    }

    /// Function OnInsert: puts `block` into the write buffer, which has room.
    #[inline]
    fn insert(&mut self, block: u32, cause: Cause, position: usize, steps: &mut Vec<FlashStep>) {
        let insertion = &self.insertions[self.insertion_of[block as usize] as usize];
        self.buffer.push(block, insertion.leaves, cause);
        if self.buffer.is_full() {
            self.seal(steps);
            self.collect(position, steps);
        }
    }

    /// Function OnSeal: cuts the write buffer into units.
    #[cold]
    fn seal(&mut self, steps: &mut Vec<FlashStep>) {
        if self.order == Order::Evict {
            self.buffer.sort_by_leaving();
        }
        let written = self.buffer.causes();
        self.tally.flash_writes.client_blocks += written[Cause::Client as usize];
        self.tally.flash_writes.admission_blocks += written[Cause::Admission as usize];
        self.tally.flash_writes.copy_forward_blocks += written[Cause::CopyForward as usize];
        let unit_pages = self.units.unit_pages() as usize;
        for unit in 0..self.write_buffers as usize {
            self.unit.clear();
            self.unit.extend(self.buffer.blocks(unit * unit_pages..(unit + 1) * unit_pages));
            let unit = self.units.seal(&self.unit, &mut self.later);
            if std::mem::take(&mut self.collected[unit as usize]) {
                steps.push(FlashStep::Reset { unit });
            }
            steps.append(&mut self.later);
        }
        self.buffer.clear();
    }

    /// Function EvictFlash: frees units until there are as many as the write buffer is cut into.
    #[cold]
    fn collect(&mut self, position: usize, steps: &mut Vec<FlashStep>) {
        while self.units.free_units() < self.write_buffers {
            let unit = self.units.emptiest().expect("a unit that is not free is sealed");
            let valid: Vec<(u32, u32)> = self.units.live_blocks(unit).collect();
            self.tally.live_at_reset_blocks += valid.len() as u64;
            for (block, page) in valid {
                if self.is_worth_copying(block, position as u32) {
                    steps.push(FlashStep::Read { page });
                    let leaves = self.insertions[self.insertion_of[block as usize] as usize].leaves;
                    self.buffer.push(block, leaves, Cause::CopyForward);
                }
            }
            // The unit is erased when it is written again.
            self.units.reset(unit, &mut self.later);
            self.later.clear();
            self.collected[unit as usize] = true;
        }
        assert!(!self.buffer.is_full(), "flash holds more than is valid, so that the emptiest units have room");
    }

    /// Function OnCopyForward.
    fn is_worth_copying(&mut self, block: u32, now: u32) -> bool {
        let at = self.insertion_of[block as usize] as usize;
        if self.insertions[at].last_hit > now {
            return true;
        }
        let is_known = match &mut self.wasted {
            Wasted::Known => true,
            Wasted::Marked(marked) => marked.get_mut(at).is_some_and(|marked| std::mem::replace(marked, true)),
        };
        self.tally.wasted_copies_blocks += u64::from(!is_known);
        !is_known
    }
}

impl Placed for Containers<'_> {
    #[inline]
    fn access(&mut self, position: usize, decision: Decision, evicts: u32, steps: &mut Vec<FlashStep>) {
        let block = self.stream.block(position);
        match decision {
            Decision::Bypass => {}
            Decision::Hit | Decision::LastHit => {
                if self.buffer.contains(block) {
                    self.tally.buffer_hits += 1;
                } else {
                    let found = self.units.read(block, steps);
                    assert!(found, "a hit is in the write buffer or on flash");
                }
                if decision == Decision::LastHit {
                    self.leave(block);
                }
            }
            Decision::Insert => {
                if evicts != NOT_EVICTING {
                    self.leave(self.stream.block(evicts as usize));
                }
                self.insertion_of[block as usize] = self.inserted;
                self.inserted += 1;
                let cause = if self.stream.is_write(position) { Cause::Client } else { Cause::Admission };
                self.insert(block, cause, position, steps);
            }
        }
    }

    #[inline]
    fn prefetch(&self, block: u32) {
        self.units.prefetch(block);
        self.buffer.prefetch(block);
        prefetch(&self.insertion_of, block as usize);
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
