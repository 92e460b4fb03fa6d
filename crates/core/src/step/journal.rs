//! Writes to the journal, before encoding.

use super::Frame;
use crate::journal::{Head, index_pages};

/// A write to the [journal](crate::journal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalWrite {
    /// The batch of the write, whose flush covers it.
    pub batch: u32,
    /// The pages to write.
    pub part: JournalPart,
}

/// The part of a journal that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalPart {
    /// Blocks of a group.
    Blocks {
        /// The page of the first one.
        page: u32,
        /// Their contents.
        frames: Vec<Frame>,
    },
    /// The index of a group.
    Index {
        /// The group.
        head: Head,
        /// Its blocks, with the slots of their contents.
        blocks: Vec<(u32, u32)>,
    },
    /// The mark that a group is in place.
    Mark(Head),
}

impl JournalPart {
    /// Returns the number of pages that are written.
    pub fn pages(&self) -> u64 {
        match self {
            JournalPart::Blocks { frames, .. } => frames.len() as u64,
            JournalPart::Index { blocks, .. } => index_pages(blocks.len()).into(),
            JournalPart::Mark(_) => 1,
        }
    }
}

impl JournalWrite {
    /// Returns the frames that are written.
    pub fn frames(&self) -> &[Frame] {
        match &self.part {
            JournalPart::Blocks { frames, .. } => frames,
            JournalPart::Index { .. } | JournalPart::Mark(_) => &[],
        }
    }
}
