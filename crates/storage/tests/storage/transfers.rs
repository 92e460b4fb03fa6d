//! Transfers by io_uring and by threads: one suite for both, over real files.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use flashwise_storage::disk::file::{Allocation, FileDisk, Options, PageCache};
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::slow::{SlowDisk, SlowTransfers, Slowness};
use flashwise_storage::disk::{
    ALIGNMENT, Buffer, Completed, Completion, Disk, Method, Operation, Transfer, Transfers, transfers,
};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const METHODS: [Method; 2] = [Method::Ring, Method::Pool];
const UNIT: u64 = ALIGNMENT as u64;

/// Memory for transfers, in units of [`ALIGNMENT`].
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

// Users wait for the transfers before they access the memory.
impl Memory {
    fn new(units: usize) -> Self {
        let bytes = vec![0; (units + 1) * ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start }
    }

    fn units(&mut self, first: usize, count: usize) -> &mut [u8] {
        &mut self.bytes[self.start + first * ALIGNMENT..][..count * ALIGNMENT]
    }

    fn buffer(&mut self, first: usize, count: usize) -> Buffer {
        Buffer { start: self.units(first, count).as_mut_ptr(), length: count * ALIGNMENT }
    }
}

fn transfer(tag: u64, operation: Operation, unit: u64, buffers: Vec<Buffer>) -> Transfer {
    let length = buffers.iter().map(|buffer| buffer.length as u64).sum();
    Transfer { tag, disk: 0, operation, offset: unit * UNIT, length, buffers, stream: 0 }
}

fn whole(tag: u64, operation: Operation, unit: u64, units: u64) -> Transfer {
    Transfer { tag, disk: 0, operation, offset: unit * UNIT, length: units * UNIT, buffers: Vec::new(), stream: 0 }
}

/// Transfers whose completions arrive here.
struct Harness {
    transfers: Arc<dyn Transfers>,
    completions: Receiver<Completion>,
}

impl Harness {
    fn new(disk: Arc<dyn Disk>, method: Method) -> Self {
        Self::with(|completed| transfers(vec![disk], method, completed))
    }

    fn with(make: impl FnOnce(Completed) -> io::Result<Arc<dyn Transfers>>) -> Self {
        let (sender, completions) = channel();
        let completed: Completed = Box::new(move |batch| batch.drain(..).for_each(|one| sender.send(one).unwrap()));
        Self { transfers: make(completed).unwrap(), completions }
    }

    /// Returns the results of `count` transfers by tag.
    fn results(&self, count: usize) -> BTreeMap<u64, io::Result<()>> {
        let results: BTreeMap<_, _> = self.completions.iter().take(count).map(|end| (end.tag, end.result)).collect();
        assert_eq!(results.len(), count, "each transfer ends once");
        results
    }

    fn perform(&self, mut batch: Vec<Transfer>) -> BTreeMap<u64, io::Result<()>> {
        let count = batch.len();
        self.transfers.submit(&mut batch);
        assert!(batch.is_empty());
        self.results(count)
    }

    fn perform_well(&self, batch: Vec<Transfer>) {
        for (tag, result) in self.perform(batch) {
            result.unwrap_or_else(|error| panic!("transfer {tag}: {error}"));
        }
    }
}

fn file(path: &Path, size: u64, page_cache: PageCache) -> Arc<FileDisk> {
    let options = Options { read_only: false, page_cache };
    Arc::new(FileDisk::create(path, size, Allocation::Sparse, options).unwrap())
}

