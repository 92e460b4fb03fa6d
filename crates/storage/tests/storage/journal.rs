//! The journal of a volume: set up, written into place at a start, and refused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flashwise_core::cache::settings::Settings;
use flashwise_core::checksum::crc32c;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::journal::{Group, Head, INDEX_START};
use flashwise_storage::volume::{Opened, Volume, VolumeConfig};

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
    config.cache = Settings::of(&[("erase-unit", "256KiB"), ("ram", "64KiB")]).unwrap();
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
