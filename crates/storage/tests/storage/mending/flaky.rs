//! A volume of buckets over a backend that fails for a while.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::identity::Identity;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::zoned::zoning::Zoning;
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::layout::LAYOUTS;
use flashwise_storage::status::VolumeState;
use flashwise_storage::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::virtual_time::{self, pass};
use flashwise_testing::waiting::wait_until;

use crate::pool::in_order::perform;

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK_BYTES]
}

/// A backend that cannot be written while that is asked for.
struct Flaky {
    disk: MemoryDisk,
    fails: AtomicBool,
    fails_flushes: AtomicBool,
    fails_reads: AtomicBool,
}

impl Flaky {
    fn may_write(&self) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) { Err(io::Error::other("it fails")) } else { Ok(()) }
    }
}

impl Disk for Flaky {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        "flaky".to_owned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.fails_reads.load(Ordering::SeqCst) {
            return Err(io::Error::other("no read"));
        }
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.may_write()?;
        self.disk.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        if self.fails_flushes.load(Ordering::SeqCst) { Err(io::Error::other("no flush")) } else { self.disk.sync() }
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.may_write()?;
        self.disk.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}

const MIB: u64 = 1 << 20;

impl Flaky {
    fn new(fails: bool) -> Arc<Flaky> {
        let disk = MemoryDisk::new(16 * MIB as usize);
        let (fails_flushes, fails_reads) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Flaky { disk, fails: AtomicBool::new(fails), fails_flushes, fails_reads })
    }

    /// A volume behind which it is.
    fn volume(self: &Arc<Self>, config: VolumeConfig) -> Arc<Volume> {
        let storage = Storage {
            disk: self.clone(),
            identity: Identity { id: [9; 16], description: "a backend in memory".to_owned() },
            side: Box::new(MemorySide::default()),
            notes: Vec::new(),
        };
        Volume::open_on(config, storage, &|_, _| ()).unwrap_or_else(|error| panic!("{error}")).0
    }
}

/// A volume with a log on a flash of 1 MiB.
fn small_log(directory: &tempfile::TempDir) -> VolumeConfig {
    VolumeConfig {
        flash_size_bytes: Some(MIB),
        cache: Settings::of(&[("erase-unit", "64KiB"), ("ram", "256KiB"), ("policy", "lru")]).unwrap(),
        ..VolumeConfig::of("v", Path::new("flaky"), &directory.path().join("cache.img"))
    }
}

/// A volume with 31 buckets of 256 KiB.
fn small_buckets(directory: &tempfile::TempDir) -> VolumeConfig {
    VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        layout: LAYOUTS[1].1,
        cache: Settings::of(&[("erase-unit", "256KiB"), ("ram", "0")]).unwrap(),
        ..VolumeConfig::of("v", Path::new("flaky"), &directory.path().join("cache.img"))
    }
}

/// Asks for a block, or for a flush.
fn ask(volume: &Volume, operation: Operation, at: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
    submit(volume, operation, at, data).recv().unwrap()
}

/// As [`ask`]; the answer comes some time.
fn submit(volume: &Volume, operation: Operation, at: u64, data: Vec<u8>) -> mpsc::Receiver<Result<Vec<u8>, Error>> {
    let (sender, receiver) = mpsc::channel();
    let length = if operation == Operation::Flush { 0 } else { BLOCK_BYTES as u64 };
    let (offset, caching) = (at * BLOCK_BYTES as u64, Default::default());
    let request = Request { operation, offset, length, force_unit_access: false, data, caching };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver
}

/// Clients of a volume hear nothing of a backend that cannot be written, while the cache has room; the status does.
#[test]
fn a_volume_goes_on_while_its_backend_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(false);
    let volume = backend.volume(small_buckets(&directory));
    backend.fails.store(true, Ordering::SeqCst);
    // A bucket has room for 32 logs of a block, so that each of these three is evicted several times.
    for number in 0..600_u64 {
        ask(&volume, Operation::Write, number % 180, block(number as u8))
            .unwrap_or_else(|error| panic!("write {number}: {error}"));
        ask(&volume, Operation::Flush, 0, Vec::new()).unwrap_or_else(|error| panic!("flush {number}: {error}"));
    }
    let status = volume.status();
    assert!(status.state_reason.is_some_and(|reason| reason.starts_with("backend: ")), "{:?}", status.state);
    assert_eq!(status.faults.failed_requests, 0);
    for number in 420..600_u64 {
        assert_eq!(ask(&volume, Operation::Read, number % 180, Vec::new()), Ok(block(number as u8)));
    }
    backend.fails.store(false, Ordering::SeqCst);
    wait_until("all is well", || volume.status().state_reason.is_none());
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    let content = backend.disk.contents();
    for number in 420..600 {
        assert_eq!(content[number % 180 * BLOCK_BYTES..][..BLOCK_BYTES], block(number as u8), "block {}", number % 180);
    }
}

