//! Volumes over real files: what they promise when they are closed, killed, moved, mistaken for others, and given up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};

use flashwise_core::cache::settings::Settings;
use flashwise_core::cache::{Cache, Mode};
use flashwise_core::filter::Caching;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::volume::{Opened, Volume, VolumeConfig, VolumeError};
use flashwise_testing::waiting::wait_until;

const MIB: u64 = 1 << 20;

fn config(directory: &Path) -> VolumeConfig {
    VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        cache: Settings::of(&[
            ("erase-unit", "256KiB"),
            ("ram", "1MiB"),
            ("policy", "lru"),
            ("sequential-bypass", "0"),
        ])
        .unwrap(),
        ..VolumeConfig::of("v", &directory.join("disk.img"), &directory.join("cache.img"))
    }
}

struct Setting {
    directory: tempfile::TempDir,
    config: VolumeConfig,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("disk.img")).unwrap().set_len(64 * MIB).unwrap();
        let config = config(directory.path());
        Setting { directory, config }
    }

    fn open(&self) -> (Arc<Volume>, Opened) {
        Volume::open(self.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refusal(&self) -> String {
        Volume::open(self.config.clone(), &|_, _| ()).err().expect("the volume is refused").to_string()
    }

    fn backend(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        File::open(&self.config.backend).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }
}

fn ask(
    volume: &Volume,
    operation: Operation,
    offset: u64,
    length: u64,
    data: Vec<u8>,
    durable: bool,
) -> Result<Vec<u8>, Error> {
    let (sender, receiver) = mpsc::channel();
    let request = Request { operation, offset, length, force_unit_access: durable, data, caching: Default::default() };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

fn write(volume: &Volume, offset: u64, data: &[u8]) {
    ask(volume, Operation::Write, offset, data.len() as u64, data.to_vec(), false).unwrap();
}

fn read(volume: &Volume, offset: u64, length: u64) -> Vec<u8> {
    ask(volume, Operation::Read, offset, length, Vec::new(), false).unwrap()
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 512) as u8 ^ seed ^ (at as u8)).collect()
}

/// The count of flash writes is one over all starts, and that of a flash whose rule has no budget is not kept.
#[test]
fn the_count_of_flash_writes_goes_on_after_a_restart() {
    let mut setting = Setting::new();
    let state = setting.directory.path().join("state");
    setting.config.state_directory = state.clone();
    let files = || std::fs::read_dir(&state).map_or(0, |files| files.count());
    let (volume, _) = setting.open();
    write(&volume, 0, &pattern(1, 4096));
    assert_eq!(volume.status().write_budget, None);
    volume.close().unwrap();
    drop(volume);
    assert_eq!(files(), 0);
    setting.config.drive_writes_per_day = Some(2.0);
    let mut before = 0;
    for start in 1..=3 {
        let (volume, _) = setting.open();
        let budget = volume.status().write_budget.unwrap();
        assert_eq!((budget.life_bytes, budget.source.as_str()), (before, "flashwise"), "start {start}");
        write(&volume, 0, &pattern(start, 1 << 20));
        volume.flush().unwrap();
        let written = volume.status().flash_bytes_written;
        assert!(written >= 1 << 20);
        volume.close().unwrap();
        assert_eq!(files(), 1);
        before += volume.status().flash_bytes_written;
    }
}

#[test]
fn a_clean_shutdown_keeps_the_cache_warm() {
    let setting = Setting::new();
    let data = pattern(7, 700_001);
    let (volume, opened) = setting.open();
    assert!(opened.formatted);
    write(&volume, 12_345, &data);
    assert_eq!(read(&volume, 12_345, data.len() as u64), data);
    volume.close().unwrap();
    assert_eq!(ask(&volume, Operation::Read, 0, 512, Vec::new(), false), Err(Error::ShuttingDown));
    drop(volume);
    let (volume, opened) = setting.open();
    assert!(!opened.formatted && !opened.crashed && opened.lost_blocks == 0, "{opened:?}");
    // 700,001 bytes from 12,345 on touch blocks 3 to 173.
    assert_eq!((opened.cached_blocks, opened.dirty_blocks), (171, 171));
    assert_eq!(read(&volume, 12_345, data.len() as u64), data);
    assert_eq!(volume.with_cache(|cache| cache.figures().flash_read_hits), 171);
}

