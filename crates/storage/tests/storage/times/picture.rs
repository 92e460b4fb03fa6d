//! A scenario over time, for the picture in docs/pacing.md.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flashwise_storage::time;
use flashwise_testing::virtual_time::pass;

use super::{Measured, World};

/// From sample to sample.
const EVERY: Duration = Duration::from_secs(1);

/// A volume at a moment.
#[derive(Debug)]
pub struct Sample {
    at: Instant,
    /// Dirty blocks on flash, and those that wait in RAM.
    on_flash: u64,
    in_ram: u64,
    /// Blocks that the backend has taken.
    taken: u64,
}

/// Takes samples until the clients end.
pub fn start(world: &Arc<World>) -> Arc<Mutex<Vec<Sample>>> {
    let samples: Arc<Mutex<Vec<Sample>>> = Arc::default();
    let (collected, world) = (samples.clone(), world.clone());
    time::start("sampler", move || {
        while !world.ended.load(Ordering::SeqCst) {
            let (status, taken) = (world.volume.status(), world.backend.blocks_written());
            let (on_flash, in_ram) = (status.dirty_blocks, status.buffered_blocks);
            collected.lock().unwrap().push(Sample { at: time::now(), on_flash, in_ram, taken });
            pass(EVERY);
        }
    });
    samples
}

/// Returns a line for each interval. It has the end in seconds, and the dirty MiB on flash and in RAM. It has the
/// blocks per second written by clients and to the backend, and the longest wait of each kind of request in ms.
fn csv(measured: &Measured) -> String {
    let mut text = "seconds,dirty_flash_mib,dirty_ram_mib,written_per_second,taken_per_second".to_owned();
    measured.requests.keys().for_each(|kind| write!(text, ",{kind}_ms").unwrap());
    for pair in measured.samples.windows(2) {
        let (from, to) = (&pair[0], &pair[1]);
        let span = (to.at - from.at).as_secs_f64();
        let ended = |kind| {
            let requests: &Vec<_> = &measured.requests[kind];
            requests.iter().filter(|request| (from.at..to.at).contains(&(request.asked + request.waited)))
        };
        let mib = |blocks: u64| blocks as f64 / super::BLOCKS_PER_MIB as f64;
        let per_second = |blocks: u64| blocks as f64 / span;
        write!(
            text,
            "\n{:.1},{:.2},{:.2},{:.0},{:.0}",
            (to.at - measured.begun).as_secs_f64(),
            mib(to.on_flash),
            mib(to.in_ram),
            per_second(ended("write").count() as u64),
            per_second(to.taken - from.taken),
        )
        .unwrap();
        for kind in measured.requests.keys() {
            let longest = ended(kind).map(|request| request.waited).max().unwrap_or_default();
            write!(text, ",{:.2}", longest.as_secs_f64() * 1e3).unwrap();
        }
    }
    text + "\n"
}

/// Checks the table of a minute of [`writers`](super::scenarios::writers) with 8 MiB of RAM, and writes it to the file
/// that `FLASHWISE_TIME_CSV` names.
pub fn draw(measured: &Measured) {
    let text = csv(measured);
    if let Some(path) = std::env::var_os("FLASHWISE_TIME_CSV") {
        std::fs::write(path, &text).unwrap();
    }
    let value = |value: &str| value.parse().expect("it is a number");
    let lines: Vec<Vec<f64>> = text.lines().skip(1).map(|line| line.split(',').map(value).collect()).collect();
    let later = &lines[lines.len() / 2..];
    // Of 64 MiB of flash, 46 MiB may be dirty; the backend takes 125 blocks a second.
    assert!(later.iter().all(|line| (35.0..46.0).contains(&(line[1] + line[2]))), "{text}");
    assert!(later.iter().all(|line| (100.0..=150.0).contains(&line[4])), "{text}");
}
