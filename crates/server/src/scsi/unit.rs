//! A logical unit: an export, and what its initiators share of it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use flashwise_engine::export::{Claimable, Export};
use parking_lot::{Mutex, MutexGuard};

use super::BLOCK_BYTES;
use super::nexus::{InitiatorPort, Nexus};
use super::reservations::Reservations;
use super::status::code;
use crate::kept;

/// A logical unit.
pub struct Unit {
    name: String,
    export: Arc<Claimable>,
    reservations: Mutex<Reservations>,
    /// Whether there are any, without the lock.
    reserved: AtomicBool,
    nexuses: Mutex<Vec<Weak<Nexus>>>,
    /// Who has been here since the server started.
    seen: Mutex<Vec<InitiatorPort>>,
    /// Where reservations are kept over restarts.
    reservations_file: Option<PathBuf>,
    /// The control mode page's bits D_SENSE and SWP.
    sense_in_descriptors: AtomicBool,
    write_protected: AtomicBool,
    /// Whether START STOP UNIT has stopped it.
    stopped: AtomicBool,
}

impl Unit {
    /// The unit of an export; `reservations_file` is where reservations are kept that last over restarts.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it stands for.
    pub fn export(&self) -> &Arc<Claimable> {
        &self.export
    }

    /// Its size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.export.size() / BLOCK_BYTES
    }

    /// Whether nobody can write it.
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

    /// Whether it was stopped.
    pub fn stopped(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Takes note of a session. Who was not here since the server started is told that this unit has lost what it does not keep.
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

    /// Ends a session: what it reserved by RESERVE is released.
    pub fn leave(&self, nexus: &Nexus) {
        let mut reservations = self.lock_reservations();
        reservations.nexus_lost(nexus.port());
        self.note_reservations(&reservations);
    }

    /// Tells sessions that something has happened: those that `whom` chooses.
    pub fn attend(&self, code: u16, whom: impl Fn(&Nexus) -> bool) {
        let nexuses = self.nexuses.lock();
        nexuses.iter().filter_map(Weak::upgrade).filter(|nexus| whom(nexus)).for_each(|nexus| nexus.attend(code));
    }

    /// Whether there are reservations or registrations.
    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Its reservations.
    pub fn lock_reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock()
    }

    /// Notes that reservations have changed.
    pub fn note_reservations(&self, reservations: &Reservations) {
        self.reserved.store(!reservations.is_empty(), Ordering::Release);
    }

    /// Whether it can keep reservations over restarts.
    pub fn keeps_reservations(&self) -> bool {
        self.reservations_file.is_some()
    }

    /// Keeps reservations over restarts, or no longer, as they say. Those of an export that was deleted are not: their file would be that of
    /// another export of its name.
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

    /// Aborts the commands of the sessions that `whom` chooses.
    pub fn abort(&self, whom: impl Fn(&Nexus) -> bool) {
        let nexuses = self.nexuses.lock();
        nexuses.iter().filter_map(Weak::upgrade).filter(|nexus| whom(nexus)).for_each(|nexus| nexus.abort());
    }

    /// Resets it: commands are aborted, RESERVE is released, and the mode pages are as at the start.
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