#[test]
fn flushed_data_survives_the_process() {
    let setting = Setting::new();
    let (volume, _) = setting.open();
    let data = pattern(1, 1 << 20);
    write(&volume, 0, &data);
    volume.flush().unwrap();
    ask(&volume, Operation::Write, 8 * MIB, 4096, pattern(2, 4096), true).unwrap();
    // Dropped, not closed: nothing is written any more.
    drop(volume);
    let (volume, opened) = setting.open();
    assert!(opened.crashed);
    assert_eq!(read(&volume, 0, 1 << 20), data);
    assert_eq!(read(&volume, 8 * MIB, 4096), pattern(2, 4096));
}

#[test]
fn after_a_detach_the_backend_is_complete_and_the_volume_continues() {
    let setting = Setting::new();
    let (volume, _) = setting.open();
    let data = pattern(3, 6 << 20);
    write(&volume, 0, &data);
    assert_ne!(setting.backend(0, data.len()), data);
    volume.detach().unwrap();
    assert_eq!(setting.backend(0, data.len()), data);
    assert_eq!(read(&volume, 0, data.len() as u64), data);
    // The flash is free: another process could lock it.
    drop(FileDisk::open(&setting.config.flash, Options::default()).unwrap());
    let status = volume.status();
    assert_eq!((status.reads, status.writes), (1536, 1536), "figures go on");
    write(&volume, 4096, &pattern(4, 8192));
    volume.flush().unwrap();
    assert_eq!(setting.backend(4096, 8192), pattern(4, 8192));
    volume.close().unwrap();
    drop(volume);
    let (volume, opened) = setting.open();
    assert!(opened.detached, "a detach lasts");
    assert_eq!(read(&volume, 4096, 8192), pattern(4, 8192));
    volume.attach().unwrap();
    volume.close().unwrap();
    drop(volume);
    let (volume, opened) = setting.open();
    assert!(opened.formatted, "a cache that is attached again is empty");
    assert_eq!(read(&volume, 4096, 8192), pattern(4, 8192));
}

/// A volume changes from write-back to write-through. From then on, acknowledged data is on the backend: old dirty
/// copies must not reappear.
#[test]
fn writes_in_write_through_survive_a_kill_after_a_change_of_mode() {
    for mode in ["write-through", "write-around"] {
        let setting = Setting::new();
        let (volume, _) = setting.open();
        write(&volume, 0, &pattern(1, 64 << 10));
        volume.flush().unwrap();
        volume.change(&Settings::of(&[("write-mode", mode)]).unwrap()).unwrap();
        write(&volume, 0, &pattern(2, 16 << 10));
        write(&volume, 20_000, &pattern(3, 1000));
        let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
        ask(&volume, zeroes, 32 << 10, 16 << 10, Vec::new(), false).unwrap();
        let expected = read(&volume, 0, 64 << 10);
        // Dropped, not closed.
        drop(volume);
        let (volume, _) = setting.open();
        assert!(read(&volume, 0, 64 << 10) == expected, "{mode}");
        volume.detach().unwrap();
        assert!(setting.backend(0, 64 << 10) == expected, "{mode}");
    }
}

/// Data written through or past the flash is on the backend when it is acknowledged, even over dirty blocks; so are
/// zeroes. No crash brings back the flash's old content.
#[test]
fn writes_in_write_through_reach_the_backend_over_dirty_blocks() {
    let setting = Setting::new();
    let (volume, _) = setting.open();
    let block = 4096_u64;
    let of = |fill: u8| vec![fill; 16 * block as usize];
    (0..4).for_each(|part| write(&volume, part * 16 * block, &of(1)));
    volume.flush().unwrap();
    assert_eq!(volume.status().dirty_blocks, 64);
    let (offset, length) = (|part: u64| part * 16 * block, 16 * block);
    for (part, caching) in [(0, Caching::Through), (1, Caching::Never)] {
        for fill in [2, 3] {
            let (sender, receiver) = mpsc::channel();
            let (operation, force_unit_access) = (Operation::Write, false);
            let request =
                Request { operation, offset: offset(part), length, force_unit_access, data: of(fill), caching };
            volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
            receiver.recv().unwrap().unwrap();
            assert_eq!(setting.backend(offset(part), length as usize), of(fill), "{caching:?}");
        }
    }
    ask(&volume, Operation::Trim, offset(2), length, Vec::new(), false).unwrap();
    let expected = |part: u64| of([3, 3, 0, 1][part as usize]);
    (0..4).for_each(|part| assert_eq!(read(&volume, offset(part), length), expected(part), "part {part}"));
    volume.flush().unwrap();
    (0..4).for_each(|part| assert_eq!(read(&volume, offset(part), length), expected(part), "part {part}"));
    // Dropped, not closed.
    drop(volume);
    (0..3).for_each(|part| assert_eq!(setting.backend(offset(part), length as usize), expected(part), "part {part}"));
    let (volume, _) = setting.open();
    (0..4).for_each(|part| assert_eq!(read(&volume, offset(part), length), expected(part), "part {part}"));
}

