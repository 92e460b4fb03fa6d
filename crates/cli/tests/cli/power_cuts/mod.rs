//! Power cuts of a real kernel. A virtual machine runs `flashwise serve` on disks with volatile caches, and a file
//! system on the volume. The machine is killed at a random moment, its disks forget some unflushed writes, and it boots
//! again. The cache must recover, the file system must mount and be sound, and all data that fsync promised must be
//! there.
//!
//! `tests/power-cuts/run` makes the guest and starts this. `FLASHWISE_CUTS` sets how many cuts, `FLASHWISE_SEED` the
//! seed.

mod cut_disk;
mod machine;
mod promises;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cut_disk::{CutDisk, Disks};
use flashwise_testing::random::Random;
use flashwise_testing::setting;
use machine::{Machine, Task, Told};
use promises::Promises;

/// The log goes round several times.
const FLASH_BYTES: u64 = 32 << 20;
/// The minimum size of an xfs.
const BACKEND_BYTES: u64 = 320 << 20;
/// Where the server keeps its state.
const STATE_BYTES: u64 = 16 << 20;
/// Far longer than anything takes, emulated on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The machine's disks, in the order of their names in the guest; the one called `liar` does not flush.
fn disks(directory: &Path, liar: Option<&str>) -> Disks {
    let lies = |name| liar == Some(name);
    let state = CutDisk::new("state", STATE_BYTES, 4096, false);
    let image = directory.join("state");
    std::fs::File::create(&image).unwrap().set_len(STATE_BYTES).unwrap();
    assert!(Command::new("mkfs.ext4").args(["-q", "-b", "4096"]).arg(&image).status().unwrap().success());
    state.load(&std::fs::read(&image).unwrap());
    let disks = vec![
        CutDisk::new("flash", FLASH_BYTES, 512, lies("flash")),
        // Of a backend, no more is asked than that it writes single blocks whole.
        CutDisk::new("backend", BACKEND_BYTES, 4096, lies("backend")),
        state,
    ];
    Disks::serve(disks, &directory.join("nbd.sock"))
}

/// Time of the power cut after a stage of the guest, as a multiple of the machine's boot time.
struct Moment {
    stage: &'static str,
    after: f64,
}

/// A file system that lives through power cuts, on a cache of a layout.
struct Trial {
    layout: &'static str,
    file_system: &'static str,
    directory: tempfile::TempDir,
    disks: Disks,
    random: Random,
    promises: Promises,
    /// True if there is a file system.
    made: bool,
    boots: u64,
}

impl Trial {
    fn new(layout: &'static str, file_system: &'static str, liar: Option<&str>, seed: u64) -> Trial {
        let directory = tempfile::tempdir().unwrap();
        let disks = disks(directory.path(), liar);
        let random = Random(seed);
        let promises = Promises::default();
        Trial { layout, file_system, directory, disks, random, promises, made: false, boots: 0 }
    }

    /// The guest's next work and its end.
    fn plan(&mut self) -> (&'static str, Moment) {
        let (step, stage) = match (self.made, self.random.below(12)) {
            (false, 0..2) => ("make", "serve"),
            (false, 2..6) => ("make", "make"),
            (false, _) => ("make", "write"),
            (true, 0..2) => ("write", "serve"),
            (true, 2) => ("write", "read"),
            (true, 3..5) => ("detach", "detach"),
            (true, _) => ("write", "write"),
        };
        // Starting, reading and detaching take a fraction of the kernel's start.
        let longest = if stage == "write" { 2.0 } else { 0.25 };
        (step, Moment { stage, after: longest * self.random.below(1000) as f64 / 1000.0 })
    }

