//! Attaching a cache to its backend. Both sides know each other, so no start accepts an older, foreign or empty flash
//! while unwritten data may be on another one.
//!
//! The superblock on the flash and the [`Record`] on the backend's side name the cache and count its starts. Before it
//! serves requests, a start writes
//!
//! 1. the superblock, with the next number, and with the number in the backend's record as `attach_confirmed`,
//! 2. the record, with the next number,
//! 3. the superblock, with this number confirmed.
//!
//! If this is interrupted, the next start repairs the difference. A flash with a lower number than the record is
//! outdated. A record with a lower number than `attach_confirmed` is an outdated copy of the backend.
//!
//! A clean shutdown writes the superblock, and then the record with the superblock's generation and a stamp of the
//! backend. So the next start detects changes of the backend that bypassed the cache.

mod ahead;
mod detached;
mod error;
pub mod memory;
mod side;
pub mod stores;

use std::io;

use flashwise_core::format::{FailedUnit, Geometry, PageError, Place, RunEnd, State, Superblock};
use uuid::Uuid;

pub(crate) use self::ahead::{forget_epochs, note_ahead};
use self::detached::is_detach_unfinished;
pub(crate) use self::detached::note_detached;
pub use self::detached::{attach_again, use_without_cache};
pub(crate) use self::error::log_loss;
pub use self::error::{AttachError, Refusal};
pub(crate) use self::side::read_or_damage;
pub use self::side::{BackendPart, BackendSide, Closed, Owned, Record, RecordedJournal, Stamp, Writes, is_damaged};
use crate::disk::Disk;
use crate::flash::{FlashError, Progress, format, is_blank, read_copies, read_superblock, write_superblock};
use crate::layout::{CacheLayout, End, Held};

/// The name of the volume's size in [`AttachError::Geometry`].
pub(crate) const VOLUME_SIZE: &str = "volume size";

/// The backend that a cache should belong to.
#[derive(Clone, Copy, Debug)]
pub struct Pairing {
    /// The backend's identity.
    pub backend: [u8; 16],
    /// True if the administrator confirmed that this is the right backend, even if it is a copy.
    pub is_identified: bool,
    /// True if the administrator gave up the contents of a cache that is not present.
    pub discards: bool,
}

/// A cache that is given up.
#[derive(Debug, PartialEq, Eq)]
struct Dropped {
    why: String,
    /// True if it may have dirty blocks.
    loses_data: bool,
}

/// The requirements of a start.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The backend.
    pub pairing: Pairing,
    /// The UUID for a new cache.
    pub new_cache: [u8; 16],
    /// The layout of the flash device in erase units.
    pub geometry: Geometry,
    /// The layout of the cache.
    pub layout: &'static dyn CacheLayout,
    /// Size of the volume in bytes.
    pub volume_bytes: u64,
    /// True if blocks may become dirty.
    pub writes_back: bool,
    /// True if they are written back in order.
    pub in_order: bool,
    /// True if there is a [journal](crate::journal).
    pub has_journal: bool,
    /// Number of threads that read the cache.
    pub threads: u32,
    /// The consequences if a cache with dirty blocks is given up. They are logged before that.
    pub loss: String,
}

/// An attached cache.
#[derive(Debug)]
pub struct Attached {
    /// Both sides.
    pub attachment: Attachment,
    /// The contents of the cache.
    pub held: Box<dyn Held>,
    /// True if the cache is new.
    pub formatted: bool,
    /// True if the last run did not shut down cleanly.
    pub crashed: bool,
    /// Notes for the administrator.
    pub notes: Vec<String>,
}

/// The decision about the cache that was found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Format a new cache. An old one is given up.
    New(Option<Dropped>),
    /// Use the cache. If only its dirty blocks are used, the reason is given.
    Resume(Option<String>),
}

/// Checks that a backend may be used without its flash. Returns its record if that cache holds nothing that the backend
/// lacks, or is given up.
pub fn check_empty(side: &dyn BackendSide, discards: bool) -> Result<Option<Record>, AttachError> {
    let (record, _) = read_unless(discards, side)?;
    judge_empty(record.as_ref(), discards)?;
    Ok(record.filter(|record| !record.may_be_dirty || discards))
}

