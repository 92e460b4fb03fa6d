//! Reads the contents of cache buckets from their [header pages](super::header), and distinguishes valid, torn and
//! damaged data.
//!
//! The writes to a bucket form a chain: each header has the checksum of the previous one. Leftovers behind the end of
//! the chain are ignored. A write may be partly missing unless a later header of the same run declares it durable. So
//! its data is compared with its checksums, and incomplete data is invalid. It stays so, because nothing is appended
//! behind it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use super::bucket::{Log, Oob, State};
use super::config::Config;
use super::durable::Durable;
use super::header::{Crc, Header, Missing, ResetAt, SECTORS_PER_PAGE, reset_at};
use super::pieces::runs_without;
use super::recovery::Scan;
use crate::checksum;
use crate::format::{BLOCK_BYTES, Digest, Page, Resets, RunEnd, Witness};

/// Read access to cache buckets.
pub trait Buckets {
    /// The error of a failed read.
    type Error;

    /// Fills `bytes` with whole pages of a bucket from `page` on.
    fn read(&self, bucket: u32, page: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// True if buckets are zones, and the device knows their write pointers.
    fn in_order(&self) -> bool;

    /// Returns the marking of reset buckets, if buckets are not [in order](Self::in_order).
    fn resets(&self) -> Resets;

    /// Returns the number of pages of a bucket that may be written, if the device knows; otherwise all.
    fn written_pages(&self, bucket: u32) -> Result<u32, Self::Error>;
}

/// A reason why the flash contents cannot be used as a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ScanError<E> {
    #[error("the flash device cannot be read: {0}")]
    Read(E),
    #[error("a header page is damaged: page {page} of bucket {bucket}, which was durable")]
    Damaged { bucket: u32, page: u32 },
    #[error("bucket {bucket} is empty, but was written up to page {written} at a clean shutdown")]
    Missing { bucket: u32, written: u32 },
    #[error("bucket {bucket} has changed since everything was durable; its contents up to page {page} may be older")]
    Changed { bucket: u32, page: u32 },
    #[error("several buckets have changed since everything was durable, but it is unknown which")]
    SeveralChanged,
}

/// One write: data that was programmed together.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its first header.
    pub header: Header,
    /// The checksum of that page.
    pub crc: u32,
    /// Blocks without content, counted from the first, with the reason.
    pub absent: Vec<(u32, Missing)>,
}

impl Program {
    /// Returns its header pages in the bucket.
    pub fn header_pages(&self) -> std::ops::Range<u32> {
        self.header.page..self.header.page + self.header.parts()
    }
}

/// The result of following the headers of a bucket.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The writes, in order.
    pub programs: Vec<Program>,
    /// True if the bucket also has invalid data.
    pub torn: bool,
    /// The run and the sequence number of a copy with only its first header.
    torn_first: Option<(u64, u64)>,
    /// True if the first header is unreadable and was not torn: no power failure causes that.
    pub(super) damaged_first: bool,
    /// The run and the sequence number in the first sector of an invalid first header.
    begun: Option<(u64, u64)>,
    /// The backend bucket of an invalid first header, if a part of it tells.
    first_backend: Option<u32>,
    /// The end of the chain, if a later header declares the data there durable.
    pub(super) damaged: Option<u32>,
    /// Remains of a header at the end of the chain that would continue it: its run, sequence number and page.
    trace: Option<(u64, u64, u32)>,
    /// The time of the last reset in the first page.
    reset: Option<ResetAt>,
    /// The checksum of the first header of an invalid clean copy, otherwise 0.
    uncounted: u32,
}

impl Walk {
    /// Returns the backend bucket, if known.
    pub fn backend(&self) -> Option<u32> {
        self.programs.first().map(|program| program.header.oob.backend).or(self.first_backend)
    }

    /// Adds the pages that its headers declare durable.
    pub fn tell(&self, durable: &mut Durable) {
        self.programs.iter().for_each(|Program { header, .. }| durable.add(header.run, header.durable));
    }

    /// Returns the walk of a bucket with unexpected contents.
    pub fn of_nobody_knows_what() -> Walk {
        Walk { torn: true, damaged_first: true, ..Walk::default() }
    }

    /// Returns the bucket's value in a digest, if its valid writes end at page `end`. `None` if the bucket was begun or
    /// reset after the digest.
    pub fn value_in(&self, digest: &Digest, end: u32) -> Option<u32> {
        let first = self.programs.first().map(|program| (program.header.run, program.header.sequence));
        let mut begins = [first, self.begun, self.reset].into_iter().flatten();
        if begins.any(|(run, sequence)| !digest.covers(run, sequence)) {
            return None;
        }
        let covered = |program: &&Program| {
            program.header.end() <= end && digest.covers(program.header.run, program.header.sequence)
        };
        Some(self.programs.iter().rfind(covered).map_or(self.uncounted, |program| program.crc))
    }

