//! Front ends: the protocols for clients of exports, and their common infrastructure for sockets.
//!
//! A protocol is a folder beside these files and one row of [`PROTOCOLS`].
//!
//! | file | holds | independent of |
//! | --- | --- | --- |
//! | `protocol.rs` | the interface of a protocol; endpoints and URIs | the list of protocols |
//! | `address.rs` | addresses of listeners | protocols |
//! | `assignments.rs` | assignments of exports to clients | connections |
//! | `options.rs` | options of a server | their enforcement |
//! | `server.rs` | listeners, connections, shutdown | messages |
//! | `listener.rs` | listening sockets | connections |
//! | `peer.rs` | the process at the other end of a Unix socket | its permissions |
//! | `connection.rs` | an accepted client and its control | listeners, other connections |
//! | `transport.rs` | a client's socket, plain or with TLS | messages |
//! | `tls.rs` | certificates and keys | sockets |
//! | `exchange.rs` | messages before a client is served | their meaning |
//! | `link.rs` | buffers and waiting for a client being served | messages |
//! | `input.rs` | received bytes | their meaning |
//! | `output.rs` | bytes to send | their meaning |
//! | `completions.rs` | completed requests on their way to the connection | messages |
//! | `budget.rs` | the memory that all connections share | its use |
//! | `polling.rs` | polling for a request before sleeping | requests |
//! | `uri_parts.rs` | common parts of the protocols' URIs | the list of protocols |
//! | `counters.rs` | counters of a server | their use |

mod address;
mod assignments;
mod budget;
mod completions;
mod connection;
mod counters;
mod exchange;
mod input;
pub mod iscsi;
mod link;
mod listener;
pub mod nbd;
mod options;
mod output;
mod peer;
mod polling;
mod protocol;
mod server;
mod tls;
mod transport;
pub(crate) mod uri_parts;

use std::str::FromStr;

pub use address::Address;
pub use assignments::{Assigned, Assignment, Assignments, Right, check_client, names_certificates, right_over_nbd};
pub use budget::Budget;
pub use connection::{Connection, Control};
pub use counters::Counters;
pub use listener::ListenError;
pub use options::{Credentials, Iscsi, Options};
pub use protocol::{Endpoint, Protocol, Service, Uri, UriError};
#[cfg(feature = "http")]
pub(crate) use server::is_exhausted;
pub use server::{Connections, Listening, Server, StartError};
pub use tls::{Config as TlsConfig, Tls, TlsError, TlsFiles};

/// The protocols, one row each.
pub static PROTOCOLS: &[&Protocol] = &[&nbd::PROTOCOL, &iscsi::PROTOCOL];

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        match PROTOCOLS.iter().find(|protocol| protocol.schemes.contains(&scheme)) {
            Some(protocol) => (protocol.parse)(text),
            None => {
                let forms: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.forms).collect();
                Err(UriError { uri: text.to_owned(), reason: format!("expected {}", forms.join("; or ")) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_finds_its_protocol_by_its_scheme_and_errors_list_the_forms() {
        for protocol in PROTOCOLS {
            let tcp = (protocol.write)(&Address::Tcp { host: "host".into(), port: 7000 }, false, "disk");
            let uri: Uri = tcp.parse().unwrap();
            assert!(std::ptr::eq(uri.endpoint.protocol, *protocol));
            assert_eq!((uri.endpoint.uri(uri.encrypted, &uri.export), uri.encrypted), (tcp, false));
            for text in ["localhost", "http://host/"] {
                let error = text.parse::<Uri>().unwrap_err().to_string();
                assert!(error.starts_with(&format!("URI {text:?}: expected ")) && error.contains(protocol.forms));
            }
            for scheme in protocol.schemes {
                let error = format!("{scheme}://me@host/").parse::<Uri>().map(|_| ());
                assert!(error.is_err_and(|error| !error.reason.contains("unknown scheme")), "{scheme}");
            }
        }
    }
}
