//! Intervals of progress reports: short enough to stop unwanted work at once, long enough to cost nothing measurable.

use flashwise_trace::progress::Progress;

/// Accesses between two reports.
pub(crate) const PACE_ACCESSES: u64 = 1 << 16;
/// Requests between two reports, for caches that see whole requests.
const PACE_REQUESTS: u64 = 1 << 10;

/// Allows the caller to end the work at every [`PACE_ACCESSES`]th `position`. For passes that do not count as progress.
#[inline]
pub(crate) fn may_end(position: usize, progress: &dyn Progress) {
    if (position as u64).is_multiple_of(PACE_ACCESSES) {
        progress.advance(0);
    }
}

/// Reports the accesses of a run to a [`Progress`].
pub(crate) struct Pace<'a> {
    progress: &'a dyn Progress,
    told: u64,
}

impl<'a> Pace<'a> {
    /// Starts a run.
    pub fn new(progress: &'a dyn Progress) -> Pace<'a> {
        progress.advance(0);
        Pace { progress, told: 0 }
    }

    /// Records the number of accesses `done`, and reports it if due.
    #[inline]
    pub fn done(&mut self, done: u64) {
        if done >= self.told + PACE_ACCESSES {
            self.tell(done);
        }
    }

    /// Records the number of accesses `done`, and reports it now.
    pub fn tell(&mut self, done: u64) {
        self.progress.advance(done - self.told);
        self.told = done;
    }
}

/// Reports the progress of a run over requests, as if all requests had equally many accesses.
pub(crate) struct RequestPace<'a> {
    pace: Pace<'a>,
    done: u64,
    requests: u64,
    accesses: u64,
}

impl<'a> RequestPace<'a> {
    /// Starts a run over this many `requests` with this many `accesses`.
    pub fn new(progress: &'a dyn Progress, requests: u64, accesses: u64) -> RequestPace<'a> {
        RequestPace { pace: Pace::new(progress), done: 0, requests, accesses }
    }

    /// Records one more request.
    #[inline]
    pub fn request_ends(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(PACE_REQUESTS) {
            let share = self.done as f64 / self.requests as f64;
            self.pace.tell((self.accesses as f64 * share.min(1.0)) as u64);
        }
    }

    /// Reports that all requests are done.
    pub fn end(mut self) {
        self.pace.tell(self.accesses);
    }
}