    /// Returns the walk with damage ignored: only the writes before it.
    pub fn without_damage(self) -> Walk {
        Walk { torn: true, torn_first: None, damaged_first: false, damaged: None, trace: None, ..self }
    }
}

/// Checks durable writes against their witnesses, other headers or the superblock. A durable write must be where its
/// witness names it, unless the bucket was reset since. If it is missing, the end of the chain is damaged, or the whole
/// bucket if its contents are older. If two buckets have the same contents, one of them is misplaced. Buckets that
/// cannot be read have no walk.
pub fn confront(walks: &mut [Option<Walk>], durable: &Durable, ends: &[RunEnd]) {
    let headers = walks.iter().flatten().flat_map(|walk| &walk.programs).map(|program| &program.header);
    let was_durable = headers.filter(|header| durable.has(header.run, header.sequence.wrapping_sub(1)));
    let said = was_durable.map(|header| (header.run, header.before));
    let missing = said
        .chain(ends.iter().map(|end| (end.run, end.last)))
        .filter_map(|(run, witness)| missing(walks, run, witness?));
    let mut missing: Vec<(u32, Option<u32>)> = missing.collect();
    missing.extend(twice(walks).map(|bucket| (bucket, None)));
    for (bucket, end) in missing {
        match (&mut walks[bucket as usize], end) {
            (Some(walk), Some(end)) => drop(walk.damaged.get_or_insert(end)),
            // Its backend bucket is unknown.
            (Some(walk), None) => *walk = Walk::of_nobody_knows_what(),
            (None, _) => {}
        }
    }
}

/// Returns buckets that begin with the same header as another.
fn twice(walks: &[Option<Walk>]) -> impl Iterator<Item = u32> + use<> {
    let mut first: HashMap<(u64, u64), (u32, Header)> = HashMap::new();
    let mut found = BTreeSet::new();
    for (bucket, walk) in (0..).zip(walks) {
        let Some(Program { header, .. }) = walk.as_ref().and_then(|walk| walk.programs.first()) else { continue };
        match first.entry((header.run, header.sequence)) {
            Entry::Occupied(other) if other.get().1 == *header => found.extend([bucket, other.get().0]),
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => drop(entry.insert((bucket, *header))),
        }
    }
    found.into_iter()
}

/// Returns the bucket in which the write of `run` named by its witness is missing, and the end of its chain. The end is
/// `None` if the contents are older.
fn missing(walks: &[Option<Walk>], run: u64, Witness { bucket, epoch, page }: Witness) -> Option<(u32, Option<u32>)> {
    let walk = walks.get(bucket as usize)?.as_ref()?;
    let (first, last) = (&walk.programs.first()?.header, &walk.programs.last()?.header);
    let is_older = first.run < run || first.run == run && first.oob.epoch < epoch;
    match first.oob.epoch == epoch {
        // A later run may reuse the epoch's number.
        true => (last.end() <= page && first.run <= run).then(|| (bucket, Some(last.end()))),
        false => is_older.then_some((bucket, None)),
    }
}

/// Returns the end of `run` after all of its found data was made durable: before its first write known to be
/// incomplete. `counted` is the end of the valid data of each bucket. `None` if a bucket cannot be read, because it may
/// hold such evidence.
pub fn end_of(run: u64, walks: &[Option<Walk>], counted: &[u32]) -> Option<RunEnd> {
    if walks.iter().any(Option::is_none) {
        return None;
    }
    let (mut whole, mut torn) = (Vec::new(), Vec::new());
    for ((bucket, walk), end) in (0..).zip(walks).zip(counted) {
        let Some(walk) = walk else { continue };
        let trace = walk.trace.map(|(run, sequence, _)| (run, sequence));
        let in_part = walk.begun.into_iter().chain(walk.torn_first).chain(trace);
        torn.extend(in_part.filter(|(of, _)| *of == run).map(|(_, sequence)| sequence));
        for Program { header, .. } in walk.programs.iter().filter(|program| program.header.run == run) {
            match header.end() <= *end {
                true => whole.push((bucket, header)),
                false => torn.push(header.sequence),
            }
            if header.before.is_some_and(|before| missing(walks, run, before).is_some()) {
                torn.push(header.sequence.saturating_sub(1));
            }
        }
    }
    let torn = torn.into_iter().min().unwrap_or(u64::MAX);
    let whole = whole.into_iter().filter(|(_, header)| header.sequence < torn);
    let (bucket, header) = whole.max_by_key(|(_, header)| header.sequence)?;
    let last = Some(Witness { bucket, epoch: header.oob.epoch, page: header.page });
    Some(RunEnd { run, sequence: header.sequence + 1, last })
}

