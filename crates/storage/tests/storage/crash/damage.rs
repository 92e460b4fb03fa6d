//! Damages the flash after a clean shutdown or some idle seconds. Targets are each page that a start reads, each of its
//! sectors, each block and each unit. In all layouts, a start refuses the cache or serves the flushed data, and salvage
//! lists the uncertain blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use flashwise_core::cache::Mode;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Kind, Layout, Resets, Role, Superblock};
use flashwise_core::wlfc::Log;
use flashwise_core::wlfc::header::{Header, marked_bucket};
use flashwise_engine::engine::FLASH;
use flashwise_storage::export::Operation;
use flashwise_storage::flash::{cache_tag, read_superblock};
use flashwise_storage::offline::check::{Severity, check};
use flashwise_storage::offline::salvage::SalvageOptions;
use flashwise_storage::wlfc::start;
use flashwise_testing::fake_disk::{CORRUPTIONS, Corruption, FakeDisk};
use flashwise_testing::random::Random;
use flashwise_testing::setting;

use crate::crash::model::{Model, SECTOR_BYTES, SECTORS};
use crate::crash::planted::metadata;
use crate::crash::world::{self, Cached, Devices, Outcome, World, no_crash};
use crate::crash::{salvage, wlfc};

/// A damage of a page, or of each page of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    Bit,
    Byte,
    Zeroes,
    Noise,
    /// The page has older content: its last write was lost.
    Stale,
    Misdirected,
    /// One sector reads as zeroes.
    Sector(usize),
}

/// The kinds of whole pages.
pub const DAMAGES: [Damage; 6] =
    [Damage::Bit, Damage::Byte, Damage::Zeroes, Damage::Noise, Damage::Stale, Damage::Misdirected];

impl Damage {
    pub fn damage_page(self, flash: &FakeDisk, page: usize, random: &mut Random) {
        let mut bytes = flash.page(page);
        match self {
            Damage::Bit => bytes = flash.corrupted(page, Corruption::BitFlip, random),
            Damage::Byte => bytes[random.below(BLOCK_BYTES as u64) as usize] ^= 1 + random.below(255) as u8,
            Damage::Zeroes => bytes = flash.corrupted(page, CORRUPTIONS[1], random),
            Damage::Noise => bytes.fill_with(|| random.next() as u8),
            Damage::Stale => bytes = flash.corrupted(page, Corruption::Stale, random),
            Damage::Misdirected => bytes = flash.corrupted(page, Corruption::Misdirected, random),
            Damage::Sector(sector) => bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0),
        }
        flash.set_page(page, bytes);
    }
}

/// The contents of a page or of several pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    Header,
    Footer,
    Data,
    Superblock,
    Mark,
    Unit,
}

/// All pages of a log that matter, and the superblock.
pub fn pages_of_log(flash: &FakeDisk, geometry: Geometry) -> Vec<(usize, Holds)> {
    let superblocks = flash.superblock_pages();
    let mut pages: Vec<_> = superblocks.into_iter().map(|page| (page, Holds::Superblock)).collect();
    for (page, role, metadata) in metadata(flash, geometry.pages() as usize) {
        pages.push((page, if role == Role::Segment { Holds::Header } else { Holds::Footer }));
        if role == Role::Segment {
            let dirty = metadata.records.iter().filter(|record| record.kind == Kind::Dirty);
            pages.extend(dirty.map(|record| (record.slot as usize, Holds::Data)));
        }
    }
    pages
}

