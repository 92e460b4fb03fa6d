//! What a flash of cache buckets holds: read at a start, and formatted.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flashwise_core::format::{BLOCK_BYTES, Geometry, Place, State as CacheState, Superblock};
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::header::HEADER_BLOCKS;
use flashwise_core::wlfc::scan::{Buckets, Durable, Found, ScanError, Walk, judge, walk};
use flashwise_core::wlfc::{Config, ConfigError, Refresh, Scan, State, Step, Wlfc, recover};
use rustc_hash::FxHashSet;

use super::OnFlash;
use crate::disk::Disk;
use crate::disk::zoned::{Use, ZonedFlash};
use crate::flash::{FlashError, Progress, cache_tag};
use crate::memory::Memory;

/// Threads that read buckets, with a piece of a bucket each in memory.
const THREADS_MAX: u32 = 8;

/// What a volume may say of its buckets; the rest follows from its devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The share of the buckets that is for writing.
    pub write_share: f64,
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
    let refuse =
        |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", flash.description())));
    let (bytes, most) = (u64::from(geometry.unit_pages) * BLOCK_BYTES as u64, ByteSize::new(BUCKET_BYTES_MAX));
    if bytes > BUCKET_BYTES_MAX {
        let found = ByteSize::new(bytes);
        return refuse(format!(
            "its buckets would have {found} each, expected at most {most}, of which layout wlfc moves two at a time; use the layout log, or smaller \
             zones or erase units"
        ));
    }
    if let Some(most) = flash.zoned().and_then(ZonedFlash::written_max).filter(|most| *most <= BESIDE_WRITE_QUEUE) {
        return refuse(format!(
            "{} of its zones may be active and open at a time, expected at least {}: layout wlfc writes to one for each bucket of its write queue, and to \
             three besides; use the layout log",
            most + 1,
            BESIDE_WRITE_QUEUE + 2
        ));
    }
    Ok(())
}

impl Default for Options {
    fn default() -> Options {
        Options { write_share: Config::WRITE_SHARE, refresh: Refresh::default(), ram_bytes: 0, written_max: None }
    }
}

