//! The part of flashwise that serves: front ends, configuration, and management of volumes.
//!
//! A front end ([`front`]) turns a client's bytes into [`Request`](flashwise_storage::export::Request)s to an
//! [`Export`](flashwise_storage::export::Export), which a [`Volume`](flashwise_storage::volume::Volume) is.
//!
//! Exports are served from the start of a server until it is dropped; they may be added meanwhile:
//!
//! ```
//! use flashwise_storage::export::Exports;
//! use flashwise_server::front::{Address, Options, Server, nbd};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let socket = folder.path().join("nbd.sock");
//! let endpoint = nbd::PROTOCOL.at(Address::Unix(socket.clone()));
//! let server = Server::start(&[endpoint], Exports::default(), Options::default())?;
//! assert_eq!(server.uris("disk"), [format!("nbd+unix:///disk?socket={}", socket.display())]);
//! # Ok(())
//! # }
//! ```

pub mod allocator;
pub mod config;
mod files;
pub mod front;
pub mod limits;
pub mod manage;
mod reach;
mod reload;
pub mod scsi;
pub mod secret;
pub mod server;
pub mod state;

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
