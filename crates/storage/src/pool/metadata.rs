//! The metadata of a pool, in memory and on its disks. Each start reads, checks and updates it, and a change counts
//! once it is on all disks.
//!
//! A start reads the labels and maps of all disks and takes the newest map. It writes this map to all disks as a new
//! snapshot with a new name. So does a clean shutdown. The map contains the last two such names of each disk. Once a
//! snapshot is on all disks, only its own name is kept. A disk whose map has another name is an outdated copy, or was
//! used without the others.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashwise_core::format::BLOCK_BYTES;
use uuid::Uuid;

use super::error::PoolError;
use super::journal::{self, Position, ReadMap};
use super::label::{Label, LabelError, NAME_BYTES_MAX, clear};
use super::map::Map;
use super::record::{Change, Member};
use crate::disk::{Disk, is_dead};
use crate::time;

/// Interval between retries of a disk that failed to take a change of the map.
pub(super) const REVIVE_INTERVAL: Duration = Duration::from_secs(5);

/// A disk of a pool that is present.
pub struct Present {
    /// The disk's number in the map.
    pub id: u32,
    /// The device.
    pub disk: Arc<dyn Disk>,
    pub(super) label: Label,
    /// True if the disk failed to take a change. Its copy of the map is outdated until it takes a whole snapshot.
    pub stale: bool,
}

/// The metadata of a pool.
pub struct Metadata {
    /// The pool's UUID.
    pub pool: Uuid,
    /// The pool's name.
    pub name: String,
    /// The map.
    pub map: Map,
    /// The disks that are present.
    pub present: Vec<Present>,
    start: Uuid,
    position: Position,
    /// True if the name of this start is on the disks, or is being written there.
    is_written: bool,
    /// True if no disk took the last write completely.
    torn: bool,
    /// True if that write was a snapshot, and none was written since.
    torn_snapshot: bool,
    /// Time of the last retry of stale disks; `None` if no disk is stale.
    tried: Option<Instant>,
}

/// Checks that a name is valid as an export of every protocol, and as a file name.
pub fn check_name(name: &str) -> Result<(), PoolError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && name.bytes().any(|byte| byte != b'.')
    {
        return Ok(());
    }
    Err(PoolError::Name { name: name.escape_debug().to_string() })
}

/// Checks that a logical disk can have this size.
pub(super) fn check_size(size_bytes: u64) -> Result<(), PoolError> {
    if size_bytes == 0 || size_bytes > super::LOGICAL_BYTES_MAX || !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(PoolError::Size { found: size_bytes });
    }
    Ok(())
}

fn at(disk: &dyn Disk, error: io::Error) -> PoolError {
    PoolError::Disk { path: disk.description(), error }
}

/// A disk with its label, and its copy of the map.
struct Candidate {
    disk: Arc<dyn Disk>,
    label: Label,
    found: Option<ReadMap>,
}

impl Metadata {
    /// Creates a pool from blank disks.
    pub fn create(name: &str, disks: Vec<Arc<dyn Disk>>) -> Result<Metadata, PoolError> {
        check_name(name)?;
        let mut metadata = Metadata {
            pool: Uuid::new_v4(),
            name: name.to_owned(),
            map: Map::default(),
            present: Vec::new(),
            start: Uuid::new_v4(),
            position: Position { generation: 1, pages: 0 },
            is_written: true,
            torn: false,
            torn_snapshot: false,
            tried: None,
        };
        for disk in disks {
            metadata.take_in(disk)?;
        }
        if metadata.present.is_empty() {
            return Err(PoolError::Refused { pool: name.to_owned(), what: "it needs a disk".to_owned() });
        }
        metadata.write_snapshot()?;
        metadata.write_labels()?;
        Ok(metadata)
    }

    /// Assigns a number, a label and chunks to a blank disk, in memory.
    fn take_in(&mut self, disk: Arc<dyn Disk>) -> Result<u32, PoolError> {
        let (path, found) = (disk.description(), disk.size());
        let label = Label::new(self.pool, &self.name, Uuid::new_v4(), found);
        let mut label = label.ok_or_else(|| PoolError::TooSmall { path: path.clone(), found })?;
        let base = self.map.base_for(label.chunks).ok_or(PoolError::TooLarge)?;
        (label.generation, label.start) = (self.position.generation, self.start);
        let (id, reserved) = (self.map.next_disk(), label.first_chunk());
        let starts = [self.start, Uuid::nil()];
        let member = Member { disk: label.disk, path, base, chunks: label.chunks, reserved, leaving: false, starts };
        self.map.replay(&Change::Disk(id, member)).expect("a new disk fits");
        self.present.push(Present { id, disk, label, stale: false });
        Ok(id)
    }