/// The contents of a bucket, for recovery.
#[derive(Clone, Debug, Default)]
pub struct BucketContents {
    /// The valid contents.
    pub scan: Scan,
    /// Header pages of the valid contents.
    pub headers: Vec<u32>,
    /// Pages of lost blocks.
    pub absent: Vec<u32>,
    /// The checksum of the last valid header, or of the first header of an invalid clean copy: the bucket's value in a
    /// digest.
    pub last: u32,
}

fn page_of(bytes: &[u8]) -> &Page {
    bytes.try_into().expect("a page of bytes")
}

/// Pages that are read together.
const READ_PAGES: u32 = 256;

/// The pages of a bucket, read in pieces.
struct Pages<'a, B> {
    buckets: &'a B,
    bucket: u32,
    end: u32,
    first: u32,
    bytes: Vec<u8>,
}

impl<B: Buckets> Pages<'_, B> {
    fn page(&mut self, page: u32, ahead: u32) -> Result<&Page, ScanError<B::Error>> {
        let held = (self.bytes.len() / BLOCK_BYTES) as u32;
        if !(self.first..self.first + held).contains(&page) {
            let count = ahead.clamp(1, self.end - page);
            self.bytes.resize(count as usize * BLOCK_BYTES, 0);
            self.first = page;
            self.buckets.read(self.bucket, page, &mut self.bytes).map_err(ScanError::Read)?;
        }
        let at = (page - self.first) as usize * BLOCK_BYTES;
        Ok(page_of(&self.bytes[at..at + BLOCK_BYTES]))
    }
}

/// Follows the headers of a bucket of the cache with the tag `cache`.
pub fn walk<B: Buckets>(config: &Config, cache: u64, bucket: u32, buckets: &B) -> Result<Walk, ScanError<B::Error>> {
    let written = buckets.written_pages(bucket).map_err(ScanError::Read)?.min(config.bucket_pages());
    let mut found = Walk::default();
    if written == 0 {
        return Ok(found);
    }
    let mut pages = Pages { buckets, bucket, end: written, first: 0, bytes: Vec::new() };
    let first = pages.page(0, 1)?;
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let of_cache = |header: &Header| header.cache == cache;
    if !buckets.in_order() {
        let resets = |number| reset_at(first, number, cache, bucket);
        found.reset = (0..SECTORS_PER_PAGE).filter_map(resets).max();
        let mark = resets(0);
        if mark.is_some() || buckets.resets() == Resets::Unmarked && is_zero(first) {
            // A partial mark is invalid, and is rewritten: a torn header over the remains of its predecessor would look
            // damaged.
            let is_whole = (1..SECTORS_PER_PAGE).all(|number| mark.is_some() && resets(number) == mark);
            found.torn = !is_whole && (buckets.resets() == Resets::EverySector || !is_zero(&first[512..]));
            return Ok(found);
        }
    }
    if !Header::decode(first).is_some_and(|(header, _)| of_cache(&header)) {
        look_at_its_first(cache, bucket, buckets, first, &mut found);
        if buckets.in_order() && found.begun.is_none() && !found.damaged_first {
            look_for_its_first(cache, &mut found, &mut pages)?;
        }
        return Ok(found);
    }
    let decoded = |page: &Page| Header::decode(page).map(|(header, _)| header.oob);
    if decoded(first).is_some_and(|oob| !config.has(&oob)) {
        (found.torn, found.damaged_first) = (true, true);
        return Ok(found);
    }
    let (mut at, mut previous, mut epoch) = (0, 0, None);
    while at < written {
        let ahead = if at == 0 { 1 } else { READ_PAGES };
        let page = pages.page(at, ahead)?;
        let Some(header) = Header::of_sector(page) else { break };
        let goes_on = (header.page, header.part, header.previous) == (at, 0, previous);
        let like_first = epoch.is_none_or(|epoch| epoch == (header.oob.epoch, header.oob.backend, header.oob.state));
        if !of_cache(&header) || !goes_on || !like_first || header.end() > config.bucket_pages() {
            break;
        }
        if !config.has(&header.oob) {
            (found.torn, found.damaged) = (true, Some(at));
            return Ok(found);
        }
        // An incomplete write is not overwritten: a power failure could then leave parts of both that look complete.
        found.torn = true;
        let Some((_, crc)) = Header::decode(page) else { break };
        let mut checksums = Vec::new();
        for part in 0..header.parts() {
            if at + part >= written {
                break;
            }
            let page = pages.page(at + part, header.parts() - part)?;
            if Header::decode(page).is_some_and(|(of_part, _)| of_part == Header { part, ..header }) {
                checksums.extend(Header { part, ..header }.checksums(page));
            }
        }
        let blocks = if header.oob.log == Log::Data { header.oob.blocks as usize } else { 0 };
        if checksums.len() != blocks || header.end() > written {
            break;
        }
        let absent = (0..).zip(checksums).filter_map(|(number, crc)| Some((number, crc.err()?))).collect();
        found.torn = false;
        (at, previous) = (header.end(), crc);
        epoch = Some((header.oob.epoch, header.oob.backend, header.oob.state));
        found.programs.push(Program { header, crc, absent });
        if header.oob.state != State::Write {
            break;
        }
    }
    look_behind(cache, at, written, &mut found, &mut pages)?;
    Ok(found)
}

