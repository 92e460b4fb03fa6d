//! Evacuation of a disk of a running pool: its chunks move to other disks in batches, and then the disk is removed.
//!
//! Requests for chunks that move wait. A chunk's new place is recorded once its content is durable there; a crash
//! before that leaves the old place valid. Unreadable chunks are retried later. Errors are retried until they are
//! resolved or the evacuation is cancelled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flashwise_engine::engine::Bug;

use super::map::Entry;
use super::record::{Change, Member};
use super::{CHUNK_BYTES, LogicalDisk, PoolError, Shared, Tables};
use crate::export::{Error, Operation};
use crate::time;
use crate::vital;

/// Number of chunks that move together: 4 MiB.
const BATCH: usize = 64;
const PART_OF_BLOCK_BYTES: u64 = 512;

/// Interval between checks for free space.
const SPACE_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between retries after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The state of an evacuation.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// Why the evacuation does not progress at present.
    pub failed: Option<String>,
    /// Chunks that could not be moved in the current pass: logical disk and index.
    stuck: BTreeSet<(u32, usize)>,
    /// Why the first of them was not moved.
    first: Option<String>,
}

/// The result of one round of an evacuation.
enum Next {
    /// There is more to move.
    More,
    /// The disk was removed, or stays in the pool.
    Done,
}

/// The work of evacuating a disk.
pub(super) struct Evacuation<'a> {
    shared: &'a Shared,
    id: u32,
}

/// A chunk that moves: its logical disk, its index and its old entry.
struct Moving {
    disk: Arc<LogicalDisk>,
    at: usize,
    old: Entry,
}

/// Chunks that were copied: the new places, the changes that record them, and the result of that commit.
struct BegunMove {
    places: Vec<u32>,
    changes: Vec<Change>,
    committed: Result<(), PoolError>,
}

impl Tables {
    /// Returns a disk that is being evacuated, or refuses.
    pub(super) fn check_keeping(&self, id: u32) -> Result<Member, PoolError> {
        match self.metadata.map.disks.get(&id) {
            None => Err(PoolError::NoDisk { pool: self.metadata.name.clone(), number: id }),
            Some(member) if member.leaving => Ok(member.clone()),
            Some(member) => Err(self.refuse(format!("disk {id}, {}, is not being emptied", member.path))),
        }
    }

    /// Records durably that a disk is being evacuated, or no longer.
    pub(super) fn set_leaving(&mut self, id: u32, member: &Member, leaving: bool) -> Result<(), PoolError> {
        let change = Change::Disk(id, Member { leaving, ..member.clone() });
        self.metadata.map.replay(&change).expect("it is there");
        let written = self.metadata.commit(&[change]);
        if written.is_err() {
            self.metadata.map.replay(&Change::Disk(id, member.clone())).expect("it is there");
        }
        written
    }

    /// Returns the disk and the bytes in use on it, or refuses if it cannot be evacuated.
    pub(super) fn check_removal(&self, id: u32) -> Result<(Member, u64), PoolError> {
        let map = &self.metadata.map;
        let Some(member) = map.disks.get(&id).cloned() else {
            return Err(PoolError::NoDisk { pool: self.metadata.name.clone(), number: id });
        };
        if map.disks.len() == 1 {
            return Err(self.refuse("its only disk cannot be removed".to_owned()));
        }
        if !self.has_disk_that_stays(id) {
            let why = "its other disks are missing or being removed; add a disk first";
            return Err(self.refuse(format!("disk {id}, {}, cannot be removed: {why}", member.path)));
        }
        let used = map.space.counts().get(&id).map_or(0, |count| count.chunks - count.free);
        let used_bytes = u64::from(used) * CHUNK_BYTES;
        if used_bytes > 0 && self.metadata.missing().contains(&id) {
            return Err(self.refuse(format!(
                "disk {id}, {}, is missing and has the only copy of {used_bytes} bytes; to continue without them, give \
                 it up by its path",
                member.path
            )));
        }
        // Includes the chunks of other disks that are being evacuated.
        let mut without = map.space.clone();
        without.set_leaving(id, true);
        let [wanted, free] =
            [without.wanted_by_leaving(), without.count().free].map(|chunks| u64::from(chunks) * CHUNK_BYTES);
        if wanted > free {
            return Err(PoolError::NoSpace { pool: self.metadata.name.clone(), wanted, free });
        }
        Ok((member, used_bytes))
    }

