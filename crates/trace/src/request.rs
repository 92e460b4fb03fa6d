//! A request of a trace, as a client sent it.

use std::hash::BuildHasher;

use flashwise_core::access::Op;
use flashwise_core::recording::{Flags, Operation};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// A read or write of a range of bytes of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Microseconds since the trace's own epoch; 0 in formats without times.
    pub time_us: i64,
    /// Read or write.
    pub op: Op,
    /// The number of the volume among the [`Volumes`] it was read with.
    pub volume: u32,
    /// The first byte.
    pub offset_bytes: u64,
    /// The length in bytes, at least 1.
    pub length_bytes: u64,
}

/// A request as a server recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Microseconds on the server's clock.
    pub time_us: i64,
    /// The number of the volume among the recording's [`Volumes`].
    pub volume: u32,
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub offset_bytes: u64,
    /// The number of bytes; can be 0.
    pub length_bytes: u64,
    /// The flags.
    pub flags: Flags,
}

impl RecordedRequest {
    /// Returns the request as a read or write of a trace; `None` for other operations.
    pub fn access(&self) -> Option<Request> {
        let RecordedRequest { time_us, volume, operation, offset_bytes, length_bytes, .. } = *self;
        let op = match operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush | Operation::Trim | Operation::WriteZeroes | Operation::Cache => return None,
        };
        Some(Request { time_us, op, volume, offset_bytes, length_bytes })
    }
}

/// Returns the number of blocks that a request touches.
pub fn blocks_of(request: &Request, block_size_bytes: u64) -> u64 {
    let last_byte = request.offset_bytes + (request.length_bytes - 1);
    last_byte / block_size_bytes - request.offset_bytes / block_size_bytes + 1
}

/// The volumes of a trace, numbered in order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    names: Vec<Vec<u8>>,
    numbers: HashTable<u32>,
    last: usize,
    tells_none: bool,
}

/// The name of the only volume in formats that do not distinguish volumes.
pub const ONLY_VOLUME: &[u8] = b"0";

impl Volumes {
    /// Returns the number of the only volume of a trace that does not distinguish volumes.
    #[inline]
    pub fn only(&mut self) -> u32 {
        self.tells_none = true;
        self.number(ONLY_VOLUME)
    }

    /// True if the trace does not distinguish volumes; false if a trace names its volume [`ONLY_VOLUME`].
    pub fn tells_none(&self) -> bool {
        self.tells_none
    }

    /// Returns the number of the volume named `name`.
    #[inline]
    pub fn number(&mut self, name: &[u8]) -> u32 {
        if self.names.get(self.last).is_none_or(|last| last != name) {
            self.last = self.find(name);
        }
        self.last as u32
    }

    /// Returns the number of the volume whose name consists of two names with `between` between them.
    #[inline]
    pub fn number_of_two(&mut self, first: &[u8], between: u8, second: &[u8]) -> u32 {
        let is_last = self.names.get(self.last).is_some_and(|last| {
            let (head, tail) = last.split_at(first.len().min(last.len()));
            head == first && tail.split_first() == Some((&between, second))
        });
        if !is_last {
            self.last = self.find(&[first, &[between], second].concat());
        }
        self.last as u32
    }

    fn find(&mut self, name: &[u8]) -> usize {
        let Volumes { names, numbers, .. } = self;
        let hash = FxBuildHasher.hash_one(name);
        if let Some(&number) = numbers.find(hash, |&number| names[number as usize] == name) {
            return number as usize;
        }
        let number = names.len();
        names.push(name.to_vec());
        numbers.insert_unique(hash, number as u32, |&number| FxBuildHasher.hash_one(names[number as usize].as_slice()));
        number
    }

    /// Returns the names, by number.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }
}

/// Returns the name of a volume for descriptions and the command line, with a replacement for names that are not UTF-8.
pub fn volume_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) => name.to_owned(),
        Err(_) => name.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_numbered_in_order_of_first_appearance() {
        let mut volumes = Volumes::default();
        let names: Vec<_> = (0..100).map(|number| format!("volume {number}").into_bytes()).collect();
        for _ in 0..2 {
            for (number, name) in names.iter().enumerate() {
                assert_eq!(volumes.number(name), number as u32);
            }
        }
        assert_eq!(volumes.names(), names);
    }

    #[test]
    fn a_volume_of_two_names_is_the_one_of_both_joined() {
        let mut volumes = Volumes::default();
        assert_eq!(volumes.number_of_two(b"src1", b'.', b"0"), 0);
        assert_eq!(volumes.number_of_two(b"src1", b'.', b"0"), 0);
        assert_eq!(volumes.number_of_two(b"src1", b'.', b"01"), 1);
        assert_eq!(volumes.number_of_two(b"src", b'.', b""), 2);
        assert_eq!(volumes.number_of_two(b"src1.0", b'.', b""), 3);
        assert_eq!(volumes.number(b"src1.0"), 0);
        assert_eq!(volumes.names()[2], b"src.");
    }
}