    /// Finds a pool on its disks, given in any order. If `degraded`, disks may be missing. Removed and blank disks are
    /// ignored if no other is missing. Notes for users are added to `notes`.
    pub fn open(
        name: &str,
        disks: Vec<Arc<dyn Disk>>,
        degraded: bool,
        notes: &mut Vec<String>,
    ) -> Result<Metadata, PoolError> {
        let (mut candidates, mut others) = candidates(name, disks, degraded, notes)?;
        let newest =
            candidates.iter().filter_map(|candidate| candidate.found.as_ref()).max_by_key(|found| found.position);
        let Some(newest) = newest else { return Err(PoolError::NoMap { pool: name.to_owned() }) };
        let damaged = |misfit| PoolError::Damaged { pool: name.to_owned(), misfit };
        let mut map = Map::default();
        newest.changes.iter().try_for_each(|change| map.replay(change)).map_err(damaged)?;
        let start = newest.start;
        let generation = candidates
            .iter()
            .filter_map(|candidate| Some(candidate.found.as_ref()?.position.generation))
            .chain(candidates.iter().map(|candidate| candidate.label.generation))
            .max()
            .expect("there is a disk");
        // The newest map is not overwritten before the new one is complete.
        let next = if (generation + 1) % 2 == newest.position.generation % 2 { generation + 2 } else { generation + 1 };
        for candidate in std::mem::take(&mut candidates) {
            match check_candidate(name, &map, start, &candidate) {
                Ok(()) => candidates.push(candidate),
                Err(error @ PoolError::TakenOut { .. }) => others.push((candidate.disk, error)),
                Err(error) => return Err(error),
            }
        }
        let is_there = |member: &Member| candidates.iter().any(|candidate| candidate.label.disk == member.disk);
        let missing: Vec<String> = map
            .disks
            .values()
            .filter(|member| !is_there(member))
            .map(|member| format!("disk {} (last seen as {})", member.disk, member.path))
            .collect();
        // A disk that is not part of the pool does no harm, but may have been given in place of the missing one.
        let others: Vec<(String, &str)> = others
            .into_iter()
            .map(|(disk, error)| {
                let was_taken_out = matches!(error, PoolError::TakenOut { .. });
                (disk.description(), if was_taken_out { "it was removed" } else { "it is blank" })
            })
            .collect();
        notes.extend(
            others.iter().map(|(path, _)| format!("pool {name}: {path} is not one of its disks and is ignored")),
        );
        if !missing.is_empty() && !degraded {
            return Err(PoolError::Missing { pool: name.to_owned(), missing, others });
        }
        notes.extend(
            missing.iter().map(|missing| format!("pool {name}: {missing} is missing: requests for its data fail")),
        );
        let stale =
            candidates.iter().filter(|candidate| candidate.found.as_ref().is_none_or(|found| found.start != start));
        notes.extend(stale.map(|candidate| {
            format!("pool {name}: {} was absent and is up to date again", candidate.disk.description())
        }));
        let mut metadata = Metadata {
            pool: candidates[0].label.pool,
            name: name.to_owned(),
            map,
            present: Vec::new(),
            start: Uuid::new_v4(),
            position: Position { generation: next, pages: 0 },
            is_written: false,
            torn: false,
            torn_snapshot: false,
            tried: None,
        };
        metadata.begin(candidates);
        Ok(metadata)
    }

    /// Records this start durably on the disks. Nothing is written to them earlier, so a start that is refused leaves
    /// them unchanged.
    pub fn write_start(&mut self) -> Result<(), PoolError> {
        if std::mem::replace(&mut self.is_written, true) {
            return Ok(());
        }
        self.write_snapshot()?;
        self.write_labels()?;
        self.forget_older()
    }

