//! A client's socket, plain or with TLS, and waiting for it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use super::output::Output;
use super::tls::{Config, TlsSession};

/// Behaviour of receiving if there are no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits for the set time; only for sockets without TLS.
    Wait,
    /// Fails with [`io::ErrorKind::WouldBlock`].
    Now,
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    /// The socket has bytes, an end or an error.
    pub readable: bool,
    /// The bell rang.
    pub rung: bool,
}

/// A connection for bytes.
pub struct Transport {
    socket: Arc<OwnedFd>,
    tls: Option<Box<TlsSession>>,
}

impl Transport {
    /// Creates a connection without TLS.
    pub fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, tls: None }
    }

    /// Switches to TLS: the next bytes received are the client's first TLS message.
    pub fn start_tls(&mut self, config: &Arc<Config>) -> io::Result<()> {
        assert!(self.tls.is_none(), "TLS is started once");
        self.tls = Some(Box::new(TlsSession::new(config)?));
        Ok(())
    }

    /// Makes receiving with [`Patience::Wait`] fail with [`io::ErrorKind::WouldBlock`] after `time` without bytes.
    pub fn set_patience(&self, time: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, Some(time))?)
    }

    /// True if it uses TLS.
    pub fn encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the names in the client's certificate; none if it showed no certificate.
    pub fn tls_names(&self) -> Vec<String> {
        self.tls.as_ref().map(|tls| tls.names()).unwrap_or_default()
    }

    /// Receives into the spare capacity of `into`, which is not empty, and returns the number of bytes; 0 at the end.
    pub fn receive(&mut self, into: &mut Vec<u8>, patience: Patience) -> io::Result<usize> {
        debug_assert!(into.capacity() > into.len());
        match &mut self.tls {
            Some(tls) => {
                assert_eq!(patience, Patience::Now, "TLS has messages of its own to wait for");
                tls.receive(&self.socket, into)
            }
            None => {
                let flags = if patience == Patience::Now { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
                let received =
                    retry_on_intr(|| recv(&self.socket, spare_capacity(into), flags).map(|(count, _)| count));
                Ok(received?)
            }
        }
    }

    /// Sends as much of `output` as the socket accepts immediately.
    pub fn send(&mut self, output: &mut Output) -> io::Result<()> {
        let sent = match &mut self.tls {
            Some(tls) => tls.send(&self.socket, output),
            None => send_plain(&self.socket, output),
        };
        sent.or_else(|error| if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
    }

    /// True if there is more to send: `output`, or messages of TLS.
    pub fn has_more(&self, output: &Output) -> bool {
        !output.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.has_more())
    }

    /// Waits until the socket is readable or writable, `bell` rings, or the deadline passes. The next call that uses
    /// the socket returns its errors.
    pub fn wait(&self, read: bool, write: bool, bell: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<Ready> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, read);
        events.set(PollFlags::OUT, write);
        let mut polled = [PollFd::from_borrowed_fd(bell, PollFlags::IN), PollFd::new(&self.socket, events)];
        // poll(2) reports the end of the connection even if not requested, so an unwanted socket is left out.
        let count = if read || write { 2 } else { 1 };
        let timeout = match deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(Timespec::try_from(left).map_err(io::Error::other)?)
            }
        };
        match poll(&mut polled[..count], timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let readable = read && !(polled[1].revents() - PollFlags::OUT).is_empty();
        Ok(Ready { readable, rung: !polled[0].revents().is_empty() })
    }

    /// True if the client has closed its side, even if earlier bytes are not received yet.
    pub fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Closes TLS in order, if the socket accepts it immediately.
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
    }
}

fn send_plain(socket: &OwnedFd, output: &mut Output) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    while !output.is_empty() {
        let sent = output.slices(|slices| match slices {
            [slice] => retry_on_intr(|| send(socket, slice, flags)),
            _ => retry_on_intr(|| sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)),
        });
        output.consume(sent?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::super::completions::Completions;
    use super::*;

    #[test]
    fn a_hang_up_is_detected_behind_unread_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let transport = Transport::new(Arc::new(ours.into()));
        std::io::Write::write_all(&mut theirs, b"unread").unwrap();
        assert!(!transport.has_hung_up());
        drop(theirs);
        assert!(transport.has_hung_up());
    }

    #[test]
    fn a_client_that_is_gone_wakes_no_wait_for_the_bell() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let transport = Transport::new(Arc::new(ours.into()));
        let completions = Completions::new().unwrap();
        drop(theirs);
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        let waited = transport.wait(false, false, completions.bell(), soon());
        assert_eq!(waited.map_err(|error| error.kind()).unwrap_err(), io::ErrorKind::TimedOut);
        assert!(transport.wait(true, false, completions.bell(), soon()).unwrap().readable);
        completions.ring();
        let ready = transport.wait(false, false, completions.bell(), None).unwrap();
        assert!(ready.rung && !ready.readable);
    }
}