/// Batches of transfers in random places that do not overlap, each in one to five buffers; a model of the disk agrees
/// throughout.
fn agrees_with_model(disk: Arc<dyn Disk>, method: Method, seed: u64) {
    let size = disk.size() as usize;
    let units = size.div_ceil(ALIGNMENT);
    let mut model = vec![0; units * ALIGNMENT];
    let harness = Harness::new(disk, method);
    let mut memory = Memory::new(units);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..100 {
        let (mut batch, mut reads, mut unit) = (Vec::new(), Vec::new(), 0);
        while unit < units {
            let count = random.random_range(1..=24).min(units - unit);
            let range = unit * ALIGNMENT..(unit + count) * ALIGNMENT;
            let tag = unit as u64;
            let mut buffers = Vec::new();
            let mut first = unit;
            while first < unit + count {
                let left = unit + count - first;
                let piece = if buffers.len() == 4 { left } else { random.random_range(1..=left) };
                buffers.push(memory.buffer(first, piece));
                first += piece;
            }
            match random.random_range(0..8) {
                0..3 => {
                    random.fill_bytes(memory.units(unit, count));
                    model[range].copy_from_slice(memory.units(unit, count));
                    batch.push(transfer(tag, Operation::Write, tag, buffers));
                }
                3..6 => {
                    memory.units(unit, count).fill(0x55);
                    reads.push((unit, count));
                    batch.push(transfer(tag, Operation::Read, tag, buffers));
                }
                6 => {
                    model[range].fill(0);
                    let may_punch_holes = random.random();
                    batch.push(whole(tag, Operation::Zero { may_punch_holes }, tag, count as u64));
                }
                _ => {}
            }
            // Past the end nothing is kept.
            model[size..].fill(0);
            unit += count;
        }
        batch.push(whole(units as u64, Operation::Sync, 0, 0));
        batch.shuffle(&mut random);
        harness.perform_well(batch);
        for (unit, count) in reads {
            assert!(memory.units(unit, count) == &model[unit * ALIGNMENT..][..count * ALIGNMENT], "units from {unit}");
        }
    }
    harness.perform_well(vec![transfer(0, Operation::Read, 0, vec![memory.buffer(0, units)])]);
    assert!(memory.units(0, units) == model);
}

#[test]
fn random_transfers_agree_with_a_model() {
    let directory = tempfile::tempdir().unwrap();
    for (seed, method) in METHODS.into_iter().enumerate() {
        for (name, size, page_cache) in [
            ("direct", 4 << 20, PageCache::Avoid),
            ("buffered", 4 << 20, PageCache::Use),
            ("sectors", (1 << 20) + 512, PageCache::AvoidIfPossible),
            ("bytes", (1 << 20) + 100, PageCache::AvoidIfPossible),
        ] {
            let path = directory.path().join(format!("{name} {seed}"));
            agrees_with_model(file(&path, size, page_cache), method, seed as u64);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
        }
        agrees_with_model(Arc::new(MemoryDisk::new((1 << 20) + 100)), method, seed as u64);
    }
}

#[test]
fn requests_beyond_the_end_fail_and_others_do_not() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let harness = Harness::new(file(&path, 4 * UNIT, PageCache::Avoid), method);
        let mut memory = Memory::new(8);
        let results = harness.perform(vec![
            transfer(0, Operation::Read, 3, vec![memory.buffer(0, 1)]),
            transfer(1, Operation::Read, 3, vec![memory.buffer(1, 1), memory.buffer(2, 1)]),
            transfer(2, Operation::Write, 4, vec![memory.buffer(3, 1)]),
            transfer(3, Operation::Write, u64::MAX / UNIT, vec![memory.buffer(4, 1)]),
            whole(4, Operation::Zero { may_punch_holes: true }, 3, 2),
            whole(5, Operation::Discard, 0, 5),
            transfer(6, Operation::Write, 2, vec![memory.buffer(5, 2)]),
        ]);
        for (tag, result) in results {
            match (tag, result) {
                (0 | 6, result) => result.unwrap(),
                (_, result) => {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidInput);
                    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
                    assert!(error.to_string().ends_with("end past the end, at 16384"), "{error}");
                }
            }
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * UNIT);
    }
}

#[test]
fn a_file_that_was_cut_short_and_one_that_cannot_be_written_are_errors_by_name() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let disk = file(&path, 8 * UNIT, PageCache::AvoidIfPossible);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 * UNIT).unwrap();
        let mut memory = Memory::new(4);
        let harness = Harness::new(disk, method);
        let error =
            harness.perform(vec![transfer(0, Operation::Read, 2, vec![memory.buffer(0, 4)])]).remove(&0).unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(error.to_string(), format!("{}: ends at 16384, before its size of 32768", path.display()));
        drop(harness);

        let options = Options { read_only: true, ..Options::default() };
        let harness = Harness::new(Arc::new(FileDisk::open(&path, options).unwrap()), method);
        let error =
            harness.perform(vec![transfer(0, Operation::Write, 0, vec![memory.buffer(0, 1)])]).remove(&0).unwrap();
        let message = error.unwrap_err().to_string();
        assert!(
            message.starts_with(&path.display().to_string()) && message.contains("Bad file descriptor"),
            "{message}"
        );
    }
}

