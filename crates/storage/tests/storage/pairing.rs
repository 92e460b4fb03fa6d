//! Pairing of flash and backend: devices that are missing, outdated, swapped, copied or changed are refused or handled.

mod detached;
mod record;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};

use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::Settings;
use flashwise_core::format::Place;
use flashwise_storage::attach::Pairing;
use flashwise_storage::attach::stores::side_of;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::identity::identity;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::flash::{read_superblock, write_superblock};
use flashwise_storage::offline::detach::{DetachError, Detached, Pair, detach};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::volume::{Opened, Volume, VolumeConfig};
use rustix::fs::XattrFlags;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Where the backend's record is.
const RECORD: &str = "user.flashwise.cache";

struct Setting {
    directory: tempfile::TempDir,
    config: VolumeConfig,
}

impl Setting {
    fn new(write_mode: Mode) -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        File::create(at("disk.img")).unwrap().set_len(16 * MIB).unwrap();
        let config = VolumeConfig {
            flash_size_bytes: Some(8 * MIB),
            cache: Settings::of(&[
                ("erase-unit", "256KiB"),
                ("ram", "64KiB"),
                ("policy", "lru"),
                ("write-mode", write_mode.name()),
                ("sequential-bypass", "0"),
            ])
            .unwrap(),
            ..VolumeConfig::of("v", &at("disk.img"), &at("cache.img"))
        };
        Setting { directory, config }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> (Arc<Volume>, Opened) {
        Volume::open(self.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refusal(&self) -> String {
        Volume::open(self.config.clone(), &|_, _| ()).err().expect("the volume is refused").to_string()
    }

    /// Writes a byte to the first blocks, flushed, and ends in order.
    fn write_and_close(&self, byte: u8) {
        let (volume, _) = self.open();
        write(&volume, byte);
        volume.close().unwrap();
    }

    /// As a process that is killed: nothing is written any more.
    fn write_and_die(&self, byte: u8) {
        let (volume, _) = self.open();
        write(&volume, byte);
    }

    /// Zeroes pages of the flash, or flips a bit of each.
    fn damage(&self, pages: &[u64], zeroed: bool) {
        let flash = File::options().read(true).write(true).open(&self.config.flash).unwrap();
        for page in pages {
            let mut bytes = [0; BLOCK];
            flash.read_exact_at(&mut bytes, page * BLOCK as u64).unwrap();
            bytes[200] ^= 0x10;
            flash.write_all_at(if zeroed { &[0; BLOCK] } else { &bytes }, page * BLOCK as u64).unwrap();
        }
    }

    fn first_byte(&self) -> u8 {
        let (volume, _) = self.open();
        let byte = read(&volume);
        volume.close().unwrap();
        byte
    }
}

fn ask(volume: &Volume, operation: Operation, length: u64, data: Vec<u8>) -> Vec<u8> {
    let (sender, receiver) = mpsc::channel();
    let request = Request { operation, offset: 0, length, force_unit_access: false, data, caching: Default::default() };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap()
}

fn write(volume: &Volume, byte: u8) {
    ask(volume, Operation::Write, 4 * BLOCK as u64, vec![byte; 4 * BLOCK]);
    volume.flush().unwrap();
}

/// The byte that the first blocks are full of.
fn read(volume: &Volume) -> u8 {
    let bytes = ask(volume, Operation::Read, 4 * BLOCK as u64, Vec::new());
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mixture");
    bytes[0]
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_flash_that_is_missing_or_misspelt_is_not_made_anew_while_the_backend_misses_its_data() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let misspelt = setting.at("cahce.img");
    let right = std::mem::replace(&mut setting.config.flash, misspelt);
    let refusal = setting.refusal();
    assert!(refusal.contains("there is no cache on it, and the backend belongs to cache "), "{refusal}");
    assert!(refusal.contains("--discard-cache v"), "{refusal}");
    assert!(!setting.config.flash.exists(), "nothing was made");
    setting.config.flash = right;
    assert_eq!(setting.first_byte(), 7);
    std::fs::remove_file(&setting.config.flash).unwrap();
    setting.refusal();
    setting.config.discard_cache = true;
    let (volume, opened) = setting.open();
    assert!(opened.formatted && opened.notes.iter().any(|note| note.contains("was discarded")), "{opened:?}");
    assert_eq!(read(&volume), 0, "what was not written back is lost");
    drop(volume);
    setting.config.discard_cache = false;
    setting.open();
}

/// An operator has given up what a flash holds: it is not asked for again when that comes back.
#[test]
fn a_cache_that_was_given_up_is_dropped_when_it_comes_back() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_die(7);
    let flash = std::mem::take(&mut setting.config.flash);
    setting.config.discard_cache = true;
    let (volume, opened) = setting.open();
    assert!(opened.without_flash);
    write(&volume, 8);
    volume.close().unwrap();
    drop(volume);
    (setting.config.flash, setting.config.discard_cache) = (flash, false);
    let (volume, opened) = setting.open();
    assert!(opened.formatted && opened.notes.iter().any(|note| note.contains("the cache was dropped")), "{opened:?}");
    assert_eq!(read(&volume), 8);
}

/// A backend that was cut short is to be as large as it was; its cache cannot be detached from it either.
#[test]
fn a_backend_that_was_cut_short_is_named() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let backend = std::fs::File::options().write(true).open(&setting.config.backend).unwrap();
    let size = backend.metadata().unwrap().len();
    backend.set_len(size / 2).unwrap();
    let refusal = setting.refusal();
    let expected = format!("found {} bytes, expected {size}, the volume size of its cache. It was truncated", size / 2);
    assert!(refusal.contains(&expected), "{refusal}");
    backend.set_len(size).unwrap();
    assert_eq!(setting.first_byte(), 7);
}

