//! The map of a pool: its disks, its logical disks, the places of their chunks, and the free chunks.
//!
//! A chunk has one number in the pool: the number of its disk's first chunk plus its index on the disk. Chunk 0 never
//! holds data. So 0 stands for a chunk of a logical disk that has no place and reads as zeroes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::time::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;

pub use super::entries::Entry;
use super::entries::{Entries, NoMemory};
use super::record::{Change, Member, Run, Shape};
use super::space::Space;
use super::{CHUNK_BYTES, CHUNKS_MAX};

/// A logical disk: its shape and its chunks.
#[derive(Debug)]
pub struct Logical {
    shape: RwLock<Shape>,
    entries: RwLock<Entries>,
}

impl Logical {
    fn new(shape: Shape) -> Result<Logical, Misfit> {
        let mut entries = Entries::default();
        entries.resize(chunks_of(shape.size_bytes)).map_err(|error| no_memory(&shape, error))?;
        Ok(Logical { shape: RwLock::new(shape), entries: RwLock::new(entries) })
    }

    /// Its properties.
    pub fn shape(&self) -> Shape {
        self.shape.read().clone()
    }

    /// Its chunks.
    pub fn entries(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read()
    }

    /// Its chunks, mutable.
    pub fn entries_mut(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write()
    }

    fn reshape(&self, shape: Shape) -> Result<(), Misfit> {
        self.entries_mut().resize(chunks_of(shape.size_bytes)).map_err(|error| no_memory(&shape, error))?;
        *self.shape.write() = shape;
        Ok(())
    }
}

/// Returns the number of chunks of a logical disk of this size.
pub fn chunks_of(size_bytes: u64) -> usize {
    size_bytes.div_ceil(CHUNK_BYTES) as usize
}

