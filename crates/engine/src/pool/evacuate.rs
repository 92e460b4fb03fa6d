//! Emptying a disk of a pool while it runs: its chunks move to others, a batch at a time, and then it is taken out.
//!
//! Requests for chunks that move wait. A chunk's new place is written down once its bytes are durable there; a crash before that leaves
//! the old one as it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::map::Entry;
use super::record::{Change, Member};
use super::{CHUNK_BYTES, LogicalDisk, Pool, PoolError, Shared, State};
use crate::export::Operation;

/// Chunks that are moved together: 4 MiB.
const BATCH: usize = 64;

/// Time between two looks whether there is space to move to.
const SPACE_INTERVAL: Duration = Duration::from_millis(500);

/// How far a disk is emptied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Chunks that were moved.
    pub moved: u64,
    /// Chunks that are still there.
    pub left: u64,
    /// Why it stopped, if it did; or what it waits for.
    pub failed: Option<String>,
    /// Whether it goes on by itself once there is space.
    pub waits: bool,
}

/// A chunk that moves: of which logical disk, which one, and from where.
struct Moving {
    disk: Arc<LogicalDisk>,
    at: usize,
    old: Entry,
}

impl Pool {
    /// Starts to empty a disk, after which it is taken out; the work goes on after this returns, and after a restart.
    pub fn remove_disk(&self, id: u32) -> Result<(), PoolError> {
        let _one = self.control();
        {
            let mut state = self.shared.state();
            let (member, _) = self.check_removal(&state, id)?;
            if state.leaving.get(&id).is_some_and(|progress| progress.failed.is_none() || progress.waits) {
                // It is being emptied already.
                return Ok(());
            }
            let member = Member { leaving: true, ..member };
            let change = Change::Disk(id, member);
            state.metadata.map.replay(&change).expect("it is there");
            state.metadata.commit(&[change])?;
            state.leaving.insert(id, Progress::default());
        }
        self.spawn_evacuation(id);
        Ok(())
    }

    /// Refuses to empty a disk that cannot be; else what the pool knows of it, and how many bytes are there.
    pub(super) fn check_removal(&self, state: &State, id: u32) -> Result<(Member, u64), PoolError> {
        let map = &state.metadata.map;
        let Some(member) = map.disks.get(&id).cloned() else {
            return Err(PoolError::NoDisk { pool: self.name().to_owned(), number: id });
        };
        if map.disks.len() == 1 {
            return Err(self.refuse("it has one disk, which cannot be taken out".to_owned()));
        }
        if !state.has_disk_that_stays(id) {
            let why = "its other disks are missing or being taken out themselves; add a disk first";
            return Err(self.refuse(format!("disk {id}, {}, cannot be taken out: {why}", member.path)));
        }
        let used = map.space.counts().get(&id).map_or(0, |count| count.chunks - count.free);
        let wanted = u64::from(used) * CHUNK_BYTES;
        if wanted > 0 && state.metadata.missing().contains(&id) {
            return Err(self.refuse(format!(
                "disk {id}, {}, is missing and has {wanted} bytes that are only there; to go on without them, give it up by its path",
                member.path
            )));
        }
        let mut without = map.space.clone();
        without.set_leaving(id, true);
        let free = u64::from(without.count().free) * CHUNK_BYTES;
        if wanted > free {
            return Err(PoolError::NoSpace { pool: self.name().to_owned(), wanted, free });
        }
        Ok((member, wanted))
    }

    /// What an earlier run began.
    pub(super) fn go_on_evacuating(&self) {
        let leaving: Vec<u32> = {
            let mut state = self.shared.state();
            let missing = state.metadata.missing();
            let disks = state.metadata.map.disks.iter();
            let ids: Vec<u32> =
                disks.filter(|(id, member)| member.leaving && !missing.contains(id)).map(|(id, _)| *id).collect();
            state.leaving.extend(ids.iter().map(|id| (*id, Progress::default())));
            ids
        };
        leaving.into_iter().for_each(|id| self.spawn_evacuation(id));
    }

