//! Backends and flash that run out of space or fail: the errors that clients see, and the state of their data. Needs
//! root, for tmpfs and loop devices.

mod broken_flash;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, mpsc};

use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::Settings;
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::layout::{CacheLayout, LAYOUTS};
use flashwise_storage::status::VolumeState;
use flashwise_storage::volume::{Volume, VolumeConfig, VolumeError};
use flashwise_testing::mounted::{Device, Mount, run, text};
use flashwise_testing::waiting::wait_until;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A directory for a backend and a flash; either can be on a small tmpfs.
struct Setting {
    /// Unmounted before the directory goes.
    mounts: Vec<Mount>,
    directory: tempfile::TempDir,
    config: VolumeConfig,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let config = VolumeConfig {
            flash_size_bytes: Some(8 * MIB),
            cache: Settings::of(&[
                ("erase-unit", "256KiB"),
                ("ram", "4MiB"),
                ("policy", "lru"),
                ("dirty-high", "90%"),
                ("dirty-low", "80%"),
                ("commit-age", "15min"),
                ("sequential-bypass", "0"),
            ])
            .unwrap(),
            ..VolumeConfig::of("v", &path.join("disk.img"), &path.join("cache.img"))
        };
        Setting { mounts: Vec::new(), directory, config }
    }

    /// A file of `size` bytes without space of its own yet, on a tmpfs of its own with room for `mib` MiB.
    fn on_tmpfs(&mut self, name: &str, size: u64, mib: u64) -> PathBuf {
        let at = self.directory.path().join(name);
        self.mounts.push(Mount::with(&["-t", "tmpfs", "-o", &format!("size={mib}m"), name], &at).unwrap());
        let path = at.join("file");
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Gives the tmpfs of that name more room.
    fn enlarge(&self, name: &str) {
        run("mount", &["-o", "remount,size=16m", text(&self.directory.path().join(name))]);
    }

    fn open(&self) -> Arc<Volume> {
        Volume::open(self.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}")).0
    }
}

fn ask(volume: &Volume, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
    submit(volume, Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() })
}

fn submit(volume: &Volume, request: Request) -> Result<Vec<u8>, Error> {
    let (sender, receiver) = mpsc::channel();
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
        let mut setting = Setting::new();
        setting.config.backend = setting.on_tmpfs("backend", 8 * MIB, 1);
        setting.config.cache.read("write-mode", mode.name()).unwrap();
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
        setting.enlarge("backend");
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
fn blocks_stay_on_flash_while_the_backend_is_full() {
    let mut setting = Setting::new();
    setting.config.backend = setting.on_tmpfs("backend", 8 * MIB, 1);
    let volume = setting.open();
    (0..512).for_each(|block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    let error = volume.detach().expect_err("the backend is full");
    assert!(matches!(error, VolumeError::NotDestaged { .. }), "{error}");
    // It goes on as before: with its flash, and in its mode, and says why.
    let reason = volume.status().state_reason.unwrap_or_default();
    assert!(reason.contains("the flash was not detached: "), "{reason}");
    assert_eq!((volume.status().state, volume.status().write_mode.as_str()), (VolumeState::Ok, "write-back"));
    (600..700).for_each(|block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    (600..700).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "block {block}"));
    (0..512).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "block {block}"));
    setting.enlarge("backend");
    volume.detach().unwrap();
    let bytes = std::fs::read(&setting.config.backend).unwrap();
    (0..512).for_each(|block| assert!(bytes[(block * BLOCK) as usize..].starts_with(&content(block))));
}

const NEWER: [u8; BLOCK as usize] = [7; BLOCK as usize];

