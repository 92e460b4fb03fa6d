//! Operations of an administrator on a running pool: logical disks and disks are added, changed and removed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::time::{self, MutexGuard};
use flashwise_core::cache::Mode;
use flashwise_core::format::Place;
use flashwise_core::quantity::ByteSize;
use flashwise_core::ram::read_buffer::PINS_MAX;
use uuid::Uuid;

use super::entries::NoMemory;
use super::evacuate::Evacuation;
use super::label::{Label, clear};
use super::map::{Entry, Logical, Map, chunks_of};
use super::metadata::{check_name, check_size};
use super::owners::chunk_of;
use super::prepare::prepare;
use super::record::{Change, Member, Shape};
use super::{CHUNK_BYTES, LogicalDisk, NewLogical, Pool, PoolError, Shared, Tables};
use crate::disk::file::{FileDisk, Options};
use crate::export::{Export, Operation};
use crate::status::VolumeState;

/// Attempts to find the map without pending changes, 10 ms apart: 1 s.
const TRIES: u32 = 100;
/// Number of chunks in one trim of the cache: 1 GiB.
const FORGOTTEN_CHUNKS: u32 = 1 << 14;

impl Pool {
    pub(super) fn control(&self) -> MutexGuard<'_, ()> {
        self.shared.control.lock()
    }

    pub(super) fn refuse(&self, what: String) -> PoolError {
        self.shared.refuse(what)
    }

    /// Fails if a change could not become durable, because an earlier one cannot. Nothing has changed then.
    fn ready(&self) -> Result<(), PoolError> {
        self.check_ready()?;
        self.shared.flush_cache()
    }

    /// The part of this check that does no I/O.
    pub(super) fn check_ready(&self) -> Result<(), PoolError> {
        match self.volume().state() {
            (VolumeState::FlashFailed, why) => {
                let why = why.unwrap_or_else(|| "the flash cannot be written".to_owned());
                Err(self.shared.cache_failed(format!("it cannot be flushed: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the logical disk of this name.
    pub fn logical(&self, name: &str) -> Result<Arc<LogicalDisk>, PoolError> {
        let disks = self.logical_disks();
        disks.get(name).cloned().ok_or_else(|| {
            let there = disks.keys().cloned().collect::<Vec<_>>().join(", ");
            let expected =
                if there.is_empty() { "there is none".to_owned() } else { format!("expected one of: {there}") };
            self.refuse(format!("no logical disk '{name}', {expected}"))
        })
    }

    /// Checks the parameters of a new logical disk, except the free space.
    pub(super) fn check_new(&self, new: &NewLogical) -> Result<(), PoolError> {
        check_name(&new.name)?;
        check_size(new.size_bytes)?;
        if self.shared.state().metadata.map.named(&new.name).is_some() {
            return Err(self.refuse(format!("a logical disk '{}' exists already", new.name)));
        }
        Ok(())
    }

    /// Checks that a logical disk can grow to this size.
    pub(super) fn check_growth(&self, name: &str, before: u64, size_bytes: u64) -> Result<(), PoolError> {
        check_size(size_bytes)?;
        if size_bytes <= before {
            let what = format!("'{name}' has {before} bytes, found {size_bytes}, expected more: it can only grow");
            return Err(self.refuse(what));
        }
        Ok(())
    }

    /// Checks that there is space for a number of chunks.
    pub(super) fn check_space(&self, map: &Map, chunks: usize) -> Result<(), PoolError> {
        let free = map.space.to_give() as usize;
        if chunks > free {
            let (wanted, free) = (chunks as u64 * CHUNK_BYTES, free as u64 * CHUNK_BYTES);
            return Err(PoolError::NoSpace { pool: self.name().to_owned(), wanted, free });
        }
        Ok(())
    }

    /// Refuses to delete a logical disk that a client has open.
    pub(super) fn check_deletion(&self, disk: &LogicalDisk) -> Result<(), PoolError> {
        let clients = disk.clients();
        if clients > 0 {
            let who = if clients == 1 { "a client has it".to_owned() } else { format!("{clients} clients have it") };
            return Err(self.refuse(format!("'{}' is in use: {who} open; disconnect it first", disk.name())));
        }
        Ok(())
    }

    /// Creates a logical disk, durably.
    pub fn create_logical(&self, new: &NewLogical) -> Result<Arc<LogicalDisk>, PoolError> {
        let _one = self.control();
        self.check_new(new)?;
        self.check_pin(None, new.pinned_ram_bytes)?;
        self.ready()?;
        let shape = Shape {
            name: new.name.clone(),
            uuid: Uuid::new_v4(),
            size_bytes: new.size_bytes,
            thick: new.thick,
            striped: new.striped,
            cached: new.cached,
            mode: new.mode.unwrap_or(Mode::WriteBack),
            pinned_ram_bytes: 0,
        };
        let (id, logical) = {
            let mut state = self.shared.state();
            let map = &mut state.metadata.map;
            let id = map.next_logical();
            map.replay(&Change::Logical(id, shape.clone())).map_err(|misfit| self.refuse(misfit.0))?;
            let logical = map.logicals[&id].clone();
            let mut changes = vec![Change::Logical(id, shape.clone())];
            if shape.thick {
                match self.place_all(map, &logical, &shape, 0) {
                    Ok(mapped) => changes.extend(mapped.into_iter().map(|run| Change::Mapped(id, run))),
                    Err(full) => {
                        map.logicals.remove(&id);
                        return Err(full);
                    }
                }
            }
            self.shared.add_pending(&mut state, changes, Vec::new());
            (id, logical)
        };
        if let Err(error) = self.shared.commit_now() {
            // Its pending changes must not be recorded.
            let mut state = self.shared.state();
            state.metadata.map.logicals.remove(&id);
            let chunks: Vec<_> = logical.entries().there().filter_map(|(_, entry)| entry.chunk()).collect();
            self.shared.add_pending(&mut state, vec![Change::LogicalDeleted(id)], chunks);
            return Err(error);
        }
        let disk = self.shared.add_export(id, logical);
        if new.pinned_ram_bytes > 0 {
            self.pin(&disk, new.pinned_ram_bytes)?;
        }
        Ok(disk)
    }

    /// Allocates a place for each chunk of a logical disk from `first` on, or for none.
    fn place_all(
        &self,
        map: &mut Map,
        logical: &Logical,
        shape: &Shape,
        first: usize,
    ) -> Result<Vec<super::record::Run>, PoolError> {
        self.check_space(map, chunks_of(shape.size_bytes) - first)?;
        let mut entries = logical.entries_mut();
        let mut before = first.checked_sub(1).and_then(|before| entries[before].chunk());
        for at in first..entries.len() {
            let chunk = map.space.allocate(at as u32, before, shape.striped).expect("there are enough free chunks");
            entries.set(at, Entry::at(chunk, false));
            before = Some(chunk);
        }
        Ok(map.runs(entries.there().skip_while(|(at, _)| (*at as usize) < first)))
    }

    /// Grows a logical disk that may be in use, durably.
    pub fn grow_logical(&self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let _one = self.control();
        let disk = self.logical(name)?;
        self.check_growth(name, disk.size(), size_bytes)?;
        self.ready()?;
        let before = disk.logical.shape();
        let first = chunks_of(before.size_bytes);
        {
            let mut state = self.shared.state();
            let shape = Shape { size_bytes, ..before.clone() };
            let map = &mut state.metadata.map;
            map.replay(&Change::Logical(disk.id, shape.clone())).map_err(|misfit| self.refuse(misfit.0))?;
            let mut changes = vec![Change::Logical(disk.id, shape.clone())];
            if shape.thick {
                match self.place_all(map, &disk.logical, &shape, first) {
                    Ok(mapped) => changes.extend(mapped.into_iter().map(|run| Change::Mapped(disk.id, run))),
                    Err(full) => {
                        map.replay(&Change::Logical(disk.id, before)).expect("it is there");
                        return Err(full);
                    }
                }
            }
            self.shared.add_pending(&mut state, changes, Vec::new());
        }
        if let Err(error) = self.shared.commit_now() {
            self.take_shape(&disk, before);
            return Err(error);
        }
        disk.set_size(size_bytes);
        Ok(())
    }

    /// Enables or disables caching of a logical disk.
    pub fn set_cached(&self, name: &str, cached: bool) -> Result<(), PoolError> {
        self.reshape(name, |shape| Shape { cached, ..shape })
    }

    /// Sets the write mode of a logical disk.
    pub fn set_mode(&self, name: &str, mode: Mode) -> Result<(), PoolError> {
        self.reshape(name, |shape| Shape { mode, ..shape })
    }

    fn reshape(&self, name: &str, change: impl FnOnce(Shape) -> Shape) -> Result<(), PoolError> {
        let _one = self.control();
        let disk = self.logical(name)?;
        self.reshape_one(&disk, change)
    }

    pub(super) fn reshape_one(&self, disk: &LogicalDisk, change: impl FnOnce(Shape) -> Shape) -> Result<(), PoolError> {
        self.ready()?;
        let before = disk.logical.shape();
        self.take_shape(disk, change(before.clone()));
        let changed = self.shared.commit_now();
        if changed.is_err() {
            self.take_shape(disk, before);
        }
        changed
    }

    fn take_shape(&self, disk: &LogicalDisk, shape: Shape) {
        disk.set_cached(shape.cached);
        disk.set_mode(shape.mode);
        let mut state = self.shared.state();
        let change = Change::Logical(disk.id, shape);
        state.metadata.map.replay(&change).expect("it is there");
        self.shared.add_pending(&mut state, vec![change], Vec::new());
    }

    /// Deletes a logical disk that no client has open, durably, and releases its chunks.
    pub fn delete_logical(&self, name: &str) -> Result<(), PoolError> {
        let _one = self.control();
        let disk = self.logical(name)?;
        self.check_deletion(&disk)?;
        // A deletion cannot be undone. So a change without effect first tests that the map can be written.
        self.reshape_one(&disk, |shape| shape)?;
        {
            let mut state = self.shared.state();
            self.shared.exports.write().remove(&disk.id);
            state.metadata.map.logicals.remove(&disk.id);
            let chunks = disk.logical.entries().there().filter_map(|(_, entry)| entry.chunk()).collect();
            self.shared.add_pending(&mut state, vec![Change::LogicalDeleted(disk.id)], chunks);
        }
        disk.close();
        self.shared.unpin(&disk);
        self.shared.commit_now().map_err(|error| PoolError::NotDurable {
            pool: self.name().to_owned(),
            what: format!("'{name}' is deleted"),
            error: Arc::new(error),
        })
    }

    /// Checks that a pool can be destroyed: it has no logical disks, no missing disks, and none being evacuated.
    pub(super) fn check_end(&self) -> Result<(), PoolError> {
        let names: Vec<String> = self.logical_disks().into_keys().collect();
        if !names.is_empty() {
            return Err(self.refuse(format!("it has the logical disks {}; delete them first", names.join(", "))));
        }
        let missing = self.missing_disks();
        if !missing.is_empty() {
            return Err(self.refuse(format!("{} is missing: give it up first", missing.join(", "))));
        }
        let state = self.shared.state();
        if let Some(leaving) = state.metadata.map.disks.values().find(|disk| disk.leaving) {
            return Err(self.refuse(format!("{} is being emptied: wait until it is gone", leaving.path)));
        }
        Ok(())
    }

    /// Destroys a pool without logical disks: blanks its disks, its flash and its journal. Further requests fail.
    pub fn end(&self) -> Result<(), PoolError> {
        let _one = self.control();
        self.check_end()?;
        let failed = |error| PoolError::Disk { path: self.name().to_owned(), error };
        self.close().map_err(|error| failed(io::Error::other(error)))?;
        self.volume().blank_flash().and_then(|()| self.volume().blank_journal()).map_err(failed)?;
        let state = self.shared.state();
        for present in &state.metadata.present {
            let blank = clear(&*present.disk);
            blank.map_err(|error| PoolError::Disk { path: present.disk.description(), error })?;
        }
        Ok(())
    }

    /// Adds a disk, durably, and returns its number. See [`prepare`] for the checks.
    pub fn add_disk(&self, path: &Path, wipe: bool) -> Result<u32, PoolError> {
        let _one = self.control();
        self.refuse_own(path)?;
        let disk = prepare(path, wipe, self.config.cache.direct_io)?;
        let old = self.shared.blocks_of_no_disk()?;
        let mut state = self.shared.state();
        let id = state.metadata.add(disk)?;
        if let Some((end, blocks)) = old {
            state.rest(end, blocks);
        }
        self.shared.disk.set_ranges(Shared::ranges(&state.metadata));
        drop(state);
        self.shared.tell_disks();
        Ok(id)
    }

    /// Refuses a disk that belongs to the pool, even if it is missing: adding it as a new disk would erase its data.
    pub(super) fn refuse_own(&self, path: &Path) -> Result<(), PoolError> {
        // If it cannot be opened, the caller fails to open it, too.
        let options = Options { read_only: true, ..Options::default() };
        let Ok(Ok(Ok(label))) = FileDisk::open(path, options).map(|disk| Label::read(&disk)) else { return Ok(()) };
        let state = self.shared.state();
        let own = state.metadata.map.disks.iter().find(|(_, member)| member.disk == label.disk);
        let Some((id, member)) = own.filter(|_| label.pool == state.metadata.pool) else { return Ok(()) };
        let what = match state.metadata.missing().contains(id) {
            true => format!(
                "{} is disk {id} of this pool, which is missing: add it to the configuration and restart the server. \
                 To add it as an empty disk, remove the missing disk first",
                path.display()
            ),
            false => format!("{} is disk {id} of this pool already, last found as {}", path.display(), member.path),
        };
        drop(state);
        Err(self.refuse(what))
    }

    /// Starts to evacuate a disk, which is then removed. The work continues after this returns, and after a restart.
    pub fn remove_disk(&self, id: u32) -> Result<(), PoolError> {
        let _one = self.control();
        let mut state = self.shared.state();
        if state.leaving.contains_key(&id) {
            // It is being evacuated already.
            return Ok(());
        }
        let (member, _) = state.check_removal(id)?;
        state.set_leaving(id, &member, true)?;
        Evacuation::begin(&self.shared, &mut state, id);
        Ok(())
    }

    /// Cancels an evacuation, durably. Chunks that were moved stay at their new places.
    pub fn keep_disk(&self, id: u32) -> Result<(), PoolError> {
        let _one = self.control();
        let mut state = self.shared.state();
        let member = state.check_keeping(id)?;
        state.set_leaving(id, &member, false)?;
        state.leaving.remove(&id);
        Ok(())
    }

    /// Returns the sum of the sizes of all logical disks, which may exceed the space of the pool.
    pub fn provisioned_bytes(&self) -> u64 {
        self.logical_disks().values().map(|disk| disk.size()).sum()
    }
}

// Reserved RAM: each logical disk with a reservation has a pin of the pool's read buffer.
impl Pool {
    /// Reserves RAM of the read buffer for the most recently read blocks of a logical disk, durably.
    pub fn set_pinned(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        let _one = self.control();
        let disk = self.logical(name)?;
        self.check_pin(Some(&disk), bytes)?;
        self.pin(&disk, bytes)
    }

    /// Checks that RAM can be reserved for a logical disk; `None` is a new one.
    pub(super) fn check_pin(&self, disk: Option<&LogicalDisk>, bytes: u64) -> Result<(), PoolError> {
        if bytes == 0 {
            return Ok(());
        }
        if !bytes.is_multiple_of(4096) {
            return Err(PoolError::Pinned { found: bytes });
        }
        let all = self.logical_disks();
        let others = || all.values().filter(|other| disk.is_none_or(|disk| disk.id != other.id));
        let kept = |other: &LogicalDisk| other.logical.shape().pinned_ram_bytes;
        if others().filter(|other| kept(other) > 0).count() >= usize::from(PINS_MAX) {
            return Err(self.refuse(format!("RAM is reserved for {PINS_MAX} logical disks already, the maximum")));
        }
        let (taken, room) = (others().map(|other| kept(other)).sum::<u64>(), self.volume().read_buffer_bytes());
        if taken.saturating_add(bytes) > room {
            let [bytes, room, taken] = [bytes, room, taken].map(ByteSize::new);
            let what = format!(
                "found {bytes} of RAM to keep, expected at most the {room} of the read buffer, because {taken} are \
                 kept for others"
            );
            return Err(self.refuse(what));
        }
        Ok(())
    }

    pub(super) fn pin(&self, disk: &LogicalDisk, bytes: u64) -> Result<(), PoolError> {
        let before = disk.logical.shape().pinned_ram_bytes;
        self.shared.pin(disk, bytes);
        let changed = self.reshape_one(disk, |shape| Shape { pinned_ram_bytes: bytes, ..shape });
        if changed.is_err() {
            self.shared.pin(disk, before);
        }
        changed
    }
}

impl Shared {
    /// Returns the blocks in the log that are on no disk, and the end of their epochs. Their disk was given up, but the
    /// server ended or another disk rejected writes before the log forgot them. A disk that is added can get their
    /// numbers.
    fn blocks_of_no_disk(&self) -> Result<Option<(Place, Vec<u32>)>, PoolError> {
        if !self.is_in_order() {
            return Ok(None);
        }
        let (_, mut blocks) = self.volume().unfinished_blocks();
        {
            let map = &self.state().metadata.map;
            blocks.retain(|block| map.disk_of(chunk_of(u64::from(*block))).is_none());
        }
        if blocks.is_empty() {
            return Ok(None);
        }
        // They are in epochs that have ended after this.
        self.flush_cache()?;
        Ok(self.volume().ended_epochs().map(|end| (end, blocks)))
    }

    /// Reserves RAM for a logical disk. False if all pins are in use.
    pub(super) fn pin(&self, disk: &LogicalDisk, bytes: u64) -> bool {
        let pin = &disk.figures.cache.pin;
        if bytes == 0 {
            self.unpin(disk);
            return true;
        }
        if pin.load(Ordering::Relaxed) == 0 {
            let exports = self.exports.read();
            let is_taken =
                |number: &u8| exports.values().any(|other| other.figures.cache.pin.load(Ordering::Relaxed) == *number);
            let Some(free) = (1..=PINS_MAX).find(|number| !is_taken(number)) else { return false };
            drop(exports);
            pin.store(free, Ordering::Relaxed);
        }
        self.volume().pin_ram(pin.load(Ordering::Relaxed), bytes)
    }

    /// Releases the reserved RAM of a logical disk.
    pub(super) fn unpin(&self, disk: &LogicalDisk) {
        let pin = disk.figures.cache.pin.swap(0, Ordering::Relaxed);
        if pin > 0 {
            self.volume().pin_ram(pin, 0);
        }
    }
}

// Giving up a missing disk: its written chunks lose their places and return errors until they are rewritten or trimmed.
// Chunks that were never written still read as zeroes.
impl Pool {
    /// Returns the missing disk, or refuses to give it up. `word` must repeat its path from the status, if it is there.
    pub(super) fn check_giving_up(&self, state: &Tables, id: u32, word: Option<&str>) -> Result<Member, PoolError> {
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
        state.wake_resting(|chunk| (member.base..member.base + member.chunks).contains(&chunk));
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
        let given_up = |error: String| {
            let what = format!("{} was given up, but blocks of it could not be dropped durably: {error}", member.path);
            self.shared.cache_failed(what)
        };
        let end = member.base + member.chunks;
        for first in (member.base..end).step_by(FORGOTTEN_CHUNKS as usize) {
            let count = FORGOTTEN_CHUNKS.min(end - first);
            let (offset, length) = (u64::from(first) * CHUNK_BYTES, u64::from(count) * CHUNK_BYTES);
            let dropped = self.shared.ask(Operation::Trim, offset, length, Vec::new());
            dropped.map_err(|error| given_up(error.to_string()))?;
        }
        self.shared.volume().flush().map_err(|error| given_up(error.to_string()))
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
