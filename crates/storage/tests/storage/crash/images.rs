//! Recovery of damaged images, of nearly full logs, and after several power failures in a row.

use std::collections::BTreeMap;

use flashwise_core::cache::Mode;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Kind, Role, SUPERBLOCK_COPIES, decode_metadata, encode_metadata};
use flashwise_engine::engine::FLASH;
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;

use crate::crash::planted::metadata;
use crate::crash::world::{Devices, Outcome, Setup, World, no_crash};

/// A world whose log went round, with everything flushed.
fn flushed_world(seed: u64) -> World {
    let setup = Setup { mode: Mode::WriteBack, depth: 4, ..Setup::random(&mut Random(seed)) };
    let mut world = World::new(Setup { geometry: Geometry { units: 11, unit_pages: 16 }, ..setup }, seed);
    for _ in 0..600 {
        world.step(&mut no_crash).unwrap();
    }
    world.settle().unwrap();
    world.submit(flashwise_storage::export::Operation::Flush, 0, 0, false);
    world.settle().unwrap();
    world
}

/// A copy of the world, whose device holds what `change` makes of it, after a power failure that lost all that was not
/// flushed.
fn reopened(world: &World, change: impl FnOnce(&FakeDisk)) -> Outcome<World> {
    let devices = Devices { disks: world.disks.each_ref().map(|disk| disk.fork()), record: world.record.fork() };
    devices.disks.iter().for_each(|disk| disk.crash(Loss::Everything, &mut Random(1)));
    change(&devices.disks[FLASH]);
    let mut model = world.clients.model.lock().unwrap().clone();
    model.crashed();
    model.set_faults(true);
    World::open(world.setup.clone(), devices, model, Random(5), 1 << 40)
}

#[test]
fn a_damaged_metadata_page_is_repaired_or_refused() {
    let (mut refused, mut made_up, mut last) = (0, 0, 0);
    for seed in 1..=6 {
        let world = flushed_world(seed);
        let unit_pages = world.setup.geometry.unit_pages as usize;
        let all = metadata(&world.disks[FLASH], world.setup.geometry.pages() as usize);
        let newest = all[0].2.header.sequence;
        let durable_end = |sequence: u64| {
            let of_unit = all.iter().filter(|(.., metadata)| metadata.header.sequence == sequence);
            of_unit.map(|(.., metadata)| metadata.header.durable_end as usize).max().unwrap_or(0)
        };
        for (page, role, metadata) in &all {
            let opened = reopened(&world, |flash| {
                let mut bytes = flash.page(*page);
                bytes[100] ^= 1;
                flash.set_page(*page, bytes);
            });
            let vouched_for = metadata.header.sequence < newest || durable_end(newest) > page % unit_pages;
            match opened {
                Err(error) => {
                    assert!(error.contains("erase unit"), "{error}");
                    refused += 1;
                }
                Ok(mut opened) if vouched_for || *role == Role::Footer => {
                    opened.verify_recovered().unwrap_or_else(|error| panic!("seed {seed}, page {page}: {error}"));
                    assert_eq!(opened.lost().len(), 0, "metadata loses no data");
                    made_up += 1;
                }
                // Nothing tells a last segment that was damaged from one that was never flushed.
                Ok(_) => last += 1,
            }
        }
    }
    println!("{refused} refused, {made_up} made up for, {last} taken for interrupted writes");
    assert!(refused > 0 && made_up > 100 && last < 20);
}

#[test]
fn a_damaged_data_page_is_an_error_or_comes_from_the_backend() {
    let (mut lost, mut served) = (0, 0);
    for seed in 1..=4 {
        let world = flushed_world(seed);
        let unit_pages = world.setup.geometry.unit_pages as usize;
        let all = metadata(&world.disks[FLASH], world.setup.geometry.pages() as usize);
        let newest = all[0].2.header.sequence;
        let durable_end = all.iter().filter(|(.., metadata)| metadata.header.sequence == newest);
        let durable_end = durable_end.map(|(.., metadata)| metadata.header.durable_end as usize).max().unwrap_or(0);
        for slot in all
            .iter()
            .flat_map(|(.., metadata)| &metadata.records)
            .filter(|record| record.kind == Kind::Dirty || record.kind == Kind::Clean)
        {
            let page = slot.slot as usize;
            if page / unit_pages == world.setup.geometry.unit_of(newest) as usize && page % unit_pages >= durable_end {
                continue;
            }
            let mut opened = reopened(&world, |flash| {
                let mut bytes = flash.page(page);
                bytes[4000] ^= 0x10;
                flash.set_page(page, bytes);
            })
            .unwrap();
            opened.verify_recovered().unwrap_or_else(|error| panic!("seed {seed}, page {page}: {error}"));
            match opened.lost().len() {
                0 => served += 1,
                1 => lost += 1,
                more => panic!("{more} blocks are lost with one page"),
            }
        }
    }
    println!("{lost} lost and listed, {served} served");
    assert!(lost > 10 && served > 10);
}

