//! The journal of a volume: set up, written into place at a start, and refused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use flashwise_core::cache::settings::Settings;
use flashwise_core::checksum::crc32c;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::journal::{Group, Head, INDEX_START};
use flashwise_storage::attach::BackendSide;
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::disk::identity::Identity;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::volume::{OpenDisk, Opened, Storage, Volume, VolumeConfig};
use flashwise_testing::fake_disk::FakeDisk;

use crate::failing::SharedSide;

const MIB: u64 = 1 << 20;

fn config(directory: &Path) -> VolumeConfig {
    let at = |name: &str| directory.join(name);
    VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        cache: Settings::of(&[("erase-unit", "256KiB"), ("ram", "64KiB"), ("write-back-order", "journal")]).unwrap(),
        journal: Some(at("disk.journal")),
        ..VolumeConfig::of("v", &at("disk.img"), &at("cache.img"))
    }
}

fn make(path: PathBuf, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

fn start(config: &VolumeConfig) -> Result<Opened, String> {
    let (volume, opened) = Volume::open(config.clone(), &|_, _| ()).map_err(|error| error.to_string())?;
    volume.close().map_err(|error| error.to_string())?;
    Ok(opened)
}

/// Puts a whole group of two blocks into a journal, without its mark.
fn put_group(path: &Path) {
    let journal = File::options().read(true).write(true).open(path).unwrap();
    let mut marks = [[0; BLOCK_BYTES]; 2];
    journal.read_exact_at(marks.as_flattened_mut(), 0).unwrap();
    let last = Head::last(&marks).expect("it was set up");
    let data = [[5; BLOCK_BYTES], [6; BLOCK_BYTES]];
    let blocks = [3, 9].into_iter().zip(data.iter().map(|page| crc32c(page))).collect();
    let group = Group { head: Head { number: last.number + 1, ..last }, blocks };
    for (page, at) in group.index().chain(data).zip(u64::from(INDEX_START)..) {
        journal.write_all_at(&page, at * BLOCK_BYTES as u64).unwrap();
    }
}

fn byte_at(path: &Path, block: u64) -> u8 {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, block * BLOCK_BYTES as u64).unwrap();
    byte[0]
}

#[test]
fn a_start_writes_a_whole_group_into_place_with_the_flash_and_without() {
    for keeps_flash in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        make(config.backend.clone(), 16 * MIB);
        make(config.journal.clone().unwrap(), 64 * MIB);
        assert_eq!(start(&config).unwrap().notes, [""; 0]);
        put_group(config.journal.as_ref().unwrap());
        if !keeps_flash {
            std::fs::remove_file(&config.flash).unwrap();
            (config.discard_cache, config.flash, config.flash_size_bytes) = (true, PathBuf::new(), None);
        }
        let notes = start(&config).unwrap().notes.join(" ");
        assert!(notes.contains("2 blocks of its last group were written to the backend"), "{notes}");
        assert_eq!([3, 9, 4].map(|block| byte_at(&config.backend, block)), [5, 6, 0]);
        // It has its mark now.
        File::options().write(true).open(&config.backend).unwrap().write_all_at(&[7], 3 * BLOCK_BYTES as u64).unwrap();
        let notes = start(&config).unwrap().notes.join(" ");
        assert!(!notes.contains("journal"), "{notes}");
        assert_eq!(byte_at(&config.backend, 3), 7);
    }
}

#[test]
fn another_journal_is_refused_and_an_unused_one_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    let journal = config.journal.clone().unwrap();
    make(config.backend.clone(), 16 * MIB);
    make(journal.clone(), MIB / 2);
    assert!(start(&config).unwrap_err().contains("found 524288 bytes, expected at least 67108864"));
    File::options().write(true).open(&journal).unwrap().write_all_at(b"something else", 512).unwrap();
    File::options().write(true).open(&journal).unwrap().set_len(64 * MIB).unwrap();
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is not blank, expected a journal or zeroes in its first 8192 bytes"), "{error}");
    make(journal.clone(), 64 * MIB);
    start(&config).unwrap();
    // Another backend.
    let mut other = config.clone();
    (other.backend, other.flash) = (directory.path().join("other.img"), directory.path().join("other-cache.img"));
    make(other.backend.clone(), 16 * MIB);
    let error = start(&other).unwrap_err();
    assert!(error.contains("it is the journal of backend"), "{error}");
    // A missing one, and a blank one.
    config.journal = Some(directory.path().join("blank.journal"));
    let error = start(&config).unwrap_err();
    assert!(error.contains("it does not exist; the backend has journal"), "{error}");
    config.journal = Some(directory.path().join("blank.journal"));
    make(config.journal.clone().unwrap(), 64 * MIB);
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is blank or damaged, expected journal"), "{error}");
    // From here on, the first one does not count.
    (config.journal, config.cache) = (None, Settings::of(&[("erase-unit", "256KiB"), ("ram", "64KiB")]).unwrap());
    put_group(&journal);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is no longer used"), "{notes}");
    config.journal = Some(journal);
    assert_eq!(start(&config).unwrap().notes, [""; 0]);
    assert_eq!(byte_at(&config.backend, 3), 0);
}

