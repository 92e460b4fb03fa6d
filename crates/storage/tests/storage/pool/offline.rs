//! Commands without a server over a pool whose server was killed while its journal had a group without its mark.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::{BLOCK_BYTES, State};
use flashwise_storage::attach::{Pairing, Record, RecordedJournal};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::flash::{read_superblock, write_superblock};
use flashwise_storage::journal::JournalError;
use flashwise_storage::offline::check::check;
use flashwise_storage::offline::detach::{DetachError, Detached, Pair, detach};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::offline::salvage::{Outcome, SalvageOptions, salvage};
use flashwise_storage::offline::wipe;
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, NewLogical, Pool, PoolConfig};
use flashwise_storage::volume::Storage;

use super::given_up::Rejecting;
use super::journal::{Waiting, open};
use super::live::{Tank, flush, new, read, write};
use crate::journal::put_group;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;
const CHUNK_BLOCKS: u32 = (CHUNK_BYTES / BLOCK) as u32;

fn file(path: &Path) -> FileDisk {
    FileDisk::open(path, Options::default()).unwrap()
}

/// Returns the backend of a pool, with its record, and the pairing of its flash.
fn backend(config: &PoolConfig) -> (Storage, Pairing) {
    let storage = Pool::storage(config).unwrap();
    let pairing = Pairing { backend: storage.identity.id, is_identified: false, discards: false };
    (storage, pairing)
}

