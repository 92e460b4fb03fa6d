//! A command as its handler sees it, and what the handler makes of it.

use std::sync::Arc;

use super::BLOCK_BYTES;
use super::cdb::Cdb;
use super::nexus::Nexus;
use super::plan::Plan;
use super::status::Answer;
use super::unit::Unit;

/// A command whose fields, range and right were checked.
pub struct Call<'a> {
    /// Whom it is for.
    pub unit: &'a Arc<Unit>,
    /// Whom it is from.
    pub nexus: &'a Nexus,
    /// Its bytes.
    pub cdb: &'a Cdb,
    /// Its first logical block, where it has one.
    pub block: u64,
    /// Its number of logical blocks, where it has one.
    pub blocks: u64,
    /// What came with it.
    pub data: Vec<u8>,
}

impl Call<'_> {
    /// Its first byte.
    pub fn offset(&self) -> u64 {
        self.block * BLOCK_BYTES
    }

    /// Its number of bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// Whether a bit of a byte is set.
    pub fn has(&self, byte: usize, bit: u8) -> bool {
        self.cdb[byte] & bit != 0
    }
}

/// What a command comes to.
pub enum Work {
    /// Its answer.
    Answer(Answer),
    /// Requests to the export.
    Plan(Plan),
}

/// What a handler returns: an error is an answer too.
pub type Handled = Result<Work, Answer>;

/// The answer with as much of `data` as the initiator has room for.
pub fn data(mut data: Vec<u8>, allocated: u64) -> Handled {
    data.truncate(usize::try_from(allocated).unwrap_or(usize::MAX));
    Ok(Work::Answer(Answer::data(data)))
}

/// The answer that all went well.
pub const GOOD: Handled = Ok(Work::Answer(Answer::GOOD));
