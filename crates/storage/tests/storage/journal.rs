//! The journal of a volume: set up, written into place at a start, and refused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use flashwise_core::cache::settings::Settings;
use flashwise_core::checksum::crc32c;
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::journal::{Group, Head, INDEX_START};
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::attach::stores::side_of;
use flashwise_storage::attach::{BackendPart, BackendSide, Pairing};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::identity::{Identity, identity};
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::journal::{self, JournalOwner};
use flashwise_storage::offline::detach::Pair;
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::offline::salvage::{SalvageOptions, salvage};
use flashwise_storage::volume::{OpenDisk, Opened, Storage, Volume, VolumeConfig};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;
use flashwise_testing::waiting::wait_until;
use uuid::Uuid;

use crate::failing::SharedSide;

const MIB: u64 = 1 << 20;

fn config(directory: &Path) -> VolumeConfig {
    let at = |name: &str| directory.join(name);
    VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        cache: Settings::of(&[("erase-unit", "256KiB"), ("ram", "64KiB"), ("write-back-order", "journal")]).unwrap(),
        journal: Some(at("disk.journal")),
        ..VolumeConfig::of("v", &at("disk.img"), &at("cache.img"))
    }
}

fn make(path: PathBuf, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

fn start(config: &VolumeConfig) -> Result<Opened, String> {
    let (volume, opened) = Volume::open(config.clone(), &|_, _| ()).map_err(|error| error.to_string())?;
    volume.close().map_err(|error| error.to_string())?;
    Ok(opened)
}

/// The blocks of a group, and the byte that fills each.
const BLOCKS: [(u32, u8); 2] = [(3, 5), (9, 6)];

/// The index and the blocks of the group after the last one in place.
fn next_group(marks: &[Page; 2], blocks: &[(u32, u8)]) -> Vec<Page> {
    let last = Head::last(marks).expect("it was set up");
    let data: Vec<Page> = blocks.iter().map(|(_, byte)| [*byte; BLOCK_BYTES]).collect();
    let blocks = blocks.iter().zip(&data).map(|((block, _), page)| (*block, crc32c(page))).collect();
    let group = Group { head: Head { number: last.number + 1, ..last }, blocks };
    group.index().chain(data).collect()
}

/// Puts a group into a journal, without its mark.
pub fn put_group(path: &Path, blocks: &[(u32, u8)]) {
    let journal = File::options().read(true).write(true).open(path).unwrap();
    let mut marks = [[0; BLOCK_BYTES]; 2];
    journal.read_exact_at(marks.as_flattened_mut(), 0).unwrap();
    for (page, at) in next_group(&marks, blocks).iter().zip(u64::from(INDEX_START)..) {
        journal.write_all_at(page, at * BLOCK_BYTES as u64).unwrap();
    }
}

/// A journal of a backend, both in memory.
struct InMemory {
    journal: Arc<FakeDisk>,
    backend: Arc<FakeDisk>,
    expected: Option<Uuid>,
}

impl InMemory {
    fn new() -> InMemory {
        let mut it = InMemory { journal: disk(64), backend: disk(16), expected: None };
        it.start().unwrap();
        it
    }

    /// Starts. Returns the number of blocks that were written into place.
    fn start(&mut self) -> Result<Option<usize>, String> {
        let opened = journal::open(&*self.journal, &*self.backend, &JournalOwner::of_volume([9; 16], self.expected));
        let opened = opened.map_err(|error| error.to_string())?;
        self.expected = Some(Uuid::from_bytes(opened.journal.last.journal));
        Ok(opened.replayed_blocks)
    }

    /// Writes pages of the next group.
    fn put(&self, pages: &[usize]) {
        let group = next_group(&[self.journal.page(0), self.journal.page(1)], &BLOCKS);
        for &page in pages {
            let at = INDEX_START as usize + page;
            self.journal.write_at(&group[page], (at * BLOCK_BYTES) as u64).unwrap();
        }
    }
}

/// A crash left a part of a group. A later group may have equal pages where the rest would be: zeroes, for example.
#[test]
fn the_next_group_never_completes_one_that_a_crash_left() {
    let mut it = InMemory::new();
    it.put(&[0, 1]);
    assert_eq!(it.start(), Ok(None));
    it.put(&[2]);
    assert_eq!(it.start(), Ok(None));
    it.put(&[0, 1, 2]);
    assert_eq!(it.start(), Ok(Some(2)));
}

/// The server was killed before it flushed the mark. The backend goes on, and then the power fails.
#[test]
fn a_start_makes_the_mark_durable_that_it_finds() {
    let mut it = InMemory::new();
    it.put(&[0, 1, 2]);
    it.journal.sync().unwrap();
    let last = Head::last(&[it.journal.page(0), it.journal.page(1)]).expect("it was set up");
    let head = Head { number: last.number + 1, ..last };
    it.journal.write_at(&head.mark(), u64::from(head.mark_page()) * BLOCK_BYTES as u64).unwrap();
    assert_eq!(it.start(), Ok(None));
    it.journal.crash(Loss::Everything, &mut Random(1));
    assert_eq!(it.start(), Ok(None));
}

/// The server was killed before it flushed the journal, and the power fails while the next start writes the group into
/// place.
#[test]
fn a_group_is_durable_before_a_start_writes_it_into_place() {
    let mut it = InMemory::new();
    it.put(&[0, 1, 2]);
    it.backend.set_lives(1);
    let error = it.start().unwrap_err();
    assert!(error.starts_with("its last group cannot be written to "), "{error}");
    it.backend.set_lives(u64::MAX);
    for (disk, loss) in [(&it.journal, Loss::Everything), (&it.backend, Loss::Nothing)] {
        disk.crash(loss, &mut Random(1));
    }
    assert_eq!(it.backend.page(3)[0], 5);
    assert_eq!(it.start(), Ok(Some(2)));
    assert_eq!([3, 9].map(|block| it.backend.page(block)[0]), [5, 6]);
}

/// A start may end before it changes the record. A group that a missing part needs must stay whole.
#[test]
fn a_missing_part_gets_its_blocks_once_and_a_damaged_group_is_refused() {
    let it = InMemory::new();
    let part = BackendPart { id: Uuid::from_bytes([7; 16]), path: "b.img".to_owned(), blocks: 9..10, is_missing: true };
    let mut owner = JournalOwner { parts: vec![part], ..JournalOwner::of_volume([9; 16], it.expected) };
    let open = |it: &InMemory, owner: &JournalOwner| journal::open(&*it.journal, &*it.backend, owner);
    for round in 0..2 {
        it.put(&[0, 1, 2]);
        owner.parts[0].is_missing = true;
        let opened = open(&it, &owner).unwrap();
        assert_eq!((opened.replayed_blocks, &opened.waits_for), (Some(1), &owner.parts));
        assert_eq!([3, 9].map(|block| it.backend.page(block)[0]), [5, 6 * round]);
        owner.recorded = opened.recorded();
        owner.parts[0].is_missing = false;
        if round == 1 {
            it.journal.set_page(INDEX_START as usize + 2, [8; BLOCK_BYTES]);
            assert!(matches!(open(&it, &owner), Err(journal::JournalError::Damaged)));
            owner.gives_up = true;
        }
        it.backend.set_page(3, [7; BLOCK_BYTES]);
        for replayed_blocks in [Some(1).filter(|_| round == 0), None, None] {
            let opened = open(&it, &owner).unwrap();
            assert_eq!((opened.replayed_blocks, opened.waits_for), (replayed_blocks, Vec::new()));
        }
        assert_eq!([3, 9].map(|block| it.backend.page(block)[0]), [7, 6]);
        owner.recorded.waits_for.clear();
    }
}

fn byte_at(path: &Path, block: u64) -> u8 {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, block * BLOCK_BYTES as u64).unwrap();
    byte[0]
}

