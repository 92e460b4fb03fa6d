//! Front ends: the protocols over which clients reach exports, and what all of them need to serve over sockets.
//!
//! A protocol is a folder beside these files and one row of [`PROTOCOLS`].
//!
//! | file | holds | knows nothing of |
//! | --- | --- | --- |
//! | `protocol.rs` | what a protocol brings; endpoints and URIs | which protocols there are |
//! | `address.rs` | where a server listens | what is spoken there |
//! | `assignments.rs` | which clients an export is for | who they are |
//! | `options.rs` | what a server allows | how it sees to that |
//! | `server.rs` | listeners, connections, and their end | what clients say |
//! | `listener.rs` | sockets that clients connect to | connections |
//! | `peer.rs` | who is at the other end of a socket | what that changes |
//! | `connection.rs` | a client that was accepted, and how it is stopped | listeners, other connections |
//! | `transport.rs` | a client's socket, plain or under TLS | what clients say |
//! | `tls.rs` | certificates and keys | sockets |
//! | `exchange.rs` | messages before a client is served | what they mean |
//! | `link.rs` | waiting for a client that is served, and its buffers | what it says |
//! | `input.rs` | bytes that came from a client | what they mean |
//! | `output.rs` | bytes on their way to a client | what they mean |
//! | `completions.rs` | answers on their way from an export to a connection | what clients say |
//! | `budget.rs` | the memory that all connections share | what it is used for |
//! | `polling.rs` | looking for a request for a moment before sleeping | what comes |
//! | `uri_parts.rs` | parts of URIs that all protocols write alike | which protocols there are |
//! | `counters.rs` | what a server has done | why |

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

/// The protocols that are served, one row each.
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
    fn a_uri_finds_its_protocol_by_its_scheme_and_another_one_is_told_the_forms() {
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
