//! File systems and databases on a volume that loses its flash, with data written back in order. The bare backend
//! mounts, and is clean after its journal was replayed. It has everything that was durable before the moment that the
//! program states. Needs root, for loop devices and mounts.
//!
//! `FLASHWISE_ORDERED` sets the number of lost flashes for each file system, and a fifth of it for each database.
//! `FLASHWISE_SEED` sets the first seed.

mod databases;
mod files;

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashwise_testing::mounted::{Device, Mount, check, run, text};
use flashwise_testing::random::Random;
use flashwise_testing::setting;
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

use crate::serving::{Server, Setting, get};

const SIZE: u64 = 384 << 20;
/// The duration of the work, if it is slow.
const LONGEST: Duration = Duration::from_secs(20);

/// The time in microseconds since 1970.
fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// A file system on a volume.
struct Bed {
    seed: u64,
    file_system: &'static str,
    setting: Setting,
    keys: String,
    options: &'static str,
    random: Random,
    /// The time of the backend's consistent state, as the server stated it just before its end.
    stated_us: Option<u64>,
    /// A planted bug: that time is the time of the end.
    states_late: bool,
    /// In the order in which they end.
    served: Option<(Mount, Device, Server)>,
}

impl Bed {
    /// Makes a file system through a cache, with settings that follow from the seed.
    fn new(file_system: &'static str, order: &str, seed: u64) -> Bed {
        let mut random = Random(seed);
        let journal = if order == "journal" { "journal = \"disk.journal\"\njournal-size = \"64MiB\"\n" } else { "" };
        let keys = format!(
            "write-back-order = \"{order}\"\n{journal}flash-size = \"{}\"\nerase-unit = \"1MiB\"\nram = \"{}\"\n\
             policy = \"{}\"\n\
             dirty-high = \"{}\"\ndirty-low = \"5%\"\ncommit-age = \"{}\"\nsequential-bypass = \"{}\"\n\
             backend-delay = \"{}\"\n",
            random.pick(&["12MiB", "24MiB"]),
            random.pick(&["2MiB", "8MiB"]),
            random.pick(&["larc", "lru", "s3-fifo"]),
            random.pick(&["10%", "20%", "50%"]),
            random.pick(&["1s", "5s"]),
            random.pick(&["0", "1MiB", "4MiB"]),
            random.pick(&["0s", "200us", "2ms", "2ms"]),
        );
        let options = match file_system {
            "ext4" => random.pick(&["defaults", "discard", "data=journal", "discard,commit=1"]),
            "xfs" => random.pick(&["defaults", "discard"]),
            _ => random.pick(&["nodiscard", "discard=async", "nodiscard,commit=1", "discard=sync"]),
        };
        let setting = Setting::new(SIZE, &keys);
        let mut bed = Bed {
            seed,
            file_system,
            setting,
            keys,
            options,
            random,
            stated_us: None,
            states_late: false,
            served: None,
        };
        let (server, device) = bed.start(&[]);
        match file_system {
            "ext4" => run("mkfs.ext4", &["-q", "-F", &device.device]),
            "xfs" => run("mkfs.xfs", &["-q", "-f", &device.device]),
            _ => run("mkfs.btrfs", &["-q", "-f", &device.device]),
        };
        let mount = bed.mount(&device.device).unwrap_or_else(|error| panic!("{error}"));
        bed.served = Some((mount, device, server));
        bed.settle();
        bed
    }

    fn start(&self, arguments: &[&str]) -> (Server, Device) {
        let arguments = [&["serve", "flashwise.toml"], arguments].concat();
        let server = Server::start(self.setting.directory.path(), &arguments);
        (server, Device::new(self.setting.directory.path(), &self.setting.uri()))
    }

    fn mount(&self, device: &str) -> Result<Mount, String> {
        if self.file_system == "btrfs" {
            run("btrfs", &["device", "scan", "--forget"]);
        }
        Mount::with(&["-o", self.options, device], &self.at())
    }

