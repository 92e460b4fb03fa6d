//! Failed flushes already reported to each logical disk. A failed flush may lose changes of any logical disk,
//! regardless of who requested it. So each logical disk with changes at that time gets one error.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the changes of a logical disk, those that are durable, and the failed flushes reported to it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Changes requested.
    begun: AtomicU64,
    /// Changes completed.
    ended: AtomicU64,
    /// Changes that had completed when the last successful flush was requested.
    durable: AtomicU64,
    failed: AtomicU64,
}

/// The counts when a flush was requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    begun: u64,
    ended: u64,
    durable: u64,
    failed: u64,
}

impl Told {
    /// Creates the counts of a new logical disk, after `failed` failed flushes.
    pub fn new(failed: u64) -> Told {
        Told { failed: AtomicU64::new(failed), ..Told::default() }
    }

    /// Counts a requested change.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a completed change.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the counts for a flush that is requested now.
    pub fn ask(&self) -> Asked {
        let now = |number: &AtomicU64| number.load(Ordering::SeqCst);
        // Read first, so that it never exceeds `begun`.
        let ended = now(&self.ended);
        Asked { begun: now(&self.begun), ended, durable: now(&self.durable), failed: now(&self.failed) }
    }

    /// Returns the counts for a durable change that is requested now. The `failed` flushes so far do not concern it.
    pub fn ask_for_one(&self, failed: u64) -> Asked {
        Asked { failed, ..self.ask() }
    }

    /// True if such a change is to be reported as successful, given the failed flushes by now. Later flushes report the
    /// failure again.
    pub fn answer_one(&self, asked: Asked, succeeded: bool, failed: u64) -> bool {
        succeeded && asked.failed == failed
    }

    /// True if a flush is to be reported as successful, given its result and the failed flushes by now.
    pub fn answer(&self, asked: Asked, succeeded: bool, failed: u64) -> bool {
        let succeeds = succeeded && (asked.failed == failed || asked.ended == asked.durable);
        if succeeds {
            self.durable.fetch_max(asked.ended, Ordering::SeqCst);
        }
        // A failure during a change is reported once the change has completed.
        let has_nothing = asked.begun == asked.durable && asked.begun == self.begun.load(Ordering::SeqCst);
        if !succeeds || has_nothing {
            self.failed.fetch_max(failed, Ordering::SeqCst);
        }
        succeeds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_reported_once_after_a_change() {
        let told = Told::new(3);
        let flush = |failed| told.answer(told.ask(), true, failed);
        let change = || {
            told.begin();
            told.end();
        };
        assert!(flush(3) && flush(4), "it has changed nothing");
        change();
        assert!(flush(4));
        assert!(flush(5), "it was durable before");
        change();
        assert!(!flush(6));
        assert!(flush(6) && flush(7));
        // A durable change reports failures meanwhile, but none from before. A flush reports them again.
        change();
        let one = told.ask_for_one(7);
        assert!(!told.answer_one(one, true, 8) && told.answer_one(told.ask_for_one(8), true, 8));
        assert!(!flush(8) && flush(8));
        // Each of several waiting flushes reports it.
        change();
        let asked = [told.ask(), told.ask()];
        assert!(asked.into_iter().all(|asked| !told.answer(asked, true, 9)));
        // A failure that the flush itself reported is not reported again.
        assert!(!told.answer(told.ask(), false, 9) && flush(9));
    }

    /// A flush makes completed changes durable; a failed one may lose the others.
    #[test]
    fn a_flush_does_not_cover_changes_in_progress() {
        let told = Told::new(0);
        let flush = |failed| told.answer(told.ask(), true, failed);
        told.begin();
        assert!(flush(0));
        told.end();
        assert!(!flush(1) && flush(1) && flush(2), "it may be gone with the first that failed");
        // It is requested during a flush that has nothing to report.
        let asked = told.ask();
        told.begin();
        assert!(told.answer(asked, true, 3));
        told.end();
        assert!(!flush(3) && flush(3));
    }
}
