//! The contents of a flash of cache buckets: read at a start, or formatted.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use flashwise_core::format::{BLOCK_BYTES, Digest, Geometry, Resets, RunEnd, Superblock};
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::header::HEADER_BLOCKS;
use flashwise_core::wlfc::scan::BucketContents;
use flashwise_core::wlfc::{Around, BucketOptions, Config, ConfigError, Oob, Scan, State, Wlfc, recover_around};
use flashwise_engine::wlfc::checksums::HeaderPages;
use flashwise_engine::wlfc::{OnFlash, Started, mark, run};
use rustc_hash::FxHashSet;

use crate::disk::Disk;
use crate::disk::zoned::{Use, ZonedFlash};
use crate::flash::cache_tag;

mod scan;

pub use scan::{InUse, Missing, scan, scan_again, scan_remains};

/// Zones written besides those of the write queue: one that begins before another is reset, and a copy.
const BESIDE_WRITE_QUEUE: u32 = 2;
/// Maximum size of a bucket: a plan holds two of them in memory.
const BUCKET_BYTES_MAX: u64 = 64 << 20;

/// Refuses a flash whose units cannot be buckets.
pub fn check_flash(flash: &dyn Disk, geometry: Geometry) -> io::Result<()> {
    let bytes = u64::from(geometry.unit_pages) * BLOCK_BYTES as u64;
    // One zone is reserved for the superblocks.
    let zones = flash.zoned().and_then(ZonedFlash::written_max).map(|most| most + 1);
    check_units(bytes, zones)
        .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", flash.description())))
}

/// Like [`check_flash`], for units of this size. `zones_at_a_time` limits how many may be active and open.
pub fn check_units(bytes: u64, zones_at_a_time: Option<u32>) -> Result<(), String> {
    let (found, most) = (ByteSize::new(bytes), ByteSize::new(BUCKET_BYTES_MAX));
    if bytes > BUCKET_BYTES_MAX {
        return Err(format!(
            "its buckets would have {found} each, expected at most {most}: layout wlfc holds two of them in memory. \
             Use the layout log, or smaller \
             zones or erase units"
        ));
    }
    match zones_at_a_time.filter(|zones| *zones < BESIDE_WRITE_QUEUE + 2) {
        Some(zones) => Err(format!(
            "at most {zones} of its zones may be active and open, expected at least {}. Layout wlfc writes to one for \
             each bucket of its write \
             queue, and to three more: use the layout log",
            BESIDE_WRITE_QUEUE + 2
        )),
        None => Ok(()),
    }
}

