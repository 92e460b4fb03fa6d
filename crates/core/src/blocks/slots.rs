//! The table of a policy's blocks as the directory of a log.

use bytemuck::Zeroable;
use bytemuck::allocation::zeroed_vec;

use super::{Blocks, FREE, LOOSE_NODES_MIN, Node, NodeId, SUPERSEDED, UNLISTED, is_current};
use crate::directory::{Directory, Moved};
use crate::index::Index;

impl<I: Index, T: Default> Blocks<I, T> {
    #[inline]
    fn node_of(&self, slot: u32) -> u32 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.lens.len() as u32 + slot
    }

    /// Moves the block of `from` to the node `to`, at the same position of its list.
    fn move_node(&mut self, from: u32, to: u32) -> Option<Moved> {
        let Node { key, prev, next, .. } = self.nodes[from as usize];
        let list = self.nodes[from as usize].list();
        self.nodes[to as usize] = self.nodes[from as usize];
        let Blocks { index, nodes, .. } = self;
        index.replace(key, from, to, |node| nodes[node as usize].key);
        self.data[to as usize] = std::mem::take(&mut self.data[from as usize]);
        if list == UNLISTED {
            return None;
        }
        self.nodes[prev as usize].next = to;
        self.nodes[next as usize].prev = to;
        self.young_moved(from, to);
        Some(Moved { from: NodeId(from), to: NodeId(to) })
    }
}

impl<I: Index, T: Default + Zeroable> Directory<I::Key> for Blocks<I, T> {
    fn set_slots(&mut self, slots: u32) {
        assert!(I::SERVES_LOG, "blocks in a log are found by an index that serves one");
        assert_eq!(self.nodes.len(), self.lens.len(), "slots are laid out before the first block");
        self.slots = slots;
        // Zeroed memory that was never touched: slots that never held a block take none.
        let nodes = self.nodes.len() + slots as usize;
        let heads = std::mem::replace(&mut self.nodes, zeroed_vec(nodes + LOOSE_NODES_MIN));
        self.nodes.truncate(nodes);
        self.nodes[..heads.len()].copy_from_slice(&heads);
        self.data = zeroed_vec(nodes + LOOSE_NODES_MIN);
        self.data.truncate(nodes);
    }

    #[inline]
    fn slot_of(&self, block: I::Key) -> Option<u32> {
        let node = self.indexed(block);
        self.is_slot(node).then(|| node - self.lens.len() as u32)
    }

    #[inline]
    fn block_at(&self, slot: u32) -> Option<I::Key> {
        let node = self.node_of(slot) as usize;
        (self.nodes[node].list() != FREE).then(|| self.nodes[node].key)
    }

    #[inline]
    fn is_current(&self, slot: u32) -> bool {
        is_current(self.nodes[self.node_of(slot) as usize].list())
    }

    fn knows(&self, block: I::Key) -> bool {
        self.indexed(block) != 0
    }

    fn is_young(&self, block: I::Key) -> bool {
        self.find(block).is_some_and(|node| self.nodes[node.0 as usize].is_young())
    }

    fn len(&self) -> usize {
        self.placed as usize
    }

    fn place(&mut self, block: I::Key, slot: u32) -> Option<Moved> {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        let (from, to) = (self.indexed(block), self.node_of(slot));
        if from == 0 {
            self.place_new(&[(block, slot)]);
            return None;
        }
        let moved = self.move_node(from, to);
        if self.is_slot(from) {
            self.nodes[from as usize].set_list(SUPERSEDED);
        } else {
            self.placed += 1;
            self.free(from);
        }
        moved
    }

    fn reserve(&mut self, blocks: usize) {
        let Blocks { index, nodes, .. } = self;
        index.reserve(blocks, |node| nodes[node as usize].key);
    }

    fn place_new(&mut self, copies: &[(I::Key, u32)]) {
        copies.iter().for_each(|&(block, _)| self.index.prefetch(block));
        for &(block, slot) in copies {
            assert!(!self.is_current(slot), "slot {slot} holds a block");
            debug_assert_eq!(self.indexed(block), 0, "{block:?} is known already");
            self.placed += 1;
            let to = self.node_of(slot);
            self.nodes[to as usize].key = block;
            self.nodes[to as usize].set_list(UNLISTED);
            let Blocks { index, nodes, .. } = self;
            index.insert(block, to, |node| nodes[node as usize].key);
        }
    }

    fn note_superseded(&mut self, block: I::Key, slot: u32) {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        let node = self.node_of(slot) as usize;
        self.nodes[node].key = block;
        self.nodes[node].set_list(SUPERSEDED);
    }

    #[inline]
    fn prefetch(&self, block: I::Key) {
        self.index.prefetch(block);
    }

    fn supersede(&mut self, slot: u32) -> Option<Moved> {
        assert!(self.is_current(slot), "slot {slot} holds no block");
        self.placed -= 1;
        let from = self.node_of(slot);
        let key = self.nodes[from as usize].key;
        let moved = if self.nodes[from as usize].list() == UNLISTED {
            let Blocks { index, nodes, .. } = self;
            index.remove(key, |node| nodes[node as usize].key);
            None
        } else {
            let to = self.take_free(key, T::default());
            self.move_node(from, to)
        };
        self.nodes[from as usize].set_list(SUPERSEDED);
        moved
    }

    fn clear(&mut self, slot: u32) {
        assert!(!self.is_current(slot), "slot {slot} holds a block");
        let node = self.node_of(slot) as usize;
        self.nodes[node].set_list(FREE);
    }
}
