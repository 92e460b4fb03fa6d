//! Opening a volume, with or without its flash.

use std::sync::Arc;
use std::time::Duration;

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::journal::Journal;
use flashwise_engine::engine::FLASH;

use super::backend_state::without_flash;
use super::budget::open_account;
use super::detaching::engine_without_flash;
use super::devices::{
    check_backend, geometry_without_flash, journal_of_record, open_backend, open_flash, open_journal_disk, refused,
    tail_note, wanted,
};
use super::state::Without;
use super::write_account::WriteAccount;
use super::{BLOCK, Volume, VolumeConfig, VolumeError};
use crate::attach::stores::side_of;
use crate::attach::{
    AttachError, Attached, Attachment, BackendSide, Record, RecordedJournal, attach, check_empty, log_loss,
    use_without_cache,
};
use crate::disk::identity::{Identity, IdentityError, identity};
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, Operation};
use crate::driver::Driver;
use crate::flash::{Progress, cache_tag};
use crate::journal::{self, JournalOwner};
use crate::time;

/// The parts that a volume starts with.
pub(super) struct Parts {
    pub engine: Box<dyn Driver>,
    /// The flash; an empty disk for a volume without one.
    pub flash: Arc<dyn Disk>,
    /// The journal; an empty disk for a volume without one.
    pub journal: Arc<dyn Disk>,
    /// Paths of the missing disks that lack blocks of the journal's last group.
    pub journal_waits_for: Vec<String>,
    pub attachment: Option<Attachment>,
    pub account: Option<WriteAccount>,
    pub storage: Storage,
    /// The reason why it has no flash, if it has none.
    pub without: Option<Without>,
}

/// The backend of a volume.
pub struct Storage {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Its identity.
    pub identity: Identity,
    /// The place of its record of the cache.
    pub side: Box<dyn BackendSide>,
    /// Remarks for the operator.
    pub notes: Vec<String>,
}

/// The reason why a volume opens without a flash.
enum Unused {
    /// It is not configured.
    NotConfigured,
    /// An operator has detached the cache.
    Detached,
    /// Reads or writes fail.
    Dead(Box<VolumeError>),
}

/// The parts of the engine of a volume.
pub struct Opening<'a> {
    /// The configuration.
    pub config: &'a VolumeConfig,
    /// The flash.
    pub flash: &'a dyn Disk,
    /// The superblock of this start.
    pub attachment: &'a Attachment,
    /// The journal, if write-back uses one.
    pub journal: Option<Journal>,
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// Receives the findings.
    pub opened: &'a mut Opened,
}

/// A cache recovered from its flash.
struct WithFlash {
    engine: Box<dyn Driver>,
    flash: Arc<dyn Disk>,
    journal: Arc<dyn Disk>,
    journal_waits_for: Vec<String>,
    attachment: Attachment,
    opened: Opened,
}

/// The findings while a volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// True if the volume has no flash.
    pub without_flash: bool,
    /// True if the cache is detached, so the configured flash is not used.
    pub detached: bool,
    /// True if the flash was formatted.
    pub formatted: bool,
    /// Recovered blocks.
    pub cached_blocks: u64,
    /// Dirty blocks among them.
    pub dirty_blocks: u64,
    /// Blocks whose only copy is lost.
    pub lost_blocks: u64,
    /// True if the last run did not shut down cleanly.
    pub crashed: bool,
    /// Duration of the recovery.
    pub recovery: Duration,
    /// Remarks about devices.
    pub notes: Vec<String>,
}

impl Volume {
    /// Opens a volume: locks its devices, formats a blank flash, and recovers the contents of a flash. Reports to
    /// `progress`.
    pub fn open(config: VolumeConfig, progress: Progress<'_>) -> Result<(Arc<Volume>, Opened), VolumeError> {
        let backend = open_backend(&config)?;
        let volume = || config.whose();
        let identity = identity(&backend, config.backend_id.as_deref()).map_err(|error| match error {
            IdentityError::Io(error) => VolumeError::Backend { volume: volume(), error },
            error => VolumeError::Unidentified { volume: volume(), error },
        })?;
        let side = side_of(backend.clone(), identity.id, &config.state_directory)
            .map_err(|error| VolumeError::Backend { volume: volume(), error })?;
        check_backend(&config, &*side)?;
        let notes = backend.notes().iter().cloned().chain(tail_note(&config, backend.size())).collect();
        Volume::open_on(config, Storage { disk: backend, identity, side, notes }, progress)
    }

