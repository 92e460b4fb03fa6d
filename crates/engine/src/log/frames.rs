//! The content of frames in memory, by place.

use flashwise_core::checksum;
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::step::Step;

use crate::engine::Client;
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation};

/// The content of each place in memory.
pub(super) struct Frames {
    memory: Memory,
    /// True if the content is wrong.
    bad: Vec<bool>,
    /// The checksum of the content, if it was computed while that was in the processor's caches.
    sums: Vec<Option<u32>>,
}

impl Frames {
    /// Creates `places` places, which may all be `blank`, and `more` places for metadata.
    pub fn new(places: u32, more: u32, blank: bool) -> Frames {
        let blank = if blank { places as usize } else { 0 };
        let memory = Memory::with_blank((places + more) as usize, blank);
        Frames { memory, bad: vec![false; places as usize], sums: vec![None; places as usize] }
    }

    /// True if the content at a place is wrong.
    #[inline]
    pub fn is_bad(&self, place: u32) -> bool {
        self.bad[place as usize]
    }

    /// Notes that the content at a place is wrong, or right.
    #[inline]
    pub fn set_bad(&mut self, place: u32, bad: bool) {
        self.bad[place as usize] = bad;
    }

    /// Returns the content at a place.
    pub fn page(&self, place: u32) -> &Page {
        self.memory.page(place)
    }

    /// Returns the content at a place, to be changed.
    pub fn page_mut(&mut self, place: u32) -> &mut Page {
        self.sums[place as usize] = None;
        self.memory.page_mut(place)
    }

    /// Returns a page of metadata, to be changed.
    pub fn metadata_mut(&mut self, place: u32) -> &mut Page {
        self.memory.page_mut(place)
    }

    /// Returns the checksum of the content at a place.
    pub fn sum(&mut self, place: u32) -> u32 {
        let page = self.memory.page(place);
        let sum = *self.sums[place as usize].get_or_insert_with(|| checksum::crc32c(page));
        debug_assert_eq!(sum, checksum::crc32c(page), "the content of place {place} has this checksum");
        sum
    }

    /// Returns the memory of a place for a transfer. A read changes its content.
    pub fn buffer(&mut self, operation: Operation, place: u32) -> Buffer {
        if operation == Operation::Read {
            self.sums[place as usize] = None;
        }
        self.memory.buffer(place, 1)
    }

    /// True if the content at a place, which was read from flash, has this checksum.
    pub fn is_right(&mut self, place: u32, sum: u32) -> bool {
        // An earlier attempt may have left another one.
        self.sums[place as usize] = None;
        self.sum(place) == sum
    }

    /// Moves bytes between places and the request of a `client`, as a step says. Returns false if they are missing.
    pub fn move_bytes(&mut self, step: &Step, client: Option<&mut Client>) -> bool {
        let has_client = "a request waits for its own bytes";
        match *step {
            Step::Receive { frame, at, length, from, .. } => {
                let whole = usize::from(length) == BLOCK_BYTES;
                if !self.can_fill(frame.number, whole) {
                    return false;
                }
                let data = &client.expect(has_client).request.data;
                let bytes = &data[from as usize..from as usize + usize::from(length)];
                self.page_mut(frame.number)[at.into()..][..bytes.len()].copy_from_slice(bytes);
                // The bytes of a long request leave the processor's caches before they are written.
                if whole && bytes.len() < data.len() {
                    self.sum(frame.number);
                }
            }
            Step::Send { frame, at, length, to, .. } => {
                if self.is_bad(frame.number) {
                    return false;
                }
                client.expect(has_client).put(to as usize, &self.page(frame.number)[at.into()..][..length.into()]);
            }
            Step::Zero { frame, at, length } => {
                if !self.can_fill(frame.number, usize::from(length) == BLOCK_BYTES) {
                    return false;
                }
                self.page_mut(frame.number)[at.into()..][..length.into()].fill(0);
            }
            Step::Copy { from, to, .. } => {
                let bad = self.is_bad(from.number);
                self.set_bad(to.number, bad);
                if bad {
                    return false;
                }
                self.memory.copy(from.number, to.number);
                self.sums[to.number as usize] = self.sums[from.number as usize];
            }
            _ => unreachable!("a step that moves bytes"),
        }
        true
    }

    /// True if bytes can be put at a place: the `whole` content, or a part of right content.
    fn can_fill(&mut self, place: u32, whole: bool) -> bool {
        let bad = &mut self.bad[place as usize];
        *bad &= !whole;
        !*bad
    }
}
