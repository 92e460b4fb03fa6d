//! The events of a world, to find the cause of a violation.

use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHasher;

/// The events by block, in order; printed with a violation.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Vec<Event>>>);

/// The blocks that an event is about, and what it is.
type Event = (Range<usize>, String);

impl History {
    pub fn add(&self, blocks: Range<usize>, event: String) {
        self.0.lock().unwrap().push((blocks, event));
    }

    /// Differs between histories that differ.
    pub fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.0.lock().unwrap().hash(&mut hasher);
        hasher.finish()
    }

    /// The latest events that touch the block that a violation names, or all blocks.
    pub fn of(&self, violation: &str) -> String {
        let after = violation.split("block ").nth(1).or(violation.split("lost [").nth(1)).unwrap_or_default();
        let block = after.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|number| number.parse().ok());
        let events = self.0.lock().unwrap();
        let touches = |blocks: &Range<usize>| block.is_none_or(|block| blocks.contains(&block));
        let lines: Vec<&str> =
            events.iter().filter(|(blocks, _)| touches(blocks)).map(|(_, event)| &event[..]).collect();
        lines[lines.len().saturating_sub(60)..].join("\n    ")
    }
}