/// Blocks that the backend rejected are retried, a few buckets per attempt. A detach waits for all of them, as long as
/// some succeed.
#[test]
fn a_volume_is_detached_once_its_backend_can_be_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(false);
    let volume = backend.volume(small_buckets(&directory));
    let blocks = (0..14).map(|bucket| bucket * 256);
    blocks.clone().for_each(|at| drop(ask(&volume, Operation::Write, at, block(at as u8)).unwrap()));
    ask(&volume, Operation::Flush, 0, Vec::new()).unwrap();
    backend.fails.store(true, Ordering::SeqCst);
    volume.detach().expect_err("the backend cannot be written");
    backend.fails.store(false, Ordering::SeqCst);
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    let content = backend.disk.contents();
    blocks.for_each(|at| assert_eq!(content[at as usize * BLOCK_BYTES..][..BLOCK_BYTES], block(at as u8)));
}

/// The flash is full of dirty blocks that the backend rejects. Acknowledged data stays. Once the failure is known, new
/// writes fail.
#[test]
fn a_log_answers_no_write_that_has_no_place_left() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(true);
    let config = small_log(&directory);
    let volume = backend.volume(config);
    let mut answered: Vec<u64> =
        (0..800).filter(|&at| ask(&volume, Operation::Write, at, block(at as u8)).is_ok()).collect();
    wait_until("it is known to refuse", || {
        let at = 800 + answered.len() as u64;
        let is_answered = ask(&volume, Operation::Write, at, block(at as u8)).is_ok();
        answered.extend(is_answered.then_some(at));
        !is_answered
    });
    let waiting = volume.status().state_reason.unwrap_or_default();
    backend.fails.store(false, Ordering::SeqCst);
    let is_there = |&&at: &&u64| ask(&volume, Operation::Read, at, Vec::new()) == Ok(block(at as u8));
    let there = answered.iter().filter(is_there).count();
    assert!(there == answered.len() && there > 100, "{there} of {} are there; {waiting}", answered.len());
    wait_until("what found no place has one", || volume.status().state_reason.is_none());
    assert_eq!(volume.status().lost_blocks, [0; 0]);
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    let content = backend.disk.contents();
    answered.iter().for_each(|&at| assert_eq!(content[at as usize * BLOCK_BYTES..][..BLOCK_BYTES], block(at as u8)));
}

/// Dirty blocks on flash are written through while the backend fails. The client gets errors. Its data, old and new,
/// stays on the flash and reaches the backend later.
#[test]
fn failed_write_through_leaves_the_flash_valid() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(false);
    let config = small_log(&directory);
    let volume = backend.volume(config.clone());
    (0..40).for_each(|at| drop(ask(&volume, Operation::Write, at, block(1)).unwrap()));
    ask(&volume, Operation::Flush, 0, Vec::new()).unwrap();
    backend.fails.store(true, Ordering::SeqCst);
    for at in 0..20 {
        let (sender, receiver) = mpsc::channel();
        let (operation, offset, length) = (Operation::Write, at * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        let data = block(2);
        let request = Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Through };
        volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().expect_err("the backend cannot be written");
    }
    let zeroes = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: false };
    for at in 20..40 {
        ask(&volume, zeroes, at, Vec::new()).expect_err("the backend cannot be written");
    }
    let read = |volume: &Volume, at| ask(volume, Operation::Read, at, Vec::new()).unwrap()[0];
    let found: Vec<u8> = (0..40).map(|at| read(&volume, at)).collect();
    assert!((0..40).all(|at| [1, if at < 20 { 2 } else { 0 }].contains(&found[at])), "{found:?}");
    assert_eq!(ask(&volume, Operation::Flush, 0, Vec::new()), Ok(Vec::new()));
    assert_eq!(volume.status().lost_blocks, [0; 0]);
    drop(volume);
    backend.fails.store(false, Ordering::SeqCst);
    let volume = backend.volume(config);
    assert_eq!((0..40).map(|at| read(&volume, at)).collect::<Vec<_>>(), found);
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    let content = backend.disk.contents();
    (0..40).for_each(|at| assert_eq!(content[at * BLOCK_BYTES], found[at], "block {at}"));
}

