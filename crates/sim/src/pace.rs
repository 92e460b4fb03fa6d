//! How often work over accesses says how far it is: often enough that who does not want it any more ends it at once, and seldom enough that
//! nothing is measured of it.

use flashwise_trace::progress::Progress;

/// Accesses from one time to the next.
pub(crate) const PACE_ACCESSES: u64 = 1 << 16;
/// Requests from one time to the next, where the cache is asked whole requests.
const PACE_REQUESTS: u64 = 1 << 10;

/// Lets who does not want the work any more end it at every [`PACE_ACCESSES`]th `position`. For passes that count for no progress.
#[inline]
pub(crate) fn may_end(position: usize, progress: &dyn Progress) {
    if (position as u64).is_multiple_of(PACE_ACCESSES) {
        progress.advance(0);
    }
}

/// Tells of the accesses of a run while they are done.
pub(crate) struct Pace<'a> {
    progress: &'a dyn Progress,
    told: u64,
}

impl<'a> Pace<'a> {
    /// Begins a run.
    pub fn new(progress: &'a dyn Progress) -> Pace<'a> {
        progress.advance(0);
        Pace { progress, told: 0 }
    }

    /// So many accesses are `done`. It is told if that is due.
    #[inline]
    pub fn done(&mut self, done: u64) {
        if done >= self.told + PACE_ACCESSES {
            self.tell(done);
        }
    }

    /// So many accesses are `done`, which is told now.
    pub fn tell(&mut self, done: u64) {
        self.progress.advance(done - self.told);
        self.told = done;
    }
}

/// The same of a run over requests: as if each had as many accesses as the others.
pub(crate) struct RequestPace<'a> {
    pace: Pace<'a>,
    done: u64,
    requests: u64,
    accesses: u64,
}

impl<'a> RequestPace<'a> {
    /// Begins a run over so many `requests`, which are this many `accesses`.
    pub fn new(progress: &'a dyn Progress, requests: u64, accesses: u64) -> RequestPace<'a> {
        RequestPace { pace: Pace::new(progress), done: 0, requests, accesses }
    }

    /// One request more is done.
    #[inline]
    pub fn request_ends(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(PACE_REQUESTS) {
            let share = self.done as f64 / self.requests as f64;
            self.pace.tell((self.accesses as f64 * share.min(1.0)) as u64);
        }
    }

    /// All are done.
    pub fn end(mut self) {
        self.pace.tell(self.accesses);
    }
}
