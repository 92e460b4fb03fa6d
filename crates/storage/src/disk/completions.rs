//! Passes completions from several threads to one function, in batches. Never calls it from two threads concurrently.

use super::{Completed, Completion};
use crate::time::{self, JoinHandle, Mutex};

/// Passes completions from several threads to one function.
pub(super) struct Completions {
    waiting: Mutex<WaitingTransfer>,
    /// Locked only by the thread that set `delivering`.
    completed: Mutex<Completed>,
}

#[derive(Default)]
struct WaitingTransfer {
    completions: Vec<Completion>,
    /// True while a thread calls the function. That thread also delivers the completions that arrive meanwhile.
    delivering: bool,
}

impl Completions {
    pub(super) fn new(completed: Completed) -> Self {
        Self { waiting: Mutex::default(), completed: Mutex::new(completed) }
    }

    /// Delivers a batch, now or by the thread that is delivering already. The batch is empty afterwards.
    pub(super) fn give(&self, batch: &mut Vec<Completion>) {
        if batch.is_empty() {
            return;
        }
        {
            let mut waiting = self.waiting.lock();
            waiting.completions.append(batch);
            if waiting.delivering {
                return;
            }
            waiting.delivering = true;
            std::mem::swap(&mut waiting.completions, batch);
        }
        let mut completed = self.completed.lock();
        while !batch.is_empty() {
            // Marks the thread as being inside the function.
            let nested = time::mark(true);
            completed(batch);
            time::mark(nested);
            batch.clear();
            let mut waiting = self.waiting.lock();
            std::mem::swap(&mut waiting.completions, batch);
            waiting.delivering = !batch.is_empty();
        }
    }
}

/// Waits for a thread to end, unless called from the completion function, which that thread may be waiting for.
pub(super) fn join(thread: JoinHandle) {
    if !time::is_marked() {
        thread.join().expect("a panic in it aborts the process");
    }
}
