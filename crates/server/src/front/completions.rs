//! Completed requests of exports, on their way back to the connection's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use flashwise_storage::export::{Done, Error};

/// The data of a request that its reply needs.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Identifies the request.
    pub cookie: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// True if the reply has data.
    pub reads: bool,
    /// Memory reserved for it, in bytes.
    pub reserved_bytes: usize,
}

/// A completed request.
#[derive(Debug)]
pub struct Completed {
    /// The request.
    pub asked: Asked,
    /// The result.
    pub result: Result<Vec<u8>, Error>,
}

#[derive(Debug, Default)]
struct Queue {
    completed: Vec<Completed>,
    sleeping: bool,
}

/// The completed requests of one connection. Adding one never waits for the client: there are at most as many as are in
/// flight.
#[derive(Debug)]
pub struct Completions {
    queue: Mutex<Queue>,
    bell: OwnedFd,
}

impl Completions {
    /// Creates an empty queue.
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queue: Mutex::default(), bell })
    }

    /// Returns the function that an export calls to complete a request.
    pub fn done(self: &Arc<Self>, asked: Asked) -> Done {
        // An export must not drop a request, but if it does, the client must not wait forever.
        let answer = Answer { completions: Arc::clone(self), asked, result: Err(Error::Io) };
        Box::new(move |result| answer.give(result))
    }

    /// Moves all completed requests into `completed`, which is empty.
    pub fn take(&self, completed: &mut Vec<Completed>) {
        debug_assert!(completed.is_empty());
        std::mem::swap(&mut self.queue.lock().completed, completed);
    }

    /// True if there are completed requests.
    pub fn has_any(&self) -> bool {
        !self.queue.lock().completed.is_empty()
    }

    /// Records that the connection waits for [`Self::bell`]; false if it need not wait.
    pub fn fall_asleep(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.sleeping = queue.completed.is_empty();
        queue.sleeping
    }

    /// Records that the connection has stopped waiting. `rung` is true if the bell rang.
    pub fn wake_up(&self, rung: bool) {
        self.queue.lock().sleeping = false;
        if rung {
            // Fails only if the bell has not rung, which does no harm.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Wakes the connection up unconditionally.
    pub fn ring(&self) {
        // Fails only after 2^64 - 1 unread rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Returns the bell. It becomes readable when a request completes while the connection sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Wake for Completions {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// A result that is delivered on drop, so that none is lost.
struct Answer {
    completions: Arc<Completions>,
    asked: Asked,
    result: Result<Vec<u8>, Error>,
}

impl Answer {
    fn give(mut self, result: Result<Vec<u8>, Error>) {
        self.result = result;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(Error::Io));
        let mut queue = self.completions.queue.lock();
        queue.completed.push(Completed { asked: self.asked, result });
        let sleeping = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if sleeping {
            self.completions.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { cookie: 7, offset: 0, length: 1, reads: true, reserved_bytes: 1 };

    fn rung(completions: &Completions) -> bool {
        rustix::io::read(completions.bell(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn the_bell_rings_only_for_a_connection_that_sleeps() {
        let completions = Arc::new(Completions::new().unwrap());
        completions.done(ASKED)(Ok(vec![1]));
        assert!(!rung(&completions));
        assert!(!completions.fall_asleep(), "there is an answer");
        let mut completed = Vec::new();
        completions.take(&mut completed);
        assert_eq!((completed[0].asked.cookie, &completed[0].result), (7, &Ok(vec![1])));
        assert!(completions.fall_asleep());
        completions.done(ASKED)(Err(Error::NoSpace));
        completions.done(ASKED)(Err(Error::NoSpace));
        assert!(rung(&completions));
        completions.wake_up(false);
        completions.done(ASKED)(Err(Error::NoSpace));
        assert!(!rung(&completions));
    }

    #[test]
    fn a_request_that_its_export_forgets_fails() {
        let completions = Arc::new(Completions::new().unwrap());
        drop(completions.done(ASKED));
        let mut completed = Vec::new();
        completions.take(&mut completed);
        assert_eq!(completed.len(), 1);
        assert_eq!(completed[0].result, Err(Error::Io));
    }
}
