//! Regular files as disks: locks, creation, the page cache, partial last units, zeroing, and extents.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashwise_storage::disk::file::{Allocation, FileDisk, Options, PageCache};
use flashwise_storage::disk::{ALIGNMENT, Disk};
use flashwise_storage::export::Extent;
use tempfile::TempDir;

const READ_ONLY: Options = Options { read_only: true, page_cache: PageCache::AvoidIfPossible };

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    (directory, path)
}

/// A disk of `size` bytes that are 0xaa.
fn filled(path: &Path, size: usize, page_cache: PageCache) -> FileDisk {
    std::fs::write(path, vec![0xaa; size]).unwrap();
    FileDisk::open(path, Options { page_cache, ..Options::default() }).unwrap()
}

/// Bytes at an address that may bypass the page cache.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(length: usize, byte: u8) -> Self {
        let memory = vec![byte; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self(memory, start)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let length = self.0.len() - ALIGNMENT;
        &mut self.0[self.1..][..length]
    }
}

fn contents(disk: &FileDisk) -> Vec<u8> {
    let mut memory = Aligned::new(disk.size().next_multiple_of(ALIGNMENT as u64) as usize, 0x55);
    disk.read_at(memory.bytes(), 0).unwrap();
    memory.bytes().to_vec()
}

