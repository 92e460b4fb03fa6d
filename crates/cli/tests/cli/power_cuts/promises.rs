//! The guest's promises, and its findings after a power cut.

use std::collections::{BTreeMap, BTreeSet};

/// Places of files and their versions, which only grow.
#[derive(Default)]
pub struct Promises {
    kept: BTreeMap<(u64, u64), u64>,
    found: BTreeSet<(u64, u64)>,
    /// Promises that were made, and that were found to be kept.
    pub made: u64,
    pub held: u64,
}

impl Promises {
    /// Takes a line of the guest's program; whether it was one. `Err` if a promise was broken.
    pub fn take(&mut self, line: &str) -> Result<bool, String> {
        let numbers = |rest: &str| -> [u64; 3] {
            let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
            numbers.try_into().unwrap_or_else(|_| panic!("the guest told {line:?}"))
        };
        match line.split_once(' ') {
            Some(("kept", rest)) => {
                let [file, place, version] = numbers(rest);
                let kept = self.kept.entry((file, place)).or_default();
                *kept = version.max(*kept);
                self.made += 1;
            }
            Some(("found", rest)) => {
                let [file, place, version] = numbers(rest);
                // Later reads must agree with the first one.
                let kept = self.kept.entry((file, place)).or_default();
                if version < *kept {
                    return Err(format!("file {file}, place {place}: version {kept} was promised, {version} is found"));
                }
                *kept = version;
                self.found.insert((file, place));
                self.held += 1;
            }
            Some(("mixed", rest)) => return Err(format!("a block is mixed: {rest}")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Everything was read. `Err` if something that was promised is missing.
    pub fn all_read(&mut self) -> Result<(), String> {
        let found = std::mem::take(&mut self.found);
        match self.kept.iter().find(|(place, _)| !found.contains(place)) {
            Some(((file, place), version)) => {
                Err(format!("file {file}, place {place}: version {version} was promised, nothing is found"))
            }
            None => Ok(()),
        }
    }

    /// The machine restarts.
    pub fn forget_what_was_read(&mut self) {
        self.found.clear();
    }
}
