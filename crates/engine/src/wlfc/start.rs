//! What a flash of cache buckets holds: read at a start, and formatted.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use flashwise_core::format::{BLOCK_BYTES, Geometry, RunEnd, State as CacheState, Superblock};
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::durable::Durable;
use flashwise_core::wlfc::header::{HEADER_BLOCKS, reset_mark};
use flashwise_core::wlfc::scan::{Buckets, Found, ScanError, Walk, confront, end_of, judge, walk};
use flashwise_core::wlfc::{Around, Config, ConfigError, Oob, Refresh, Scan, State, Step, Wlfc, recover_around};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use super::OnFlash;
use super::checksums::HeaderPages;
use crate::disk::Disk;
use crate::disk::zoned::{Use, ZonedFlash};
use crate::flash::{FlashError, Progress, cache_tag, superblock_pages};
use crate::memory::Memory;

/// Threads that read buckets, with a piece of a bucket each in memory.
const THREADS_MAX: u32 = 8;
/// How many times a bucket is read again that cannot be read, where the cache goes around it.
const READ_TRIALS: u32 = 3;
/// Where more than one in so many cannot be read, it is the flash that cannot be.
const UNREAD_SHARE_MAX: usize = 4;
/// Buckets for which another of them is worth its while.
const BUCKETS_PER_THREAD: u32 = 16;

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
            "{zones} of its zones may be active and open at a time, expected at least {}: layout wlfc writes to one for each bucket of its write \
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
    /// The checksum of the last header of each bucket.
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
    /// The tag of the cache, and whether its buckets say that they were reset.
    cache: u64,
    marks_resets: bool,
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
            marks_resets: superblock.marks_resets,
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
        for (bucket, scan) in (0..).zip(&mut self.scans) {
            if scan.found.first().is_some_and(|(_, oob)| oob.state == State::Read) {
                wipe(flash, self.cache, self.unit_pages, bucket)?;
                *scan = Scan::default();
            }
        }
        flash.sync()
    }

    /// Makes durable what was found: it may be in the device's volatile cache only. Zones that are not written on are finished, and those of
    /// which nothing counts are reset. Buckets of which nothing counts are marked as reset, where none was as yet.
    pub fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        flash.sync()?;
        if flash.zoned().is_none() && self.marks_from_now_on() {
            for (bucket, scan) in (0..).zip(&mut self.scans).filter(|(_, scan)| scan.found.is_empty()) {
                wipe(flash, self.cache, self.unit_pages, bucket)?;
                *scan = Scan::default();
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
            scans.iter_mut().filter(|scan| scan.found.is_empty()).for_each(|scan| *scan = Scan::default());
            flash.sync()?;
        }
        Ok(())
    }

    /// Whether [settling](Self::settle) marks the buckets that are empty, so that the superblock may say so of all from then on: not where some
    /// failed, which cannot be marked.
    pub fn marks_from_now_on(&self) -> bool {
        !self.marks_resets && self.worn.is_empty() && self.dead.is_empty()
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

/// The buckets of a flash.
struct FlashBuckets<'a> {
    flash: &'a dyn Disk,
    unit_pages: u32,
    marks_resets: bool,
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

    fn marks_resets(&self) -> bool {
        self.marks_resets && !self.in_order()
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
    let threads = threads.min(buckets / BUCKETS_PER_THREAD);
    let (next, done) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    let take = || -> Result<(), ScanError<io::Error>> {
        loop {
            let bucket = next.fetch_add(1, Ordering::Relaxed);
            if bucket >= buckets {
                return Ok(());
            }
            let result = work(bucket).inspect_err(|_| next.store(buckets, Ordering::Relaxed))?;
            done.lock().push((bucket, result));
        }
    };
    if threads <= 1 {
        take()?;
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
        })?;
    }
    let mut done = done.into_inner();
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
    scan_with(flash, superblock, threads, progress, None, &mut |_, error| Err(error))
}

/// What is known of a cache in use, to find it again.
pub struct InUse<'a> {
    /// What a bucket was to hold that cannot be read any more, as far as that is known.
    pub remembered: &'a dyn Fn(u32) -> Option<Scan>,
    /// After how long such a bucket is read again.
    pub read_pause: Duration,
}

/// As [`scan`], of a cache in use.
///
/// # Errors
/// The flash cannot be read, but for a few buckets, or something else is there than the cache has put there.
pub fn scan_again(flash: &dyn Disk, superblock: &Superblock, in_use: &InUse) -> Result<Held, FlashError> {
    scan_with(flash, superblock, THREADS_MAX, &|_, _| (), Some(in_use), &mut |_, error| Err(error))
}

