//! What is written to a log at once, before it is bytes: segments of records, and footers that repeat them.
//!
//! Source: as [`crate::layout::containers`].

use super::{Cause, Frame};
use crate::format::Kind;

/// A record of a segment that is being filled or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// What it says.
    pub kind: Kind,
    /// The block that it is about.
    pub block: u32,
    /// As [`crate::format::Record::slot`].
    pub slot: u32,
    /// Where the data is in memory; meaningless for marks.
    pub frame: Frame,
    /// The slot of the copy that the data replaces, and whether that is dirty.
    pub old: Option<(u32, bool)>,
    /// Why the data is written; that of the old copy is copied forward. Meaningless for marks.
    pub cause: Cause,
}

impl LogRecord {
    /// Whether the data is that of the old copy.
    pub fn is_copied(&self) -> bool {
        self.cause == Cause::CopyForward
    }
}

/// A piece of the log that is written at once: one header page, then a data page for each record that has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The unit that it is on.
    pub unit: u32,
    /// The unit's sequence number.
    pub sequence: u64,
    /// The oldest sequence that still counts.
    pub tail: u64,
    /// Where the segments of the unit before this one end.
    pub previous_end: u32,
    /// Up to which page the unit is durable when this is written.
    pub durable_end: u32,
    /// The header's page within the unit.
    pub page: u32,
    /// Pages before it that do not count, as [`Header::skipped`](crate::format::Header::skipped).
    pub skipped: u32,
    /// Data pages, which follow the header.
    pub data_pages: u32,
    /// The records, in order.
    pub records: Vec<LogRecord>,
    /// Whether the flushes of the backend that are planned must end before this may be written: it calls blocks clean that were just written there.
    pub needs_backend_flush: bool,
}

/// A footer of a unit, full or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The unit that it is on.
    pub unit: u32,
    /// The unit's sequence number.
    pub sequence: u64,
    /// The oldest sequence that still counts.
    pub tail: u64,
    /// Where the segments of the unit before this one end.
    pub previous_end: u32,
    /// The page after the last segment whose records it repeats; all before it is durable.
    pub end: u32,
    /// Its pages.
    pub pages: u32,
}
