//! Zoned flash: a file that behaves like it refuses what a device refuses, and a cache lives on it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::{Arc, mpsc};

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::{Geometry, State, Superblock};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::Options;
use flashwise_storage::disk::zoned::file::ZoneFile;
use flashwise_storage::disk::zoned::zoning::Zoning;
use flashwise_storage::disk::zoned::{Condition, Use, Zone, ZonedDevice, ZonedFlash, open_flash};
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::flash::{FlashError, read_superblock, write_superblock};
use flashwise_storage::layout::LAYOUTS;
use flashwise_storage::offline::check::check;
use flashwise_storage::offline::wipe::{examine, wipe};
use flashwise_storage::volume::{Opened, Volume, VolumeConfig};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// 16 zones of 128 KiB, which hold 96 KiB each.
const ZONING: Zoning = Zoning { size: 128 * KIB, capacity: 96 * KIB, max_active: 3, max_open: 2 };

#[repr(align(4096))]
struct Pages([u8; 32 << 10]);

fn file(path: &Path) -> ZoneFile {
    ZoneFile::create(path, 16 * ZONING.size, ZONING, Options::default()).unwrap()
}

fn append(device: &dyn ZonedDevice, zone: u32, offset: u64, length: usize) -> bool {
    let pages = Pages([zone as u8 + 1; 32 << 10]);
    device.write(zone, &mut [IoSlice::new(&pages.0[..length])], offset).is_ok()
}

fn zone(device: &dyn ZonedDevice, zone: u32) -> (Condition, u64) {
    let Zone { condition, written } = device.report(zone, 1).unwrap()[0];
    (condition, written)
}

#[test]
fn a_file_of_zones_is_written_at_write_pointers_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zones");
    let device = file(&path);
    assert_eq!((device.zones(), device.capacity()), (16, 96 * KIB));
    assert!(append(&device, 3, 0, 32 << 10) && append(&device, 3, 32 * KIB, 32 << 10));
    assert_eq!(zone(&device, 3), (Condition::Open, 64 * KIB));
    // Behind the write pointer, before it, and past the capacity.
    assert!(!append(&device, 3, 0, 4096) && !append(&device, 3, 68 * KIB, 4096));
    assert!(append(&device, 3, 64 * KIB, 16 << 10) && !append(&device, 3, 80 * KIB, 32 << 10));
    assert_eq!(device.refusals(), 3);
    assert!(append(&device, 3, 80 * KIB, 16 << 10));
    assert_eq!(zone(&device, 3), (Condition::Full, 96 * KIB));
    assert!(!append(&device, 3, 96 * KIB, 4096), "a full zone");
    // Two may be open; three open or closed.
    assert!(append(&device, 4, 0, 4096) && append(&device, 5, 0, 4096) && append(&device, 6, 0, 4096));
    assert_eq!((zone(&device, 4).0, zone(&device, 6).0), (Condition::Closed, Condition::Open));
    assert!(!append(&device, 7, 0, 4096));
    device.finish(5).unwrap();
    assert!(append(&device, 7, 0, 4096));
    device.reset(3).unwrap();
    assert_eq!(zone(&device, 3), (Condition::Empty, 0));
    device.fail(6, Condition::ReadOnly).unwrap();
    assert!(!append(&device, 6, 4096, 4096) && device.reset(6).is_err());
    assert_eq!(device.refusals(), 5);
    // All of it is known after the file was opened again, but that nothing is open.
    let before = device.report(0, 16).unwrap();
    drop(device);
    let flash = open_flash(&path, Options::default()).unwrap();
    let after = flash.zoned().unwrap().device().report(0, 16).unwrap();
    for (before, after) in before.iter().zip(&after) {
        let closed = if before.condition == Condition::Open { Condition::Closed } else { before.condition };
        assert_eq!(*after, Zone { condition: closed, ..*before });
    }
    let mut pages = Pages([0; 32 << 10]);
    let device = flash.zoned().unwrap().device();
    device.read(4, &mut [IoSliceMut::new(&mut pages.0[..4096])], 0).unwrap();
    assert!(pages.0[..4096].iter().all(|&byte| byte == 5));
}

