//! TLS: whether connections are encrypted, and the files of certificates and keys. What encrypts is the feature `tls`.

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

pub(super) use built::Session;
pub use built::{Config, TlsError};

/// Whether connections are encrypted, and how.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client wants it.
    Allowed(Arc<Config>),
    /// Always.
    Required(Arc<Config>),
}

impl Tls {
    /// Certificates and keys, unless TLS is off.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        match self {
            Self::Off => None,
            Self::Allowed(config) | Self::Required(config) => Some(config),
        }
    }

    /// Whether clients can show certificates.
    pub(super) fn asks_clients(&self) -> bool {
        self.config().is_some_and(|config| config.asks_clients())
    }
}

/// Where a server's certificate is.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM file of the server's certificate, followed by those between it and its authority, if any.
    pub certificate: PathBuf,
    /// PEM file of the certificate's private key.
    pub key: PathBuf,
    /// PEM file of the authorities that clients' certificates must come from; without it clients need none.
    pub client_authorities: Option<PathBuf>,
}
