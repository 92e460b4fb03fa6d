//! Giving up a missing disk that will not return: its data is lost, and recorded as lost.
//!
//! Its written chunks lose their places and return errors until they are completely rewritten or trimmed. Chunks that
//! were never written still read as zeroes. The disk is refused afterwards, like one that was removed.

use std::sync::Arc;

use super::entries::NoMemory;
use super::map::{Entry, Logical};
use super::record::{Change, Member};
use super::{CHUNK_BYTES, Pool, PoolError, Shared, State};
use crate::export::Operation;
use crate::time;

/// Attempts to find the map without pending changes, 10 ms apart: 1 s.
const TRIES: u32 = 100;
/// Number of chunks in one trim of the cache: 1 GiB.
const FORGOTTEN_CHUNKS: u32 = 1 << 14;

impl Pool {
    /// Returns the missing disk, or refuses to give it up. `word` must repeat its path from the status, if it is there.
    pub(super) fn check_giving_up(&self, state: &State, id: u32, word: Option<&str>) -> Result<Member, PoolError> {
        let Some(member) = state.metadata.map.disks.get(&id).cloned() else {
            return Err(PoolError::NoDisk { pool: self.name().to_owned(), number: id });
        };
        if !state.metadata.missing().contains(&id) {
            let path = &member.path;
            return Err(self.refuse(format!("disk {id}, {path}, is present; remove it instead, which moves its data")));
        }
        if let Some(word) = word.filter(|word| *word != member.path) {
            let what = format!("found '{word}' as the disk to give up, expected '{}'", member.path);
            return Err(self.refuse(what));
        }
        Ok(member)
    }

    /// Gives up a missing disk, durably; its data is lost. `word` must repeat its path from the status.
    pub fn give_up_disk(&self, id: u32, word: &str) -> Result<(), PoolError> {
        let _one = self.control();
        let member = self.check_giving_up(&self.shared.state(), id, Some(word))?;
        // Releases of clients are recorded first, so that the map on disk has no other chunks there.
        let mut tries = 0;
        let mut state = loop {
            self.shared.commit_now()?;
            let state = self.shared.state();
            if state.pending.is_empty() && state.released.is_empty() && !state.committing {
                break state;
            }
            drop(state);
            tries += 1;
            if tries == TRIES {
                return Err(self.refuse("its map changes too often; retry when clients write less".to_owned()));
            }
            time::sleep(std::time::Duration::from_millis(10));
        };
        let map = &mut state.metadata.map;
        let copy = |logical: &Arc<Logical>| Ok((logical.clone(), logical.entries().copy()?));
        let before: Result<Vec<_>, NoMemory> = map.logicals.values().map(copy).collect();
        let before = before.map_err(|error| self.refuse(error.to_string()))?;
        let disks = (map.disks.clone(), map.space.clone());
        let mut changes: Vec<Change> = Vec::new();
        for (id, logical) in &map.logicals {
            changes.extend(changes_without(*id, logical, &member));
        }
        changes.push(Change::DiskRemoved(id));
        changes.iter().try_for_each(|change| map.replay(change)).expect("chunks and disk are there");
        if let Err(error) = state.metadata.commit(&changes) {
            let map = &mut state.metadata.map;
            (map.disks, map.space) = disks;
            before.into_iter().for_each(|(logical, entries)| *logical.entries_mut() = entries);
            return Err(error);
        }
        state.leaving.remove(&id);
        self.shared.disk.set_ranges(Shared::ranges(&state.metadata));
        drop(state);
        self.shared.tell_disks();
        tracing::warn!(event = "disk-given-up", pool = self.name(), disk = member.path, "a missing disk was given up");
        self.shared.gate.drain();
        let end = member.base + member.chunks;
        for first in (member.base..end).step_by(FORGOTTEN_CHUNKS as usize) {
            let count = FORGOTTEN_CHUNKS.min(end - first);
            let (offset, length) = (u64::from(first) * CHUNK_BYTES, u64::from(count) * CHUNK_BYTES);
            let forgotten = self.shared.ask(Operation::Trim, offset, length, Vec::new());
            forgotten.map_err(|error| self.shared.cache_failed(format!("it cannot forget a disk: {error}")))?;
        }
        self.shared.flush_cache()
    }
}

/// Returns the changes of a logical disk without this disk: written chunks are lost, the others lose their places.
fn changes_without(id: u32, logical: &Logical, member: &Member) -> Vec<Change> {
    let chunks = member.base..member.base + member.chunks;
    let was_there = |entry: &Entry| entry.chunk().is_some_and(|chunk| chunks.contains(&chunk));
    let mut changes: Vec<Change> = Vec::new();
    for (at, entry) in logical.entries().there().filter(|(_, entry)| was_there(entry)) {
        match (changes.last_mut(), entry.written().is_some()) {
            (Some(Change::Lost(_, first, count)), true) if *first + *count == at => *count += 1,
            (Some(Change::Unmapped(_, first, count)), false) if *first + *count == at => *count += 1,
            (_, true) => changes.push(Change::Lost(id, at, 1)),
            (_, false) => changes.push(Change::Unmapped(id, at, 1)),
        }
    }
    changes
}
