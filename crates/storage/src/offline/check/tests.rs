//! The engine creates caches on disks in memory, and tests damage them byte by byte.

use std::collections::HashMap;

use flashwise_core::cache::{Config, LogCache};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use flashwise_engine::engine::{FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use parking_lot::Mutex;

use super::*;
use crate::attach::memory::MemorySide;
use crate::attach::{BackendSide, Pairing, Record};
use crate::disk::memory::MemoryDisk;
use crate::export::{Operation, Request};
use crate::flash::{Progress, format, read_superblock, write_superblock};
use crate::offline::detach::{DetachError, Detached, Pair, detach};
use crate::offline::journal::GivenJournal;

const GEOMETRY: Geometry = Geometry { units: 12, unit_pages: 16 };
const VOLUME_BLOCKS: u64 = 100;
const PAIRING: Pairing = Pairing { backend: [9; 16], is_identified: false, discards: false };

struct World {
    flash: MemoryDisk,
    backend: MemoryDisk,
    side: MemorySide,
    superblock: Superblock,
    /// The value written to each block.
    newest: HashMap<u64, u8>,
}

fn identity() -> Identity {
    Identity { id: [9; 16], description: "a disk in memory".to_owned() }
}

/// Creates a cache with `writes` flushed writes of one block each, by a run that was killed.
fn world(writes: u64) -> World {
    world_that_rested(writes, None)
}

/// Like [`world`], with a rest after the write of this number.
fn world_that_rested(writes: u64, after: Option<u64>) -> World {
    let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
    let backend = MemoryDisk::new(VOLUME_BLOCKS as usize * BLOCK_BYTES);
    let volume_bytes = VOLUME_BLOCKS * BLOCK_BYTES as u64;
    let mut superblock = Superblock::new([7; 16], [9; 16], GEOMETRY, volume_bytes);
    format(&flash, &mut superblock).unwrap();
    let side = MemorySide::default();
    side.write(&Record::new([7; 16], 1, true, None)).unwrap();
    let config = Config {
        dirty_age_us: u64::MAX,
        commit_age_us: 0,
        sequential_blocks: 0,
        ..Config::new(GEOMETRY, Spec::parse("lru").unwrap())
    };
    let settings = Settings {
        cache: cache_tag(&superblock),
        epoch: 1,
        retries: 0,
        discard: false,
        spare_frames: 0,
        answers_flushes_at_once: false,
        ..Settings::default()
    };
    let cache = LogCache::new(config, Log::new(GEOMETRY), HashMap::new());
    let mut engine = Engine::new(cache, settings, vec![0; GEOMETRY.pages() as usize], Vec::new());
    let mut newest = HashMap::new();
    for number in 0..writes {
        let (block, byte) = (number * 7 % 40, (number % 251) as u8 + 1);
        newest.insert(block, byte);
        submit(&mut engine, &flash, &backend, Operation::Write, block, vec![byte; BLOCK_BYTES]);
        if number % 3 == 0 {
            submit(&mut engine, &flash, &backend, Operation::Flush, 0, Vec::new());
        }
        if after == Some(number) {
            submit(&mut engine, &flash, &backend, Operation::Flush, 0, Vec::new());
            (0..2).for_each(|_| engine.tick(0));
            perform(&mut engine, &flash, &backend);
        }
    }
    submit(&mut engine, &flash, &backend, Operation::Flush, 0, Vec::new());
    World { flash, backend, side, superblock, newest }
}

fn submit(engine: &mut Engine, flash: &dyn Disk, backend: &dyn Disk, operation: Operation, block: u64, data: Vec<u8>) {
    let (offset, length) = (block * BLOCK_BYTES as u64, data.len() as u64);
    let done = Box::new(|result: Result<Vec<u8>, _>| drop(result.unwrap()));
    engine.submit(
        Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() },
        done,
        0,
    );
    perform(engine, flash, backend);
}

fn perform(engine: &mut Engine, flash: &dyn Disk, backend: &dyn Disk) {
    let mut output = Output::default();
    loop {
        engine.take_output(&mut output);
        output.answers.drain(..).for_each(|(done, result)| done(result));
        if output.transfers.is_empty() {
            break;
        }
        for transfer in output.transfers.drain(..) {
            (if transfer.disk == FLASH { flash } else { backend }).perform(&transfer).unwrap();
            engine.completed(transfer.tag, Ok(()));
        }
    }
    assert_eq!(engine.running(), 0);
}