    /// Registers the disks that take part in this start.
    fn begin(&mut self, candidates: Vec<Candidate>) {
        let start = self.start;
        for Candidate { disk, label, found } in candidates {
            let member = self.map.disks.iter_mut().find(|(_, member)| member.disk == label.disk);
            let (id, member) = member.expect("disks that are not in the map were refused");
            // The name on the disk itself counts, because the disk may have missed many starts.
            let before = found.map_or(label.start, |found| found.start);
            (member.path, member.starts) = (disk.description(), [start, before]);
            self.present.push(Present { id: *id, disk, label, stale: false });
        }
        for id in self.map.disks.keys() {
            let missing = !self.present.iter().any(|present| present.id == *id);
            self.map.space.set_missing(*id, missing);
        }
    }

    /// Ends a clean shutdown: the map gets a new name, so copies of a disk made before it are recognized.
    pub fn end(&mut self) -> Result<(), PoolError> {
        self.write_start()?;
        let before = std::mem::replace(&mut self.start, Uuid::new_v4());
        self.name_starts(before);
        self.write_next_snapshot()?;
        self.write_labels()?;
        self.forget_older()
    }

    /// Forgets the earlier name once all disks that are not stale have the map. Copies under that name are outdated
    /// from then on.
    fn forget_older(&mut self) -> Result<(), PoolError> {
        let named = self.name_starts(self.start);
        self.commit(&named)
    }

    /// Records the current name of the map, and `other`, for each disk that is not stale.
    fn name_starts(&mut self, other: Uuid) -> Vec<Change> {
        let mut changes = Vec::new();
        for present in self.present.iter().filter(|present| !present.stale) {
            let member = self.map.disks.get_mut(&present.id).expect("a disk that is there is in the map");
            member.starts = [self.start, other];
            changes.push(Change::Disk(present.id, member.clone()));
        }
        changes
    }

    /// Returns the numbers of the missing disks.
    pub fn missing(&self) -> Vec<u32> {
        let is_missing = |id: &&u32| !self.present.iter().any(|present| present.id == **id);
        self.map.disks.keys().filter(is_missing).copied().collect()
    }

    /// Returns the number of the current snapshot, which increases with each.
    pub fn generation(&self) -> u64 {
        self.position.generation
    }