/// Returns the configuration of a cache on a flash of this geometry. All units except the first are its buckets.
pub fn config(geometry: Geometry, options: &BucketOptions, volume_bytes: u64) -> Result<Config, ConfigError> {
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

/// The contents of a flash of cache buckets.
#[derive(Clone, Debug)]
pub struct Held {
    /// The contents of each bucket.
    pub scans: Vec<Scan>,
    /// The header pages.
    pub headers: HeaderPages,
    /// Pages without data.
    pub absent: FxHashSet<u32>,
    /// The checksum of the last header of each bucket, which is its value in a digest.
    pub lasts: Vec<u32>,
    /// Failed buckets with valid contents, and those with invalid contents.
    pub worn: BTreeSet<u32>,
    dead: BTreeSet<u32>,
    /// Unreadable buckets.
    pub unread: BTreeSet<u32>,
    unit_pages: u32,
    /// True if the last run did not shut down cleanly.
    crashed: bool,
    /// The durable ends of the runs since the last start, valid once this is [settled](Self::settle).
    pub ends: Vec<RunEnd>,
    /// The tag of the cache, and the mark of its reset buckets.
    cache: u64,
    resets: Resets,
}

impl Held {
    /// Creates an empty cache.
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

    /// Returns the contents of an unreadable flash, if those of every bucket are remembered.
    pub fn remembered(superblock: &Superblock, remembered: &dyn Fn(u32) -> Option<Scan>) -> Option<Held> {
        let mut held = Held::empty(superblock);
        for bucket in 0..superblock.geometry.log_units() {
            held.add_unread(bucket, remembered(bucket)?);
        }
        Some(held)
    }

    fn add(&mut self, bucket: u32, found: BucketContents) {
        let BucketContents { scan, headers, absent, last } = found;
        headers.into_iter().for_each(|page| self.headers.set(bucket, page, true));
        self.absent.extend(absent.into_iter().map(|page| bucket * self.unit_pages + page));
        (self.scans[bucket as usize], self.lasts[bucket as usize]) = (scan, last);
    }

    /// Adds an unreadable bucket with its remembered contents. Later reads determine if they are lost.
    fn add_unread(&mut self, bucket: u32, scan: Scan) {
        self.unread.insert(bucket);
        self.worn.insert(bucket);
        self.scans[bucket as usize] = scan;
    }

    /// Returns the backend buckets with unreadable dirty contents.
    pub fn unread_backends(&self) -> BTreeSet<u32> {
        let found = self.unread.iter().flat_map(|bucket| &self.scans[*bucket as usize].found);
        found.filter(|(_, oob)| oob.state != State::Read).map(|(_, oob)| oob.backend).collect()
    }

    /// Returns the blocks of the volume in a program.
    fn blocks_of(&self, oob: &Oob) -> Range<u64> {
        let first = u64::from(oob.backend) * u64::from(self.bucket_blocks()) + u64::from(oob.at);
        first..first + u64::from(oob.blocks)
    }

    /// Returns the lost blocks: those missing in dirty copies, and not in a log.
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

    /// True if there may be dirty blocks.
    pub fn may_be_dirty(&self) -> bool {
        let found = self.scans.iter().flat_map(|scan| &scan.found);
        found.map(|(_, oob)| oob).any(|oob| oob.state != State::Read)
    }

    /// Number of blocks of a backend bucket.
    pub fn bucket_blocks(&self) -> u32 {
        Config::blocks_beside_headers(self.unit_pages, HEADER_BLOCKS)
    }

    /// Returns the number of blocks on flash, and how many of them may be dirty. A block in several logs counts several
    /// times.
    pub fn blocks(&self) -> (u64, u64) {
        let found = self.scans.iter().flat_map(|scan| &scan.found);
        found.fold((0, 0), |(all, newer), (_, oob)| {
            let blocks = u64::from(oob.blocks);
            (all + blocks, newer + if oob.state == State::Read { 0 } else { blocks })
        })
    }

    /// Returns the block ranges of programs that may be dirty and that `is_wanted` accepts.
    pub fn newer(&self, is_wanted: impl Fn(&Oob) -> bool) -> Vec<Range<u64>> {
        let found = self.scans.iter().flat_map(|scan| &scan.found).map(|(_, oob)| oob);
        found.filter(|oob| oob.state != State::Read && is_wanted(oob)).map(|oob| self.blocks_of(oob)).collect()
    }

    /// Drops the buckets that `is_wanted` rejects.
    pub fn keep(&mut self, is_wanted: impl Fn(&Oob) -> bool) {
        let unwanted = |scan: &&mut Scan| scan.found.first().is_some_and(|(_, oob)| !is_wanted(oob));
        self.scans.iter_mut().filter(unwanted).for_each(|scan| *scan = Scan { torn: true, ..Scan::default() });
    }

    /// Number of blocks in read copies, which are clean.
    pub fn clean_blocks(&self) -> u64 {
        let clean = self.scans.iter().flat_map(|scan| &scan.found).filter(|(_, oob)| oob.state == State::Read);
        clean.map(|(_, oob)| u64::from(oob.blocks)).sum()
    }

    /// Empties the buckets with clean copies, durably.
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

    /// Makes the contents durable, which may still be in the device's volatile cache. Finishes zones that are not
    /// written further, and resets zones without valid contents. Marks buckets without valid contents as reset, if none
    /// was marked before.
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
            // After a crash, more zones may be open than the device allows besides those that are written next.
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

    /// True if [settling](Self::settle) marks all empty buckets, so that the superblock can record it. False if some
    /// failed, because these cannot be marked.
    pub fn marks_from_now_on(&self) -> bool {
        self.resets < Resets::EverySector && self.worn.is_empty() && self.dead.is_empty()
    }

    /// Creates the cache, and the initial state of its engine.
    pub fn start(self, config: Config) -> Result<(Wlfc, Started), ConfigError> {
        let (mut wlfc, mut started) = self.start_around(config, Around::default())?;
        started.steps.insert(0, wlfc.first_flush());
        Ok((wlfc, started))
    }

    /// Like [`start`](Self::start), on devices that failed in part, in a running process. Its next flush of the backend
    /// covers its earlier writes.
    pub fn start_around(self, config: Config, around: Around) -> Result<(Wlfc, Started), ConfigError> {
        // A bucket that failed while it was empty is unusable.
        let empty = self.worn.iter().filter(|bucket| self.scans[**bucket as usize].found.is_empty());
        let failed = self.dead.iter().chain(empty).copied().collect();
        let unreadable = self.lost();
        let lossy = unreadable.iter().map(|block| (block / u64::from(self.bucket_blocks())) as u32).collect();
        let around = Around { failed, lossy, ..around };
        let (wlfc, steps) = recover_around(config, &self.scans, around)?;
        let on_flash = |(scan, last): (&Scan, &u32)| OnFlash::new(scan, *last);
        let on_flash = self.scans.iter().zip(&self.lasts).map(on_flash).collect();
        let Held { headers, unit_pages, mut worn, dead, .. } = self;
        worn.extend(dead);
        Ok((wlfc, Started { unit_pages, headers, on_flash, worn, unreadable, steps }))
    }
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

/// Empties all buckets, durably.
pub fn format(flash: &dyn Disk, superblock: &Superblock) -> io::Result<()> {
    let geometry = superblock.geometry;
    flash.zoned().into_iter().for_each(ZonedFlash::write_many);
    let mut buckets = 0..geometry.log_units();
    buckets.try_for_each(|bucket| wipe(flash, cache_tag(superblock), geometry.unit_pages, bucket))?;
    flash.sync()
}
