//! The process at the other end of a Unix socket. Source: unix(7), SO_PEERCRED; proc(5), /proc/PID/comm.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use flashwise_core::filter::Client;

/// Returns the process that connected, as it was at that time. A socket that is passed on, as nbd-client does to the
/// kernel, keeps the process that created it. Fields that the system hides stay unknown, such as the pid of a process
/// in an invisible namespace.
pub fn peer(socket: &UnixStream) -> Client {
    let Ok(found) = credentials(socket) else { return Client::default() };
    let pid = u32::try_from(found.pid).ok().filter(|&pid| pid > 0);
    let program = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    let program = program.map(|name| name.trim_end_matches('\n').to_owned());
    Client { pid, uid: Some(found.uid), gid: Some(found.gid), program, ..Client::default() }
}

/// Uses the C library, because rustix has no value for a pid of 0.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_behind_a_unix_socket_is_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let found = peer(&ours);
        assert_eq!(found.pid, Some(std::process::id()));
        assert_eq!(found.uid, Some(rustix::process::getuid().as_raw()));
        assert_eq!(found.gid, Some(rustix::process::getgid().as_raw()));
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found.program.as_deref(), Some(own.trim_end()));
        assert_eq!((found.address, found.tls_names.len()), (None, 0));
    }
}
