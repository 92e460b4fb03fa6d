//! Pools: starts, crashes and reads of clients, checked against models.

mod bare;
mod care;
mod failed_flash;
mod failing;
mod given_up;
pub mod in_order;
mod journal;
pub mod live;
mod moving;
mod offline;
mod recorded;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flashwise_core::cache::Mode;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::pool::map::Entry;
use flashwise_storage::pool::record::{Change, Run, Shape};
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, Pool, PoolError};
use recorded::{CRASHES, Crash, Log, RecordedDisk, after, after_syncs};
use uuid::Uuid;

const MIB: usize = 1 << 20;

fn open(disks: &[Arc<dyn Disk>], degraded: bool) -> Result<Metadata, PoolError> {
    let mut metadata = Metadata::open("tank", disks.to_vec(), degraded, &mut Vec::new())?;
    metadata.write_start()?;
    Ok(metadata)
}

/// The parts of a map that matter to its users.
type Seen = BTreeMap<String, (u64, Vec<Entry>)>;

fn seen(metadata: &Metadata) -> Seen {
    metadata.map.check().unwrap();
    let of = |logical: &flashwise_storage::pool::map::Logical| {
        let shape = logical.shape();
        (shape.name, (shape.size_bytes, logical.entries().to_vec()))
    };
    metadata.map.logicals.values().map(|logical| of(logical)).collect()
}

fn shape(name: &str, chunks: u64) -> Shape {
    let size_bytes = chunks * CHUNK_BYTES;
    Shape {
        name: name.to_owned(),
        uuid: Uuid::nil(),
        size_bytes,
        thick: false,
        striped: false,
        cached: true,
        mode: Mode::WriteBack,
        pinned_ram_bytes: 0,
    }
}

/// Makes changes in memory and then on disk, as a pool does with what it does not have to hold back.
fn change(metadata: &mut Metadata, changes: &[Change]) {
    changes.iter().for_each(|change| metadata.map.replay(change).unwrap());
    metadata.commit(changes).unwrap();
}

/// Places for `count` chunks of a logical disk, wherever there are.
fn mapped(metadata: &Metadata, id: u32, first: u32, count: u32) -> Vec<Change> {
    let mut space = metadata.map.space.clone();
    let place = |at: u32| {
        let chunk = space.allocate(at, None, true).unwrap();
        Change::Mapped(id, Run { first: at, step: 1, chunk, count: 1, written: true })
    };
    (first..first + count).map(place).collect()
}

/// Runs a pool of three disks through about eighty changes, including some that need a new snapshot.
fn life(log: &Log) -> Vec<(usize, Seen)> {
    let disks: Vec<_> = (0..3).map(|number| RecordedDisk::shared(number, 2 * MIB, log)).collect();
    let mut metadata = Metadata::create("tank", disks.clone()).unwrap();
    let mut steps = vec![(log.lock().unwrap().len(), seen(&metadata))];
    let mut step = |metadata: &mut Metadata, changes: &[Change]| {
        change(metadata, changes);
        steps.push((log.lock().unwrap().len(), seen(metadata)));
    };
    step(&mut metadata, &[Change::Logical(1, shape("a", 20)), Change::Logical(2, shape("b", 5))]);
    for round in 0..10 {
        let places = mapped(&metadata, 1, round, 1);
        step(&mut metadata, &places);
        let places = mapped(&metadata, 2, round % 5, u32::from(round < 5));
        step(&mut metadata, &[places, vec![Change::Unmapped(1, round / 2, 1)]].concat());
        step(&mut metadata, &[Change::Logical(1, shape("a", 20 + u64::from(round)))]);
        // A record of a page and more, as no change of a logical disk is.
        step(&mut metadata, &[Change::Cache(vec![round as u8; 5000])]);
        let run = run_of(&metadata);
        step(&mut metadata, &[Change::Logical(3, shape("c", 3)), Change::Mapped(3, run)]);
        step(&mut metadata, &[Change::LogicalDeleted(3)]);
        step(&mut metadata, &[Change::Lost(1, round / 3, 2)]);
    }
    drop(metadata);
    let metadata = open(&disks, false).unwrap();
    steps.push((log.lock().unwrap().len(), seen(&metadata)));
    steps
}

