//! File systems at every flush. The writes of ext4, xfs and btrfs are recorded and played to the cache, and the power
//! fails at flushes. The recovered volume must be a consistent file system that mounts, with everything that fsync
//! promised. Needs root, for loop devices and mounts.
//!
//! `FLASHWISE_FLUSH_POINTS` sets the number of flushes, `FLASHWISE_SEED` the seed.

mod recording;
mod replay;

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use flashwise_core::cache::Mode;
use flashwise_server::front::{Address, Options, Server, nbd};
use flashwise_storage::export::{Export, Exports, Operation};
use flashwise_testing::mounted::{Device, Mount, check, run, text};
use flashwise_testing::random::Random;
use flashwise_testing::setting;
use flashwise_testing::work::{Load, Version, Worker};
use recording::{Recorded, Recording};
use replay::{Replay, Setup};
use tempfile::TempDir;

const SIZE: u64 = 64 << 20;
/// Steps of work between two mounts.
const STEPS_MOUNTED: u64 = 15;

const LOAD: Load = Load { file_bytes: 48 << 10, large_bytes: 0, kept_bytes: 6 << 20 };

/// The requests to an export, and the files written meanwhile. Moments are numbers of requests.
struct History {
    requests: Vec<Recorded>,
    promises: Vec<Version>,
    /// Requests until the file system was created and mounted.
    made: usize,
}

/// Returns a directory in memory: images are many and short-lived.
fn directory() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

fn make(file_system: &str, device: &str) {
    match file_system {
        "ext4" => run("mkfs.ext4", &["-q", "-F", device]),
        // This small size is for tests only.
        "xfs" => run("mkfs.xfs", &["-q", "-f", "--unsupported", device]),
        _ => run("mkfs.btrfs", &["-q", "-f", "--mixed", device]),
    };
}

/// Works on a new file system until it has flushed `flushes` times.
fn record(file_system: &str, flushes: usize, seed: u64) -> History {
    let directory = directory();
    let export = Arc::new(Recording::new(SIZE));
    let exports = Exports::default();
    assert!(exports.add("", export.clone() as Arc<dyn Export>));
    let address = Address::Unix(directory.path().join("nbd.sock"));
    let _server = Server::start(&[nbd::PROTOCOL.at(address)], exports, Options::default()).unwrap();
    let uri = format!("nbd+unix:///?socket={}", text(&directory.path().join("nbd.sock")));
    let device = Device::new(directory.path(), &uri);
    make(file_system, &device.device);
    let at = directory.path().join("mounted");
    let mut mount = Mount::new(&device.device, &at);
    run("sync", &["-f", text(&at)]);
    let made = export.len();
    let mut worker = Worker::new(&at, &*export, LOAD, seed);
    let mut until_remount = STEPS_MOUNTED;
    while export.flushes(made..) < flushes {
        worker.step().unwrap();
        until_remount -= 1;
        if until_remount == 0 {
            // Data cached above the volume is read from it again.
            until_remount = STEPS_MOUNTED;
            drop(mount);
            run("dd", &[&format!("if={}", text(&device.file)), "iflag=nocache", "count=0"]);
            mount = Mount::new(&device.device, &at);
            worker.read_all();
        }
    }
    let promises = worker.versions();
    drop(mount);
    drop(device);
    History { requests: export.requests(), promises, made }
}

/// The volume after a power failure.
struct Crash {
    when: String,
    image: Vec<u8>,
    /// Number of durable requests, and of all requests.
    durable: usize,
    made: usize,
}

/// Checks that the file system recovers with everything that was promised, and returns the number of promises.
fn judge(file_system: &str, directory: &Path, crash: &Crash, promises: &[Version]) -> Result<usize, String> {
    let image = directory.join("image");
    write_sparse(&image, &crash.image);
    let image = text(&image);
    let at = directory.join("recovered");
    let options = if file_system == "xfs" { "loop,nouuid" } else { "loop" };
    let due = |version: &&Version| {
        version.promised.start <= crash.durable as u64 && crash.made as u64 <= version.promised.end
    };
    let due: Vec<&Version> = promises.iter().filter(due).collect();
    {
        if file_system == "btrfs" {
            run("btrfs", &["device", "scan", "--forget"]);
        }
        let _mount = Mount::with(&["-o", options, image], &at)?;
        due.iter().try_for_each(|promise| promise.check(&at))?;
    }
    check(file_system, image)?;
    Ok(due.len())
}

fn write_sparse(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, chunk) in bytes.chunks(4096).enumerate() {
        if chunk.iter().any(|&byte| byte != 0) {
            file.seek(SeekFrom::Start(number as u64 * 4096)).unwrap();
            file.write_all(chunk).unwrap();
        }
    }
}