/// A flush of the backend fails and loses its data. Meanwhile a large request is written through over dirty blocks, in
/// several segments. The flash must not mark these blocks as clean, even after a later flush succeeds.
#[test]
fn blocks_of_a_failed_flush_stay_dirty() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(false);
    let config = VolumeConfig {
        flash_size_bytes: Some(4 * MIB),
        cache: Settings::of(&[("erase-unit", "256KiB"), ("ram", "0"), ("policy", "lru"), ("sequential-bypass", "0")])
            .unwrap(),
        ..VolumeConfig::of("v", Path::new("flaky"), &directory.path().join("cache.img"))
    };
    let volume = backend.volume(config);
    let whole = |fill: u8, caching| {
        let (sender, receiver) = mpsc::channel();
        let data = block(fill).repeat(140);
        let (operation, length) = (Operation::Write, data.len() as u64);
        let request = Request { operation, offset: 0, length, force_unit_access: false, data, caching };
        volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap()
    };
    whole(1, Caching::Usual).unwrap();
    ask(&volume, Operation::Flush, 0, Vec::new()).unwrap();
    let before = backend.disk.contents();
    backend.fails_flushes.store(true, Ordering::SeqCst);
    whole(2, Caching::Through).unwrap();
    let flushed = ask(&volume, Operation::Flush, 0, Vec::new());
    backend.fails_flushes.store(false, Ordering::SeqCst);
    flushed.expect_err("the backend cannot be flushed");
    // Data that was not durable is lost.
    backend.disk.write_at(&before, 0).unwrap();
    wait_until("it is flushed", || ask(&volume, Operation::Flush, 0, Vec::new()).is_ok());
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
    let content = backend.disk.contents();
    let old: Vec<usize> = (0..140).filter(|at| ![1, 2].contains(&content[at * BLOCK_BYTES])).collect();
    assert!(old.is_empty(), "blocks {old:?} are neither");
}

/// Blocks stay dirty on flash until the backend was flushed after their write-back. So no client hears of such a flush.
#[test]
fn a_flush_needs_no_backend_that_only_write_back_has_written() {
    for order in ["none", "barriers"] {
        virtual_time::run(1, move || {
            let backend = Flaky::new(false);
            let settings = [("erase-unit", "64KiB"), ("ram", "256KiB"), ("policy", "lru"), ("dirty-high", "0%")];
            let settings: Vec<_> = settings.into_iter().chain([("write-back-order", order)]).collect();
            let volume = backend.volume(VolumeConfig {
                flash_disk: Some(OpenDisk(Arc::new(MemoryDisk::new(MIB as usize)))),
                cache: Settings::of(&settings).unwrap(),
                ..VolumeConfig::of("v", Path::new("flaky"), Path::new("flash"))
            });
            let write = |at: u8| {
                let (operation, offset, length) = (Operation::Write, u64::from(at) * 4096, BLOCK_BYTES as u64);
                let (force_unit_access, data, caching) = (at.is_multiple_of(2), block(at), Default::default());
                perform(&*volume, Request { operation, offset, length, force_unit_access, data, caching })
            };
            // An earlier run may have written to the backend.
            perform(&*volume, Request::flush()).unwrap();
            backend.fails_flushes.store(true, Ordering::SeqCst);
            for at in 0..20 {
                write(at).unwrap();
                perform(&*volume, Request::flush())
                    .unwrap_or_else(|error| panic!("order {order}, block {at}: {error}"));
                pass(Duration::from_secs(2));
            }
            let status = volume.status();
            assert_eq!(status.state, VolumeState::BackendFailed);
            assert!(status.dirty_bytes > 0, "order {order}");
            backend.fails_flushes.store(false, Ordering::SeqCst);
            pass(Duration::from_secs(10));
            assert_eq!((volume.status().dirty_bytes, volume.status().state), (0, VolumeState::Ok));
            volume.close().unwrap();
        });
    }
}

/// Data that waits in memory for space is not durable, so every flush fails. If the server dies, the flushed data
/// stays. A failed write loses no other data.
#[test]
fn no_flush_is_answered_while_something_waits_in_memory() {
    for heals in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let backend = Flaky::new(false);
        let config = small_log(&directory);
        let volume = backend.volume(config.clone());
        let flush = |volume: &Volume| ask(volume, Operation::Flush, 0, Vec::new());
        let write = |at, fill| ask(&volume, Operation::Write, at, block(fill));
        (0..800).for_each(|at| drop(write(at, 1).unwrap()));
        flush(&volume).unwrap();
        backend.fails.store(true, Ordering::SeqCst);
        let waits = || volume.status().state_reason.is_some_and(|reason| reason.contains("wait in memory"));
        // All at once, so that none of it waits until the backend is known to refuse.
        let mut newest = vec![1; 800];
        wait_until("something waits in memory", || {
            let asked: Vec<_> = (0..800).map(|at| submit(&volume, Operation::Write, at, block(2))).collect();
            for (newest, answer) in newest.iter_mut().zip(asked) {
                *newest = if answer.recv().unwrap().is_ok() { 2 } else { *newest };
            }
            drop(flush(&volume));
            waits()
        });
        for _ in 0..3 {
            flush(&volume).expect_err("something waits in memory");
        }
        // Some of these fail: what was answered before is there.
        for (at, newest) in (0..).zip(&mut newest) {
            *newest = if write(at, 3).is_ok() { 3 } else { *newest };
            let read = ask(&volume, Operation::Read, at, Vec::new()).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(read == block(*newest) || read == block(3), "{at}: {}", read[0]);
        }
        backend.fails.store(false, Ordering::SeqCst);
        if heals {
            wait_until("what waited has a place", || flush(&volume).is_ok());
            assert!(!waits());
        }
        drop(volume);
        let volume = backend.volume(config);
        assert_eq!(volume.status().lost_blocks, [0; 0]);
        for (at, newest) in newest.into_iter().enumerate() {
            let read =
                ask(&volume, Operation::Read, at as u64, Vec::new()).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(
                read[0] == newest || read[0] == 3 || !heals && (1..newest).contains(&read[0]),
                "{at}: {} of {newest}",
                read[0]
            );
        }
    }
}

