//! What a flash of cache buckets holds: read at a start, and formatted.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use flashwise_core::format::{BLOCK_BYTES, Digest, Geometry, Resets, RunEnd, Superblock};
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::header::{HEADER_BLOCKS, ResetAt, reset_mark};
use flashwise_core::wlfc::scan::Found;
use flashwise_core::wlfc::{Around, Config, ConfigError, Oob, Refresh, Scan, State, Step, Wlfc, recover_around};
use rustc_hash::FxHashSet;

use super::OnFlash;
use super::checksums::HeaderPages;
use crate::disk::Disk;
use crate::disk::zoned::{Use, ZonedFlash};
use crate::flash::cache_tag;
use crate::memory::Memory;

mod scan;

pub use scan::{InUse, Missing, scan, scan_again, scan_remains};

/// What a volume may say of its buckets; the rest follows from its devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The share of the buckets that is for writing.
    pub write_share: f64,
    /// Write buckets that are allocated between two halvings of all priorities; as many as there may be if not given.
    pub halving: Option<u32>,
    /// A write of more bytes goes past the cache; a bucket if not given.
    pub large_write_bytes: Option<u64>,
    /// When read copies are brought up to date.
    pub refresh: Refresh,
    /// Bytes of the read cache in RAM.
    pub ram_bytes: u64,
    /// The most buckets that can be written at a time, where that is limited.
    pub written_max: Option<u32>,
}

/// Zones that are written beside those of the write queue: one that is begun before another is reset, and a copy.
const BESIDE_WRITE_QUEUE: u32 = 2;
/// The largest bucket: a plan holds two of them in memory.
const BUCKET_BYTES_MAX: u64 = 64 << 20;

/// Refuses a flash whose units cannot be buckets.
pub fn check_flash(flash: &dyn Disk, geometry: Geometry) -> io::Result<()> {
    let bytes = u64::from(geometry.unit_pages) * BLOCK_BYTES as u64;
    // One is left out for the superblocks.
    let zones = flash.zoned().and_then(ZonedFlash::written_max).map(|most| most + 1);
    check_units(bytes, zones)
        .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", flash.description())))
}

/// As [`check_flash`], of units of so many bytes, of which so many may be active and open at a time, if that is limited.
pub fn check_units(bytes: u64, zones_at_a_time: Option<u32>) -> Result<(), String> {
    let (found, most) = (ByteSize::new(bytes), ByteSize::new(BUCKET_BYTES_MAX));
    if bytes > BUCKET_BYTES_MAX {
        return Err(format!(
            "its buckets would have {found} each, expected at most {most}, of which layout wlfc moves two at a time; use the layout log, or smaller \
             zones or erase units"
        ));
    }
    match zones_at_a_time.filter(|zones| *zones < BESIDE_WRITE_QUEUE + 2) {
        Some(zones) => Err(format!(
            "at most {zones} of its zones may be active and open, expected at least {}: layout wlfc writes to one for each bucket of its write \
             queue, and to three besides; use the layout log",
            BESIDE_WRITE_QUEUE + 2
        )),
        None => Ok(()),
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            write_share: Config::WRITE_SHARE,
            halving: None,
            large_write_bytes: None,
            refresh: Refresh::default(),
            ram_bytes: 0,
            written_max: None,
        }
    }
}

/// The cache of a volume on a flash of this geometry, whose units but the first are its buckets.
pub fn config(geometry: Geometry, options: &Options, volume_bytes: u64) -> Result<Config, ConfigError> {
    let bucket_blocks = Config::blocks_beside_headers(geometry.unit_pages, HEADER_BLOCKS);
    let config = Config::served(geometry.log_units(), bucket_blocks, HEADER_BLOCKS, options.write_share)?;
    let zone_limit = options.written_max.map_or(u32::MAX, |most| most.saturating_sub(BESIDE_WRITE_QUEUE));
    let write_queue = config.write_queue.min(zone_limit).max(1);
    let config = Config {
        read_queue: config.read_queue + config.write_queue - write_queue,
        write_queue,
        halving: options.halving.unwrap_or(write_queue),
        large_write_bytes: options.large_write_bytes.unwrap_or(config.large_write_bytes),
        erase_batch: if options.written_max.is_some() { 1 } else { config.erase_batch },
        erases_at_once: options.written_max.is_some(),
        refresh: options.refresh,
        ram_blocks: (options.ram_bytes / BLOCK_BYTES as u64).try_into().unwrap_or(u32::MAX),
        volume_blocks: volume_bytes / BLOCK_BYTES as u64,
        ..config
    };
    config.check()?;
    Ok(config)
}

