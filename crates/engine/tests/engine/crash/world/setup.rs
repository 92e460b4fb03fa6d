//! How a world is made.

use flashwise_core::admission::Admission;
use flashwise_core::cache::{Config, CopyForward, Mode, Regions, admission};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::policy::{self, Spec};
use flashwise_engine::disk::Operation as DiskOperation;
use flashwise_testing::fake_disk::{CORRUPTIONS, Corruption};
use flashwise_testing::random::Random;

use crate::crash::planted::Planted;

pub const VOLUME_BLOCKS: usize = 120;

/// A policy that a live cache can have.
pub fn pick_policy(random: &mut Random) -> &'static str {
    let names: Vec<_> = policy::online().map(|info| info.name).collect();
    random.pick(&names)
}

/// Admission rules, half of them none; those that adapt decide often.
pub const ADMISSIONS: [&str; 12] = [
    "none",
    "none",
    "none",
    "none",
    "none",
    "none",
    "size:max=8KiB",
    "probability:p=0.3",
    "hotness:min=2",
    "adaptive:kind=probability,shadows=3,timeframe=50ms,target=1h,sampling=1",
    "adaptive:kind=size,shadows=3,timeframe=50ms,target=1h,sampling=1",
    "auto:policies=lru+larc+s3-fifo,timeframe=50ms,sampling=1",
];

/// Kinds of transfers that can fail apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Sync,
}

pub const CLASSES: [Class; 3] = [Class::Read, Class::Write, Class::Sync];

pub fn class(operation: DiskOperation) -> Class {
    match operation {
        DiskOperation::Read => Class::Read,
        DiskOperation::Sync => Class::Sync,
        _ => Class::Write,
    }
}

/// What a fault does to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails; a write may have happened.
    Fail,
    /// It does not end while the faults last.
    Stall,
    /// A page that is read is not what was written; `lasting`: never again.
    Corrupt { how: Corruption, lasting: bool },
}

/// Some transfers of one kind on one disk, counted from 0, go wrong: one in `odds`.
#[derive(Clone, Debug)]
pub struct Fault {
    pub disk: usize,
    pub class: Class,
    pub transfers: std::ops::Range<u64>,
    pub odds: u64,
    pub effect: Effect,
}

/// How a world is made; everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub geometry: Geometry,
    pub segment_blocks: u32,
    pub policy: &'static str,
    pub admission: &'static str,
    pub mode: Mode,
    pub read_buffer_blocks: u32,
    pub write_buffer_blocks: u32,
    pub sequential_blocks: u32,
    pub copy_forward: CopyForward,
    /// Of how many requests one is of a client whom the I/O filter denies the flash, and one of a client to whom it allows it always.
    pub filtered_odds: u64,
    pub depth: usize,
    pub spare_frames: u32,
    pub regions: Regions,
    /// Whether the flash has zones.
    pub zoned: bool,
    pub planted: Option<Planted>,
    pub faults: Vec<Fault>,
    /// Tries after the first.
    pub retries: u8,
    /// Whether a flash that cannot be read counts as failed after a while.
    pub gives_up: bool,
}

impl Setup {
    pub fn random(random: &mut Random) -> Setup {
        let modes = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
        let unit_pages = random.pick(&[16, 16, 20, 32, 64]);
        Setup {
            geometry: Geometry { units: 11 + random.below(3) as u32, unit_pages },
            segment_blocks: random.pick(&[1, 2, 3, 5, 252]),
            policy: pick_policy(random),
            admission: random.pick(&ADMISSIONS),
            mode: random.pick(&modes),
            read_buffer_blocks: random.pick(&[0, 8, 24]),
            write_buffer_blocks: random.pick(&[0, 16, 40]),
            sequential_blocks: random.pick(&[0, 0, 12]),
            copy_forward: random.pick(&[
                CopyForward::Used,
                CopyForward::Used,
                CopyForward::All,
                CopyForward::Young(0.5),
                CopyForward::None,
            ]),
            filtered_odds: random.pick(&[4, 12, u64::MAX]),
            depth: random.pick(&[1, 4, 12]),
            spare_frames: random.pick(&[0, 2, 64]),
            regions: Regions {
                blocks: random.pick(&[4, 8, 8, 40, 4096]),
                sure_after_us: random.pick(&[5_000, 40_000, 400_000]),
                unsure_max: random.pick(&[1, 3, 1024]),
            },
            zoned: random.chance(3),
            planted: None,
            faults: Vec::new(),
            retries: 0,
            gives_up: false,
        }
    }

    pub fn admission(&self, rule: &str) -> Option<Admission> {
        if rule == "none" {
            return None;
        }
        let bytes = (VOLUME_BLOCKS * BLOCK_BYTES) as u64;
        Some(admission(rule.parse().unwrap(), &flashwise_device::paper(), &self.geometry, bytes))
    }

    pub fn config(&self) -> Config {
        Config {
            segment_blocks: self.segment_blocks,
            admission: self.admission(self.admission),
            mode: self.mode,
            read_buffer_blocks: self.read_buffer_blocks,
            write_buffer_blocks: self.write_buffer_blocks,
            dirty_high: 0.3,
            dirty_low: 0.2,
            dirty_age_us: 400_000,
            commit_age_us: 200_000,
            sequential_blocks: self.sequential_blocks,
            copy_forward: self.copy_forward,
            regions: self.regions,
            ..Config::new(self.geometry, Spec::parse(self.policy).unwrap())
        }
    }
}

/// A random fault of a read of the flash.
pub fn random_corruption(random: &mut Random) -> Effect {
    Effect::Corrupt { how: random.pick(&CORRUPTIONS), lasting: random.chance(2) }
}