/// Asks for some bytes, as a change that is to be durable or not.
fn change(volume: &Volume, offset: u64, data: Vec<u8>, force_unit_access: bool) -> Result<Vec<u8>, Error> {
    let (sender, receiver) = mpsc::channel();
    let (operation, length) = (Operation::Write, data.len() as u64);
    let request = Request { operation, offset, length, force_unit_access, data, caching: Caching::Through };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

/// Creates a volume with an acknowledged write that bypassed the flash. The next flush of the backend failed; so far,
/// only a write with FUA has reported that.
fn with_a_flush_that_failed(buckets: bool, directory: &tempfile::TempDir) -> Arc<Volume> {
    let backend = Flaky::new(false);
    let volume = backend.volume(if buckets { small_buckets(directory) } else { small_log(directory) });
    change(&volume, 0, long(1), false).unwrap();
    backend.fails_flushes.store(true, Ordering::SeqCst);
    change(&volume, 4 * MIB, long(2), true).expect_err("the backend cannot be flushed");
    backend.fails_flushes.store(false, Ordering::SeqCst);
    volume
}

/// More than a bucket, which goes past the buckets.
fn long(fill: u8) -> Vec<u8> {
    vec![fill; MIB as usize / 2]
}

/// Acknowledged data may be lost: exactly one flush reports that.
fn check_that_one_flush_tells(volume: &Volume, buckets: bool) {
    let flush = || ask(volume, Operation::Flush, 0, Vec::new());
    flush().expect_err("what was answered may be gone");
    assert_eq!(flush(), Ok(Vec::new()), "buckets: {buckets}");
}

#[test]
fn a_write_that_is_to_be_durable_does_not_hear_for_a_flush() {
    for buckets in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let volume = with_a_flush_that_failed(buckets, &directory);
        check_that_one_flush_tells(&volume, buckets);
        change(&volume, 4 * MIB, long(3), true).unwrap();
    }
}

#[test]
fn a_flush_behind_a_detached_flash_tells_of_one_that_failed_before() {
    for buckets in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let volume = with_a_flush_that_failed(buckets, &directory);
        volume.detach().unwrap_or_else(|error| panic!("{error}"));
        check_that_one_flush_tells(&volume, buckets);
    }
}

#[test]
fn a_client_gets_the_error_that_an_operators_flush_got() {
    for buckets in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let volume = with_a_flush_that_failed(buckets, &directory);
        volume.flush().expect_err("what was answered may be gone");
        assert_eq!(volume.flush(), Ok(()), "the operator was told");
        check_that_one_flush_tells(&volume, buckets);
    }
}

/// Parts of blocks are changed while the rest of these blocks cannot be read. So no data is written, and a bucket of a
/// zone has only a header.
#[test]
fn a_zone_of_which_nothing_counts_after_an_orderly_end_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Flaky::new(false);
    let zoning = Zoning { size: 256 << 10, capacity: 256 << 10, max_active: 0, max_open: 0 };
    let config = VolumeConfig { flash_zones: Some(zoning), ..small_buckets(&directory) };
    let volume = backend.volume(config.clone());
    ask(&volume, Operation::Write, 0, block(1)).unwrap();
    backend.fails_reads.store(true, Ordering::SeqCst);
    for bucket in 1..4 {
        change(&volume, bucket * MIB + 512, vec![2; 512], false).expect_err("the rest of the block cannot be read");
    }
    volume.close().unwrap_or_else(|error| panic!("{error}"));
    drop(volume);
    backend.fails_reads.store(false, Ordering::SeqCst);
    let volume = backend.volume(config);
    assert_eq!(ask(&volume, Operation::Read, 0, Vec::new()), Ok(block(1)));
    assert_eq!(ask(&volume, Operation::Read, 256, Vec::new()), Ok(block(0)));
    volume.detach().unwrap_or_else(|error| panic!("{error}"));
}