impl World {
    fn pair<'a>(&'a self, backend: &'a MemoryDisk, pairing: &'a Pairing) -> Pair<'a> {
        Pair { flash: &self.flash, backend, journal: GivenJournal::Nothing, side: &self.side, pairing }
    }

    fn check(&self, data: bool) -> Report {
        let before = self.flash.contents();
        let report = check(&self.flash, Some((&identity(), self.backend.size())), data, &|_| ()).unwrap();
        assert!(self.flash.contents() == before, "checking wrote to the device");
        report
    }

    fn damage(&self, page: u32) {
        let mut memory = Memory::new(1);
        let offset = u64::from(page) * BLOCK_BYTES as u64;
        self.flash.read_at(memory.bytes_mut(), offset).unwrap();
        memory.page_mut(0)[100] ^= 1;
        self.flash.write_at(memory.bytes_mut(), offset).unwrap();
    }

    fn recovered(&self) -> Recovered {
        recover_log(&self.flash, &self.superblock, 1, &|_, _| ()).unwrap()
    }

    /// Recovers with several threads.
    fn recovered_by(&self, threads: u32, progress: Progress<'_>) -> Result<Recovered, FlashError> {
        recover_log(&self.flash, &self.superblock, threads, progress)
    }

    /// Returns the slot of a dirty or clean block outside the head of the log.
    fn slot(&self, dirty: bool) -> (u32, u32) {
        let log = self.recovered().log;
        let head = GEOMETRY.unit_of(*log.sequences().end());
        let found = log.blocks().into_iter().map(|block| (block, log.find(block).unwrap()));
        let mut found = found.filter(|&(_, slot)| slot / GEOMETRY.unit_pages != head && log.is_dirty(slot) == dirty);
        found.next().unwrap()
    }
}

/// The footer that the head got during a rest is valid after later writes, too.
#[test]
fn a_cache_that_was_at_rest_and_went_on_is_sound() {
    for (rests, more) in (0..12).flat_map(|rests| (1..4).map(move |more| (rests, more))) {
        let report = world_that_rested(rests + 1 + more, Some(rests)).check(true);
        assert_eq!(damage_of(&report), [] as [&str; 0], "{more} more after {rests}");
        // Nothing was written back or moved yet.
        assert_eq!(report.counts.dirty_records, rests + 1 + more, "{more} more after {rests}");
    }
}

/// A backend of another cache is not damage; an outdated copy is.
#[test]
fn devices_of_other_pairs_are_not_damaged() {
    let uuid = |byte| uuid::Uuid::from_bytes([byte; 16]);
    let other = Refusal::OtherCache { found: uuid(1), expected: uuid(2), on_found: true, on_expected: true };
    let older = Refusal::BackendOlder { cache: uuid(1), found: 1, expected: 2 };
    for (refusal, is_damaged) in [(other, false), (older, true)] {
        let mut report = Report::default();
        report.add_refusal(&refusal);
        assert_eq!((report.is_sound(), report.is_damaged()), (false, is_damaged), "{refusal}");
    }
}

fn damage_of(report: &Report) -> Vec<&str> {
    let damage = report.findings.iter().filter(|finding| finding.severity == Severity::Damage);
    damage.map(|finding| finding.text.as_str()).collect()
}

#[test]
fn a_cache_that_was_killed_is_sound_and_its_blocks_and_records_are_counted() {
    for writes in [0, 1, 20, 60, 500] {
        let world = world(writes);
        let report = world.check(true);
        assert!(report.is_sound(), "{writes}: {:?}", report.findings);
        let (counts, recovered) = (report.counts, world.recovered());
        assert_eq!(counts.log_units, u64::from(recovered.units), "{writes}");
        assert_eq!(counts.log_units + counts.unused_units, u64::from(GEOMETRY.log_units()));
        assert_eq!(counts.cached_blocks, recovered.log.len() as u64);
        assert_eq!(counts.verified_blocks, counts.cached_blocks);
        assert!(counts.dirty_records + counts.clean_records >= counts.cached_blocks);
        let description = report.description.unwrap();
        assert_eq!((description.state, description.erase_unit_bytes), ("in-use", 65_536));
        assert!(report.findings[0].text.contains("not shut down cleanly"), "{:?}", report.findings);
    }
}

#[test]
fn a_damaged_copy_of_the_superblock_is_reported_and_two_end_the_check() {
    let world = world(20);
    world.damage(1);
    let report = world.check(false);
    assert_eq!(damage_of(&report).len(), 1);
    assert!(damage_of(&report)[0].starts_with("Copy 1 of the superblock is damaged: the checksum is"), "{report:?}");
    assert_eq!(report.counts.cached_blocks, world.recovered().log.len() as u64);
    world.damage(0);
    let report = world.check(false);
    assert!(damage_of(&report)[0].contains("damaged in both of its copies"), "{report:?}");
    assert_eq!(report.description, None);
}