/// As [`scan`], where damage is made no account of: with the backend buckets of which something is missing, none for one that is not known.
pub fn scan_remains(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<(Held, Vec<Option<u32>>), FlashError> {
    let mut missing = Vec::new();
    let held = scan_with(flash, superblock, threads, progress, None, &mut |walk, error| match error {
        ScanError::Damaged { .. } | ScanError::Missing { .. } => {
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
    in_use: Option<&InUse>,
    mend: Mend<'_>,
) -> Result<Held, FlashError> {
    let geometry = superblock.geometry;
    flash.zoned().into_iter().for_each(ZonedFlash::write_many);
    let config = config(geometry, &Options::default(), superblock.volume_bytes).map_err(FlashError::Config)?;
    let buckets = FlashBuckets { flash, unit_pages: geometry.unit_pages, marks_resets: superblock.marks_resets };
    let (count, cache) = (geometry.log_units(), cache_tag(superblock));
    let read = AtomicU64::new(0);
    let failed = |counts: bool| {
        let of = superblock.failed_units.iter().filter(move |failed| failed.counts == counts);
        of.map(|failed| failed.unit - 1).collect::<BTreeSet<u32>>()
    };
    let (worn, dead, goes_around) = (failed(true), failed(false), in_use.is_some());
    let walk_bucket = |bucket: u32| match walk(&config, cache, bucket, &buckets) {
        _ if dead.contains(&bucket) => Ok(Some(Walk::default())),
        Err(_) if goes_around => Ok(None),
        walk => walk.map(Some),
    };
    let mut walks = for_each_bucket(count, threads.min(THREADS_MAX), |bucket| {
        let walk = walk_bucket(bucket)?;
        progress(read.fetch_add(1, Ordering::Relaxed) + 1, count.into());
        Ok(walk)
    })?;
    for attempt in 0..=READ_TRIALS {
        let unread: Vec<usize> = (0..walks.len()).filter(|bucket| walks[*bucket].is_none()).collect();
        if unread.is_empty() {
            break;
        }
        // What is to be read again later must not be gone around now.
        check_readable(flash)?;
        if unread.len() > walks.len() / UNREAD_SHARE_MAX {
            return Err(unreadable(flash, &format!("{} of its {count} buckets cannot be read", unread.len())));
        }
        if let Some(in_use) = in_use.filter(|_| attempt < READ_TRIALS) {
            std::thread::sleep(in_use.read_pause);
            for bucket in unread {
                walks[bucket] = walk_bucket(bucket as u32)?;
            }
        }
    }
    let mut durable = Durable::default();
    walks.iter().flatten().for_each(|walk| walk.tell(&mut durable));
    // Of an orderly end, or of a pause.
    durable.add(run(superblock.attach, superblock.durable.page), superblock.durable.sequence);
    superblock.ends.iter().for_each(|end| durable.add(end.run, end.sequence));
    confront(&mut walks, &durable, &superblock.ends);
    // At an orderly end each bucket that is written begins with a header: a start erases what a crash has left of others. What it describes may be
    // data that never came.
    let zones = flash.zoned().filter(|_| superblock.state == CacheState::Clean);
    let judged = |bucket: u32, walk: &Walk| {
        let found = judge(&config, bucket, walk, &durable, &buckets)?;
        let zones = zones.filter(|_| found.scan.end == 0 && !worn.contains(&bucket) && !dead.contains(&bucket));
        match zones.map_or(0, |zones| zones.written_pages(bucket + 1)) {
            0 => Ok(found),
            written => Err(ScanError::Missing { bucket, written }),
        }
    };
    let founds: Vec<_> =
        (0..).zip(&walks).map(|(bucket, walk)| walk.as_ref().map(|walk| judged(bucket, walk))).collect();
    let mut held = Held { crashed: superblock.state == CacheState::InUse, worn, dead, ..Held::empty(superblock) };
    for ((bucket, walk), found) in (0..).zip(&walks).zip(founds) {
        match (found, walk, in_use) {
            (Some(Ok(found)), ..) => held.add(bucket, found),
            (_, _, Some(InUse { remembered, .. })) => {
                let scan =
                    remembered(bucket).ok_or_else(|| unreadable(flash, &format!("bucket {bucket} cannot be read")))?;
                held.add_unread(bucket, scan);
            }
            (Some(Err(error)), Some(walk), None) => {
                held.add(bucket, judge(&config, bucket, &mend(walk, error)?, &durable, &buckets)?);
            }
            _ => unreachable!("a bucket that cannot be read ends it"),
        }
    }
    let counted: Vec<u32> = held.scans.iter().map(|scan| scan.end).collect();
    let headers = walks.iter().flatten().flat_map(|walk| &walk.programs).map(|program| program.header.run);
    let runs: BTreeSet<u64> = headers.filter(|run| run >> 32 == superblock.attach).collect();
    held.ends = runs.into_iter().filter_map(|run| end_of(run, &walks, &counted)).collect();
    for &bucket in &held.worn {
        held.scans[bucket as usize].torn |= !held.scans[bucket as usize].found.is_empty();
    }
    Ok(held)
}

fn unreadable(flash: &dyn Disk, what: &str) -> FlashError {
    FlashError::Io(io::Error::other(format!("{}: {what}", flash.description())))
}

/// Fails unless the flash can be read at all: its superblocks, whatever they say.
fn check_readable(flash: &dyn Disk) -> Result<(), FlashError> {
    superblock_pages(flash).map(drop).map_err(FlashError::Io)
}

/// The number of a run: which start it is of, and how many times its cache was found again since.
pub fn run(start: u64, found_again: u32) -> u64 {
    start << 32 | u64::from(found_again)
}

/// Makes a bucket empty: not durably.
fn wipe(flash: &dyn Disk, cache: u64, unit_pages: u32, bucket: u32) -> io::Result<()> {
    let unit_bytes = u64::from(unit_pages) * BLOCK_BYTES as u64;
    let offset = (u64::from(bucket) + 1) * unit_bytes;
    if flash.zoned().is_some() {
        return flash.discard(offset, unit_bytes);
    }
    flash.write_at(mark(cache, bucket).bytes_mut(), offset)
}

/// What the first page of a bucket is once it was reset, where buckets are no zones.
pub(super) fn mark(cache: u64, bucket: u32) -> Memory {
    let mut memory = Memory::new(1);
    *memory.page_mut(0) = reset_mark(cache, bucket);
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
