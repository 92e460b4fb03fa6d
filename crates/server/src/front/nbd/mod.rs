//! The Network Block Device protocol, fixed newstyle. Source: NetworkBlockDevice/nbd, doc/proto.md and doc/uri.md.
//!
//! | file | holds | independent of |
//! | --- | --- | --- |
//! | `protocol.rs` | numbers and layouts of the specification | their use |
//! | `access.rs` | exports that a client may open | messages |
//! | `handshake.rs` | option haggling, bytes in, bytes out | sockets |
//! | `transmission.rs` | handling of a request, and its reply in bytes | sockets |
//! | `session.rs` | the transmission phase of a connection | listeners, other connections |
//! | `connection.rs` | a connection from greeting to disconnection | listeners, other connections |
//! | `uri.rs` | NBD URIs | sockets |

pub mod access;
mod connection;
pub mod handshake;
pub mod protocol;
mod session;
pub mod transmission;
mod uri;

use super::connection::Connection;
use super::protocol::{Protocol, Service, Uri as AnyUri};

pub use uri::{PORT, Uri};

/// The row of NBD.
pub static PROTOCOL: Protocol = Protocol {
    name: "nbd",
    schemes: &uri::SCHEMES,
    forms: uri::FORMS,
    request_bytes_max: transmission::PAYLOAD_BYTES_MAX as usize,
    parse: |text| {
        let Uri { encrypted, address, export } = text.parse()?;
        Ok(AnyUri { endpoint: PROTOCOL.at(address), encrypted, export })
    },
    write: |address, encrypted, export| {
        Uri { encrypted, address: address.clone(), export: export.to_owned() }.to_string()
    },
    guarded: false,
    start: |_| Box::new(Nbd),
};

/// Clients share nothing but exports.
struct Nbd;

impl Service for Nbd {
    fn serve(&self, connection: Connection<'_>) {
        connection::serve(connection);
    }
}