/// In this mode nothing may be only on the flash. After some time, even the unit being filled has no dirty blocks.
#[test]
fn nothing_stays_dirty_where_nothing_may() {
    let no_dirty: [&[(&str, &str)]; 2] =
        [&[("write-mode", "write-through")], &[("dirty-low", "0"), ("dirty-high", "0")]];
    for settings in no_dirty {
        let mut setting = Setting::new();
        setting.config.cache.read("dirty-age", "365d").unwrap();
        let (volume, _) = setting.open();
        write(&volume, 0, &pattern(1, 10 * 4096));
        volume.close().unwrap();
        drop(volume);
        settings.iter().for_each(|(key, value)| setting.config.cache.read(key, value).unwrap());
        let (volume, opened) = setting.open();
        assert_eq!(opened.dirty_blocks, 10);
        write(&volume, MIB, &pattern(2, 10 * 4096));
        wait_until(&format!("{settings:?}: nothing is dirty"), || volume.status().dirty_blocks == 0);
        assert_eq!(setting.backend(0, 10 * 4096), pattern(1, 10 * 4096));
    }
}

#[test]
fn zeroes_and_holes_are_reported_and_cached_data_is_data() {
    let setting = Setting::new();
    let (volume, _) = setting.open();
    write(&volume, MIB, &pattern(5, 8192));
    let extents = volume.extents(0, 4 * MIB, 10).unwrap();
    let told: Vec<(u64, bool)> = extents.iter().map(|extent| (extent.length, extent.hole)).collect();
    assert_eq!(told, [(MIB, true), (8192, false), (3 * MIB - 8192, true)]);
    let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
    ask(&volume, zeroes, MIB + 100, 5000, Vec::new(), false).unwrap();
    let mut expected = pattern(5, 8192);
    expected[100..5100].fill(0);
    assert_eq!(read(&volume, MIB, 8192), expected);
    ask(&volume, Operation::Trim, MIB, 8192, Vec::new(), true).unwrap();
    assert_eq!(read(&volume, MIB, 8192), [0; 8192]);
}

#[test]
fn a_cache_is_not_used_twice_nor_with_another_backend_nor_cut_short() {
    let mut setting = Setting::new();
    let (volume, _) = setting.open();
    assert!(setting.refusal().contains("in use by another process"), "{}", setting.refusal());
    volume.close().unwrap();
    drop(volume);

    let other = setting.directory.path().join("other.img");
    File::create(&other).unwrap().set_len(64 * MIB).unwrap();
    let own = std::mem::replace(&mut setting.config.backend, other);
    assert!(setting.refusal().contains("found a cache of another backend"), "{}", setting.refusal());
    setting.config.backend = own;

    setting.config.flash_size_bytes = Some(4 * MIB);
    assert!(setting.refusal().contains("keep the old flash size"), "{}", setting.refusal());
    setting.config.flash_size_bytes = Some(8 * MIB);
    setting.config.cache.read("erase-unit", "128KiB").unwrap();
    assert!(setting.refusal().contains("keep the old erase unit"), "{}", setting.refusal());
    setting.config.cache.read("erase-unit", "256KiB").unwrap();
    setting.config.size_bytes = Some(32 * MIB);
    assert!(setting.refusal().contains("keep the old volume size"), "{}", setting.refusal());
    setting.config.size_bytes = Some(65 * MIB);
    assert!(setting.refusal().contains("expected at least 68157440, the size of the volume"), "{}", setting.refusal());
    setting.config.size_bytes = None;
    setting.open();
}

#[test]
fn flash_with_other_contents_stays_unchanged() {
    let mut setting = Setting::new();
    std::fs::write(&setting.config.flash, vec![7; 8 << 20]).unwrap();
    assert!(setting.refusal().contains("found data that is not a cache"), "{}", setting.refusal());
    assert!(std::fs::read(&setting.config.flash).unwrap().iter().all(|&byte| byte == 7));
    setting.config.flash_size_bytes = Some(2 * MIB);
    assert!(matches!(Volume::open(setting.config.clone(), &|_, _| ()), Err(VolumeError::FlashTooSmall { .. })));
}

#[test]
fn a_newer_format_is_called_by_its_name() {
    let setting = Setting::new();
    setting.open().0.close().unwrap();
    let file = File::options().read(true).write(true).open(&setting.config.flash).unwrap();
    for page in [0, 4096] {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, page).unwrap();
        bytes[12] = 10;
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&bytes, page).unwrap();
    }
    assert!(
        setting.refusal().contains("it has format version 10; this program reads versions 1 to 9"),
        "{}",
        setting.refusal()
    );
}