/// Returns the backend's record. If `counts_for_none`, a damaged record counts as none, and its error is returned, too.
pub(crate) fn read_unless(
    counts_for_none: bool,
    side: &dyn BackendSide,
) -> Result<(Option<Record>, Option<io::Error>), AttachError> {
    match read_or_damage(side).map_err(AttachError::of_record)? {
        Ok(record) => Ok((record, None)),
        Err(damage) if counts_for_none => Ok((None, Some(damage))),
        Err(damage) => Err(AttachError::of_record(damage)),
    }
}

fn judge_empty(record: Option<&Record>, discards: bool) -> Result<Verdict, Refusal> {
    match record {
        Some(Record { cache, may_be_dirty: true, .. }) if !discards => Err(Refusal::Missing { expected: *cache }),
        Some(Record { cache, may_be_dirty: true, .. }) => {
            let why = format!("cache {cache} was discarded: its dirty blocks are lost");
            Ok(Verdict::New(Some(Dropped { why, loses_data: true })))
        }
        _ => Ok(Verdict::New(None)),
    }
}

/// Compares the superblock on the flash with the backend's record. `now` is the current stamp of the backend.
fn judge(
    found: Option<&Superblock>,
    record: Option<&Record>,
    inode: Option<u64>,
    now: &Stamp,
    pairing: &Pairing,
) -> Result<Verdict, Refusal> {
    let is_of_record = |found: &Superblock| record.is_some_and(|record| record.cache == Uuid::from_bytes(found.cache));
    // Formatting was interrupted, so the cache was never used.
    let never_begun = |found: &Superblock| found.attach == 1 && found.attach_confirmed == 0 && !is_of_record(found);
    let Some(found) = found.filter(|found| !never_begun(found)) else {
        return judge_empty(record, pairing.discards);
    };
    if found.state == State::Detached {
        return if is_of_record(found) { Ok(Verdict::New(None)) } else { judge_empty(record, pairing.discards) };
    }
    if found.backend != pairing.backend {
        let (found, expected) = (Uuid::from_bytes(found.backend), Uuid::from_bytes(pairing.backend));
        return Err(Refusal::OtherBackend { found, expected });
    }
    let Some(record) = record else {
        // Version 1 had no record.
        let unknown = (found.attach > 0).then(|| "the backend has no record of the cache".to_owned());
        return Ok(Verdict::Resume(unknown));
    };
    let cache = Uuid::from_bytes(found.cache);
    // The verdict if the flash is not used as it is: names the data that is lost, or refuses to lose it.
    let give_up = |may_be_dirty: bool, refusal: Refusal, what: &str| {
        if may_be_dirty && !pairing.discards {
            return Err(refusal);
        }
        let lost = if may_be_dirty { "; its dirty blocks are lost" } else { "; it had no dirty blocks" };
        let why = format!("the cache was dropped, because {what}{lost}");
        Ok(Verdict::New(Some(Dropped { why, loses_data: may_be_dirty })))
    };
    if !is_of_record(found) {
        let (on_found, on_expected) = (found.may_be_dirty, record.may_be_dirty);
        let refusal = Refusal::OtherCache { found: cache, expected: record.cache, on_found, on_expected };
        return give_up(on_found || on_expected, refusal, "the backend was used with another cache since");
    }
    if let (Some(expected), Some(inode)) = (record.inode, inode)
        && expected != inode
        && !pairing.is_identified
    {
        let backend = Uuid::from_bytes(pairing.backend);
        let refusal = Refusal::Copy { cache, backend, found: inode, expected };
        return give_up(
            record.may_be_dirty || found.may_be_dirty,
            refusal,
            "the backend is a copy of the file that it belonged to",
        );
    }
    let is_closed_later = found.attach == record.attach
        && record.closed.as_ref().is_some_and(|closed| closed.generation != found.generation);
    if found.attach < record.attach || is_closed_later {
        let refusal = Refusal::Older {
            cache,
            found: found.attach,
            found_closed: found.state == State::Clean,
            expected: record.attach,
            expected_closed: record.closed.is_some(),
        };
        return give_up(record.may_be_dirty, refusal, "it is older than the backend");
    }
    if found.attach > record.attach && found.attach_confirmed != record.attach {
        let refusal = Refusal::BackendOlder { cache, found: record.attach, expected: found.attach_confirmed };
        return give_up(record.may_be_dirty || found.may_be_dirty, refusal, "the backend is older than it");
    }
    let changes = record.closed.as_ref().and_then(|closed| now.changes(&closed.stamp));
    Ok(Verdict::Resume(changes.map(|changes| format!("the backend was changed without it ({changes})"))))
}

