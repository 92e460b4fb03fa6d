//! Certificates for one test: an authority, a server and clients that it signed, and a stranger.

use std::path::PathBuf;

use flashwise_server::front::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A directory of PEM files, with the names that QEMU expects.
pub struct Certificates {
    /// The directory.
    pub directory: TempDir,
}

impl Default for Certificates {
    /// Creates all of them.
    fn default() -> Self {
        let certificates = Self { directory: TempDir::new().unwrap() };
        let authority = certificates.authority("ca");
        certificates.vouched_for("server", &["localhost", "127.0.0.1"], &authority);
        certificates.vouched_for("client", &["a client"], &authority);
        certificates.vouched_for("backup", &["db.example"], &authority);
        let stranger = certificates.authority("other-ca");
        certificates.vouched_for("stranger", &["a stranger"], &stranger);
        certificates
    }
}

impl Certificates {
    /// Returns the path of one of the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a directory with the authority's certificate, and that of `name` as the client's.
    pub fn of_client(&self, name: &str) -> TempDir {
        let directory = TempDir::new().unwrap();
        std::fs::copy(self.path("ca-cert.pem"), directory.path().join("ca-cert.pem")).unwrap();
        for kind in ["cert", "key"] {
            let file = directory.path().join(format!("client-{kind}.pem"));
            std::fs::copy(self.path(&format!("{name}-{kind}.pem")), file).unwrap();
        }
        directory
    }

    /// Returns the server's settings.
    pub fn server_files(&self, clients_need_certificates: bool) -> TlsFiles {
        TlsFiles {
            certificate: self.path("server-cert.pem"),
            key: self.path("server-key.pem"),
            client_authorities: clients_need_certificates.then(|| self.path("ca-cert.pem")),
        }
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        std::fs::write(self.path(&format!("{name}-cert.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Issuer::new(params, key)
    }

    fn vouched_for(&self, name: &str, hosts: &[&str], authority: &Issuer<'_, KeyPair>) {
        let hosts: Vec<String> = hosts.iter().filter(|host| !host.contains(' ')).map(|&host| host.into()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        std::fs::write(self.path(&format!("{name}-cert.pem")), certificate.pem()).unwrap();
        crate::write_private(self.path(&format!("{name}-key.pem")), &key.serialize_pem());
    }
}
