//! The limits of a server. Each time that a limit is reached is counted; the log reports a limit at most once a minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The log repeats a message about one limit or one kind of failure after this time at the earliest.
const LOG_PERIOD: Duration = Duration::from_secs(60);

flashwise_core::words! {
    /// A limit that clients can reach.
    pub enum Limit {
        /// `connections-max`.
        Connections "connections",
        /// The file descriptors of the process, less the reserve.
        Files "files",
        /// The threads of the process or the machine.
        Threads "threads",
        /// `memory-max`.
        RequestMemory "request-memory",
        /// The time that a client may stall while others wait for memory.
        StallTime "stall-time",
        /// Connections of the management API without a credential.
        ApiUnknown "api-unknown",
        /// Connections of the management API with a credential.
        ApiKnown "api-known",
        /// Event streams of the management API.
        ApiStreams "api-streams",
    }
}

impl Limit {
    /// Describes the limit and the reaction of the server.
    const fn message(self) -> &'static str {
        match self {
            Limit::Connections => "connections-max is reached: the server closes new connections at once",
            Limit::Files => {
                "file descriptors run out: the server closes new connections and keeps the rest for itself; \
                 raise LimitNOFILE or ulimit -n"
            }
            Limit::Threads => {
                "the system gives no thread to a new connection, which is closed; raise TasksMax or ulimit -u"
            }
            Limit::RequestMemory => "memory-max is reached: requests wait until others are answered",
            Limit::StallTime => "a client was cut off: it sent or took too little while others waited for its memory",
            Limit::ApiUnknown => {
                "too many connections to the management API have no credential: the oldest one is closed for each new \
                 one"
            }
            Limit::ApiKnown => {
                "too many connections to the management API are in use: the one unused for longest is closed"
            }
            Limit::ApiStreams => "too many clients follow the events of the management API: more are refused",
        }
    }
}

/// How often something happened that the log has at most once a minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repeated {
    times: u64,
    logged: Option<(Instant, u64)>,
}

impl Repeated {
    /// Counts one more, and returns how many there are since the log had one last, if it is to have this one.
    pub fn count(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        let (last, told) = self.logged.map_or((None, 0), |(last, told)| (Some(last), told));
        if last.is_some_and(|last| now.saturating_duration_since(last) < LOG_PERIOD) {
            return None;
        }
        self.logged = Some((now, self.times));
        Some(self.times - told)
    }
}

/// How often each limit was reached since the server was started.
#[derive(Debug, Default)]
pub struct Limits([Mutex<Repeated>; Limit::ALL.len()]);

impl Limits {
    /// Counts that a limit was reached, and logs it unless that was logged in the last minute.
    pub fn reached(&self, limit: Limit) {
        if let Some(times) = self.count(limit, Instant::now()) {
            tracing::warn!(event = "limit-reached", limit = limit.name(), times, "{}", limit.message());
        }
    }

    /// Counts one event. If it is time for a log entry, returns the number of events since the last one.
    fn count(&self, limit: Limit, now: Instant) -> Option<u64> {
        self.0[limit as usize].lock().count(now)
    }

    /// The counts by the limits' names.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        Limit::ALL.iter().map(|&limit| (limit.name().to_owned(), self.times(limit))).collect()
    }

    /// How often one was reached.
    pub fn times(&self, limit: Limit) -> u64 {
        self.0[limit as usize].lock().times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_once_a_minute_with_the_times_since() {
        let limits = Limits::default();
        let start = Instant::now();
        let at = |seconds| limits.count(Limit::Files, start + Duration::from_secs(seconds));
        assert_eq!((at(0), at(1), at(59), at(60), at(61), at(200)), (Some(1), None, None, Some(3), None, Some(2)));
        assert_eq!(limits.count(Limit::Connections, start), Some(1), "each limit is logged for itself");
        assert_eq!(limits.times(Limit::Files), 6);
        assert_eq!(limits.counts()["connections"], 1);
        assert!(Limit::ALL.iter().enumerate().all(|(number, limit)| *limit as usize == number));
    }
}
