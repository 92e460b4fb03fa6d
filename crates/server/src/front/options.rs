//! What a server allows.

use std::time::Duration;

use super::tls::Tls;

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether connections are encrypted, and how.
    pub tls: Tls,
    /// Most connections at a time.
    pub connections_max: usize,
    /// How long a client may take to open an export.
    pub handshake_time_max: Duration,
    /// Most requests of one connection that are not answered yet.
    pub requests_in_flight_max: usize,
    /// Most bytes that one connection's requests hold, and their answers; at least the longest request.
    pub bytes_in_flight_max: usize,
    /// Most bytes that all connections' requests hold, and their answers; at least two of the longest request.
    pub memory_max: usize,
    /// A client that neither takes nor sends a byte of what it asked for in this time is cut off, if another one waits for its memory.
    pub stall_time_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: Tls::Off,
            connections_max: 4096,
            handshake_time_max: Duration::from_secs(60),
            requests_in_flight_max: 128,
            bytes_in_flight_max: 64 << 20,
            memory_max: 512 << 20,
            stall_time_max: Duration::from_secs(30),
        }
    }
}