    /// Like [`open`](Self::open), on an open backend; without a configured flash, the volume has none. If the flash is
    /// configured but fails, the volume opens in state `without-flash`. That needs a flash without dirty blocks, or an
    /// operator who accepts their loss. If an operator has detached the cache, the volume opens in state `detached` and
    /// does not access the flash.
    pub fn open_on(
        config: VolumeConfig,
        storage: Storage,
        progress: Progress<'_>,
    ) -> Result<(Arc<Volume>, Opened), VolumeError> {
        // An interrupted start changes the records on both sides, so the earlier state must be read first.
        let known = check_empty(&*storage.side, config.discard_cache);
        if config.flash.as_os_str().is_empty() {
            let known = known.map_err(|error| refused(&config, &storage.identity, error))?;
            return Volume::open_without_flash(config, storage, known, Unused::NotConfigured);
        }
        if matches!(&known, Ok(Some(record)) if record.detached) {
            return Volume::open_without_flash(config, storage, None, Unused::Detached);
        }
        let dead = match Volume::open_with_flash(&config, &storage, progress) {
            Ok(WithFlash { engine, flash, journal, journal_waits_for, attachment, mut opened }) => {
                opened.notes.splice(..0, storage.notes.iter().cloned());
                let account = Some(open_account(&config, &attachment, &mut opened.notes));
                let attachment = Some(attachment);
                let without = None;
                let parts = Parts { engine, flash, journal, journal_waits_for, attachment, account, storage, without };
                return Ok((Volume::start(config, parts)?, opened));
            }
            Err(VolumeError::Detached { .. }) => {
                return Volume::open_without_flash(config, storage, None, Unused::Detached);
            }
            Err(error) if error.is_of_dead_flash(config.discard_cache) => Box::new(error),
            Err(error) => return Err(error),
        };
        match known {
            Ok(known) => Volume::open_without_flash(config, storage, known, Unused::Dead(dead)),
            Err(AttachError::Refused(_)) => Err(VolumeError::DeadFlash { volume: config.whose(), error: dead }),
            Err(error) => Err(refused(&config, &storage.identity, error)),
        }
    }

    fn open_with_flash(
        config: &VolumeConfig,
        storage: &Storage,
        progress: Progress<'_>,
    ) -> Result<WithFlash, VolumeError> {
        let refuse = |error| refused(config, &storage.identity, error);
        let may_make = || check_empty(&*storage.side, config.discard_cache).map(drop).map_err(refuse);
        let flash = open_flash(config, may_make)?;
        let size_bytes = size_of(config, storage);
        let started = time::now();
        let wanted = wanted(config, &*flash, storage.identity.id, size_bytes);
        let unfit = |error| VolumeError::Unfit { volume: config.whose(), error };
        wanted.layout.check_flash(&*flash, wanted.geometry).map_err(unfit)?;
        let journal = open_journal_disk(config, &*storage.side)?;
        let Attached { mut attachment, held, formatted, crashed, notes } =
            attach(&*flash, &*storage.side, &wanted, progress).map_err(refuse)?;
        let mut opened = Opened { notes: flash.notes().to_owned(), ..Opened::default() };
        opened.notes.extend(notes.into_iter().map(|note| format!("{} {}: {note}", config.whose().kind(), config.name)));
        (opened.formatted, opened.crashed, opened.recovery) = (formatted, crashed, time::elapsed(started));
        // A flash that stays may have blocks of the last group, so it needs the backend's own journal.
        let gives_up = config.discard_cache && formatted;
        let OpenJournal { disk, journal, waits_for } =
            open_journal(config, storage, journal, gives_up, &mut opened.notes)?;
        let journal = journal.filter(|_| config.cache.order() == WriteBackOrder::Journal);
        let (journal, named) = journal.map_or_else(Default::default, |(journal, named)| (Some(journal), named));
        let journal = journal.map(|journal| journal.of_cache(cache_tag(attachment.superblock())));
        if let (Some(before), None) = (attachment.journal().id, named.id) {
            opened.notes.push(format!("{} {}: journal {before} is no longer used", config.whose().kind(), config.name));
        }
        attachment.name_journal(&*storage.side, named).map_err(|error| refuse(AttachError::Side(error)))?;
        let mut opening =
            Opening { config, flash: &*flash, attachment: &attachment, journal, size_bytes, opened: &mut opened };
        let engine = held.open(&mut opening)?;
        Ok(WithFlash { engine, flash, journal: disk, journal_waits_for: waits_for, attachment, opened })
    }