/// The cache of a volume on a flash of this geometry, whose units but the first are its buckets.
pub fn config(geometry: Geometry, options: &Options, volume_bytes: u64) -> Result<Config, ConfigError> {
    let bucket_blocks = Config::blocks_beside_headers(geometry.unit_pages, HEADER_BLOCKS);
    let config = Config::new(geometry.log_units(), bucket_blocks, 1, options.write_share)?;
    let zone_limit = options.written_max.map_or(u32::MAX, |most| most.saturating_sub(BESIDE_WRITE_QUEUE));
    let write_queue = config.write_queue.min(zone_limit).max(1);
    let config = Config {
        read_queue: config.read_queue + config.write_queue - write_queue,
        write_queue,
        halving: write_queue,
        header_blocks: HEADER_BLOCKS,
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
#[derive(Debug)]
pub struct Held {
    /// What is in each bucket.
    pub scans: Vec<Scan>,
    /// Checksums of the data in each page of the flash.
    pub checksums: Vec<u32>,
    /// Pages whose data never came.
    pub absent: FxHashSet<u32>,
    /// The checksum of the last header of each bucket.
    pub lasts: Vec<u32>,
    unit_pages: u32,
    /// The last run did not end in order.
    crashed: bool,
}

impl Held {
    /// An empty cache.
    pub fn empty(geometry: Geometry) -> Held {
        let buckets = geometry.log_units() as usize;
        Held {
            scans: vec![Scan::default(); buckets],
            checksums: vec![0; buckets * geometry.unit_pages as usize],
            absent: FxHashSet::default(),
            lasts: vec![0; buckets],
            unit_pages: geometry.unit_pages,
            crashed: false,
        }
    }

    fn add(&mut self, bucket: u32, found: Found) {
        let Found { scan, checksums, last } = found;
        for (page, crc) in checksums {
            let slot = bucket * self.unit_pages + page;
            match crc {
                Some(crc) => self.checksums[slot as usize] = crc,
                None => drop(self.absent.insert(slot)),
            }
        }
        (self.scans[bucket as usize], self.lasts[bucket as usize]) = (scan, last);
    }

    /// Whether anything may be newer than the backend's.
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

    /// Blocks in read copies that the backend has too, each once.
    pub fn clean_blocks(&self) -> u64 {
        let clean = self.scans.iter().flat_map(|scan| &scan.found).filter(|(_, oob)| oob.state == State::Read);
        clean.map(|(_, oob)| u64::from(oob.blocks)).sum()
    }

    /// Makes the buckets empty, durably, that hold copies of what the backend had.
    pub fn drop_clean(&mut self, flash: &dyn Disk) -> io::Result<()> {
        for (bucket, scan) in (0..).zip(&mut self.scans) {
            if scan.found.first().is_some_and(|(_, oob)| oob.state == State::Read) {
                wipe(flash, self.unit_pages, bucket)?;
                *scan = Scan::default();
            }
        }
        flash.sync()
    }

    /// Makes durable what was found: it may be in the device's volatile cache only. Zones that are not written on are finished, and those of
    /// which nothing counts are reset.
    pub fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        flash.sync()?;
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
            scans.iter_mut().filter(|scan| scan.found.is_empty()).for_each(|scan| *scan = Scan::default());
            flash.sync()?;
        }
        Ok(())
    }

    /// The cache, and what its engine has to know.
    pub fn start(self, config: Config) -> Result<(Wlfc, Started), ConfigError> {
        let (wlfc, steps) = recover(config, &self.scans)?;
        let on_flash = |(scan, last): (&Scan, &u32)| OnFlash {
            state: scan.found.first().map_or(State::Read, |(_, oob)| oob.state),
            last: *last,
            volatile: Default::default(),
            // What was found was flushed before anything is written.
            durable_end: scan.end,
        };
        let on_flash = self.scans.iter().zip(&self.lasts).map(on_flash).collect();
        let Held { checksums, absent, unit_pages, .. } = self;
        Ok((wlfc, Started { unit_pages, checksums, absent, on_flash, steps }))
    }
}

/// What an engine begins with.
#[derive(Debug)]
pub struct Started {
    pub(super) unit_pages: u32,
    pub(super) checksums: Vec<u32>,
    pub(super) absent: FxHashSet<u32>,
    pub(super) on_flash: Vec<OnFlash>,
    pub(super) steps: Vec<Step>,
}

/// The buckets of a flash.
struct FlashBuckets<'a> {
    flash: &'a dyn Disk,
    unit_pages: u32,
}

impl Buckets for FlashBuckets<'_> {
    type Error = io::Error;

    fn read(&self, bucket: u32, page: u32, bytes: &mut [u8]) -> io::Result<()> {
        let mut pages = Memory::new(bytes.len() / BLOCK_BYTES);
        let offset = (u64::from(bucket) + 1) * u64::from(self.unit_pages) + u64::from(page);
        self.flash.read_at(pages.bytes_mut(), offset * BLOCK_BYTES as u64)?;
        bytes.copy_from_slice(&pages.bytes_mut()[..bytes.len()]);
        Ok(())
    }

    fn in_order(&self) -> bool {
        self.flash.zoned().is_some()
    }

    fn written_pages(&self, bucket: u32) -> io::Result<u32> {
        Ok(self.flash.zoned().map_or(self.unit_pages, |zoned| zoned.written_pages(bucket + 1)))
    }
}