/// Runs a command on the pool.
fn with_pair<T>(config: &PoolConfig, journal: Option<&Path>, run: impl FnOnce(Pair<'_>) -> T) -> T {
    let (storage, pairing) = backend(config);
    let (flash, disk) = (file(&config.cache.flash), journal.map(file));
    let journal = disk.as_ref().map_or(GivenJournal::Nothing, |disk| GivenJournal::Disk(disk));
    run(Pair { flash: &flash, backend: &*storage.disk, journal, side: &*storage.side, pairing: &pairing })
}

fn detach_pool(config: &PoolConfig, journal: Option<&Path>) -> Result<Detached, DetachError> {
    with_pair(config, journal, |pair| detach(pair, &|_, _| (), &mut |_, _| ()))
}

fn salvage_pool(config: &PoolConfig, journal: Option<&Path>, discard_rest: bool) -> Result<Outcome, DetachError> {
    let options = SalvageOptions { discard_rest, ..SalvageOptions::default() };
    with_pair(config, journal, |pair| salvage(pair, &options, &mut |_| Ok(()), &|_, _| (), &mut |_, _| ()))
}

fn recorded(config: &PoolConfig) -> RecordedJournal {
    RecordedJournal::of(backend(config).0.side.read().unwrap().as_ref())
}

/// A pool whose server was killed. The journal has a group with blocks 0 and 1 of the logical disk, on different disks,
/// each with byte 5. The first is in place. A later flush changed block 0 to byte 6.
struct Killed {
    tank: Tank,
    journal: PathBuf,
}

impl Killed {
    fn new() -> Killed {
        let mut tank = Tank::new(true);
        let journal = tank.config.disks[0].with_file_name("tank.journal");
        tank.config.cache.journal = Some(journal.clone());
        (tank.config.cache.journal_size_bytes, tank.config.cache.direct_io) = (Some(64 * MIB), false);
        tank.config.cache.cache.take_over(&Settings::of(&[("write-back-order", "journal")]).unwrap());
        // Nothing is written back.
        let rejecting: Vec<_> = tank.config.disks.iter().map(|path| Rejecting::open(path, |_| false)).collect();
        let disks = rejecting.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
        let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
        for (chunk, byte) in [(0, 5), (1, 5), (0, 6)] {
            write(&disk, chunk * CHUNK_BYTES, BLOCK, byte).unwrap();
            flush(&disk);
        }
        // Copies of the files, as a killed server leaves them.
        let paths = || {
            let mut paths = tank.config.disks.clone();
            paths.extend([tank.config.cache.flash.clone(), journal.clone()]);
            paths
        };
        let copy = |path: &PathBuf| path.with_extension("killed");
        for path in paths() {
            std::fs::copy(&path, copy(&path)).unwrap();
        }
        rejecting.iter().for_each(|disk| disk.rejects.store(false, Ordering::SeqCst));
        pool.close().unwrap();
        drop((disk, pool, rejecting));
        paths().iter().for_each(|path| std::fs::rename(copy(path), path).unwrap());
        let disks = tank.config.disks.iter().map(|path| Arc::new(file(path)) as Arc<dyn Disk>).collect();
        let metadata = Metadata::open("tank", disks, false, &mut Vec::new()).unwrap();
        let chunks: Vec<u32> = {
            let entries = metadata.map.named("a").unwrap().1.entries();
            entries.there().map(|(_, entry)| entry.chunk().unwrap()).collect()
        };
        let number = metadata.map.disk_of(chunks[0]).unwrap();
        assert_ne!(metadata.map.disk_of(chunks[1]), Some(number));
        let member = &metadata.map.disks[&number];
        let offset = u64::from(chunks[0] - member.base) * CHUNK_BYTES;
        let first = PathBuf::from(&member.path);
        drop(metadata);
        File::options().write(true).open(&first).unwrap().write_all_at(&[5; BLOCK_BYTES], offset).unwrap();
        put_group(&journal, &[(chunks[0] * CHUNK_BLOCKS, 5), (chunks[1] * CHUNK_BLOCKS, 5)]);
        Killed { tank, journal }
    }

    /// Checks both blocks, and that they stay as clients write them.
    fn check(&self, config: &PoolConfig, expected: [u8; 2]) {
        let blocks = |pool: &Pool| {
            let disk = pool.logical("a").unwrap();
            [0, 1].map(|chunk| read(&disk, chunk * CHUNK_BYTES, BLOCK)[0])
        };
        let (pool, notes) = open(config).unwrap();
        assert_eq!(blocks(&pool), expected, "{notes}");
        write(&pool.logical("a").unwrap(), CHUNK_BYTES, BLOCK, 7).unwrap();
        flush(&pool.logical("a").unwrap());
        pool.close().unwrap();
        drop(pool);
        for _ in 0..2 {
            let (pool, notes) = open(config).unwrap();
            assert_eq!(blocks(&pool), [expected[0], 7], "{notes}");
            pool.close().unwrap();
        }
    }

    /// The configuration without the flash, whose data is given up.
    fn without_flash(&self) -> PoolConfig {
        let mut config = self.tank.config.clone();
        (config.cache.discard_cache, config.cache.flash, config.cache.flash_size_bytes) = (true, PathBuf::new(), None);
        config
    }
}

#[test]
fn a_start_with_the_flash_or_without_it_completes_the_disks() {
    let killed = Killed::new();
    killed.check(&killed.tank.config, [6, 5]);
    let killed = Killed::new();
    killed.check(&killed.without_flash(), [5, 5]);
}

/// The flash has all blocks of the group.
#[test]
fn a_detach_leaves_complete_disks_and_a_journal_that_does_not_count() {
    let killed = Killed::new();
    assert_eq!(detach_pool(&killed.tank.config, None).unwrap(), Detached::Now { destaged_blocks: 2 });
    assert_eq!(recorded(&killed.tank.config), RecordedJournal::default());
    assert_eq!(detach_pool(&killed.tank.config, None).unwrap(), Detached::Before);
    killed.check(&killed.tank.config, [6, 5]);
}

#[test]
fn a_salvage_needs_the_journal_or_gives_it_up() {
    let killed = Killed::new();
    let config = &killed.tank.config;
    let error = salvage_pool(config, None, false).unwrap_err();
    assert!(
        error.is_misuse() && error.to_string().contains("backend pool tank: journal: none is configured"),
        "{error}"
    );
    let outcome = salvage_pool(config, Some(&killed.journal), false).unwrap();
    assert_eq!((outcome.journal_blocks, outcome.certain_blocks, outcome.detached), (2, 2, true));
    killed.check(config, [6, 5]);
    let killed = Killed::new();
    std::fs::write(&killed.journal, vec![9; 64 << 20]).unwrap();
    let error = salvage_pool(&killed.tank.config, Some(&killed.journal), false).unwrap_err().to_string();
    let expected = format!("journal {}: it is blank or damaged, expected journal ", killed.journal.display());
    assert!(error.contains(&expected) && error.contains("--discard-rest' gives it up"), "{error}");
    assert!(salvage_pool(&killed.tank.config, Some(&killed.journal), true).unwrap().detached);
    std::fs::remove_file(&killed.journal).unwrap();
    killed.check(&killed.tank.config, [6, 5]);
}

/// The flash has only its superblock, and the journal has blocks.
#[test]
fn a_salvage_of_a_flash_without_data_has_the_group_of_the_journal() {
    let killed = Killed::new();
    let config = &killed.tank.config;
    let length = std::fs::metadata(&config.cache.flash).unwrap().len();
    let flash = File::options().write(true).open(&config.cache.flash).unwrap();
    flash.write_all_at(&vec![9; (length - 8192) as usize], 8192).unwrap();
    let outcome = salvage_pool(config, Some(&killed.journal), true).unwrap();
    assert_eq!((outcome.journal_blocks, outcome.certain_blocks, outcome.detached), (2, 0, true));
    killed.check(config, [5, 5]);
}

#[test]
fn a_start_after_a_wipe_completes_the_disks_once() {
    let killed = Killed::new();
    let flash = file(&killed.tank.config.cache.flash);
    let holding = wipe::examine(&flash).unwrap();
    assert!(holding.may_be_dirty());
    wipe::wipe(&flash, &holding, None).unwrap();
    drop(flash);
    let error = open(&killed.tank.config).err().unwrap();
    assert!(error.contains("which may hold data that was not written back"), "{error}");
    let mut config = killed.tank.config.clone();
    config.cache.discard_cache = true;
    killed.check(&config, [5, 5]);
}

#[test]
fn a_check_finds_a_sound_cache() {
    let killed = Killed::new();
    let flash = file(&killed.tank.config.cache.flash);
    let report = check(&flash, None, true, &|_| ()).unwrap();
    assert!(report.is_sound() && report.opens, "{report:?}");
    assert_eq!(report.counts.dirty_blocks, 2);
}

/// Its group is not whole any more.
#[test]
fn a_journal_that_was_cut_short_is_refused() {
    let mut waiting = Waiting::new();
    let journal = waiting.tank.config.cache.journal.clone().unwrap();
    let blocks: Vec<(u32, u8)> = (0..17_000).map(|block| (block, 5)).collect();
    put_group(&journal, &blocks);
    File::options().write(true).open(&journal).unwrap().set_len(64 * MIB).unwrap();
    let expected = format!("{}: it was cut short: found 67108864 bytes, expected at least ", journal.display());
    let error = salvage_pool(&waiting.tank.config, Some(&journal), false).unwrap_err();
    assert!(error.to_string().contains(&expected), "{error}");
    waiting.lose_flash();
    let error = open(&waiting.tank.config).err().unwrap();
    assert!(error.contains(&expected.replace(": it", "': it")), "{error}");
}

/// A pool without one of its disks. Its flash was lost, so only the journal has the blocks of that disk. It has a new
/// cache.
fn with_new_cache() -> Waiting {
    let mut waiting = Waiting::new();
    std::fs::remove_file(&waiting.tank.config.cache.flash).unwrap();
    waiting.degraded.cache.discard_cache = true;
    let (pool, notes) = open(&waiting.degraded).unwrap();
    assert!(waiting.waits(&notes), "{notes}");
    pool.close().unwrap();
    waiting.degraded.cache.discard_cache = false;
    waiting
}

/// Reads the blocks of the group, on the disk that stayed and on the one that returned.
fn blocks_of(waiting: &Waiting, pool: &Pool) -> [u8; 2] {
    let disk = pool.logical("a").unwrap();
    waiting.at.map(|at| read(&disk, at, BLOCK)[0])
}

#[test]
fn a_start_without_the_journal_that_a_disk_needs_is_refused() {
    let mut waiting = with_new_cache();
    for config in [&mut waiting.degraded, &mut waiting.tank.config] {
        let journal = config.cache.journal.take();
        let error = open(config).err().unwrap();
        assert!(error.contains("pool 'tank': journal: none is configured; the backend has journal "), "{error}");
        config.cache.journal = journal;
    }
    let (pool, _) = open(&waiting.tank.config).unwrap();
    assert_eq!(blocks_of(&waiting, &pool), [5, 6]);
    pool.close().unwrap();
}

#[test]
fn a_salvage_gives_up_a_lost_journal_that_a_disk_needs() {
    for is_blank in [false, true] {
        let mut waiting = with_new_cache();
        let journal = waiting.tank.config.cache.journal.clone().unwrap();
        std::fs::remove_file(&journal).unwrap();
        if is_blank {
            File::create(&journal).unwrap().set_len(64 * MIB).unwrap();
        }
        let error = open(&waiting.tank.config).err().unwrap();
        assert!(error.contains("give those blocks up with 'flashwise detach --salvage --discard-rest'"), "{error}");
        let given = Some(&*journal).filter(|_| is_blank);
        salvage_pool(&waiting.tank.config, given, false).unwrap_err();
        salvage_pool(&waiting.tank.config, given, true).unwrap();
        let cache = &mut waiting.tank.config.cache;
        cache.journal = None;
        cache.cache.take_over(&Settings::of(&[("write-back-order", "barriers")]).unwrap());
        let (pool, _) = open(&waiting.tank.config).unwrap();
        assert_eq!(blocks_of(&waiting, &pool), [5, 0], "nothing else wrote the second");
        pool.close().unwrap();
    }
}

/// The server ended between the mark on the flash and the record.
#[test]
fn a_detach_that_was_cut_off_keeps_the_blocks_of_a_missing_disk() {
    let waiting = with_new_cache();
    let flash = file(&waiting.degraded.cache.flash);
    let mut superblock = read_superblock(&flash).unwrap();
    superblock.state = State::Detached;
    write_superblock(&flash, &mut superblock).unwrap();
    let side = backend(&waiting.degraded).0.side;
    let record = side.read().unwrap().unwrap();
    side.write(&Record { may_be_dirty: true, closed: None, ..record }).unwrap();
    drop((flash, side));
    let (pool, notes) = open(&waiting.degraded).unwrap();
    assert!(waiting.waits(&notes), "{notes}");
    pool.close().unwrap();
    drop(pool);
    let (pool, _) = open(&waiting.tank.config).unwrap();
    assert_eq!(blocks_of(&waiting, &pool), [5, 6]);
    pool.close().unwrap();
}

/// A new cache is detached.
#[test]
fn a_detach_completes_a_disk_that_returned_and_refuses_without_it() {
    for was_detached in [false, true] {
        let waiting = with_new_cache();
        if was_detached {
            let (pool, _) = open(&waiting.degraded).unwrap();
            pool.detach().unwrap();
            pool.close().unwrap();
        }
        let (journal, config) = (waiting.tank.config.cache.journal.clone().unwrap(), &waiting.tank.config);
        for (config, journal, expected) in [
            (
                &waiting.degraded,
                Some(&*journal),
                JournalError::Waits { paths: vec![waiting.away.0.display().to_string()] },
            ),
            (config, None, JournalError::NotGiven { expected: recorded(config).id.unwrap() }),
        ] {
            let error = detach_pool(config, journal).unwrap_err();
            assert!(error.is_misuse() && error.to_string().contains(&expected.to_string()), "{error}");
        }
        let detached = detach_pool(config, Some(&journal)).unwrap();
        let expected = if was_detached { Detached::Before } else { Detached::Now { destaged_blocks: 0 } };
        assert_eq!(detached, expected);
        for _ in 0..2 {
            let (pool, notes) = open(config).unwrap();
            assert!(!notes.contains("last group"), "{notes}");
            assert_eq!(blocks_of(&waiting, &pool), [5, 6]);
            pool.close().unwrap();
        }
    }
}
