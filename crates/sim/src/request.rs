//! One request of a trace, as a client sent it.

use flashwise_core::access::Op;

/// A read or write of a range of bytes of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Microseconds since the trace's own epoch; 0 in formats without times.
    pub time_us: i64,
    /// Read or write.
    pub op: Op,
    /// Number of the volume among the [`Volumes`] it was read with.
    pub volume: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Length, at least 1.
    pub length_bytes: u64,
}

/// Number of blocks that a request touches.
pub fn blocks_of(request: &Request, block_size_bytes: u64) -> u64 {
    let last_byte = request.offset_bytes + (request.length_bytes - 1);
    last_byte / block_size_bytes - request.offset_bytes / block_size_bytes + 1
}

/// The volumes of a trace, numbered in order of first appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    names: Vec<Vec<u8>>,
    last: usize,
}

impl Volumes {
    /// The number of the volume called `name`.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        if self.names.get(self.last).is_none_or(|last| last != name) {
            self.last = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.to_vec());
                self.names.len() - 1
            });
        }
        self.last as u32
    }

    /// The names, by number.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }
}
