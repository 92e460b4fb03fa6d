//! The NBD server: exports over the Network Block Device protocol, fixed newstyle.
//! Source: NetworkBlockDevice/nbd, doc/proto.md and doc/uri.md.
//!
//! | file | holds | knows nothing of |
//! | --- | --- | --- |
//! | `protocol.rs` | numbers and layouts of the specification | what they are for |
//! | `handshake.rs` | option haggling, bytes in, bytes out | sockets |
//! | `transmission.rs` | what to do with a request, and its answer in bytes | sockets |
//! | `output.rs` | bytes on their way to a client | what they mean |
//! | `completions.rs` | answers on their way from an export to a connection | the protocol |
//! | `budget.rs` | the memory that all connections share | what it is used for |
//! | `polling.rs` | looking for a request for a moment before sleeping | what comes |
//! | `transport.rs` | a client's socket, plain or under TLS | the protocol |
//! | `session.rs` | the transmission phase of a connection | listeners, other connections |
//! | `connection.rs` | a connection from greeting to goodbye | listeners, other connections |
//! | `listener.rs` | sockets that clients connect to | connections |
//! | `peer.rs` | who is at the other end of a socket | what that changes |
//! | `server.rs` | listeners, connections, and their end | the protocol |
//! | `tls.rs` | certificates and keys | the protocol |
//! | `uri.rs` | NBD URIs | sockets |
//! | `counters.rs` | what a server has done | why |

mod budget;
mod completions;
mod connection;
mod counters;
pub mod handshake;
mod listener;
mod output;
mod peer;
mod polling;
pub mod protocol;
mod server;
mod session;
mod tls;
pub mod transmission;
mod transport;
mod uri;

pub use budget::Budget;
pub use counters::Counters;
pub use listener::ListenError;
pub use server::{Options, Server, StartError};
pub use tls::{Tls, TlsError, TlsFiles};
pub use uri::{Address, PORT, Uri, UriError};
