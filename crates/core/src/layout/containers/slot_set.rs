//! A set of slots, counted by unit.

use crate::format::Geometry;

/// Slots of a log. The first one allocates its memory: a bit for each slot.
#[derive(Debug)]
pub(super) struct SlotSet {
    geometry: Geometry,
    bits: Vec<u64>,
    /// The number of its slots in each unit, and in all.
    by_unit: Vec<u32>,
    total: u64,
}

impl SlotSet {
    /// Returns the empty set.
    pub fn new(geometry: Geometry) -> SlotSet {
        SlotSet { geometry, bits: Vec::new(), by_unit: vec![0; geometry.units as usize], total: 0 }
    }

    /// True if the set contains a slot.
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.bits.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Adds a slot, which the set must not contain.
    pub fn insert(&mut self, slot: u32) {
        assert!(!self.contains(slot), "slot {slot} is added once");
        if self.bits.is_empty() {
            self.bits = vec![0; (self.geometry.pages() as usize).div_ceil(64)];
        }
        self.bits[slot as usize / 64] |= 1 << (slot % 64);
        self.by_unit[(slot / self.geometry.unit_pages) as usize] += 1;
        self.total += 1;
    }

    /// Removes a slot. Returns true if the set contained it.
    pub fn remove(&mut self, slot: u32) -> bool {
        let contained = self.contains(slot);
        if contained {
            self.bits[slot as usize / 64] &= !(1 << (slot % 64));
            self.by_unit[(slot / self.geometry.unit_pages) as usize] -= 1;
            self.total -= 1;
        }
        contained
    }

    /// Returns the number of its slots in a unit.
    pub fn in_unit(&self, unit: u32) -> u32 {
        self.by_unit[unit as usize]
    }

    /// Returns the number of its slots.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns its slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.geometry.pages()).filter(|&slot| self.contains(slot))
    }
}
