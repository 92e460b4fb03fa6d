//! The map between blocks and the slots of a log.

use crate::blocks::NodeId;

/// The contents of the slots of a log. A slot holds the current copy of a block, a superseded copy, or nothing; a block
/// has at most one current copy.
///
/// A policy's table of blocks is a directory: see [`blocks`](crate::blocks).
pub trait Directory<K> {
    /// Gives an empty directory `slots` slots, all clear.
    fn set_slots(&mut self, slots: u32);

    /// Returns the slot of the copy of `block`.
    fn slot_of(&self, block: K) -> Option<u32>;

    /// Returns the block that was placed in `slot` last, superseded or not, unless the slot was cleared since.
    fn block_at(&self, slot: u32) -> Option<K>;

    /// True if `slot` holds the current copy of a block.
    fn is_current(&self, slot: u32) -> bool;

    /// True if `block` has a copy, or a policy remembers it.
    fn knows(&self, block: K) -> bool;

    /// True if a policy remembers `block` and it is young: in the front part of its list, as configured.
    fn is_young(&self, block: K) -> bool;

    /// Returns the number of slots with a current copy.
    fn len(&self) -> usize;

    /// True if no slot has a current copy.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places `block` in the free `slot`; its copy elsewhere is superseded.
    fn place(&mut self, block: K, slot: u32) -> Option<Moved>;

    /// Reserves room for copies of `blocks` in total, before they are placed.
    fn reserve(&mut self, blocks: usize);

    /// Places new blocks in free slots. The blocks are unknown so far, and each occurs once.
    fn place_new(&mut self, copies: &[(K, u32)]);

    /// Records a superseded copy of `block` in `slot`.
    fn note_superseded(&mut self, block: K, slot: u32);

    /// Hints that `block` will be looked up soon.
    fn prefetch(&self, block: K);

    /// Supersedes the copy in `slot`: its block has no copy any more.
    fn supersede(&mut self, slot: u32) -> Option<Moved>;

    /// Clears `slot`, which has no current copy.
    fn clear(&mut self, slot: u32);
}

/// The move of a block's data from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Moved {
    /// The old node.
    pub from: NodeId,
    /// The new node.
    pub to: NodeId,
}