#[test]
fn recovery_of_arbitrary_bytes_ends_with_an_error_or_a_log_that_can_be_used() {
    let mut outcomes: BTreeMap<bool, u32> = BTreeMap::new();
    for seed in 1..=8 {
        let world = flushed_world(seed);
        let pages = world.setup.geometry.pages() as usize;
        let all = metadata(&world.disks[FLASH], pages);
        let random = &mut Random(seed);
        for _ in 0..400 {
            let opened = reopened(&world, |flash| {
                for _ in 0..1 + random.below(3) {
                    mutate(flash, &all, pages, random);
                }
            });
            outcomes.entry(opened.is_ok()).and_modify(|count| *count += 1).or_insert(1);
            if let Ok(mut opened) = opened {
                // Contents may be arbitrary, but operations must not panic.
                for _ in 0..20 {
                    let _ = opened.step(&mut no_crash);
                }
                let _ = opened.verify_recovered();
                let _ = opened.verify_detached();
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.values().all(|&count| count > 100) && outcomes.len() == 2);
}

/// Noise, a page in another's place, or a metadata page with a wrong field and a right checksum.
fn mutate(
    flash: &FakeDisk,
    all: &[(usize, Role, flashwise_core::format::MetadataPage)],
    pages: usize,
    random: &mut Random,
) {
    let (page, role, _) = &all[random.below(all.len() as u64) as usize];
    let mut bytes = flash.page(*page);
    match random.below(4) {
        0 => {
            for _ in 0..1 + random.below(20) {
                bytes[random.below(BLOCK_BYTES as u64) as usize] = random.next() as u8;
            }
        }
        1 => bytes = flash.page(SUPERBLOCK_COPIES as usize + random.below(pages as u64 - 2) as usize),
        _ => {
            let Ok(mut metadata) = decode_metadata(*role, &bytes) else { return };
            let small = random.below(200);
            let value = random.pick(&[0, 1, 15, 16, u64::from(u32::MAX), u64::MAX, small]);
            let header = &mut metadata.header;
            match random.below(10) {
                0 => header.sequence = value,
                1 => header.tail = value,
                2 => header.epoch = value,
                3 => header.previous_end = value as u32,
                4 => header.page = value as u32,
                5 => header.data_pages = value as u32,
                6 => header.durable_end = value as u32,
                field => {
                    if let Some(record) = metadata.records.first_mut() {
                        match field {
                            7 => record.slot = value as u32,
                            8 => record.block = (value as u32).min(1000),
                            _ => record.kind = random.pick(&Kind::ALL),
                        }
                    }
                }
            }
            encode_metadata(*role, &metadata.header, &metadata.records, &mut bytes);
        }
    }
    flash.set_page(*page, bytes);
}

#[test]
fn fifty_power_failures_in_a_row_on_a_nearly_full_log_lose_nothing() {
    let mut least_free = u32::MAX;
    for seed in 1..=40 {
        let random = &mut Random(seed);
        let setup = Setup {
            mode: Mode::WriteBack,
            geometry: Geometry { units: 11, unit_pages: random.pick(&[16, 20, 24]) },
            depth: 4,
            ..Setup::random(random)
        };
        let described = format!("seed {seed}, {setup:?}");
        let mut world = World::new(setup, seed);
        let mut run = || -> Outcome<()> {
            for _ in 0..300 {
                world.step(&mut no_crash)?;
            }
            for _ in 0..50 {
                let work = random.below(30);
                for _ in 0..work {
                    world.step(&mut no_crash)?;
                }
                least_free = least_free.min(world.engine.cache().log().free_units());
                world = world.crashed(random)?;
                least_free = least_free.min(world.engine.cache().log().free_units());
                world.verify_recovered()?;
            }
            world.verify_detached()
        };
        run().unwrap_or_else(|error| panic!("{described}: {error}"));
    }
    println!("at least {least_free} units were free");
}
