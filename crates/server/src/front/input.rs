//! Received bytes on their way to the protocol.

use std::io;

use super::transport::{Patience, Transport};

/// Received bytes that are not processed yet.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    /// True if the last bytes filled the buffer, so there may be more.
    filled: bool,
}

impl Input {
    /// Creates a buffer of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), start: 0, filled: false }
    }

    /// Returns the bytes that are not processed yet.
    pub fn available(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns the size of the buffer.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// True if a larger buffer could have received more.
    pub fn is_too_small(&self) -> bool {
        self.filled
    }

    /// Resizes the buffer to `capacity` bytes, or more if it holds more.
    pub fn resize(&mut self, capacity: usize) {
        let mut bytes = Vec::with_capacity(capacity.max(self.available().len()));
        bytes.extend_from_slice(self.available());
        *self = Self { bytes, start: 0, filled: false };
    }

    /// Removes the first `length` bytes.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
        assert!(self.start <= self.bytes.len(), "no more is taken than there is");
    }

    /// Appends bytes that were received in another way.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.make_room();
        self.bytes.extend_from_slice(bytes);
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            // At most part of one request is moved, unless reading was delayed.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Receives more bytes and returns their number; 0 at the end.
    pub fn receive(&mut self, transport: &mut Transport, patience: Patience) -> io::Result<usize> {
        self.make_room();
        assert!(self.bytes.len() < self.bytes.capacity(), "a message fits into the buffer");
        let received = transport.receive(&mut self.bytes, patience);
        self.filled = self.bytes.len() == self.bytes.capacity();
        received
    }
}