fn run_of(metadata: &Metadata) -> Run {
    let chunk = metadata.map.space.clone().allocate(0, None, false).unwrap();
    Run { first: 1, step: 1, chunk, count: 1, written: false }
}

#[test]
fn after_a_crash_at_every_write_the_map_is_the_last_that_was_durable_or_the_one_on_its_way() {
    let log = Log::default();
    let steps = life(&log);
    let log = log.lock().unwrap();
    let created = steps[0].0;
    let mut opened = 0;
    for count in created..=log.len() {
        let durable = steps.iter().rposition(|(end, _)| *end <= count).unwrap();
        let allowed = &steps[durable..(durable + 2).min(steps.len())];
        for crash in CRASHES {
            let disks = after(&log, count, crash, 3, 2 * MIB);
            let metadata = open(&disks, false).unwrap_or_else(|error| panic!("after {count}, {crash:?}: {error}"));
            let found = seen(&metadata);
            assert!(allowed.iter().any(|(_, seen)| *seen == found), "after {count}, {crash:?}: {found:?}");
            drop(metadata);
            // And once more, as the start itself wrote.
            assert_eq!(seen(&open(&disks, false).unwrap()), found, "after {count}, {crash:?}, again");
            opened += 1;
        }
    }
    assert!(opened > 1000, "{opened} crashes");
}

/// Checks the previous test: it detects a disk that ignores syncs.
#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out() {
    let log = Log::default();
    let steps = life(&log);
    let log = log.lock().unwrap();
    let created = steps[0].0;
    let mut wrong = 0;
    for count in created..=log.len() {
        let durable = steps.iter().rposition(|(end, _)| *end <= count).unwrap();
        let allowed = &steps[durable..(durable + 2).min(steps.len())];
        // Only the creation of the pool was synced.
        let disks = after_syncs(&log, count, Crash::Lost, &[created; 3], 2 * MIB);
        let found = open(&disks, false).map(|metadata| seen(&metadata));
        wrong += u32::from(!found.is_ok_and(|found| allowed.iter().any(|(_, seen)| *seen == found)));
    }
    assert!(wrong > 100, "{wrong} times");
}

/// Starts are interrupted as well: each leaves a map that the next one takes.
#[test]
fn a_start_that_is_interrupted_at_every_write_is_made_up_for_by_the_next() {
    let log = Log::default();
    let disks: Vec<_> = (0..3).map(|number| RecordedDisk::shared(number, 2 * MIB, &log)).collect();
    let mut metadata = Metadata::create("tank", disks.clone()).unwrap();
    let places = vec![Change::Logical(1, shape("a", 4))];
    change(&mut metadata, &places);
    let expected = seen(&metadata);
    let before = log.lock().unwrap().len();
    for _ in 0..3 {
        open(&disks, false).unwrap().end().unwrap();
    }
    let log = log.lock().unwrap();
    for count in before..=log.len() {
        for crash in CRASHES {
            let disks = after(&log, count, crash, 3, 2 * MIB);
            assert_eq!(seen(&open(&disks, false).unwrap()), expected, "after {count}, {crash:?}");
            // And with a disk that stays away once, and comes back.
            assert_eq!(seen(&open(&disks[1..], true).unwrap()), expected, "after {count}, {crash:?}");
            assert_eq!(seen(&open(&disks, false).unwrap()), expected, "after {count}, {crash:?}");
        }
    }
}

fn three() -> Vec<Arc<dyn Disk>> {
    let disks: Vec<_> = (0..3).map(|_| Arc::new(MemoryDisk::new(2 * MIB)) as Arc<dyn Disk>).collect();
    let mut metadata = Metadata::create("tank", disks.clone()).unwrap();
    let mut changes = vec![Change::Logical(1, shape("a", 6))];
    change(&mut metadata, &changes);
    changes = mapped(&metadata, 1, 0, 6);
    change(&mut metadata, &changes);
    disks
}

fn copy(disk: &Arc<dyn Disk>) -> Arc<dyn Disk> {
    let copy = MemoryDisk::new(disk.size() as usize);
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    copy.write_at(&bytes, 0).unwrap();
    Arc::new(copy)
}

fn refusal(disks: &[Arc<dyn Disk>], degraded: bool) -> String {
    open(disks, degraded).unwrap_err().to_string()
}

