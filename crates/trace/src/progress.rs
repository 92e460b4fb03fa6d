//! The progress of long work.

/// Receives the amount of work done since the last call, in bytes of input or block accesses; the documentation of the
/// work says which.
pub trait Progress: Sync {
    /// Records that `amount` more is done; 0 at the start. An implementation may panic to cancel the work.
    fn advance(&self, amount: u64);

    /// Records a note for the user of the trace at `path`: how it is read, or a suspicious property.
    fn note(&self, _path: &str, _what: &str) {}

    /// Records that the recording at `path` is truncated, for example because its server was killed. The `rows` before
    /// the end were read.
    fn ends_early(&self, _path: &str, _rows: u64) {}
}

/// A progress that discards all reports.
#[derive(Debug)]
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _amount: u64) {}
}