#[test]
fn thousands_of_transfers_in_one_batch_each_end_once() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let disk = file(&directory.path().join("disk"), 5000 * UNIT, PageCache::AvoidIfPossible);
        let harness = Harness::new(disk, method);
        let mut memory = Memory::new(5000);
        for unit in 0..5000 {
            memory.units(unit, 1).fill(unit as u8 | 1);
        }
        let mut batch = |operation| -> Vec<_> {
            (0..5000).map(|unit| transfer(unit, operation, unit, vec![memory.buffer(unit as usize, 1)])).collect()
        };
        let (writes, reads) = (batch(Operation::Write), batch(Operation::Read));
        harness.perform_well(writes);
        memory.units(0, 5000).fill(0);
        harness.perform_well(reads);
        for unit in 0..5000 {
            assert!(memory.units(unit, 1).iter().all(|&byte| byte == unit as u8 | 1));
        }
    }
}

#[test]
fn more_buffers_than_one_system_call_takes_are_read_and_written() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let harness = Harness::new(file(&path, 2500 * UNIT, PageCache::AvoidIfPossible), method);
        let mut memory = Memory::new(2500);
        Xoshiro256PlusPlus::seed_from_u64(3).fill_bytes(memory.units(0, 2500));
        // Back to front, so that they are not one piece of memory.
        let buffers: Vec<_> = (0..2500).rev().map(|unit| memory.buffer(unit, 1)).collect();
        let before = memory.units(0, 2500).to_vec();
        harness.perform_well(vec![transfer(0, Operation::Write, 0, buffers.clone())]);
        let expected: Vec<u8> = before.chunks(ALIGNMENT).rev().flatten().copied().collect();
        assert!(std::fs::read(&path).unwrap() == expected);
        memory.units(0, 2500).fill(0);
        harness.perform_well(vec![transfer(0, Operation::Read, 0, buffers)]);
        assert!(memory.units(0, 2500) == before);
    }
}

#[test]
fn threads_submit_at_the_same_time() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let harness = Harness::new(file(&directory.path().join("disk"), 8 * 500 * UNIT, PageCache::Use), method);
        let mut memory = Memory::new(8 * 500);
        for operation in [Operation::Write, Operation::Read] {
            if operation == Operation::Read {
                memory.units(0, 4000).fill(0);
            } else {
                Xoshiro256PlusPlus::seed_from_u64(4).fill_bytes(memory.units(0, 4000));
            }
            let batches: Vec<Vec<_>> = (0..8)
                .map(|thread| {
                    let units = thread * 500..(thread + 1) * 500;
                    units.map(|unit| transfer(unit, operation, unit, vec![memory.buffer(unit as usize, 1)])).collect()
                })
                .collect();
            std::thread::scope(|scope| {
                for mut batch in batches {
                    let transfers = &harness.transfers;
                    scope.spawn(move || {
                        while !batch.is_empty() {
                            transfers.submit(&mut batch.split_off(batch.len().saturating_sub(7)));
                        }
                    });
                }
            });
            // The threads that submitted are gone, and their transfers end all the same.
            harness.results(4000).into_values().for_each(Result::unwrap);
        }
        let mut written = Memory::new(4000);
        Xoshiro256PlusPlus::seed_from_u64(4).fill_bytes(written.units(0, 4000));
        assert!(memory.units(0, 4000) == written.units(0, 4000));
    }
}

#[test]
fn completions_come_on_another_thread_and_one_batch_at_a_time() {
    for method in METHODS {
        let here = std::thread::current().id();
        let busy = Arc::new(Mutex::new(()));
        let (sender, completions) = channel();
        let completed: Completed = Box::new(move |batch| {
            let _alone = busy.try_lock().expect("no other thread is here");
            assert_ne!(std::thread::current().id(), here);
            assert!(!batch.is_empty());
            batch.drain(..).for_each(|end| sender.send(end.tag).unwrap());
        });
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(1 << 20)), Arc::new(MemoryDisk::new(1 << 20))];
        let transfers = transfers(disks, method, completed).unwrap();
        // Half of them end beyond the end, which is an immediate error.
        transfers.submit(&mut (0..400).map(|tag| whole(tag, Operation::Discard, tag % 2 * 1000, 1)).collect());
        let mut tags: Vec<_> = completions.iter().take(400).collect();
        tags.sort();
        assert_eq!(tags, (0..400).collect::<Vec<_>>());
    }
}

