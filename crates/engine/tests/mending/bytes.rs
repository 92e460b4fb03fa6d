//! Requests of any bytes while both devices fail for a while: what was flushed is read, whatever failed before or since.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use flashwise_core::cache::Cache;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::wlfc::Refresh;
use flashwise_engine::disk::Operation as DiskOperation;
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_engine::export::Operation;
use flashwise_engine::wlfc::start::Options;

use super::Random;
use super::world::{ANYWHERE, Answer, World, bytes_of};

const SECTOR: u64 = 512;
/// Eight buckets of the backend, and a part of one.
const SECTORS: u64 = 124 * BLOCK_BYTES as u64 / SECTOR;

/// What each sector may be: the number of the write that it is of, from 0 for none.
struct Model {
    live: Vec<BTreeSet<u32>>,
    /// What it may be once a flush that failed has lost something.
    durable: Vec<BTreeSet<u32>>,
    /// Something was read that a flush that failed has lost: a flush has to fail before one succeeds.
    owed: bool,
    /// A flush that fails loses something.
    loses: bool,
}

impl Model {
    fn new(loses: bool) -> Model {
        let zeroes = vec![BTreeSet::from([0]); SECTORS as usize];
        Model { live: zeroes.clone(), durable: zeroes, owed: false, loses }
    }

    /// A write of all of some sectors has ended. What is trimmed may be as it was.
    fn changed(&mut self, sectors: std::ops::Range<u64>, number: u32, is_certain: bool, is_durable: bool) {
        for at in sectors.start as usize..sectors.end as usize {
            if is_certain {
                self.live[at].clear();
            }
            if is_durable && is_certain {
                self.durable[at].clear();
            }
            self.live[at].insert(number);
            self.durable[at].insert(number);
        }
    }

    /// A flush that was submitted when `then` was what there might be has ended.
    fn flushed(&mut self, then: Vec<BTreeSet<u32>>, succeeded: bool) -> Result<(), String> {
        if succeeded {
            if self.owed {
                return Err("a flush succeeds, and what was answered before is gone".to_owned());
            }
            self.durable = then;
        } else if self.loses {
            self.owed = false;
            for (live, durable) in self.live.iter_mut().zip(&self.durable) {
                live.extend(durable);
            }
        }
        Ok(())
    }

    /// The process died. What was not flushed is gone in part where the power failed, and may be where nobody was told of a flush that failed.
    fn died(&mut self, is_cut: bool) {
        self.owed = false;
        for (live, durable) in self.live.iter_mut().zip(&self.durable) {
            if is_cut {
                live.clear();
            }
            live.extend(durable);
        }
    }

    fn read(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (at, sector) in (first as usize..).zip(bytes.chunks(SECTOR as usize)) {
            let found = u32::from_le_bytes(sector[..4].try_into().unwrap());
            if sector != contents(found, 1) {
                return Err(format!("sector {at} is mixed"));
            }
            if self.live[at].contains(&found) {
                continue;
            }
            if !self.loses || !self.durable[at].contains(&found) {
                let (live, durable) = (&self.live[at], &self.durable[at]);
                return Err(format!("sector {at} is of write {found}, expected one of {live:?}, or {durable:?}"));
            }
            self.owed = true;
        }
        Ok(())
    }
}

fn contents(number: u32, sectors: u64) -> Vec<u8> {
    number.to_le_bytes().repeat((SECTOR * sectors / 4) as usize)
}

/// What fails from now on, of what may fail for a while.
fn fail_something(world: &mut World, random: &mut Random) {
    let place = match random.below(3) {
        0 => ANYWHERE,
        _ => {
            let first = random.below(124) * BLOCK_BYTES as u64;
            first..first + (1 + random.below(20)) * BLOCK_BYTES as u64
        }
    };
    match random.below(10) {
        0..3 => world.failing.push((BACKEND, DiskOperation::Write, place)),
        3..6 => world.failing.push((BACKEND, DiskOperation::Read, place)),
        6..9 => world.failing.push((BACKEND, DiskOperation::Sync, ANYWHERE)),
        _ => {
            let whole = [DiskOperation::Write, DiskOperation::Read, DiskOperation::Sync];
            world.failing.extend(whole.map(|operation| (BACKEND, operation, ANYWHERE)));
        }
    }
}

