//! The places of frames in memory.
//!
//! The cache refills its frames in turn, and does not know which steps still use the old contents. A quick read would
//! wait for a slow one that happened to have the same frame before. So a frame that gets new content while steps use
//! the old one moves to a spare place, if there is one. The old place becomes spare once those steps end.
//!
//! Source: register renaming, Tomasulo: An efficient algorithm for exploiting multiple arithmetic units. IBM Journal of
//! Research and Development, 1967.

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::Order;
use flashwise_core::step::{Frame, JournalPart, Step};

/// The place of each frame, and the places that are spare.
#[derive(Debug)]
pub struct Places {
    of_frame: Vec<u32>,
    /// The frame that was last at each place.
    frame_at: Vec<u32>,
    spare: Vec<u32>,
    is_spare: Vec<bool>,
    /// Idle places of free frames, the last used last, and which of them are still that.
    hot: Vec<u32>,
    is_hot: Vec<bool>,
    /// The one that was taken last.
    taken: u32,
}

/// Most idle places that are looked at for adjacent ones.
const ADJACENT_MAX: u32 = 63;

impl Places {
    /// Each of `frames` frames at the place of its number, and `spare` places after them.
    pub fn new(frames: u32, spare: u32) -> Places {
        Places {
            of_frame: (0..frames).collect(),
            frame_at: (0..frames + spare).collect(),
            spare: (frames..frames + spare).rev().collect(),
            is_spare: (0..frames + spare).map(|place| place >= frames).collect(),
            hot: Vec::new(),
            is_hot: vec![false; (frames + spare) as usize],
            taken: frames + spare,
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

    /// Handles the end of the last step that uses a place. `is_free`: no later step needs the content of its frame.
    #[inline]
    pub fn idle(&mut self, place: u32, is_free: bool) {
        let frame = self.frame_at[place as usize];
        if self.of_frame[frame as usize] != place {
            if !std::mem::replace(&mut self.is_spare[place as usize], true) {
                self.spare.push(place);
            }
        } else if is_free && self.hot.len() < self.frame_at.len() {
            self.is_hot[place as usize] = true;
            self.hot.push(place);
        }
    }

    /// Notes that a step uses a place.
    #[inline]
    fn note_use(&mut self, place: u32) {
        self.is_hot[place as usize] = false;
    }

    /// Exchanges the idle place of a frame that gets new content for an idle place that was used last. The bytes there
    /// are probably in the processor's caches. Frames that get content in turn get adjacent places, so that a transfer
    /// has few buffers.
    #[inline]
    fn take_hot(&mut self, frame: u32) {
        let next = self.taken + 1;
        if self.is_hot.get(next as usize) == Some(&true) {
            return self.exchange(frame, next);
        }
        while let Some(last) = self.hot.pop() {
            if self.is_hot[last as usize] {
                let before = (last.saturating_sub(ADJACENT_MAX)..last).rev();
                let first = before.take_while(|&place| self.is_hot[place as usize]).last();
                if let Some(first) = first {
                    self.hot.push(last);
                    return self.exchange(frame, first);
                }
                return self.exchange(frame, last);
            }
        }
    }

    fn exchange(&mut self, frame: u32, place: u32) {
        let (other, old) = (self.frame_at[place as usize], self.of_frame[frame as usize]);
        self.is_hot[place as usize] = false;
        self.taken = place;
        (self.of_frame[frame as usize], self.of_frame[other as usize]) = (place, old);
        (self.frame_at[place as usize], self.frame_at[old as usize]) = (frame, other);
    }

    /// From now on, the step's frames are numbered by their places.
    pub fn place_frames(&mut self, order: &Order, step: &mut Step) {
        for_each_frame(step, |frame, is_filled_anew| self.place_frame(order, frame, is_filled_anew));
    }

    /// The step's frames are numbered as the cache knows them again.
    pub fn unplace_frames(&self, step: &mut Step) {
        for_each_frame(step, |frame, _| frame.number = self.frame_at(frame.number));
    }

    /// Numbers a frame by its place, which may be another one if the frame `is_filled_anew`.
    #[inline]
    pub fn place_frame(&mut self, order: &Order, frame: &mut Frame, is_filled_anew: bool) {
        if is_filled_anew {
            match order.place(self.of(frame.number)).is_idle() {
                true => self.take_hot(frame.number),
                false => self.move_frame(frame.number),
            }
        }
        frame.number = self.of(frame.number);
        self.note_use(frame.number);
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
        Step::WriteJournal(write) => {
            if let JournalPart::Blocks { frames, .. } = &mut write.part {
                frames.iter_mut().for_each(|frame| visit(frame, false));
            }
        }
        _ => {}
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
        places.idle(1, true);
        places.idle(1, true);
        places.move_frame(0);
        assert_eq!((places.of(0), places.of(1)), (1, 2));
        places.move_frame(1);
        assert_eq!(places.of(1), 2);
    }

    #[test]
    fn a_place_that_a_frame_has_is_never_spare() {
        let mut places = Places::new(1, 1);
        places.idle(0, false);
        places.move_frame(0);
        places.move_frame(0);
        assert_eq!(places.of(0), 1);
    }

    #[test]
    fn frames_take_adjacent_places_that_were_used_last_and_whose_content_no_step_needs() {
        let mut places = Places::new(6, 0);
        [1, 3, 4].into_iter().for_each(|place| places.idle(place, true));
        places.idle(5, false);
        places.take_hot(0);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|frame| places.of(frame)), [3, 1, 2, 0, 4, 5]);
        places.take_hot(2);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|frame| places.of(frame)), [3, 1, 4, 0, 2, 5]);
        // Its content is needed again.
        places.note_use(1);
        places.take_hot(5);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|frame| places.of(frame)), [3, 1, 4, 0, 2, 5]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|place| places.frame_at(place)), [3, 1, 4, 0, 2, 5]);
    }
}