#[test]
fn disks_are_known_by_their_labels_in_whatever_order_they_come() {
    let disks = three();
    let before = seen(&open(&disks, false).unwrap());
    let swapped = [disks[2].clone(), disks[0].clone(), disks[1].clone()];
    assert_eq!(seen(&open(&swapped, false).unwrap()), before);
}

#[test]
fn a_disk_that_is_missing_is_named_and_the_others_start_without_it_when_they_may() {
    let disks = three();
    let error = refusal(&disks[..2], false);
    assert!(error.contains("misses disk") && error.contains("degraded = true"), "{error}");
    let metadata = open(&disks[..2], true).unwrap();
    assert_eq!(metadata.missing(), [3]);
    let mut changed = metadata;
    change(&mut changed, &[Change::Logical(2, shape("later", 1))]);
    let after = seen(&changed);
    drop(changed);
    // It comes back, older than the others, and takes over what they know.
    let mut notes = Vec::new();
    let metadata = Metadata::open("tank", disks.clone(), false, &mut notes).unwrap();
    assert_eq!((seen(&metadata), metadata.missing()), (after, Vec::new()));
    assert!(notes.iter().any(|note| note.contains("was absent and is up to date again")), "{notes:?}");
}

#[test]
fn disks_that_were_started_apart_contradict_each_other() {
    let disks = three();
    drop(open(&disks[..2], true).unwrap());
    drop(open(&disks[2..], true).unwrap());
    let error = refusal(&disks, false);
    assert!(error.contains("contradicts the other disks of pool 'tank'"), "{error}");
    open(&disks[..2], true).unwrap();
}

/// The copy lacks later writes, so it must not be accepted as a disk that was absent.
#[test]
fn an_older_copy_of_a_disk_is_refused() {
    let disks = three();
    let of_pool = |first: &Arc<dyn Disk>| [first.clone(), disks[1].clone(), disks[2].clone()];
    let is_refused = |older: &Arc<dyn Disk>| {
        for degraded in [false, true] {
            let error = refusal(&of_pool(older), degraded);
            assert!(error.contains("it is an older copy of a disk"), "{error}");
        }
        assert!(refusal(&disks[1..], false).contains("misses disk"));
    };
    let before = copy(&disks[0]);
    let mut metadata = open(&disks, false).unwrap();
    is_refused(&before);
    let running = copy(&disks[0]);
    metadata.end().unwrap();
    is_refused(&running);
    // Nor is one of before a start without the disk.
    let older = copy(&disks[0]);
    open(&disks, false).unwrap().end().unwrap();
    open(&disks[1..], true).unwrap().end().unwrap();
    is_refused(&older);
    open(&disks, false).unwrap();
}

/// The error about a missing disk names a blank disk next to it. A degraded start ignores the blank disk.
#[test]
fn a_blank_disk_is_named_beside_the_missing_one() {
    let disks = three();
    let blank = Arc::new(MemoryDisk::new(2 * MIB)) as Arc<dyn Disk>;
    let given = [disks[0].clone(), disks[1].clone(), blank];
    let error = refusal(&given, false);
    assert!(error.contains("misses disk") && error.contains("is another: it is blank"), "{error}");
    let mut notes = Vec::new();
    assert_eq!(Metadata::open("tank", given.to_vec(), true, &mut notes).unwrap().missing(), [3]);
    assert!(notes.iter().any(|note| note.contains("is not one of its disks and is ignored")), "{notes:?}");
}

#[test]
fn a_copy_of_a_disk_is_refused_beside_it_and_a_disk_of_another_pool_too() {
    let disks = three();
    let twice = [disks.clone(), vec![copy(&disks[1])]].concat();
    assert!(refusal(&twice, false).contains("are the same disk"), "{}", refusal(&twice, false));
    let other = three();
    let mixed = [disks[0].clone(), other[1].clone(), disks[2].clone()];
    assert!(refusal(&mixed, true).contains("of another pool with that name"), "{}", refusal(&mixed, true));
    let error = Metadata::open("tonk", disks.clone(), false, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("is a disk of pool 'tank', expected 'tonk'"), "{error}");
    let blank: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(2 * MIB))];
    assert!(refusal(&blank, true).contains("there is no label of a pool"), "{}", refusal(&blank, true));
    let short = MemoryDisk::new(MIB);
    let mut bytes = vec![0; MIB];
    disks[0].read_at(&mut bytes, 0).unwrap();
    short.write_at(&bytes, 0).unwrap();
    let short: Vec<Arc<dyn Disk>> = vec![Arc::new(short), disks[1].clone(), disks[2].clone()];
    assert!(refusal(&short, true).contains("it was truncated"), "{}", refusal(&short, true));
}

