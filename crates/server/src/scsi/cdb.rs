//! Fields of command descriptor blocks.

/// Bytes of the longest command descriptor block.
pub const CDB_BYTES: usize = 16;

/// A command descriptor block, padded with zeroes.
pub type Cdb = [u8; CDB_BYTES];

/// A big-endian number in a command descriptor block: its first byte and its number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub usize, pub usize);

impl Field {
    /// Returns its value.
    pub fn of(self, cdb: &Cdb) -> u64 {
        cdb[self.0..self.0 + self.1].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}

/// Returns the big-endian number in up to eight bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
