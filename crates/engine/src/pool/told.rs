//! Which failed flushes of the disks a logical disk was told of. What a flush that failed was to make durable may be gone, whoever asked for it: each
//! logical disk that had changed something hears of it, once.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a logical disk has changed, what of it is durable, and how many flushes had failed when it was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Changes that were asked for, ...
    begun: AtomicU64,
    /// ... that were answered, ...
    ended: AtomicU64,
    /// ... and that were answered when a flush came that has succeeded.
    durable: AtomicU64,
    failed: AtomicU64,
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    begun: u64,
    ended: u64,
    durable: u64,
    failed: u64,
}

impl Told {
    /// A logical disk that is new when so many flushes had failed.
    pub fn new(failed: u64) -> Told {
        Told { failed: AtomicU64::new(failed), ..Told::default() }
    }

    /// A change is asked for.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// A change is answered.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// A flush is asked for.
    pub fn ask(&self) -> Asked {
        let now = |number: &AtomicU64| number.load(Ordering::SeqCst);
        // What is answered meanwhile was begun before.
        let ended = now(&self.ended);
        Asked { begun: now(&self.begun), ended, durable: now(&self.durable), failed: now(&self.failed) }
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
        let succeeds = succeeded && (asked.failed == failed || asked.ended == asked.durable);
        if succeeds {
            self.durable.fetch_max(asked.ended, Ordering::SeqCst);
        }
        // What was under way when one failed is told of once it was answered.
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
    fn who_has_changed_something_hears_of_each_failure_once() {
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
        // A change that is to be durable tells of what fails meanwhile, and of nothing before; a flush tells of it all the same.
        change();
        let one = told.ask_for_one(7);
        assert!(!told.answer_one(one, true, 8) && told.answer_one(told.ask_for_one(8), true, 8));
        assert!(!flush(8) && flush(8));
        // Each of those that wait hears of it.
        change();
        let asked = [told.ask(), told.ask()];
        assert!(asked.into_iter().all(|asked| !told.answer(asked, true, 9)));
        // Who was told by the flush itself is not told again.
        assert!(!told.answer(told.ask(), false, 9) && flush(9));
    }

    /// A flush makes durable what was answered before it came, and one that failed may have taken what was not.
    #[test]
    fn what_is_under_way_during_a_flush_is_not_durable_by_it() {
        let told = Told::new(0);
        let flush = |failed| told.answer(told.ask(), true, failed);
        told.begin();
        assert!(flush(0));
        told.end();
        assert!(!flush(1) && flush(1) && flush(2), "it may be gone with the first that failed");
        // It is asked for while a flush is under way that has nothing to tell of.
        let asked = told.ask();
        told.begin();
        assert!(told.answer(asked, true, 3));
        told.end();
        assert!(!flush(3) && flush(3));
    }
}