#[test]
fn a_volume_grows_with_its_backend() {
    let mut setting = Setting::new();
    setting.config.size_bytes = Some(64 * MIB);
    let (volume, _) = setting.open();
    assert!(volume.resize(128 * MIB).is_err());
    File::options().write(true).open(&setting.config.backend).unwrap().set_len(128 * MIB).unwrap();
    assert_eq!(volume.resize(128 * MIB).unwrap(), 128 * MIB);
    write(&volume, 127 * MIB, &pattern(9, 1 << 20));
    volume.detach().unwrap();
    assert_eq!(setting.backend(127 * MIB, 1 << 20), pattern(9, 1 << 20));
}

/// Writes past the flash wait for the epochs before them. A change of mode, growth and a detach keep the order.
#[test]
fn an_ordered_volume_grows_changes_its_mode_and_is_detached() {
    let mut setting = Setting::new();
    setting.config.size_bytes = Some(64 * MIB);
    setting.config.cache.read("write-back-order", "barriers").unwrap();
    // Epochs end by flushes only.
    setting.config.cache.read("commit-age", "1h").unwrap();
    let (volume, _) = setting.open();
    let put = |offset: u64, seed: u8| write(&volume, offset, &pattern(seed, 4096));
    let put_durably = |offset: u64, seed: u8| {
        put(offset, seed);
        ask(&volume, Operation::Flush, 0, 0, Vec::new(), false).unwrap();
    };
    let has = |offset: u64, seed: u8| setting.backend(offset, 4096) == pattern(seed, 4096);
    let mode = |mode| volume.change(&Settings::of(&[("write-mode", mode)]).unwrap()).unwrap();
    put(0, 1);
    put(MIB, 2);
    File::options().write(true).open(&setting.config.backend).unwrap().set_len(128 * MIB).unwrap();
    assert_eq!(volume.resize(128 * MIB).unwrap(), 128 * MIB);
    put(127 * MIB, 3);
    put(0, 4);
    assert!(!has(0, 1) && !has(0, 4) && !has(127 * MIB, 3), "they are dirty");
    let backend = volume.status().backend_state.unwrap();
    assert!(backend.is_consistent && backend.newer_blocks >= 3, "{backend:?}");
    for (name, seed) in [("write-through", 5), ("write-around", 6)] {
        mode("write-back");
        put_durably(MIB, seed + 10);
        mode(name);
        write(&volume, 2 * MIB, &pattern(seed, 4096));
        assert!(has(2 * MIB, seed), "{name}");
        assert!(has(MIB, seed + 10) && has(127 * MIB, 3) && has(0, 4), "{name}: nothing overtakes an older epoch");
    }
    mode("write-back");
    put(3 * MIB, 7);
    put(3 * MIB, 8);
    assert!(!has(3 * MIB, 7) && !has(3 * MIB, 8));
    volume.detach().unwrap();
    assert!(has(3 * MIB, 8));
    assert_eq!(volume.status().backend_state, None);
}

#[test]
fn a_volume_without_a_size_of_its_own_follows_its_backend() {
    let setting = Setting::new();
    let (volume, _) = setting.open();
    File::options().write(true).open(&setting.config.backend).unwrap().set_len(96 * MIB).unwrap();
    wait_until("the volume has grown", || volume.size() == 96 * MIB);
    write(&volume, 95 * MIB, &pattern(8, 4096));
    assert_eq!(read(&volume, 95 * MIB, 4096), pattern(8, 4096));
}

/// Many threads, each on blocks of its own, while the log turns over several times and everything is checked at the
/// end.
#[test]
fn reads_of_flash_do_not_wait_for_the_backend() {
    let mut setting = Setting::new();
    setting.config.cache.read("ram", "0").unwrap();
    let (volume, _) = setting.open();
    let data = pattern(6, 2 << 20);
    write(&volume, 0, &data);
    volume.flush().unwrap();
    let ask_and_wait = |offset| {
        let (sender, receiver) = mpsc::channel();
        let request = Request {
            operation: Operation::Read,
            offset,
            length: 4096,
            force_unit_access: false,
            data: Vec::new(),
            caching: Default::default(),
        };
        let waited = volume.submit_and_wait(request, Box::new(move |result| sender.send(result).unwrap()));
        (waited, receiver)
    };
    let mut at_once = 0;
    for offset in (0..MIB).step_by(4096) {
        let (waited, answer) = ask_and_wait(offset);
        // A read that comes with transfers of the volume's own is not waited for.
        let bytes = if waited {
            answer.try_recv().expect("it is answered before this returns")
        } else {
            answer.recv().unwrap()
        };
        assert!(bytes.unwrap() == data[offset as usize..][..4096], "at {offset}");
        at_once += u32::from(waited);
    }
    assert!(at_once > 128, "{at_once} of 256 reads were answered at once");
    assert_eq!(volume.with_cache(|cache| cache.figures().flash_read_hits), 256);
    let (waited, answer) = ask_and_wait(32 * MIB);
    assert!(!waited, "only the backend has this");
    assert_eq!(answer.recv().unwrap().unwrap(), vec![0; 4096]);
}