/// What was found on a flash of cache buckets.
#[derive(Clone, Debug)]
pub struct Held {
    /// What is in each bucket.
    pub scans: Vec<Scan>,
    /// Which pages are headers.
    pub headers: HeaderPages,
    /// Pages whose data never came.
    pub absent: FxHashSet<u32>,
    /// The checksum of the last header of each bucket: its value in a digest.
    pub lasts: Vec<u32>,
    /// Buckets that failed and what is on them counts, and those of which nothing does.
    pub worn: BTreeSet<u32>,
    dead: BTreeSet<u32>,
    /// Buckets whose pages cannot be read.
    pub unread: BTreeSet<u32>,
    unit_pages: u32,
    /// The last run did not end in order.
    crashed: bool,
    /// Up to where what was programmed since the last start is durable once this is [settled](Self::settle), by run.
    pub ends: Vec<RunEnd>,
    /// The tag of the cache, and what its buckets are once they were reset.
    cache: u64,
    resets: Resets,
}

impl Held {
    /// A cache that is empty as yet.
    pub fn empty(superblock: &Superblock) -> Held {
        let geometry = superblock.geometry;
        let buckets = geometry.log_units() as usize;
        Held {
            scans: vec![Scan::default(); buckets],
            headers: HeaderPages::new(geometry.log_units(), geometry.unit_pages),
            absent: FxHashSet::default(),
            lasts: vec![0; buckets],
            worn: BTreeSet::new(),
            dead: BTreeSet::new(),
            unread: BTreeSet::new(),
            unit_pages: geometry.unit_pages,
            crashed: false,
            ends: Vec::new(),
            cache: cache_tag(superblock),
            resets: superblock.resets,
        }
    }

    /// What a flash that cannot be read holds, if that is known of every bucket.
    pub fn remembered(superblock: &Superblock, remembered: &dyn Fn(u32) -> Option<Scan>) -> Option<Held> {
        let mut held = Held::empty(superblock);
        for bucket in 0..superblock.geometry.log_units() {
            held.add_unread(bucket, remembered(bucket)?);
        }
        Some(held)
    }

    fn add(&mut self, bucket: u32, found: Found) {
        let Found { scan, headers, absent, last } = found;
        headers.into_iter().for_each(|page| self.headers.set(bucket, page, true));
        self.absent.extend(absent.into_iter().map(|page| bucket * self.unit_pages + page));
        (self.scans[bucket as usize], self.lasts[bucket as usize]) = (scan, last);
    }

    /// A bucket whose pages cannot be read was to hold this. Whether what is on it is lost is seen by those who read it.
    fn add_unread(&mut self, bucket: u32, scan: Scan) {
        self.unread.insert(bucket);
        self.worn.insert(bucket);
        self.scans[bucket as usize] = scan;
    }

    /// Backend buckets of which something cannot be read.
    pub fn unread_backends(&self) -> BTreeSet<u32> {
        let found = self.unread.iter().flat_map(|bucket| &self.scans[*bucket as usize].found);
        found.filter(|(_, oob)| oob.state != State::Read).map(|(_, oob)| oob.backend).collect()
    }

    /// The blocks of the volume that something is of.
    fn blocks_of(&self, oob: &Oob) -> Range<u64> {
        let first = u64::from(oob.backend) * u64::from(self.bucket_blocks()) + u64::from(oob.at);
        first..first + u64::from(oob.blocks)
    }

    /// Blocks of the volume that dirty copies do not have, and no log: they are lost.
    fn lost(&self) -> FxHashSet<u64> {
        let mut lost = FxHashSet::default();
        if self.absent.is_empty() {
            return lost;
        }
        let found = || (0..).zip(&self.scans).flat_map(|(bucket, scan)| scan.found.iter().map(move |of| (bucket, of)));
        for (bucket, (page, oob)) in found().filter(|(_, (_, oob))| oob.state == State::Dirty) {
            let first: u32 = bucket * self.unit_pages + page;
            let missing = (first..).zip(self.blocks_of(oob)).filter(|(slot, _)| self.absent.contains(slot));
            lost.extend(missing.map(|(_, block)| block));
        }
        for (_, (_, oob)) in found().filter(|(_, (_, oob))| oob.state == State::Write) {
            for block in self.blocks_of(oob) {
                lost.remove(&block);
            }
        }
        lost
    }

