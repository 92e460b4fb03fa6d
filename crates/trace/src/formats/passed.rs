//! Lines of a text that are passed over: how many, and why.

use crate::human::counted;

/// Why a line is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is a comment.
    Comment,
    /// It names the columns.
    Header,
    /// Its operation moves no data, such as a flush.
    NoData,
    /// It does not say whether it reads or writes.
    NoOp,
}

/// Lines that were passed over, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedOver([u64; 4]);

impl PassedOver {
    /// Counts a line.
    pub fn push(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// Adds the lines of another part of the text.
    pub fn add(&mut self, other: &PassedOver) {
        self.0.iter_mut().zip(other.0).for_each(|(lines, more)| *lines += more);
    }

    /// How many lines were passed over and why, if any were. The first header is none of them: it is read.
    pub fn described(&self) -> Option<String> {
        let [comments, headers, no_data, no_op] = self.0;
        let headers = headers.saturating_sub(1);
        let each = [
            (comments, "comment"),
            (headers, "repeated header"),
            (no_data, "operation without data"),
            (no_op, "request without a type"),
        ];
        let lines = comments + headers + no_data + no_op;
        let counts: Vec<String> =
            each.into_iter().filter(|(lines, _)| *lines > 0).map(|(lines, what)| plural(lines, what)).collect();
        let were = if lines == 1 { "was" } else { "were" };
        (lines > 0).then(|| format!("{} {were} skipped: {}", counted(lines, "line"), counts.join(", ")))
    }
}

/// A number of things; the first word is the one that has a plural.
fn plural(lines: u64, what: &str) -> String {
    match what.split_once(" without") {
        Some((thing, rest)) => format!("{} without{rest}", counted(lines, thing)),
        None => counted(lines, what),
    }
}