/// Creates a volume whose flash failed while it cached reads. The first `durable` blocks are durable. Another 120
/// blocks are [`NEWER`] and only in memory; 20 of these are among the durable ones.
fn flash_that_failed(setting: &mut Setting, durable: u64) -> Arc<Volume> {
    setting.config.flash = setting.on_tmpfs("flash", 8 * MIB, 2);
    let volume = setting.open();
    (0..durable).for_each(|block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    let newer = durable - 20..durable + 100;
    newer.for_each(|block| drop(ask(&volume, Operation::Write, block * BLOCK, BLOCK, NEWER.to_vec()).unwrap()));
    for block in 1_000..4_700 {
        assert!(read(&volume, block) == Ok(vec![0; BLOCK as usize]));
    }
    let status = volume.status();
    assert_eq!((status.state, status.buffered_blocks), (VolumeState::FlashFailed, 120));
    volume
}

/// The flash has no space for blocks read or written through, so it never has the only copy of a block.
#[test]
fn a_volume_with_nothing_dirty_goes_on_without_a_flash_that_fails() {
    for (mode, reads) in
        [(Mode::WriteThrough, false), (Mode::WriteThrough, true), (Mode::WriteAround, true), (Mode::WriteBack, true)]
    {
        let mut setting = Setting::new();
        File::create(&setting.config.backend).unwrap().set_len(64 * MIB).unwrap();
        setting.config.cache.read("write-mode", mode.name()).unwrap();
        setting.config.cache.read("ram", "0").unwrap();
        setting.config.flash = setting.on_tmpfs("flash", 8 * MIB, 2);
        let volume = setting.open();
        for block in 0..1_200 {
            match reads {
                true => assert!(read(&volume, block) == Ok(vec![0; BLOCK as usize]), "{mode:?}, block {block}"),
                false => write(&volume, block).unwrap_or_else(|error| panic!("{mode:?}, block {block}: {error}")),
            }
            if block % 100 == 0 {
                volume.flush().unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            }
        }
        let is_without = || volume.status().state == VolumeState::WithoutFlash;
        wait_until(&format!("{mode:?}: the volume goes on without its flash"), is_without);
        assert!(volume.status().state_reason.unwrap().contains("flash: "));
        (0..300).for_each(|block| write(&volume, block).unwrap());
        volume.flush().unwrap();
        volume.close().unwrap();
        drop(volume);
        // The flash has old data, and the backend's record shows that.
        setting.enlarge("flash");
        let (volume, opened) =
            Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        assert!(opened.formatted, "{opened:?}");
        (0..300).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "{mode:?}, block {block}"));
    }
}

/// The flash fails on what reads bring in, while acknowledged writes wait in memory: they are not on it, and detaching
/// saves them.
#[test]
fn a_detach_writes_back_blocks_that_only_memory_has() {
    let mut setting = Setting::new();
    File::create(&setting.config.backend).unwrap().set_len(64 * MIB).unwrap();
    let volume = flash_that_failed(&mut setting, 100);
    assert_eq!(write(&volume, 5_000), Err(Error::Io));
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((volume.status().state, volume.dirty_blocks()), (VolumeState::Detached, 0));
    let backend = File::open(&setting.config.backend).unwrap();
    for block in 0..200 {
        let mut bytes = vec![0; BLOCK as usize];
        backend.read_exact_at(&mut bytes, block * BLOCK).unwrap();
        assert!(bytes == if block < 80 { content(block) } else { NEWER.to_vec() }, "block {block}");
        assert!(read(&volume, block) == Ok(bytes));
    }
    write(&volume, 5_000).unwrap();
    assert!(read(&volume, 5_000) == Ok(content(5_000)));
}

/// The contents of the flash are written back before it is removed, and those of memory only afterwards. Otherwise the
/// next start would accept the flash as current.
#[test]
fn a_flash_that_failed_counts_until_all_that_it_holds_is_written_back_and_not_from_then_on() {
    // The backend has room for 256 blocks.
    for (durable, counts) in [(300, true), (200, false)] {
        let mut setting = Setting::new();
        setting.config.backend = setting.on_tmpfs("backend", 64 * MIB, 1);
        let volume = flash_that_failed(&mut setting, durable);
        match (counts, volume.detach()) {
            (true, Err(VolumeError::NotDestaged { .. })) => assert_eq!(volume.status().state, VolumeState::FlashFailed),
            (false, Ok(0)) => {
                let status = volume.status();
                assert_eq!((status.state, status.lost_blocks), (VolumeState::Detached, Vec::new()));
                assert!(status.state_reason.is_some_and(|reason| reason.contains("wait in memory")));
                volume.flush().expect_err("blocks wait in memory, as the backend is full");
            }
            (_, result) => panic!("{durable} blocks: {result:?}"),
        }
        drop(volume);
        setting.enlarge("backend");
        setting.enlarge("flash");
        let (volume, opened) =
            Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((opened.formatted, opened.detached), (false, !counts), "{durable} blocks");
        for block in 0..durable - 20 {
            assert!(read(&volume, block) == Ok(content(block)), "{durable} blocks: block {block}");
        }
        // Data that was only in memory is lost with the process, unless the backend had space for it.
        for block in durable - 20..durable {
            let expected = if counts { content(block) } else { NEWER.to_vec() };
            assert!(read(&volume, block) == Ok(expected), "{durable} blocks: block {block}");
        }
    }
}

