//! Where threads that end transfers meet the function that is told of it: one at a time, and all that has come up since.

use super::{Completed, Completion};
use crate::time::{self, JoinHandle, Mutex};

/// Gives completions of several threads to one function.
pub(super) struct Completions {
    waiting: Mutex<Waiting>,
    /// Locked only by the thread that set `delivering`.
    completed: Mutex<Completed>,
}

#[derive(Default)]
struct Waiting {
    completions: Vec<Completion>,
    /// True if a thread calls the function, and will call it again for what it finds waiting.
    delivering: bool,
}

impl Completions {
    pub(super) fn new(completed: Completed) -> Self {
        Self { waiting: Mutex::default(), completed: Mutex::new(completed) }
    }

    /// Gives a batch to the function, now or by the thread that is calling it; leaves the batch empty.
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
            // The mark of a thread says that the function is calling.
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

/// Waits for a thread to end, unless the function that takes completions is calling, which that thread may wait for.
pub(super) fn join(thread: JoinHandle) {
    if !time::is_marked() {
        thread.join().expect("a panic in it aborts the process");
    }
}
