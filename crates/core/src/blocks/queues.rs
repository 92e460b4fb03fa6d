//! What every policy asks its table of blocks, whatever it keeps of each.

use bytemuck::Zeroable;

use super::{Blocks, List};
use crate::directory::Directory;
use crate::index::Index;

/// A policy's table of blocks: which are in the cache and which are ghosts. For a log on flash it is the [`Directory`] as well.
pub trait Queues<K>: Directory<K> {
    /// Whether `block` is in the cache.
    fn is_cached(&self, block: K) -> bool;

    /// Number of blocks in the cache.
    fn cached_len(&self) -> usize;

    /// Forgets `block`, cached or a ghost; whether it was in the cache.
    fn take_out(&mut self, block: K) -> bool;

    /// From now on a `share` of each list of cached blocks, 0 to 1, is young.
    fn set_young(&mut self, share: f64);

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
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
