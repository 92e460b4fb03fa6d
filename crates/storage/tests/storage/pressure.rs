//! A slow backend behind a full cache: refused and delayed requests.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flashwise_core::cache::settings::Settings;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::layout::LAYOUTS;
use flashwise_storage::status::VolumeStatus;
use flashwise_storage::volume::{Volume, VolumeConfig};
use flashwise_testing::waiting::wait_until;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A cache of 8 MiB, of 32 units, before a disk that takes 5 ms for each transfer.
fn open(directory: &Path, policy: &str) -> Arc<Volume> {
    let (backend, flash) = (directory.join("disk.img"), directory.join("cache.img"));
    File::create(&backend).unwrap().set_len(256 * MIB).unwrap();
    let config = VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        cache: Settings::of(&[("erase-unit", "256KiB"), ("ram", "0"), ("policy", policy), ("sequential-bypass", "0")])
            .unwrap(),
        backend_delay_us: 5_000,
        ..VolumeConfig::of("v", &backend, &flash)
    };
    Volume::open(config, &|_, _| ()).unwrap_or_else(|error| panic!("{error}")).0
}

fn ask(volume: &Volume, operation: Operation, block: u64, blocks: u64) -> Vec<u8> {
    let (sender, receiver) = mpsc::channel();
    let length = blocks * BLOCK;
    let data = if operation == Operation::Write { vec![block as u8; length as usize] } else { Vec::new() };
    let request = Request {
        operation,
        offset: block * BLOCK,
        length,
        force_unit_access: false,
        data,
        caching: Default::default(),
    };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap()
}

fn is_cached(volume: &Volume, block: u32) -> bool {
    volume.with_cache(|cache| cache.log().find(block).is_some())
}

/// Eight clients write 64 random blocks each, while `meanwhile` runs. Pauses cannot prevent that load.
fn under_pressure<T>(volume: &Volume, meanwhile: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let ended = &ended;
            scope.spawn(move || {
                let mut at = writer;
                while !ended.load(Ordering::Relaxed) {
                    at = (at * 5 + 7) % 512;
                    ask(volume, Operation::Write, 32_768 + 64 * at, 64);
                }
            });
        }
        let done = meanwhile();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

fn wait_for(volume: &Volume, what: &str, is: impl Fn(&VolumeStatus) -> bool) {
    wait_until(what, || is(&volume.status()));
}

/// A ghost that was asked for again while there was no space is a ghost still: asked for once more, it is taken in. A
/// block that was never seen is not.
#[test]
fn a_block_that_found_no_space_is_not_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let volume = open(directory.path(), "larc:tuning=fixed,cr=50%,writes=admit");
    // Full once: from now on a first access is a ghost.
    for block in (0..2_048).step_by(64) {
        ask(&volume, Operation::Read, 16_384 + block, 64);
    }
    let refused = under_pressure(&volume, || {
        (0..1_000).find(|&block| {
            let before = volume.status().cache.refused_read_blocks;
            ask(&volume, Operation::Read, block, 1);
            ask(&volume, Operation::Read, block, 1);
            volume.status().cache.refused_read_blocks > before
        })
    });
    let refused = refused.expect("of a thousand blocks read twice one finds no space");
    assert!(!is_cached(&volume, refused as u32));
    wait_for(&volume, "space", |status| status.destaging_blocks == 0);
    ask(&volume, Operation::Read, refused, 1);
    assert!(is_cached(&volume, refused as u32), "block {refused} was a ghost");
    ask(&volume, Operation::Read, 8_000, 1);
    assert!(!is_cached(&volume, 8_000), "a first access is a ghost");
    volume.close().unwrap();
}

/// Data written under pressure is read back, during the load and afterwards. Answers were delayed meanwhile.
#[test]
fn writes_under_pressure_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let volume = open(directory.path(), "lru");
    under_pressure(&volume, || {
        wait_for(&volume, "a pause", |status| status.throttled_seconds > 0.0);
        for block in 0..200 {
            ask(&volume, Operation::Write, block, 1);
            assert_eq!(ask(&volume, Operation::Read, block, 1), vec![block as u8; BLOCK as usize]);
        }
        ask(&volume, Operation::Flush, 0, 0);
    });
    for block in 0..200 {
        assert_eq!(ask(&volume, Operation::Read, block, 1), vec![block as u8; BLOCK as usize], "block {block}");
    }
    let status = volume.status();
    assert!(status.throttled_seconds > 0.0 && status.queue_depth == 0, "{status:?}");
    volume.close().unwrap();
}

/// Latencies, and the time of delayed writes, include the time before a request is planned, also for layout wlfc.
#[test]
fn latencies_include_the_wait_before_planning() {
    let directory = tempfile::tempdir().unwrap();
    let (backend, flash) = (directory.path().join("disk.img"), directory.path().join("cache.img"));
    File::create(&backend).unwrap().set_len(512 * MIB).unwrap();
    let config = VolumeConfig {
        flash_size_bytes: Some(16 * MIB),
        cache: Settings::of(&[("erase-unit", "256KiB")]).unwrap(),
        layout: LAYOUTS[1].1,
        backend_delay_us: 2_000,
        ..VolumeConfig::of("v", &backend, &flash)
    };
    let volume = Volume::open(config, &|_, _| ()).unwrap_or_else(|error| panic!("{error}")).0;
    // 150 MiB of requests, while plans take 64 MiB.
    let (sender, receiver) = mpsc::channel();
    let (data, count) = (vec![7; 64 * BLOCK as usize], 600);
    for number in 0..count {
        let (sender, begun) = (sender.clone(), Instant::now());
        let (operation, offset, length) = (Operation::Write, number * 37 % 1800 * 64 * BLOCK, 64 * BLOCK);
        let (force_unit_access, data, caching) = (false, data.clone(), Default::default());
        let request = Request { operation, offset, length, force_unit_access, data, caching };
        volume.submit(request, Box::new(move |result| sender.send(result.map(|_| begun.elapsed())).unwrap()));
    }
    let waited: Duration = receiver.iter().take(count as usize).map(Result::unwrap).sum();
    let status = volume.status();
    let [writes] = &status.latencies[..] else { panic!("{:?}", status.latencies) };
    let told = Duration::from_micros(writes.sum_us);
    assert_eq!((writes.operation.as_str(), writes.count), ("write", count));
    let throttled = Duration::from_secs_f64(status.throttled_seconds);
    assert!(told <= waited && throttled <= waited, "{told:?} and {throttled:?} of {waited:?}");
    // The last 80 MiB wait for the first to be on flash, and for what these wait for. Latencies without that time would
    // be shorter by it.
    assert!(throttled > waited / 20 && told + throttled > waited, "{told:?} and {throttled:?} of {waited:?}");
    volume.close().unwrap();
}
