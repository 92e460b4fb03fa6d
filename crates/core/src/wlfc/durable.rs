//! Knowledge about durable data of each run, from headers and the superblock.

use std::collections::HashMap;

/// For each run: everything with a smaller sequence number was durable.
#[derive(Clone, Debug, Default)]
pub struct Durable(HashMap<u64, u64>);

impl Durable {
    /// Records that everything in a run with a smaller sequence number was durable.
    pub fn add(&mut self, run: u64, sequence: u64) {
        let known = self.0.entry(run).or_default();
        *known = (*known).max(sequence);
    }

    pub(super) fn has(&self, run: u64, sequence: u64) -> bool {
        self.0.get(&run).is_some_and(|durable| sequence < *durable)
    }
}
