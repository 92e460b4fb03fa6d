//! Salvage of damaged caches. Independent of the damage, each block of the backend has its flushed or newer data
//! afterwards, or is listed.

use std::collections::{BTreeMap, HashSet};

use flashwise_core::cache::{Mode, WriteBackOrder};
use flashwise_core::format::{BLOCK_BYTES, Role};
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_storage::attach::Pairing;
use flashwise_storage::disk::Disk;
use flashwise_storage::export::Operation;
use flashwise_storage::offline::detach::{DetachError, Pair};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::offline::salvage::{Outcome as Salvaged, Reason, SalvageOptions, salvage};
use flashwise_testing::fake_disk::Loss;
use flashwise_testing::random::Random;
use flashwise_testing::setting;

use crate::crash::damage::{DAMAGES, Damage, Holds, pages_of_log};
use crate::crash::model::{Content, Model, SECTORS, decode};
use crate::crash::planted::metadata;
use crate::crash::world::{Devices, Outcome, Setup, World, no_crash};

/// Creates the devices of a server that ended cleanly (`in_order`), or was killed after a flush while idle.
fn left_behind(seed: u64, in_order: bool) -> (Setup, Devices, Model) {
    let random = &mut Random(seed);
    let setup = Setup { mode: Mode::WriteBack, ..Setup::random(random) };
    let setup = match seed % 4 {
        0 | 2 => Setup { order: WriteBackOrder::Barriers, ..setup },
        3 => Setup { order: WriteBackOrder::Journal, journal_pages: 60, ..setup },
        _ => setup,
    };
    let mut world = World::new(setup.clone(), seed);
    (0..150 + random.below(300)).for_each(|_| world.step(&mut no_crash).unwrap());
    match in_order {
        // With an order of write-back, only the open epoch stays dirty.
        true => (0..60).for_each(|block| world.submit(Operation::Write, 2 * block * BLOCK_BYTES, BLOCK_BYTES, false)),
        false => world.submit(Operation::Flush, 0, 0, false),
    }
    world.settle().unwrap();
    let (devices, mut model) = if in_order {
        world.close().unwrap()
    } else {
        world.idle().unwrap();
        world.devices_after_crash(false, random)
    };
    model.crashed();
    model.set_faults(true);
    (setup, devices, model)
}

fn do_damage(devices: &Devices, page: usize, damage: Damage, random: &mut Random) {
    damage.damage_page(&devices.disks[FLASH], page, random);
}

fn pages(setup: &Setup, devices: &Devices) -> Vec<(usize, Holds)> {
    pages_of_log(&devices.disks[FLASH], setup.geometry)
}

fn pairing() -> Pairing {
    Pairing { backend: [9; 16], is_identified: false, discards: false }
}

pub fn run(devices: &Devices, options: &SalvageOptions) -> Result<Salvaged, DetachError> {
    let [flash, backend, journal] = &devices.disks;
    let journal = GivenJournal::Disk(journal);
    let pair = Pair { flash, backend, journal, side: &devices.side(), pairing: &pairing() };
    salvage(pair, options, &mut |_| Ok(()), &|_, _| (), &mut |_, _| ())
}

fn listed(salvaged: &Salvaged) -> HashSet<usize> {
    salvaged.listed.iter().flat_map(|listed| listed.blocks.start as usize..listed.blocks.end as usize).collect()
}

/// The rule: a block of the backend is as it was flushed, or newer, or listed.
pub fn verify(devices: &Devices, model: &Model, salvaged: &Salvaged) -> Outcome<()> {
    let mut model = model.clone();
    let listed = listed(salvaged);
    for block in (0..model.blocks()).filter(|block| !listed.contains(block)) {
        let content: Content = decode(&devices.disks[BACKEND].page(block)).try_into().unwrap();
        let earliest = model.earliest(block);
        model.read(block, earliest, &content, 0..SECTORS)?;
    }
    Ok(())
}