#[test]
fn a_start_writes_a_whole_group_into_place_with_the_flash_and_without() {
    for keeps_flash in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        make(config.backend.clone(), 16 * MIB);
        make(config.journal.clone().unwrap(), 64 * MIB);
        assert_eq!(start(&config).unwrap().notes, [""; 0]);
        put_group(config.journal.as_ref().unwrap(), &BLOCKS);
        if !keeps_flash {
            std::fs::remove_file(&config.flash).unwrap();
            (config.discard_cache, config.flash, config.flash_size_bytes) = (true, PathBuf::new(), None);
        }
        let notes = start(&config).unwrap().notes.join(" ");
        assert!(notes.contains("2 blocks of its last group were written to the backend"), "{notes}");
        assert_eq!([3, 9, 4].map(|block| byte_at(&config.backend, block)), [5, 6, 0]);
        // It has its mark now.
        File::options().write(true).open(&config.backend).unwrap().write_all_at(&[7], 3 * BLOCK_BYTES as u64).unwrap();
        let notes = start(&config).unwrap().notes.join(" ");
        assert!(!notes.contains("journal"), "{notes}");
        assert_eq!(byte_at(&config.backend, 3), 7);
    }
}

/// Without that, a start would later write the group over what was salvaged.
#[test]
fn a_salvage_completes_the_backend_from_its_journal_or_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    make(config.journal.clone().unwrap(), 64 * MIB);
    start(&config).unwrap();
    put_group(config.journal.as_ref().unwrap(), &BLOCKS);
    let disk = |path: &Path| Arc::new(FileDisk::open(path, Options::default()).unwrap());
    let [flash, backend, journal] =
        [&config.flash, &config.backend, config.journal.as_ref().unwrap()].map(|path| disk(path));
    let id = identity(&backend, None).unwrap().id;
    let side = side_of(backend.clone(), id, &config.state_directory).unwrap();
    let pairing = Pairing { backend: id, is_identified: false, discards: false };
    let run = |journal: GivenJournal<'_>, discard_rest| {
        let pair = Pair { flash: &*flash, backend: &*backend, journal, side: &*side, pairing: &pairing };
        let options = SalvageOptions { discard_rest, ..SalvageOptions::default() };
        salvage(pair, &options, &mut |_| Ok(()), &|_, _| (), &mut |_, _| ())
    };
    let [blank, other] = [(); 2].map(|()| FakeDisk::new(16, BLOCK_BYTES));
    journal::open(&other, &*backend, &JournalOwner::of_volume([7; 16], None)).unwrap();
    let short = ReadOnly(Arc::new(FakeDisk::new(1, BLOCK_BYTES)));
    let given_up = "'flashwise detach --salvage --discard-rest' gives it up";
    for (journal, expected, end) in [
        (GivenJournal::Nothing, "journal: none is configured", given_up),
        (GivenJournal::Absent(Path::new("away")), "journal away: it does not exist", given_up),
        (GivenJournal::Disk(&blank), "journal disk: it is blank or damaged", given_up),
        (GivenJournal::Disk(&short), "journal disk: it was cut short: found 4096 bytes, expected", given_up),
        (GivenJournal::Disk(&other), "journal disk: it is the journal of backend ", "expected that of "),
    ] {
        let error = run(journal, false).unwrap_err();
        assert!(error.is_misuse() && error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains(end), "{error}");
    }
    assert!(run(GivenJournal::Disk(&other), true).is_err(), "it is the wrong one");
    let outcome = run(GivenJournal::Disk(&*journal), false).unwrap();
    assert_eq!((outcome.journal_blocks, outcome.detached), (2, true));
    assert_eq!([3, 9, 4].map(|block| byte_at(&config.backend, block)), [5, 6, 0]);
    assert!(run(GivenJournal::Nothing, false).unwrap().was_detached);
}

