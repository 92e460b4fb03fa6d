//! Where the management API listens: a TCP address, or a Unix socket as `unix:/path`.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::Access;
use rustix::io::Errno;

use crate::front::uri_parts::split_host;

/// The default TCP port.
pub const DEFAULT_PORT: u16 = 9470;
/// The file name of the socket where no address is given.
const SOCKET: &str = "api.sock";
/// Most bytes of the path of a Unix socket (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The directories that hold sockets while programs run: that of the service manager, that of the system, and the
/// user's.
fn runtime_directories() -> impl Iterator<Item = PathBuf> {
    let given = std::env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    // The service manager separates several directories with colons; the first is used.
    let of_service = given.split(':').next().filter(|path| !path.is_empty()).map(PathBuf::from);
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let of_user = of_user.map(|path| PathBuf::from(path).join("flashwise"));
    of_service.into_iter().chain([PathBuf::from("/run/flashwise")]).chain(of_user)
}

/// True if a directory that is missing is made for a socket in it, by a server or the service manager.
pub fn is_runtime_directory(path: &Path) -> bool {
    runtime_directories().any(|directory| directory == path)
}

/// Where a server listens if it is given no address: in the first runtime directory that it can use, else in its state
/// directory.
pub fn default_socket(state_directory: &Path) -> PathBuf {
    let is_usable = |directory: &PathBuf| {
        let can_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK);
        match can_write(directory) {
            Err(Errno::NOENT) => directory.parent().is_some_and(|parent| can_write(parent).is_ok()),
            found => found.is_ok(),
        }
    };
    runtime_directories().find(is_usable).unwrap_or_else(|| state_directory.to_owned()).join(SOCKET)
}

/// The socket of a server that was given no address, if there is one: the first that this process may connect to, else
/// the first.
pub fn find_default_socket(state_directory: &Path) -> Option<PathBuf> {
    let paths = runtime_directories().chain([state_directory.to_owned()]).map(|directory| directory.join(SOCKET));
    let found: Vec<PathBuf> = paths.filter(|path| is_socket(path)).collect();
    let may_connect = |path: &&PathBuf| rustix::fs::access(path.as_path(), Access::WRITE_OK).is_ok();
    found.iter().find(may_connect).or(found.first()).cloned()
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// A socket in the file system that only the server's user can open.
    Unix(PathBuf),
}

/// An address that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found '{found}', expected an address such as 127.0.0.1:9470, [::1]:9470 or unix:/run/flashwise.sock")]
pub struct AddressError {
    found: String,
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `host`, `host:port`, `[v6]:port` or `unix:/path`.
    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError { found: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, rest) = split_host(text).ok_or_else(wrong)?;
        let port = match rest {
            "" => DEFAULT_PORT,
            rest => rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?,
        };
        if host.is_empty() { Err(wrong()) } else { Ok(Address::Tcp(host.to_owned(), port)) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A socket in the file system.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which goes when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If another process removed the file, this fails without consequences.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Address {
    /// The TCP addresses that this stands for; none for a Unix socket.
    pub fn resolved(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Address::Tcp(host, port) => Ok((host.as_str(), *port).to_socket_addrs()?.collect()),
            Address::Unix(_) => Ok(Vec::new()),
        }
    }

    /// Listens here; on the first of these TCP addresses that can be had.
    pub fn bind(&self, resolved: &[SocketAddr]) -> io::Result<Listener> {
        let listener = match self {
            Address::Tcp(..) => Listener::Tcp(TcpListener::bind(resolved)?),
            Address::Unix(path) => bind_unix(path)?,
        };
        match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            Listener::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
        Ok(listener)
    }
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Some(directory) = path.parent().filter(|directory| is_runtime_directory(directory)) {
        // If this fails, the bind reports the error.
        let _ = DirBuilder::new().mode(0o755).create(directory);
    }
    if path.symlink_metadata().is_ok() && !is_socket(path) {
        let what = "found a file that is not a socket; remove it or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    // A killed server leaves its socket file behind. If the socket answers, another server is running.
    if is_socket(path) && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Listener::Unix(listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("127.0.0.1", "127.0.0.1:9470"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("localhost:0", "localhost:0"),
            ("[::1]", "[::1]:9470"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/a b", "unix:/run/a b"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in ["", ":80", "a:b", "a:65536", "::1", "[::1", "[a:80", "[::1]80", "[]:80", "unix:"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("found '{text}', expected an address such as")), "{error}");
        }
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_or_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        // Dropped without removing its file, as by a kill.
        drop(UnixListener::bind(&path).unwrap());
        let live = address.bind(&[]).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(address.bind(&[]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        let error = address.bind(&[]).unwrap_err().to_string();
        assert_eq!(error, "found a file that is not a socket; remove it or choose another path");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
