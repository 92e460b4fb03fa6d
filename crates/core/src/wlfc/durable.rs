//! What was durable of the runs of a cache, as far as its headers and its superblock say.

use std::collections::HashMap;

/// What was durable of each run: what has a smaller sequence.
#[derive(Clone, Debug, Default)]
pub struct Durable(HashMap<u64, u64>);

impl Durable {
    /// Of a run, what has a smaller sequence was durable.
    pub fn add(&mut self, run: u64, sequence: u64) {
        let known = self.0.entry(run).or_default();
        *known = (*known).max(sequence);
    }

    pub(super) fn has(&self, run: u64, sequence: u64) -> bool {
        self.0.get(&run).is_some_and(|durable| sequence < *durable)
    }
}