/// Returns the runs of lost chunks, as first and count.
pub fn lost_runs(entries: impl Iterator<Item = (u32, Entry)>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (at, _) in entries.filter(|(_, entry)| entry.is_lost()) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == at => *count += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

/// The map in memory.
#[derive(Debug, Default)]
pub struct Map {
    /// The disks, by number.
    pub disks: BTreeMap<u32, Member>,
    /// The logical disks, by number.
    pub logicals: BTreeMap<u32, Arc<Logical>>,
    /// The pool's record of its cache.
    pub cache: Option<Vec<u8>>,
    /// The free chunks.
    pub space: Space,
    /// The largest number that a logical disk ever had.
    last_logical: u32,
}

/// Why a change cannot be applied to a map: damaged input, or a bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

fn no_memory(shape: &Shape, error: NoMemory) -> Misfit {
    Misfit(format!("logical disk '{}' of {} bytes: {error}", shape.name, shape.size_bytes))
}

fn misfit<T>(what: String) -> Result<T, Misfit> {
    Err(Misfit(what))
}

impl Map {
    /// Returns the logical disk of this name.
    pub fn named(&self, name: &str) -> Option<(u32, &Arc<Logical>)> {
        self.logicals.iter().find(|(_, logical)| logical.shape().name == name).map(|(id, logical)| (*id, logical))
    }

    /// Returns the number of the disk with a chunk of the pool.
    pub fn disk_of(&self, chunk: u32) -> Option<u32> {
        let is_on = |member: &Member| (member.base..member.base + member.chunks).contains(&chunk);
        self.disks.iter().find(|(_, member)| is_on(member)).map(|(id, _)| *id)
    }

    /// Returns an unused number for a disk.
    pub fn next_disk(&self) -> u32 {
        self.disks.last_key_value().map_or(1, |(last, _)| last + 1)
    }

    /// Returns a number that no logical disk ever had, so that late requests of a deleted one reach no other.
    pub fn next_logical(&self) -> u32 {
        self.last_logical + 1
    }

    /// Returns the first chunk number for a new disk: the first gap that is large enough.
    pub fn base_for(&self, chunks: u32) -> Option<u32> {
        let mut taken: Vec<_> = self.disks.values().map(|member| (member.base, member.base + member.chunks)).collect();
        taken.sort_unstable();
        let mut base = 0u32;
        for (start, end) in taken {
            if base.checked_add(chunks)? <= start {
                break;
            }
            base = end;
        }
        (base.checked_add(chunks)? < CHUNKS_MAX).then_some(base)
    }

    /// Returns the end of the chunk numbers of all disks.
    pub fn end(&self) -> u32 {
        self.disks.values().map(|member| member.base + member.chunks).max().unwrap_or(0)
    }

    /// Applies a change that was read, or was recorded before it is made in memory.
    pub fn replay(&mut self, change: &Change) -> Result<(), Misfit> {
        match change {
            Change::Disk(id, member) => self.put_disk(*id, member)?,
            Change::DiskRemoved(id) => {
                self.disks.remove(id).ok_or_else(|| Misfit(format!("there is no disk {id} to remove")))?;
                self.space.remove_disk(*id);
            }
            Change::Logical(id, shape) => {
                match self.logicals.get(id) {
                    Some(logical) => {
                        // A logical disk whose growth failed shrinks to its old size.
                        let chunks = chunks_of(shape.size_bytes);
                        let gone =
                            logical.entries().there().skip_while(|(at, _)| (*at as usize) < chunks).collect::<Vec<_>>();
                        gone.iter().filter_map(|(_, entry)| entry.chunk()).for_each(|chunk| self.space.free(chunk));
                        logical.reshape(shape.clone())?;
                    }
                    None => drop(self.logicals.insert(*id, Arc::new(Logical::new(shape.clone())?))),
                }
                self.last_logical = self.last_logical.max(*id);
            }
            Change::LogicalDeleted(id) => {
                // An earlier snapshot may lack it already.
                let Some(logical) = self.logicals.remove(id) else { return Ok(()) };
                let chunks: Vec<_> = logical.entries().there().filter_map(|(_, entry)| entry.chunk()).collect();
                chunks.into_iter().for_each(|chunk| self.space.free(chunk));
            }
            Change::Mapped(id, run) => self.replay_run(*id, run)?,
            Change::Unmapped(id, first, count) => self.replay_without(*id, *first, *count, Entry::default())?,
            Change::Lost(id, first, count) => self.replay_without(*id, *first, *count, Entry::LOST)?,
            Change::Cache(record) => self.cache = Some(record.clone()),
        }
        Ok(())
    }

    fn logical(&self, id: u32) -> Result<Arc<Logical>, Misfit> {
        self.logicals.get(&id).cloned().ok_or_else(|| Misfit(format!("there is no logical disk {id}")))
    }

    /// Removes the places of chunks of a logical disk.
    fn replay_without(&mut self, id: u32, first: u32, count: u32, now: Entry) -> Result<(), Misfit> {
        let logical = self.logical(id)?;
        let mut entries = logical.entries_mut();
        let end = first.checked_add(count).filter(|end| *end as usize <= entries.len());
        let Some(end) = end else { return misfit(format!("logical disk {id} has no chunk {first} + {count}")) };
        for at in first as usize..end as usize {
            entries.set(at, now).chunk().into_iter().for_each(|chunk| self.space.free(chunk));
        }
        Ok(())
    }

    fn put_disk(&mut self, id: u32, member: &Member) -> Result<(), Misfit> {
        let end = member.base.checked_add(member.chunks).filter(|end| *end < CHUNKS_MAX);
        let (Some(end), true) = (end, member.reserved > 0 && member.reserved < member.chunks) else {
            return misfit(format!("disk {id} has {} chunks from {} on", member.chunks, member.base));
        };
        let overlaps = |other: &Member| member.base < other.base + other.chunks && other.base < end;
        if let Some((other, _)) = self.disks.iter().find(|(other, member)| **other != id && overlaps(member)) {
            return misfit(format!("disks {id} and {other} have chunks of the same number"));
        }
        match self.disks.insert(id, member.clone()) {
            None => self.space.add_disk(id, member.base, member.reserved, member.chunks),
            Some(before) if (before.base, before.chunks) != (member.base, member.chunks) => {
                return misfit(format!("disk {id} has changed its chunks"));
            }
            Some(_) => {}
        }
        self.space.set_leaving(id, member.leaving);
        Ok(())
    }

    fn replay_run(&mut self, id: u32, run: &Run) -> Result<(), Misfit> {
        let logical = self.logical(id)?;
        let mut entries = logical.entries_mut();
        for k in 0..u64::from(run.count) {
            let at = u64::from(run.first) + k * u64::from(run.step);
            let chunk = u64::from(run.chunk) + k;
            let Some(at) = usize::try_from(at).ok().filter(|at| *at < entries.len()) else {
                return misfit(format!("logical disk {id} has no chunk {at}"));
            };
            let before = entries[at].chunk();
            if before.map(u64::from) != Some(chunk) {
                if !u32::try_from(chunk).is_ok_and(|chunk| self.space.take(chunk)) {
                    return misfit(format!("chunk {chunk} is not free for chunk {at} of logical disk {id}"));
                }
                before.into_iter().for_each(|before| self.space.free(before));
            }
            entries.set(at, Entry::at(chunk as u32, run.written));
        }
        Ok(())
    }

    /// Returns the durable state as changes to an empty map.
    pub fn snapshot(&self) -> Vec<Change> {
        let mut changes: Vec<_> = self.disks.iter().map(|(id, member)| Change::Disk(*id, member.clone())).collect();
        for (id, logical) in &self.logicals {
            let shape = logical.shape();
            let thick = shape.thick;
            changes.push(Change::Logical(*id, shape));
            let entries = logical.entries();
            let durable = || entries.there().map(|(at, entry)| (at, entry.durable(thick)));
            changes.extend(self.runs(durable()).into_iter().map(|run| Change::Mapped(*id, run)));
            changes.extend(lost_runs(durable()).into_iter().map(|(first, count)| Change::Lost(*id, first, count)));
        }
        changes.extend(self.cache.clone().map(Change::Cache));
        changes
    }

    /// Combines entries, given in order, into runs, ordered by their first chunk. A run is contiguous on one disk, with
    /// a constant distance in the logical disk.
    pub fn runs(&self, entries: impl Iterator<Item = (u32, Entry)>) -> Vec<Run> {
        let mut open: BTreeMap<u32, Run> = BTreeMap::new();
        let mut runs = Vec::new();
        for (at, entry) in entries {
            let Some(chunk) = entry.chunk() else { continue };
            let (disk, written) = (self.disk_of(chunk).unwrap_or(0), entry.written().is_some());
            let new = Run { first: at, step: 1, chunk, count: 1, written };
            let run = open.entry(disk).or_insert(Run { count: 0, ..new });
            let follows = run.chunk + run.count == chunk && run.written == written;
            if run.count == 1 && follows {
                (run.step, run.count) = (at - run.first, 2);
            } else if follows && run.first + run.count * run.step == at {
                run.count += 1;
            } else {
                runs.push(std::mem::replace(run, new));
            }
        }
        runs.extend(open.into_values());
        runs.retain(|run| run.count > 0);
        runs.sort_unstable_by_key(|run| run.first);
        runs
    }

    /// Fails unless each chunk of a disk is free or belongs to exactly one chunk of a logical disk.
    pub fn check(&self) -> Result<(), Misfit> {
        let mut owners: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (id, logical) in &self.logicals {
            if logical.entries().len() != chunks_of(logical.shape().size_bytes) {
                return misfit(format!("logical disk {id} has another size than its chunks"));
            }
            if !logical.entries().is_counted() {
                return misfit(format!("chunks of logical disk {id} are miscounted: {:?}", logical.entries().counts()));
            }
            for (at, entry) in logical.entries().there() {
                let Some(chunk) = entry.chunk() else { continue };
                if self.disk_of(chunk).is_none() || self.space.is_free(chunk) {
                    return misfit(format!("chunk {chunk} of logical disk {id} is free, or nowhere"));
                }
                if let Some(other) = owners.insert(chunk, (*id, at)) {
                    return misfit(format!("chunk {chunk} belongs to {other:?} and to {:?}", (id, at)));
                }
            }
        }
        self.space.check().map_err(Misfit)
    }

    /// Returns the last start that a disk took part in, and the one before.
    pub fn starts_of(&self, disk: Uuid) -> Option<[Uuid; 2]> {
        self.disks.values().find(|member| member.disk == disk).map(|member| member.starts)
    }
}
