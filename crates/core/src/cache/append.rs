//! The end of the log, where a cache adds data and records.

use super::unflushed::Unflushed;
use crate::format::Kind;
use crate::frames::Frames;
use crate::layout::containers::Log;
use crate::step::{Cause, Frame, Step};

/// Adds to the end of the log. It releases the frames of segments that are handed out for writing, and flushes the
/// backend before segments that rely on it.
pub(super) struct Appender<'a> {
    pub log: &'a mut Log,
    pub frames: &'a mut Frames,
    pub unflushed: &'a mut Unflushed,
    pub steps: &'a mut Vec<Step>,
}

impl Appender<'_> {
    /// Adds data of a block, and holds its frame.
    pub fn add(&mut self, block: u32, frame: Frame, dirty: bool, cause: Cause) {
        let from = self.steps.len();
        self.frames.hold(frame);
        if let Some(replaced) = self.log.add(block, frame, dirty, cause, self.steps) {
            self.frames.release(replaced);
        }
        self.settle(from);
    }

    /// Adds a record without data.
    pub fn mark(&mut self, kind: Kind, block: u32, slot: u32) {
        let from = self.steps.len();
        self.log.mark(kind, block, slot, self.steps);
        self.settle(from);
    }

    /// Hands out the open segment.
    pub fn seal(&mut self) {
        let from = self.steps.len();
        self.log.seal(self.steps);
        self.settle(from);
    }

    /// Hands out the open segment, and makes the log durable.
    pub fn flush(&mut self) {
        self.seal();
        self.log.flush(self.steps);
    }

    /// Resets the oldest unit.
    pub fn reset_tail(&mut self) {
        let from = self.steps.len();
        self.log.reset_tail(self.steps);
        self.settle(from);
    }

    /// Processes the log's steps from a position.
    fn settle(&mut self, from: usize) {
        let mut at = from;
        while at < self.steps.len() {
            if let Step::Append(segment) = &self.steps[at] {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    self.frames.release(record.frame);
                }
                if segment.needs_backend_flush && self.unflushed.begin_flush() {
                    self.steps.insert(at, Step::FlushBackend { batch: None });
                    at += 1;
                }
            }
            at += 1;
        }
    }
}
