//! How transfers end: as they should, or as faults and planted bugs have it.

use flashwise_core::format::{BLOCK_BYTES, Geometry, Header, MetadataPage};
use flashwise_engine::engine::FLASH;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::driver::Performer;
use flashwise_storage::export::Error;
use flashwise_testing::fake_disk::{CORRUPTIONS, Corruption, FakeDisk};
use flashwise_testing::random::Random;

use super::{Cached, InFlight, World};
use crate::crash::planted::metadata;

/// Kinds of transfers that can fail apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Sync,
}

pub const CLASSES: [Class; 3] = [Class::Read, Class::Write, Class::Sync];

pub fn class(operation: DiskOperation) -> Class {
    match operation {
        DiskOperation::Read => Class::Read,
        DiskOperation::Sync => Class::Sync,
        _ => Class::Write,
    }
}

/// The effect of a fault on a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails; a write may have happened.
    Fail,
    /// It does not end while the faults last.
    Stall,
    /// A page that is read is not what was written; `lasting`: never again.
    Corrupt { how: Corruption, lasting: bool },
}

/// Some transfers of one kind on one disk, counted from 0, go wrong: one in `odds`.
#[derive(Clone, Debug)]
pub struct Fault {
    pub disk: usize,
    pub class: Class,
    pub transfers: std::ops::Range<u64>,
    pub odds: u64,
    pub effect: Effect,
}

/// A random fault of a read of the flash.
pub fn random_corruption(random: &mut Random) -> Effect {
    Effect::Corrupt { how: random.pick(&CORRUPTIONS), lasting: random.chance(2) }
}

impl<S: Cached> World<S> {
    /// The effect of the faults on the transfer that is about to take place.
    fn effect(&mut self, transfer: &Transfer) -> Option<Effect> {
        let class = class(transfer.operation);
        let number = self.seen[transfer.disk][class as usize];
        self.seen[transfer.disk][class as usize] += 1;
        let random = &mut self.random;
        let faults = self.setup.faults().iter();
        faults
            .filter(|fault| (fault.disk, fault.class) == (transfer.disk, class) && fault.transfers.contains(&number))
            .find(|fault| random.chance(fault.odds))
            .map(|fault| fault.effect)
    }

    pub fn complete_one(&mut self) {
        let mut at = self.random.below(self.in_flight.len() as u64) as usize;
        // A backend is slower than a flash, so epochs stay unfinished for a while.
        let may_end = |it: &InFlight| !it.stalled && it.transfer.disk == FLASH;
        let flash_first = self.setup.in_order() && !self.random.chance(4) && self.in_flight.iter().any(may_end);
        while self.in_flight[at].stalled || flash_first && !may_end(&self.in_flight[at]) {
            at = (at + 1) % self.in_flight.len();
        }
        let mut taken = self.in_flight.swap_remove(at);
        let effect = self.effect(&taken.transfer);
        if effect == Some(Effect::Stall) {
            taken.stalled = true;
            self.in_flight.push(taken);
            return;
        }
        self.operations += 1;
        let InFlight { transfer, writes, .. } = taken;
        let mut ok = effect != Some(Effect::Fail);
        if ok || (class(transfer.operation) == Class::Write && self.random.chance(2)) {
            ok &= self.perform(&transfer, writes, effect).is_ok();
        }
        if !self.late.is_empty() && self.random.chance(4) {
            let (disk, writes) = self.late.remove(0);
            self.disks[disk].sync_until(writes);
        }
        self.engine.completed(transfer.tag, if ok { Ok(()) } else { Err(Error::Io) });
        self.collect();
    }

    fn perform(&mut self, transfer: &Transfer, writes: u64, effect: Option<Effect>) -> std::io::Result<()> {
        let disk = &self.disks[transfer.disk];
        let first = (transfer.offset / BLOCK_BYTES as u64) as usize;
        match (transfer.operation, effect) {
            (DiskOperation::Sync, _) => {
                if !S::skips_flush(self, transfer.disk) {
                    self.disks[transfer.disk].sync_until(writes);
                }
            }
            (DiskOperation::Read, Some(Effect::Corrupt { how, lasting })) => {
                let page = first + self.random.below(transfer.length / BLOCK_BYTES as u64) as usize;
                let bytes = disk.corrupted(page, how, &mut self.random);
                if lasting && is_vouched_for(disk, self.setup.geometry(), page) {
                    disk.set_page(page, bytes);
                    disk.perform(transfer)?;
                } else {
                    let right = disk.show_page(page, bytes);
                    disk.perform(transfer)?;
                    disk.show_page(page, right);
                }
            }
            _ => disk.perform(transfer)?,
        }
        if (transfer.disk, transfer.operation) == (FLASH, DiskOperation::Write) {
            S::written(self, first);
        }
        Ok(())
    }
}

/// True if a later page shows that this page was durable. Only the last segment has no such evidence: damage there
/// looks like an interrupted write.
fn is_vouched_for(flash: &FakeDisk, geometry: Geometry, page: usize) -> bool {
    let all = metadata(flash, geometry.pages() as usize);
    let newest = all.first().map_or(0, |(.., metadata)| metadata.header.sequence);
    let crc = crc32c::crc32c(&flash.stable_page(page));
    let holds = |metadata: &MetadataPage| {
        metadata
            .records
            .iter()
            .any(|record| record.slot as usize == page && record.crc == crc && record.kind.has_data())
    };
    let Some((.., owner)) = all.iter().find(|(.., metadata)| holds(metadata)) else { return false };
    let reaches = |header: &Header| {
        header.sequence == newest && header.durable_end as usize > page % geometry.unit_pages as usize
    };
    owner.header.sequence < newest || all.iter().any(|(.., metadata)| reaches(&metadata.header))
}