/// Examines a first page that is neither a mark nor a whole header.
fn look_at_its_first<B: Buckets>(cache: u64, bucket: u32, buckets: &B, first: &Page, found: &mut Walk) {
    let of_cache = |header: &Header| header.cache == cache;
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let is_marked = !buckets.in_order() && buckets.resets() > Resets::Unmarked;
    let says_torn_resets = !buckets.in_order() && buckets.resets() == Resets::EverySector;
    found.torn = true;
    found.first_backend = Header::trace(first).filter(of_cache).map(|header| header.oob.backend);
    let Some(header) = Header::of_sector(first).filter(|header| of_cache(header) || !is_marked) else {
        // A power failure leaves the first sector of a mark or a header whole.
        found.damaged_first = is_marked || !is_zero(&first[..BLOCK_BYTES / SECTORS_PER_PAGE as usize]);
        return;
    };
    if !of_cache(&header) {
        return;
    }
    found.begun = Some((header.run, header.sequence));
    if header.oob.state == State::Read {
        found.uncounted = Header::checksum_of(first);
        return;
    }
    let sectors: Vec<&[u8]> = first.chunks(BLOCK_BYTES / SECTORS_PER_PAGE as usize).collect();
    let is_other = |number: u32| {
        reset_at(first, number, cache, bucket).is_some() || !says_torn_resets && is_zero(sectors[number as usize])
    };
    found.damaged_first = !Header::is_torn(first, is_other);
    // Only a later reset tears a durable header.
    if buckets.in_order() || says_torn_resets && found.reset < found.begun {
        found.torn_first = found.begun;
    }
}

/// Searches behind an empty first page of a zone: if data there was durable, the first page was durable too.
fn look_for_its_first<B: Buckets>(
    cache: u64,
    found: &mut Walk,
    pages: &mut Pages<'_, B>,
) -> Result<(), ScanError<B::Error>> {
    for page in 1..pages.end {
        let header = Header::decode(pages.page(page, READ_PAGES)?).map(|(header, _)| header);
        let Some(header) = header.filter(|header| (header.cache, header.page + header.part) == (cache, page)) else {
            continue;
        };
        found.first_backend = Some(header.oob.backend);
        if header.oob.state != State::Read {
            found.damaged_first = header.durable_end > 0;
            found.torn_first = Some((header.run, header.sequence));
        }
        break;
    }
    Ok(())
}

/// Examines the pages behind the end of the chain.
fn look_behind<B: Buckets>(
    cache: u64,
    at: u32,
    written: u32,
    found: &mut Walk,
    pages: &mut Pages<'_, B>,
) -> Result<(), ScanError<B::Error>> {
    let Some(Program { header: last, .. }) = found.programs.last() else {
        // The headers of a copy were torn, or its durable data is damaged.
        found.torn = true;
        let (header, crc) = Header::decode(pages.page(0, 1)?).expect("it was read before");
        found.begun = Some((header.run, header.sequence));
        match header.oob.state {
            State::Read => found.uncounted = crc,
            State::Dirty | State::Write => found.torn_first = found.begun,
        }
        return Ok(());
    };
    if last.oob.state != State::Write {
        return Ok(());
    }
    // If all of an epoch was erased before a power failure, a later run reuses its number, and old pages may remain.
    let (epoch, run, previous) = (last.oob.epoch, last.run, found.programs.last().map_or(0, |last| last.crc));
    if at < written
        && let Some(header) = Header::trace(pages.page(at, READ_PAGES)?)
        && (header.cache, header.oob.epoch, header.page, header.previous) == (cache, epoch, at, previous)
    {
        found.trace = Some((header.run, header.sequence, at));
    }
    found.torn |= pages.buckets.in_order() && at < written;
    for page in at..written {
        if let Some((header, _)) = Header::decode(pages.page(page, READ_PAGES)?)
            && (header.cache, header.oob.epoch, header.page) == (cache, epoch, page)
            && header.run >= run
            && header.durable_end > at
        {
            found.damaged = Some(at);
        }
    }
    Ok(())
}