    /// True if anything may be newer than the backend's.
    pub fn may_be_dirty(&self) -> bool {
        let found = self.scans.iter().flat_map(|scan| &scan.found);
        found.map(|(_, oob)| oob).any(|oob| oob.state != State::Read)
    }

    /// Blocks of a bucket of the backend.
    pub fn bucket_blocks(&self) -> u32 {
        Config::blocks_beside_headers(self.unit_pages, HEADER_BLOCKS)
    }

    /// Blocks on flash, and how many of them may be newer than the backend's. One that is in several logs counts once for each.
    pub fn blocks(&self) -> (u64, u64) {
        let found = self.scans.iter().flat_map(|scan| &scan.found);
        found.fold((0, 0), |(all, newer), (_, oob)| {
            let blocks = u64::from(oob.blocks);
            (all + blocks, newer + if oob.state == State::Read { 0 } else { blocks })
        })
    }

    /// The blocks of what may be newer than the backend's and is as `is_wanted` says, by range.
    pub fn newer(&self, is_wanted: impl Fn(&Oob) -> bool) -> Vec<Range<u64>> {
        let found = self.scans.iter().flat_map(|scan| &scan.found).map(|(_, oob)| oob);
        found.filter(|oob| oob.state != State::Read && is_wanted(oob)).map(|oob| self.blocks_of(oob)).collect()
    }

    /// Has nothing of the buckets any more of which `is_wanted` says no.
    pub fn keep(&mut self, is_wanted: impl Fn(&Oob) -> bool) {
        let unwanted = |scan: &&mut Scan| scan.found.first().is_some_and(|(_, oob)| !is_wanted(oob));
        self.scans.iter_mut().filter(unwanted).for_each(|scan| *scan = Scan { torn: true, ..Scan::default() });
    }

    /// Blocks in read copies that the backend has too, each once.
    pub fn clean_blocks(&self) -> u64 {
        let clean = self.scans.iter().flat_map(|scan| &scan.found).filter(|(_, oob)| oob.state == State::Read);
        clean.map(|(_, oob)| u64::from(oob.blocks)).sum()
    }

    /// Makes the buckets empty, durably, that hold copies of what the backend had.
    pub fn drop_clean(&mut self, flash: &dyn Disk) -> io::Result<()> {
        for (bucket, (scan, last)) in (0..).zip(self.scans.iter_mut().zip(&mut self.lasts)) {
            if scan.found.first().is_some_and(|(_, oob)| oob.state == State::Read) {
                wipe(flash, self.cache, self.unit_pages, bucket)?;
                (*scan, *last) = (Scan::default(), 0);
            }
        }
        flash.sync()
    }

    /// The digest of the settled buckets, for this start. The start writes it before its first program or reset.
    pub fn digest(&self, start: u64) -> Digest {
        let counts = |bucket: u32| !self.worn.contains(&bucket) && !self.dead.contains(&bucket);
        let values = (0..).zip(&self.lasts).map(|(bucket, last)| if counts(bucket) { *last } else { 0 });
        Digest::new(run(start, 0), 0, values)
    }

