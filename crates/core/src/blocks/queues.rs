//! The operations of every policy's table of blocks, independent of the policy's data per block.

use bytemuck::Zeroable;

use super::{Blocks, List};
use crate::directory::Directory;
use crate::index::Index;

/// A policy's table of blocks, cached and ghosts. For a log on flash it is also the [`Directory`].
pub trait Queues<K>: Directory<K> {
    /// True if `block` is cached.
    fn is_cached(&self, block: K) -> bool;

    /// Returns the number of cached blocks.
    fn cached_len(&self) -> usize;

    /// Forgets `block`, cached or a ghost. Returns true if it was cached.
    fn take_out(&mut self, block: K) -> bool;

    /// Sets the young `share` of each list of cached blocks, 0 to 1.
    fn set_young(&mut self, share: f64);

    /// Hints that `later` will be accessed soon, and `soon`, an earlier `later`, even sooner.
    fn prefetch_nodes(&self, soon: K, later: K);
}

impl<I: Index, T: Default + Zeroable> Queues<I::Key> for Blocks<I, T> {
    #[inline]
    fn is_cached(&self, block: I::Key) -> bool {
        self.find(block).is_some_and(|node| self.is_cached_node(node))
    }

    #[inline]
    fn cached_len(&self) -> usize {
        Blocks::cached_len(self)
    }

    #[inline]
    fn take_out(&mut self, block: I::Key) -> bool {
        self.forget(block).is_some_and(|list| list.0 < self.cached_lists)
    }

    fn set_young(&mut self, share: f64) {
        let lists: Vec<_> = (0..self.cached_lists).map(List).collect();
        Blocks::set_young(self, &lists, share);
    }

    #[inline]
    fn prefetch_nodes(&self, soon: I::Key, later: I::Key) {
        self.prefetch_node(soon);
        self.prefetch_index(later);
    }
}
