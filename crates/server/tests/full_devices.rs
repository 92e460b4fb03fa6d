//! Backends and flash that run out of space: what clients are told, and what becomes of what they wrote. Needs root, for tmpfs.
#![cfg(feature = "device-tests")]
#![allow(clippy::unwrap_used)]

#[path = "support/mounted.rs"]
mod mounted;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use flashwise_core::cache::Mode;
use flashwise_server::export::{Error, Export, Operation, Request};
use flashwise_server::volume::{Volume, VolumeConfig, VolumeError};
use mounted::{Mount, run, text};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A tmpfs with room for so many MiB, and a directory beside it.
struct Setting {
    directory: tempfile::TempDir,
    _small: Mount,
    config: VolumeConfig,
}

impl Setting {
    fn new(small_mib: u64) -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("small");
        let small = Mount::with(&["-t", "tmpfs", "-o", &format!("size={small_mib}m"), "small"], &at).unwrap();
        let path = directory.path();
        let config = VolumeConfig {
            name: "v".into(),
            backend: path.join("disk.img"),
            size_bytes: None,
            flash: path.join("cache.img"),
            flash_size_bytes: Some(8 * MIB),
            erase_unit_bytes: 256 << 10,
            ram_bytes: 4 * MIB,
            write_buffer_share: 0.5,
            policy: "lru".parse().unwrap(),
            write_mode: Mode::WriteBack,
            over_provision: 0.1,
            dirty_high: 0.9,
            dirty_low: 0.8,
            dirty_age_us: 900_000_000,
            commit_age_us: 900_000_000,
            sequential_bytes: 0,
            discard: false,
            direct_io: true,
            drive_writes_per_day: None,
            warranty_years: 5.0,
            unsafe_ignore_flushes: false,
            backend_delay_us: 0,
        };
        Setting { directory, _small: small, config }
    }

    /// A file without space of its own yet, on the tmpfs.
    fn sparse(&self, name: &str, size: u64) -> PathBuf {
        let path = self.directory.path().join("small").join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    fn open(&self) -> Arc<Volume> {
        Volume::open(self.config.clone()).unwrap_or_else(|error| panic!("{error}")).0
    }
}

fn ask(volume: &Volume, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
    let (sender, receiver) = mpsc::channel();
    let request = Request { operation, offset, length, force_unit_access: false, data };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

fn content(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(512)
}

fn write(volume: &Volume, block: u64) -> Result<(), Error> {
    ask(volume, Operation::Write, block * BLOCK, BLOCK, content(block)).map(drop)
}

fn read(volume: &Volume, block: u64) -> Result<Vec<u8>, Error> {
    ask(volume, Operation::Read, block * BLOCK, BLOCK, Vec::new())
}

#[test]
fn a_full_backend_answers_that_it_is_full_and_goes_on_when_it_is_not() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let mut setting = Setting::new(1);
        setting.config.backend = setting.sparse("disk.img", 8 * MIB);
        setting.config.write_mode = mode;
        let volume = setting.open();
        let results: Vec<_> = (0..512).map(|block| write(&volume, block)).collect();
        let written = results.iter().take_while(|result| result.is_ok()).count() as u64;
        assert!((200..=256).contains(&written), "{mode:?}: {written} blocks fit into 1 MiB");
        assert!(results[written as usize..].iter().all(|result| *result == Err(Error::NoSpace)), "{mode:?}");
        let zeroes = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: false };
        assert_eq!(ask(&volume, zeroes, 4 * MIB, 2 * MIB, Vec::new()), Err(Error::NoSpace), "{mode:?}");
        for block in 0..512 {
            let expected = if block < written { content(block) } else { vec![0; BLOCK as usize] };
            assert!(read(&volume, block) == Ok(expected), "{mode:?}: block {block}");
        }
        volume.flush().unwrap();
        run("mount", &["-o", "remount,size=16m", text(&setting.directory.path().join("small"))]);
        (0..512).for_each(|block| write(&volume, block).unwrap());
        volume.flush().unwrap();
        assert_eq!(volume.status().lost_blocks, [] as [u64; 0]);
        volume.detach().unwrap();
        let bytes = std::fs::read(&setting.config.backend).unwrap();
        (0..512).for_each(|block| assert!(bytes[(block * BLOCK) as usize..].starts_with(&content(block))));
    }
}

/// In write-back, a client hears nothing of a full backend: what does not fit waits on the flash.
#[test]
fn what_does_not_fit_on_the_backend_stays_on_flash_until_there_is_room() {
    let mut setting = Setting::new(1);
    setting.config.backend = setting.sparse("disk.img", 8 * MIB);
    let volume = setting.open();
    (0..512).for_each(|block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    let error = volume.detach().expect_err("the backend is full");
    assert!(matches!(error, VolumeError::NotDestaged { .. }), "{error}");
    (0..512).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "block {block}"));
    run("mount", &["-o", "remount,size=16m", text(&setting.directory.path().join("small"))]);
    volume.detach().unwrap();
    let bytes = std::fs::read(&setting.config.backend).unwrap();
    (0..512).for_each(|block| assert!(bytes[(block * BLOCK) as usize..].starts_with(&content(block))));
}

/// The flash fails on what reads bring in, while acknowledged writes wait in memory: they are not on it, and detaching saves them.
#[test]
fn what_only_memory_holds_when_the_flash_fails_is_written_back_by_detaching() {
    let mut setting = Setting::new(2);
    setting.config.flash = setting.sparse("cache.img", 8 * MIB);
    File::create(&setting.config.backend).unwrap().set_len(64 * MIB).unwrap();
    let volume = setting.open();
    // Some that the flash holds durably, older and newer.
    (0..100).for_each(|block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    (80..200).for_each(|block| ask(&volume, Operation::Write, block * BLOCK, BLOCK, vec![7; 4096]).map(drop).unwrap());
    for block in 300..4_000 {
        assert!(read(&volume, block) == Ok(vec![0; BLOCK as usize]));
    }
    let status = volume.status();
    assert_eq!((status.state.as_str(), status.buffered_blocks), ("flash-failed", 120));
    assert_eq!(write(&volume, 5_000), Err(Error::Io));
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((volume.status().state.as_str(), volume.dirty_blocks()), ("detached", 0));
    let backend = File::open(&setting.config.backend).unwrap();
    for block in 0..200 {
        let mut bytes = vec![0; BLOCK as usize];
        backend.read_exact_at(&mut bytes, block * BLOCK).unwrap();
        assert!(bytes == if block < 80 { content(block) } else { vec![7; 4096] }, "block {block}");
        assert!(read(&volume, block) == Ok(bytes));
    }
    write(&volume, 5_000).unwrap();
    assert!(read(&volume, 5_000) == Ok(content(5_000)));
}
