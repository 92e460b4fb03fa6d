//! Salvaging a damaged cache offline: certain newest copies are written back, and all other blocks are listed.
//!
//! The flash is not changed until everything was written back, or the administrator gives up the rest. So a salvage can
//! be repeated, after an interruption or with other options.

mod run;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use flashwise_core::format::{BLOCK_BYTES, Geometry, PageError, Place, RunEnd, State, Superblock};
use flashwise_core::recovery::Known;
use flashwise_core::salvage::{BlockCopy, Gap, Salvaged, UnitRemains, salvage as put_together};
use flashwise_core::wlfc::{Oob, State as BucketState};
use flashwise_engine::memory::Memory;

use crate::attach::{Attachment, BackendSide, may_be_dirty, read_or_damage};
use crate::disk::Disk;
use crate::flash::{FlashError, Progress, SCAN_THREADS, cache_tag, read_superblock, recover_log};
use crate::offline::detach::{DetachError, Pair, destage, destage_buckets, dirty_copies};
use crate::wlfc::{made_up, start};
pub use run::salvage;

/// The options of the administrator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SalvageOptions {
    /// True to also write back copies that may be outdated.
    pub with_uncertain: bool,
    /// True to give up blocks that were not written back.
    pub discard_rest: bool,
    /// The geometry of the flash, if the superblock is lost.
    pub geometry: Option<Geometry>,
}

flashwise_core::words! {
    /// Why a block is listed.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        /// A copy is known, but a newer one may be missing.
        Uncertain "uncertain",
        /// The data of its copy is damaged.
        Damaged "damaged",
        /// The only copy was lost earlier.
        Lost "lost",
        /// The newest copy may be among those whose block is unknown.
        Unknown "unknown",
    }
}

/// Blocks whose newest data the backend may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The logical disk of a pool that owns them.
    pub disk: Option<String>,
    /// The blocks.
    pub blocks: Range<u64>,
    /// The reason.
    pub reason: Reason,
    /// True if a copy was written back nevertheless.
    pub written_back: bool,
}

impl Listed {
    fn new(blocks: Range<u64>, reason: Reason, written_back: bool) -> Listed {
        Listed { disk: None, blocks, reason, written_back }
    }
}

/// The result of a salvage.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// True if the cache is detached, now or since before.
    pub detached: bool,
    /// True if the cache was detached before.
    pub was_detached: bool,
    /// True if the cache is damaged but held no dirty blocks.
    pub was_empty: bool,
    /// Number of blocks of the journal's last group that were written into place.
    pub journal_blocks: usize,
    /// Number of certain blocks that were written back.
    pub certain_blocks: u64,
    /// Number of uncertain blocks that were written back.
    pub uncertain_blocks_written: u64,
    /// All uncertain blocks, in order.
    pub listed: Vec<Listed>,
    /// Where records are missing.
    pub gaps: Vec<Gap>,
}

impl Outcome {
    /// Returns the number of blocks listed for a reason.
    pub fn blocks(&self, reason: Reason) -> u64 {
        self.listed.iter().filter(|it| it.reason == reason).map(|it| it.blocks.end - it.blocks.start).sum()
    }

    /// Returns the number of pages of headers and data whose contents are unknown.
    pub fn gap_pages(&self) -> u64 {
        self.gaps.iter().map(|gap| u64::from(gap.pages.end - gap.pages.start)).sum()
    }
}

/// Stores the listed blocks.
pub type List<'a> = &'a mut dyn FnMut(&[Listed]) -> io::Result<()>;

