//! Which steps wait for which: readers of a thing for its last writer, a writer for all before it.

use smallvec::SmallVec;

/// A step's place in the engine's table of steps.
pub type StepId = u32;

/// The unfinished steps that use one thing: a frame, or a block of the backend.
#[derive(Debug, Default)]
pub struct Hazard {
    writer: Option<StepId>,
    /// Few, mostly: they need no memory of their own.
    readers: SmallVec<[StepId; 4]>,
}

impl Hazard {
    /// A thing that one step at most uses, which writes it.
    pub fn written_by(writer: Option<StepId>) -> Hazard {
        Hazard { writer, ..Hazard::default() }
    }

    /// Whether a reader has to wait.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.writer.is_some()
    }

    /// The last unfinished step that writes it.
    pub fn writer(&self) -> Option<StepId> {
        self.writer
    }

    /// Whether no unfinished step uses the thing.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty()
    }

    /// Adds a reader; `wait` is told of the step that it has to wait for.
    pub fn read(&mut self, step: StepId, mut wait: impl FnMut(StepId)) {
        if let Some(writer) = self.writer
            && writer != step
        {
            wait(writer);
        }
        if self.readers.last() != Some(&step) {
            self.readers.push(step);
        }
    }

    /// Adds a writer; `wait` is told of the steps that it has to wait for.
    pub fn write(&mut self, step: StepId, mut wait: impl FnMut(StepId)) {
        if let Some(writer) = self.writer {
            wait(writer);
        }
        for reader in self.readers.drain(..) {
            wait(reader);
        }
        self.writer = Some(step);
    }

    /// Takes a step out that is done.
    pub fn end(&mut self, step: StepId) {
        if self.writer == Some(step) {
            self.writer = None;
        }
        self.readers.retain(|reader| *reader != step);
    }
}
