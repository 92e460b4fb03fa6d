//! Contents of the log's slots, kept in the table of the replacement policy, so RAM holds them once.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::directory::{Directory, Moved};
use crate::policy;
use crate::table::Table;

/// A policy for a cache on flash.
pub type AnyPolicy = policy::AnyPolicy<u32>;

/// The blocks in the slots of a log, and the policy. A log under recovery has no policy yet.
pub struct Contents {
    policy: Option<AnyPolicy>,
    /// The table if there is no policy, or if the policy has no directory.
    own: Option<SlotTable>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Contents {
    /// Creates empty contents of `slots` slots.
    pub fn new(slots: u32) -> Contents {
        Contents { policy: None, own: Some(SlotTable::new(slots)) }
    }

    /// Creates empty contents of `slots` slots with an empty policy.
    pub fn with_policy(mut policy: AnyPolicy, slots: u32) -> Contents {
        let own = match policy.directory_mut() {
            Some(directory) => {
                directory.set_slots(slots);
                None
            }
            None => Some(SlotTable::new(slots)),
        };
        Contents { policy: Some(policy), own }
    }

    /// Sets `policy`, which must be empty, as the keeper of the slots' contents. The memory of the old table is freed
    /// gradually during the move.
    pub fn set_policy(&mut self, policy: AnyPolicy, slots: u32) {
        let mut contents = Contents::with_policy(policy, slots);
        let old = std::mem::replace(self, Contents { policy: None, own: None });
        match (old.own, &mut contents.own) {
            (Some(old), Some(own)) => *own = old,
            (Some(old), None) => old.hand_over(contents.directory_mut()),
            (None, _) => {
                let old = old.policy.as_ref().and_then(|policy| policy.directory());
                let old = old.expect("a policy's table is a directory, or the log has its own");
                contents.directory_mut().reserve(old.len());
                hand_over(old, 0..slots, contents.directory_mut());
            }
        }
        *self = contents;
    }

    /// Returns the policy; a cache has one.
    pub fn policy(&self) -> &AnyPolicy {
        self.policy.as_ref().expect("the log of a cache has a policy")
    }

    /// Returns the policy, mutable.
    pub fn policy_mut(&mut self) -> &mut AnyPolicy {
        self.policy.as_mut().expect("the log of a cache has a policy")
    }

    #[inline]
    fn directory(&self) -> &dyn Directory<u32> {
        match &self.own {
            Some(own) => own,
            None => self.policy().directory().expect("a policy's table is a directory, or the log has its own"),
        }
    }

    #[inline]
    fn directory_mut(&mut self) -> &mut dyn Directory<u32> {
        match (&mut self.own, &mut self.policy) {
            (Some(own), _) => own,
            (None, policy) => policy
                .as_mut()
                .and_then(|policy| policy.directory_mut())
                .expect("a policy's table is a directory, or the log has its own"),
        }
    }

    /// Returns the slot of the copy of `block`.
    #[inline]
    pub fn slot_of(&self, block: u32) -> Option<u32> {
        self.directory().slot_of(block)
    }

    /// Returns the block that was placed in `slot` last, superseded or not, unless the slot was cleared since.
    #[inline]
    pub fn block_at(&self, slot: u32) -> Option<u32> {
        self.directory().block_at(slot)
    }

    /// Returns the block whose copy is in `slot`.
    #[inline]
    pub fn current(&self, slot: u32) -> Option<u32> {
        let directory = self.directory();
        if directory.is_current(slot) { directory.block_at(slot) } else { None }
    }

    /// Returns the number of slots with a current copy.
    pub fn len(&self) -> usize {
        self.directory().len()
    }

    /// True if no slot has a current copy.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places `block` in the free `slot`; its copy elsewhere is superseded.
    pub fn place(&mut self, block: u32, slot: u32) {
        let moved = self.directory_mut().place(block, slot);
        self.tell(moved);
    }

    /// Reserves room for the copies of `blocks` in total.
    pub fn reserve(&mut self, blocks: usize) {
        self.directory_mut().reserve(blocks);
    }

    /// Places `block`, which has no copy and is unknown to the policy, in the free `slot`.
    #[inline]
    pub fn place_new(&mut self, block: u32, slot: u32) {
        self.directory_mut().place_new(&[(block, slot)]);
    }

    /// Records a superseded copy of `block` in the free `slot`.
    pub fn note_superseded(&mut self, block: u32, slot: u32) {
        self.directory_mut().note_superseded(block, slot);
    }

    /// Hints that `block` will be looked up soon.
    #[inline]
    pub fn prefetch(&self, block: u32) {
        self.directory().prefetch(block);
    }

    /// Supersedes the copy in `slot`: its block has no copy any more.
    pub fn supersede(&mut self, slot: u32) {
        let moved = self.directory_mut().supersede(slot);
        self.tell(moved);
    }

    fn tell(&mut self, moved: Option<Moved>) {
        if let (Some(moved), Some(policy)) = (moved, &mut self.policy) {
            policy.moved(moved);
        }
    }

    /// Clears `slots`, which have no current copies.
    pub fn clear(&mut self, slots: std::ops::Range<u32>) {
        let directory = self.directory_mut();
        slots.for_each(|slot| directory.clear(slot));
    }
}

/// Slots moved per batch, which is also the number of concurrent index lookups.
const BATCH: usize = 64;
/// Slots whose memory is freed in one step.
const HAND_OVER_SLOTS: usize = 1 << 18;

/// Copies the contents of `slots` from `old` to `new`, where they are empty.
fn hand_over(old: &dyn Directory<u32>, slots: std::ops::Range<u32>, new: &mut dyn Directory<u32>) {
    let mut copies = Vec::with_capacity(BATCH);
    for slot in slots {
        match old.block_at(slot) {
            Some(block) if old.is_current(slot) => copies.push((block, slot)),
            Some(block) => new.note_superseded(block, slot),
            None => {}
        }
        if copies.len() == BATCH {
            new.place_new(&copies);
            copies.clear();
        }
    }
    new.place_new(&copies);
}

/// A standalone directory. About 9 bytes per slot.
#[derive(Clone, Debug)]
pub struct SlotTable {
    /// Slots by the block in them.
    slot_of: Table,
    /// The block in each slot, current or not, with all bits inverted. Unused slots are zeroed memory that was never
    /// touched, which is not allocated.
    block_at_flipped: Vec<u32>,
    /// A bit for each slot: set if its copy is current.
    current: Vec<u64>,
}

#[inline]
fn hash(block: u32) -> u64 {
    FxBuildHasher.hash_one(block)
}

impl SlotTable {
    /// Creates a directory of `slots` slots, all clear.
    pub fn new(slots: u32) -> SlotTable {
        SlotTable {
            slot_of: Table::with_capacity(slots as usize, slots),
            block_at_flipped: vec![0; slots as usize],
            current: vec![0; (slots as usize).div_ceil(64)],
        }
    }

