//! What a protocol brings, and the endpoints and URIs at which it is spoken.

use std::fmt;

use super::address::Address;
use super::connection::Connection;
use super::options::Options;

/// A protocol that clients speak: one row of [`PROTOCOLS`](super::PROTOCOLS).
pub struct Protocol {
    /// Its name, which its threads bear too.
    pub name: &'static str,
    /// The schemes of its URIs, such as `nbd+unix`.
    pub schemes: &'static [&'static str],
    /// How its URIs are written.
    pub forms: &'static str,
    /// Bytes of the longest request, with its data; all connections together have memory for at least two.
    pub request_bytes_max: usize,
    /// Reads a URI that has one of the schemes.
    pub parse: fn(&str) -> Result<Uri, UriError>,
    /// Writes the URI of an export.
    pub write: fn(&Address, encrypted: bool, export: &str) -> String,
    /// Whether clients beyond this machine have to be named, or to prove who they are.
    pub guarded: bool,
    /// Starts to speak it: what all its clients share.
    pub start: fn(&Options) -> Box<dyn Service>,
}

/// A protocol as one server speaks it.
pub trait Service: Send + Sync {
    /// Serves one client until it goes.
    fn serve(&self, connection: Connection<'_>);
}

impl Protocol {
    /// This protocol spoken at `address`.
    pub fn at(&'static self, address: Address) -> Endpoint {
        Endpoint { protocol: self, address }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// An address, and what is spoken there.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What is spoken.
    pub protocol: &'static Protocol,
    /// Where.
    pub address: Address,
}

impl Endpoint {
    /// How clients reach an export here, with TLS or without.
    pub fn uri(&self, encrypted: bool, export: &str) -> String {
        (self.protocol.write)(&self.address, encrypted, export)
    }
}

/// A URI of any protocol; [`Uri::from_str`](std::str::FromStr::from_str) finds the protocol by the scheme.
#[derive(Clone, Debug)]
pub struct Uri {
    /// Where the server listens, and what is spoken there.
    pub endpoint: Endpoint,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Name of the export; empty where it names none.
    pub export: String,
}

/// Why a URI was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("URI {uri:?}: {reason}")]
pub struct UriError {
    /// The URI.
    pub uri: String,
    /// What is wrong with it, and what was expected.
    pub reason: String,
}