    fn refuse(&self, what: String) -> PoolError {
        PoolError::Refused { pool: self.metadata.name.clone(), what }
    }

    /// True if another disk is present and is not being evacuated.
    fn has_disk_that_stays(&self, but: u32) -> bool {
        let missing = self.metadata.missing();
        let mut others = self.metadata.map.disks.iter().filter(|(id, _)| **id != but && !missing.contains(id));
        others.any(|(_, member)| !member.leaving)
    }
}

impl Evacuation<'_> {
    /// Resumes the evacuations of an earlier run.
    pub(super) fn resume(shared: &Arc<Shared>) {
        let mut state = shared.state();
        let missing = state.metadata.missing();
        let disks = state.metadata.map.disks.iter();
        let ids: Vec<u32> =
            disks.filter(|(id, member)| member.leaving && !missing.contains(id)).map(|(id, _)| *id).collect();
        for id in ids {
            Evacuation::begin(shared, &mut state, id);
        }
    }

    /// Records that a disk is being evacuated, and starts a thread that does so, unless one is running.
    pub(super) fn begin(shared: &Arc<Shared>, state: &mut Tables, id: u32) {
        state.leaving.insert(id, Leaving::default());
        if !state.evacuated.insert(id) {
            return;
        }
        // The thread ends when the pool is closed.
        let name = format!("evacuate {}", shared.name);
        let shared = Arc::downgrade(shared);
        let spawned = vital::spawn(&name, move || {
            while let Some(shared) = shared.upgrade() {
                let evacuation = Evacuation { shared: &shared, id };
                let rest = match evacuation.go_on() {
                    Ok(Next::More) => continue,
                    Ok(Next::Done) => return,
                    Err(error) => evacuation.rest_after(&error),
                };
                drop(shared);
                time::sleep(rest);
            }
        });
        if let Err(error) = spawned {
            state.evacuated.remove(&id);
            if let Some(leaving) = state.leaving.get_mut(&id) {
                leaving.failed =
                    Some(format!("there is no thread to empty it: {error}; remove it again after the next start"));
            }
        }
    }

    /// Records and logs why it does not progress. Returns the time until the next attempt.
    fn rest_after(&self, error: &PoolError) -> Duration {
        // Disks may be added, and logical disks may release chunks.
        let (said, rest) = match error {
            PoolError::NoSpace { .. } => (format!("it waits for space: {error}"), SPACE_INTERVAL),
            error => (error.to_string(), RETRY_INTERVAL),
        };
        if let Some(leaving) = self.shared.state().leaving.get_mut(&self.id)
            && leaving.failed.as_ref() != Some(&said)
        {
            let (pool, disk) = (&self.shared.name, self.id);
            tracing::warn!(event = "disk-not-emptied", pool, disk, %error, "the disk is not emptied for now");
            leaving.failed = Some(said);
        }
        // The old places of chunks already moved become free with this.
        let _ = self.shared.commit_now();
        rest
    }

    /// Moves some chunks, or removes the disk if it has none.
    fn go_on(&self) -> Result<Next, PoolError> {
        // Little is left to write back while the chunks wait.
        self.shared.write_back()?;
        let Some(moving) = self.hold_some()? else { return Ok(Next::Done) };
        if moving.is_empty() {
            // The cache discards the released chunks, so that the disk holds none.
            self.shared.commit_now()?;
            self.shared.write_back()?;
            self.shared.wake();
            return self.take_out_if_empty();
        }
        self.shared.gate.drain();
        let moved = self.move_all(&moving);
        // Requests continue in any case.
        for Moving { disk, at, .. } in &moving {
            let mut entries = disk.logical.entries_mut();
            if entries.get(*at).is_some() {
                entries.hold(*at, false);
            }
        }
        moving.iter().for_each(|moving| moving.disk.release_waiting());
        let stuck = moved?;
        let mut state = self.shared.state();
        if let Some(leaving) = state.leaving.get_mut(&self.id) {
            if stuck.len() < moving.len() && leaving.stuck.is_empty() {
                leaving.failed = None;
            }
            for (at, error) in stuck {
                leaving.stuck.insert((moving[at].disk.id, moving[at].at));
                leaving.first.get_or_insert(error);
            }
        }
        Ok(Next::More)
    }

    fn take_out_if_empty(&self) -> Result<Next, PoolError> {
        let mut state = self.shared.state();
        let Some(leaving) = state.leaving.get_mut(&self.id) else { return Ok(Next::More) };
        let (stuck, first) = (std::mem::take(&mut leaving.stuck), leaving.first.take());
        if let Some(first) = first {
            let chunks = if stuck.len() == 1 { "a chunk".to_owned() } else { format!("{} chunks", stuck.len()) };
            let what = format!("disk {}: {chunks} could not be moved, and will be retried: {first}", self.id);
            return Err(self.shared.refuse(what));
        }
        let count = state.metadata.map.space.counts().get(&self.id).copied().unwrap_or_default();
        if count.free < count.chunks {
            drop(state);
            // Other requests still held some chunks.
            time::sleep(Duration::from_millis(5));
            return Ok(Next::More);
        }
        if !state.has_disk_that_stays(self.id) {
            let what = format!("disk {} is empty and cannot be removed: no other disk would remain; add one", self.id);
            return Err(self.shared.refuse(what));
        }
        state.metadata.take_out(self.id)?;
        self.shared.disk.set_ranges(Shared::ranges(&state.metadata));
        state.leaving.remove(&self.id);
        state.evacuated.remove(&self.id);
        drop(state);
        self.shared.tell_disks();
        Ok(Next::Done)
    }

    /// Holds the next chunks. Returns `None` if the evacuation was cancelled; the thread then ends.
    fn hold_some(&self) -> Result<Option<Vec<Moving>>, PoolError> {
        let mut state = self.shared.state();
        let member = state.metadata.map.disks.get(&self.id).map(|member| member.base..member.base + member.chunks);
        let (Some(chunks), Some(leaving)) = (member, state.leaving.get(&self.id)) else {
            state.evacuated.remove(&self.id);
            return Ok(None);
        };
        let mut moving = Vec::new();
        for disk in self.shared.exports.read().values() {
            let mut entries = disk.logical.entries_mut();
            // A chunk whose place is not recorded yet is moved later.
            let moves = |(at, old): &(usize, Entry)| {
                old.chunk().is_some_and(|chunk| chunks.contains(&chunk))
                    && !old.is_held()
                    && !old.is_pending()
                    && !leaving.stuck.contains(&(disk.id, *at))
            };
            let there = entries.there().map(|(at, old)| (at as usize, old));
            let found: Vec<_> = there.filter(moves).take(BATCH - moving.len()).collect();
            for (at, old) in found {
                entries.hold(at, true);
                moving.push(Moving { disk: disk.clone(), at, old });
            }
        }
        Ok(Some(moving))
    }

    /// With write-back in order, changes that found the places of these chunks may still wait in the cache, and a read
    /// would pass them. Changes keep their order, so this waits for a trim of less than a block, which changes nothing.
    fn wait_for_changes(&self, moving: &[Moving]) -> Result<(), PoolError> {
        let chunk = moving.iter().find_map(|moving| moving.old.chunk()).filter(|_| self.shared.is_in_order());
        let trim = |chunk: u32| {
            self.shared.ask(Operation::Trim, u64::from(chunk) * CHUNK_BYTES, PART_OF_BLOCK_BYTES, Vec::new())
        };
        let waited = chunk.map_or(Ok(Vec::new()), trim);
        waited.map(drop).map_err(|error| self.shared.cache_failed(format!("it does not take changes: {error}")))
    }

    /// Moves the readable chunks. Returns the others: index in the list, and reason.
    fn move_all(&self, moving: &[Moving]) -> Result<Vec<(usize, String)>, PoolError> {
        self.wait_for_changes(moving)?;
        let (mut read, mut stuck, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (at, one) in moving.iter().enumerate() {
            match self.read(one) {
                Ok(bytes) => {
                    read.push((one, bytes));
                    numbers.push(at);
                }
                Err(error) => stuck.push((at, format!("{} cannot be read: {error}", one.named()))),
            }
        }
        if !read.is_empty() {
            let stay = self.move_read_chunks(&read)?;
            let why = |at: usize| format!("{} waits for lost blocks of its logical disk", moving[at].named());
            stuck.extend(stay.into_iter().map(|number| (numbers[number], why(numbers[number]))));
        }
        Ok(stuck)
    }

    /// Returns the indices of chunks that did not move although nothing failed.
    fn move_read_chunks(&self, read: &[(&Moving, Option<Vec<u8>>)]) -> Result<Vec<usize>, PoolError> {
        let moving: Vec<&Moving> = read.iter().map(|(moving, _)| *moving).collect();
        let begun = self.begin_to_move(&moving, read)?;
        self.end_move(&moving, begun)
    }

    /// Copies chunks to new places and records the moves.
    fn begin_to_move(&self, moving: &[&Moving], read: &[(&Moving, Option<Vec<u8>>)]) -> Result<BegunMove, PoolError> {
        let places = self.places_for(moving)?;
        let written = self.shared.durably(|| {
            read.iter().zip(&places).try_for_each(|((moving, bytes), place)| match bytes {
                Some(bytes) => self.write(moving, *place, bytes.clone()),
                None => Ok(()),
            })
        });
        let may_be_ahead = self.shared.has_planted(Bug::MovesAhead);
        let written = written.and_then(|()| if may_be_ahead { Ok(()) } else { self.shared.write_back() });
        if let Err(error) = written {
            // The copies are discarded before another chunk takes the place.
            self.shared.add_pending(&mut self.shared.state(), Vec::new(), places);
            return Err(error);
        }
        let mut changes = Vec::new();
        {
            let mut state = self.shared.state();
            for (Moving { disk, at, old }, place) in moving.iter().copied().zip(&places) {
                // A logical disk deleted meanwhile has released the old place already.
                if state.metadata.map.logicals.contains_key(&disk.id) {
                    super::first_writes::add_run(&mut changes, disk.id, *at as u32, *place, old.written().is_some());
                }
            }
            self.shared.add_pending(&mut state, changes.clone(), Vec::new());
        }
        // This comes after all earlier changes of these chunks. The commit puts the new places into the entries.
        let committed = self.shared.commit_now();
        Ok(BegunMove { places, changes, committed })
    }

    /// Releases the old places of chunks that moved, and the new places of the others.
    fn end_move(&self, moving: &[&Moving], begun: BegunMove) -> Result<Vec<usize>, PoolError> {
        let BegunMove { places, changes, committed } = begun;
        let mut state = self.shared.state();
        while committed.is_err() && state.committing {
            drop(state);
            time::sleep(std::time::Duration::from_millis(5));
            state = self.shared.state();
        }
        let before = state.pending.len();
        state.pending.retain(|change| !changes.contains(change));
        self.shared.uncommitted.fetch_sub((before - state.pending.len()) as u64, Ordering::SeqCst);
        let (mut given_up, mut stay) = (Vec::new(), Vec::new());
        for (number, (Moving { disk, at, old }, place)) in moving.iter().copied().zip(places).enumerate() {
            // If the logical disk was deleted meanwhile, its entry still has the place that was released with it.
            if disk.logical.entries().get(*at).and_then(|now| now.chunk()) == Some(place) {
                given_up.extend(old.chunk());
                continue;
            }
            given_up.push(place);
            if state.metadata.map.logicals.contains_key(&disk.id) {
                stay.push(number);
            }
        }
        self.shared.add_pending(&mut state, Vec::new(), given_up);
        committed.map(|()| stay)
    }

    /// Returns places on other disks for all chunks, or fails.
    fn places_for(&self, moving: &[&Moving]) -> Result<Vec<u32>, PoolError> {
        let mut state = self.shared.state();
        let mut places = Vec::new();
        let mut apart: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for Moving { disk, at, .. } in moving {
            let space = &mut state.metadata.map.space;
            let place = if disk.striped {
                // The nearest neighbours on both sides, as many as leave a free disk for each chunk.
                let reach = space.usable_disks().saturating_sub(1).max(1);
                let near = at.saturating_sub(reach)..at + reach + 1;
                let entries = disk.logical.entries();
                let there = |at: usize| {
                    apart.get(&(disk.id, at)).copied().or_else(|| entries.get(at).and_then(|entry| entry.chunk()))
                };
                let neighbours: Vec<u32> = near.filter(|other| other != at).filter_map(there).collect();
                drop(entries);
                space.allocate_apart(&neighbours)
            } else {
                space.allocate(*at as u32, None, false)
            };
            match place {
                Some(chunk) => {
                    apart.insert((disk.id, *at), chunk);
                    places.push(chunk);
                }
                None => {
                    places.iter().for_each(|chunk| state.metadata.map.space.free(*chunk));
                    return Err(PoolError::NoSpace { pool: self.shared.name.clone(), wanted: CHUNK_BYTES, free: 0 });
                }
            }
        }
        Ok(places)
    }

    /// Reads a chunk through the cache, which may have newer blocks than the disk. Returns `None` if it was never
    /// written.
    fn read(&self, moving: &Moving) -> Result<Option<Vec<u8>>, Error> {
        let Some(chunk) = moving.old.written() else { return Ok(None) };
        self.shared.ask(Operation::Read, u64::from(chunk) * CHUNK_BYTES, CHUNK_BYTES, Vec::new()).map(Some)
    }

    fn write(&self, moving: &Moving, place: u32, bytes: Vec<u8>) -> Result<(), PoolError> {
        let written = self.shared.ask(Operation::Write, u64::from(place) * CHUNK_BYTES, CHUNK_BYTES, bytes);
        written
            .map(drop)
            .map_err(|error| self.shared.refuse(format!("{} cannot be written elsewhere: {error}", moving.named())))
    }
}

