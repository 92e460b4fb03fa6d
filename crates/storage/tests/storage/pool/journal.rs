//! A pool with a journal: a start writes its last group to the disks that are there.

use std::path::PathBuf;
use std::sync::Arc;

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::export::Operation;
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, NewLogical, Pool, PoolConfig};
use flashwise_storage::volume::Opened;

use super::live::{Tank, ask, flush, new, read, write};
use crate::journal::put_group;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;
const BLOCK: u64 = BLOCK_BYTES as u64;
const CHUNK_BLOCKS: u32 = (CHUNK / BLOCK) as u32;

pub fn open(config: &PoolConfig) -> Result<(Pool, String), String> {
    let (pool, Opened { notes, .. }) = Pool::open(config.clone(), &|_, _| ()).map_err(|error| error.to_string())?;
    Ok((pool, notes.join(" ")))
}

/// A pool whose journal has a group with a block of two chunks, which are on different disks. The logical disk has
/// other blocks of them.
pub struct Waiting {
    pub tank: Tank,
    /// The configuration without the disk of the second chunk, and with it as `tank` has it.
    pub degraded: PoolConfig,
    /// The offset of the group's block in both chunks.
    pub at: [u64; 2],
    /// Path and number of the second chunk's disk.
    pub away: (PathBuf, u32),
}

impl Waiting {
    pub fn new() -> Waiting {
        let mut tank = Tank::new(true);
        let journal = tank.config.disks[0].with_file_name("tank.journal");
        tank.config.cache.journal = Some(journal.clone());
        (tank.config.cache.journal_size_bytes, tank.config.cache.direct_io) = (Some(64 * MIB), false);
        let order = Settings::of(&[("write-back-order", "journal")]).unwrap();
        tank.config.cache.cache.take_over(&order);
        let pool = tank.open();
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
        (0..2).for_each(|chunk| write(&disk, chunk * CHUNK, BLOCK, 1).unwrap());
        flush(&disk);
        pool.close().unwrap();
        drop((disk, pool));
        let disk = |path: &PathBuf| Arc::new(FileDisk::open(path, Options::default()).unwrap()) as Arc<dyn Disk>;
        let disks = tank.config.disks.iter().map(disk).collect();
        let metadata = Metadata::open("tank", disks, false, &mut Vec::new()).unwrap();
        let entries = metadata.map.named("a").unwrap().1.entries();
        let chunks: Vec<u32> = entries.there().map(|(_, entry)| entry.chunk().unwrap()).collect();
        let number = metadata.map.disk_of(chunks[1]).unwrap();
        let away = PathBuf::from(&metadata.map.disks[&number].path);
        drop(entries);
        drop(metadata);
        put_group(&journal, &[(chunks[0] * CHUNK_BLOCKS + 3, 5), (chunks[1] * CHUNK_BLOCKS + 3, 6)]);
        let mut degraded = PoolConfig { degraded: true, ..tank.config.clone() };
        degraded.disks.retain(|path| *path != away);
        assert_eq!(degraded.disks.len(), 2);
        Waiting { tank, degraded, at: [3 * BLOCK, CHUNK + 3 * BLOCK], away: (away, number) }
    }

    /// Gives up the flash.
    pub fn lose_flash(&mut self) {
        std::fs::remove_file(&self.tank.config.cache.flash).unwrap();
        for cache in [&mut self.tank.config.cache, &mut self.degraded.cache] {
            (cache.discard_cache, cache.flash, cache.flash_size_bytes) = (true, PathBuf::new(), None);
        }
    }

    pub fn waits(&self, notes: &str) -> bool {
        notes.contains(&format!("blocks of its last group wait for {}, which is missing", self.away.0.display()))
    }
}

/// Its blocks of the group are in the journal until then. Clients have written the others since.
#[test]
fn a_disk_that_returns_gets_its_blocks_of_the_group() {
    for keeps_flash in [true, false] {
        let mut waiting = Waiting::new();
        if !keeps_flash {
            waiting.lose_flash();
        }
        let [first, second] = waiting.at;
        for byte in [5, 7] {
            let (pool, notes) = open(&waiting.degraded).unwrap();
            assert!(waiting.waits(&notes), "{notes}");
            let reason = pool.volume().status().state_reason.unwrap();
            assert!(reason.contains(&format!("the journal has blocks for {}, ", waiting.away.0.display())), "{reason}");
            let disk = pool.logical("a").unwrap();
            assert_eq!(read(&disk, first, BLOCK)[0], byte, "{notes}");
            ask(&disk, Operation::Read, second, BLOCK, Vec::new()).unwrap_err();
            write(&disk, first, BLOCK, 7).unwrap();
            flush(&disk);
            pool.close().unwrap();
        }
        for replays in [true, false] {
            let (pool, notes) = open(&waiting.tank.config).unwrap();
            assert_eq!(notes.contains("1 blocks of its last group were written"), replays, "{notes}");
            assert!(!waiting.waits(&notes), "{notes}");
            assert_eq!(pool.volume().status().state_reason, None);
            let disk = pool.logical("a").unwrap();
            assert_eq!([first, second].map(|at| read(&disk, at, BLOCK)[0]), [7, 6]);
            pool.close().unwrap();
        }
    }
}

/// A disk that is added takes over the block numbers of the one that was given up, not its blocks of the group.
#[test]
fn a_disk_that_is_given_up_frees_the_journal_at_the_next_start() {
    for keeps_flash in [true, false] {
        let mut waiting = Waiting::new();
        if !keeps_flash {
            waiting.lose_flash();
        }
        let (pool, _) = open(&waiting.degraded).unwrap();
        let (path, number) = &waiting.away;
        pool.give_up_disk(*number, path.to_str().unwrap()).unwrap();
        let added = path.with_file_name("added.img");
        std::fs::File::create(&added).unwrap().set_len(8 * MIB).unwrap();
        pool.add_disk(&added, false).unwrap();
        let disk = pool.create_logical(&NewLogical { thick: true, ..new("b", 16 * MIB) }).unwrap();
        write(&disk, 0, 16 * MIB, 8).unwrap();
        flush(&disk);
        pool.close().unwrap();
        drop((disk, pool));
        waiting.degraded.disks.push(added);
        waiting.degraded.degraded = false;
        let (pool, notes) = open(&waiting.degraded).unwrap();
        assert!(!notes.contains("last group"), "{notes}");
        assert!(read(&pool.logical("b").unwrap(), 0, 16 * MIB) == vec![8; 16 * MIB as usize]);
        assert_eq!(read(&pool.logical("a").unwrap(), waiting.at[0], BLOCK)[0], 5);
        pool.close().unwrap();
    }
}

#[test]
fn a_pool_that_is_deleted_leaves_a_blank_journal() {
    let waiting = Waiting::new();
    let (pool, _) = open(&waiting.tank.config).unwrap();
    pool.delete_logical("a").unwrap();
    pool.end().unwrap();
    let journal = std::fs::read(waiting.tank.config.cache.journal.as_ref().unwrap()).unwrap();
    assert!(journal[..2 * BLOCK_BYTES].iter().all(|byte| *byte == 0));
}
