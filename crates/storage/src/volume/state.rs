//! The states of a volume, and the transitions between them.

use std::time::{Duration, Instant};

use super::remaining::Remaining;
use crate::status::{VolumeState, VolumeStatus};

/// The state of a volume. Each one owns the data that exists only in it.
#[derive(Debug)]
pub(super) enum State {
    /// The volume uses its flash.
    Serving {
        /// The reason why the last detach failed.
        remark: Option<String>,
    },
    /// The flash fails.
    FlashFailed {
        failure: Failure,
        /// As in [`Serving`](Self::Serving).
        remark: Option<String>,
    },
    /// All dirty blocks are written back, so that the volume can continue without its flash.
    Detaching {
        /// The remaining time; known for logs.
        remaining: Option<Remaining>,
        failure: Option<Failure>,
    },
    /// The volume uses only its backend.
    WithoutFlash {
        why: Without,
        /// The counts of the cache that was on flash, if this run used it.
        before: Option<Box<VolumeStatus>>,
    },
    /// The volume is closed, and all requests fail.
    Gone {
        /// The reason why it used only its backend, if it did.
        without: Option<Without>,
    },
}

/// A failure of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is unreadable, possibly for a limited time, and a step waits for it.
    Unread { since: Instant },
    /// It has failed. Failed requests wait until the volume knows if it can continue without it.
    Undecided,
    /// The volume stays with it. Changes fail until it is detached.
    Kept,
}

/// The reason why a volume uses only its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// No flash is configured.
    NotConfigured,
    /// An operator has detached it.
    Detached {
        /// True if the next start uses it again.
        attaches: bool,
    },
    /// It failed without dirty blocks.
    Failed,
}

impl Without {
    /// The flash was detached.
    pub const DETACHED: Without = Without::Detached { attaches: false };

    fn reported(self) -> VolumeState {
        match self {
            Without::NotConfigured => VolumeState::Ok,
            Without::Detached { .. } => VolumeState::Detached,
            Without::Failed => VolumeState::WithoutFlash,
        }
    }
}

impl State {
    /// Returns the state of a volume that opens. Its flash may have `failed` before.
    pub fn new(without: Option<Without>, failed: bool) -> State {
        let Some(why) = without else {
            let mut state = State::Serving { remark: None };
            state.follow(failed);
            return state;
        };
        State::WithoutFlash { why, before: None }
    }

    /// Returns the state for users, apart from failures of the backend.
    pub fn reported(&self) -> VolumeState {
        match self {
            State::FlashFailed { .. } | State::Detaching { failure: Some(_), .. } => VolumeState::FlashFailed,
            State::Detaching { failure: None, .. } => VolumeState::Detaching,
            State::Serving { .. } | State::WithoutFlash { .. } | State::Gone { .. } => {
                self.without().map_or(VolumeState::Ok, Without::reported)
            }
        }
    }

    /// Returns the remark about the last detach or attach of an operator.
    pub fn remark(&self) -> Option<&str> {
        match self {
            State::Serving { remark } | State::FlashFailed { remark, .. } => remark.as_deref(),
            _ if self.without() == Some(Without::Detached { attaches: true }) => {
                Some("the next start uses the flash again")
            }
            _ => None,
        }
    }

    /// Returns the reason why the volume uses only its backend, if it does.
    pub fn without(&self) -> Option<Without> {
        match *self {
            State::WithoutFlash { why, .. } => Some(why),
            State::Gone { without } => without,
            _ => None,
        }
    }

    /// True if the volume is closed.
    pub fn is_gone(&self) -> bool {
        matches!(self, State::Gone { .. })
    }

    /// Returns the counts of the removed cache, if there was one.
    pub fn before(&self) -> Option<&VolumeStatus> {
        let State::WithoutFlash { before, .. } = self else { return None };
        before.as_deref()
    }

    /// Returns the remaining seconds of a detach, if known.
    pub fn remaining_seconds(&self, now: Instant) -> Option<f64> {
        let State::Detaching { remaining, failure: None } = self else { return None };
        remaining.as_ref()?.seconds(now)
    }

    /// Records a failure of the flash that its engine has seen.
    pub fn follow(&mut self, failed: bool) {
        match (self.failure(), failed) {
            (None | Some(Failure::Unread { .. }), true) => self.set_failure(Some(Failure::Undecided)),
            (Some(Failure::Undecided | Failure::Kept), false) => self.set_failure(None),
            _ => {}
        }
    }

