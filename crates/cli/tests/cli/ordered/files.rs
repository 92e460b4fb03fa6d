//! Files, their promises by fsync, and a run of three workers.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use flashwise_testing::setting;
use flashwise_testing::waiting::wait_until;
use flashwise_testing::work::{Load, Moments, Version, Worker};

use super::{Bed, LONGEST, fill, lose, now_us, seeds, survives};

const WORKERS: u64 = 3;

/// The time, in microseconds since 1970.
struct Clock;

impl Moments for Clock {
    fn now(&self) -> u64 {
        now_us()
    }
}

/// Works on a new file system, loses the flash at a random moment, and checks what the backend has. Returns the number
/// of kept promises.
fn work(bed: &mut Bed) -> Result<u64, String> {
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let root = bed.at().join(format!("w{number}"));
            std::fs::create_dir(&root).unwrap();
            let large_bytes = bed.random.pick(&[0, 4 << 20]);
            Worker::new(
                &root,
                Clock,
                Load { file_bytes: 64 << 10, large_bytes, kept_bytes: 24 << 20 },
                bed.random.next(),
            )
        })
        .collect();
    File::open(bed.at()).unwrap().sync_all().unwrap();
    bed.settle();
    // A restart with the flash comes before its loss in some runs.
    let is_restarted = bed.random.chance(4);
    if is_restarted {
        work_until_killed(bed, &mut workers, 200);
        bed.restart()?;
        workers.iter_mut().for_each(|worker| worker.restarted());
        workers.iter().for_each(|worker| worker.read_all());
    }
    work_until_killed(bed, &mut workers, 600);
    let versions: Vec<Vec<Version>> = workers.into_iter().map(Worker::versions).collect();
    bed.lose_flash(|bed, stated| judge(&bed.at(), &versions, stated))
}

/// The workers perform up to `steps_max` steps. The server is killed at a random moment, at the latest after
/// [`LONGEST`].
fn work_until_killed(bed: &mut Bed, workers: &mut [Worker<Clock>], steps_max: u64) {
    let (performed, steps) = (AtomicU64::new(0), 5 + bed.random.below(steps_max));
    let (until, path) = (Instant::now() + LONGEST, bed.at().join("full"));
    let is_filled = bed.random.chance(2);
    let gone = thread::scope(|scope| {
        for worker in workers {
            // The first error is that of the killed server.
            scope.spawn(|| {
                while worker.step().is_ok() {
                    performed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        if is_filled {
            scope.spawn(|| fill(&path, &AtomicU64::new(0)));
        }
        let is_due = || performed.load(Ordering::Relaxed) >= steps || Instant::now() >= until;
        wait_until("the server is killed", is_due);
        bed.kill()
    });
    drop(gone);
}

/// Checks the files of a backend that lost its flash. Its state has everything that was durable at some moment, and of
/// the changes until the next flush it has any. The stated moment is that one or an earlier one.
fn judge(at: &Path, versions: &[Vec<Version>], stated: Option<u64>) -> Result<u64, String> {
    let mut found: HashMap<(usize, &Path), Option<Vec<u8>>> = HashMap::new();
    for (number, version) in
        versions.iter().enumerate().flat_map(|(number, all)| all.iter().map(move |it| (number, it)))
    {
        let path = at.join(format!("w{number}")).join(&version.path);
        found.entry((number, &version.path)).or_insert_with(|| std::fs::read(path).ok());
    }
    let is_there = |number: usize, version: &Version| found[&(number, &*version.path)] == version.content;
    let all = || versions.iter().enumerate().flat_map(|(number, all)| all.iter().map(move |it| (number, it)));
    // A change that is there was begun after that moment, or durable at it.
    let is_evidence = |number: usize, version: &Version| {
        let same = |other: &&Version| other.path == version.path && other.content == version.content;
        version.content.is_some() && is_there(number, version) && versions[number].iter().filter(same).count() == 1
    };
    let evidence = all().filter(|&(number, version)| is_evidence(number, version)).max_by_key(|(_, it)| it.begun);
    let least = evidence.map_or(0, |(_, version)| version.begun).max(stated.unwrap_or(0));
    // If something durable is missing, that moment was before; so changes that were begun later are not there.
    let missing =
        |&(number, version): &(usize, &Version)| version.promised.end == u64::MAX && !is_there(number, version);
    let most = all().filter(missing).map(|(_, version)| version.promised.start).min().unwrap_or(u64::MAX);
    let mut checked = 0;
    for (number, version) in all().filter(|(_, it)| it.promised.start < least && it.promised.end >= most.max(least)) {
        if !is_there(number, version) {
            let length = |content: &Option<Vec<u8>>| content.as_ref().map(Vec::len);
            return Err(format!(
                "w{number}/{} was durable at {}, before {least} (stated: {stated:?}, newest change: {:?}), with bytes \
                 {:?}, but {:?} are there",
                version.path.display(),
                version.promised.start,
                evidence.map(|(number, version)| (number, &version.path, version.begun)),
                length(&version.content),
                length(&found[&(number, &*version.path)])
            ));
        }
        checked += 1;
    }
    Ok(checked)
}

fn runs() -> u64 {
    setting("FLASHWISE_ORDERED", 5)
}

#[test]
fn ext4_survives_the_loss_of_the_flash() {
    survives("ext4", runs(), work);
}

#[test]
fn xfs_survives_the_loss_of_the_flash() {
    survives("xfs", runs(), work);
}

#[test]
fn btrfs_survives_the_loss_of_the_flash() {
    survives("btrfs", runs(), work);
}

/// The control: without an order of write-back, file systems are damaged.
#[test]
fn file_systems_without_an_order_are_damaged() {
    let lost = ["ext4", "xfs", "btrfs"].map(|file_system| lose("none", file_system, seeds(runs().div_ceil(10)), work));
    assert!(lost.iter().any(|results| !results.failures.is_empty()), "no file system was damaged");
}

/// The test of the check against the stated time. In half of the runs, the backend is too fast to be much behind.
#[test]
fn a_time_that_is_stated_too_late_is_found() {
    let results = lose("barriers", "ext4", seeds(runs().div_ceil(10).max(12)), |bed| {
        bed.states_late = true;
        work(bed)
    });
    assert!(results.failures.iter().any(|failure| failure.contains("was durable at")), "{:?}", results.failures);
}
