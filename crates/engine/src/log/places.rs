//! The places of frames in memory.
//!
//! The cache refills its frames in turn, and does not know which steps still use the old contents. A quick read would
//! wait for a slow one that happened to have the same frame before. So a frame that gets new content while steps use
//! the old one moves to a spare place, if there is one. The old place becomes spare once those steps end.
//!
//! Source: register renaming, Tomasulo: An efficient algorithm for exploiting multiple arithmetic units. IBM Journal of
//! Research and Development, 1967.

use flashwise_core::cache::Cache;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::step::{Frame, Step};

use super::Engine;

/// The place of each frame, and the places that are spare.
#[derive(Debug)]
pub struct Places {
    of_frame: Vec<u32>,
    /// The frame that was last at each place.
    frame_at: Vec<u32>,
    spare: Vec<u32>,
    is_spare: Vec<bool>,
}

impl Places {
    /// Each of `frames` frames at the place of its number, and `spare` places after them.
    pub fn new(frames: u32, spare: u32) -> Places {
        Places {
            of_frame: (0..frames).collect(),
            frame_at: (0..frames + spare).collect(),
            spare: (frames..frames + spare).rev().collect(),
            is_spare: (0..frames + spare).map(|place| place >= frames).collect(),
        }
    }

    /// All places.
    pub fn count(&self) -> u32 {
        self.frame_at.len() as u32
    }

    /// Places that are spare.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Where the content of a frame is.
    #[inline]
    pub fn of(&self, frame: u32) -> u32 {
        self.of_frame[frame as usize]
    }

    /// Returns the frame whose content, maybe an old one, is at a place.
    pub fn frame_at(&self, place: u32) -> u32 {
        self.frame_at[place as usize]
    }

    /// Moves a frame to another place before it gets new content. Without a spare place it stays.
    pub fn move_frame(&mut self, frame: u32) {
        if let Some(place) = self.spare.pop() {
            self.is_spare[place as usize] = false;
            self.frame_at[place as usize] = frame;
            self.of_frame[frame as usize] = place;
        }
    }

    /// Handles the end of the last step that uses a place.
    #[inline]
    pub fn idle(&mut self, place: u32) {
        let frame = self.frame_at[place as usize];
        if self.of_frame[frame as usize] != place && !self.is_spare[place as usize] {
            self.is_spare[place as usize] = true;
            self.spare.push(place);
        }
    }
}

/// Calls `visit` with each frame of a step, and true if the step fills the frame.
#[inline]
fn for_each_frame(step: &mut Step, mut visit: impl FnMut(&mut Frame, bool)) {
    match step {
        Step::Receive { frame, length, .. } | Step::Zero { frame, length, .. } => {
            let is_whole = usize::from(*length) == BLOCK_BYTES;
            visit(frame, is_whole);
        }
        Step::ReadFlash { frame, .. } | Step::ReadBackend { frame, .. } => visit(frame, true),
        Step::Send { frame, .. } | Step::WriteBackend { frame, .. } => visit(frame, false),
        Step::Copy { from, to, .. } => {
            visit(from, false);
            visit(to, true);
        }
        Step::Append(segment) => {
            let records = segment.records.iter_mut().filter(|record| record.kind.has_data());
            records.for_each(|record| visit(&mut record.frame, false));
        }
        _ => {}
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// From now on, the step's frames are numbered by their places.
    pub(super) fn place_frames(&mut self, step: &mut Step) {
        for_each_frame(step, |frame, is_filled_anew| self.place_frame(frame, is_filled_anew));
    }

    /// The step's frames are numbered as the cache knows them again.
    pub(super) fn unplace_frames(&self, step: &mut Step) {
        for_each_frame(step, |frame, _| frame.number = self.layout.places.frame_at(frame.number));
    }

    #[inline]
    fn place_frame(&mut self, frame: &mut Frame, is_filled_anew: bool) {
        if is_filled_anew && !self.order.place(self.layout.places.of(frame.number)).is_idle() {
            self.layout.places.move_frame(frame.number);
        }
        frame.number = self.layout.places.of(frame.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames 0 and 1, and a spare place 2.
    #[test]
    fn a_place_that_a_frame_left_is_spare_once_it_is_idle() {
        let mut places = Places::new(2, 1);
        places.move_frame(1);
        assert_eq!((places.of(0), places.of(1), places.frame_at(1)), (0, 2, 1));
        // Without a spare place, it stays.
        places.move_frame(0);
        assert_eq!(places.of(0), 0);
        places.idle(1);
        places.idle(1);
        places.move_frame(0);
        assert_eq!((places.of(0), places.of(1)), (1, 2));
        places.move_frame(1);
        assert_eq!(places.of(1), 2);
    }

    #[test]
    fn a_place_that_a_frame_has_is_never_spare() {
        let mut places = Places::new(1, 1);
        places.idle(0);
        places.move_frame(0);
        places.move_frame(0);
        assert_eq!(places.of(0), 1);
    }
}
