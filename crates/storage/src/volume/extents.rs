//! The allocated extents of a volume: those of the backend, and newer blocks.

use super::BLOCK;
use crate::export::Extent;

/// Returns the extents `stored` from `offset`, with the blocks `newer` (in ascending order) as data.
pub(super) fn overlay(offset: u64, stored: &[Extent], newer: &[u64], extents_max: usize) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut add = |length: u64, like: Extent| match extents.last_mut() {
        Some(last) if (last.hole, last.zero) == (like.hole, like.zero) => last.length += length,
        _ => extents.push(Extent { length, ..like }),
    };
    let data = Extent { length: 0, hole: false, zero: false };
    let mut newer = newer.iter().copied().peekable();
    let mut at = offset;
    for &extent in stored {
        let end = at + extent.length;
        while at < end {
            while newer.next_if(|block| (block + 1) * BLOCK <= at).is_some() {}
            let next = newer.peek().map_or(end, |block| block * BLOCK);
            let (stop, like) = if next <= at { ((next + BLOCK).min(end), data) } else { (next.min(end), extent) };
            add(stop - at, like);
            at = stop;
        }
    }
    extents.truncate(extents_max);
    extents
}
