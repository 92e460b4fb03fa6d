//! Checks of a world while devices fail, and when all work.

use std::time::Duration;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::attach::BackendSide;
use flashwise_storage::disk::Disk;
use flashwise_storage::export::Operation;
use flashwise_storage::journal::{JournalOwner, open};
use flashwise_storage::time;
use flashwise_testing::fake_disk::FakeDisk;
use flashwise_testing::virtual_time::pass;

use super::{BLOCKS_MAX, BOUND, JOURNAL_BYTES, Kind, Served, World};
use crate::crash::clients::Outcome;
use crate::crash::model::{SECTORS, encode};
use crate::failing::disk::Failing;

/// Copies the first blocks of a disk, as they are now.
fn copy(disk: &Failing, to: &FakeDisk) {
    for page in 0..to.size() as usize / BLOCK_BYTES {
        to.set_page(page, disk.content(page * BLOCK_BYTES).try_into().expect("a block"));
    }
}

impl World {
    /// Compares the bare backend with the states that the volume could have after a power failure. Not if the status
    /// says that the order is broken.
    pub(super) fn check_bare_backend(&mut self) -> Outcome<()> {
        if !self.is_ordered || self.kind != Kind::Log || !self.random_of_checks.chance(4) {
            return Ok(());
        }
        if self.served().volume().status().backend_state.is_some_and(|state| !state.is_consistent) {
            return Ok(());
        }
        let (backend, model) = (&self.backends[0], self.guests[0].clients.model.lock().unwrap());
        if self.writes_early && self.random_of_checks.chance(20) {
            let block = self.random_of_checks.below(self.guests[0].blocks as u64) as usize;
            backend.set_content(block * BLOCK_BYTES, &encode(&model.newest(block)));
        }
        let bare = FakeDisk::new(BLOCKS_MAX, BLOCK_BYTES);
        copy(backend, &bare);
        let expected = self.side.read().expect("memory can be read").and_then(|record| record.journal.id);
        if let (Some(journal), Some(_)) = (&self.journal, expected) {
            let left = FakeDisk::new(JOURNAL_BYTES / BLOCK_BYTES, BLOCK_BYTES);
            copy(journal, &left);
            open(&left, &bare, &JournalOwner::of_volume([9; 16], expected))
                .map_err(|error| format!("the journal: {error}"))?;
        }
        model.check_backend(|block| bare.page(block).to_vec())
    }

    /// No device fails: flushes succeed after a while, every block can be read and is right, and the status has no
    /// fault.
    pub(super) fn verify(&mut self) -> Outcome<()> {
        self.leave_failed_flash()?;
        let started = time::now();
        for at in 0..self.guests.len() {
            let answered = self.guests[at].clients.model.lock().unwrap().answered();
            while let Err(error) = self.ask(at, Operation::Flush, 0, 0) {
                if time::elapsed(started) > BOUND {
                    let status = self.served().volume().status();
                    let (state, reason, lost) = (status.state, status.state_reason, status.lost_blocks);
                    return Err(format!("no flush succeeds: {error}; {state:?}, {reason:?}, lost {lost:?}"));
                }
                self.leave_failed_flash()?;
                pass(Duration::from_millis(20));
            }
            self.guests[at].clients.model.lock().unwrap().flushed(&answered);
            let found = self.read_all(at)?;
            let guest = &self.guests[at];
            let mut model = guest.clients.model.lock().unwrap();
            for (block, content) in found.iter().enumerate() {
                let earliest = model.earliest(block);
                model.read(block, earliest, content, 0..SECTORS).map_err(|error| format!("{}: {error}", guest.name))?;
            }
        }
        self.verify_status()?;
        self.check()
    }

    /// Checks the status when all devices work. It shows no fault except a removed flash, no lost block, and no space
    /// without an owner.
    fn verify_status(&self) -> Outcome<()> {
        let started = time::now();
        loop {
            let status = self.served().volume().status();
            if !status.lost_blocks.is_empty() {
                if time::elapsed(started) > BOUND {
                    return Err(format!("blocks {:?} are listed as lost", status.lost_blocks));
                }
                // Blocks that could not be read are read again every second.
                pass(Duration::from_millis(20));
                continue;
            }
            let (state, reason) = (status.state, status.state_reason.unwrap_or_default());
            // A flash that was given up says why, and buckets that failed are not used again.
            let says_why = reason.starts_with("flash: ") && !reason.contains("memory") && !reason.contains("backend: ");
            let may_say_why = state.is_without_flash() || self.kind == Kind::Buckets;
            let was_refused = reason.starts_with("the flash was not detached");
            if reason.is_empty() || was_refused || may_say_why && says_why {
                break;
            }
            if time::elapsed(started) > BOUND {
                return Err(format!("the state is {state:?}, {reason}"));
            }
            pass(Duration::from_millis(20));
        }
        let Served::Pool(pool) = self.served() else { return Ok(()) };
        if self.is_ordered {
            // Released chunks are in use until their old data is written back.
            return Ok(());
        }
        loop {
            // Chunks that could not be zeroed are tried again every second.
            let status = pool.status();
            let owned: u64 = status.logical_disks.iter().map(|disk| disk.allocated_bytes).sum();
            match (owned == status.used_bytes, time::elapsed(started) > BOUND) {
                (true, _) => return Ok(()),
                (false, true) => return Err(format!("{owned} bytes have an owner, of {} used", status.used_bytes)),
                (false, false) => pass(Duration::from_millis(20)),
            }
        }
    }
}
