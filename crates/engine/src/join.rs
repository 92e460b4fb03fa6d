//! The combined result of a request that was split into pieces.

use std::sync::{Arc, Mutex, PoisonError};

use crate::request::{Done, Error};

/// Collects the results of all pieces: the bytes read, or the first error.
pub struct Join {
    inner: Mutex<Inner>,
}

struct Inner {
    left: usize,
    bytes: Vec<u8>,
    error: Option<Error>,
    done: Option<Done>,
}

impl Join {
    /// Expects `pieces` results, at least one, and stores what they read in `bytes`.
    pub fn new(pieces: usize, bytes: Vec<u8>, done: Done) -> Arc<Join> {
        assert!(pieces > 0, "a request has a piece");
        Arc::new(Join { inner: Mutex::new(Inner { left: pieces, bytes, error: None, done: Some(done) }) })
    }

    /// Returns the completion of the piece that begins at `at`.
    pub fn piece(self: &Arc<Join>, at: usize) -> Done {
        let join = self.clone();
        Box::new(move |result| join.answered(at, result))
    }

    fn answered(&self, at: usize, result: Result<Vec<u8>, Error>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(read) => {
                if let Some(bytes) = inner.bytes.get_mut(at..at + read.len()) {
                    bytes.copy_from_slice(&read);
                }
            }
            Err(error) => inner.error = inner.error.or(Some(error)),
        }
        inner.left -= 1;
        if inner.left > 0 {
            return;
        }
        let (bytes, error) = (std::mem::take(&mut inner.bytes), inner.error);
        let done = inner.done.take().expect("the last answer comes once");
        drop(inner);
        done(error.map_or(Ok(bytes), Err));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_request_is_answered_once_with_all_bytes_or_the_first_error() {
        let (sender, receiver) = channel();
        let join = |bytes| {
            let sender = sender.clone();
            Join::new(2, bytes, Box::new(move |result| sender.send(result).unwrap()))
        };
        let whole = join(vec![0; 4]);
        whole.piece(2)(Ok(vec![3, 4]));
        assert!(receiver.try_recv().is_err());
        whole.piece(0)(Ok(vec![1, 2]));
        assert_eq!(receiver.try_recv().unwrap(), Ok(vec![1, 2, 3, 4]));
        let failed = join(Vec::new());
        failed.piece(0)(Err(Error::NoSpace));
        failed.piece(0)(Err(Error::Io));
        assert_eq!(receiver.try_recv().unwrap(), Err(Error::NoSpace));
    }
}