/// A client that makes one request at a time writes to the page cache itself, but not to a slow backend.
#[test]
fn who_waits_writes_through_to_the_page_cache_and_to_no_slow_backend() {
    for backend_delay_us in [0, 1_000] {
        let mut setting = Setting::new();
        setting.config.cache.read("ram", "0").unwrap();
        setting.config.cache.read("write-mode", "write-through").unwrap();
        (setting.config.backend_delay_us, setting.config.direct_io) = (backend_delay_us, false);
        let (volume, _) = setting.open();
        let mut waited = 0;
        for block in 0..16 {
            let (sender, receiver) = mpsc::channel();
            let request = Request {
                operation: Operation::Write,
                offset: block * 4096,
                length: 4096,
                force_unit_access: false,
                data: pattern(block as u8, 4096),
                caching: Default::default(),
            };
            let did = volume.submit_and_wait(request, Box::new(move |result| sender.send(result).unwrap()));
            if did {
                receiver.try_recv().expect("it is answered before this returns").unwrap();
            } else {
                receiver.recv().unwrap().unwrap();
            }
            assert!(setting.backend(block * 4096, 4096) == pattern(block as u8, 4096), "block {block}");
            waited += u32::from(did);
        }
        assert_eq!(waited > 8, backend_delay_us == 0, "{waited} of 16 writes");
    }
}

/// More writes than steps may be under way, before a slow backend, and at the end one that is read before it can have
/// begun.
#[test]
fn a_read_sees_the_write_before_it_however_many_wait() {
    let mut setting = Setting::new();
    setting.config.cache.read("write-mode", "write-around").unwrap();
    setting.config.backend_delay_us = 2_000;
    let (volume, _) = setting.open();
    let (sender, receiver) = mpsc::channel();
    let submit = |operation, offset, length, data| {
        let sender = sender.clone();
        let request =
            Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() };
        volume.submit(request, Box::new(move |result| sender.send((operation, result)).unwrap()));
    };
    let length = 256 << 10;
    for at in 0..240_u64 {
        submit(Operation::Write, at % 200 * length, length, pattern(at as u8, length as usize));
    }
    let last = pattern(201, 4096);
    submit(Operation::Write, 60 * MIB, 4096, last.clone());
    submit(Operation::Read, 60 * MIB, 4096, Vec::new());
    drop(sender);
    let answers: Vec<_> = receiver.iter().take(242).collect();
    assert!(answers.iter().all(|(_, result)| result.is_ok()));
    let read = answers.iter().find(|(operation, _)| *operation == Operation::Read).unwrap();
    assert!(read.1.as_ref().unwrap() == &last, "the read has passed the write");
}

#[test]
fn concurrent_clients_read_their_own_writes() {
    for write_mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let mut setting = Setting::new();
        setting.config.cache.read("write-mode", write_mode.name()).unwrap();
        let (volume, _) = setting.open();
        let last: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let client = |client: u64| {
                let volume = &volume;
                move || {
                    let mut last = vec![0; 200 * 4096];
                    for round in 0..600_u64 {
                        let at = (round * 7919 + client * 31) % 199 * 4096 + round % 3 * 512;
                        let data = pattern((round ^ client) as u8, 4096);
                        let durable = round % 97 == 0;
                        ask(volume, Operation::Write, client * 4 * MIB + at, 4096, data.clone(), durable).unwrap();
                        last[at as usize..at as usize + 4096].copy_from_slice(&data);
                        if round % 5 == 0 {
                            assert_eq!(read(volume, client * 4 * MIB + at, 4096), data);
                        }
                    }
                    last
                }
            };
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(client(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (client, expected) in (0..).zip(&last) {
            assert!(read(&volume, client * 4 * MIB, 200 * 4096) == *expected, "client {client}, {write_mode:?}");
        }
        volume.detach().unwrap();
        for (client, expected) in (0..).zip(&last) {
            assert!(setting.backend(client * 4 * MIB, 200 * 4096) == *expected, "client {client}, {write_mode:?}");
        }
    }
}