#[test]
fn units_without_gaps_are_laid_over_zones_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let flash = ZonedFlash::new(Box::new(file(&directory.path().join("zones")))).unwrap();
    // Two zones for superblocks.
    assert_eq!(flash.geometry(), Geometry { units: 15, unit_pages: 24 });
    assert_eq!(flash.size(), 15 * 96 * KIB);
    let unit = 96 * KIB;
    let ones = Pages([1; 32 << 10]);
    flash.write_at(&ones.0[..8192], unit).unwrap();
    // Skipped pages are written as zeroes, and writes beyond the write pointer fail.
    flash.write_at(&ones.0[..4096], unit + 16 * KIB).unwrap();
    assert_eq!(flash.written_pages(1), 5);
    let error = flash.write_at(&ones.0[..4096], unit).unwrap_err().to_string();
    assert!(error.contains("a write at 0 of zone 2, whose write pointer is at 20480"), "{error}");
    // A read may span units, and finds zeroes where nothing was written.
    let mut pages = Pages([9; 32 << 10]);
    flash.read_at(&mut pages.0[..24 << 10], unit).unwrap();
    let found: Vec<u8> = pages.0[..24 << 10].chunks(4096).map(|page| page[77]).collect();
    assert_eq!(found, [1, 1, 0, 0, 1, 0]);
    flash.write_at(&ones.0[..4096], 2 * unit).unwrap();
    flash.read_at(&mut pages.0[..8192], 2 * unit - 4096).unwrap();
    assert_eq!((pages.0[0], pages.0[4096]), (0, 1));
    // The zone before was finished when the next was begun.
    assert_eq!(zone(flash.device(), 2).0, Condition::Full);
    assert_eq!(zone(flash.device(), 3), (Condition::Open, 4096));
    flash.discard(unit, unit).unwrap();
    assert_eq!(zone(flash.device(), 2), (Condition::Empty, 0));
    flash.prepare(|unit| if unit == 2 { Use::Head } else { Use::None }).unwrap();
    flash.write_at(&ones.0, 2 * unit + 4096).unwrap();
    assert_eq!(flash.written_pages(2), 9);
}

#[test]
fn superblocks_follow_each_other_in_two_zones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zones");
    let mut superblock = Superblock::new([1; 16], [2; 16], Geometry { units: 15, unit_pages: 24 }, MIB);
    superblock.in_order = true;
    drop(file(&path));
    // 24 superblocks fit a zone: both are filled three times.
    for generation in 1..=150 {
        let flash = open_flash(&path, Options::default()).unwrap();
        superblock.state = if generation % 2 == 0 { State::Clean } else { State::InUse };
        write_superblock(&*flash, &mut superblock).unwrap();
        assert_eq!(superblock.generation, generation);
        assert_eq!(read_superblock(&*flash).unwrap(), superblock);
        let pages = flash.zoned().unwrap().superblocks().unwrap();
        let generations: Vec<u64> = pages.iter().map(|page| Superblock::decode(page).unwrap().generation).collect();
        assert_eq!(generations, (generation.saturating_sub(1).max(1)..=generation).collect::<Vec<_>>());
    }
}

