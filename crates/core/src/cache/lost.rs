//! Blocks whose only copy was lost: who knows of it, and what that is to a flush.

use super::{Cache, LogCache};

/// Who knows of a block that its only copy was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing but this, before the next flush.
    Unsaid,
    /// Nothing but this, and whoever performs the steps has what it should hold: see [`Cache::keep`].
    Kept,
    /// The unit of this sequence says so.
    Said(u64),
}

/// Where what a lost block is to hold goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// To flash, until it is written back.
    Flash,
    /// To the backend: nothing says that it is lost.
    Backend,
    /// To the backend, and clean to flash, which says that it is lost and has no room for more that is dirty.
    Both,
}

impl LogCache {
    /// Where what a block is to hold goes, if it is lost.
    pub(super) fn anew(&self, block: u32) -> Option<Anew> {
        let lost = self.lost.get(&block)?;
        Some(match lost {
            _ if !self.has_flash => Anew::Backend,
            _ if self.has_room_for_dirty() => Anew::Flash,
            Lost::Said(_) => Anew::Both,
            Lost::Unsaid | Lost::Kept => Anew::Backend,
        })
    }

    /// Whether a flush can be true to its word.
    pub(super) fn can_be_durable(&self) -> bool {
        self.leaves_lost || self.lost.is_empty() || self.not_durable_blocks().is_empty()
    }

    /// Blocks of which nothing but memory knows what they should hold, or that they are lost: no flush may be answered for them before they are
    /// written anew. In order.
    pub fn not_durable_blocks(&self) -> Vec<u32> {
        if !self.has_flash {
            return self.lost_blocks();
        }
        let mut kept: Vec<u32> = self.lost.keys().copied().filter(|&block| self.is_kept(block)).collect();
        kept.sort_unstable();
        kept
    }

    /// From now on, whoever asks for flushes sees by themselves to [what is not durable](Self::not_durable_blocks): it fails none.
    pub fn leave_lost(&mut self) {
        self.leaves_lost = true;
    }

    /// Goes on without the flash from a cache that had one, maybe: what was lost there is lost until it is written anew.
    pub fn take_over_lost(&mut self, before: Option<&LogCache>, blocks: impl IntoIterator<Item = u32>) {
        self.leaves_lost |= before.is_some_and(|before| before.leaves_lost);
        self.lost.extend(blocks.into_iter().map(|block| (block, Lost::Unsaid)));
    }
}