/// The flash fails while a block replaces one that is durable there, and other blocks are in memory. A later start
/// finds the last flushed contents. A detach also saves the blocks that could not be written.
#[test]
fn a_failed_flash_has_flushed_data_and_memory_the_rest() {
    for detaches in [false, true] {
        let mut setting = Setting::new();
        setting.config.flash = setting.on_tmpfs("flash", 8 * MIB, 1);
        File::create(&setting.config.backend).unwrap().set_len(64 * MIB).unwrap();
        let volume = setting.open();
        write(&volume, 20).unwrap();
        let written = (0..1_000).take_while(|&version| {
            let (operation, data) = (Operation::Write, content(version));
            let request = Request {
                operation,
                offset: version % 10 * BLOCK,
                length: BLOCK,
                force_unit_access: true,
                data,
                caching: Default::default(),
            };
            submit(&volume, request).is_ok()
        });
        let written = written.count() as u64;
        assert!((50..=128).contains(&written), "{written} segments of two blocks fit into 1 MiB");
        assert_eq!((volume.status().buffered_blocks, volume.status().lost_blocks), (1, vec![]));
        assert!(volume.status().state_reason.unwrap().contains("1 answered blocks wait in memory"));
        assert!(read(&volume, written % 10) == Ok(content(written)), "it is in memory");
        let newest = if detaches { written - 9..written + 1 } else { written - 10..written };
        if detaches {
            assert_eq!(volume.detach().unwrap(), 0);
            assert_eq!((volume.status().state, volume.status().lost_blocks), (VolumeState::Detached, vec![]));
            assert!(read(&volume, 20) == Ok(content(20)));
            newest.clone().for_each(|version| assert!(read(&volume, version % 10) == Ok(content(version))));
        }
        drop(volume);
        setting.enlarge("flash");
        let (volume, opened) =
            Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((opened.formatted, opened.detached), (false, detaches));
        for version in newest {
            assert!(read(&volume, version % 10) == Ok(content(version)), "version {version}");
        }
    }
}

/// A device that fails some operations while the file `broken` exists: nbdkit with its error filter, as a loop device.
struct Breakable {
    device: Device,
    _nbdkit: Nbdkit,
    broken: PathBuf,
}

/// Ends after the device over it.
struct Nbdkit(Child);

impl Breakable {
    /// `error`: how often what fails, as the filter has it.
    fn new(directory: &Path, error: &str) -> Breakable {
        let (socket, broken) = (directory.join("nbd.sock"), directory.join("broken"));
        let nbdkit = Command::new("nbdkit")
            .args(["--foreground", "--unix", text(&socket), "--filter=error", "memory", "64M", "error=EIO", error])
            .arg(format!("error-file={}", broken.display()))
            .spawn()
            .expect("nbdkit runs");
        wait_until("nbdkit listens", || socket.exists());
        let device = Device::new(directory, &format!("nbd+unix:///?socket={}", socket.display()));
        Breakable { device, _nbdkit: Nbdkit(nbdkit), broken }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_backend_that_fails_for_good_is_called_failed_with_the_reason_until_it_works_again() {
    let mut setting = Setting::new();
    let backend = Breakable::new(setting.directory.path(), "error-rate=100%");
    setting.config.backend = backend.device.device.clone().into();
    // The file behind it keeps no attributes.
    setting.config.backend_id = Some("breakable".to_owned());
    setting.config.state_directory = setting.directory.path().join("state");
    setting.config.cache.read("write-mode", "write-through").unwrap();
    let volume = setting.open();
    write(&volume, 1).unwrap();
    assert_eq!((volume.status().state, volume.status().state_reason), (VolumeState::Ok, None));

    File::create(&backend.broken).unwrap();
    wait_until("the backend is called failed", || {
        let is_failed = volume.status().state == VolumeState::BackendFailed;
        assert!(is_failed || write(&volume, 2) == Err(Error::Io));
        is_failed
    });
    let reason = volume.status().state_reason.unwrap();
    let expected = "backend: all writes have failed for ";
    assert!(reason.starts_with(expected) && reason.contains(text(&setting.config.backend)), "{reason}");
    assert!(reason.contains("Input/output error") || reason.contains("I/O error"), "{reason}");
    assert!(read(&volume, 1) == Ok(content(1)), "what is cached is served");

    std::fs::remove_file(&backend.broken).unwrap();
    write(&volume, 2).unwrap();
    assert_eq!((volume.status().state, volume.status().state_reason), (VolumeState::Ok, None));
    assert!(read(&volume, 2) == Ok(content(2)));
}

#[test]
fn a_start_reports_an_incomplete_last_block_of_the_backend() {
    let setting = Setting::new();
    File::create(&setting.config.backend).unwrap().set_len(8 * MIB + 512).unwrap();
    let (volume, opened) = Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(volume.size(), 8 * MIB);
    let expected = format!(
        "{}: found 8389120 bytes, which is not a multiple of 4096; the last 512 bytes are not part of the volume",
        setting.config.backend.display()
    );
    assert!(opened.notes.contains(&expected), "{:?}", opened.notes);
}