/// All pages of buckets that matter, and the superblock.
fn pages_of_buckets(flash: &FakeDisk, geometry: Geometry) -> Vec<(usize, Holds)> {
    let superblock = read_superblock(flash).unwrap();
    let (tag, held) = (cache_tag(&superblock), start::scan(flash, &superblock, 1, &|_, _| ()).unwrap());
    let superblocks = flash.superblock_pages();
    let mut pages: Vec<_> = superblocks.into_iter().map(|page| (page, Holds::Superblock)).collect();
    for (bucket, scan) in (0..).zip(&held.scans) {
        let slot = |page: u32| geometry.slot(bucket + 1, page) as usize;
        let headers = (0..scan.end).map(slot).filter(|page| Header::decode(&flash.page(*page)).is_some());
        pages.extend(headers.map(|page| (page, Holds::Header)));
        if marked_bucket(&flash.page(slot(0)), tag).is_some() {
            pages.push((slot(0), Holds::Mark));
        }
        for (first, oob) in scan.found.iter().filter(|(_, oob)| oob.log == Log::Data) {
            pages.extend((*first..first + oob.blocks).map(|page| (slot(page), Holds::Data)));
        }
    }
    pages
}

/// A planted fault: the cache lacks a part that shows damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The superblock has no digest of the buckets.
    Digest,
    /// Nor do marks of resets differ from zeroes in a torn header.
    Marks,
}

enum Setup {
    Log(Box<world::Setup>),
    Wlfc(Box<wlfc::Setup>),
}

/// A cache of any layout after its server ended, with everything flushed.
struct Left {
    setup: Setup,
    geometry: Geometry,
    devices: Devices,
    /// Its flash at an earlier time.
    earlier: FakeDisk,
    model: Model,
}

impl Left {
    /// The n-th cache of a kind. The server ended in order, or was killed while it was idle.
    fn new(layout: Layout, zoned: bool, number: u64, in_order: bool, without: Without) -> Left {
        let seeds = || (1..).map(|seed| (seed, Random(seed)));
        let left = match layout {
            Layout::Log => {
                let setups = seeds().map(|(seed, mut random)| (seed, world::Setup::random(&mut random)));
                let (seed, setup) = setups.filter(|(_, setup)| setup.zoned == zoned).nth(number as usize).unwrap();
                // A read of all blocks is not admitted.
                let admission = "size:max=8KiB";
                let setup = world::Setup { mode: Mode::WriteBack, admission, ..setup };
                Left::of(setup, seed, in_order, [150, 100], Setup::Log)
            }
            Layout::Wlfc => {
                let setups = seeds().map(|(seed, mut random)| (seed, wlfc::Setup::sound(&mut random)));
                let (seed, setup) = setups.filter(|(_, setup)| setup.zoned == zoned).nth(number as usize).unwrap();
                Left::of(setup, seed, in_order, [400, 100], Setup::Wlfc)
            }
            Layout::Other(_) => unreachable!("the sweep is of the layouts with dirty blocks"),
        };
        if without != Without::Nothing {
            left.leave_out(without);
        }
        left
    }

    fn of<S: Cached>(setup: S, seed: u64, in_order: bool, steps: [u64; 2], wrap: impl Fn(Box<S>) -> Setup) -> Left {
        let mut world = World::new(setup.clone(), seed);
        let work = |steps: u64, world: &mut World<S>| -> FakeDisk {
            (0..steps).for_each(|_| world.step(&mut no_crash).unwrap());
            world.submit(Operation::Flush, 0, 0, false);
            world.settle().unwrap();
            world.idle().unwrap();
            world.disks[FLASH].fork()
        };
        let earlier = work(steps[0], &mut world);
        S::may_be_dirty(&mut world);
        work(steps[1], &mut world);
        let (devices, model) = match in_order {
            true => world.close().unwrap(),
            false => world.devices_after_crash(false, &mut Random(seed)),
        };
        Left { geometry: setup.geometry(), setup: wrap(Box::new(setup)), devices, earlier, model: ended(model) }
    }

    /// Plants a fault.
    fn leave_out(&self, without: Without) {
        let flash = &self.devices.disks[FLASH];
        for page in flash.superblock_pages() {
            let Ok(superblock) = Superblock::decode(&flash.page(page)) else { continue };
            let resets = if without == Without::Marks { Resets::FirstSector } else { superblock.resets };
            flash.set_page(page, Superblock { digest: None, resets, ..superblock }.encode());
        }
    }