#[test]
fn no_kind_of_damage_to_one_page_brings_older_data_unlisted() {
    // By damage and what it hits: complete, listed, refused.
    let mut table: BTreeMap<(Holds, Damage), [u32; 3]> = BTreeMap::new();
    for seed in 1..=setting("FLASHWISE_SALVAGE_SEEDS", 2) {
        for in_order in [true, false] {
            let (setup, devices, model) = left_behind(seed, in_order);
            let random = &mut Random(seed);
            for (page, holds) in pages(&setup, &devices) {
                for damage in DAMAGES {
                    let devices = devices.fork();
                    do_damage(&devices, page, damage, random);
                    let row = table.entry((holds, damage)).or_default();
                    match run(&devices, &SalvageOptions::default()) {
                        Ok(salvaged) => {
                            verify(&devices, &model, &salvaged).unwrap_or_else(|error| {
                                panic!(
                                    "seed {seed}, in order {in_order}, {damage:?} of page {page}, {holds:?}: {error}"
                                )
                            });
                            row[usize::from(!salvaged.listed.is_empty())] += 1;
                        }
                        Err(error) => {
                            assert_eq!(holds, Holds::Superblock, "seed {seed}, {damage:?} of page {page}: {error}");
                            row[2] += 1;
                        }
                    }
                }
            }
        }
    }
    for ((holds, damage), [complete, listed, refused]) in &table {
        println!("{damage:?} of a {holds:?}: {complete} complete, {listed} listed, {refused} refused");
    }
    assert_eq!(table.len(), 24, "six kinds of damage to four kinds of pages");
}