/// Does something for each bucket, on some threads; the first error ends it.
fn for_each_bucket<T: Send>(
    buckets: u32,
    threads: u32,
    work: impl Fn(u32) -> Result<T, ScanError<io::Error>> + Sync,
) -> Result<Vec<T>, ScanError<io::Error>> {
    let (next, done) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    let take = || -> Result<(), ScanError<io::Error>> {
        loop {
            let bucket = next.fetch_add(1, Ordering::Relaxed);
            if bucket >= buckets {
                return Ok(());
            }
            let result = work(bucket).inspect_err(|_| next.store(buckets, Ordering::Relaxed))?;
            done.lock().expect("no thread panics with the list").push((bucket, result));
        }
    };
    if threads <= 1 {
        take()?;
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.min(buckets)).map(|_| scope.spawn(take)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
        })?;
    }
    let mut done = done.into_inner().expect("no thread panics with the list");
    done.sort_unstable_by_key(|(bucket, _)| *bucket);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Reads what a flash holds. Writes nothing.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn scan(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<Held, FlashError> {
    scan_with(flash, superblock, threads, progress, &mut |_, error| Err(error))
}

/// As [`scan`], where damage is made no account of: with the backend buckets of which something is missing, none for one that is not known.
pub fn scan_remains(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<(Held, Vec<Option<u32>>), FlashError> {
    let mut missing = Vec::new();
    let held = scan_with(flash, superblock, threads, progress, &mut |walk, error| match error {
        ScanError::Damaged { .. } => {
            missing.push(walk.backend());
            Ok(walk.clone().without_damage())
        }
        error @ ScanError::Read(_) => Err(error),
    })?;
    Ok((held, missing))
}

/// Is told of what cannot be judged, and may put something else in its place.
type Mend<'a> = &'a mut dyn FnMut(&Walk, ScanError<io::Error>) -> Result<Walk, ScanError<io::Error>>;

fn scan_with(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
    mend: Mend<'_>,
) -> Result<Held, FlashError> {
    let geometry = superblock.geometry;
    flash.zoned().into_iter().for_each(ZonedFlash::write_many);
    let config = config(geometry, &Options::default(), superblock.volume_bytes).map_err(FlashError::Config)?;
    let buckets = FlashBuckets { flash, unit_pages: geometry.unit_pages };
    let (count, cache) = (geometry.log_units(), cache_tag(superblock));
    let read = AtomicU64::new(0);
    let walks = for_each_bucket(count, threads.min(THREADS_MAX), |bucket| {
        let walk = walk(&config, cache, bucket, &buckets)?;
        progress(read.fetch_add(1, Ordering::Relaxed) + 1, count.into());
        Ok(walk)
    })?;
    let mut durable = Durable::default();
    walks.iter().for_each(|walk| durable.add_walk(walk));
    if superblock.state == CacheState::Clean {
        durable.add(superblock.attach, superblock.durable.sequence);
    }
    let mut held = Held { crashed: superblock.state == CacheState::InUse, ..Held::empty(geometry) };
    for (bucket, walk) in (0..).zip::<Vec<Walk>>(walks) {
        let found = match judge(&config, bucket, &walk, &durable, &buckets) {
            Err(error) => judge(&config, bucket, &mend(&walk, error)?, &durable, &buckets)?,
            found => found?,
        };
        held.add(bucket, found);
    }
    Ok(held)
}

/// Where a run ended that made everything durable below `sequence`.
pub fn end(sequence: u64) -> Place {
    Place { sequence, page: 0 }
}

/// Makes a bucket empty: not durably.
fn wipe(flash: &dyn Disk, unit_pages: u32, bucket: u32) -> io::Result<()> {
    let unit_bytes = u64::from(unit_pages) * BLOCK_BYTES as u64;
    let offset = (u64::from(bucket) + 1) * unit_bytes;
    if flash.zoned().is_some() {
        return flash.discard(offset, unit_bytes);
    }
    flash.write_at(Memory::new(1).bytes_mut(), offset)
}

/// Makes all buckets empty, durably.
pub fn format(flash: &dyn Disk, geometry: Geometry) -> io::Result<()> {
    flash.zoned().into_iter().for_each(ZonedFlash::write_many);
    (0..geometry.log_units()).try_for_each(|bucket| wipe(flash, geometry.unit_pages, bucket))?;
    flash.sync()
}
