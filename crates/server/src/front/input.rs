//! Bytes that came from a client, on their way to the protocol.

use std::io;

use super::transport::{Patience, Transport};

/// Bytes that came and were not looked at yet.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    /// Whether the last bytes that came filled the buffer: there may be more.
    filled: bool,
}

impl Input {
    /// Room for `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), start: 0, filled: false }
    }

    /// What was not looked at yet.
    pub fn available(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// How much there is room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether a larger buffer would have taken more.
    pub fn is_too_small(&self) -> bool {
        self.filled
    }

    /// Makes room for `capacity` bytes, or for those that are there, if they are more.
    pub fn resize(&mut self, capacity: usize) {
        let mut bytes = Vec::with_capacity(capacity.max(self.available().len()));
        bytes.extend_from_slice(self.available());
        *self = Self { bytes, start: 0, filled: false };
    }

    /// Forgets the first `length` bytes.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
        assert!(self.start <= self.bytes.len(), "no more is taken than there is");
    }

    /// Appends bytes that came some other way.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Receives more; returns how many bytes, 0 for the end.
    pub fn receive(&mut self, transport: &mut Transport, patience: Patience) -> io::Result<usize> {
        if self.start > 0 {
            // What is kept is less than one request, unless reading was held up.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        assert!(self.bytes.len() < self.bytes.capacity(), "a message fits into the buffer");
        let received = transport.receive(&mut self.bytes, patience);
        self.filled = self.bytes.len() == self.bytes.capacity();
        received
    }
}
