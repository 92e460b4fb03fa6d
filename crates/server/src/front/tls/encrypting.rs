//! Encryption: certificates and keys from PEM files, and connections with TLS.
//!
//! Source: RFC 8446 and RFC 5280 by rustls; sections 4.1.2.6 (subject) and 4.2.1.6 (subject alternative names) of the
//! latter by x509-parser.

use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::TlsFiles;
use crate::front::output::Output;
use crate::secret;

/// Certificates and keys.
#[derive(Debug)]
pub struct Config {
    server: Arc<ServerConfig>,
    asks_clients: bool,
}

impl Config {
    /// True if clients must show certificates.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }
}

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{what} {path}: {error}")]
    File {
        /// The kind of the file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error.
        error: pem::Error,
    },
    /// A file lacks the expected item.
    #[error("{what} {path}: no certificate found; expected a block BEGIN CERTIFICATE in PEM format")]
    Empty {
        /// The kind of the file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// The certificate and the key do not match.
    #[error("TLS certificate {certificate} with key {key}: {error}")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The error.
        error: rustls::Error,
    },
    /// The authorities cannot be used.
    #[error("TLS client authorities {path}: {reason}")]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

impl TlsFiles {
    /// Reads the files.
    pub fn load(&self) -> Result<Arc<Config>, TlsError> {
        let certificates = certificates("TLS certificate", &self.certificate)?;
        let file = |error| TlsError::File { what: "TLS key", path: self.key.clone(), error };
        let text = secret::read(&self.key).map_err(|error| file(pem::Error::Io(error)))?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(file)?;
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
        let asks_clients = self.client_authorities.is_some();
        let mut server = builder.with_single_cert(certificates, key).map_err(pair)?;
        if asks_clients {
            // A resumed session shows no certificate, and the one shown before may have expired.
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(Arc::new(Config { server: Arc::new(server), asks_clients }))
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |error| TlsError::File { what, path: path.to_owned(), error };
    let text = secret::read_public(path, secret::BYTES_MAX).map_err(|error| file(pem::Error::Io(error)))?;
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(file)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what, path: path.to_owned() });
    }
    Ok(certificates)
}

/// A connection with TLS.
pub struct TlsSession(ServerConnection);

impl TlsSession {
    /// Starts TLS: the next bytes received are the client's first TLS message.
    pub fn new(config: &Arc<Config>) -> io::Result<TlsSession> {
        ServerConnection::new(Arc::clone(&config.server)).map(TlsSession).map_err(io::Error::other)
    }

    /// Returns the names in the client's certificate; none if it showed no certificate.
    pub fn names(&self) -> Vec<String> {
        let shown = self.0.peer_certificates().and_then(|shown| shown.first());
        shown.map(|certificate| certificate_names(certificate)).unwrap_or_default()
    }

    /// True if TLS has messages of its own to send.
    pub fn has_more(&self) -> bool {
        self.0.wants_write()
    }

    /// Sends as much of `output` as the socket accepts immediately.
    pub fn send(&mut self, socket: &OwnedFd, output: &mut Output) -> io::Result<()> {
        loop {
            while self.0.wants_write() {
                self.0.write_tls(&mut Now(socket.as_fd()))?;
            }
            if output.is_empty() || self.0.is_handshaking() {
                return Ok(());
            }
            let taken = self.0.writer().write(output.front())?;
            output.consume(taken);
        }
    }

    /// Receives into the spare capacity of `into` and returns the number of bytes; 0 at the end.
    pub fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let mut reader = self.0.reader();
            match reader.fill_buf() {
                Ok(plain) => {
                    let count = plain.len().min(into.capacity() - into.len());
                    into.extend_from_slice(&plain[..count]);
                    reader.consume(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.0.read_tls(&mut Now(socket.as_fd()))? == 0 {
                return Ok(0);
            }
            let processed = self.0.process_new_packets();
            // Replies of the handshake, or an alert that describes the error.
            let sent = self.send(socket, &mut Output::default());
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            sent.or_else(|error| if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) })?;
        }
    }

    /// Sends a close notification, if the socket accepts it immediately.
    pub fn close(&mut self, socket: &OwnedFd) {
        self.0.send_close_notify();
        // The connection ends in any case.
        let _ = self.send(socket, &mut Output::default());
    }
}

/// The socket, as used by the TLS library.
struct Now<'a>(BorrowedFd<'a>);

impl Read for Now<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = retry_on_intr(|| recv(self.0, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count));
        Ok(received?)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| send(self.0, buffer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the names in a DER certificate: the common names of its subject, and the alternative names that are DNS
/// names, mail addresses or URIs. Names that cannot be printed are omitted. Returns nothing if it is no certificate.
fn certificate_names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        for name in &alternative.value.general_names {
            match name {
                GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                    names.push((*name).to_owned());
                }
                _ => {}
            }
        }
    }
    names.dedup();
    names.retain(|name| !name.contains(char::is_control));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_subject_and_of_its_alternatives() {
        let mut params = rcgen::CertificateParams::new(vec!["db.example".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "the database");
        params.subject_alt_names.push(rcgen::SanType::URI("db\nanother line".try_into().unwrap()));
        params.subject_alt_names.push(rcgen::SanType::Rfc822Name("db@example".try_into().unwrap()));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(certificate_names(certificate.der()), ["the database", "db.example", "db@example"]);
        assert!(certificate_names(b"").is_empty() && certificate_names(&certificate.der()[1..]).is_empty());
    }
}
