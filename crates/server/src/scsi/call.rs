//! A command as its handler sees it, and the handler's result.

use std::sync::Arc;

use super::BLOCK_BYTES;
use super::cdb::Cdb;
use super::nexus::Nexus;
use super::plan::CommandPlan;
use super::status::Answer;
use super::unit::Unit;

/// A command whose fields, range and permission were checked.
pub struct Call<'a> {
    /// The addressed unit.
    pub unit: &'a Arc<Unit>,
    /// The initiator's session.
    pub nexus: &'a Nexus,
    /// Its bytes.
    pub cdb: &'a Cdb,
    /// Its first logical block, if it has one.
    pub block: u64,
    /// Its number of logical blocks, if it has one.
    pub blocks: u64,
    /// Its data from the initiator.
    pub data: Vec<u8>,
}

impl Call<'_> {
    /// Returns the offset of its first byte.
    pub fn offset(&self) -> u64 {
        self.block * BLOCK_BYTES
    }

    /// Returns its number of bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// True if a bit of a byte is set.
    pub fn has(&self, byte: usize, bit: u8) -> bool {
        self.cdb[byte] & bit != 0
    }
}

/// The work that a command requires.
pub enum Work {
    /// None: this is its reply.
    Answer(Answer),
    /// Requests to the export.
    Plan(CommandPlan),
}

/// The result of a handler; an error is a reply too.
pub type Handled = Result<Work, Answer>;

/// Replies with as much of `data` as the initiator has allocated.
pub fn data(mut data: Vec<u8>, allocated: u64) -> Handled {
    data.truncate(usize::try_from(allocated).unwrap_or(usize::MAX));
    Ok(Work::Answer(Answer::data(data)))
}

/// The reply of success.
pub const GOOD: Handled = Ok(Work::Answer(Answer::GOOD));