/// Returns the superblock on the flash; `None` if the flash is blank.
fn examine(flash: &dyn Disk) -> Result<Option<Superblock>, FlashError> {
    match read_superblock(flash) {
        Err(FlashError::NoSuperblock(PageError::Magic)) if is_blank(flash)? => Ok(None),
        other => other.map(Some),
    }
}

/// Restores the superblock of a clean shutdown from the record, if the newest copy on the flash is damaged.
fn make_up(flash: &dyn Disk, found: &Superblock, record: Option<&Record>) -> io::Result<Superblock> {
    let closed = record.filter(|record| (record.cache.into_bytes(), record.attach) == (found.cache, found.attach));
    let closed = closed.and_then(|record| Some((record, record.closed.as_ref()?)));
    match closed.filter(|(_, closed)| closed.generation == found.generation + 1) {
        Some((record, closed)) if read_copies(flash)?.iter().any(Result::is_err) => Ok(Superblock {
            generation: closed.generation,
            state: State::Clean,
            durable: Place { sequence: closed.end_sequence, page: closed.end_page },
            may_be_dirty: record.may_be_dirty,
            // The older copy has an outdated digest.
            digest: None,
            ..found.clone()
        }),
        _ => Ok(found.clone()),
    }
}

/// Returns the superblock, if the flash is not blank, and the decision about it.
fn find(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    found: Option<Superblock>,
    record: Option<&Record>,
    pairing: &Pairing,
) -> Result<(Option<Superblock>, Verdict), AttachError> {
    let now = side.stamp().map_err(AttachError::Side)?;
    let Some(found) = found else { return Ok((None, judge(None, record, side.inode(), &now, pairing)?)) };
    let made_up = make_up(flash, &found, record).map_err(FlashError::Io)?;
    let verdict = judge(Some(&made_up), record, side.inode(), &now, pairing)?;
    // The next write replaces the damaged copy, not the valid one.
    Ok((Some(Superblock { generation: found.generation, ..made_up }), verdict))
}

/// Returns the superblock of a cache that belongs to the backend and is current, to write it back offline. If the
/// backend's record is damaged, it is enough that the flash names the backend. Returns the record, too, if it is there
/// and whole.
pub fn paired_superblock(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    pairing: &Pairing,
) -> Result<(Superblock, Option<Record>), AttachError> {
    paired(flash, side, read_superblock(flash)?, pairing)
}

/// Like [`paired_superblock`], for a superblock that was read already.
pub(crate) fn paired(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    found: Superblock,
    pairing: &Pairing,
) -> Result<(Superblock, Option<Record>), AttachError> {
    let (record, damage) = read_unless(true, side)?;
    let (superblock, verdict) = find(flash, side, Some(found), record.as_ref(), pairing)?;
    let superblock = superblock.expect("what was found stays");
    match (verdict, damage) {
        (Verdict::Resume(_), _) => Ok((superblock, record)),
        // The backend may lack blocks of another flash.
        (Verdict::New(_), Some(error)) => Err(AttachError::DamagedRecord(error)),
        // The flash is outdated or was never used, so nothing on it is needed.
        (Verdict::New(_), None) => Ok((Superblock { state: State::Detached, ..superblock }, record)),
    }
}

/// True if either side reports that the cache may hold unwritten data. A damaged record counts as such a report.
pub(crate) fn may_be_dirty(superblock: &Superblock, side: &dyn BackendSide) -> io::Result<bool> {
    Ok(read_or_damage(side)?.map_or(true, |record| either_may_be_dirty(superblock, record.as_ref())))
}

fn either_may_be_dirty(superblock: &Superblock, record: Option<&Record>) -> bool {
    superblock.may_be_dirty || record.is_some_and(|record| record.may_be_dirty)
}