#[test]
fn no_file_is_made_below_dev() {
    let path = std::path::Path::new("/dev/flashwise-no-such-disk");
    let error = FileDisk::create(path, 1 << 20, Allocation::Sparse, Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/dev/flashwise-no-such-disk: there is no such device, and no file is made below /dev"
    );
    assert!(!path.exists());
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let (_directory, path) = place();
    let disk = FileDisk::create(&path, 8192, Allocation::Sparse, Options::default()).unwrap();
    for options in [Options::default(), READ_ONLY] {
        let error = FileDisk::open(&path, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert!(error.to_string().starts_with(&format!("{}: in use by another process", path.display())), "{error}");
    }
    let another_process = || Command::new("flock").arg("-n").arg(&path).arg("true").status().unwrap().success();
    assert!(!another_process());
    // As a transfer in the kernel may, for a moment.
    let _held = disk.descriptor().unwrap().try_clone_to_owned().unwrap();
    drop(disk);
    assert!(another_process());
    FileDisk::open(&path, Options::default()).unwrap();
}

#[test]
fn read_only_openers_share_a_file_and_keep_writers_out() {
    let (_directory, path) = place();
    drop(filled(&path, 8192, PageCache::Use));
    let first = FileDisk::open(&path, READ_ONLY).unwrap();
    let second = FileDisk::open(&path, READ_ONLY).unwrap();
    assert_eq!(FileDisk::open(&path, Options::default()).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(contents(&first), contents(&second));
    let error = first.write_at(Aligned::new(ALIGNMENT, 1).bytes(), 0).unwrap_err();
    assert!(error.to_string().contains("writing at 0"), "{error}");
    assert_eq!(contents(&first), vec![0xaa; 8192]);
}

#[test]
fn unsuitable_devices_are_refused_by_name() {
    let (directory, path) = place();
    let message = |path: &Path| FileDisk::open(path, Options::default()).unwrap_err().to_string();
    assert!(message(&path).starts_with(&format!("{}: cannot be opened: No such file", path.display())));
    assert!(message(directory.path()).ends_with("is neither a regular file nor a block device"));
    assert!(message(Path::new("/dev/null")).ends_with("is neither a regular file nor a block device"));
    std::fs::write(&path, []).unwrap();
    assert_eq!(message(&path), format!("{}: is empty; give it a size first", path.display()));
}

#[test]
fn a_created_file_is_zeroes_and_takes_space_only_if_asked() {
    for (allocation, blocks) in [(Allocation::Sparse, 0), (Allocation::Full, 2048)] {
        let (_directory, path) = place();
        let disk = FileDisk::create(&path, 1 << 20, allocation, Options::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().blocks(), blocks);
        assert_eq!(contents(&disk), vec![0; 1 << 20]);
        drop(disk);
        let error = FileDisk::create(&path, 4096, allocation, Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20, "the file that was there is untouched");
    }
}

#[test]
fn a_file_that_does_not_fit_is_an_error_and_leaves_nothing_behind() {
    let (_directory, path) = place();
    let error = FileDisk::create(&path, 8 << 40, Allocation::Full, Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(error.to_string().contains("needs 8796093022208 bytes, the file system has "), "{error}");
    assert!(!path.exists());
}

#[test]
fn the_page_cache_is_bypassed_only_where_the_size_allows_it() {
    let (_directory, path) = place();
    for (size, direct) in [(4096, true), (8192, true), (8192 + 100, false), (100, false)] {
        let disk = filled(&path, size, PageCache::AvoidIfPossible);
        assert_eq!(disk.is_direct(), direct, "{size} bytes");
        assert_eq!(!disk.notes().is_empty(), !direct, "{size} bytes");
    }
    // Reading a hole needs no alignment, so that trying it out does not tell.
    std::fs::remove_file(&path).unwrap();
    assert!(!FileDisk::create(&path, 8192 + 100, Allocation::Sparse, Options::default()).unwrap().is_direct());
    std::fs::write(&path, [1; 100]).unwrap();
    let avoid = Options { page_cache: PageCache::Avoid, ..Options::default() };
    let error = FileDisk::open(&path, avoid).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!filled(&path, 4096, PageCache::Use).is_direct());
}

#[test]
fn the_last_unit_is_padded_with_zeroes_and_ignores_writes_there() {
    // Support for direct I/O of 512 bytes depends on the file system.
    let sizes = [(8192 + 512, PageCache::AvoidIfPossible), (8192 + 512, PageCache::Use), (100, PageCache::Use)];
    for (size, page_cache) in sizes {
        let (_directory, path) = place();
        let disk = filled(&path, size, page_cache);
        let last = size / ALIGNMENT * ALIGNMENT;
        let mut expected = vec![0xaa; size];
        expected.resize(last + ALIGNMENT, 0);
        assert_eq!(contents(&disk), expected);
        disk.write_at(Aligned::new(ALIGNMENT, 0xbb).bytes(), last as u64).unwrap();
        expected[last..size].fill(0xbb);
        assert_eq!(contents(&disk), expected);
        disk.zero(last as u64, ALIGNMENT as u64, true).unwrap();
        expected[last..].fill(0);
        assert_eq!(contents(&disk), expected);
        disk.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected[..size], "the file has kept its size");
    }
}

#[test]
fn requests_beyond_the_end_are_refused_and_change_nothing() {
    let (_directory, path) = place();
    let disk = filled(&path, 8192 + 512, PageCache::Use);
    let unit = ALIGNMENT as u64;
    for offset in [3 * unit, 2 * unit + 1, u64::MAX - unit + 1, u64::MAX] {
        let mut memory = Aligned::new(ALIGNMENT, 1);
        let results = [
            disk.read_at(memory.bytes(), offset),
            disk.write_at(memory.bytes(), offset),
            disk.zero(offset, unit, true),
            disk.discard(offset, unit),
            disk.extents(offset, unit, 1).map(|_| ()),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
            assert!(
                error.to_string().ends_with(&format!("4096 bytes at {offset} end past the end, at 8704")),
                "{error}"
            );
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), [0xaa; 8704]);
}

#[test]
fn zeroing_gives_space_back_only_if_it_may() {
    let (_directory, path) = place();
    let disk = filled(&path, 1 << 20, PageCache::AvoidIfPossible);
    disk.sync().unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    disk.zero(0, 256 << 10, false).unwrap();
    assert_eq!(blocks(), before);
    disk.zero(256 << 10, 256 << 10, true).unwrap();
    assert_eq!(blocks(), before - 512);
    disk.discard(512 << 10, 256 << 10).unwrap();
    assert_eq!(blocks(), before - 1024);
    let bytes = contents(&disk);
    assert!(bytes[..512 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[768 << 10..].iter().all(|&byte| byte == 0xaa));
}

#[test]
fn extents_tell_holes_from_data() {
    let (_directory, path) = place();
    let disk = FileDisk::create(&path, 1 << 20, Allocation::Sparse, Options::default()).unwrap();
    let memory = &mut Aligned::new(64 << 10, 1);
    disk.write_at(memory.bytes(), 128 << 10).unwrap();
    disk.write_at(memory.bytes(), 960 << 10).unwrap();
    disk.sync().unwrap();
    let hole = |kib: u64| Extent { length: kib << 10, hole: true, zero: true };
    let data = |kib: u64| Extent { length: kib << 10, hole: false, zero: false };
    let all = [hole(128), data(64), hole(768), data(64)];
    assert_eq!(disk.extents(0, 1 << 20, 9).unwrap(), all);
    assert_eq!(disk.extents(0, 1 << 20, 2).unwrap(), all[..2]);
    assert_eq!(disk.extents(160 << 10, 64 << 10, 9).unwrap(), [data(32), hole(32)]);
}
