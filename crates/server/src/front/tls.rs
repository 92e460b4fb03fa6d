//! TLS: its use, and the files of certificates and keys. The feature `tls` provides the encryption.

#[cfg(feature = "tls")]
mod encrypting;
#[cfg(not(feature = "tls"))]
mod missing;

#[cfg(feature = "tls")]
use encrypting as built;
#[cfg(not(feature = "tls"))]
use missing as built;

use std::path::PathBuf;
use std::sync::Arc;

pub(super) use built::TlsSession;
pub use built::{Config, TlsError};

/// Use of TLS.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client requests it.
    Allowed(Arc<Config>),
    /// Always.
    Required(Arc<Config>),
}

impl Tls {
    /// Returns the certificates and keys, unless TLS is off.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        match self {
            Self::Off => None,
            Self::Allowed(config) | Self::Required(config) => Some(config),
        }
    }

    /// True if clients can show certificates.
    pub(super) fn asks_clients(&self) -> bool {
        self.config().is_some_and(|config| config.asks_clients())
    }
}

/// Files of a server's certificates.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM file of the server's certificate, followed by any intermediate certificates.
    pub certificate: PathBuf,
    /// PEM file of the certificate's private key.
    pub key: PathBuf,
    /// PEM file of the authorities of clients' certificates; without it clients need none.
    pub client_authorities: Option<PathBuf>,
}
