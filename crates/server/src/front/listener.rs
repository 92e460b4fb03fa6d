//! Listening sockets.

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

/// Clients that can wait to be accepted.
const BACKLOG: i32 = 4096;

/// The reason why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use.
    #[error("{address}: address in use: another program listens there; stop it or choose another address")]
    InUse {
        /// The address.
        address: String,
    },
    /// A file that is no socket exists at the path.
    #[error("{path}: found a file that is not a socket; remove it or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system reports an error.
    #[error("{address}: cannot listen: {error}")]
    Io {
        /// The address.
        address: String,
        /// The error.
        error: io::Error,
    },
}

enum Socket {
    Tcp(TcpListener),
    /// With its path, and the device and inode of its file.
    Unix(UnixListener, PathBuf, (u64, u64)),
}

/// A listening socket. The file of a Unix socket is removed on drop.
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Listens at an address, on several sockets if its name has several IP addresses.
    pub fn bind(address: &Address) -> Result<Vec<Self>, ListenError> {
        match address {
            Address::Unix(path) => Ok(vec![bind_unix(path)?]),
            Address::Tcp { host, port } => bind_tcp(host, *port, address),
        }
    }

    /// Returns the address, with the port that the system chose.
    pub fn address(&self) -> io::Result<Address> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(Address::Tcp { host: address.ip().to_string(), port: address.port() })
            }
            Socket::Unix(_, path, _) => Ok(Address::Unix(path.clone())),
        }
    }

    /// Returns the next waiting client's socket and identity.
    pub fn accept(&self) -> io::Result<(OwnedFd, Client)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                // Detects clients whose machine is gone.
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
            // Another socket may have replaced it.
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
        // Accepts IPv4 as well, unless that is disabled.
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
        // The first covers all addresses; and there is only one free port.
        if !listeners.is_empty() && (host.is_empty() || port == 0) {
            break;
        }
    }
    match (listeners.is_empty(), absent) {
        (false, _) => Ok(listeners),
        (true, absent) => Err(failed(absent.unwrap_or_else(|| io::Error::other("the name stands for no address")))),
    }
}

/// True if this machine lacks the address, for example if a name also has an IPv6 address and IPv6 is disabled.
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