/// Plays the history; the power fails at `points` of its flushes. `crashed` gets each resulting volume.
fn replay(
    history: &History,
    setup: Setup,
    points: usize,
    seed: u64,
    crashed: &mut dyn FnMut(Crash) -> Result<(), String>,
) -> Result<String, String> {
    let mut random = Random(seed);
    let mut replay = Replay::new(setup.clone(), SIZE, seed);
    let is_flush = |&number: &usize| history.requests[number].operation == Operation::Flush;
    let flushes: Vec<usize> = (history.made..history.requests.len()).filter(is_flush).collect();
    let mut chosen = (0..points).map(|point| point * flushes.len() / points).peekable();
    let mut flush_number = 0;
    let mut durable = 0;
    // The request after which the power fails as well.
    let mut later = None;
    for (number, request) in history.requests.iter().enumerate() {
        let made = number + 1;
        if request.operation != Operation::Flush {
            replay.submit(request)?;
            if later == Some(made) {
                let when = format!("at request {made}, {} after a flush", made - durable);
                crashed(Crash { when, image: replay.after_power_failure()?, durable, made })?;
            }
            continue;
        }
        // A flush covers the requests that were answered before.
        replay.answer_all()?;
        let is_chosen = number >= history.made && chosen.next_if_eq(&flush_number).is_some();
        flush_number += usize::from(number >= history.made);
        replay.submit(request)?;
        let variant = random.below(3);
        if is_chosen && variant == 0 {
            for _ in 0..random.below(6) {
                if replay.is_answering() {
                    replay.end_one();
                }
            }
            let durable = if replay.is_answering() { durable } else { made };
            crashed(Crash {
                when: format!("during flush {made}"),
                image: replay.after_power_failure()?,
                durable,
                made,
            })?;
        }
        replay.answer_all()?;
        durable = made;
        later = None;
        if is_chosen && variant == 1 {
            let image = replay.after_power_failure()?;
            if !setup.ignores_flushes && image != replay.content {
                return Err(format!("after flush {made}, the volume is not what was written"));
            }
            crashed(Crash { when: format!("after flush {made}"), image, durable, made })?;
        }
        if is_chosen && variant == 2 {
            let next = flushes.get(flush_number).copied().unwrap_or(made + 1);
            match (next - made) as u64 {
                0 => crashed(Crash {
                    when: format!("after flush {made}"),
                    image: replay.after_power_failure()?,
                    durable,
                    made,
                })?,
                requests => later = Some(made + 1 + random.below(requests) as usize),
            }
        }
    }
    Ok(replay.description())
}

/// Records, plays and checks. Returns the numbers of power failures and of promises checked.
fn recovers_at_flushes(
    file_system: &'static str,
    setup: Setup,
    points: usize,
    flushes: usize,
    seed: u64,
) -> Result<(usize, usize), String> {
    let history = Arc::new(record(file_system, flushes, seed));
    let (sender, receiver) = sync_channel::<Crash>(1);
    let judged = history.clone();
    let judge = std::thread::spawn(move || judge_all(file_system, &receiver, &judged.promises));
    // If checking ended early, its result counts.
    let played = replay(&history, setup, points, seed, &mut |crash| sender.send(crash).map_err(|_| String::new()));
    drop(sender);
    let judged = judge.join().unwrap()?;
    let description = played?;
    println!("{file_system}: {} requests, {description}", history.requests.len());
    Ok(judged)
}

fn judge_all(file_system: &str, crashes: &Receiver<Crash>, promises: &[Version]) -> Result<(usize, usize), String> {
    let directory = directory();
    let (mut points, mut kept) = (0, 0);
    for crash in crashes {
        let judged = judge(file_system, directory.path(), &crash, promises);
        kept += judged.map_err(|error| format!("{file_system}, the power failed {}: {error}", crash.when))?;
        points += 1;
    }
    Ok((points, kept))
}

/// Flushes in one history at which the power fails, and flushes in total.
const ROUND_POINTS: usize = 25;
const ROUND_FLUSHES: usize = 150;

/// `share` of the points, in tenths.
fn recovers(file_system: &'static str, share: u64) {
    let seed = setting("FLASHWISE_SEED", 1);
    let mut left = (setting("FLASHWISE_FLUSH_POINTS", 100) * share).div_ceil(10) as usize;
    let mut round = 0;
    let (mut points, mut kept) = (0, 0);
    while left > 0 {
        let seed = seed + round;
        let mut random = Random(seed);
        let setup = Setup {
            mode: [Mode::WriteBack, Mode::WriteThrough, Mode::WriteBack, Mode::WriteAround][round as usize % 4],
            policy: random.pick(&["larc", "lru", "arc", "s3-fifo", "w-tinylfu"]),
            ram_blocks: random.pick(&[0, 64, 512]),
            sequential_blocks: random.pick(&[0, 64]),
            ignores_flushes: false,
        };
        let described = format!("{setup:?}, seed {seed}");
        let wanted = left.min(ROUND_POINTS);
        let found = recovers_at_flushes(file_system, setup, wanted, ROUND_FLUSHES, seed);
        let found = found.unwrap_or_else(|error| panic!("{described}: {error}"));
        assert!(found.0 == wanted && found.1 > 0, "{described}: {found:?} power failures and promises");
        (points, kept) = (points + found.0, kept + found.1);
        (left, round) = (left - wanted, round + 1);
    }
    println!("{file_system}: {points} power failures, {kept} files as promised");
}

#[test]
fn ext4_recovers_at_every_flush() {
    recovers("ext4", 4);
}

#[test]
fn xfs_recovers_at_every_flush() {
    recovers("xfs", 4);
}

#[test]
fn btrfs_recovers_at_every_flush() {
    recovers("btrfs", 2);
}

/// The control: if flushes have no effect, the file system misses files that fsync promised, or is damaged.
#[test]
fn a_cache_that_ignores_flushes_is_found_out_by_the_file_system() {
    let setup =
        Setup { mode: Mode::WriteBack, policy: "lru", ram_blocks: 512, sequential_blocks: 0, ignores_flushes: true };
    let found = recovers_at_flushes("ext4", setup, 20, ROUND_FLUSHES, 1).expect_err("lost data is found");
    println!("{found}");
    assert!(found.contains("the power failed"), "{found}");
}