    /// Makes changes durable that were made in memory. At least one disk must take them.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), PoolError> {
        // An earlier snapshot may lack a logical disk that was deleted meanwhile.
        if !self.is_written {
            // The snapshot of a start includes them.
            return self.write_start();
        }
        let is_known = |change: &&Change| match change {
            Change::Mapped(id, _) | Change::Unmapped(id, ..) | Change::Lost(id, ..) => {
                self.map.logicals.contains_key(id)
            }
            _ => true,
        };
        let changes: &[Change] = &changes.iter().filter(is_known).cloned().collect::<Vec<_>>();
        if changes.is_empty() {
            return Ok(());
        }
        if self.torn || self.revive() {
            // Nothing may follow a record that is incomplete, or that some disks lack.
            return self.write_next_snapshot();
        }
        let fits = |present: &Present| journal::fits(&present.label, self.position, changes);
        let end = self.present.iter().filter(|present| !present.stale).map(fits).collect::<Option<Vec<_>>>();
        match end.and_then(|ends| ends.first().copied()) {
            Some(pages) => {
                self.write_all(changes)?;
                self.position.pages = pages;
                Ok(())
            }
            None => self.write_next_snapshot(),
        }
    }

    /// Writes a snapshot if a stale disk accepts writes again.
    pub(super) fn bring_up_to_date(&mut self) -> Result<(), PoolError> {
        let any_stale = self.present.iter().any(|present| present.stale);
        if self.is_written && any_stale && !self.torn && self.revive() { self.write_next_snapshot() } else { Ok(()) }
    }

    /// Retries the stale disks once per interval. True if one of them accepts a whole snapshot now.
    fn revive(&mut self) -> bool {
        if self.tried.is_none_or(|tried| time::elapsed(tried) < REVIVE_INTERVAL) {
            return false;
        }
        let mut revived = false;
        for present in self.present.iter_mut().filter(|present| present.stale) {
            if present.label.write(&*present.disk).is_ok() {
                let disk = present.disk.description();
                tracing::warn!(event = "map-accepted", pool = self.name, disk, "the disk accepts the map again");
                (present.stale, revived) = (false, true);
            }
        }
        let stale = self.present.iter().any(|present| present.stale);
        self.tried = stale.then(time::now);
        revived
    }

    /// Writes a snapshot to the other area. If the map does not fit there, nothing changes.
    fn write_next_snapshot(&mut self) -> Result<(), PoolError> {
        let before = self.position;
        // Overwrites the torn snapshot, not the complete one.
        let next = if self.torn_snapshot { 2 } else { 1 };
        self.position = Position { generation: before.generation + next, pages: 0 };
        let written = self.write_snapshot();
        match &written {
            Ok(()) => {}
            Err(PoolError::MapFull { .. }) => self.position = before,
            Err(_) => self.torn_snapshot = true,
        }
        written
    }

    /// Adds a blank disk durably. Its label is written first, so that no map names a disk without a label.
    pub fn add(&mut self, disk: Arc<dyn Disk>) -> Result<u32, PoolError> {
        let id = self.take_in(disk)?;
        let undo = |metadata: &mut Metadata, error| {
            metadata.present.retain(|present| present.id != id);
            metadata.map.replay(&Change::DiskRemoved(id)).expect("it was taken in");
            Err(error)
        };
        let present = self.present.last().expect("it was taken in");
        if let Err(error) = present.label.write(&*present.disk) {
            let error = at(&*present.disk, error);
            return undo(self, error);
        }
        // The new disk has no snapshot yet.
        match self.write_next_snapshot() {
            Ok(()) => Ok(id),
            Err(error) => undo(self, error),
        }
    }

    /// Removes a disk without chunks, durably, and blanks it.
    ///
    /// The remaining disks, including stale ones, have the whole map before that.
    pub fn take_out(&mut self, id: u32) -> Result<(), PoolError> {
        let before = (self.map.disks.clone(), self.map.space.clone());
        self.map
            .replay(&Change::DiskRemoved(id))
            .map_err(|misfit| PoolError::Damaged { pool: self.name.clone(), misfit })?;
        let at = self.present.iter().position(|present| present.id == id);
        let gone = at.map(|at| self.present.remove(at));
        self.present.iter_mut().for_each(|present| present.stale = false);
        if let Err(error) = self.write_next_snapshot() {
            (self.map.disks, self.map.space) = before;
            if let (Some(at), Some(gone)) = (at, gone) {
                self.present.insert(at, gone);
            }
            return Err(error);
        }
        if let Some(gone) = gone {
            // If this fails, later starts recognize the disk as removed.
            let _ = clear(&*gone.disk);
        }
        Ok(())
    }

    fn write_snapshot(&mut self) -> Result<(), PoolError> {
        let snapshot = self.map.snapshot();
        let too_small =
            self.present.iter().find(|present| journal::fits(&present.label, self.position, &snapshot).is_none());
        if let Some(present) = too_small {
            return Err(PoolError::MapFull { pool: self.name.clone(), path: present.disk.description() });
        }
        self.write_all(&snapshot)?;
        let label = &self.present[0].label;
        self.position.pages = journal::fits(label, self.position, &snapshot).expect("it did before");
        Ok(())
    }

    /// Writes to each disk. A disk that fails is left out until it takes a snapshot again. If all fail, none is left
    /// out, and the next change retries.
    fn write_all(&mut self, changes: &[Change]) -> Result<(), PoolError> {
        let (start, position) = (self.start, self.position);
        let mut last = None;
        let mut failed = Vec::new();
        let mut written = 0;
        for (at, present) in self.present.iter().enumerate().filter(|(_, present)| !present.stale) {
            match journal::write(&*present.disk, &present.label, start, position, changes) {
                Ok(()) => written += 1,
                Err(error) => {
                    let disk = present.disk.description();
                    tracing::error!(event = "map-not-written", pool = self.name, disk, %error, "the map was not \
                        written");
                    failed.push(at);
                    last = Some(error);
                }
            }
        }
        if written > 0 {
            (self.torn, self.torn_snapshot) = (false, false);
            if !failed.is_empty() {
                self.tried = Some(time::now());
            }
            failed.into_iter().for_each(|at| self.present[at].stale = true);
            return Ok(());
        }
        self.torn = true;
        let last = last.map_or_else(|| "each has failed before".to_owned(), |error| error.to_string());
        Err(PoolError::NotWritten { pool: self.name.clone(), last })
    }

    /// Writes the label of each disk. A disk that fails becomes stale.
    fn write_labels(&mut self) -> Result<(), PoolError> {
        let (mut failed, mut written) = (None, 0);
        for present in self.present.iter_mut().filter(|present| !present.stale) {
            (present.label.generation, present.label.start) = (self.position.generation, self.start);
            match present.label.write(&*present.disk) {
                Ok(()) => written += 1,
                Err(error) => {
                    let disk = present.disk.description();
                    tracing::error!(event = "label-not-written", pool = self.name, disk, %error, "the label was not \
                        written");
                    present.stale = true;
                    failed = Some(at(&*present.disk, error));
                }
            }
        }
        match failed {
            Some(error) if written == 0 => Err(error),
            Some(_) => {
                self.tried = Some(time::now());
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A disk that is not part of the pool, and the reason.
type Other = (Arc<dyn Disk>, PoolError);

/// Reads labels and maps, and refuses disks that do not belong together. Disks without a label are returned separately.
/// So are unreadable disks if the pool may be degraded.
fn candidates(
    name: &str,
    disks: Vec<Arc<dyn Disk>>,
    degraded: bool,
    notes: &mut Vec<String>,
) -> Result<(Vec<Candidate>, Vec<Other>), PoolError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut others: Vec<Other> = Vec::new();
    let mut unread = None;
    for disk in disks {
        let path = disk.description();
        let label = match Label::read(&*disk) {
            Err(error) if is_dead(&error) && degraded => {
                notes.push(format!("pool {name}: {path} cannot be read and is ignored: {error}"));
                continue;
            }
            Err(error) if is_dead(&error) => {
                let error = io::Error::other(format!("{path}: {error}"));
                return Err(PoolError::Gone { pool: name.to_owned(), error });
            }
            label => label.map_err(|error| at(&*disk, error))?,
        };
        let label = match label.map_err(|error| PoolError::Label { path: path.clone(), error }) {
            Ok(label) => label,
            Err(error @ PoolError::Label { error: LabelError::Erased, .. }) => {
                others.push((disk, error));
                continue;
            }
            Err(error) => return Err(error),
        };
        if label.pool_name != name {
            return Err(PoolError::OtherPool { path, found: label.pool_name, expected: name.to_owned() });
        }
        let expected = u64::from(label.chunks) * super::CHUNK_BYTES;
        if disk.size() < expected {
            return Err(PoolError::CutShort { path, found: disk.size(), expected });
        }
        if let Some(other) = candidates.first().filter(|other| other.label.pool != label.pool) {
            let (first, first_pool) = (other.disk.description(), other.label.pool);
            return Err(PoolError::TwoPools { first, first_pool, second: path, second_pool: label.pool });
        }
        if let Some(other) = candidates.iter().find(|other| other.label.disk == label.disk) {
            return Err(PoolError::Duplicate { first: other.disk.description(), second: path, disk: label.disk });
        }
        let found = match journal::read(&*disk, &label) {
            Ok(found) => found,
            // The disk then takes the map of the others, which may be older.
            Err(error) if degraded => {
                notes.push(format!(
                    "pool {name}: {path}: its map cannot be read, and the map of the other disks is used: {error}"
                ));
                unread.get_or_insert(PoolError::Unread { path, error });
                None
            }
            Err(error) => return Err(PoolError::Unread { path, error }),
        };
        candidates.push(Candidate { disk, label, found });
    }
    if let Some(error) = unread.filter(|_| candidates.iter().all(|candidate| candidate.found.is_none())) {
        return Err(error);
    }
    match (candidates.is_empty(), others.is_empty()) {
        (true, true) => Err(PoolError::NoMap { pool: name.to_owned() }),
        (true, false) => Err(others.remove(0).1),
        (false, _) => Ok((candidates, others)),
    }
}

/// Checks that a disk is in the newest map, and took part in the start that wrote it.
fn check_candidate(name: &str, map: &Map, newest: Uuid, candidate: &Candidate) -> Result<(), PoolError> {
    let (path, pool) = (candidate.disk.description(), name.to_owned());
    let Some(starts) = map.starts_of(candidate.label.disk) else {
        return Err(PoolError::TakenOut { path, pool });
    };
    let start = candidate.found.as_ref().map_or(candidate.label.start, |found| found.start);
    if start == newest || starts.contains(&start) { Ok(()) } else { Err(PoolError::Diverged { path, pool }) }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metadata").field("name", &self.name).field("position", &self.position).finish_non_exhaustive()
    }
}