/// Attaches the cache on a flash to a backend: checks that they belong together, and recovers or formats the cache.
/// Counts the start on both sides.
///
/// # Errors
/// An operator has to decide, or has [detached](AttachError::Detached) the cache, or a device failed.
pub fn attach(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<Attached, AttachError> {
    let (record, damage) = read_unless(wanted.pairing.discards, side)?;
    let journal = RecordedJournal::of(record.as_ref());
    let holds_nothing = |error: &dyn std::fmt::Display| {
        format!("the cache was dropped, because it is damaged ({error}); it had no dirty blocks")
    };
    let found = match examine(flash) {
        Err(FlashError::Damaged(..)) if record.as_ref().is_some_and(|record| !record.may_be_dirty) => {
            let what = "both copies of its superblock are wrong";
            return create(flash, side, wanted, journal, vec![holds_nothing(&what)]);
        }
        found => found?,
    };
    if let Some(found) = &found
        && damage.is_none()
        && is_detach_unfinished(found, record.as_ref(), wanted.pairing.backend)
    {
        Attachment::finish_detach(found.clone(), side).map_err(AttachError::Side)?;
        return Err(AttachError::Detached);
    }
    let why = match find(flash, side, found, record.as_ref(), &wanted.pairing)? {
        _ if damage.is_some() => {
            let why = "the backend's record of its cache was damaged; blocks that were not written back are lost";
            Some(Dropped { why: why.to_owned(), loses_data: true })
        }
        (Some(mut superblock), Verdict::Resume(why)) => {
            check_geometry(&superblock, wanted)?;
            ahead::forget_epochs(&mut superblock, record.as_ref(), wanted.has_journal);
            let may_be_dirty = either_may_be_dirty(&superblock, record.as_ref());
            return match wanted.layout.read(flash, &superblock, wanted.threads, progress) {
                Ok(held) => resume(flash, side, wanted, superblock, record, held, why),
                Err(error) if error.is_of_contents() && !may_be_dirty => {
                    create(flash, side, wanted, journal, vec![holds_nothing(&error)])
                }
                Err(error) => Err(error.into()),
            };
        }
        (_, Verdict::New(why)) => why,
        (None, Verdict::Resume(_)) => unreachable!("a flash without a cache is formatted"),
    };
    if why.as_ref().is_some_and(|dropped| dropped.loses_data) {
        log_loss(&wanted.loss);
    }
    create(flash, side, wanted, journal, why.into_iter().map(|dropped| dropped.why).collect())
}

fn check_geometry(found: &Superblock, wanted: &Wanted) -> Result<(), AttachError> {
    let block = flashwise_core::format::BLOCK_BYTES as u64;
    let unit = |geometry: &Geometry| u64::from(geometry.unit_pages) * block;
    let bytes = |geometry: &Geometry| u64::from(geometry.pages()) * block;
    let refuse = |what, found, expected| Err(AttachError::Geometry { what, found, expected });
    if found.layout != wanted.layout.number() {
        return Err(AttachError::Layout { found: found.layout, expected: wanted.layout.number() });
    }
    if found.geometry.unit_pages != wanted.geometry.unit_pages {
        return refuse("erase unit", unit(&found.geometry), unit(&wanted.geometry));
    }
    if found.geometry != wanted.geometry {
        return refuse("flash size", bytes(&found.geometry), bytes(&wanted.geometry));
    }
    // A volume may have grown.
    let shrank = found.volume_bytes > wanted.volume_bytes;
    if shrank || !wanted.layout.grows() && found.volume_bytes != wanted.volume_bytes {
        return refuse(VOLUME_SIZE, found.volume_bytes, wanted.volume_bytes);
    }
    Ok(())
}

/// Formats a new cache.
fn create(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    wanted: &Wanted,
    journal: RecordedJournal,
    notes: Vec<String>,
) -> Result<Attached, AttachError> {
    let mut superblock =
        Superblock::new(wanted.new_cache, wanted.pairing.backend, wanted.geometry, wanted.volume_bytes);
    superblock.may_be_dirty = wanted.writes_back;
    superblock.epochs = wanted.in_order.then(Place::default);
    (superblock.in_order, superblock.layout) = (flash.zoned().is_some(), wanted.layout.number());
    wanted.layout.begin(&mut superblock);
    format(flash, &mut superblock).map_err(FlashError::Io)?;
    wanted.layout.format(flash, &superblock).map_err(FlashError::Io)?;
    let held = wanted.layout.empty(&superblock);
    superblock.digest = held.digest(superblock.attach);
    let attachment = Attachment::count(flash, side, superblock, journal)?;
    Ok(Attached { attachment, held, formatted: true, crashed: false, notes })
}

fn resume(
    flash: &dyn Disk,
    side: &dyn BackendSide,
    wanted: &Wanted,
    mut superblock: Superblock,
    record: Option<Record>,
    mut held: Box<dyn Held>,
    changed: Option<String>,
) -> Result<Attached, AttachError> {
    held.settle(flash).map_err(FlashError::Io)?;
    let crashed = superblock.state == State::InUse;
    superblock.volume_bytes = wanted.volume_bytes;
    superblock.state = State::InUse;
    held.note_in(&mut superblock, wanted.in_order);
    superblock.may_be_dirty = wanted.writes_back || held.may_be_dirty();
    let journal = RecordedJournal::of(record.as_ref());
    // A cache that the backend does not know yet still has started.
    superblock.attach_confirmed = record.map_or(superblock.attach_confirmed.max(1), |record| record.attach);
    superblock.attach = superblock.attach.max(1) + 1;
    let mut notes: Vec<String> = held.note().into_iter().collect();
    if let Some(changed) = changed {
        let clean = held.drop_clean(flash, &mut superblock).map_err(FlashError::Io)?;
        notes.push(match clean {
            0 => format!("{changed}; the cache had no clean blocks to drop"),
            _ => format!("{clean} clean blocks of the cache were dropped, because {changed}"),
        });
    }
    superblock.digest = held.digest(superblock.attach);
    write_superblock(flash, &mut superblock).map_err(FlashError::Io)?;
    let attachment = Attachment::count(flash, side, superblock, journal)?;
    Ok(Attached { attachment, held, formatted: false, crashed, notes })
}

/// The superblock and the record of a cache in use.
#[derive(Clone, Debug)]
pub struct Attachment {
    superblock: Superblock,
    record: Record,
}

impl Attachment {
    /// Counts the start, which the superblock has counted already, in the record, and then confirms it in the
    /// superblock.
    fn count(
        flash: &dyn Disk,
        side: &dyn BackendSide,
        mut superblock: Superblock,
        journal: RecordedJournal,
    ) -> Result<Attachment, AttachError> {
        let Superblock { cache, attach, may_be_dirty, .. } = superblock;
        let record = Record { journal, ..Record::new(cache, attach, may_be_dirty, side.inode()) };
        side.write(&record).map_err(AttachError::Side)?;
        superblock.attach_confirmed = attach;
        write_superblock(flash, &mut superblock).map_err(FlashError::Io)?;
        Ok(Attachment { superblock, record })
    }

    /// Derives both sides of a cache that is not in use from its superblock.
    pub fn of(superblock: Superblock, inode: Option<u64>) -> Attachment {
        let record = Record::new(superblock.cache, superblock.attach, superblock.may_be_dirty, inode);
        Attachment { superblock, record }
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Records a new size of the volume.
    pub fn set_volume_bytes(&mut self, flash: &dyn Disk, volume_bytes: u64) -> io::Result<()> {
        self.superblock.volume_bytes = volume_bytes;
        write_superblock(flash, &mut self.superblock)
    }

    /// Records that this run's writes are durable up to a position, so that damage before it is not a torn write.
    pub fn note_durable(&mut self, flash: &dyn Disk, end: End) -> io::Result<()> {
        let is_known = end.run.is_none() && end.place <= self.superblock.durable;
        if self.superblock.state != State::InUse || is_known {
            return Ok(());
        }
        self.note_end(end);
        write_superblock(flash, &mut self.superblock)
    }

    /// Adds the durable ends of earlier runs to the next superblock.
    pub fn note_ends(&mut self, ends: &[RunEnd]) {
        ends.iter().for_each(|end| self.superblock.note_end(*end));
    }

    fn note_end(&mut self, end: End) {
        self.superblock.durable = end.place;
        end.run.into_iter().for_each(|run| self.superblock.note_end(run));
        // An older digest stays valid, because later changes have higher sequences.
        self.superblock.digest = end.digest.or(self.superblock.digest);
    }

    /// Records the units that failed or could not be reset.
    pub fn set_failed_units(&mut self, flash: &dyn Disk, failed_units: Vec<FailedUnit>) -> io::Result<()> {
        if failed_units.len() > Superblock::FAILED_UNITS_MAX {
            return Err(io::Error::other(format!("{} of its erase units have failed", failed_units.len())));
        }
        (self.superblock.failed_units, self.superblock.digest) = (failed_units, None);
        write_superblock(flash, &mut self.superblock)
    }

    /// Records that blocks may become dirty, before any does.
    pub fn allow_dirty(&mut self, flash: &dyn Disk, side: &dyn BackendSide) -> io::Result<()> {
        if !self.record.may_be_dirty {
            let mut record = self.record.clone();
            record.may_be_dirty = true;
            side.write(&record)?;
            self.record = record;
        }
        if !self.superblock.may_be_dirty {
            self.superblock.may_be_dirty = true;
            write_superblock(flash, &mut self.superblock)?;
        }
        Ok(())
    }

    /// Records a clean shutdown: everything is durable up to `end`, the end of the log. `in_journal` is true if the
    /// journal has a group without its mark.
    pub fn close(
        &mut self,
        flash: &dyn Disk,
        side: &dyn BackendSide,
        end: End,
        may_be_dirty: bool,
        in_journal: bool,
    ) -> io::Result<()> {
        (self.superblock.state, self.superblock.may_be_dirty) = (State::Clean, may_be_dirty);
        // After a clean shutdown, the digest would be exact.
        self.superblock.digest = None;
        self.note_end(end);
        write_superblock(flash, &mut self.superblock)?;
        let (generation, Place { sequence, page }) = (self.superblock.generation, end.place);
        let closed = Closed { generation, end_sequence: sequence, end_page: page, in_journal, stamp: side.stamp()? };
        (self.record.may_be_dirty, self.record.closed) = (may_be_dirty, Some(closed));
        side.write(&self.record)
    }

    /// Marks the cache as detached by an operator: everything was written back, and starts do without a cache until
    /// [`attach_again`]. One side is enough: if the flash is not writable, the backend treats it as outdated.
    ///
    /// # Errors
    /// Neither side could be written, and both stay as they were.
    pub fn detach(&mut self, flash: &dyn Disk, side: &dyn BackendSide) -> io::Result<()> {
        self.leave(flash, side, true)
    }

    /// As [`detach`](Self::detach) for a flash that failed: the next start may use one again.
    ///
    /// # Errors
    /// See [`detach`](Self::detach).
    pub fn leave_failed(&mut self, flash: &dyn Disk, side: &dyn BackendSide) -> io::Result<()> {
        self.leave(flash, side, false)
    }

    fn leave(&mut self, flash: &dyn Disk, side: &dyn BackendSide, detached: bool) -> io::Result<()> {
        let (state, record) = (self.superblock.state, self.record.clone());
        self.superblock.state = State::Detached;
        self.record.detached = detached;
        let marked = write_superblock(flash, &mut self.superblock);
        let detached = self.abandon(side).or(marked);
        if detached.is_err() {
            // They stay a pair. A failed write may have taken effect, so both sides are restored.
            (self.superblock.state, self.record) = (state, record);
            let _ = write_superblock(flash, &mut self.superblock);
            let _ = side.write(&self.record);
        }
        detached
    }

    /// Finishes a detach that was interrupted between the mark on the flash, which is in `superblock`, and the
    /// backend's record.
    pub(crate) fn finish_detach(superblock: Superblock, side: &dyn BackendSide) -> io::Result<()> {
        let record = side.read()?;
        if record.as_ref().is_some_and(|record| !record.may_be_dirty) {
            return note_detached(side);
        }
        let mut attachment = Attachment::of(superblock, side.inode());
        // A disk that is missing still needs its blocks.
        let journal = RecordedJournal::of(record.as_ref());
        if !journal.waits_for.is_empty() {
            attachment.record.journal = journal;
        }
        attachment.record.detached = true;
        attachment.abandon(side)
    }

    /// Gives up the flash without writing to it. From now on, the record states that the backend is complete.
    pub fn abandon(&mut self, side: &dyn BackendSide) -> io::Result<()> {
        self.record.attach += 1;
        (self.record.may_be_dirty, self.record.closed) = (false, None);
        side.write(&self.record)
    }
}
