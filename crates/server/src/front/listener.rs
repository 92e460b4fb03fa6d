//! Sockets that clients connect to.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use flashwise_core::filter::Client;
use rustix::net::sockopt::set_socket_keepalive;

use super::address::Address;
use super::peer::peer;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program listens there.
    #[error("{address}: address in use: another program listens there; stop it or choose another address")]
    InUse {
        /// Where.
        address: String,
    },
    /// A file is in the way.
    #[error("{path}: found a file that is not a socket; remove it or choose another path")]
    NotASocket {
        /// Which.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{address}: cannot listen: {error}")]
    Io {
        /// Where.
        address: String,
        /// What it says.
        error: io::Error,
    },
}

enum Socket {
    Tcp(TcpListener),
    /// With the device and inode of its file.
    Unix(UnixListener, PathBuf, (u64, u64)),
}

/// A socket that clients connect to. The file of a Unix socket goes when this goes.
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Listens at an address: at several sockets if its name stands for several.
    pub fn bind(address: &Address) -> Result<Vec<Self>, ListenError> {
        match address {
            Address::Unix(path) => Ok(vec![bind_unix(path)?]),
            Address::Tcp { host, port } => bind_tcp(host, *port, address),
        }
    }

    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> io::Result<Address> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(Address::Tcp { host: address.ip().to_string(), port: address.port() })
            }
            Socket::Unix(_, path, _) => Ok(Address::Unix(path.clone())),
        }
    }

    /// The next client, if one waits, and who it is.
    pub fn accept(&self) -> io::Result<(OwnedFd, Client)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                // A client whose machine is gone says nothing; this finds out.
                set_socket_keepalive(&stream, true)?;
                let client = Client { address: Some(address.ip().to_canonical()), ..Client::default() };
                Ok((stream.into(), client))
            }
            Socket::Unix(listener, ..) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                let client = peer(&stream);
                Ok((stream.into(), client))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener, ..) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path, identity) = &self.socket {
            // Someone may have put another socket there.
            if std::fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *identity) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn failed(address: &dyn ToString) -> impl Fn(io::Error) -> ListenError + use<> {
    let address = address.to_string();
    move |error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address: address.clone() },
        _ => ListenError::Io { address: address.clone(), error },
    }
}

fn bind_tcp(host: &str, port: u16, address: &Address) -> Result<Vec<Listener>, ListenError> {
    let failed = failed(address);
    let resolved: Vec<SocketAddr> = if host.is_empty() {
        // Takes IPv4 as well, where it is not turned off.
        vec![SocketAddr::from(([0_u16; 8], port)), SocketAddr::from(([0_u8; 4], port))]
    } else {
        (host, port).to_socket_addrs().map_err(&failed)?.collect()
    };
    let mut listeners = Vec::new();
    let mut absent = None;
    for candidate in resolved {
        match TcpListener::bind(candidate) {
            Ok(listener) => {
                rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
                listener.set_nonblocking(true).map_err(&failed)?;
                listeners.push(Listener { socket: Socket::Tcp(listener) });
            }
            Err(error) if is_absent(&error) => absent = Some(error),
            Err(error) => return Err(failed(error)),
        }
        // Of all addresses the first covers the second; of any free port there is one.
        if !listeners.is_empty() && (host.is_empty() || port == 0) {
            break;
        }
    }
    match (listeners.is_empty(), absent) {
        (false, _) => Ok(listeners),
        (true, absent) => Err(failed(absent.unwrap_or_else(|| io::Error::other("the name stands for no address")))),
    }
}

/// Whether this machine does not have the address, as when a name stands for IPv6 too, and that is turned off.
fn is_absent(error: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(unsupported)
}

fn bind_unix(path: &Path) -> Result<Listener, ListenError> {
    let failed = failed(&path.display());
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path).map_err(&failed)?
        }
        bound => bound.map_err(&failed)?,
    };
    rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    listener.set_nonblocking(true).map_err(&failed)?;
    let metadata = std::fs::symlink_metadata(path).map_err(&failed)?;
    let identity = (metadata.dev(), metadata.ino());
    Ok(Listener { socket: Socket::Unix(listener, path.to_owned(), identity) })
}

/// Removes the socket file of a server that died.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = failed(&path.display());
    let metadata = std::fs::symlink_metadata(path).map_err(&failed)?;
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed(error)),
        _ => Err(ListenError::InUse { address: path.display().to_string() }),
    }
}