/// Both zones are full, and the last superblocks are damaged. Those of the other zone are older.
#[test]
fn damaged_superblocks_are_not_replaced_by_those_of_the_other_zone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zones");
    let geometry = Geometry { units: 15, unit_pages: 24 };
    let mut superblock = Superblock { in_order: true, ..Superblock::new([1; 16], [2; 16], geometry, MIB) };
    drop(file(&path));
    let flash = || open_flash(&path, Options::default()).unwrap();
    (0..48).for_each(|_| write_superblock(&*flash(), &mut superblock).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    for page in bytes.as_chunks_mut::<4096>().0 {
        if Superblock::decode(page).is_ok_and(|superblock| superblock.generation >= 47) {
            page[40] ^= 1;
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let found = read_superblock(&*flash());
    assert!(matches!(found, Err(FlashError::Damaged(..))), "{found:?}");
    // They are older than those of a new cache, too.
    let mut new = Superblock { in_order: true, ..Superblock::new([3; 16], [2; 16], geometry, MIB) };
    flashwise_storage::flash::format(&*flash(), &mut new).unwrap();
    for _ in 0..100 {
        assert_eq!(read_superblock(&*flash()).unwrap().cache, [3; 16], "generation {}", new.generation);
        write_superblock(&*flash(), &mut new).unwrap();
    }
}

fn config(directory: &Path) -> VolumeConfig {
    VolumeConfig {
        flash_size_bytes: Some(8 * MIB),
        flash_zones: Some(Zoning { size: 512 * KIB, capacity: 384 * KIB, max_active: 3, max_open: 2 }),
        cache: Settings::of(&[("ram", "1MiB"), ("policy", "lru"), ("sequential-bypass", "0")]).unwrap(),
        ..VolumeConfig::of("v", &directory.join("disk.img"), &directory.join("cache.img"))
    }
}

fn open(config: &VolumeConfig) -> (Arc<Volume>, Opened) {
    Volume::open(config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(volume: &Volume, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Vec<u8> {
    let (sender, receiver) = mpsc::channel();
    let request = Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap()
}

fn pattern(block: u64, round: u64) -> Vec<u8> {
    (0..4096).map(|at| (at as u64 ^ block.wrapping_mul(31) ^ round.wrapping_mul(7)) as u8).collect()
}

/// The log goes round its zones many times, is closed, killed and opened again, and is as it should be each time.
#[test]
fn a_volume_on_zones_comes_back_after_each_end() {
    let directory = tempfile::tempdir().unwrap();
    File::create(directory.path().join("disk.img")).unwrap().set_len(16 * MIB).unwrap();
    let config = config(directory.path());
    let mut state = 1_u64;
    let mut rounds = vec![None; 1024];
    for round in 1..=6 {
        let (volume, opened) = open(&config);
        assert_eq!((opened.formatted, opened.lost_blocks), (round == 1, 0));
        for _ in 0..1_500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (state >> 33) % 1024;
            ask(&volume, Operation::Write, block * 4096, 4096, pattern(block, round));
            rounds[block as usize] = Some(round);
        }
        ask(&volume, Operation::Flush, 0, 0, Vec::new());
        if round % 2 == 0 {
            volume.close().unwrap();
        }
        drop(volume);
        let flash = open_flash(&config.flash, Options { read_only: true, ..Options::default() }).unwrap();
        let report = check(&*flash, None, true, &|_| ()).unwrap();
        assert!(report.is_sound(), "round {round}: {:?}", report.findings);
        assert!(report.counts.dirty_blocks > 0, "{report:?}");
    }
    let (volume, _) = open(&config);
    for (block, round) in (0..).zip(&rounds) {
        let Some(round) = *round else { continue };
        assert_eq!(
            ask(&volume, Operation::Read, block * 4096, 4096, Vec::new()),
            pattern(block, round),
            "block {block}"
        );
    }
    assert!(volume.with_cache(|cache| cache.log().has_wrapped()), "the log went round");
    ask(&volume, Operation::Write, 0, 4096, pattern(0, 7));
    volume.close().unwrap();
    drop(volume);
    let flash = open_flash(&config.flash, Options::default()).unwrap();
    let holding = examine(&*flash).unwrap();
    assert!(holding.may_be_dirty());
    wipe(&*flash, &holding, None).unwrap();
    assert!(flash.zoned().unwrap().device().report(0, 16).unwrap().iter().all(|zone| zone.written == 0));
}

/// The write pointers of zones match the headers of their buckets, also at a start after a kill. Any other position is
/// reported.
#[test]
fn write_pointers_of_buckets_are_where_their_headers_say() {
    let directory = tempfile::tempdir().unwrap();
    File::create(directory.path().join("disk.img")).unwrap().set_len(16 * MIB).unwrap();
    let zoning = Zoning { size: 512 * KIB, capacity: 384 * KIB, max_active: 6, max_open: 5 };
    let cache = Settings::of(&[("ram", "1MiB")]).unwrap();
    let config = VolumeConfig { layout: LAYOUTS[1].1, flash_zones: Some(zoning), cache, ..config(directory.path()) };
    for round in 0..4 {
        let (volume, _) = open(&config);
        for number in 0..400 {
            ask(&volume, Operation::Write, (number * 7 + round) % 512 * 4096, 4096, pattern(number, round));
        }
        ask(&volume, Operation::Read, 12 * MIB, 4096, Vec::new());
        if round % 2 == 1 {
            volume.close().unwrap();
            drop(volume);
            let flash = open_flash(&config.flash, Options { read_only: true, ..Options::default() }).unwrap();
            let report = check(&*flash, None, true, &|_| ()).unwrap();
            assert!(report.is_sound(), "round {round}: {:?}", report.findings);
        }
    }
    let flash = open_flash(&config.flash, Options::default()).unwrap();
    let device = flash.zoned().unwrap().device();
    let zones = device.report(0, device.zones()).unwrap();
    // The first two hold superblocks, so that bucket 0 is zone 2.
    let written = zones.iter().skip(2).position(|zone| zone.condition.is_active()).unwrap() + 2;
    let Zone { written: end, .. } = zones[written];
    assert!(append(device, written as u32, end, 4096));
    flash.zoned().unwrap().look_again().unwrap();
    let report = check(&*flash, None, true, &|_| ()).unwrap();
    let expected = format!(
        "Bucket {}: the device's write pointer is at page {}, its valid data ends at page {}.",
        written - 2,
        end / 4096 + 1,
        end / 4096
    );
    assert!(report.findings.iter().any(|finding| finding.text == expected), "{expected} {:?}", report.findings);
    assert!(report.is_sound(), "a crash before may have left that");
}

/// The first page of a durable zone reads as zeroes, which no power failure causes. The start is refused, and salvage
/// reports all losses.
#[test]
fn a_bucket_whose_first_page_is_gone_is_damaged_where_it_was_durable() {
    for closed in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("disk.img")).unwrap().set_len(16 * MIB).unwrap();
        let zoning = Zoning { size: 512 * KIB, capacity: 384 * KIB, max_active: 6, max_open: 5 };
        let cache = Settings::of(&[("ram", "0")]).unwrap();
        let config =
            VolumeConfig { layout: LAYOUTS[1].1, flash_zones: Some(zoning), cache, ..config(directory.path()) };
        let (volume, _) = open(&config);
        for number in 0..40 {
            ask(&volume, Operation::Write, number % 2 * 2 * MIB, 4096, pattern(number, 1));
            ask(&volume, Operation::Flush, 0, 0, Vec::new());
        }
        if closed {
            volume.close().unwrap();
        }
        drop(volume);
        let whole = std::fs::read(&config.flash).unwrap();
        let mut refused = 0;
        let zones = {
            let flash = open_flash(&config.flash, Options { read_only: true, ..Options::default() }).unwrap();
            flash.zoned().unwrap().device().zones()
        };
        for zone in 2..zones {
            let first = {
                let flash = open_flash(&config.flash, Options { read_only: true, ..Options::default() }).unwrap();
                if flash.zoned().unwrap().device().report(zone, 1).unwrap()[0].written == 0 {
                    continue;
                }
                let mut page = Box::new(Pages([0; 32 << 10]));
                flash.read_at(&mut page.0[..4096], u64::from(zone - 1) * 384 * KIB).unwrap();
                page.0[..4096].to_vec()
            };
            let at = whole.chunks(4096).position(|page| page == first).unwrap() * 4096;
            let mut damaged = whole.clone();
            damaged[at..at + 4096].fill(0);
            std::fs::write(&config.flash, &damaged).unwrap();
            let error = Volume::open(config.clone(), &|_, _| ()).err().map(|error| error.to_string());
            assert!(error.is_some(), "closed {closed}, zone {zone}");
            refused += 1;
            std::fs::write(&config.flash, &whole).unwrap();
        }
        assert!(refused >= 2, "closed {closed}: {refused}");
        assert_eq!(ask(&open(&config).0, Operation::Read, 0, 4096, Vec::new()), pattern(38, 1));
    }
}

#[test]
fn a_flash_whose_zones_are_too_few_or_may_not_be_written_together_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |zones: u64, zoning: Zoning| {
        let path = directory.path().join("zones");
        let device = ZoneFile::create(&path, zones * zoning.size, zoning, Options::default()).unwrap();
        let error = ZonedFlash::new(Box::new(device)).map(|_| ()).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        error.split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(
        refusal(11, ZONING),
        "it has 11 zones that are written in order, expected at least 12, and less than 16 TiB in all"
    );
    assert_eq!(
        refusal(16, Zoning { max_active: 2, ..ZONING }),
        "at most 2 of its zones may be active, expected at least 3"
    );
    assert_eq!(
        refusal(16, Zoning { max_open: 1, ..ZONING }),
        "at most 1 of its zones may be open, expected at least 2"
    );
    let error = |text| Zoning::parse("flash-zones", text).unwrap_err().to_string();
    assert_eq!(error("size=4KiB"), "flash-zones: size: found '4KiB', expected a size in bytes from 64KiB to 2GiB");
    assert_eq!(
        error("size=1MiB,capacity=2MiB"),
        "flash-zones: capacity: found '2097152', expected at most the size of a zone, 1048576 bytes"
    );
}

/// The error names the number of a permanently failed zone. Dirty blocks in other zones are not lost.
#[test]
fn a_device_with_failed_zones_is_no_home_for_a_new_cache() {
    let directory = tempfile::tempdir().unwrap();
    let device = file(&directory.path().join("zones"));
    device.fail(9, Condition::Offline).unwrap();
    device.fail(11, Condition::ReadOnly).unwrap();
    let flash = ZonedFlash::new(Box::new(device)).unwrap();
    let mut superblock = Superblock::new([1; 16], [2; 16], flash.geometry(), MIB);
    let error = flashwise_storage::flash::format(&flash, &mut superblock).unwrap_err().to_string();
    assert!(error.ends_with("zones [9, 11] have failed; a new cache needs a device without failed zones"), "{error}");
}