/// Returns the valid contents of a bucket, given the durable data of each run.
///
/// # Errors
/// A durable header page is damaged.
pub fn judge<B: Buckets>(
    config: &Config,
    bucket: u32,
    walk: &Walk,
    durable: &Durable,
    buckets: &B,
) -> Result<BucketContents, ScanError<B::Error>> {
    let damaged = |page| Err(ScanError::Damaged { bucket, page });
    if walk.damaged_first || walk.torn_first.is_some_and(|(run, sequence)| durable.has(run, sequence)) {
        return damaged(0);
    }
    if let Some(page) = walk.damaged {
        return damaged(page);
    }
    if let Some((run, sequence, page)) = walk.trace
        && durable.has(run, sequence)
    {
        return damaged(page);
    }
    let scan = Scan { torn: walk.torn, ..Scan::default() };
    let mut found = BucketContents { scan, last: walk.uncounted, ..BucketContents::default() };
    let vouched_for = walk.programs.iter().map(|program| program.header.durable_end).max().unwrap_or(0);
    for program in &walk.programs {
        let Program { header, crc, absent } = program;
        let was_durable = durable.has(header.run, header.sequence) || header.end() <= vouched_for;
        if !was_durable && !is_whole(bucket, header, buckets)? {
            found.scan.torn = true;
            break;
        }
        found.last = *crc;
        let data = header.data_page();
        found.scan.end = header.end();
        if header.oob.state == State::Write && !absent.is_empty() {
            // Missing blocks are below: in older logs, or in the backend.
            let numbers = absent.iter().map(|(number, _)| *number);
            let log = |(from, blocks)| (data + from, Oob { at: header.oob.at + from, blocks, ..header.oob });
            found.scan.found.extend(runs_without(header.oob.blocks, numbers).map(log));
        } else {
            found.scan.found.push((data, header.oob));
        }
        found.headers.extend(program.header_pages());
        let lost = absent.iter().filter(|(_, missing)| *missing == Missing::Lost);
        found.absent.extend(lost.map(|(number, _)| data + number));
    }
    if found.scan.found.is_empty() && found.scan.end > 0 {
        // All data is missing: the bucket is empty, and is erased.
        found.scan.torn = true;
    }
    debug_assert!(found.scan.end <= config.bucket_pages());
    Ok(found)
}

/// Returns the checksums of a write's data, from its header pages; fewer than it has blocks if a header page is
/// unreadable.
pub fn checksums<B: Buckets>(bucket: u32, first: &Header, buckets: &B) -> Result<Vec<Crc>, ScanError<B::Error>> {
    let mut checksums = Vec::new();
    let mut bytes = vec![0; BLOCK_BYTES];
    for part in 0..first.parts() {
        buckets.read(bucket, first.page + part, &mut bytes).map_err(ScanError::Read)?;
        let header = Header { part, ..*first };
        if Header::decode(page_of(&bytes)).is_some_and(|(found, _)| found == header) {
            checksums.extend(header.checksums(page_of(&bytes)));
        }
    }
    Ok(checksums)
}

/// True if all data of a write is present.
fn is_whole<B: Buckets>(bucket: u32, header: &Header, buckets: &B) -> Result<bool, ScanError<B::Error>> {
    let checksums = checksums(bucket, header, buckets)?;
    if checksums.len() < header.described_blocks() as usize {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    let mut page = header.data_page();
    for crcs in checksums.chunks(READ_PAGES as usize) {
        bytes.resize(crcs.len() * BLOCK_BYTES, 0);
        buckets.read(bucket, page, &mut bytes).map_err(ScanError::Read)?;
        let right = |(page, crc): (&[u8], &Crc)| crc.is_err() || *crc == Ok(checksum::crc32c(page));
        if !bytes.chunks(BLOCK_BYTES).zip(crcs).all(right) {
            return Ok(false);
        }
        page += crcs.len() as u32;
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
