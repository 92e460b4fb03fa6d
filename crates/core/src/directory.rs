//! Which block is in each slot of a log, and which slot a block is in.

use crate::blocks::NodeId;

/// What is in the slots of a log. A slot holds the copy of a block, or did, or nothing; a block has one copy at most.
///
/// A policy's table of blocks is one: see [`blocks`](crate::blocks).
pub trait Directory<K> {
    /// Makes a directory of no blocks one of `slots` slots, all clear.
    fn set_slots(&mut self, slots: u32);

    /// The slot of the copy of `block`.
    fn slot_of(&self, block: K) -> Option<u32>;

    /// The block that was put into `slot` last, superseded or not, unless the slot was cleared since.
    fn block_at(&self, slot: u32) -> Option<K>;

    /// Whether the copy of a block is in `slot`.
    fn is_current(&self, slot: u32) -> bool;

    /// Whether anything is known of `block`: it has a copy, or a policy remembers it.
    fn knows(&self, block: K) -> bool;

    /// Whether a policy remembers `block` and it is young: in the front part of its list, as was set.
    fn is_young(&self, block: K) -> bool;

    /// Slots with the copy of a block.
    fn len(&self) -> usize;

    /// Whether no slot has one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `block` into `slot`, in which no block is; the copy that it has elsewhere is superseded.
    fn place(&mut self, block: K, slot: u32) -> Option<Moved>;

    /// Makes room for the copies of `blocks` in all, where they are to come soon.
    fn reserve(&mut self, blocks: usize);

    /// Puts blocks into slots, in which none is. Nothing is known of the blocks yet, and each is there once.
    fn place_new(&mut self, copies: &[(K, u32)]);

    /// Notes that the copy of `block` that was in `slot` is superseded.
    fn note_superseded(&mut self, block: K, slot: u32);

    /// A hint that `block` will be looked up soon.
    fn prefetch(&self, block: K);

    /// The block in `slot` has no copy any more.
    fn supersede(&mut self, slot: u32) -> Option<Moved>;

    /// Forgets which block was in `slot`, in which none is.
    fn clear(&mut self, slot: u32);
}

/// A block that a policy remembers has another node: what the policy knows as `from` is `to` now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Moved {
    /// The node that it had.
    pub from: NodeId,
    /// The node that it has.
    pub to: NodeId,
}
