//! Options of a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::assignments::{Assigned, Assignments, Right, right_over_iscsi};
use super::tls::Tls;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Use of TLS.
    pub tls: Tls,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Timeout for a client to open an export.
    pub handshake_time_max: Duration,
    /// Maximum number of unanswered requests of one connection.
    pub requests_in_flight_max: usize,
    /// Maximum memory of one connection's requests and replies, in bytes; at least the longest request.
    pub bytes_in_flight_max: usize,
    /// Maximum memory of all connections' requests and replies, in bytes; at least two of the longest request.
    pub memory_max: usize,
    /// A client that neither sends nor reads any expected byte for this time is disconnected, if another client waits
    /// for its memory.
    pub stall_time_max: Duration,
    /// Options of iSCSI.
    pub iscsi: Iscsi,
}

/// Permissions and persistent state of iSCSI, and the assignments of exports for both protocols.
#[derive(Clone, Debug, Default)]
pub struct Iscsi {
    /// Names of the initiators that may log in; `None` for all.
    pub initiators: Option<Vec<String>>,
    /// Names of the initiators that may only read.
    pub read_only_initiators: Vec<String>,
    /// Assignments of exports to clients.
    pub assignments: Arc<Assignments>,
    /// Credentials with which initiators authenticate (CHAP).
    pub chap: Option<Credentials>,
    /// Credentials with which the target authenticates, if an initiator requests it.
    pub mutual_chap: Option<Credentials>,
    /// Directory for persistent reservations.
    pub state_directory: Option<PathBuf>,
}

impl Iscsi {
    /// Returns the permission of an initiator that may log in for an export. An export without assignments is open to
    /// all.
    pub fn right(&self, initiator: &str, export: &str) -> Option<Right> {
        self.right_of(initiator, self.assignments.of(export).as_deref())
    }

    /// Returns the same for an export with these assignments.
    pub fn right_of(&self, initiator: &str, assigned: Option<&[Assigned]>) -> Option<Right> {
        let right = right_over_iscsi(initiator, assigned)?;
        let reads = self.read_only_initiators.iter().any(|own| own == initiator);
        Some(if reads { Right::Read } else { right })
    }
}

/// A name and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub name: String,
    /// The secret.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
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
            stall_time_max: Duration::from_secs(5),
            iscsi: Iscsi::default(),
        }
    }
}