    /// Records if the flash is unreadable while a step waits for it. Returns the duration.
    pub fn note_unread(&mut self, unread: bool, now: Instant) -> Option<Duration> {
        match (self.failure(), unread) {
            (None, true) => self.set_failure(Some(Failure::Unread { since: now })),
            (Some(Failure::Unread { .. }), false) => self.set_failure(None),
            _ => {}
        }
        match self.failure() {
            Some(Failure::Unread { since }) => Some(now - since),
            _ => None,
        }
    }

    /// Starts the decision about a failed flash: it stays, unless a detach succeeds. Returns false if there is nothing
    /// to decide.
    pub fn decide(&mut self) -> bool {
        let State::FlashFailed { failure: failure @ Failure::Undecided, .. } = self else { return false };
        *failure = Failure::Kept;
        true
    }

    /// Begins a detach, unless the volume is closed or has no flash.
    pub fn detach(&mut self) {
        if !matches!(self, State::WithoutFlash { .. } | State::Gone { .. }) {
            *self = State::Detaching { remaining: None, failure: self.failure() };
        }
    }

    /// Records the number of blocks that a detach still has to write back.
    pub fn note_remaining(&mut self, now: Instant, blocks: u64) {
        if let State::Detaching { remaining, .. } = self {
            *remaining = Some(Remaining::seen(*remaining, now, blocks));
        }
    }

    /// A detach failed: the volume stays with its flash.
    pub fn stay(&mut self, remark: String) {
        if let State::Detaching { failure, .. } = *self {
            *self = State::Serving { remark: Some(remark) };
            self.set_failure(failure);
        }
    }

    /// A detach succeeded: the volume continues without its flash.
    pub fn leave_flash(&mut self, why: Without, before: VolumeStatus) {
        *self = State::WithoutFlash { why, before: Some(Box::new(before)) };
    }

    /// Changes the reason why the volume uses only its backend.
    pub fn set_without(&mut self, new: Without) {
        if let State::WithoutFlash { why, .. } = self {
            *why = new;
        }
    }

    /// Closes the volume. Returns false if it was closed before.
    pub fn close(&mut self) -> bool {
        let without = self.without();
        !matches!(std::mem::replace(self, State::Gone { without }), State::Gone { .. })
    }

    fn failure(&self) -> Option<Failure> {
        match *self {
            State::FlashFailed { failure, .. } => Some(failure),
            State::Detaching { failure, .. } => failure,
            _ => None,
        }
    }

    fn set_failure(&mut self, new: Option<Failure>) {
        match self {
            State::Serving { remark } | State::FlashFailed { remark, .. } => {
                let remark = remark.take();
                *self = match new {
                    Some(failure) => State::FlashFailed { failure, remark },
                    None => State::Serving { remark },
                };
            }
            State::Detaching { failure, .. } => *failure = new,
            State::WithoutFlash { .. } | State::Gone { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_comes_during_a_detach_is_decided_after_it() {
        let mut state = State::new(None, false);
        state.detach();
        state.follow(true);
        assert_eq!(state.reported(), VolumeState::FlashFailed);
        assert!(!state.decide(), "the detach decides");
        state.stay("it cannot be written".to_owned());
        assert_eq!((state.reported(), state.remark()), (VolumeState::FlashFailed, Some("it cannot be written")));
        assert!(state.decide());
        assert!(!state.decide(), "that was decided");
        state.detach();
        state.leave_flash(Without::Failed, VolumeStatus::default());
        assert_eq!(state.reported(), VolumeState::WithoutFlash);
    }

    #[test]
    fn a_flash_that_can_be_read_again_serves_again() {
        let (mut state, now) = (State::new(None, false), Instant::now());
        assert_eq!(state.note_unread(false, now), None);
        assert_eq!(state.note_unread(true, now), Some(Duration::ZERO));
        let later = now + Duration::from_secs(3);
        assert_eq!(state.note_unread(true, later), Some(Duration::from_secs(3)));
        state.follow(false);
        assert_eq!(state.reported(), VolumeState::FlashFailed);
        assert_eq!(state.note_unread(false, later), None);
        assert_eq!(state.reported(), VolumeState::Ok);
        state.note_unread(true, later);
        state.follow(true);
        assert_eq!(state.note_unread(false, later), None);
        assert_eq!(state.reported(), VolumeState::FlashFailed, "it has failed in the meantime");
    }

    #[test]
    fn a_closed_volume_knows_if_its_flash_was_detached() {
        let mut state = State::new(Some(Without::DETACHED), false);
        state.set_without(Without::Detached { attaches: true });
        assert!(state.close());
        assert!(!state.close());
        state.detach();
        assert_eq!((state.reported(), state.is_gone()), (VolumeState::Detached, true));
    }
}
