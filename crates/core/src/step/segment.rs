//! Units of writing to a log, before encoding: segments of records, and footers that repeat them.

use super::{Cause, Frame};
use crate::format::Kind;

/// A record of a segment that is being filled or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The kind of record.
    pub kind: Kind,
    /// The block concerned.
    pub block: u32,
    /// As [`crate::format::Record::slot`].
    pub slot: u32,
    /// The data in memory; meaningless for marks.
    pub frame: Frame,
    /// The slot of the replaced copy, and true if that is dirty.
    pub old: Option<(u32, bool)>,
    /// The reason for the write; `CopyForward` copies the old copy's data. Meaningless for marks.
    pub cause: Cause,
}

impl LogRecord {
    /// True if the data is that of the old copy.
    pub fn is_copied(&self) -> bool {
        self.cause == Cause::CopyForward
    }
}

/// A piece of the log that is written in one step: one header page, then a data page for each record with data.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The unit to write to.
    pub unit: u32,
    /// The unit's sequence number.
    pub sequence: u64,
    /// The oldest valid sequence number.
    pub tail: u64,
    /// The end of the previous unit's segments.
    pub previous_end: u32,
    /// The page up to which the unit is durable when this is written.
    pub durable_end: u32,
    /// The header's page within the unit.
    pub page: u32,
    /// Invalid pages before it, as [`Header::skipped`](crate::format::Header::skipped).
    pub skipped: u32,
    /// The number of data pages, which follow the header.
    pub data_pages: u32,
    /// The records, in order.
    pub records: Vec<LogRecord>,
    /// True if it must wait for the planned flushes of the backend, because its records mark blocks as clean that were
    /// just written there.
    pub needs_backend_flush: bool,
    /// True if it must wait for the planned writes to the backend. Its records mark blocks of unsure regions as clean
    /// that were just written there. It does not wait for a flush.
    pub follows_writes: bool,
}

/// A footer of a unit, full or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The unit to write to.
    pub unit: u32,
    /// The unit's sequence number.
    pub sequence: u64,
    /// The oldest valid sequence number.
    pub tail: u64,
    /// The end of the previous unit's segments.
    pub previous_end: u32,
    /// The page after the last segment whose records it repeats; everything before is durable.
    pub end: u32,
    /// The number of its pages.
    pub pages: u32,
}
