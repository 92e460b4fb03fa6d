//! What a server allows.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
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
    /// Who may come over iSCSI, and what is kept of them.
    pub iscsi: Iscsi,
}

/// Who may come over iSCSI, and what is kept of them.
#[derive(Clone, Debug, Default)]
pub struct Iscsi {
    /// Names of the initiators that may log in; none where all may.
    pub initiators: Option<Vec<String>>,
    /// Names of those that may read only; none where all may write, too.
    pub read_only_initiators: Vec<String>,
    /// Exports that are for the initiators alone that they are assigned to.
    pub assignments: Vec<Assignment>,
    /// What initiators prove that they know by CHAP.
    pub chap: Option<Credentials>,
    /// What the target proves that it knows, to initiators that ask for it.
    pub mutual_chap: Option<Credentials>,
    /// Where persistent reservations are kept over restarts.
    pub state_directory: Option<PathBuf>,
}

impl Iscsi {
    fn assigned(&self, export: &str) -> impl Iterator<Item = &Assignment> {
        self.assignments.iter().filter(move |assignment| assignment.export == export)
    }

    /// Whether an initiator that may log in may open an export: one that is assigned to nobody is for all.
    pub fn may_open(&self, initiator: &str, export: &str) -> bool {
        let mut assigned = self.assigned(export).peekable();
        assigned.peek().is_none() || assigned.any(|assignment| assignment.initiator == initiator)
    }

    /// Whether an initiator may only read an export.
    pub fn reads_only(&self, initiator: &str, export: &str) -> bool {
        self.read_only_initiators.iter().any(|own| own == initiator)
            || self.assigned(export).any(|assignment| assignment.initiator == initiator && assignment.read_only)
    }
}

/// An export that an initiator may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The export's name, not one of its aliases.
    pub export: String,
    /// The initiator's name.
    pub initiator: String,
    /// Whether it may read only.
    pub read_only: bool,
}

impl FromStr for Assignment {
    type Err = String;

    /// `EXPORT INITIATOR`, and `read-only` behind them.
    fn from_str(text: &str) -> Result<Assignment, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let assigned = |export: &str, initiator: &str, read_only| {
            Ok(Assignment { export: export.to_owned(), initiator: initiator.to_owned(), read_only })
        };
        match words[..] {
            [export, initiator] => assigned(export, initiator, false),
            [export, initiator, "read-only"] => assigned(export, initiator, true),
            _ => Err(format!(
                "found '{text}', expected an export, an initiator and perhaps read-only, such as 'mail \
                 iqn.1993-08.org.debian:01:abc read-only'"
            )),
        }
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
            stall_time_max: Duration::from_secs(30),
            iscsi: Iscsi::default(),
        }
    }
}