#[test]
fn a_label_that_is_damaged_is_made_up_for_by_its_copy_and_both_are_refused() {
    let before = seen(&open(&three(), false).unwrap());
    for copy in [0, 1] {
        let disks = three();
        disks[0].write_at(&[0xff; 4096], copy * CHUNK_BYTES).unwrap();
        assert_eq!(seen(&open(&disks, false).unwrap()), before);
        // The start has mended it.
        disks[0].write_at(&[0xff; 4096], (1 - copy) * CHUNK_BYTES).unwrap();
        assert_eq!(seen(&open(&disks, false).unwrap()), before);
    }
    let disks = three();
    for copy in [0, 1] {
        let mut page = vec![0; 4096];
        disks[0].read_at(&mut page, copy * CHUNK_BYTES).unwrap();
        page[100] ^= 1;
        page[72] ^= 1;
        disks[0].write_at(&page, copy * CHUNK_BYTES).unwrap();
    }
    assert!(refusal(&disks, false).contains("damaged in both copies"), "{}", refusal(&disks, false));
}

#[test]
fn a_disk_that_was_added_is_one_of_the_pool_and_one_that_was_taken_out_is_not() {
    let disks = three();
    let new: Arc<dyn Disk> = Arc::new(MemoryDisk::new(4 * MIB));
    let mut metadata = open(&disks, false).unwrap();
    let before = seen(&metadata);
    assert_eq!(metadata.add(new.clone()).unwrap(), 4);
    drop(metadata);
    let all = [disks.clone(), vec![new.clone()]].concat();
    let mut metadata = open(&all, false).unwrap();
    assert_eq!(seen(&metadata), before);
    let stays_labelled = copy(&new);
    metadata.take_out(4).unwrap();
    drop(metadata);
    assert_eq!(seen(&open(&disks, false).unwrap()), before);
    // If all disks are present, or the pool may start degraded, the additional disk is ignored, with or without its
    // label. Otherwise it is refused.
    for (other, expected) in [(new, "it is blank"), (stays_labelled, "it was removed")] {
        let mut notes = Vec::new();
        let all = [disks.clone(), vec![other.clone()]].concat();
        assert_eq!(seen(&Metadata::open("tank", all.clone(), false, &mut notes).unwrap()), before);
        assert!(notes.len() == 1 && notes[0].contains("is not one of its disks and is ignored"), "{notes:?}");
        let error = refusal(&all[1..], false);
        assert!(error.contains("misses disk") && error.contains(expected), "{error}");
        assert_eq!(open(&[disks[0].clone(), disks[2].clone(), other], true).unwrap().missing(), [2]);
        assert_eq!(seen(&open(&disks, false).unwrap()), before);
    }
}

#[test]
fn a_map_that_does_not_fit_is_refused_and_changes_nothing() {
    let disk = Arc::new(MemoryDisk::new(2 * MIB)) as Arc<dyn Disk>;
    let mut metadata = Metadata::create("tank", vec![disk.clone()]).unwrap();
    change(&mut metadata, &[Change::Logical(1, shape("a", 1))]);
    let before = seen(&metadata);
    // The areas have 32 pages.
    let error = metadata.commit(&[Change::Cache(vec![1; 40 * 4096])]);
    assert!(error.is_ok(), "what does not fit behind the snapshot is a part of the next one, if it is in memory");
    metadata.map.replay(&Change::Cache(vec![1; 40 * 4096])).unwrap();
    let error = metadata.commit(&[Change::Cache(vec![1; 40 * 4096])]).unwrap_err().to_string();
    assert!(error.contains("does not fit its area"), "{error}");
    metadata.map.replay(&Change::Cache(Vec::new())).unwrap();
    change(&mut metadata, &[Change::Cache(vec![2])]);
    drop(metadata);
    assert_eq!(seen(&open(&[disk], false).unwrap()), before);
}