    fn spawn_evacuation(&self, id: u32) {
        // What has gone when the pool is closed stops the work.
        let shared = Arc::downgrade(&self.shared);
        let name = format!("evacuate {}", self.name());
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            loop {
                let Some(shared) = shared.upgrade() else { return };
                match shared.evacuate_some(id) {
                    Ok(true) => {}
                    Ok(false) => return,
                    // Disks may come, and logical disks give up what they hold.
                    Err(error @ PoolError::NoSpace { .. }) => {
                        shared.wait_for_space(id, &error);
                        drop(shared);
                        std::thread::sleep(SPACE_INTERVAL);
                    }
                    Err(error) => return shared.stop_evacuating(id, &error),
                }
            }
        });
        if let Err(error) = spawned {
            self.shared.stop_evacuating(id, &PoolError::Open { source: error });
        }
    }
}

impl State {
    /// Whether another disk than this one is there and is not being taken out.
    fn has_disk_that_stays(&self, but: u32) -> bool {
        let missing = self.metadata.missing();
        let mut others = self.metadata.map.disks.iter().filter(|(id, _)| **id != but && !missing.contains(id));
        others.any(|(_, member)| !member.leaving)
    }
}

impl Shared {
    fn wait_for_space(&self, id: u32, error: &PoolError) {
        if let Some(progress) = self.state().leaving.get_mut(&id) {
            if !progress.waits {
                tracing::warn!(pool = self.name, disk = id, %error, "emptying the disk waits for space");
            }
            (progress.failed, progress.waits) = (Some(format!("it waits for space: {error}")), true);
        }
        // What was moved already is free on other disks once that is written down.
        if let Err(error) = self.commit_now() {
            tracing::error!(pool = self.name, disk = id, %error, "the map cannot be written");
        }
    }

    fn stop_evacuating(&self, id: u32, error: &PoolError) {
        tracing::error!(pool = self.name, disk = id, %error, "the disk is not emptied");
        if let Some(progress) = self.state().leaving.get_mut(&id) {
            (progress.failed, progress.waits) = (Some(error.to_string()), false);
        }
    }

    /// Moves some chunks of a disk, or takes it out if it has none; whether there is more to do.
    fn evacuate_some(&self, id: u32) -> Result<bool, PoolError> {
        let moving = self.hold_some(id)?;
        if moving.is_empty() {
            // What was given up is forgotten, and the disk free of it.
            self.commit_now()?;
            let mut state = self.state();
            let count = state.metadata.map.space.counts().get(&id).copied().unwrap_or_default();
            if count.free < count.chunks {
                drop(state);
                // Chunks that were held by others when we looked.
                std::thread::sleep(std::time::Duration::from_millis(5));
                return Ok(true);
            }
            if !state.has_disk_that_stays(id) {
                let what = format!(
                    "disk {id} is empty and cannot be taken out: no other stays; add a disk, and remove it again"
                );
                return Err(PoolError::Refused { pool: self.name.clone(), what });
            }
            state.metadata.take_out(id)?;
            self.disk.set_ranges(Shared::ranges(&state.metadata));
            state.leaving.remove(&id);
            drop(state);
            self.tell_disks();
            return Ok(false);
        }
        self.gate.drain();
        let moved = self.move_all(&moving);
        // Whatever became of it, requests go on.
        for Moving { disk, at, .. } in &moving {
            let mut entries = disk.logical.entries_mut();
            if let Some(now) = entries.get(*at).map(|entry| entry.held(false)) {
                entries.set(*at, now);
            }
        }
        moving.iter().for_each(|moving| moving.disk.release_waiting());
        moved?;
        let mut state = self.state();
        let count = state.metadata.map.space.counts().get(&id).copied().unwrap_or_default();
        if let Some(progress) = state.leaving.get_mut(&id) {
            (progress.failed, progress.waits) = (None, false);
            progress.moved += moving.len() as u64;
            progress.left = u64::from(count.chunks - count.free);
        }
        Ok(true)
    }

