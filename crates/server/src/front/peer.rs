//! Who is at the other end of a connection: a process of this machine, or the names in a certificate.
//!
//! Source: unix(7), SO_PEERCRED; proc(5), /proc/PID/comm; RFC 5280, sections 4.1.2.6 (subject) and 4.2.1.6 (subject alternative names),
//! by x509-parser.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use flashwise_core::filter::Client;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The process that connected, as it was then. A socket that is handed on, as nbd-client does to the kernel, stays that of the process
/// that made it. What the system does not tell stays unknown: the pid of a process in a namespace that is not seen from here.
pub fn peer(socket: &UnixStream) -> Client {
    let Ok(found) = credentials(socket) else { return Client::default() };
    let pid = u32::try_from(found.pid).ok().filter(|&pid| pid > 0);
    let program = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    let program = program.map(|name| name.trim_end_matches('\n').to_owned());
    Client { pid, uid: Some(found.uid), gid: Some(found.gid), program, ..Client::default() }
}

/// By the C library: that of rustix has no value for a pid of 0.
#[allow(unsafe_code)]
fn credentials(socket: &UnixStream) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the socket is open, and `found` has room for the `length` bytes that are written to it at most.
    let result = unsafe {
        let value = (&raw mut found).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length)
    };
    if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// The names in a certificate in DER: the common names of its subject, and the alternative names that are DNS names, mail addresses or
/// URIs. None if it is no certificate.
pub fn certificate_names(der: &[u8]) -> Vec<String> {
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
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_behind_a_unix_socket_is_told() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let found = peer(&ours);
        assert_eq!(found.pid, Some(std::process::id()));
        assert_eq!(found.uid, Some(rustix::process::getuid().as_raw()));
        assert_eq!(found.gid, Some(rustix::process::getgid().as_raw()));
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found.program.as_deref(), Some(own.trim_end()));
        assert_eq!((found.address, found.tls_names.len()), (None, 0));
    }

    #[test]
    fn names_are_those_of_the_subject_and_of_its_alternatives() {
        let mut params = rcgen::CertificateParams::new(vec!["db.example".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "the database");
        params.subject_alt_names.push(rcgen::SanType::Rfc822Name("db@example".try_into().unwrap()));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(certificate_names(certificate.der()), ["the database", "db.example", "db@example"]);
        assert!(certificate_names(b"").is_empty() && certificate_names(&certificate.der()[1..]).is_empty());
    }
}
