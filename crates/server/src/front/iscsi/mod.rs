//! iSCSI: SCSI commands over TCP. Source: RFC 7143.
//!
//! Each export is a target with one logical unit, LUN 0. A session has one connection; what is lost with it is not recovered
//! (ErrorRecoveryLevel 0), the initiator logs in again.
//!
//! | file | holds | knows nothing of |
//! | --- | --- | --- |
//! | `pdu.rs` | headers and digests | what they are for |
//! | `text.rs` | keys and values as text | which there are |
//! | `names.rs` | names of targets and initiators | who has them |
//! | `negotiation.rs` | what both sides agree on | when |
//! | `chap.rs` | proofs of who one is | who has to give them |
//! | `login.rs` | the login phase, bytes in, bytes out | sockets |
//! | `discovery.rs` | which targets there are | sessions |
//! | `portals.rs` | where they can be reached | which targets there are |
//! | `target.rs` | logical units and sessions of a server | what is said in them |
//! | `session.rs` | the full feature phase of a connection | other connections |
//! | `session/segment.rs` | data segments as they come | what they are for |
//! | `session/task.rs` | a command and its data | the wire |
//! | `session/commands.rs` | commands, from their arrival to their answer | |
//! | `session/answers.rs` | answers as they are sent | what they say |
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

/// The targets of a server, which all its clients share.
struct Targets(Target);

impl Service for Targets {
    fn serve(&self, connection: Connection<'_>) {
        connection::serve(&self.0, connection);
    }
}