fn run(seed: u64, dies: bool) -> Result<[u32; 3], String> {
    let random = &mut Random(seed);
    let options = Options {
        ram_bytes: if seed.is_multiple_of(2) { 0 } else { 20 * BLOCK_BYTES as u64 },
        refresh: if seed.is_multiple_of(3) { Refresh::Evict } else { Refresh::Read },
        ..Options::default()
    };
    let mut world = World::with(124, options);
    // Of a small seed the first numbers are small.
    let loses = (0..9).fold(0, |_, _| random.below(2)) == 0;
    run_in(&mut world, loses, dies, random).map_err(|error| format!("seed {seed}, which loses: {loses}: {error}"))
}

fn run_in(world: &mut World, loses: bool, dies: bool, random: &mut Random) -> Result<[u32; 3], String> {
    world.loses = loses;
    let most_failed = if random.below(3) == 0 { 1 + random.below(4) } else { 0 };
    let mut model = Model::new(loses);
    let (mut second, mut number, mut failed_buckets, mut starts) = (0, 0, 0, 1);
    let mut counts = [0; 3];
    for _ in 0..300 {
        match random.below(16) {
            0 => fail_something(world, random),
            1..3 => world.failing.retain(|(disk, ..)| *disk == FLASH),
            3..5 => {
                second += 1;
                world.tick(second);
            }
            5 if failed_buckets < most_failed => {
                failed_buckets += 1;
                world.failing.push((FLASH, DiskOperation::Write, bytes_of(random.below(10))));
            }
            _ => {}
        }
        if dies {
            if random.below(30) == 0 {
                let operation = match random.below(5) {
                    0 => DiskOperation::Sync,
                    1 | 2 => DiskOperation::Write,
                    _ => DiskOperation::Read,
                };
                let place = if random.below(2) == 0 { ANYWHERE } else { bytes_of(random.below(10)) };
                world.failing.push((FLASH, operation, place));
            }
            if random.below(6) == 0 {
                world.failing.retain(|(disk, ..)| *disk == BACKEND);
            }
            if random.below(30) == 0 {
                starts += 1;
                if random.below(3) == 0 {
                    world.engine.close(0);
                    world.settle();
                    let then = model.live.clone();
                    let flushed = world.ask(Operation::Flush, 0, &[]).is_ok();
                    model.flushed(then, flushed)?;
                }
                let is_cut = random.below(3) > 0;
                model.died(is_cut);
                world.die(starts, is_cut.then_some(&mut *random)).map_err(|error| error.to_string())?;
            }
        }
        // Some requests at a time, which have no sectors in common.
        let mut asked = Vec::new();
        let mut taken: Vec<std::ops::Range<u64>> = Vec::new();
        for _ in 0..1 + random.below(4) {
            number += 1;
            if random.below(8) == 0 {
                let answer = world.begin(Operation::Flush, 0, &[]);
                asked.push((Operation::Flush, 0..0, number, false, Some(model.live.clone()), answer));
                continue;
            }
            let length = match random.below(8) {
                0 => 8 * (15 + random.below(30)),
                1..4 => 1 + random.below(20),
                _ => 8 * (1 + random.below(4)),
            };
            let first = random.below(SECTORS - length.min(SECTORS - 1));
            let first = if random.below(2) == 0 { first / 8 * 8 } else { first };
            let sectors = first..first + length;
            if taken.iter().any(|other| other.start < sectors.end && sectors.start < other.end) {
                continue;
            }
            taken.push(sectors.clone());
            let operation = match random.below(20) {
                0..8 => Operation::Read,
                8 => Operation::Trim,
                9 => Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false },
                _ => Operation::Write,
            };
            let data = if operation == Operation::Write { contents(number, length) } else { Vec::new() };
            let durable = operation != Operation::Read && random.below(5) == 0;
            let answer = world.begin_with(operation, first * SECTOR, length * SECTOR, &data, durable);
            asked.push((operation, sectors, number, durable, None, answer));
            if random.below(4) == 0 {
                second += 1;
                world.perform_some(random.below(12), random, second);
            }
            if random.below(8) == 0 {
                world.failing.retain(|(disk, ..)| *disk == FLASH);
            }
        }
        world.settle();
        // What a flush says counts before what follows it.
        asked.sort_by_key(|(operation, ..)| *operation != Operation::Flush);
        let is_err = |answer: &Arc<Mutex<Option<Answer>>>| matches!(*answer.lock().unwrap(), Some(Err(_)));
        // One of two that came together may tell of what the other was for too.
        let a_flush_fails =
            asked.iter().any(|(operation, .., answer)| *operation == Operation::Flush && is_err(answer));
        for (operation, sectors, number, durable, then, answer) in asked {
            let answer = answer.lock().unwrap().take().ok_or("a request is not answered")?;
            counts[0] += u32::from(answer.is_err());
            match operation {
                Operation::Flush => {
                    counts[1] += u32::from(answer.is_err());
                    if answer.is_err() || !(a_flush_fails && loses) {
                        model.flushed(then.expect("it is a flush's"), answer.is_ok())?;
                    }
                }
                Operation::Read => {
                    if let Ok(bytes) = answer {
                        model.read(sectors.start, &bytes)?;
                    }
                }
                Operation::Trim => {
                    model.changed(sectors.clone(), 0, false, false);
                    let range = sectors.start as usize..sectors.end as usize;
                    for (durable, live) in model.durable[range.clone()].iter_mut().zip(&model.live[range]) {
                        durable.extend(live);
                    }
                }
                operation => {
                    // What was answered before a flush that fails may be gone with it.
                    let is_certain = answer.is_ok() && (durable || !(a_flush_fails && loses));
                    let number = if operation == Operation::Write { number } else { 0 };
                    model.changed(sectors, number, is_certain, durable);
                }
            }
        }
        world.engine.cache().check();
    }
    // In the end all works again but for the buckets that are worn.
    world.failing.retain(|(disk, ..)| *disk == FLASH && !dies);
    if world.engine.cache().is_frozen() {
        model.died(false);
        world.die(starts + 1, None).map_err(|error| error.to_string())?;
    }
    for _ in 0..40 {
        second += 1;
        world.tick(second);
    }
    for _ in 0..4 {
        let then = model.live.clone();
        let flushed = world.ask(Operation::Flush, 0, &[]).is_ok();
        counts[1] += u32::from(!flushed);
        model.flushed(then, flushed)?;
        second += 1;
        world.tick(second);
    }
    let listed: BTreeSet<u64> = world.engine.not_durable_blocks().into_iter().collect();
    for block in 0..SECTORS / 8 {
        match world.ask(Operation::Read, block as usize, &[]) {
            Ok(bytes) => model.read(block * 8, &bytes)?,
            Err(_) if listed.contains(&block) => counts[2] += 1,
            Err(error) => return Err(format!("block {block} cannot be read and is not listed: {error}")),
        }
    }
    if model.owed {
        return Err("what was answered is gone, and no flush fails any more".to_owned());
    }
    world.engine.destage_all(0);
    world.settle();
    if world.engine.cache().blocks_to_write_back() == 0 && listed.is_empty() {
        model.read(0, &world.disks[BACKEND].contents())?;
    }
    Ok(counts)
}

/// `FLASHWISE_SEEDS` asks for more worlds, and `FLASHWISE_SEED` for others.
fn run_all(dies: bool) {
    let setting = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = setting("FLASHWISE_SEED", 1);
    let (mut counts, mut wrong) = ([0; 3], Vec::new());
    for seed in first..first + setting("FLASHWISE_SEEDS", 60) {
        match run(seed, dies) {
            Ok(found) => counts = std::array::from_fn(|at| counts[at] + found[at]),
            Err(error) => wrong.push(error),
        }
    }
    println!("{} requests failed, {} flushes of them; {} blocks are lost in the end", counts[0], counts[1], counts[2]);
    assert!(wrong.is_empty(), "{} worlds:\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
    assert!(counts[1] > 0);
}

#[test]
fn what_was_flushed_is_read_whatever_fails_for_a_while() {
    run_all(false);
}

#[test]
fn what_was_flushed_is_read_after_power_cuts_where_devices_fail() {
    run_all(true);
}
