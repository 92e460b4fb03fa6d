//! Requests that an export has answered, on their way back to the thread of their connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use flashwise_engine::export::{Done, Error};

/// What a reply needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Names the request.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// Whether the reply has data.
    pub reads: bool,
    /// Memory that is set aside for it, in bytes.
    pub reserved_bytes: usize,
}

/// An answered request.
#[derive(Debug)]
pub struct Completed {
    /// What was asked.
    pub asked: Asked,
    /// The answer.
    pub result: Result<Vec<u8>, Error>,
}

#[derive(Debug, Default)]
struct Queue {
    completed: Vec<Completed>,
    sleeping: bool,
}

/// The answered requests of one connection. Filling it never waits for the client: it holds at most as many as are in flight.
#[derive(Debug)]
pub struct Completions {
    queue: Mutex<Queue>,
    bell: OwnedFd,
}

impl Completions {
    /// An empty queue.
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queue: Mutex::default(), bell })
    }

    /// What an export calls to answer a request.
    pub fn done(self: &Arc<Self>, asked: Asked) -> Done {
        // An export that forgets a request is a broken one, but its client must not wait for ever.
        let answer = Answer { completions: Arc::clone(self), asked, result: Err(Error::Io) };
        Box::new(move |result| answer.give(result))
    }

    /// Swaps all answers into `completed`, which is empty.
    pub fn take(&self, completed: &mut Vec<Completed>) {
        debug_assert!(completed.is_empty());
        std::mem::swap(&mut self.queue.lock().completed, completed);
    }

    /// Whether there are answers to take.
    pub fn has_any(&self) -> bool {
        !self.queue.lock().completed.is_empty()
    }

    /// Notes that the connection waits for [`Self::bell`]; returns whether there is reason to wait.
    pub fn fall_asleep(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.sleeping = queue.completed.is_empty();
        queue.sleeping
    }

    /// Notes that the connection has stopped waiting. `rung` says whether the bell was heard.
    pub fn wake_up(&self, rung: bool) {
        self.queue.lock().sleeping = false;
        if rung {
            // Fails if another thread was faster, which cannot be, or the bell is silent, which is what is wanted.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Wakes the connection up, whatever it waits for.
    pub fn ring(&self) {
        // Fails only after 2^64 - 1 unheard rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Becomes readable when an answer comes while the connection sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Wake for Completions {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// An answer that is delivered when it is dropped, so that none is lost.
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