/// Both copies of the superblock may be gone too: the flags say how the flash was divided.
#[test]
fn random_damage_after_an_orderly_end_brings_no_older_data_unlisted() {
    let (mut complete, mut with_list, mut refused, mut older) = (0, 0, 0, 0);
    for seed in 1..=setting("FLASHWISE_SALVAGE_SEEDS", 2) * 60 {
        let (setup, devices, model) = left_behind(seed, true);
        let random = &mut Random(!seed);
        let pages = pages(&setup, &devices);
        for _ in 0..20 {
            let devices = devices.fork();
            let damaged: Vec<_> = (0..1 + random.below(8))
                .map(|_| {
                    let (page, _) = random.pick(&pages);
                    let damage = random.pick(&DAMAGES);
                    do_damage(&devices, page, damage, random);
                    (page, damage)
                })
                .collect();
            let with_uncertain = random.chance(2);
            let options =
                SalvageOptions { with_uncertain, geometry: Some(setup.geometry), ..SalvageOptions::default() };
            match run(&devices, &options) {
                Ok(salvaged) => {
                    verify(&devices, &model, &salvaged)
                        .unwrap_or_else(|error| panic!("seed {seed}, {damaged:?}: {error}"));
                    *(if salvaged.listed.is_empty() { &mut complete } else { &mut with_list }) += 1;
                    assert_eq!(salvaged.detached, salvaged.listed.is_empty());
                    older += u32::from(verify(&devices, &model, &Salvaged::default()).is_err());
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{complete} complete, {with_list} with a list, {older} times with reason, {refused} refused");
    assert!(complete > 100 && with_list > 100 && older > 100, "{complete}, {with_list}, {older}");
}

/// The newest version of a block was in a segment whose header is gone; an older copy is known.
#[test]
fn an_older_copy_before_a_gap_is_not_written_over_the_backend_unless_it_is_asked_for() {
    let (mut kept, mut written) = (0, 0);
    for seed in 1..=60 {
        let (setup, devices, model) = left_behind(seed, false);
        let all = metadata(&devices.disks[FLASH], setup.geometry.pages() as usize);
        let Some(newest) = all.first().map(|(.., metadata)| metadata.header.sequence) else { continue };
        let of_newest = |(.., metadata): &&(usize, Role, _)| {
            let metadata: &flashwise_core::format::MetadataPage = metadata;
            metadata.header.sequence == newest
        };
        for (page, ..) in all.iter().filter(of_newest).filter(|(_, role, _)| *role == Role::Segment) {
            let devices = devices.fork();
            devices.disks[FLASH].set_page(*page, [0; BLOCK_BYTES]);
            for (footer, ..) in all.iter().filter(of_newest).filter(|(_, role, _)| *role == Role::Footer) {
                let mut bytes = devices.disks[FLASH].page(*footer);
                bytes[70] ^= 0xFF;
                devices.disks[FLASH].set_page(*footer, bytes);
            }
            let before: Vec<_> = (0..model.blocks()).map(|block| devices.disks[BACKEND].page(block)).collect();
            let forked = devices.fork();
            let Ok(salvaged) = run(&forked, &SalvageOptions::default()) else { continue };
            if salvaged.blocks(Reason::Uncertain) == 0 {
                continue;
            }
            verify(&forked, &model, &salvaged).unwrap_or_else(|error| panic!("seed {seed}, page {page}: {error}"));
            assert!(!salvaged.detached && salvaged.uncertain_blocks_written == 0 && salvaged.gap_pages() > 0);
            for listed in salvaged.listed.iter().filter(|listed| listed.reason == Reason::Uncertain) {
                for block in listed.blocks.clone() {
                    assert_eq!(forked.disks[BACKEND].page(block as usize), before[block as usize]);
                    kept += 1;
                }
            }
            // A second salvage with the operator's word, of what the first has left.
            let again = run(&forked, &SalvageOptions { with_uncertain: true, ..SalvageOptions::default() }).unwrap();
            assert!(again.listed.iter().any(|listed| listed.written_back) && !again.detached);
            written += again.uncertain_blocks_written;
            verify(&forked, &model, &again).unwrap();
            let given_up = run(&forked, &SalvageOptions { discard_rest: true, ..SalvageOptions::default() }).unwrap();
            assert!(given_up.detached);
            let attached = forked.attach(&setup, false).unwrap();
            assert!(attached.formatted, "what was given up does not come back");
        }
    }
    println!("{kept} uncertain blocks were left alone, {written} written when asked for");
    assert!(kept > 50 && written > 20, "{kept}, {written}");
}

#[test]
fn a_salvage_that_is_interrupted_can_be_repeated() {
    let mut interrupted = 0;
    for seed in 1..=8 {
        let (setup, devices, model) = left_behind(seed, true);
        let random = &mut Random(seed);
        let all = pages(&setup, &devices);
        (0..2).for_each(|_| do_damage(&devices, random.pick(&all[2..]).0, random.pick(&DAMAGES), random));
        let options =
            SalvageOptions { discard_rest: seed % 2 == 0, geometry: Some(setup.geometry), ..SalvageOptions::default() };
        let mut lives = 0;
        loop {
            let devices = devices.fork();
            devices.disks[FLASH].set_lives(lives);
            devices.disks[BACKEND].set_lives(if lives % 3 == 0 { lives / 3 } else { u64::MAX });
            let first = run(&devices, &options);
            let died = devices.disks.iter().any(|disk| disk.is_dead());
            devices.disks.iter().filter(|disk| disk.size() > 0).for_each(|disk| {
                disk.set_lives(u64::MAX);
                disk.crash(random.pick(&[Loss::Everything, Loss::Sectors, Loss::Writes]), random);
            });
            let again = run(&devices, &options).unwrap_or_else(|error| panic!("seed {seed}, {lives} lives: {error}"));
            // The blocks listed by the first attempt, if it got to the point of giving up the cache.
            let listed = if again.was_detached { first.unwrap_or_default() } else { again };
            if listed.detached || !died {
                verify(&devices, &model, &listed).unwrap_or_else(|error| panic!("seed {seed}, {lives} lives: {error}"));
            }
            if !died {
                break;
            }
            interrupted += 1;
            lives += 1 + random.below(3);
        }
    }
    println!("{interrupted} interrupted salvages");
    assert!(interrupted > 100);
}
