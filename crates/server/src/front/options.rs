//! What a server allows.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::assignments::{Assigned, Assignments, Right, right_over_iscsi};
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
    /// Who may come over iSCSI, and what is kept of them.
    pub iscsi: Iscsi,
}

/// Who may come over iSCSI, and what is kept of them; and which exports are for some clients alone, over both protocols.
#[derive(Clone, Debug, Default)]
pub struct Iscsi {
    /// Names of the initiators that may log in; none where all may.
    pub initiators: Option<Vec<String>>,
    /// Names of those that may read only; none where all may write, too.
    pub read_only_initiators: Vec<String>,
    /// Exports that are for the clients alone that they are assigned to.
    pub assignments: Arc<Assignments>,
    /// What initiators prove that they know by CHAP.
    pub chap: Option<Credentials>,
    /// What the target proves that it knows, to initiators that ask for it.
    pub mutual_chap: Option<Credentials>,
    /// Where persistent reservations are kept over restarts.
    pub state_directory: Option<PathBuf>,
}

impl Iscsi {
    /// What an initiator that may log in may do with an export, if it may open it: one that is not assigned is for all.
    pub fn right(&self, initiator: &str, export: &str) -> Option<Right> {
        self.right_of(initiator, self.assignments.of(export).as_deref())
    }

    /// The same of an export that is assigned so.
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