    /// Holds the next chunks of logical disks that are on a disk.
    fn hold_some(&self, id: u32) -> Result<Vec<Moving>, PoolError> {
        let state = self.state();
        let Some(member) = state.metadata.map.disks.get(&id) else { return Ok(Vec::new()) };
        let chunks = member.base..member.base + member.chunks;
        let mut moving = Vec::new();
        for disk in self.exports.read().unwrap_or_else(std::sync::PoisonError::into_inner).values() {
            let mut entries = disk.logical.entries_mut();
            for at in 0..entries.len() {
                let old = entries[at];
                if moving.len() == BATCH {
                    break;
                }
                // A chunk that is not written down yet is moved later.
                let moves = old.chunk().is_some_and(|chunk| chunks.contains(&chunk));
                if moves && !old.is_held() && !old.is_pending() {
                    entries.set(at, old.held(true));
                    moving.push(Moving { disk: disk.clone(), at, old });
                }
            }
        }
        Ok(moving)
    }

    fn move_all(&self, moving: &[Moving]) -> Result<(), PoolError> {
        let places = self.places_for(moving)?;
        let copied = moving.iter().zip(&places).try_for_each(|(moving, place)| self.copy(moving, *place));
        if let Err(error) = copied {
            // What was copied there is forgotten before another takes the place.
            self.add_pending(&mut self.state(), Vec::new(), places);
            return Err(error);
        }
        let mut changes = Vec::new();
        {
            let mut state = self.state();
            for (Moving { disk, at, old }, place) in moving.iter().zip(&places) {
                // One that was deleted meanwhile was so with its old place.
                if state.metadata.map.logicals.contains_key(&disk.id) {
                    super::first_writes::add_run(&mut changes, disk.id, *at as u32, *place, old.written().is_some());
                }
            }
            self.add_pending(&mut state, changes.clone(), Vec::new());
        }
        // Behind all earlier changes of these chunks; who writes them down gives the entries their new places.
        let committed = self.commit_now();
        let mut state = self.state();
        while committed.is_err() && state.committing {
            drop(state);
            std::thread::sleep(std::time::Duration::from_millis(5));
            state = self.state();
        }
        let before = state.pending.len();
        state.pending.retain(|change| !changes.contains(change));
        self.uncommitted.fetch_sub((before - state.pending.len()) as u64, Ordering::SeqCst);
        let mut given_up = Vec::new();
        for (Moving { disk, at, old }, place) in moving.iter().zip(places) {
            let is_there = state.metadata.map.logicals.contains_key(&disk.id);
            let has_moved = disk.logical.entries()[*at].chunk() == Some(place);
            match (is_there, has_moved) {
                (true, true) => given_up.extend(old.chunk()),
                _ => given_up.push(place),
            }
        }
        self.add_pending(&mut state, Vec::new(), given_up);
        committed
    }

    /// Places on other disks for all of them, or none.
    fn places_for(&self, moving: &[Moving]) -> Result<Vec<u32>, PoolError> {
        let mut state = self.state();
        let mut places = Vec::new();
        let mut apart: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for Moving { disk, at, .. } in moving {
            let space = &mut state.metadata.map.space;
            let place = if disk.striped {
                // As many before and behind it as leave a disk for each.
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
                    return Err(PoolError::NoSpace { pool: self.name.clone(), wanted: CHUNK_BYTES, free: 0 });
                }
            }
        }
        Ok(places)
    }

    /// Through the cache, which may have what the disk has not.
    fn copy(&self, moving: &Moving, place: u32) -> Result<(), PoolError> {
        let Some(chunk) = moving.old.written() else { return Ok(()) };
        let read = self.ask(Operation::Read, u64::from(chunk) * CHUNK_BYTES, CHUNK_BYTES, Vec::new());
        let at = || format!("chunk {} of logical disk {}", moving.at, moving.disk.name());
        let bytes = read.map_err(|error| self.failed(&format!("{} cannot be read", at()), error))?;
        let written = self.ask(Operation::Write, u64::from(place) * CHUNK_BYTES, CHUNK_BYTES, bytes);
        written.map(drop).map_err(|error| self.failed(&format!("{} cannot be written elsewhere", at()), error))
    }
}
