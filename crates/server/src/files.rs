//! The file descriptors of the process. Clients leave a reserve of them for the server itself.
//!
//! Linux gives each new file the lowest free number. So the number of a file shows how many are open at least, and how
//! many are left.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are left to devices, pools, recordings and the history.
const OWN: u64 = 64;
/// Files that are left to the management API.
const API: u64 = 96;

/// A connection takes a socket and an event file.
const PER_CONNECTION: u64 = 2;

/// The most files that the process may have open.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of the process to the most that it may set, and warns if that is too little for `connections_max`
/// clients.
pub fn raise_limit(connections_max: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(event = "open-files", %error, "cannot raise the limit of open files");
    }
    let limit = limit();
    let connections = connections_within(limit);
    if connections < connections_max as u64 {
        tracing::warn!(
            event = "open-files",
            limit,
            "{limit} open files suffice for about {connections} clients, fewer than connections-max = \
             {connections_max}; \
             raise LimitNOFILE or ulimit -n, or lower connections-max"
        );
    }
}

/// About how many clients a limit suffices for.
fn connections_within(limit: u64) -> u64 {
    (limit - reserve(limit)) / PER_CONNECTION
}

/// Files that clients leave: half of a low limit.
fn reserve(limit: u64) -> u64 {
    (OWN + API).min(limit / 2)
}

/// True if a client's socket takes a part of the reserve.
pub fn is_for_others(socket: impl AsFd) -> bool {
    is_within(socket, reserve)
}

/// True if a socket of the management API uses a descriptor reserved for devices.
#[cfg(feature = "http")]
pub fn is_for_devices(socket: impl AsFd) -> bool {
    is_within(socket, |limit| OWN.min(limit / 8))
}

fn is_within(socket: impl AsFd, reserve: impl Fn(u64) -> u64) -> bool {
    let limit = limit();
    socket.as_fd().as_raw_fd() as u64 >= limit - reserve(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_a_reserve_of_at_most_half() {
        assert_eq!([0, 1, 64, 256, 1024, 65_536].map(reserve), [0, 0, 32, 128, 160, 160]);
        assert_eq!([256, 1024, 65_536].map(connections_within), [64, 432, 32_688]);
    }
}
