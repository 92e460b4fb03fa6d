//! What a server has done so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;

/// Counters of one server, from its start; they may be read at any time.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections that were accepted.
    pub connections_accepted: AtomicU64,
    /// Connections that were closed at once, since there were too many.
    pub connections_refused: AtomicU64,
    /// Connections that ended before they opened an export, by an error, a wrong message or too long a wait.
    pub handshakes_failed: AtomicU64,
    /// Connections that a wrong request ended.
    pub connections_broken: AtomicU64,
    /// Requests that were received.
    pub requests: AtomicU64,
    /// Requests that were answered with an error.
    pub requests_failed: AtomicU64,
    /// Bytes that were read by clients.
    pub bytes_read: AtomicU64,
    /// Bytes that were written by clients.
    pub bytes_written: AtomicU64,
    /// How often each limit was reached.
    pub limits: Arc<Limits>,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        if count > 0 {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}