    /// Copies the contents to the empty directory `new`, last slots first, so that their memory can be freed.
    fn hand_over(mut self, new: &mut dyn Directory<u32>) {
        let blocks = std::mem::take(&mut self.slot_of).len();
        new.reserve(blocks);
        while !self.block_at_flipped.is_empty() {
            let slots = self.block_at_flipped.len();
            let first = slots.saturating_sub(HAND_OVER_SLOTS);
            hand_over(&self, first as u32..slots as u32, new);
            self.block_at_flipped.truncate(first);
            self.block_at_flipped.shrink_to_fit();
        }
    }
}

impl Directory<u32> for SlotTable {
    fn knows(&self, block: u32) -> bool {
        self.slot_of(block).is_some()
    }

    /// Returns false: no policy uses this table.
    fn is_young(&self, _block: u32) -> bool {
        false
    }

    fn set_slots(&mut self, slots: u32) {
        *self = SlotTable::new(slots);
    }

    #[inline]
    fn slot_of(&self, block: u32) -> Option<u32> {
        // Slot 0, which means none here, is the superblock's.
        let is_there = |slot: u32| self.block_at_flipped[slot as usize] == !block;
        Some(self.slot_of.find(hash(block), is_there)).filter(|&slot| slot != 0)
    }

    #[inline]
    fn block_at(&self, slot: u32) -> Option<u32> {
        // No block number has all bits set.
        Some(self.block_at_flipped[slot as usize]).filter(|&flipped| flipped != 0).map(|flipped| !flipped)
    }

    #[inline]
    fn is_current(&self, slot: u32) -> bool {
        self.current[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn len(&self) -> usize {
        self.slot_of.len()
    }

    fn place(&mut self, block: u32, slot: u32) -> Option<Moved> {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        if let Some(old) = self.slot_of(block) {
            let _ = self.supersede(old);
        }
        self.place_new(&[(block, slot)]);
        None
    }

    fn reserve(&mut self, blocks: usize) {
        let SlotTable { slot_of, block_at_flipped, .. } = self;
        slot_of.reserve(blocks, |slot| hash(!block_at_flipped[slot as usize]));
    }

    fn place_new(&mut self, copies: &[(u32, u32)]) {
        for &(block, slot) in copies {
            assert!(!self.is_current(slot), "slot {slot} holds a block");
            debug_assert_eq!(self.slot_of(block), None, "block {block} has a copy");
            let SlotTable { slot_of, block_at_flipped, current } = self;
            block_at_flipped[slot as usize] = !block;
            current[slot as usize / 64] |= 1 << (slot % 64);
            slot_of.insert(hash(block), slot, |slot| hash(!block_at_flipped[slot as usize]));
        }
    }

    fn note_superseded(&mut self, block: u32, slot: u32) {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        self.block_at_flipped[slot as usize] = !block;
    }

    #[inline]
    fn prefetch(&self, block: u32) {
        self.slot_of.prefetch(hash(block));
    }

    fn supersede(&mut self, slot: u32) -> Option<Moved> {
        let SlotTable { slot_of, block_at_flipped, current } = self;
        current[slot as usize / 64] &= !(1 << (slot % 64));
        let found = slot_of.remove(
            hash(!block_at_flipped[slot as usize]),
            |number| number == slot,
            |number| hash(!block_at_flipped[number as usize]),
        );
        assert!(found, "slot {slot} holds no block");
        None
    }

    fn clear(&mut self, slot: u32) {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        self.block_at_flipped[slot as usize] = 0;
    }
}