#[test]
fn another_journal_is_refused_and_an_unused_one_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    let journal = config.journal.clone().unwrap();
    make(config.backend.clone(), 16 * MIB);
    make(journal.clone(), MIB / 2);
    assert!(start(&config).unwrap_err().contains("found 524288 bytes, expected at least 67108864"));
    File::options().write(true).open(&journal).unwrap().write_all_at(b"something else", 512).unwrap();
    File::options().write(true).open(&journal).unwrap().set_len(64 * MIB).unwrap();
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is not blank, expected a journal or zeroes in its first 8192 bytes"), "{error}");
    make(journal.clone(), 64 * MIB);
    start(&config).unwrap();
    // Another backend.
    let mut other = config.clone();
    (other.backend, other.flash) = (directory.path().join("other.img"), directory.path().join("other-cache.img"));
    make(other.backend.clone(), 16 * MIB);
    let error = start(&other).unwrap_err();
    assert!(error.contains("it is the journal of backend"), "{error}");
    // A missing one, and a blank one.
    config.journal = Some(directory.path().join("blank.journal"));
    let error = start(&config).unwrap_err();
    assert!(error.contains("it does not exist; the backend has journal"), "{error}");
    config.journal = Some(directory.path().join("blank.journal"));
    make(config.journal.clone().unwrap(), 64 * MIB);
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is blank or damaged, expected journal"), "{error}");
    // From here on, the first one does not count.
    (config.journal, config.cache) = (None, Settings::of(&[("erase-unit", "256KiB"), ("ram", "64KiB")]).unwrap());
    put_group(&journal, &BLOCKS);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is no longer used"), "{notes}");
    config.journal = Some(journal);
    assert_eq!(start(&config).unwrap().notes, [""; 0]);
    assert_eq!(byte_at(&config.backend, 3), 0);
}

