//! Which failed flushes of the disks a logical disk was told of. What a flush that failed was to make durable may be gone, whoever asked for it: each
//! logical disk that had changed something hears of it, once.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a logical disk has changed, what of it is durable, and how many flushes had failed when it was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    changes: AtomicU64,
    durable: AtomicU64,
    failed: AtomicU64,
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    changes: u64,
    durable: u64,
    failed: u64,
}

impl Told {
    /// A logical disk that is new when so many flushes had failed.
    pub fn new(failed: u64) -> Told {
        Told { failed: AtomicU64::new(failed), ..Told::default() }
    }

    /// A change is asked for.
    pub fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// A flush is asked for.
    pub fn ask(&self) -> Asked {
        let now = |number: &AtomicU64| number.load(Ordering::SeqCst);
        Asked { changes: now(&self.changes), durable: now(&self.durable), failed: now(&self.failed) }
    }

    /// A change that is to be durable is asked for, when so many flushes had `failed`: those are no affair of it.
    pub fn ask_for_one(&self, failed: u64) -> Asked {
        Asked { failed, ..self.ask() }
    }

    /// Such a change was made durable or not, when so many flushes had `failed`: a flush tells of them still. Returns whether it is to be called a success.
    pub fn answer_one(&self, asked: Asked, succeeded: bool, failed: u64) -> bool {
        succeeded && asked.failed == failed
    }

    /// A flush has succeeded or not, when so many had `failed`. Returns whether it is to be called a success.
    pub fn answer(&self, asked: Asked, succeeded: bool, failed: u64) -> bool {
        self.failed.fetch_max(failed, Ordering::SeqCst);
        let succeeds = succeeded && (asked.failed == failed || asked.changes == asked.durable);
        if succeeds {
            self.durable.fetch_max(asked.changes, Ordering::SeqCst);
        }
        succeeds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_changed_something_hears_of_each_failure_once() {
        let told = Told::new(3);
        let flush = |failed| told.answer(told.ask(), true, failed);
        assert!(flush(3) && flush(4), "it has changed nothing");
        told.change();
        assert!(flush(4));
        assert!(flush(5), "it was durable before");
        told.change();
        assert!(!flush(6));
        assert!(flush(6) && flush(7));
        // A change that is to be durable tells of what fails meanwhile, and of nothing before; a flush tells of it all the same.
        told.change();
        let one = told.ask_for_one(7);
        assert!(!told.answer_one(one, true, 8) && told.answer_one(told.ask_for_one(8), true, 8));
        assert!(!flush(8) && flush(8));
        // Each of those that wait hears of it.
        told.change();
        let asked = [told.ask(), told.ask()];
        assert!(asked.into_iter().all(|asked| !told.answer(asked, true, 9)));
        // Who was told by the flush itself is not told again.
        assert!(!told.answer(told.ask(), false, 9) && flush(9));
    }
}