    /// Makes durable what was found: it may be in the device's volatile cache only. Zones that are not written on are finished, and those of
    /// which nothing counts are reset. Buckets of which nothing counts are marked as reset, where none was as yet.
    pub fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        flash.sync()?;
        if flash.zoned().is_none() && self.marks_from_now_on() {
            let all = (0..).zip(self.scans.iter_mut().zip(&mut self.lasts));
            for (bucket, (scan, last)) in all.filter(|(_, (scan, _))| scan.found.is_empty()) {
                wipe(flash, self.cache, self.unit_pages, bucket)?;
                (*scan, *last) = (Scan::default(), 0);
            }
            flash.sync()?;
        }
        if let Some(zoned) = flash.zoned() {
            let scans = &mut self.scans;
            // Of what a crash left more may be open than the device allows beside what is written next.
            scans.iter_mut().filter(|_| self.crashed).for_each(|scan| scan.torn = true);
            zoned.prepare(|unit| match scans.get(unit as usize - 1) {
                Some(scan) if scan.found.is_empty() => Use::None,
                Some(scan) if scan.torn || scan.found[0].1.state != State::Write => Use::Log,
                Some(_) => Use::Open,
                None => Use::None,
            })?;
            let empty = scans.iter_mut().zip(&mut self.lasts).filter(|(scan, _)| scan.found.is_empty());
            empty.for_each(|(scan, last)| (*scan, *last) = (Scan::default(), 0));
            flash.sync()?;
        }
        Ok(())
    }

    /// True if [settling](Self::settle) marks the buckets that are empty, so that the superblock may say so of all from then on: not where some
    /// failed, which cannot be marked.
    pub fn marks_from_now_on(&self) -> bool {
        self.resets < Resets::EverySector && self.worn.is_empty() && self.dead.is_empty()
    }

    /// The cache, and what its engine has to know.
    pub fn start(self, config: Config) -> Result<(Wlfc, Started), ConfigError> {
        let (mut wlfc, mut started) = self.start_around(config, Around::default())?;
        started.steps.insert(0, wlfc.first_flush());
        Ok((wlfc, started))
    }

    /// As [`start`](Self::start), on devices that failed in part, by a process that goes on: its next flush of the backend covers what it has written
    /// there.
    pub fn start_around(self, config: Config, around: Around) -> Result<(Wlfc, Started), ConfigError> {
        // What failed before anything was on it is as good as dead.
        let empty = self.worn.iter().filter(|bucket| self.scans[**bucket as usize].found.is_empty());
        let failed = self.dead.iter().chain(empty).copied().collect();
        let unreadable = self.lost();
        let lossy = unreadable.iter().map(|block| (block / u64::from(self.bucket_blocks())) as u32).collect();
        let around = Around { failed, lossy, ..around };
        let (wlfc, steps) = recover_around(config, &self.scans, around)?;
        let on_flash = |(scan, last): (&Scan, &u32)| OnFlash {
            state: scan.found.first().map_or(State::Read, |(_, oob)| oob.state),
            epoch: scan.found.first().map_or(0, |(_, oob)| oob.epoch),
            last: *last,
            volatile: Default::default(),
            // What was found was flushed before anything is written.
            durable_end: scan.end,
            end: scan.end,
        };
        let on_flash = self.scans.iter().zip(&self.lasts).map(on_flash).collect();
        let Held { headers, unit_pages, mut worn, dead, .. } = self;
        worn.extend(dead);
        Ok((wlfc, Started { unit_pages, headers, on_flash, worn, unreadable, steps }))
    }
}

/// What an engine begins with.
#[derive(Debug)]
pub struct Started {
    pub(super) unit_pages: u32,
    pub(super) headers: HeaderPages,
    pub(super) on_flash: Vec<OnFlash>,
    pub(super) worn: BTreeSet<u32>,
    pub(super) unreadable: FxHashSet<u64>,
    pub(super) steps: Vec<Step>,
}

/// The number of a run: which start it is of, and how many times its cache was found again since.
pub fn run(start: u64, found_again: u32) -> u64 {
    start << 32 | u64::from(found_again)
}

/// Resets a bucket, not durably. Its value in the superblock's digest, if there is one, is 0.
fn wipe(flash: &dyn Disk, cache: u64, unit_pages: u32, bucket: u32) -> io::Result<()> {
    let unit_bytes = u64::from(unit_pages) * BLOCK_BYTES as u64;
    let offset = (u64::from(bucket) + 1) * unit_bytes;
    if flash.zoned().is_some() {
        return flash.discard(offset, unit_bytes);
    }
    flash.write_at(mark(cache, bucket, (0, 0)).bytes_mut(), offset)
}

/// What the first page of a bucket is once it was reset, where buckets are no zones.
pub(super) fn mark(cache: u64, bucket: u32, at: ResetAt) -> Memory {
    let mut memory = Memory::new(1);
    *memory.page_mut(0) = reset_mark(cache, bucket, at);
    memory
}

/// Makes all buckets empty, durably.
pub fn format(flash: &dyn Disk, superblock: &Superblock) -> io::Result<()> {
    let geometry = superblock.geometry;
    flash.zoned().into_iter().for_each(ZonedFlash::write_many);
    let mut buckets = 0..geometry.log_units();
    buckets.try_for_each(|bucket| wipe(flash, cache_tag(superblock), geometry.unit_pages, bucket))?;
    flash.sync()
}