/// Like [`salvage`], for a log.
pub(crate) fn salvage_log(
    pair: Pair<'_>,
    (superblock, is_whole): (Superblock, bool),
    options: &SalvageOptions,
    list: List<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, DetachError> {
    let Pair { flash, backend, side, .. } = pair;
    let mut outcome = Outcome::default();
    let recovered = recover_log(flash, &superblock, SCAN_THREADS, &|_, _| ());
    if recovered.is_err() && !may_be_dirty(&superblock, side)? {
        Attachment::of(superblock, side.inode()).detach(flash, side)?;
        return Ok(Outcome { detached: true, was_empty: true, ..outcome });
    }
    let known = match recovered {
        Ok(recovered) if is_whole => {
            let mut lost: Vec<u32> = recovered.lost.keys().copied().collect();
            lost.sort_unstable();
            Salvaged { certain: dirty_copies(&recovered), lost, ..Salvaged::default() }
        }
        _ => look(flash, &superblock, is_whole, reading)?,
    };
    write_back(flash, backend, known, options, &mut outcome, progress)?;
    backend.sync()?;
    conclude(pair, superblock, options, list, outcome)
}

/// Like [`salvage`], for a cache of buckets.
///
/// If the newest bucket on flash of a bucket of the backend is damaged, no block of that bucket is certain. If it is
/// not known which bucket of the backend is affected, only logs in intact buckets are certain, and only after a clean
/// shutdown. Then each bucket of the backend has one bucket of logs.
pub(crate) fn salvage_buckets(
    pair: Pair<'_>,
    (superblock, is_whole): (Superblock, bool),
    options: &SalvageOptions,
    list: List<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, DetachError> {
    let Pair { flash, backend, .. } = pair;
    let (mut held, missing) = start::scan_remains(flash, &superblock, SCAN_THREADS, reading)
        .map_err(|error| DetachError::cache(flash, error))?;
    let (bucket_blocks, volume_blocks) = (held.bucket_blocks(), superblock.volume_bytes.div_ceil(BLOCK_BYTES as u64));
    let whole = |backend: u32| {
        let first = u64::from(backend) * u64::from(bucket_blocks);
        first..(first + u64::from(bucket_blocks)).min(volume_blocks)
    };
    let without = |ranges: Vec<Range<u64>>, others: &[Range<u64>]| {
        all_but(volume_blocks, [&all_but(volume_blocks, ranges), others].concat())
    };
    let damaged: BTreeSet<u32> = missing.backends.iter().flatten().copied().collect();
    // If the superblocks are lost, the flash may be outdated or incomplete, unless it ends where the backend's record
    // says.
    let Place { sequence, page } = superblock.durable;
    let is_end =
        |end: &RunEnd| end.run == flashwise_engine::wlfc::run(superblock.attach, page) && end.sequence >= sequence;
    let is_closed = sequence > 0 && held.ends.iter().any(is_end);
    // After a crash, outdated logs that were evicted may still exist.
    let has_newest_logs = superblock.state == State::Clean || !is_whole && is_closed;
    let is_newest = |oob: &Oob| oob.state == BucketState::Write && has_newest_logs;
    let is_whole = (is_whole || is_closed) && !missing.any_may_be_older;
    let any_may_be = !is_whole || missing.backends.contains(&None);
    let is_certain = |oob: &Oob| is_whole && !damaged.contains(&oob.backend) && (!any_may_be || is_newest(oob));
    let certain = held.newer(is_certain);
    let uncertain = without(held.newer(|oob| !is_certain(oob)), &certain);
    let may_be_newer = match any_may_be {
        true => std::iter::once(0..volume_blocks).collect(),
        false => damaged.iter().copied().map(whole).collect(),
    };
    let unknown = without(may_be_newer, &[certain, uncertain.clone()].concat());
    if !options.with_uncertain {
        held.keep(|oob| oob.state == BucketState::Read || is_certain(oob));
    }
    let (written, damaged) = destage_buckets(flash, backend, &superblock, held, progress)?;
    let uncertain_blocks = uncertain.iter().map(|blocks| blocks.end - blocks.start).sum::<u64>();
    let uncertain_blocks_written = if options.with_uncertain { uncertain_blocks.min(written) } else { 0 };
    let listed = |blocks: &Range<u64>, reason, written_back| Listed::new(blocks.clone(), reason, written_back);
    let of_one = |block: u32| u64::from(block)..u64::from(block) + 1;
    let mut all: Vec<Listed> =
        damaged.into_iter().map(|block| listed(&of_one(block), Reason::Damaged, false)).collect();
    all.extend(uncertain.iter().map(|blocks| listed(blocks, Reason::Uncertain, options.with_uncertain)));
    all.extend(unknown.iter().map(|blocks| listed(blocks, Reason::Unknown, false)));
    all.sort_by_key(|listed| (listed.blocks.start, listed.blocks.end));
    let certain_blocks = written - uncertain_blocks_written;
    let outcome = Outcome { certain_blocks, uncertain_blocks_written, listed: all, ..Outcome::default() };
    conclude(pair, superblock, options, list, outcome)
}

/// Lists the blocks of an outcome with their owners. Detaches the cache if there are none, or if they are given up.
fn conclude(
    Pair { flash, side, .. }: Pair<'_>,
    superblock: Superblock,
    options: &SalvageOptions,
    list: List<'_>,
    mut outcome: Outcome,
) -> Result<Outcome, DetachError> {
    outcome.listed = of_owners(side, outcome.listed);
    if !outcome.listed.is_empty() {
        list(&outcome.listed)?;
    }
    if outcome.listed.is_empty() || options.discard_rest {
        Attachment::of(superblock, side.inode()).detach(flash, side)?;
        outcome.detached = true;
    }
    Ok(outcome)
}

/// Maps listed blocks to their owners. For a pool, these are logical disks, and blocks without an owner are dropped.
fn of_owners(side: &dyn BackendSide, listed: Vec<Listed>) -> Vec<Listed> {
    let blocks: Vec<Range<u64>> = listed.iter().map(|listed| listed.blocks.clone()).collect();
    let owned = side.owned(&blocks).into_iter();
    owned.map(|owned| Listed { disk: owned.disk, blocks: owned.blocks, ..listed[owned.of].clone() }).collect()
}

/// Returns the ranges below `end` that are not in `ranges`.
fn all_but(end: u64, mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    let mut left = Vec::new();
    for range in ranges.into_iter().chain(std::iter::once(end..end)) {
        if at < range.start {
            left.push(at..range.start);
        }
        at = at.max(range.end);
    }
    left
}

/// Finds the superblock, or derives it from the backend's record. The second value is true if the end of the log is
/// certain. For derived buckets, [`salvage_buckets`] determines that.
fn find_superblock(pair: Pair<'_>, options: &SalvageOptions) -> Result<(Superblock, bool), DetachError> {
    let Pair { flash, backend, side, pairing, .. } = pair;
    match read_superblock(flash) {
        Ok(superblock) => return Ok((superblock, true)),
        Err(error @ FlashError::NoSuperblock(PageError::Version { .. })) => {
            return Err(DetachError::cache(flash, error));
        }
        Err(FlashError::Damaged(..) | FlashError::NoSuperblock(_)) => {}
        Err(error) => return Err(DetachError::cache(flash, error)),
    }
    let lost = |what: String| DetachError::NoSuperblock { path: flash.description(), what };
    let record = read_or_damage(side)?
        .map_err(|error| lost(format!("the backend's record is damaged ({error})")))?
        .ok_or_else(|| lost("the backend has no record of a cache".to_owned()))?;
    let Some(geometry) = options.geometry else { return Err(lost("its geometry is unknown".to_owned())) };
    let closed = record.closed.as_ref();
    let superblock = Superblock {
        attach: record.attach,
        attach_confirmed: record.attach,
        may_be_dirty: record.may_be_dirty,
        durable: closed
            .map_or(Place::default(), |closed| Place { sequence: closed.end_sequence, page: closed.end_page }),
        generation: closed.map_or(0, |closed| closed.generation),
        in_order: flash.zoned().is_some(),
        ..Superblock::new(record.cache.into_bytes(), pairing.backend, geometry, backend.size())
    };
    if !holds_any(flash, &superblock)? {
        let unit = u64::from(geometry.unit_pages) * BLOCK_BYTES as u64;
        let units = format!("in {} erase units of {unit} bytes", geometry.units);
        return match made_up::made_up(flash, &superblock)? {
            Some((superblock, true)) => Ok((superblock, false)),
            Some(_) => Err(lost(format!("pages of its cache are not in their places {units}"))),
            None => {
                Err(lost(format!("{units} no page of cache {} is found, which the backend belongs to", record.cache)))
            }
        };
    }
    Ok((superblock, closed.is_some()))
}

/// True if the flash has a page of the cache, given the geometry of the superblock.
fn holds_any(flash: &dyn Disk, superblock: &Superblock) -> io::Result<bool> {
    let mut any = false;
    for_each_unit(flash, superblock, |remains| any |= !remains.is_empty())?;
    Ok(any)
}

fn for_each_unit(flash: &dyn Disk, superblock: &Superblock, mut visit: impl FnMut(UnitRemains)) -> io::Result<()> {
    let geometry = superblock.geometry;
    let mut bytes = Memory::new(geometry.unit_pages as usize);
    for unit in 1..geometry.units {
        let offset = u64::from(geometry.slot(unit, 0)) * BLOCK_BYTES as u64;
        if flash.read_at(bytes.bytes_mut(), offset).is_err() {
            // An unreadable page counts as damaged.
            for page in 0..geometry.unit_pages {
                if flash.read_at(bytes.page_mut(page), offset + u64::from(page) * BLOCK_BYTES as u64).is_err() {
                    bytes.page_mut(page).fill(0);
                }
            }
        }
        visit(UnitRemains::new(geometry, cache_tag(superblock), unit, bytes.bytes_mut()));
    }
    Ok(())
}

/// Reads the whole flash.
fn look(flash: &dyn Disk, superblock: &Superblock, is_whole: bool, reading: Progress<'_>) -> io::Result<Salvaged> {
    let mut units = Vec::new();
    for_each_unit(flash, superblock, |remains| {
        units.push(remains);
        reading(units.len() as u64, superblock.geometry.log_units().into());
    })?;
    let blocks = superblock.volume_bytes.div_ceil(BLOCK_BYTES as u64) as u32;
    Ok(put_together(superblock.geometry, &Known::of(superblock), is_whole, blocks, &units))
}

fn write_back(
    flash: &dyn Disk,
    backend: &dyn Disk,
    known: Salvaged,
    options: &SalvageOptions,
    outcome: &mut Outcome,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let Salvaged { certain, uncertain, lost, unknown, gaps } = known;
    let mut listed: Vec<(u32, Reason, bool)> = lost.iter().map(|&block| (block, Reason::Lost, false)).collect();
    let are_damaged = |damaged: Vec<u32>| damaged.into_iter().map(|block| (block, Reason::Damaged, false));
    let written = if options.with_uncertain { &uncertain[..] } else { &[] };
    let all = (certain.len() + written.len()) as u64;
    let (destaged, damaged) = destage(flash, backend, &certain, &mut |done, _| progress(done, all))?;
    outcome.certain_blocks = destaged;
    listed.extend(are_damaged(damaged));
    let (also, damaged) = destage(flash, backend, written, &mut |done, _| progress(destaged + done, all))?;
    outcome.uncertain_blocks_written = also;
    let is_written = |copy: &BlockCopy| options.with_uncertain && damaged.binary_search(&copy.block).is_err();
    listed.extend(uncertain.iter().map(|copy| (copy.block, Reason::Uncertain, is_written(copy))));
    listed.sort_unstable();
    let mut ranges: Vec<Listed> = Vec::new();
    for (block, reason, written_back) in listed {
        match ranges.last_mut() {
            Some(last) if (last.blocks.end, last.reason, last.written_back) == (block.into(), reason, written_back) => {
                last.blocks.end += 1;
            }
            _ => ranges.push(Listed::new(block.into()..u64::from(block) + 1, reason, written_back)),
        }
    }
    let range = |blocks: Range<u32>| blocks.start.into()..blocks.end.into();
    let unknown = unknown.into_iter().map(|blocks| Listed::new(range(blocks), Reason::Unknown, false));
    ranges.extend(unknown);
    ranges.sort_unstable_by_key(|listed| listed.blocks.start);
    (outcome.listed, outcome.gaps) = (ranges, gaps);
    Ok(())
}