#[test]
fn something_else_is_not_called_a_cache() {
    let flash = MemoryDisk::new(1 << 20);
    let report = check(&flash, None, false, &|_| ()).unwrap();
    assert_eq!(
        damage_of(&report),
        ["The cache cannot be opened: no superblock of a cache: the magic number is missing."]
    );
}

#[test]
fn damaged_data_is_found_only_when_data_is_read_and_is_explained() {
    let world = world(60);
    let (block, slot) = world.slot(true);
    world.damage(slot);
    let report = world.check(false);
    assert!(report.is_sound() && report.opens);
    let report = world.check(true);
    assert_eq!(
        damage_of(&report),
        [format!(
            "Block {block}, at page {slot}, has a wrong checksum. It was the only copy: reads fail until new data is \
             written there."
        )]
    );
}

#[test]
fn damaged_headers_and_footers_are_found_and_a_unit_without_either_ends_the_cache() {
    let world = world(60);
    let sequence = *world.recovered().log.sequences().start();
    let unit = GEOMETRY.unit_of(sequence);
    world.damage(GEOMETRY.slot(unit, 0));
    let report = world.check(false);
    assert_eq!(damage_of(&report).len(), 1, "{report:?}");
    assert!(damage_of(&report)[0].contains(&format!("the first of erase unit {unit} and the header")), "{report:?}");
    assert!(report.counts.cached_blocks > 0, "the footer stands in");
    world.damage(GEOMETRY.slot(unit, GEOMETRY.segments_end()));
    let report = world.check(false);
    let damage = damage_of(&report);
    assert!(damage[0].contains(&format!("Erase unit {unit} should hold part {sequence} of the log")), "{damage:?}");
    assert!(damage[1].contains("The cache cannot be opened") && !report.opens, "{damage:?}");
}

/// During a rest, the newest unit gets a footer, too. A start uses it, and the check names the damaged page.
#[test]
fn a_zeroed_first_page_of_the_newest_unit_is_named() {
    let world = world_that_rested(30, Some(29));
    let superblock = world.superblock.clone();
    let newest = walk_units(&world.flash, &superblock, &|_| ()).unwrap().into_values().next_back().unwrap();
    let page = GEOMETRY.slot(newest.unit, 0);
    let sound = world.check(true);
    assert_eq!(damage_of(&sound), [""; 0]);
    world.flash.write_at(&[0; BLOCK_BYTES], u64::from(page) * BLOCK_BYTES as u64).unwrap();
    let report = world.check(true);
    let expected =
        format!("Page {page}, the first of erase unit {} and the header of a segment, is damaged", newest.unit);
    assert!(damage_of(&report)[0].starts_with(&expected), "{:?}", damage_of(&report));
    assert!(damage_of(&report)[0].ends_with("so nothing is lost."), "{:?}", damage_of(&report));
    assert_eq!(report.counts.log_units, sound.counts.log_units);
    assert_eq!(report.counts.cached_blocks, sound.counts.cached_blocks);
}

#[test]
fn a_segment_behind_a_damaged_header_is_missed() {
    let world = world(60);
    let sequence = *world.recovered().log.sequences().start();
    let unit = GEOMETRY.unit_of(sequence);
    let walk = walk_unit(&world.flash, &world.superblock, unit).unwrap().unwrap();
    let second = walk.segments[1].page;
    world.damage(GEOMETRY.slot(unit, second));
    let report = world.check(false);
    let expected = format!("its segments can be read up to page {second} with");
    assert!(damage_of(&report)[0].contains(&expected), "{report:?}");
}

#[test]
fn another_backend_and_a_truncated_one_are_reported() {
    let world = world(5);
    let other = Identity { id: [8; 16], description: "another".to_owned() };
    // A mismatched backend is not damage, and its size is not compared.
    let report = check(&world.flash, Some((&other, 4096)), false, &|_| ()).unwrap();
    assert!(!report.is_damaged() && !report.is_sound(), "{report:?}");
    let told = &report.findings[0];
    assert_eq!(told.severity, Severity::Mismatch);
    assert!(told.text.contains("this backend is 08080808-0808-0808-0808-080808080808 (another)"), "{report:?}");
    let report = check(&world.flash, Some((&identity(), 4096)), false, &|_| ()).unwrap();
    let damage = damage_of(&report);
    assert!(report.is_damaged() && damage[0].contains("has 4096 bytes, the volume 409600"), "{damage:?}");
}