/// It may have blocks of a group that is in place in part.
#[test]
fn a_flash_that_stays_needs_the_journal_of_its_backend() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    start(&config).unwrap();
    (config.journal, config.discard_cache) = (Some(directory.path().join("blank.journal")), true);
    make(config.journal.clone().unwrap(), 64 * MIB);
    let error = start(&config).unwrap_err();
    assert!(error.contains("it is blank or damaged, expected journal"), "{error}");
    config.journal = None;
    config.discard_cache = false;
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is no longer used"), "{notes}");
}

#[test]
fn a_missing_file_is_created_with_its_size_and_used_with_direct_io() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    (config.journal_size_bytes, config.direct_io) = (Some(65 * MIB), true);
    assert_eq!(start(&config).unwrap().notes, [""; 0]);
    let journal = config.journal.clone().unwrap();
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), 65 * MIB);
    put_group(&journal, &BLOCKS);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("2 blocks of its last group were written to the backend"), "{notes}");
}

/// Without the flash, only the journal can complete the backend.
#[test]
fn a_flash_is_not_given_up_without_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    make(config.backend.clone(), 16 * MIB);
    make(config.journal.clone().unwrap(), 64 * MIB);
    start(&config).unwrap();
    std::fs::remove_file(&config.flash).unwrap();
    let journal = config.journal.take();
    config.discard_cache = true;
    let error = start(&config).unwrap_err();
    assert!(error.contains("none is configured; the backend has journal"), "{error}");
    // It is lost, too.
    config.journal = Some(directory.path().join("blank.journal"));
    make(config.journal.clone().unwrap(), 64 * MIB);
    let notes = start(&config).unwrap().notes.join(" ");
    assert!(notes.contains("is lost; the backend may be a mixture of old and new blocks"), "{notes}");
    (config.journal, config.discard_cache) = (journal, false);
    assert!(start(&config).unwrap_err().contains("it is journal"));
}

/// A disk that takes no writes.
struct ReadOnly(Arc<FakeDisk>);

impl Disk for ReadOnly {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }
    fn zero(&self, _: u64, _: u64, _: bool) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens a volume in memory: flash, backend and journal.