    /// Boots the guest, until the moment or until it turns itself off.
    ///
    /// # Errors
    /// The lost data.
    fn boot(&mut self, step: &'static str, moment: Option<&Moment>) -> Result<String, String> {
        self.boots += 1;
        self.promises.forget_what_was_read();
        let task = Task { layout: self.layout, file_system: self.file_system, step, boot: self.boots };
        let machine = Machine::start(self.directory.path(), self.disks.names(), &task);
        let mut deadline = machine.started + PATIENCE;
        let (mut startup, mut stage, mut is_due, mut is_done) = (Duration::ZERO, String::new(), false, false);
        loop {
            match machine.told(deadline) {
                Told::Line(line) => {
                    if let Some(next) = line.strip_prefix("stage ") {
                        if stage.is_empty() {
                            startup = machine.started.elapsed();
                        }
                        stage = next.to_owned();
                    }
                    self.take(&line).map_err(|error| format!("{error}\n{}", machine.console()))?;
                    is_done |= line == "detached";
                    if let Some(moment) = moment.filter(|moment| !is_due && stage == moment.stage) {
                        is_due = true;
                        deadline = Instant::now() + startup.mul_f64(moment.after);
                    }
                }
                Told::Nothing if is_due => break,
                Told::Nothing => panic!("the guest is at stage '{stage}' for too long\n{}", machine.console()),
                Told::Off if is_done => break,
                Told::Off => panic!("the guest is off at stage '{stage}'\n{}", machine.console()),
            }
        }
        let seconds = machine.started.elapsed().as_secs_f64();
        let console = machine.console();
        for line in machine.kill() {
            self.take(&line).map_err(|error| format!("{error}\n{console}"))?;
        }
        Ok(format!("{step} until {stage}, {seconds:.1} s, started in {:.1} s", startup.as_secs_f64()))
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        if self.promises.take(line)? {
            return Ok(());
        }
        match line.split_once(' ') {
            Some(("failed", what)) => Err(format!("the guest failed: {what}")),
            Some(("verified", _)) => self.promises.all_read(),
            _ => {
                self.made |= line == "made";
                Ok(())
            }
        }
    }

    /// Cuts the power `cuts` times; then the cache is detached, and the backend has it all.
    fn live(&mut self, cuts: u64) -> Result<(), String> {
        for cut in 1..=cuts {
            let (step, moment) = self.plan();
            let done = self.boot(step, Some(&moment)).map_err(|error| format!("after cut {}: {error}", cut - 1))?;
            let lost = self.disks.cut(&mut self.random);
            let Promises { made, held, .. } = self.promises;
            let Trial { layout, file_system, .. } = *self;
            println!("{layout}, {file_system}, cut {cut}: {done}; {lost}; {made} promises made, {held} places read");
        }
        let Trial { layout, file_system, .. } = *self;
        assert!(self.made, "{layout}, {file_system}: there were too few cuts to make a file system");
        let done = self.boot("detach", None).map_err(|error| format!("after cut {cuts}: {error}"))?;
        println!("{layout}, {file_system}, after {cuts} cuts: {done}");
        Ok(())
    }
}

fn survives(layout: &'static str, file_system: &'static str) {
    let (cuts, seed) = (setting("FLASHWISE_CUTS", 30).div_ceil(2), setting("FLASHWISE_SEED", 1));
    let started = Instant::now();
    let mut trial = Trial::new(layout, file_system, None, seed);
    trial.live(cuts).unwrap_or_else(|error| panic!("{layout}, {file_system}, seed {seed}, {error}"));
    let Promises { made, held, .. } = trial.promises;
    assert!(made > 0 && held > 0, "{layout}, {file_system}: {made} promises were made, {held} places read");
    println!(
        "{layout}, {file_system}: {cuts} cuts in {:.0?}, {made} promises made, {held} places read, none lost",
        started.elapsed()
    );
}

#[test]
fn ext4_survives_power_cuts() {
    survives("log", "ext4");
}

#[test]
fn xfs_survives_power_cuts() {
    survives("log", "xfs");
}

#[test]
fn wlfc_with_ext4_survives_power_cuts() {
    survives("wlfc", "ext4");
}

#[test]
fn wlfc_with_xfs_survives_power_cuts() {
    survives("wlfc", "xfs");
}

/// The control: a disk that answers flushes and does not do them must be found to lose data.
fn is_found_out(layout: &'static str, liar: &'static str) {
    let seed = setting("FLASHWISE_SEED", 1);
    let error = Trial::new(layout, "ext4", Some(liar), seed).live(20).expect_err("lost data is found");
    println!("{layout}, the {liar} lies: {error}");
}

#[test]
fn a_flash_that_lies_about_flushes_is_found_out() {
    is_found_out("log", "flash");
}

#[test]
fn a_backend_that_lies_about_flushes_is_found_out() {
    is_found_out("log", "backend");
}

#[test]
fn a_flash_of_wlfc_that_lies_about_flushes_is_found_out() {
    is_found_out("wlfc", "flash");
}