    /// `known` is the argument of [`use_without_cache`]; `None` if a detach has called that already.
    fn open_without_flash(
        config: VolumeConfig,
        storage: Storage,
        known: Option<Record>,
        unused: Unused,
    ) -> Result<(Arc<Volume>, Opened), VolumeError> {
        let given_up =
            if config.discard_cache { "data that only it had is given up" } else { "the backend has all of its data" };
        let detached = matches!(unused, Unused::Detached);
        let mut opened = Opened { notes: storage.notes.clone(), without_flash: true, detached, ..Opened::default() };
        let journal = open_journal_disk(&config, &*storage.side)?;
        let journal = open_journal(&config, &storage, journal, config.discard_cache, &mut opened.notes)?;
        let named = journal.journal.map(|(_, named)| named).unwrap_or_default();
        let known = known.map(|record| Record { journal: named, ..record });
        if known.as_ref().is_some_and(|record| record.may_be_dirty) {
            log_loss(&without_flash(&config, storage.identity.id));
        }
        if !detached {
            use_without_cache(&*storage.side, known).map_err(|error| refused(&config, &storage.identity, error))?;
        }
        let (geometry, size_bytes) = (geometry_without_flash(&config), size_of(&config, &storage));
        let engine = engine_without_flash(&config, geometry, size_bytes, !matches!(unused, Unused::NotConfigured));
        let without = Some(match unused {
            Unused::NotConfigured => Without::NotConfigured,
            Unused::Detached => Without::DETACHED,
            Unused::Dead(_) => Without::Failed,
        });
        let flash = Arc::new(MemoryDisk::new(0));
        let engine = Box::new(engine);
        let (journal, journal_waits_for) = (journal.disk, journal.waits_for);
        let (attachment, account) = (None, None);
        let parts = Parts { engine, flash, journal, journal_waits_for, attachment, account, storage, without };
        let volume = Volume::start(config, parts)?;
        if let Unused::Dead(error) = unused {
            let reason = std::io::Error::other(error.to_string());
            volume.lock().health[FLASH].ended(Operation::Read, &Err(reason), time::now());
            opened.notes.push(format!("{error}; {given_up}, and the volume starts without it"));
        }
        Ok((volume, opened))
    }
}

/// The journal of a volume.
struct OpenJournal {
    /// An empty disk without one.
    disk: Arc<dyn Disk>,
    /// The journal, and what the backend's record has to name.
    journal: Option<(Journal, RecordedJournal)>,
    /// Paths of the missing disks that lack blocks of its last group.
    waits_for: Vec<String>,
}

/// Opens the journal on a disk, if there is one. A group that it holds is written into place. If the flash is given up,
/// a blank journal is accepted. A journal with a group that waits for a part of the backend has no room for others.
fn open_journal(
    config: &VolumeConfig,
    storage: &Storage,
    disk: Option<Arc<dyn Disk>>,
    gives_up: bool,
    notes: &mut Vec<String>,
) -> Result<OpenJournal, VolumeError> {
    let Some(disk) = disk else {
        return Ok(OpenJournal { disk: Arc::new(MemoryDisk::new(0)), journal: None, waits_for: Vec::new() });
    };
    let path = disk.description();
    let recorded = journal_of_record(config, &*storage.side)?;
    let owner = JournalOwner { identity: storage.identity.id, recorded, parts: storage.side.parts(), gives_up };
    let opened = journal::open(&*disk, &*storage.disk, &owner).map_err(|error| VolumeError::Journal {
        volume: config.whose(),
        path: path.clone(),
        way_out: error.way_out(gives_up, !owner.recorded.waits_for.is_empty()),
        error,
    })?;
    let mut note =
        |text: String| notes.push(format!("{} {}: journal {path}: {text}", config.whose().kind(), config.name));
    if let Some(lost) = opened.given_up {
        note(format!("it is blank, so journal {lost} is lost; the backend may be a mixture of old and new blocks"));
    }
    if let Some(blocks) = opened.replayed_blocks {
        note(format!("{blocks} blocks of its last group were written to the backend"));
    }
    let mut journal = opened.journal;
    journal.pages = journal.pages.min(config.journal_size_bytes.unwrap_or(journal::BYTES_MAX) / BLOCK);
    let recorded = opened.recorded();
    let waits_for: Vec<String> = opened.waits_for.into_iter().map(|part| part.path).collect();
    if !waits_for.is_empty() {
        journal.pages = 0;
        note(format!(
            "blocks of its last group wait for {}, which is missing. Keep the journal: the next start with that disk \
             needs it. Until then, it takes no other group",
            waits_for.join(" and ")
        ));
    }
    Ok(OpenJournal { disk, journal: Some((journal, recorded)), waits_for })
}

pub(super) fn size_of(config: &VolumeConfig, storage: &Storage) -> u64 {
    config.size_bytes.unwrap_or(storage.disk.size() / BLOCK * BLOCK)
}
