//! The interface of a protocol, and its endpoints and URIs.

use std::fmt;

use super::address::Address;
use super::connection::Connection;
use super::options::Options;

/// A protocol of clients: one row of [`PROTOCOLS`](super::PROTOCOLS).
pub struct Protocol {
    /// Its name, also used for its threads.
    pub name: &'static str,
    /// The schemes of its URIs, such as `nbd+unix`.
    pub schemes: &'static [&'static str],
    /// The syntax of its URIs.
    pub forms: &'static str,
    /// Bytes of the longest request, with its data. All connections together have memory for at least two.
    pub request_bytes_max: usize,
    /// Parses a URI with one of the schemes.
    pub parse: fn(&str) -> Result<Uri, UriError>,
    /// Formats the URI of an export.
    pub write: fn(&Address, encrypted: bool, export: &str) -> String,
    /// True if clients from other machines must be named, or authenticate.
    pub guarded: bool,
    /// Starts the protocol: creates the state that its clients share.
    pub start: fn(&Options) -> Box<dyn Service>,
}

/// A protocol as spoken by one server.
pub trait Service: Send + Sync {
    /// Serves one client until it disconnects.
    fn serve(&self, connection: Connection<'_>);
}

impl Protocol {
    /// Returns the endpoint of this protocol at `address`.
    pub fn at(&'static self, address: Address) -> Endpoint {
        Endpoint { protocol: self, address }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// An address and its protocol.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The address.
    pub address: Address,
}

impl Endpoint {
    /// Returns the URI of an export, with or without TLS.
    pub fn uri(&self, encrypted: bool, export: &str) -> String {
        (self.protocol.write)(&self.address, encrypted, export)
    }
}

/// A URI of any protocol; [`Uri::from_str`](std::str::FromStr::from_str) finds the protocol by the scheme.
#[derive(Clone, Debug)]
pub struct Uri {
    /// The server's address and protocol.
    pub endpoint: Endpoint,
    /// True if the connection is encrypted.
    pub encrypted: bool,
    /// Name of the export; empty if the URI has none.
    pub export: String,
}

/// An error in a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("URI {uri:?}: {reason}")]
pub struct UriError {
    /// The URI.
    pub uri: String,
    /// The problem, and the expected syntax.
    pub reason: String,
}
