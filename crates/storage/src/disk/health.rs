//! Detects failed disks by the results of their transfers.

use std::io;
use std::time::{Duration, Instant};

use super::Operation;

/// A disk counts as failed once all transfers of a kind have failed for this long.
pub const FAILED_AFTER: Duration = Duration::from_secs(5);
/// Minimum interval between log lines about single failures, per kind.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

const KINDS: [&str; 3] = ["reads", "writes", "flushes"];

fn kind(operation: Operation) -> Option<usize> {
    match operation {
        Operation::Read => Some(0),
        Operation::Write | Operation::Zero { .. } => Some(1),
        Operation::Sync => Some(2),
        // May fail on working devices.
        Operation::Discard => None,
    }
}

/// The results of a disk's transfers, per kind. A disk that became read-only can still be read, and one without power
/// may still report successful flushes.
#[derive(Debug, Default)]
pub struct Health {
    failing: [Option<Failing>; KINDS.len()],
    reported: [Option<Instant>; KINDS.len()],
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    transfers: u64,
    last: String,
    for_good: bool,
}

/// A change worth logging.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// A transfer failed.
    Failure,
    /// All transfers of a kind have failed for [`FAILED_AFTER`].
    Failed,
    /// A transfer succeeded after that.
    Recovered,
}

impl Health {
    /// Records the result of a transfer.
    pub fn ended(&mut self, operation: Operation, result: &io::Result<()>, now: Instant) -> Option<Change> {
        let kind = kind(operation)?;
        let error = match result {
            Ok(()) => return self.failing[kind].take().filter(|failing| failing.for_good).map(|_| Change::Recovered),
            Err(error) => error,
        };
        let new = Failing { since: now, transfers: 0, last: String::new(), for_good: false };
        let failing = self.failing[kind].get_or_insert(new);
        failing.transfers += 1;
        failing.last = error.to_string();
        if !failing.for_good && now.duration_since(failing.since) >= FAILED_AFTER {
            failing.for_good = true;
            return Some(Change::Failed);
        }
        let reported = self.reported[kind].is_some_and(|at| now.duration_since(at) < REPORT_INTERVAL);
        if failing.transfers > 1 || reported {
            return None;
        }
        self.reported[kind] = Some(now);
        Some(Change::Failure)
    }

    /// Returns why the disk counts as failed, if it does: the last error of each failed kind, and for how long it has
    /// failed.
    pub fn failure(&self, now: Instant) -> Option<String> {
        let of_kind = |(failing, kind): (&Option<Failing>, &str)| {
            let Failing { since, last, .. } = failing.as_ref().filter(|failing| failing.for_good)?;
            let seconds = now.duration_since(*since).as_secs();
            Some(format!("all {kind} have failed for {seconds} s, the last with: {last}"))
        };
        let all: Vec<_> = self.failing.iter().zip(KINDS).filter_map(of_kind).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns the last error of a kind that has not succeeded since.
    pub fn last_failure(&self) -> Option<&str> {
        let last = self.failing.iter().flatten().max_by_key(|failing| failing.since)?;
        Some(&last.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> io::Result<()> {
        Err(io::Error::other("disk.img: Write at 8192: Input/output error"))
    }

    #[test]
    fn a_disk_has_failed_when_nothing_but_failures_came_for_some_time_and_not_any_more_when_one_succeeds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = Health::default();
        assert_eq!(health.ended(Operation::Write, &error(), at(0)), Some(Change::Failure));
        assert_eq!(health.ended(Operation::Write, &error(), at(4)), None);
        // A success of another kind changes nothing.
        assert_eq!(health.ended(Operation::Sync, &Ok(()), at(4)), None);
        assert_eq!(health.failure(at(9)), None, "no failure came after five seconds");
        assert_eq!(health.ended(Operation::Write, &error(), at(9)), Some(Change::Failed));
        assert_eq!(health.ended(Operation::Write, &error(), at(10)), None);
        let reason = "all writes have failed for 12 s, the last with: disk.img: Write at 8192: Input/output error";
        assert_eq!(health.failure(at(12)).as_deref(), Some(reason));
        assert_eq!(health.ended(Operation::Zero { may_punch_holes: true }, &Ok(()), at(13)), Some(Change::Recovered));
        assert_eq!(health.failure(at(13)), None);
    }

    #[test]
    fn one_bad_sector_among_good_ones_is_no_failed_disk_and_no_line_for_each_request() {
        let start = Instant::now();
        let mut health = Health::default();
        let mut lines = 0;
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            lines += usize::from(health.ended(Operation::Read, &error(), now).is_some());
            assert_eq!(health.ended(Operation::Read, &Ok(()), now), None);
            assert_eq!(health.failure(now), None);
        }
        assert_eq!(lines, 1);
    }
}