#[test]
fn after_detaching_the_backend_has_the_newest_of_every_block() {
    let world = world(60);
    let dirty = world.recovered().log.dirty_blocks();
    let mut told = (0, 0);
    let detached =
        detach(world.pair(&world.backend, &PAIRING), &|_, _| (), &mut |done, all| told = (done, all)).unwrap();
    assert_eq!(detached, Detached::Now { destaged_blocks: dirty });
    assert_eq!(told, (dirty, dirty));
    let contents = world.backend.contents();
    for (&block, &byte) in &world.newest {
        let bytes = &contents[block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        assert!(bytes.iter().all(|found| *found == byte), "block {block} is {}, not {byte}", bytes[0]);
    }
    let report = world.check(true);
    assert!(report.is_sound() && report.findings[0].text.contains("is detached"), "{report:?}");
    let again = detach(world.pair(&world.backend, &PAIRING), &|_, _| (), &mut |_, _| ()).unwrap();
    assert_eq!(again, Detached::Before);
}

#[test]
fn detaching_does_not_call_a_cache_detached_that_lost_a_block() {
    let world = world(60);
    let (block, slot) = world.slot(true);
    world.damage(slot);
    let error = detach(world.pair(&world.backend, &PAIRING), &|_, _| (), &mut |_, _| ()).unwrap_err();
    assert!(matches!(&error, DetachError::Lost { blocks, .. } if blocks == &[block]), "{error}");
    let contents = world.backend.contents();
    for (&other, &byte) in world.newest.iter().filter(|(other, _)| **other != u64::from(block)) {
        assert_eq!(contents[other as usize * BLOCK_BYTES], byte, "block {other}");
    }
    assert_eq!(read_superblock(&world.flash).unwrap().state, State::InUse);
}

#[test]
fn detaching_from_another_backend_is_refused_and_writes_nothing() {
    let world = world(20);
    let (flash, backend) = (world.flash.contents(), world.backend.contents());
    let other = Pairing { backend: [8; 16], ..PAIRING };
    let error = detach(world.pair(&world.backend, &other), &|_, _| (), &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("it is a cache of another backend"), "{error}");
    let error = detach(world.pair(&MemoryDisk::new(4096), &PAIRING), &|_, _| (), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, DetachError::BackendTooSmall { found: 4096, .. }), "{error}");
    assert!(world.flash.contents() == flash && world.backend.contents() == backend);
}

#[test]
fn a_cleanly_closed_cache_has_no_findings() {
    let mut world = world(20);
    world.superblock.state = State::Clean;
    write_superblock(&world.flash, &mut world.superblock).unwrap();
    let report = world.check(true);
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].text.starts_with("A start reads "), "{report:?}");
}

/// A power failure during the last write, which was not flushed unless it filled its unit.
#[test]
fn a_torn_end_is_reported_and_checking_it_writes_nothing() {
    let mut torn = 0;
    for writes in 15..30 {
        let world = world(writes);
        let end = world.recovered().end;
        world.damage(GEOMETRY.slot(GEOMETRY.unit_of(end.sequence), end.page - 1));
        if world.recovered().leftovers.is_empty() {
            continue;
        }
        torn += 1;
        let report = world.check(true);
        assert!(report.is_sound(), "{report:?}");
        assert!(report.findings.iter().any(|finding| finding.text.contains("was torn by a crash")), "{report:?}");
    }
    assert!(torn > 5, "a start has something to wipe after {torn} of them");
}

#[test]
fn many_threads_find_the_same_as_one() {
    let world = world(300);
    let described = |recovered: Recovered| {
        let copies = recovered.log.blocks().into_iter().map(|block| {
            let slot = recovered.log.find(block).unwrap();
            (block, slot, recovered.log.is_dirty(slot), recovered.checksums[slot as usize])
        });
        (copies.collect::<Vec<_>>(), recovered.epoch, recovered.end, recovered.units, recovered.head_records)
    };
    let expected = described(world.recovered());
    assert!(expected.3 > 5, "{} units", expected.3);
    for threads in [2, 3, 5, 40] {
        let told = Mutex::new((0, 0));
        let progress = |done, all| {
            let mut told = told.lock();
            *told = (told.0.max(done), told.1.max(all));
        };
        assert_eq!(described(world.recovered_by(threads, &progress).unwrap()), expected, "{threads} threads");
        // All units, and the footers of all but the head.
        let all = u64::from(GEOMETRY.log_units() + expected.3 - 1);
        assert_eq!(*told.lock(), (all, all), "{threads} threads");
    }
    // Threads that read ahead stop at the error, too.
    let (_, slot) = world.slot(true);
    let unit = slot / GEOMETRY.unit_pages;
    for page in 0..GEOMETRY.unit_pages {
        world.damage(GEOMETRY.slot(unit, page));
    }
    let error = |threads| world.recovered_by(threads, &|_, _| ()).unwrap_err().to_string();
    assert!(error(1).contains(&format!("erase unit {unit} should hold part")), "{}", error(1));
    assert_eq!(error(5), error(1));
}
