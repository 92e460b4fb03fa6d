//! Short rows: the figures for comparing many of them.

use crate::job::words_of;

/// The part of a row that a report of a sweep needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brief {
    /// The trace as the plan named it.
    pub trace: String,
    /// The policy.
    pub policy: String,
    /// The cache size as the plan gave it.
    pub size: String,
    /// Capacity of the cache in blocks.
    pub capacity_blocks: u64,
    /// Block accesses counted.
    pub accesses: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Read hits per read.
    pub read_hit_ratio: f64,
    /// Blocks written to flash.
    pub flash_writes_blocks: u64,
    /// The row's job.
    pub job: String,
}

impl Brief {
    /// Distinguishes the row from others of its trace and size: the policy, and the words of its job except size and
    /// policy.
    pub fn label(&self) -> String {
        let words = words_of(&self.job).unwrap_or_default().into_iter();
        let words = words.filter(|(name, _)| name != "size" && name != "policy");
        let words = words.map(|(name, value)| format!("{name}={value}"));
        std::iter::once(self.policy.clone()).chain(words).collect::<Vec<_>>().join(" ")
    }
}
