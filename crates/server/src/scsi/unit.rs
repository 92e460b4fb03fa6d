//! A logical unit: an export and the shared state of its initiators.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use flashwise_storage::export::{Claimable, Export};
use parking_lot::{Mutex, MutexGuard};

use super::BLOCK_BYTES;
use super::nexus::{InitiatorPort, Nexus};
use super::reservations::Reservations;
use super::status::code;
use crate::state::kept;

/// A logical unit.
pub struct Unit {
    name: String,
    export: Arc<Claimable>,
    reservations: Mutex<Reservations>,
    /// True if there are reservations; read without the lock.
    reserved: AtomicBool,
    nexuses: Mutex<Vec<Weak<Nexus>>>,
    /// The initiators of sessions since the server started.
    seen: Mutex<Vec<InitiatorPort>>,
    /// The file of persistent reservations.
    reservations_file: Option<PathBuf>,
    /// The bits D_SENSE and SWP of the control mode page.
    sense_in_descriptors: AtomicBool,
    write_protected: AtomicBool,
    /// True if START STOP UNIT has stopped it.
    stopped: AtomicBool,
}

impl Unit {
    /// Opens the unit of an export; `reservations_file` holds its persistent reservations.
    pub fn open(name: &str, export: Arc<Claimable>, reservations_file: Option<PathBuf>) -> io::Result<Unit> {
        let reservations = match &reservations_file {
            Some(path) => kept::read(path, "reservations")?.unwrap_or_default(),
            None => Reservations::default(),
        };
        Ok(Unit {
            name: name.to_owned(),
            export,
            reserved: AtomicBool::new(!reservations.is_empty()),
            reservations: Mutex::new(reservations),
            nexuses: Mutex::default(),
            seen: Mutex::default(),
            reservations_file,
            sense_in_descriptors: AtomicBool::new(false),
            write_protected: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its export.
    pub fn export(&self) -> &Arc<Claimable> {
        &self.export
    }

    /// Returns its size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.export.size() / BLOCK_BYTES
    }

    /// True if it is read-only for all initiators.
    pub fn read_only(&self) -> bool {
        self.export.read_only() || self.write_protected.load(Ordering::Relaxed)
    }

    /// The bit SWP of the control mode page.
    pub fn write_protected(&self) -> &AtomicBool {
        &self.write_protected
    }

    /// The bit D_SENSE of the control mode page.
    pub fn sense_in_descriptors(&self) -> &AtomicBool {
        &self.sense_in_descriptors
    }

    /// True if it was stopped.
    pub fn stopped(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Starts a session. An initiator's first session since the server started gets a unit attention, because volatile
    /// state was lost.
    pub fn enter(&self, port: InitiatorPort, read_only: bool) -> Arc<Nexus> {
        let nexus = Arc::new(Nexus::new(port, read_only, self.export.size()));
        let mut seen = self.seen.lock();
        if !seen.contains(nexus.port()) {
            seen.push(nexus.port().clone());
            nexus.attend(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET);
        }
        let mut nexuses = self.nexuses.lock();
        nexuses.retain(|other| other.strong_count() > 0);
        nexuses.push(Arc::downgrade(&nexus));
        nexus
    }

    /// Ends a session and releases its RESERVE.
    pub fn leave(&self, nexus: &Nexus) {
        let mut reservations = self.lock_reservations();
        reservations.nexus_lost(nexus.port());
        self.note_reservations(&reservations);
    }

    /// Adds a unit attention to the sessions for which `whom` is true.
    pub fn attend(&self, code: u16, whom: impl Fn(&Nexus) -> bool) {
        let nexuses = self.nexuses.lock();
        nexuses.iter().filter_map(Weak::upgrade).filter(|nexus| whom(nexus)).for_each(|nexus| nexus.attend(code));
    }

    /// True if there are reservations or registrations.
    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Locks and returns its reservations.
    pub fn lock_reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock()
    }

    /// Records that reservations have changed.
    pub fn note_reservations(&self, reservations: &Reservations) {
        self.reserved.store(!reservations.is_empty(), Ordering::Release);
    }

    /// True if reservations can survive restarts.
    pub fn keeps_reservations(&self) -> bool {
        self.reservations_file.is_some()
    }

    /// Saves reservations, or deletes the file, depending on their persistence. Reservations of a deleted export are
    /// not saved, because the file would belong to a new export of its name.
    pub fn keep_reservations(&self, reservations: &Reservations) -> io::Result<()> {
        let Some(path) = &self.reservations_file else { return Ok(()) };
        let kept = self.export.while_offered(|| match reservations.lasts() {
            true => kept::write(path, reservations),
            false => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        });
        kept.unwrap_or_else(|| Err(io::Error::other(format!("{} was deleted", self.name))))
    }

    /// Aborts the commands of the sessions for which `whom` is true.
    pub fn abort(&self, whom: impl Fn(&Nexus) -> bool) {
        let nexuses = self.nexuses.lock();
        nexuses.iter().filter_map(Weak::upgrade).filter(|nexus| whom(nexus)).for_each(|nexus| nexus.abort());
    }

    /// Resets it: aborts commands, releases RESERVE, and restores the initial mode pages.
    pub fn reset(&self) {
        self.abort(|_| true);
        let mut reservations = self.lock_reservations();
        reservations.release_all_simple();
        self.note_reservations(&reservations);
        drop(reservations);
        self.sense_in_descriptors.store(false, Ordering::Relaxed);
        self.write_protected.store(false, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        self.attend(code::BUS_DEVICE_RESET, |_| true);
    }
}