    /// Returns the directory of the mounted file system.
    fn at(&self) -> PathBuf {
        self.setting.path("mounted")
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.setting.flashwise(&["status", "--json", "--api", &self.setting.api()])).unwrap()
    }

    /// Makes everything durable and waits until the backend has it. So a lost flash takes work, and not the file
    /// system.
    fn settle(&self) {
        run("sync", &["-f", text(&self.at())]);
        let set = |age: &str| {
            self.setting.flashwise(&["set", "v", &format!("dirty-age={age}"), "--api", &self.setting.api()])
        };
        set("1s");
        wait_until("the backend has the new file system", || self.status()["volumes"][0]["dirty_blocks"] == 0);
        set("15min");
    }

    /// Writes to a file until the server is killed, so that the dirty blocks on flash are at their limit. The kill is
    /// after at most this many MiB and [`LONGEST`].
    fn write_until_killed(&mut self, mebibytes_max: u64) -> (Mount, Device) {
        let (written, mebibytes) = (AtomicU64::new(0), self.random.below(mebibytes_max));
        let (until, path) = (Instant::now() + LONGEST, self.at().join("full"));
        thread::scope(|scope| {
            scope.spawn(|| fill(&path, &written));
            let is_due = || written.load(Ordering::Relaxed) > mebibytes || Instant::now() >= until;
            wait_until("the server is killed", is_due);
            self.kill()
        })
    }

    /// SIGKILL. The file system stays mounted, without its device, until this is dropped.
    fn kill(&mut self) -> (Mount, Device) {
        let answer = get(self.setting.directory.path(), "/v1/status");
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let seconds = status["volumes"][0]["backend_state"]["consistent_seconds"].as_f64();
        self.stated_us = if self.states_late { Some(now_us()) } else { seconds.map(|seconds| (seconds * 1e6) as u64) };
        let (mount, device, server) = self.served.take().unwrap();
        server.kill();
        (mount, device)
    }

    /// Starts the server again after a kill, with its flash.
    fn restart(&mut self) -> Result<(), String> {
        let (server, device) = self.start(&[]);
        let mount = self.mount(&device.device)?;
        self.served = Some((mount, device, server));
        Ok(())
    }

    /// Deletes the flash of a killed server, mounts the backend, judges it, and checks the unmounted
    /// file system. `judge` gets the directory and the time of the stated moment. Its result is returned.
    fn lose_flash<T>(&mut self, judge: impl FnOnce(&Bed, Option<u64>) -> Result<T, String>) -> Result<T, String> {
        let path = |name| self.setting.path(name);
        std::fs::remove_file(path("cache.img")).unwrap();
        run("cp", &["--sparse=always", text(&path("disk.img")), text(&path("crashed.img"))]);
        let (server, device) = self.start(&["--discard-cache", "v"]);
        let stated = stated_us(&server.told()).max(self.stated_us);
        let is_served = self.random.chance(2);
        let result = if is_served {
            self.judge(&device.device, stated, judge)
        } else {
            drop((device, server));
            // A journal was written into place by the start. The mount changes the backend.
            let left = if path("disk.journal").exists() { "disk.img" } else { "crashed.img" };
            run("cp", &["--sparse=always", text(&path(left)), text(&path("backend.img"))]);
            let device = run("losetup", &["--find", "--show", text(&path("backend.img"))]).trim().to_owned();
            let result = self.judge(&device, stated, judge);
            run("losetup", &["--detach", &device]);
            result
        };
        result.map_err(|error| format!("{}: {error}", if is_served { "discarded" } else { "backend" }))
    }

    fn judge<T>(
        &self,
        device: &str,
        stated: Option<u64>,
        judge: impl FnOnce(&Bed, Option<u64>) -> Result<T, String>,
    ) -> Result<T, String> {
        let mount = self.mount(device)?;
        let result = judge(self, stated);
        drop(mount);
        check(self.file_system, device)?;
        result
    }

    /// Describes a failure, and keeps the images.
    fn failed(self, error: &str) -> String {
        let Bed { seed, file_system, setting, keys, options, .. } = self;
        let kept = setting.directory.keep();
        format!("{file_system}, seed {seed}, -o {options}, images in {}:\n{keys}{error}", kept.display())
    }
}

/// Writes a file of 40 MiB again and again, until the first error. Counts MiB.
fn fill(path: &Path, written: &AtomicU64) {
    let write = || -> std::io::Result<()> {
        let (mut file, bytes) = (File::create(path)?, vec![0x5a; 1 << 20]);
        for at in (0..40).cycle() {
            file.seek(SeekFrom::Start(at << 20))?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    assert!(write().is_err());
}

/// Returns the time of the backend's consistent state, as a server states it when it gives up a cache.
fn stated_us(told: &str) -> Option<u64> {
    let (_, moment) = told.split_once("consistent as of ")?;
    let moment = &moment[..moment.find(" UTC")? + 4];
    Some(run("date", &["-u", "-d", moment, "+%s"]).trim().parse::<u64>().unwrap() * 1_000_000)
}

/// Numbers of runs, and of their results.
#[derive(Default)]
struct Results {
    runs: u64,
    failures: Vec<String>,
    /// Files or transactions that were checked.
    checked: u64,
    /// Runs in which the backend had a part of the work, and in which the server stated the time of its state.
    with_work: u64,
    stated: u64,
}

/// Returns this many seeds.
fn seeds(count: u64) -> Range<u64> {
    let first = setting("FLASHWISE_SEED", 1);
    first..first + count
}

/// Loses a flash for each seed. `run` returns the number of things that were checked.
fn lose(
    order: &str,
    file_system: &'static str,
    seeds: Range<u64>,
    run: impl Fn(&mut Bed) -> Result<u64, String>,
) -> Results {
    let mut results = Results::default();
    for seed in seeds {
        let mut bed = Bed::new(file_system, order, seed);
        let result = run(&mut bed);
        results.runs += 1;
        results.stated += u64::from(bed.stated_us.is_some());
        match result {
            Ok(checked) => {
                results.checked += checked;
                results.with_work += u64::from(checked > 0);
            }
            Err(error) => {
                let told = match order == "none" || bed.states_late {
                    true => format!("{file_system}, seed {seed}: {error}"),
                    false => bed.failed(&error),
                };
                println!("{told}");
                results.failures.push(told);
            }
        }
    }
    println!(
        "{order}: {file_system}: {} of {} clean with everything promised; {} things checked, in {} runs; a time \
         was stated in {}",
        results.runs - results.failures.len() as u64,
        results.runs,
        results.checked,
        results.with_work,
        results.stated
    );
    results
}

/// Loses flashes, without a failure.
fn survives(file_system: &'static str, runs: u64, run: impl Fn(&mut Bed) -> Result<u64, String>) {
    for order in ["barriers", "journal"] {
        let results = lose(order, file_system, seeds(runs), &run);
        assert!(results.failures.is_empty(), "{order}: {} failures", results.failures.len());
        assert!(results.with_work > 0 || results.runs < 5, "{order}: no backend had any work");
    }
}