#[test]
fn a_completion_is_followed_by_a_transfer_from_where_it_is_taken() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let disk = file(&directory.path().join("disk"), 64 * UNIT, PageCache::Use);
        let performs: Arc<OnceLock<Arc<dyn Transfers>>> = Arc::default();
        let mut memory = Memory::new(4);
        let buffers: Vec<_> = (0..4).map(|slot| memory.buffer(slot, 1).start.addr()).collect();
        let read = move |tag: u64| {
            let start = std::ptr::with_exposed_provenance_mut(buffers[tag as usize % 4]);
            transfer(tag, Operation::Read, tag % 64, vec![Buffer { start, length: ALIGNMENT }])
        };
        (0..4).for_each(|slot| _ = memory.buffer(slot, 1).start.expose_provenance());
        let (sender, ended) = channel();
        let completed: Completed = {
            let (performs, read) = (performs.clone(), read.clone());
            Box::new(move |batch| {
                let mut next = Vec::new();
                for end in batch.drain(..) {
                    end.result.unwrap();
                    if end.tag < 10_000 { next.push(read(end.tag + 4)) } else { sender.send(end.tag).unwrap() }
                }
                performs.wait().submit(&mut next);
            })
        };
        assert!(performs.set(transfers(vec![disk], method, completed).unwrap()).is_ok());
        performs.wait().submit(&mut (0..4).map(read).collect());
        let mut last: Vec<_> = ended.iter().take(4).collect();
        last.sort();
        assert_eq!(last, [10_000, 10_001, 10_002, 10_003]);
    }
}

#[test]
fn dropping_waits_for_all_transfers_to_end() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut memory = Memory::new(3000);
        memory.units(0, 3000).fill(7);
        let harness = Harness::new(file(&path, 3000 * UNIT, PageCache::AvoidIfPossible), method);
        let mut batch: Vec<_> = (0..3000)
            .map(|unit| transfer(unit, Operation::Write, unit, vec![memory.buffer(unit as usize, 1)]))
            .collect();
        batch.push(whole(3000, Operation::Sync, 0, 0));
        batch.push(whole(3001, Operation::Discard, 0, 0));
        harness.transfers.submit(&mut batch);
        drop(harness.transfers);
        assert_eq!(harness.completions.try_iter().map(|end| end.result.unwrap()).count(), 3002);
        assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
        FileDisk::open(&path, Options::default()).expect("the lock is gone with the last disk");
    }
}

/// Makes transfers which are dropped by the function that takes their first completions.
fn dropped_where_completions_are_taken(make: impl FnOnce(Completed) -> io::Result<Arc<dyn Transfers>>) {
    let slot: Arc<Mutex<Option<Arc<dyn Transfers>>>> = Arc::default();
    let mut memory = Memory::new(1000);
    let (sender, ended) = channel();
    let completed: Completed = {
        let slot = slot.clone();
        Box::new(move |batch| {
            drop(slot.lock().unwrap().take());
            batch.drain(..).for_each(|end| sender.send(end).unwrap());
        })
    };
    let mut held = slot.lock().unwrap();
    let made = make(completed).unwrap();
    let read = |unit: u64| transfer(unit, Operation::Read, unit, vec![memory.buffer(unit as usize, 1)]);
    // The first to end is one that no disk delays.
    let mut batch = vec![whole(1000, Operation::Discard, 0, 0)];
    batch.extend((0..1000).map(read));
    made.submit(&mut batch);
    *held = Some(made);
    drop(held);
    // The channel closes when nothing can call the function any more.
    assert_eq!(ended.iter().map(|end| end.result.unwrap()).count(), 1001);
}

#[test]
fn the_function_that_takes_completions_may_drop_the_transfers_and_gets_the_rest() {
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let disk = file(&directory.path().join("disk"), 1000 * UNIT, PageCache::AvoidIfPossible);
        let disks = || vec![disk.clone() as Arc<dyn Disk>];
        dropped_where_completions_are_taken(|completed| transfers(disks(), method, completed));
        // As many concurrent transfers as spindles.
        let slowness = Some(Slowness { delay: Duration::from_millis(5), spindles: 300 });
        dropped_where_completions_are_taken(|completed| {
            let make = |completed| transfers(disks(), method, completed);
            Ok(Arc::new(SlowTransfers::new(&[slowness], make, completed)?))
        });
    }
}