fn open_on(
    flash: &Arc<FakeDisk>,
    backend: Arc<dyn Disk>,
    journal: Option<&Arc<FakeDisk>>,
    side: &Arc<MemorySide>,
    order: &str,
) -> (Arc<Volume>, Opened) {
    let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
    config.flash_disk = Some(OpenDisk(flash.clone()));
    config.journal_disk = journal.map(|journal| OpenDisk(journal.clone()));
    let settings = [("erase-unit", "64KiB"), ("ram", "0"), ("write-back-order", order)];
    config.cache = Settings::of(&settings).unwrap();
    let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
    let side = Box::new(SharedSide(side.clone()));
    let storage = Storage { disk: backend, identity, side, notes: Vec::new() };
    Volume::open_on(config, storage, &|_, _| ()).unwrap()
}

/// Writes a block durably, which ends an epoch.
fn put(volume: &Volume, block: u64) {
    let (sender, receiver) = mpsc::channel();
    let request = Request {
        operation: Operation::Write,
        offset: block * BLOCK_BYTES as u64,
        length: BLOCK_BYTES as u64,
        force_unit_access: true,
        data: vec![1; BLOCK_BYTES],
        caching: Caching::Usual,
    };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
}

/// The server ends in order while a group is written into place.
#[test]
fn a_group_that_an_end_leaves_in_the_journal_counts_for_the_next_order() {
    let (flash, backend, journal) = (disk(400), disk(48), disk(64));
    let side: Arc<MemorySide> = Arc::default();
    let (volume, _) = open_on(&flash, Arc::new(ReadOnly(backend.clone())), Some(&journal), &side, "journal");
    (0..3).for_each(|block| put(&volume, block));
    volume.change(&Settings::of(&[("dirty-high", "0%"), ("dirty-low", "0%")]).unwrap()).unwrap();
    wait_until("a group is in the journal", || {
        let last = Head::last(&[journal.page(0), journal.page(1)]).expect("it was set up");
        let read = |page: u32, bytes: &mut [u8]| journal.read_at(bytes, u64::from(page) * BLOCK_BYTES as u64);
        Group::find(&last, 64, read).unwrap().is_some()
    });
    volume.close().unwrap();
    let record = side.read().unwrap().unwrap();
    for (order, has_journal, is_unknown) in [("journal", true, false), ("barriers", false, true)] {
        let [flash, backend, journal] = [&flash, &backend, &journal].map(|disk| Arc::new(disk.fork()));
        let side: Arc<MemorySide> = Arc::default();
        side.write(&record).unwrap();
        let (volume, opened) = open_on(&flash, backend, has_journal.then_some(&journal), &side, order);
        let notes = opened.notes.join(" ");
        assert_eq!(notes.contains("the order of its 3 dirty blocks is unknown"), is_unknown, "{order}: {notes}");
        volume.close().unwrap();
    }
}

/// A group may be in place in part, so the recorded epochs do not count without its journal.
#[test]
fn after_a_crash_another_order_begins_with_all_dirty_blocks() {
    let (flash, backend, journal) = (disk(400), disk(48), disk(64));
    let side: Arc<MemorySide> = Arc::default();
    let (volume, _) = open_on(&flash, backend.clone(), Some(&journal), &side, "journal");
    put(&volume, 0);
    for (order, has_journal, is_unknown) in
        [("journal", true, false), ("barriers", true, true), ("barriers", false, true), ("none", false, false)]
    {
        let [flash, backend, journal] = [&flash, &backend, &journal].map(|disk| Arc::new(disk.fork()));
        let record = side.read().unwrap().unwrap();
        let side: Arc<MemorySide> = Arc::default();
        side.write(&record).unwrap();
        let (volume, opened) = open_on(&flash, backend, has_journal.then_some(&journal), &side, order);
        let notes = opened.notes.join(" ");
        assert_eq!(notes.contains("the order of its 1 dirty blocks is unknown"), is_unknown, "{order}: {notes}");
        assert_eq!(side.read().unwrap().unwrap().journal.id.is_some(), order == "journal", "{order}");
        volume.close().unwrap();
    }
    volume.close().unwrap();
}

fn disk(blocks: usize) -> Arc<FakeDisk> {
    Arc::new(FakeDisk::new(blocks, BLOCK_BYTES))
}
