//! The age of blocks: those in the configured front part of their list are young.
//!
//! A marker on each such list is at the last young block. It moves by one step when a block in front of it leaves or
//! joins. So age costs one bit per block.

use super::{Blocks, List, Node};
use crate::index::Index;

/// The young part of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Young {
    /// The young share of the list; 0 if age is not used.
    pub(super) share: f64,
    /// The last young block's node; the list's head if there is none.
    last: u32,
    /// Number of young blocks.
    len: u32,
}

impl<I: Index, T> Blocks<I, T> {
    /// Sets the young `share` of each of these lists, 0 to 1.
    pub fn set_young(&mut self, lists: &[List], share: f64) {
        assert!(I::SERVES_LOG, "only a log asks for age");
        self.young.resize(self.lens.len(), Young::default());
        for &list in lists {
            let young = &mut self.young[usize::from(list.0)];
            young.share = share;
            if young.len == 0 {
                young.last = u32::from(list.0);
            }
            self.move_marker(list);
        }
    }

    /// True if age is used on `list`.
    #[inline]
    fn has_young(&self, list: List) -> bool {
        I::SERVES_LOG && self.young.get(usize::from(list.0)).is_some_and(|young| young.share > 0.0)
    }

    /// Updates the marker before a node leaves its list.
    #[inline]
    pub(super) fn leaves(&mut self, node: u32) {
        let list = self.nodes[node as usize].list();
        if self.has_young(list) && self.nodes[node as usize].is_young() {
            let Node { prev, .. } = self.nodes[node as usize];
            let young = &mut self.young[usize::from(list.0)];
            young.len -= 1;
            if young.last == node {
                young.last = prev;
            }
            self.nodes[node as usize].set_young(false);
        }
    }

    /// Updates the marker after a node, not young, has joined a list behind another one.
    #[inline]
    pub(super) fn joined(&mut self, node: u32) {
        let list = self.nodes[node as usize].list();
        if !self.has_young(list) {
            return;
        }
        let Node { prev, .. } = self.nodes[node as usize];
        let young = &mut self.young[usize::from(list.0)];
        let head = u32::from(list.0);
        if prev == head || (prev != young.last && self.nodes[prev as usize].is_young()) {
            young.len += 1;
            if young.last == prev {
                young.last = node;
            }
            self.nodes[node as usize].set_young(true);
        }
    }

    /// Updates the marker after the node `from` became `to`, at the same position.
    #[inline]
    pub(super) fn young_moved(&mut self, from: u32, to: u32) {
        let list = self.nodes[to as usize].list();
        if self.has_young(list) {
            let young = &mut self.young[usize::from(list.0)];
            if young.last == from {
                young.last = to;
            }
        }
    }

    /// Moves the marker of `list` to its position, after the list's length or young part changed.
    #[inline]
    pub(super) fn balance(&mut self, list: List) {
        if self.has_young(list) {
            self.move_marker(list);
        }
    }

    fn move_marker(&mut self, list: List) {
        let Blocks { young, nodes, lens, .. } = self;
        let young = &mut young[usize::from(list.0)];
        let wanted = (f64::from(lens[usize::from(list.0)]) * young.share) as u32;
        while young.len > wanted {
            let last = &mut nodes[young.last as usize];
            last.set_young(false);
            young.last = last.prev;
            young.len -= 1;
        }
        while young.len < wanted {
            young.last = nodes[young.last as usize].next;
            nodes[young.last as usize].set_young(true);
            young.len += 1;
        }
    }

    /// Asserts that exactly the front part of `list` is young.
    pub(super) fn check_young(&self, list: List) {
        let young = self.young.get(usize::from(list.0)).copied().unwrap_or_default();
        let wanted = if self.has_young(list) { (self.len(list) as f64 * young.share) as usize } else { 0 };
        assert_eq!(young.len as usize, wanted, "young blocks of {list:?}");
        for (at, key) in self.keys(list).enumerate() {
            let node = self.find(key).expect("it is listed");
            assert_eq!(self.nodes[node.0 as usize].is_young(), at < wanted, "{key:?} is number {at} of {list:?}");
        }
    }
}