#[test]
fn a_missing_flash_is_made_anew_where_everything_was_written_through() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let setting = Setting::new(mode);
        setting.write_and_close(7);
        std::fs::remove_file(&setting.config.flash).unwrap();
        assert_eq!(setting.first_byte(), 7, "{mode:?}");
        setting.write_and_die(8);
        std::fs::remove_file(&setting.config.flash).unwrap();
        assert_eq!(setting.first_byte(), 8, "{mode:?}");
    }
}

#[test]
fn a_volume_that_is_set_to_write_back_is_not_taken_for_one_that_wrote_through() {
    let setting = Setting::new(Mode::WriteThrough);
    let (volume, _) = setting.open();
    volume.allow_dirty().unwrap();
    volume.with_cache(|cache| cache.set_mode(Mode::WriteBack));
    write(&volume, 3);
    drop(volume);
    std::fs::remove_file(&setting.config.flash).unwrap();
    assert!(setting.refusal().contains("there is no cache on it"), "{}", setting.refusal());
}

/// Superblocks of earlier versions: a unit that was started only in memory cannot have lost anything.
#[test]
fn a_log_that_was_durable_up_to_the_first_page_of_a_unit_lacks_none() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_die(7);
    let note = |durable: Place| {
        let flash = FileDisk::open(&setting.config.flash, Options::default()).unwrap();
        let mut superblock = read_superblock(&flash).unwrap();
        superblock.durable = durable;
        write_superblock(&flash, &mut superblock).unwrap();
    };
    note(Place { sequence: 2, page: 1 });
    assert!(setting.refusal().contains("erase unit 2 was durable up to page 1"), "{}", setting.refusal());
    note(Place { sequence: 2, page: 0 });
    assert_eq!(setting.first_byte(), 7);
}

#[test]
fn two_flashes_in_turn_are_refused() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(1);
    let other = setting.at("other.img");
    let first = std::mem::replace(&mut setting.config.flash, other);
    setting.config.discard_cache = true;
    setting.write_and_close(2);
    setting.config.discard_cache = false;
    let second = std::mem::replace(&mut setting.config.flash, first);
    let refusal = setting.refusal();
    assert!(refusal.contains("it holds cache ") && refusal.contains("the backend belongs to cache "), "{refusal}");
    setting.config.flash = second;
    assert_eq!(setting.first_byte(), 2);
}

#[test]
fn an_older_copy_of_the_flash_is_refused_however_the_newest_ended() {
    for (dies, older_dies) in [(false, false), (false, true), (true, false), (true, true)] {
        let setting = Setting::new(Mode::WriteBack);
        let run = |dies: bool, byte| if dies { setting.write_and_die(byte) } else { setting.write_and_close(byte) };
        run(older_dies, 1);
        copy(&setting.config.flash, &setting.at("older.img"));
        run(dies, 2);
        copy(&setting.config.flash, &setting.at("newest.img"));
        copy(&setting.at("older.img"), &setting.config.flash);
        let refusal = setting.refusal();
        assert!(refusal.contains("it is an older copy of cache"), "{refusal}");
        copy(&setting.at("newest.img"), &setting.config.flash);
        assert_eq!(setting.first_byte(), 2);
    }
}

