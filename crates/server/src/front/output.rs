//! Bytes to send: small replies are gathered in one buffer, long data stays in its own.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Data up to this length is copied behind its header; longer data is sent from its own buffer.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// At this length the gathering buffer is closed and another one started.
const GATHERED_BYTES: usize = 128 << 10;
/// Maximum number of pieces sent in one call.
const SLICES_MAX: usize = 32;

/// A queue of bytes. It is sent in order: `closed`, then `gathered`.
#[derive(Debug, Default)]
pub struct Output {
    closed: VecDeque<Vec<u8>>,
    gathered: Vec<u8>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    length: usize,
    spare: Vec<u8>,
}

impl Output {
    /// Returns the number of unsent bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the memory of the unsent pieces, including sent bytes of the first one.
    pub fn held_bytes(&self) -> usize {
        self.length + self.sent
    }

    /// Frees the spare buffer.
    pub fn trim(&mut self) {
        self.spare = Vec::new();
        if self.gathered.is_empty() {
            self.gathered = Vec::new();
        }
    }

    /// True if everything is sent.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends the bytes that `put` appends.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if self.gathered.len() >= GATHERED_BYTES {
            self.close();
        }
        let before = self.gathered.len();
        put(&mut self.gathered);
        self.length += self.gathered.len() - before;
    }

    /// Appends `data`.
    pub fn put_data(&mut self, data: Vec<u8>) {
        if data.len() <= COPIED_BYTES_MAX {
            self.put(|output| output.extend_from_slice(&data));
        } else {
            self.close();
            self.length += data.len();
            self.closed.push_back(data);
        }
    }

    fn close(&mut self) {
        if !self.gathered.is_empty() {
            let gathered = std::mem::replace(&mut self.gathered, std::mem::take(&mut self.spare));
            self.closed.push_back(gathered);
        }
    }

    /// Returns the first unsent piece.
    #[cfg(any(feature = "tls", test))]
    pub fn front(&self) -> &[u8] {
        &self.closed.front().unwrap_or(&self.gathered)[self.sent..]
    }

    /// Calls `send` with the first unsent pieces.
    pub fn slices<Sent>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> Sent) -> Sent {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut sent = self.sent;
        for piece in self.closed.iter().chain([&self.gathered]).take(SLICES_MAX) {
            slices[count] = IoSlice::new(&piece[sent..]);
            sent = 0;
            count += 1;
        }
        send(&slices[..count])
    }

    /// Removes the first `length` bytes, which are sent.
    pub fn consume(&mut self, length: usize) {
        assert!(length <= self.length, "no more is sent than there is");
        self.length -= length;
        self.sent += length;
        while let Some(first) = self.closed.front() {
            if self.sent < first.len() {
                return;
            }
            self.sent -= first.len();
            let mut first = self.closed.pop_front().expect("there is a first piece");
            // The gathering buffer is reused; the buffer of a long read is freed.
            if self.spare.capacity() == 0 && first.capacity() <= 2 * GATHERED_BYTES {
                first.clear();
                self.spare = first;
            }
        }
        if self.length == 0 {
            self.gathered.clear();
            self.sent = 0;
        }
    }

    /// Discards everything, because the client is gone.
    pub fn discard(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns everything in `output`, sent in steps of `step` bytes.
    fn sent(output: &mut Output, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let chunk = output.slices(|slices| {
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(step).collect();
                bytes
            });
            let front = output.front();
            let shared = front.len().min(chunk.len());
            assert_eq!(front[..shared], chunk[..shared]);
            output.consume(chunk.len());
            all.extend(chunk);
        }
        all
    }

    #[test]
    fn bytes_come_out_in_the_order_in_which_they_went_in() {
        for step in [1000, 77_777, usize::MAX] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for number in 0..200_u32 {
                let data = vec![number as u8; number as usize * 300];
                output.put(|output| output.extend_from_slice(&number.to_be_bytes()));
                expected.extend(number.to_be_bytes());
                expected.extend(&data);
                output.put_data(data);
                if number == 150 {
                    output.consume(3);
                }
            }
            assert_eq!(output.length(), expected.len() - 3);
            assert!(sent(&mut output, step) == expected[3..], "step {step}");
            output.put(|output| output.push(9));
            assert_eq!(sent(&mut output, step), [9]);
        }
    }
}
