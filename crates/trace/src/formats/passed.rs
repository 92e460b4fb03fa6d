//! Counts skipped lines of a text by reason.

use flashwise_core::human::{count, counted};

/// The reason why a line is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is a comment.
    Comment,
    /// It names the columns.
    Header,
    /// Its operation has no data, such as a flush.
    NoData,
    /// It has no type, read or write.
    NoOp,
    /// It is a request of length 0.
    Empty,
    /// It is an event that is no request.
    OtherEvent,
    /// It is no event, in a text of events.
    NoEvent,
    /// It says that the tracer lost events.
    Lost,
}

impl Reason {
    /// True if a line with this reason does not show the format.
    pub fn says_nothing(self) -> bool {
        matches!(self, Reason::Comment | Reason::Header | Reason::OtherEvent | Reason::NoEvent | Reason::Lost)
    }
}

/// The names of reasons in the order of [`Reason`], for one line and for several.
const REASONS: [(&str, &str); 8] = [
    ("comment", "comments"),
    ("repeated header", "repeated headers"),
    ("operation without data", "operations without data"),
    ("request without a type", "requests without a type"),
    ("request of length 0", "requests of length 0"),
    ("other event", "other events"),
    ("line without an event", "lines without an event"),
    ("notice of lost events", "notices of lost events"),
];

/// The number of skipped lines by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedOver([u64; REASONS.len()]);

impl PassedOver {
    /// Counts a line.
    pub fn push(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// Adds the lines of another part of the text.
    pub fn add(&mut self, other: &PassedOver) {
        self.0.iter_mut().zip(other.0).for_each(|(lines, more)| *lines += more);
    }

    /// Describes the skipped lines by reason, if there are any. The first header does not count: it is read.
    pub fn described(&self) -> Option<String> {
        let mut lines = self.0;
        lines[Reason::Header as usize] = lines[Reason::Header as usize].saturating_sub(1);
        let all: u64 = lines.iter().sum();
        let each = lines.iter().zip(REASONS).filter(|(lines, _)| **lines > 0);
        let each: Vec<String> = each
            .map(|(lines, (one, several))| format!("{} {}", count(*lines), if *lines == 1 { one } else { several }))
            .collect();
        let were = if all == 1 { "was" } else { "were" };
        (all > 0).then(|| format!("{} {were} skipped: {}", counted(all, "line"), each.join(", ")))
    }
}