/// A copy that was made while the cache was used has counted as many starts as the cache that then ended.
#[test]
fn a_copy_of_the_flash_from_before_its_orderly_end_is_refused() {
    let setting = Setting::new(Mode::WriteBack);
    let (volume, _) = setting.open();
    write(&volume, 1);
    copy(&setting.config.flash, &setting.at("older.img"));
    write(&volume, 2);
    volume.close().unwrap();
    drop(volume);
    copy(&setting.at("older.img"), &setting.config.flash);
    assert!(setting.refusal().contains("it is an older copy of cache"), "{}", setting.refusal());
}

#[test]
fn an_older_copy_of_a_cache_that_wrote_through_is_dropped() {
    let setting = Setting::new(Mode::WriteThrough);
    setting.write_and_close(1);
    copy(&setting.config.flash, &setting.at("older.img"));
    setting.write_and_close(2);
    copy(&setting.at("older.img"), &setting.config.flash);
    let (volume, opened) = setting.open();
    assert!(opened.formatted && opened.notes[0].contains("it is older than the backend"), "{opened:?}");
    assert_eq!(read(&volume), 2);
}

#[test]
fn an_older_copy_of_the_backend_is_refused() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(1);
    let older = setting.at("older.img");
    copy(&setting.config.backend, &older);
    setting.write_and_close(2);
    // In place, so that it is the same file: contents and attributes of the copy.
    std::fs::write(&setting.config.backend, std::fs::read(&older).unwrap()).unwrap();
    let mut record = [0; 4096];
    let length = rustix::fs::getxattr(&older, "user.flashwise.cache", &mut record).unwrap();
    let flags = rustix::fs::XattrFlags::REPLACE;
    rustix::fs::setxattr(&setting.config.backend, "user.flashwise.cache", &record[..length], flags).unwrap();
    assert!(setting.refusal().contains("the backend is an older copy"), "{}", setting.refusal());
}

#[test]
fn after_external_changes_of_the_backend_only_dirty_blocks_stay() {
    let setting = Setting::new(Mode::WriteThrough);
    setting.write_and_close(1);
    let (_, opened) = setting.open();
    assert!(opened.cached_blocks > 0 && opened.notes.is_empty(), "nothing changed: {opened:?}");
    drop(opened);
    setting.write_and_close(2);
    let backend = File::options().write(true).open(&setting.config.backend).unwrap();
    backend.write_all_at(&vec![9; 4 * BLOCK], 0).unwrap();
    let (volume, opened) = setting.open();
    assert!(
        opened.notes[0].contains("4 clean blocks of the cache were dropped, because the backend was changed"),
        "{opened:?}"
    );
    assert_eq!(read(&volume), 9, "not what the cache had");
    // Killed before anything was done: they stay dropped.
    drop(volume);
    let (volume, _) = setting.open();
    assert_eq!(read(&volume), 9);
}

#[test]
fn a_backend_that_has_grown_while_the_server_was_down_keeps_its_cache() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(1);
    File::options().write(true).open(&setting.config.backend).unwrap().set_len(24 * MIB).unwrap();
    let (volume, opened) = setting.open();
    assert!(!opened.formatted && opened.dirty_blocks == 4, "{opened:?}");
    assert_eq!((volume.size(), read(&volume)), (24 * MIB, 1));
}

#[test]
fn a_copy_of_the_backend_is_not_taken_for_it() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(1);
    let original = setting.config.backend.clone();
    setting.config.backend = setting.at("copy.img");
    copy(&original, &setting.config.backend);
    let refusal = setting.refusal();
    assert!(refusal.contains("the backend is a copy of the file"), "{refusal}");
    // The original is gone, so an operator confirms the copy once.
    std::fs::remove_file(&original).unwrap();
    let id = refusal.split("backend-id = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    setting.config.backend_id = Some(id);
    assert_eq!(setting.first_byte(), 1);
    setting.config.backend_id = None;
    assert_eq!(setting.first_byte(), 1);
}

#[test]
fn a_cache_that_is_all_clean_starts_however_it_is_damaged() {
    // Damages one or both superblocks, pages of the log, and the unit's footer. The unit has 64 pages of 4 KiB; the
    // last two are the footer.
    let places = [vec![0], vec![1], vec![0, 1], vec![64], vec![65], vec![66], vec![126], vec![64, 126], vec![64, 127]];
    for pages in places {
        for zeroed in [false, true] {
            let setting = Setting::new(Mode::WriteThrough);
            setting.write_and_close(5);
            setting.damage(&pages, zeroed && pages.len() == 1);
            assert_eq!(setting.first_byte(), 5, "pages {pages:?}");
        }
    }
}

