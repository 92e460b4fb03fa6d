//! TLS: certificates and keys from PEM files. Source: RFC 8446 and RFC 5280 by rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Whether connections are encrypted, and how.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client wants it.
    Allowed(Arc<ServerConfig>),
    /// Always.
    Required(Arc<ServerConfig>),
}

impl Tls {
    /// Certificates and keys, unless TLS is off.
    pub(super) fn config(&self) -> Option<&Arc<ServerConfig>> {
        match self {
            Self::Off => None,
            Self::Allowed(config) | Self::Required(config) => Some(config),
        }
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

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{what} {path}: {error}")]
    File {
        /// Which of the files.
        what: &'static str,
        /// Its name.
        path: PathBuf,
        /// What is wrong.
        error: pem::Error,
    },
    /// A file has none of what is looked for.
    #[error("{what} {path}: no certificate found; expected a block BEGIN CERTIFICATE in PEM format")]
    Empty {
        /// Which of the files.
        what: &'static str,
        /// Its name.
        path: PathBuf,
    },
    /// The certificate and the key do not go together.
    #[error("TLS certificate {certificate} with key {key}: {error}")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
    /// The authorities cannot be used.
    #[error("TLS client authorities {path}: {reason}")]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl TlsFiles {
    /// Reads the files.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let certificates = certificates("TLS certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| TlsError::File {
            what: "TLS key",
            path: self.key.clone(),
            error,
        })?;
        let pair = |error| TlsError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), error };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = |reason: String| TlsError::Authorities { path: path.clone(), reason };
                let mut roots = RootCertStore::empty();
                for certificate in self::certificates("TLS client authorities", path)? {
                    roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| wrong(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        Ok(Arc::new(builder.with_single_cert(certificates, key).map_err(pair)?))
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |error| TlsError::File { what, path: path.to_owned(), error };
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what, path: path.to_owned() });
    }
    Ok(certificates)
}
