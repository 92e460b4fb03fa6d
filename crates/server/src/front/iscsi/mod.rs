//! iSCSI: SCSI commands over TCP. Source: RFC 7143.
//!
//! Each export is a target with one logical unit, LUN 0. A session has one connection. If it breaks, nothing is
//! recovered (ErrorRecoveryLevel 0), and the initiator logs in again.
//!
//! | file | holds | independent of |
//! | --- | --- | --- |
//! | `pdu.rs` | headers and digests | their use |
//! | `text.rs` | keys and values as text | the list of keys |
//! | `names.rs` | names of targets and initiators | sessions |
//! | `negotiation.rs` | negotiation of parameters | the phases of a session |
//! | `chap.rs` | authentication | the login phase |
//! | `login.rs` | the login phase, bytes in, bytes out | sockets |
//! | `discovery.rs` | discovery of targets | sessions |
//! | `portals.rs` | addresses of targets | the list of targets |
//! | `target.rs` | logical units and sessions of a server | messages |
//! | `session.rs` | the full feature phase of a connection | other connections |
//! | `session/segment.rs` | data segments as they arrive | their use |
//! | `session/task.rs` | a command and its data | the wire |
//! | `session/commands.rs` | commands, from arrival to reply | |
//! | `session/answers.rs` | replies as they are sent | their content |
//! | `session/management.rs` | task management | |
//! | `connection.rs` | a connection from login to its end | listeners |
//! | `uri.rs` | iSCSI URIs | sockets |

pub mod chap;
mod connection;
pub mod discovery;
pub mod login;
pub mod names;
pub mod negotiation;
pub mod pdu;
mod portals;
mod session;
mod target;
pub mod text;
mod uri;

use super::connection::Connection;
use super::protocol::{Protocol, Service, Uri};
use crate::scsi;
use target::Target;

pub use uri::PORT;

/// The row of iSCSI.
pub static PROTOCOL: Protocol = Protocol {
    name: "iscsi",
    schemes: &uri::SCHEMES,
    forms: uri::FORMS,
    request_bytes_max: scsi::COMMAND_BYTES_MAX,
    parse: |text| {
        let (address, export) = uri::parse(text)?;
        Ok(Uri { endpoint: PROTOCOL.at(address), encrypted: false, export })
    },
    write: |address, _, export| uri::write(address, export),
    guarded: true,
    start: |options| Box::new(Targets(Target::new(options.iscsi.clone()))),
};

/// The targets of a server, shared by all its clients.
struct Targets(Target);

impl Service for Targets {
    fn serve(&self, connection: Connection<'_>) {
        connection::serve(&self.0, connection);
    }
}