#[test]
fn guarantees_of_the_submitter_are_checked() {
    for method in METHODS {
        let harness = Harness::new(Arc::new(MemoryDisk::new(1 << 20)), method);
        let mut memory = Memory::new(4);
        let good = transfer(7, Operation::Read, 0, vec![memory.buffer(0, 2)]);
        let mut unaligned = good.clone();
        unaligned.buffers[0].start = unaligned.buffers[0].start.wrapping_add(512);
        let bad = [
            (Transfer { disk: 1, ..good.clone() }, "transfer 7 names disk 1 of 1"),
            (Transfer { length: UNIT, ..good.clone() }, "the buffers of transfer 7 add up to its length"),
            (Transfer { offset: 512, ..good.clone() }, "the offset of transfer 7 is aligned"),
            (unaligned, "the buffers of transfer 7 are aligned"),
        ];
        for (transfer, message) in bad {
            let submitted = std::panic::AssertUnwindSafe(|| harness.transfers.submit(&mut vec![transfer.clone()]));
            let panic = std::panic::catch_unwind(submitted).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), message);
        }
        harness.perform_well(vec![good]);
    }
}

#[test]
fn the_kernel_here_allows_io_uring_and_it_is_picked() {
    let disks = || -> Vec<Arc<dyn Disk>> { vec![Arc::new(MemoryDisk::new(4096))] };
    let picked = |method| transfers(disks(), method, Box::new(|_| ())).unwrap().description();
    assert_eq!(picked(Method::Automatic), "io_uring");
    assert_eq!(picked(Method::Ring), "io_uring");
    assert_eq!(picked(Method::Pool), "threads");
}

#[test]
fn a_slow_disk_delays_reads_and_writes_one_after_the_other_and_nothing_else() {
    let delay = Duration::from_millis(5);
    let slowness = Slowness { delay, spindles: 2 };
    for method in METHODS {
        let directory = tempfile::tempdir().unwrap();
        let disk = file(&directory.path().join("disk"), 64 * UNIT, PageCache::Use);
        let fast: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 20));
        let layered = {
            let disks = vec![disk.clone() as Arc<dyn Disk>, fast.clone()];
            Harness::with(move |completed| {
                let make = |completed| transfers(disks, method, completed);
                Ok(Arc::new(SlowTransfers::new(&[Some(slowness), None], make, completed)?))
            })
        };
        let wrapped = {
            let disks = vec![Arc::new(SlowDisk::new(disk, slowness)) as Arc<dyn Disk>, fast];
            Harness::with(move |completed| transfers(disks, method, completed))
        };
        for harness in [layered, wrapped] {
            let mut memory = Memory::new(64);
            memory.units(0, 64).fill(9);
            let started = Instant::now();
            let mut batch: Vec<_> = (0..10)
                .map(|tag| transfer(tag * 1000, Operation::Write, tag, vec![memory.buffer(tag as usize, 1)]))
                .collect();
            batch.push(transfer(1, Operation::Read, 1 << 40, vec![memory.buffer(10, 1)]));
            batch.push(Transfer { disk: 1, ..transfer(2, Operation::Write, 5, vec![memory.buffer(11, 1)]) });
            batch.push(whole(3, Operation::Sync, 0, 0));
            let results = harness.perform(batch);
            // Eleven transfers on two spindles: one of them does six. A lower bound, which load cannot break.
            assert!(started.elapsed() >= 6 * delay);
            for (tag, result) in results {
                assert_eq!(result.is_err(), tag == 1, "{tag}: {result:?}");
            }
            let mut memory = Memory::new(10);
            harness.perform_well(vec![transfer(1, Operation::Read, 0, vec![memory.buffer(0, 10)])]);
            assert!(memory.units(0, 10).iter().all(|&byte| byte == 9));
            let mut batch =
                (0..10).map(|tag| transfer(tag, Operation::Read, tag, vec![memory.buffer(tag as usize, 1)])).collect();
            harness.transfers.submit(&mut batch);
            drop(harness.transfers);
            assert_eq!(harness.completions.try_iter().count(), 10, "dropping waits for what is held back");
        }
    }
}
