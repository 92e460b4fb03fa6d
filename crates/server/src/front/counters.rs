//! Counters of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;

/// Counters of one server since its start. They can be read at any time.
#[derive(Debug, Default)]
pub struct Counters {
    /// Open connections.
    pub connections: AtomicU64,
    /// Accepted connections.
    pub connections_accepted: AtomicU64,
    /// Connections closed immediately, because there were too many.
    pub connections_refused: AtomicU64,
    /// Connections that ended before they opened an export: by an error, an invalid message or a timeout.
    pub handshakes_failed: AtomicU64,
    /// Connections ended by an invalid request.
    pub connections_broken: AtomicU64,
    /// Requests received.
    pub requests: AtomicU64,
    /// Requests answered with an error.
    pub requests_failed: AtomicU64,
    /// Bytes read by clients.
    pub bytes_read: AtomicU64,
    /// Bytes written by clients.
    pub bytes_written: AtomicU64,
    /// Counters of the limits that were reached.
    pub limits: Arc<Limits>,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        if count > 0 {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}
