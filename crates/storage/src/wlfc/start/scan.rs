//! Reads the buckets of a flash.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::time::{self, Mutex};
use flashwise_core::format::{BLOCK_BYTES, Difference, Resets, State as CacheState, Superblock};
use flashwise_core::wlfc::durable::Durable;
use flashwise_core::wlfc::scan::{BucketContents, Buckets, ScanError, Walk, confront, end_of, judge, walk};
use flashwise_core::wlfc::{BucketOptions, Scan};
use flashwise_engine::memory::Memory;

use super::{Held, config, run};
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::flash::{FlashError, Progress, cache_tag, superblock_pages};

/// Maximum number of threads that read buckets, each with a piece of a bucket in memory.
const THREADS_MAX: u32 = 8;
/// Number of times that an unreadable bucket is read again, for a cache in use.
const READ_TRIALS: u32 = 3;
/// If more than one in this many buckets is unreadable, the flash counts as unreadable.
const UNREAD_SHARE_MAX: usize = 4;
/// Minimum number of buckets per thread.
const BUCKETS_PER_THREAD: u32 = 16;

/// The buckets of a flash.
struct FlashBuckets<'a> {
    flash: &'a dyn Disk,
    unit_pages: u32,
    resets: Resets,
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

    fn resets(&self) -> Resets {
        self.resets
    }

    fn in_order(&self) -> bool {
        self.flash.zoned().is_some()
    }

    fn written_pages(&self, bucket: u32) -> io::Result<u32> {
        Ok(self.flash.zoned().map_or(self.unit_pages, |zoned| zoned.written_pages(bucket + 1)))
    }
}

/// Calls `work` for each bucket, on several threads. The first error ends it.
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

/// Reads the contents of a flash. Writes nothing.
///
/// # Errors
/// The flash is unreadable or damaged.
pub fn scan(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<Held, FlashError> {
    scan_with(flash, superblock, threads, progress, None, &mut |_, error| Err(error))
}

/// Known properties of a cache in use, for its recovery.
pub struct InUse<'a> {
    /// Returns the remembered contents of an unreadable bucket, if known.
    pub remembered: &'a dyn Fn(u32) -> Option<Scan>,
    /// The pause before such a bucket is read again.
    pub read_pause: Duration,
}

/// Like [`scan`], for a cache in use.
///
/// # Errors
/// The flash, except for a few buckets, is unreadable, or has other contents than the cache wrote.
pub fn scan_again(flash: &dyn Disk, superblock: &Superblock, in_use: &InUse) -> Result<Held, FlashError> {
    scan_with(flash, superblock, THREADS_MAX, &|_, _| (), Some(in_use), &mut |_, error| Err(error))
}

/// The losses of a damaged cache.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    /// The backend bucket of each damaged bucket, `None` if unknown.
    pub backends: Vec<Option<u32>>,
    /// True if any bucket may have older content.
    pub any_may_be_older: bool,
}

