//! Tests of WLFC: by hand, and in a world with power failures.

pub mod random;

mod crash;
mod device;
mod hand;
mod witnesses;

/// A planted bug, which the tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The paper's rule: among several cache buckets of a backend bucket, the one with the highest epoch counts.
    HighestEpoch,
    /// Only the newest copy and the newest bucket of logs count.
    NewestOfEach,
    /// A write bypasses the cache as in the paper, without a tombstone.
    NoTombstone,
    /// A tombstone is left, but the data that it hides is not written back first.
    TombstoneAlone,
    /// Buckets are erased before their replacement is durable.
    ResetAtOnce,
    /// Buckets of one backend bucket are erased together.
    ResetsTogether,
    /// The bucket that was evicted last is erased first.
    LastFirst,
    /// A dirty copy is written back over data written past the cache since it was made.
    OverPassed,
    /// A clean copy is made of data that the backend may still lose.
    VolatileCopy,
    /// Logs are written back that flash may still lose.
    WriteBackFirst,
}

impl Planted {
    pub const ALL: [Planted; 10] = [
        Planted::HighestEpoch,
        Planted::NewestOfEach,
        Planted::NoTombstone,
        Planted::TombstoneAlone,
        Planted::ResetAtOnce,
        Planted::ResetsTogether,
        Planted::LastFirst,
        Planted::OverPassed,
        Planted::VolatileCopy,
        Planted::WriteBackFirst,
    ];
}
