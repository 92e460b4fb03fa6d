//! TLS: clients that a server accepts, and input that it rejects before encryption.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_core::filter::Client as FilterClient;
use flashwise_server::front::nbd::protocol::{option, option_reply::*};
use flashwise_server::front::{Address, Options, Server, Tls, TlsConfig, TlsFiles, nbd};
use flashwise_storage::export::Exports;
use flashwise_testing::certificates::Certificates;
use flashwise_testing::client::{Client, Socket, named, option_bytes, request_bytes};
use flashwise_testing::memory::{Memory, noise};
use flashwise_testing::waiting::wait_until;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::tcp_address;

struct Rig {
    certificates: Certificates,
    disk: Arc<Memory>,
    server: Server,
}

impl Rig {
    fn start(tls: impl FnOnce(Arc<TlsConfig>) -> Tls, clients_need_certificates: bool) -> Self {
        let certificates = Certificates::default();
        let config = certificates.server_files(clients_need_certificates).load().unwrap();
        let exports = Exports::default();
        let disk = Arc::new(Memory::new(64 << 20));
        exports.add("disk", disk.clone());
        let options = Options { tls: tls(config), ..Options::default() };
        let server = Server::start(&[nbd::PROTOCOL.at(tcp_address("127.0.0.1"))], exports, options).unwrap();
        Self { certificates, disk, server }
    }

    fn plain(&self) -> Client {
        let mut client = Client::connect(&self.server.endpoints()[0].address).unwrap();
        client.give(&[0, 0, 0, 3]).unwrap();
        client
    }