/// Like [`scan`], but tolerates damage.
pub fn scan_remains(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<(Held, Missing), FlashError> {
    let mut missing = Missing::default();
    let held = scan_with(flash, superblock, threads, progress, None, &mut |walk, error| match error {
        ScanError::Damaged { .. } | ScanError::Missing { .. } => {
            missing.backends.push(walk.backend());
            Ok(walk.clone().without_damage())
        }
        // The bucket's content is older, so its backend bucket is unknown.
        ScanError::Changed { .. } => {
            missing.backends.push(None);
            Ok(Walk::of_nobody_knows_what().without_damage())
        }
        ScanError::SeveralChanged => {
            missing.any_may_be_older = true;
            Ok(Walk::default())
        }
        error @ ScanError::Read(_) => Err(error),
    })?;
    Ok((held, missing))
}

/// Receives a bucket that cannot be decided, and may replace it.
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
    let config = config(geometry, &BucketOptions::default(), superblock.volume_bytes).map_err(FlashError::Config)?;
    let buckets = FlashBuckets { flash, unit_pages: geometry.unit_pages, resets: superblock.resets };
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
        // A flash that is only temporarily unreadable is an error, and not avoided.
        check_readable(flash)?;
        if unread.len() > walks.len() / UNREAD_SHARE_MAX {
            return Err(unreadable(flash, &format!("{} of its {count} buckets cannot be read", unread.len())));
        }
        if let Some(in_use) = in_use.filter(|_| attempt < READ_TRIALS) {
            time::sleep(in_use.read_pause);
            for bucket in unread {
                walks[bucket] = walk_bucket(bucket as u32)?;
            }
        }
    }
    let mut durable = Durable::default();
    walks.iter().flatten().for_each(|walk| walk.tell(&mut durable));
    // From a clean shutdown, or a pause.
    durable.add(run(superblock.attach, superblock.durable.page), superblock.durable.sequence);
    superblock.ends.iter().for_each(|end| durable.add(end.run, end.sequence));
    confront(&mut walks, &durable, &superblock.ends);
    // After a clean shutdown, each bucket with written pages begins with a header, because starts erase leftovers of
    // crashes. The data that it describes may be missing.
    let zones = flash.zoned().filter(|_| superblock.state == CacheState::Clean);
    let judged = |bucket: u32, walk: &Walk| {
        let found = judge(&config, bucket, walk, &durable, &buckets)?;
        let zones = zones.filter(|_| found.scan.end == 0 && !worn.contains(&bucket) && !dead.contains(&bucket));
        match zones.map_or(0, |zones| zones.written_pages(bucket + 1)) {
            0 => Ok(found),
            written => Err(ScanError::Missing { bucket, written }),
        }
    };
    let mut founds: Vec<_> =
        (0..).zip(&walks).map(|(bucket, walk)| walk.as_ref().map(|walk| judged(bucket, walk))).collect();
    if in_use.is_none() {
        let is_failed = |bucket| worn.contains(&bucket) || dead.contains(&bucket);
        match differ(flash, superblock, &walks, &founds, is_failed) {
            Difference::Bucket(bucket) => {
                let found = founds[bucket as usize].as_ref().and_then(|found| found.as_ref().ok());
                let page = found.map_or(0, |found| found.scan.end);
                founds[bucket as usize] = Some(Err(ScanError::Changed { bucket, page }));
            }
            Difference::Several => drop(mend(&Walk::default(), ScanError::SeveralChanged)?),
            Difference::None => {}
        }
    }
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

/// The difference between the buckets and the superblock's digest.
fn differ(
    flash: &dyn Disk,
    superblock: &Superblock,
    walks: &[Option<Walk>],
    founds: &[Option<Result<BucketContents, ScanError<io::Error>>>],
    is_failed: impl Fn(u32) -> bool,
) -> Difference {
    let Some(digest) = &superblock.digest else { return Difference::None };
    let value =
        |(bucket, (walk, found)): (u32, (&Option<Walk>, &Option<Result<BucketContents, _>>))| match (walk, found) {
            _ if is_failed(bucket) => Some(0),
            (Some(walk), Some(Ok(found))) => walk.value_in(digest, found.scan.end),
            // The bucket is damaged, which another error reports.
            _ => None,
        };
    let values: Vec<Option<u32>> = (0..).zip(walks.iter().zip(founds)).map(value).collect();
    // An empty zone does not contain the time of its reset.
    let may_have_been_reset = |bucket: u32| {
        let zoned = flash.zoned().filter(|_| superblock.state != CacheState::Clean);
        zoned.is_some_and(|zoned| zoned.written_pages(bucket + 1) == 0)
    };
    match digest.compare(&values) {
        Difference::Bucket(bucket) if may_have_been_reset(bucket) => Difference::None,
        Difference::Several if (0..values.len() as u32).any(may_have_been_reset) => Difference::None,
        difference => difference,
    }
}

fn unreadable(flash: &dyn Disk, what: &str) -> FlashError {
    FlashError::Io(io::Error::other(format!("{}: {what}", flash.description())))
}

/// Fails unless the superblocks, and so the flash, are readable at all. Ignores their contents.
fn check_readable(flash: &dyn Disk) -> Result<(), FlashError> {
    superblock_pages(flash).map(drop).map_err(FlashError::Io)
}