    /// All places and kinds of damage.
    fn all_damage(&self) -> Vec<(Range<usize>, Holds, Damage)> {
        let flash = &self.devices.disks[FLASH];
        let pages = match &self.setup {
            Setup::Log(_) => pages_of_log(flash, self.geometry),
            Setup::Wlfc(_) => pages_of_buckets(flash, self.geometry),
        };
        let of_metadata: Vec<Damage> = DAMAGES.into_iter().chain((0..SECTORS).map(Damage::Sector)).collect();
        let of_page = |(page, holds): (usize, Holds)| {
            let kinds = if holds == Holds::Data { vec![Damage::Byte] } else { of_metadata.clone() };
            kinds.into_iter().map(move |damage| (page..page + 1, holds, damage))
        };
        let units = (1..self.geometry.units).flat_map(|unit| {
            let pages = self.geometry.slot(unit, 0) as usize..self.geometry.slot(unit + 1, 0) as usize;
            [Damage::Zeroes, Damage::Stale].map(|damage| (pages.clone(), Holds::Unit, damage))
        });
        pages.into_iter().flat_map(of_page).chain(units).collect()
    }

    /// The devices with some pages damaged; `None` if that changes nothing. Stale pages have their earlier content.
    fn damaged(&self, pages: &Range<usize>, damage: Damage, random: &mut Random) -> Option<Devices> {
        let devices = self.devices.fork();
        let flash = &devices.disks[FLASH];
        for page in pages.clone() {
            match damage {
                Damage::Stale => flash.set_page(page, self.earlier.page(page)),
                damage => damage.damage_page(flash, page, random),
            }
        }
        let before = &self.devices.disks[FLASH];
        pages.clone().any(|page| flash.page(page) != before.page(page)).then_some(devices)
    }

    /// Serves the cache and reads all blocks. Returns the refusal, or whether all blocks can be read. Older content is
    /// a violation.
    fn serve(&self, devices: Devices) -> Outcome<Result<bool, String>> {
        match &self.setup {
            Setup::Log(setup) => self.serve_by(&**setup, devices),
            Setup::Wlfc(setup) => self.serve_by(&**setup, devices),
        }
    }

    fn serve_by<S: Cached>(&self, setup: &S, devices: Devices) -> Outcome<Result<bool, String>> {
        match World::open(setup.clone(), devices, self.model.clone(), Random(1), 1 << 40) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(mut world) => {
                world.verify_recovered()?;
                Ok(Ok(world.lost().is_empty() && world.read_all()?.iter().all(Option::is_some)))
            }
        }
    }

    /// Checks that `check` finds the damage, and that salvage lists all blocks that it does not bring back.
    fn verify_found(&self, devices: &Devices, holds: Holds) -> Outcome<()> {
        let report = check(&devices.disks[FLASH], None, true, &|_| ()).map_err(|error| error.to_string())?;
        let mut damage = report.findings.iter().filter(|finding| finding.severity == Severity::Damage);
        let is_named =
            |text: &str| ["page", "superblock", "several buckets", "part"].iter().any(|what| text.contains(what));
        // Only the backend's record shows that a superblock is older.
        if holds != Holds::Superblock && !damage.any(|finding| is_named(&finding.text)) {
            return Err(format!("an examination does not find it: {:?}", report.findings));
        }
        match salvage::run(devices, &SalvageOptions::default()) {
            Ok(salvaged) => {
                salvage::verify(devices, &self.model, &salvaged).map_err(|error| format!("salvaged: {error}"))
            }
            Err(_) => Ok(()),
        }
    }
}

fn ended(mut model: Model) -> Model {
    model.crashed();
    model.set_faults(true);
    model
}