/// It takes no writes while that is said.
struct Failing(MemoryDisk, Mutex<bool>);
impl Disk for Failing {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        if *self.1.lock().unwrap() {
            return Err(std::io::Error::other("broken"));
        }
        self.0.write_at(buffer, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn zero(&self, _: u64, _: u64, _: bool) -> std::io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// A disk that fails to take changes is left behind; the others go on, and it is brought up to date at the next start.
#[test]
fn a_disk_that_fails_does_not_stop_the_others() {
    let failing = Arc::new(Failing(MemoryDisk::new(2 * MIB), Mutex::new(false)));
    let good = Arc::new(MemoryDisk::new(2 * MIB)) as Arc<dyn Disk>;
    let disks = [failing.clone() as Arc<dyn Disk>, good];
    let mut metadata = Metadata::create("tank", disks.to_vec()).unwrap();
    *failing.1.lock().unwrap() = true;
    change(&mut metadata, &[Change::Logical(1, shape("a", 1))]);
    assert!(metadata.present[0].stale && !metadata.present[1].stale);
    let expected = seen(&metadata);
    drop(metadata);
    *failing.1.lock().unwrap() = false;
    assert_eq!(seen(&open(&disks, false).unwrap()), expected);
    let mut metadata = open(&disks[..1], true).unwrap();
    assert_eq!(seen(&metadata), expected, "the start has brought it up to date");
    *failing.1.lock().unwrap() = true;
    let error = metadata.commit(&[Change::Cache(vec![1])]).unwrap_err().to_string();
    assert!(error.contains("no disk accepts changes"), "{error}");
}

/// The error of an operator's change names the failure, and the pool once.
#[test]
fn errors_of_all_disks_name_the_pool_once() {
    let failing = Arc::new(Failing(MemoryDisk::new(2 * MIB), Mutex::new(false)));
    let disks = vec![failing.clone() as Arc<dyn Disk>];
    drop(Metadata::create("tank", disks.clone()).unwrap());
    let tank = live::Tank::new(false);
    let (pool, _) = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap();
    *failing.1.lock().unwrap() = true;
    let error = pool.create_logical(&live::new("a", MIB as u64)).err().unwrap();
    assert!(matches!(error.cause(), PoolError::NotWritten { .. }) && !error.is_permanent());
    let what = "pool 'tank': no disk accepts changes of the map any more: ";
    assert!(error.to_string().starts_with(what) && error.to_string().matches("tank").count() == 1, "{error}");
}

/// All disks fail temporarily, for example those of one enclosure. Afterwards the map continues, and incompletely
/// written changes are ignored.
#[test]
fn a_map_that_no_disk_took_for_a_while_goes_on() {
    for tries in 0..4 {
        let disks: Vec<_> = (0..2).map(|_| Arc::new(Failing(MemoryDisk::new(2 * MIB), Mutex::new(false)))).collect();
        let all = || disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect::<Vec<_>>();
        let mut metadata = Metadata::create("tank", all()).unwrap();
        change(&mut metadata, &[Change::Logical(1, shape("a", 1))]);
        disks.iter().for_each(|disk| *disk.1.lock().unwrap() = true);
        for _ in 0..tries {
            metadata.commit(&[Change::Cache(vec![1; 9_000])]).unwrap_err();
        }
        disks.iter().for_each(|disk| *disk.1.lock().unwrap() = false);
        for number in 2..5 {
            change(&mut metadata, &[Change::Logical(number, shape("b", 1))]);
            assert!(metadata.present.iter().all(|present| !present.stale));
            let found = open(&fork(&disks), false).unwrap();
            assert_eq!(seen(&found), seen(&metadata), "{tries} tries, {number}");
        }
    }
}

/// The disks as they are now, for another start.
fn fork(disks: &[Arc<Failing>]) -> Vec<Arc<dyn Disk>> {
    let copy = |disk: &Arc<Failing>| {
        let copy = MemoryDisk::new(2 * MIB);
        copy.write_at(&disk.0.contents(), 0).unwrap();
        Arc::new(copy) as Arc<dyn Disk>
    };
    disks.iter().map(copy).collect()
}
