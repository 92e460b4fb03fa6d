//! Readers of a thing wait for its last writer, and a writer for all steps before it.

use super::StepId;

/// The unfinished steps that use one thing: a place in memory, or a block of the backend.
#[derive(Debug, Default)]
pub struct Hazard {
    writer: Option<StepId>,
    readers: Vec<StepId>,
}

impl Hazard {
    /// Resets the users to at most one step, which writes the thing. The memory for readers is kept.
    pub(super) fn reset(&mut self, writer: Option<StepId>) {
        self.writer = writer;
        self.readers.clear();
    }

    /// True if a reader has to wait.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.writer.is_some()
    }

    /// Returns the last unfinished step that writes it.
    pub fn writer(&self) -> Option<StepId> {
        self.writer
    }

    /// True if no unfinished step uses the thing.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty()
    }

    /// Adds a reader; `wait` receives the step that it has to wait for.
    #[inline]
    pub(super) fn read(&mut self, step: StepId, mut wait: impl FnMut(StepId)) {
        if let Some(writer) = self.writer
            && writer != step
        {
            wait(writer);
        }
        if self.readers.last() != Some(&step) {
            self.readers.push(step);
        }
    }

    /// Adds a writer; `wait` receives the steps that it has to wait for.
    #[inline]
    pub(super) fn write(&mut self, step: StepId, mut wait: impl FnMut(StepId)) {
        if let Some(writer) = self.writer {
            wait(writer);
        }
        for reader in self.readers.drain(..) {
            wait(reader);
        }
        self.writer = Some(step);
    }

    /// Two steps take the place of an unfinished one: the first where it was, the other as a reader behind it.
    pub(super) fn replace(&mut self, step: StepId, first: StepId, reader: StepId) {
        if self.writer == Some(step) {
            self.writer = Some(first);
            self.readers.push(reader);
        }
        self.readers.iter_mut().filter(|other| **other == step).for_each(|other| *other = first);
    }

    /// Removes a step that has ended.
    #[inline]
    pub(super) fn end(&mut self, step: StepId) {
        if self.writer == Some(step) {
            self.writer = None;
        }
        self.readers.retain(|reader| *reader != step);
    }
}