/// It may have blocks of a group that is in place in part.
#[test]
fn a_flash_that_stays_needs_the_journal_of_its_backend() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    start(&config).unwrap();
    (config.journal, config.discard_cache) = (Some(directory.path().join("blank.journal")), true);
    make(config.journal.clone().unwrap(), 64 * MIB);
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is blank or damaged, expected journal"), "{error}");
    config.journal = None;
    config.discard_cache = false;
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is no longer used"), "{notes}");
}

#[test]
fn a_missing_file_is_created_with_its_size_and_used_with_direct_io() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    (config.journal_size_bytes, config.direct_io) = (Some(65 * MIB), true);
    assert_eq!(start(&config).unwrap().notes, [""; 0]);
    let journal = config.journal.clone().unwrap();
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), 65 * MIB);
    put_group(&journal);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("2 blocks of its last group were written to the backend"), "{notes}");
}

/// Without the flash, only the journal can complete the backend.
#[test]
fn a_flash_is_not_given_up_without_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    make(config.journal.clone().unwrap(), 64 * MIB);
    start(&config).unwrap();
    std::fs::remove_file(&config.flash).unwrap();
    let journal = config.journal.take();
    config.discard_cache = true;
    let error = start(&config).unwrap_err();
    assert!(error.contains("none is configured; the backend has journal"), "{error}");
    // It is lost, too.
    config.journal = Some(directory.path().join("blank.journal"));
    make(config.journal.clone().unwrap(), 64 * MIB);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is lost; the backend may be a mixture of old and new blocks"), "{notes}");
    (config.journal, config.discard_cache) = (journal, false);
    assert!(start(&config).unwrap_err().contains("it is journal"));
}

/// A group may be in place in part, so the recorded epochs do not count without its journal.
#[test]
fn after_a_crash_another_order_begins_with_all_dirty_blocks() {
    let (flash, backend, journal) = (disk(400), disk(48), disk(64));
    let side: Arc<MemorySide> = Arc::default();
    let open = |[flash, backend, journal]: [&Arc<FakeDisk>; 3], side: &Arc<MemorySide>, order, has_journal: bool| {
        let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
        config.flash_disk = Some(OpenDisk(flash.clone()));
        config.journal_disk = has_journal.then(|| OpenDisk(journal.clone()));
        config.cache = Settings::of(&[("erase-unit", "64KiB"), ("ram", "0"), ("write-back-order", order)]).unwrap();
        let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
        let side = Box::new(SharedSide(side.clone()));
        let storage = Storage { disk: backend.clone(), identity, side, notes: Vec::new() };
        Volume::open_on(config, storage, &|_, _| ()).unwrap()
    };
    let (volume, _) = open([&flash, &backend, &journal], &side, "journal", true);
    let (sender, receiver) = mpsc::channel();
    let request = Request {
        operation: Operation::Write,
        offset: 0,
        length: BLOCK_BYTES as u64,
        force_unit_access: true,
        data: vec![1; BLOCK_BYTES],
        caching: Caching::Usual,
    };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
    for (order, has_journal, is_unknown) in
        [("journal", true, false), ("barriers", true, true), ("barriers", false, true), ("none", false, false)]
    {
        let [flash, backend, journal] = [&flash, &backend, &journal].map(|disk| Arc::new(disk.fork()));
        let record = side.read().unwrap().unwrap();
        let side: Arc<MemorySide> = Arc::default();
        side.write(&record).unwrap();
        let (volume, opened) = open([&flash, &backend, &journal], &side, order, has_journal);
        let notes = opened.notes.join(" ");
        assert_eq!(notes.contains("the order of its 1 dirty blocks is unknown"), is_unknown, "{order}: {notes}");
        assert_eq!(side.read().unwrap().unwrap().journal.is_some(), order == "journal", "{order}");
        volume.close().unwrap();
    }
    volume.close().unwrap();
}

fn disk(blocks: usize) -> Arc<FakeDisk> {
    Arc::new(FakeDisk::new(blocks, BLOCK_BYTES))
}