/// The number of caches that were refused, served with errors, and served whole, for each damage.
type Table = BTreeMap<(Holds, Damage), [u32; 3]>;

/// Damages one place of a cache after the other. Returns the violations.
fn sweep(left: &Left, table: &mut Table) -> Vec<String> {
    let mut violations = Vec::new();
    for (at, (pages, holds, damage)) in left.all_damage().into_iter().enumerate() {
        let Some(devices) = left.damaged(&pages, damage, &mut Random(at as u64)) else { continue };
        let served = left.serve(devices.fork());
        let outcome = match &served {
            Ok(Ok(true)) => 2,
            Ok(Ok(false)) => 1,
            Ok(Err(_)) | Err(_) => 0,
        };
        table.entry((holds, damage)).or_default()[outcome] += 1;
        let verified = match served {
            Ok(Ok(true)) => Ok(()),
            Ok(refused) => left.verify_found(&devices, holds).map_err(|error| format!("{error}; {refused:?}")),
            Err(error) => Err(format!("served: {error}")),
        };
        if let Err(error) = verified {
            violations.push(format!("{damage:?} of {holds:?}, pages {pages:?}: {error}"));
        }
    }
    violations
}

/// Sweeps caches of one kind. Returns the number of caches that were refused, served with errors, and served whole.
fn sweep_kind(layout: Layout, zoned: bool) -> [u32; 3] {
    let (started, mut table) = (Instant::now(), Table::new());
    for (number, in_order) in
        (0..setting("FLASHWISE_DAMAGE_SEEDS", 1)).flat_map(|number| [(number, true), (number, false)])
    {
        let left = Left::new(layout, zoned, number, in_order, Without::Nothing);
        let violations = sweep(&left, &mut table);
        assert!(
            violations.is_empty(),
            "{layout:?}, zoned {zoned}, number {number}, in order {in_order}: {} violations, {:?}",
            violations.len(),
            violations[0]
        );
    }
    let sums = table.values().fold([0; 3], |sums, row| [0, 1, 2].map(|at| sums[at] + row[at]));
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{layout:?}, zoned {zoned}: {sums:?} refused, served with errors, served whole: {table:?}, {seconds:.1} s"
    );
    sums
}

/// `FLASHWISE_DAMAGE_SEEDS` asks for more caches of each kind.
#[test]
fn nothing_damaged_is_served_in_silence_after_an_orderly_end_or_an_idle_second() {
    let sums = std::thread::scope(|scope| {
        let layouts = [Layout::Log, Layout::Wlfc];
        let sweeps = layouts.map(|layout| scope.spawn(move || [false, true].map(|zoned| sweep_kind(layout, zoned))));
        sweeps.map(|sweep| sweep.join().unwrap())
    });
    let all = sums.as_flattened().iter().fold([0; 3], |all, sums| [0, 1, 2].map(|at| all[at] + sums[at]));
    assert!(all[0] > 500 && all[1] > 50 && all[2] > 500, "{all:?}");
}

/// The test of the test.
#[test]
fn the_sweep_finds_a_missing_digest_and_missing_marks() {
    for (without, wanted) in [
        (Without::Digest, &["Stale of Unit", "Stale of Header"][..]),
        (Without::Marks, &["Sector(1) of Header", "Stale of Unit"]),
    ] {
        let mut found = Vec::new();
        let is_found = |found: &[String]| wanted.iter().all(|kind| found.iter().any(|found| found.starts_with(kind)));
        for (number, in_order) in (0..20).flat_map(|number| [true, false].map(|in_order| (number, in_order))) {
            if is_found(&found) {
                break;
            }
            let left = Left::new(Layout::Wlfc, false, number, in_order, without);
            found.extend(sweep(&left, &mut Table::new()));
        }
        println!("{without:?}: {} violations, {:.200?}", found.len(), found.first());
        assert!(is_found(&found), "{without:?}: {wanted:?}");
    }
}
