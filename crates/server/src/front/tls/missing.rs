//! A server built without TLS: it cannot load certificates, so there are no connections with TLS.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::TlsFiles;
use crate::front::output::Output;

/// Certificates and keys: none can be loaded.
#[derive(Debug)]
pub enum Config {}

impl Config {
    /// True if clients must show certificates.
    pub fn asks_clients(&self) -> bool {
        match *self {}
    }
}

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error(
    "TLS certificate {certificate}: this server was built without TLS, expected the mode off, or a server that was \
     built with the feature tls"
)]
pub struct TlsError {
    /// The certificate's file.
    certificate: PathBuf,
}

impl TlsFiles {
    /// Fails.
    pub fn load(&self) -> Result<Arc<Config>, TlsError> {
        Err(TlsError { certificate: self.certificate.clone() })
    }
}

/// A connection with TLS: there is none.
pub enum TlsSession {}

impl TlsSession {
    pub fn new(config: &Arc<Config>) -> io::Result<TlsSession> {
        match **config {}
    }

    pub fn names(&self) -> Vec<String> {
        match *self {}
    }

    pub fn has_more(&self) -> bool {
        match *self {}
    }

    pub fn send(&mut self, _: &OwnedFd, _: &mut Output) -> io::Result<()> {
        match *self {}
    }

    pub fn receive(&mut self, _: &OwnedFd, _: &mut Vec<u8>) -> io::Result<usize> {
        match *self {}
    }

    pub fn close(&mut self, _: &OwnedFd) {
        match *self {}
    }
}