impl Moving {
    fn named(&self) -> String {
        format!("chunk {} of logical disk {}", self.at, self.disk.name())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::pool::{NewLogical, Pool, PoolConfig, prepare};
    use crate::volume::VolumeConfig;

    /// A logical disk that is deleted while its chunks move releases each place exactly once.
    #[test]
    fn a_logical_disk_deleted_during_a_move_releases_old_and_new_places_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let disks: Vec<_> = ["a.img", "b.img"].map(|name| folder.path().join(name)).into();
        for path in &disks {
            std::fs::File::create(path).unwrap().set_len(8 << 20).unwrap();
        }
        drop(prepare::create("tank", &disks, &[]).unwrap());
        let mut cache = VolumeConfig::of("tank", Path::new(""), Path::new(""));
        cache.state_directory = folder.path().to_owned();
        let pool = Pool::open(PoolConfig { disks, degraded: false, cache }, &|_, _| ()).unwrap().0;
        let shared = &pool.shared;
        let used = || shared.state().metadata.map.space.usage().1;
        for written_down_before in [false, true] {
            let before = used();
            let new = NewLogical {
                name: "vm".to_owned(),
                size_bytes: 1 << 20,
                thick: true,
                striped: false,
                cached: true,
                mode: None,
                pinned_ram_bytes: 0,
            };
            pool.create_logical(&new).unwrap();
            let chunk = pool.logical("vm").unwrap().logical.entries()[0].chunk().unwrap();
            let members = shared.state().metadata.map.disks.clone();
            let (id, _) = members.iter().find(|(_, at)| (at.base..at.base + at.chunks).contains(&chunk)).unwrap();
            // No thread evacuates the disk; the test performs its work.
            shared.state().leaving.insert(*id, Leaving::default());
            let evacuation = Evacuation { shared, id: *id };
            let moving = evacuation.hold_some().unwrap().unwrap();
            assert!(!moving.is_empty());
            let moving: Vec<&Moving> = moving.iter().collect();
            let read: Vec<_> = moving.iter().map(|one| (*one, None)).collect();
            if !written_down_before {
                pool.delete_logical("vm").unwrap();
            }
            let begun = evacuation.begin_to_move(&moving, &read).unwrap();
            if written_down_before {
                pool.delete_logical("vm").unwrap();
            }
            assert_eq!(evacuation.end_move(&moving, begun).unwrap(), [0; 0]);
            shared.commit_now().unwrap();
            assert_eq!(used(), before, "written down before: {written_down_before}");
            shared.state().leaving.remove(id);
        }
    }
}
