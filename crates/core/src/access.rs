//! An access to one block, the input of a policy.

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// The client reads the block.
    Read = 0,
    /// The client writes the block.
    Write = 1,
}

impl Op {
    /// Returns the op stored as `code` in a normalised trace, if valid.
    pub fn from_code(code: u8) -> Option<Op> {
        match code {
            0 => Some(Op::Read),
            1 => Some(Op::Write),
            _ => None,
        }
    }
}

/// [`Access::next_use`] of a block that is not accessed again.
pub const NEVER: u32 = u32::MAX;

/// One access to one block. A request that spans n blocks is n accesses (LARC, section IV.A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<K> {
    /// The block: a dense 32-bit id in the simulator, a 64-bit address in the server.
    pub block: K,
    /// Read or write.
    pub op: Op,
    /// Length in blocks of the request of this access.
    pub request_blocks: u32,
    /// Position (from 0, counted in accesses) of the next access to the same block, or [`NEVER`]. Only offline policies
    /// read it; callers of online policies may leave it at [`NEVER`].
    pub next_use: u32,
}

impl<K> Access<K> {
    /// Returns a one-block read of `block`.
    pub fn read(block: K) -> Self {
        Access { block, op: Op::Read, request_blocks: 1, next_use: NEVER }
    }

    /// Returns a one-block write of `block`.
    pub fn write(block: K) -> Self {
        Access { block, op: Op::Write, request_blocks: 1, next_use: NEVER }
    }
}