/// Its header is repeated by the footer, its end is known on both sides.
#[test]
fn a_damaged_end_of_the_log_is_made_up_for_or_an_error_and_never_older_data() {
    for page in [0, 1, 64, 65, 66, 67, 126] {
        for zeroed in [false, true] {
            let setting = Setting::new(Mode::WriteBack);
            setting.write_and_close(1);
            setting.write_and_close(2);
            setting.damage(&[page], zeroed);
            let (volume, opened) = setting.open();
            let (sender, receiver) = mpsc::channel();
            for block in 0..4_u64 {
                let sender = sender.clone();
                let (offset, length) = (block * BLOCK as u64, BLOCK as u64);
                let request = Request {
                    operation: Operation::Read,
                    offset,
                    length,
                    force_unit_access: false,
                    data: Vec::new(),
                    caching: Default::default(),
                };
                volume.submit(request, Box::new(move |result| sender.send((block, result)).unwrap()));
            }
            drop(sender);
            for (block, result) in receiver {
                match result {
                    Ok(bytes) => assert!(bytes.iter().all(|&byte| byte == 2), "page {page}, block {block}"),
                    Err(_) => {
                        let lost = volume.status().lost_blocks;
                        assert!(lost.contains(&block), "page {page}: block {block} is not among {lost:?}");
                    }
                }
            }
            assert_eq!(opened.dirty_blocks, 4, "page {page}");
        }
    }
}

#[test]
fn a_clean_shutdown_records_written_back_blocks() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.config.cache.read("dirty-high", "10%").unwrap();
    setting.config.cache.read("dirty-low", "5%").unwrap();
    let (volume, _) = setting.open();
    for round in 0..6_u64 {
        let (sender, receiver) = mpsc::channel();
        let data = vec![round as u8; 200 * BLOCK];
        let request = Request {
            operation: Operation::Write,
            offset: round * 200 * BLOCK as u64,
            length: 200 * BLOCK as u64,
            force_unit_access: true,
            data,
            caching: Default::default(),
        };
        volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }
    volume.close().unwrap();
    let status = volume.status();
    assert!(status.cache.destaged_blocks > 400, "{status:?}");
    drop(volume);
    let (_, opened) = setting.open();
    assert_eq!(opened.dirty_blocks, status.dirty_blocks);
}

/// Makes both superblocks those of an older version, which had zeroes in so many of the last bytes.
fn make_version(flash: &File, version: u8, zeroes: usize) {
    for page in 0..2 {
        let mut bytes = [0; BLOCK];
        flash.read_exact_at(&mut bytes, page * BLOCK as u64).unwrap();
        bytes[12] = version;
        bytes[BLOCK - zeroes..].fill(0);
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        flash.write_all_at(&bytes, page * BLOCK as u64).unwrap();
    }
}

/// Version 1 had no record on the backend's side, and zeroes where the superblock now counts starts.
#[test]
fn a_cache_of_version_1_is_used_and_becomes_one_of_version_3() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_die(7);
    let flash = File::options().read(true).write(true).open(&setting.config.flash).unwrap();
    make_version(&flash, 1, BLOCK - 80);
    rustix::fs::removexattr(&setting.config.backend, "user.flashwise.cache").unwrap();
    let (volume, opened) = setting.open();
    assert!(!opened.formatted && opened.dirty_blocks == 4, "{opened:?}");
    assert_eq!(read(&volume), 7);
    drop(volume);
    let mut version = [0; 1];
    flash.read_exact_at(&mut version, 12).unwrap();
    assert_eq!(version, [3]);
    assert_eq!(setting.first_byte(), 7);
    std::fs::remove_file(&setting.config.flash).unwrap();
    assert!(setting.refusal().contains("there is no cache on it"), "from now on, it is missed");
}

/// Version 2 had no records of regions.
#[test]
fn a_cache_of_version_2_is_used_and_becomes_one_of_version_3() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_die(7);
    let flash = File::options().read(true).write(true).open(&setting.config.flash).unwrap();
    make_version(&flash, 2, 0);
    let (volume, opened) = setting.open();
    assert!(!opened.formatted && opened.dirty_blocks == 4, "{opened:?}");
    assert_eq!(read(&volume), 7);
    drop(volume);
    for page in 0..2 {
        let mut version = [0; 1];
        flash.read_exact_at(&mut version, page * BLOCK as u64 + 12).unwrap();
        assert_eq!(version, [3]);
    }
}
