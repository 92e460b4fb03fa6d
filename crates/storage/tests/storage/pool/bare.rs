//! The disks of a pool without its flash, and their contents after a start has completed them from the journal.

use std::path::Path;
use std::sync::Arc;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::journal::Head;
use flashwise_engine::engine::Bug;
use flashwise_storage::attach::RecordedJournal;
use flashwise_storage::disk::Disk;
use flashwise_storage::journal::{self, JournalOwner};
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, Pool, PoolConfig};
use flashwise_storage::volume::{Storage, VolumeConfig};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;

use super::in_order::{BLOCKS_MAX, CHUNK_BLOCKS, DISKS, NAMES, Outcome, content};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Planted {
    InPool(Bug),
    /// A start does not write the journal's last group into place.
    NotReplayed,
    /// A start writes a group into place again that has its mark.
    ReplayedAgain,
}

fn bare_disks(disks: &[Arc<FakeDisk>]) -> Vec<Arc<dyn Disk>> {
    disks.iter().take(DISKS).map(|disk| disk.clone() as Arc<dyn Disk>).collect()
}

/// Writes the last group of the journal into place, if the pool has one, as a start does. Some of them are interrupted.
pub fn complete(copies: &[Arc<FakeDisk>], planted: Option<Planted>, interrupts: Option<&mut Random>) -> Outcome<()> {
    let Some(log) = copies.get(DISKS).filter(|_| planted != Some(Planted::NotReplayed)) else { return Ok(()) };
    let failed = |error: &dyn std::fmt::Display| format!("the journal without the flash: {error}");
    let cache = VolumeConfig::of("v", Path::new(""), Path::new(""));
    let config = PoolConfig { disks: Vec::new(), degraded: false, cache };
    let Storage { disk, identity, side, .. } =
        Pool::storage_on(&config, bare_disks(copies)).map_err(|error| failed(&error))?;
    let record = side.read().map_err(|error| failed(&error))?;
    let owner = JournalOwner {
        identity: identity.id,
        recorded: RecordedJournal::of(record.as_ref()),
        parts: side.parts(),
        gives_up: false,
    };
    if owner.recorded.id.is_none() {
        return Ok(());
    }
    let marks = [log.page(0), log.page(1)];
    if planted == Some(Planted::ReplayedAgain)
        && marks.iter().all(|mark| *mark != [0; BLOCK_BYTES])
        && let Some(last) = Head::last(&marks)
    {
        log.set_page(last.mark_page() as usize, [0; BLOCK_BYTES]);
    }
    let Some(random) = interrupts else {
        return journal::open(&**log, &*disk, &owner).map(drop).map_err(|error| failed(&error));
    };
    copies.iter().for_each(|disk| disk.set_lives(1 + random.below(20)));
    let _ = journal::open(&**log, &*disk, &owner);
    for disk in copies {
        disk.set_lives(u64::MAX);
        disk.crash(random.pick(&[Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Writes]), random);
    }
    Ok(())
}

/// Returns the blocks of both logical disks, as the disks of a pool without its flash have them.
pub fn bare(copies: &[Arc<FakeDisk>]) -> Outcome<Vec<u64>> {
    let metadata =
        Metadata::open("v", bare_disks(copies), false, &mut Vec::new()).map_err(|error| error.to_string())?;
    let map = &metadata.map;
    let mut contents = vec![0; NAMES.len() * BLOCKS_MAX];
    for logical in map.logicals.values() {
        let Some(number) = NAMES.iter().position(|name| *name == logical.shape().name) else { continue };
        for (at, entry) in logical.entries().there() {
            let Some(chunk) = entry.written() else { continue };
            let id = map.disk_of(chunk).ok_or("a chunk is nowhere")?;
            let disk = metadata.present.iter().find(|present| present.id == id).ok_or("a disk is missing")?;
            let mut bytes = vec![0; CHUNK_BYTES as usize];
            let offset = u64::from(chunk - map.disks[&id].base) * CHUNK_BYTES;
            disk.disk.read_at(&mut bytes, offset).map_err(|error| error.to_string())?;
            let first = number * BLOCKS_MAX + at as usize * CHUNK_BLOCKS;
            for (block, bytes) in bytes.chunks(BLOCK_BYTES).enumerate() {
                contents[first + block] = content(bytes);
            }
        }
    }
    Ok(contents)
}