    /// Returns a client that has started TLS, after `before`.
    fn encrypted(
        &self,
        identity: Option<&str>,
        before: impl FnOnce(&mut Client),
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut client = self.plain();
        before(&mut client);
        assert_eq!(client.option(option::NBD_OPT_STARTTLS, b"").unwrap(), [(NBD_REP_ACK, vec![])]);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificates.path("ca-cert.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let path = |kind| self.certificates.path(&format!("{name}-{kind}.pem"));
                let certificate = CertificateDer::from_pem_file(path("cert")).unwrap();
                let key = PrivateKeyDer::from_pem_file(path("key")).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        let Socket::Tcp(socket) = client.socket else { panic!("the rig listens at TCP") };
        StreamOwned::new(tls, socket)
    }

    fn check_well_behaved(&self, identity: Option<&str>) {
        let mut stream = self.encrypted(identity, |_| ());
        go(&mut stream).unwrap();
        let data = noise(5, 3_000_000);
        stream.write_all(&request_bytes(1, 1, 1, 1000, data.len() as u32)).unwrap();
        stream.write_all(&data).unwrap();
        assert_eq!(take(&mut stream, 16).unwrap(), b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x01");
        for cookie in 0..20 {
            stream.write_all(&request_bytes(0, 0, cookie, 1000, data.len() as u32)).unwrap();
        }
        for cookie in 0..20 {
            let header = take(&mut stream, 16).unwrap();
            assert_eq!((&header[..8], header[15]), (&b"\x67\x44\x66\x98\0\0\0\0"[..], cookie));
            assert!(take(&mut stream, data.len()).unwrap() == data);
        }
        stream.write_all(&request_bytes(2, 0, 0, 0, 0)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "TLS is closed before the connection");
    }
}

fn take(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Opens the export and returns the replies.
fn go(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    stream.write_all(&option_bytes(option::NBD_OPT_GO, &named("disk", b"\0\0")))?;
    // One reply of 12 bytes of information and one of none, with headers of 20 bytes.
    take(stream, 20 + 12 + 20)
}

#[test]
fn an_encrypted_client_is_served() {
    for clients_need_certificates in [false, true] {
        for mode in [Tls::Allowed, Tls::Required] {
            let rig = Rig::start(mode, clients_need_certificates);
            rig.check_well_behaved(clients_need_certificates.then_some("client"));
        }
    }
}

#[test]
fn required_tls_refuses_plain_clients() {
    let rig = Rig::start(Tls::Required, false);
    let mut client = rig.plain();
    let options = [(option::NBD_OPT_LIST, vec![]), (option::NBD_OPT_GO, named("disk", b"\0\0")), (99, vec![1; 5000])];
    for (option, data) in options {
        let replies = client.option(option, &data).unwrap();
        assert_eq!((replies.len(), replies[0].0), (1, NBD_REP_ERR_TLS_REQD));
    }
    assert_eq!(client.option(option::NBD_OPT_ABORT, b"").unwrap(), [(NBD_REP_ACK, vec![])]);
    assert!(client.is_closed());
    let mut client = rig.plain();
    client.give(&option_bytes(option::NBD_OPT_EXPORT_NAME, b"disk")).unwrap();
    assert!(client.is_closed());
    assert!(rig.server.uris("disk")[0].starts_with("nbds://127.0.0.1:"));
    rig.check_well_behaved(None);
}

#[test]
fn optional_tls_serves_plain_clients() {
    let rig = Rig::start(Tls::Allowed, false);
    let mut client = rig.plain();
    client.go("disk").unwrap();
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn tls_cannot_be_started_if_it_is_off() {
    let rig = Rig::start(|_| Tls::Off, false);
    let replies = rig.plain().option(option::NBD_OPT_STARTTLS, b"").unwrap();
    assert_eq!((replies.len(), replies[0].0), (1, NBD_REP_ERR_POLICY));
}

#[test]
fn input_before_tls_has_no_effect_after_it() {
    let rig = Rig::start(Tls::Required, false);
    // An attacker puts an option behind STARTTLS, to be taken as encrypted.
    let mut client = rig.plain();
    let injected = option_bytes(option::NBD_OPT_LIST, b"");
    client.give(&[option_bytes(option::NBD_OPT_STARTTLS, b""), injected].concat()).unwrap();
    assert_eq!(client.take(20).unwrap()[12..], [0, 0, 0, 1, 0, 0, 0, 0]);
    assert!(client.is_closed());
    // Bytes that are not TLS after TLS was agreed on.
    let mut client = rig.plain();
    client.option(option::NBD_OPT_STARTTLS, b"").unwrap();
    client.give(&option_bytes(option::NBD_OPT_LIST, b"")).unwrap();
    let mut heard = Vec::new();
    let _ = client.socket.read_to_end(&mut heard);
    // At most a fatal alert of TLS (RFC 8446, section 6).
    assert!(heard.is_empty() || heard[0] == 21, "{heard:?}");
    wait_until("both are counted", || rig.server.counters().handshakes_failed.load(Ordering::Relaxed) == 2);
    // Agreements without TLS are discarded: replies are simple again.
    let mut stream = rig.encrypted(None, |client| {
        assert_eq!(client.option(option::NBD_OPT_LIST, b"").unwrap()[0].0, NBD_REP_ERR_TLS_REQD);
    });
    go(&mut stream).unwrap();
    stream.write_all(&request_bytes(0, 0, 1, 0, 512)).unwrap();
    assert_eq!(take(&mut stream, 4).unwrap(), b"\x67\x44\x66\x98");
    drop(stream);
    rig.check_well_behaved(None);
}

#[test]
fn clients_without_the_right_certificate_are_not_let_in() {
    let rig = Rig::start(Tls::Required, true);
    for identity in [None, Some("stranger")] {
        let mut stream = rig.encrypted(identity, |_| ());
        assert!(go(&mut stream).is_err(), "{identity:?}");
    }
    rig.check_well_behaved(Some("client"));
}

/// The names in the certificate are "client", as in all tests.
#[test]
fn an_export_knows_the_address_and_the_certificate_of_a_client() {
    let rig = Rig::start(Tls::Allowed, true);
    rig.check_well_behaved(Some("client"));
    rig.plain().go("").unwrap();
    // The reply may come first.
    wait_until("both have opened it", || rig.disk.entered.lock().unwrap().len() == 2);
    let entered = rig.disk.entered.lock().unwrap();
    let address = Some("127.0.0.1".parse().unwrap());
    let export = "disk".to_owned();
    let plain = FilterClient { connection: Some(2), export, protocol: "nbd", address, ..FilterClient::default() };
    let encrypted = FilterClient { connection: Some(1), tls_names: vec!["client".to_owned()], ..plain.clone() };
    assert_eq!(*entered, [encrypted, plain]);
}

#[test]
fn mutated_tls_ends_and_harms_no_other() {
    let rig = Rig::start(Tls::Allowed, false);
    let mut state = 77;
    for length in 0..300 {
        let mut client = rig.plain();
        client.option(option::NBD_OPT_STARTTLS, b"").unwrap();
        // A record of a handshake, of random bytes.
        let mut record = [&[22, 3, 1, 0, 120][..], &noise(length, 120)].concat();
        record[5] = 1;
        record.truncate(length as usize);
        let part = &mut record[length as usize / 7..];
        part.rotate_left(flashwise_testing::memory::random(&mut state) as usize % part.len().clamp(1, 2));
        client.give(&record).unwrap();
        let Socket::Tcp(socket) = &client.socket else { panic!("the rig listens at TCP") };
        // The server may have closed it already.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = client.socket.read_to_end(&mut Vec::new());
    }
    wait_until("connections end", || rig.server.counters().connections.load(Ordering::Relaxed) == 0);
    rig.check_well_behaved(None);
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let certificates = Certificates::default();
    let good = certificates.server_files(true);
    let junk = certificates.path("junk.pem");
    std::fs::write(&junk, "not a certificate").unwrap();
    let missing = PathBuf::from("/nowhere/cert.pem");
    let error = |files: TlsFiles| files.load().unwrap_err().to_string();
    let found = error(TlsFiles { certificate: missing.clone(), ..good.clone() });
    assert!(found.starts_with("TLS certificate /nowhere/cert.pem: ") && found.contains("No such file"), "{found}");
    let found = error(TlsFiles { key: missing.clone(), ..good.clone() });
    assert!(found.starts_with("TLS key /nowhere/cert.pem: "), "{found}");
    let found = error(TlsFiles { client_authorities: Some(missing), ..good.clone() });
    assert!(found.starts_with("TLS client authorities /nowhere/cert.pem: "), "{found}");
    let found = error(TlsFiles { certificate: junk.clone(), ..good.clone() });
    assert!(found.contains("junk.pem: no certificate found"), "{found}");
    let found = error(TlsFiles { key: junk, ..good.clone() });
    assert!(found.starts_with("TLS key ") && found.contains("junk.pem"), "{found}");
    let found = error(TlsFiles { key: certificates.path("client-key.pem"), ..good });
    assert!(found.starts_with("TLS certificate ") && found.contains("client-key.pem"), "{found}");
}

#[test]
fn stopping_says_goodbye_to_encrypted_clients() {
    let rig = Rig::start(Tls::Required, false);
    let mut stream = rig.encrypted(None, |_| ());
    go(&mut stream).unwrap();
    let Address::Tcp { .. } = rig.server.endpoints()[0].address else { panic!("the rig listens at TCP") };
    assert!(rig.server.stop(std::time::Duration::from_secs(60)));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}
