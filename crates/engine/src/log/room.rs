//! Changes that wait, before they are planned, until more is written back.

use crate::engine::{Asked, WaitingRequests};
use crate::request::{Done, Request};

/// A waiting change, with the time when it came.
type Waiting = (Request, Done, Asked, u64);

/// The waiting changes.
#[derive(Default)]
pub(super) struct Room {
    /// In the order in which they came.
    waiting: WaitingRequests<Waiting>,
    /// True while they are begun.
    begins: bool,
}

impl Room {
    /// Returns the number of waiting changes.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a change after all others.
    pub fn push(&mut self, (request, done, asked, now_us): Waiting) {
        let (operation, bytes) = (request.operation, request.bytes());
        self.waiting.push(operation, &bytes, (request, done, asked, now_us));
    }

    /// Takes the first change.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop()
    }

    /// Takes the first change, unless it still `must_wait`.
    pub fn next(&mut self, must_wait: impl FnOnce(&Request) -> bool) -> Option<Waiting> {
        let (request, done, asked, since_us) = self.waiting.pop()?;
        if !must_wait(&request) {
            return Some((request, done, asked, since_us));
        }
        let (operation, bytes) = (request.operation, request.bytes());
        self.waiting.push_front(operation, &bytes, (request, done, asked, since_us));
        None
    }

    /// Begins to take changes, if there are some. False while that is in progress.
    pub fn begin(&mut self) -> bool {
        self.len() > 0 && !std::mem::replace(&mut self.begins, true)
    }

    /// Ends that. Returns true if there was one of `before`, and others still wait.
    pub fn end(&mut self, before: usize) -> bool {
        self.begins = false;
        (1..before).contains(&self.len())
    }
}
