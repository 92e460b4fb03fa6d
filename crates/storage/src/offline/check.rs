//! Offline check of a cache device: its contents, its damage, and the outcome of a start. It never writes.
//!
//! The format is in `flashwise_core::format`. `flashwise_core::recovery` decides if a log can be opened; this module
//! finds the position and cause of damage.

mod buckets;
mod run;

use std::collections::{BTreeMap, HashMap};
use std::io;

use flashwise_core::checksum;
use flashwise_core::format::{
    BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, PageError, Record, Role, State, Superblock, decode_metadata,
};
use flashwise_core::recovery::{Recovered, belongs, decode_footer, goes_on, resumed};
use flashwise_engine::memory::Memory;
use serde::Serialize;
use uuid::Uuid;

use crate::attach::Refusal;
use crate::disk::Disk;
use crate::disk::identity::Identity;
use crate::disk::zoned::ZonedFlash;
use crate::flash::{FlashError, FlashUnits, SCAN_THREADS, cache_tag, read_copies, recover_log};
pub(crate) use buckets::check_buckets;
pub use run::check;

/// Maximum number of findings of one kind that are listed. Others are only counted.
const TOLD_MAX: usize = 20;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Not a problem.
    Note,
    /// The flash and the backend are not a pair, but neither is damaged.
    Mismatch,
    /// A problem.
    Damage,
}

/// A finding of the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The finding and its meaning, in a sentence.
    pub text: String,
}

/// The contents of the superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheDescription {
    /// The cache's UUID.
    pub cache: String,
    /// The UUID of the cache's backend.
    pub backend: String,
    /// `in-use`, `clean` or `detached`.
    pub state: &'static str,
    /// The layout: `log` or `wlfc`.
    pub layout: &'static str,
    /// Size of the volume in bytes.
    pub volume_bytes: u64,
    /// Size of the flash in bytes.
    pub flash_bytes: u64,
    /// Size of an erase unit in bytes.
    pub erase_unit_bytes: u64,
}

/// Counts of blocks and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordCounts {
    /// Erase units of the log, or buckets, with valid contents.
    pub log_units: u64,
    /// Erase units or buckets that this cache never wrote, or with outdated contents.
    pub unused_units: u64,
    /// Records of clean blocks; for buckets, blocks in read buckets.
    pub clean_records: u64,
    /// Records of dirty blocks; for buckets, blocks in write buckets, including outdated ones.
    pub dirty_records: u64,
    /// Records that invalidate earlier records of a block; for buckets, of writes that bypassed them.
    pub forget_records: u64,
    /// Records that a block, or all blocks of a unit, were written back.
    pub destaged_records: u64,
    /// Records that the only copy of a block was lost.
    pub lost_records: u64,
    /// Records that clean copies of a region are invalid, or valid again.
    pub region_records: u64,
    /// Records of the epochs in which dirty blocks are written back.
    pub epoch_records: u64,
    /// Records of data without references.
    pub void_records: u64,
    /// Number of cached blocks.
    pub cached_blocks: u64,
    /// Number of dirty blocks.
    pub dirty_blocks: u64,
    /// Number of blocks whose only copy was lost.
    pub lost_blocks: u64,
    /// Number of blocks whose data was compared with its checksum.
    pub verified_blocks: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The contents of the superblock, if it is readable.
    pub description: Option<CacheDescription>,
    /// True if a start would open the cache. Blocks are counted only in this case.
    pub opens: bool,
    /// The counts.
    pub counts: RecordCounts,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if all findings are notes.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Adds the reason why a start would refuse the flash and its backend as a pair.
    pub fn add_refusal(&mut self, refusal: &Refusal) {
        let text = format!("A start with this backend would be refused: {refusal}.");
        // Both are intact, but belong to others.
        if matches!(refusal, Refusal::OtherCache { .. }) { self.mismatch(text) } else { self.damage(text) }
    }

    /// Adds that the backend's record says that its cache is detached.
    pub fn add_detached(&mut self) {
        self.note("The backend is detached: starts use no cache for it until 'flashwise attach'.".to_owned());
    }

    /// Adds that the backend's record of its cache is damaged. `is_paired` is true if the flash names the backend.
    pub fn add_damaged_record(&mut self, error: &io::Error, is_paired: bool) {
        let advice = match is_paired {
            true => {
                "'flashwise detach' with this flash and backend writes back the dirty blocks and a new record. Give \
                 the flash that was used last: an \
                 older copy is not recognised"
            }
            false => "If its cache is lost, start once with --discard-cache",
        };
        self.damage(format!(
            "The backend's record of its cache is damaged ({error}), and a start is refused. {advice}."
        ));
    }

    /// True if anything is damaged. A mismatch of the pair is not damage.
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Damage)
    }

    /// Adds that the flash and its backend are not a pair.
    pub fn mismatch(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Mismatch, text });
    }

    fn note(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Note, text });
    }

    fn damage(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Damage, text });
    }

    /// Adds at most [`TOLD_MAX`] findings, and the number of the others.
    fn damages(&mut self, all: Vec<String>) {
        let left = all.len().saturating_sub(TOLD_MAX);
        all.into_iter().take(TOLD_MAX).for_each(|text| self.damage(text));
        if left > 0 {
            self.damage(format!("{left} more like this."));
        }
    }
}

/// The name of a state.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::InUse => "in-use",
        State::Clean => "clean",
        State::Detached => "detached",
    }
}

/// Checks a log.
pub(crate) fn check_log_layout(
    flash: &dyn Disk,
    superblock: &Superblock,
    data: bool,
    report: &mut Report,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let units = walk_units(flash, superblock, progress)?;
    check_log(superblock.geometry, &units, report);
    match recover_log(flash, superblock, SCAN_THREADS, &|_, _| ()) {
        Ok(recovered) => check_recovered(flash, superblock, &recovered, data, report, progress)?,
        Err(FlashError::Io(error)) => return Err(error),
        Err(error) => report
            .damage(format!("The cache cannot be opened: {error}. Dirty blocks are lost; the backend has the rest.")),
    }
    Ok(())
}

/// Total number of bytes that [`check`] reports to its progress function.
pub fn total_bytes(flash: &dyn Disk, data: bool) -> u64 {
    flash.size() * if data { 2 } else { 1 }
}

/// True if both copies of the superblock are valid.
fn check_copies(flash: &dyn Disk, report: &mut Report) -> io::Result<bool> {
    let copies = read_copies(flash)?;
    let errors: Vec<(usize, PageError)> =
        copies.iter().enumerate().filter_map(|(copy, found)| Some((copy, *found.as_ref().err()?))).collect();
    if let [(copy, error)] = errors[..]
        && copies.len() > 1
    {
        report.damage(format!(
            "Copy {copy} of the superblock is damaged: {error}. The other copy is valid and is used; the next start \
             repairs this one."
        ));
    }
    Ok(errors.is_empty())
}

fn describe(superblock: &Superblock, is_whole: bool, backend: Option<(&Identity, u64)>, report: &mut Report) {
    let geometry = superblock.geometry;
    let erase_unit_bytes = u64::from(geometry.unit_pages) * BLOCK_BYTES as u64;
    let description = CacheDescription {
        cache: Uuid::from_bytes(superblock.cache).to_string(),
        backend: Uuid::from_bytes(superblock.backend).to_string(),
        state: state_name(superblock.state),
        layout: superblock.layout.name(),
        volume_bytes: superblock.volume_bytes,
        flash_bytes: u64::from(geometry.pages()) * BLOCK_BYTES as u64,
        erase_unit_bytes,
    };
    if let Some((identity, bytes)) = backend {
        if identity.id != superblock.backend {
            report.mismatch(format!(
                "The cache belongs to backend {}, and this backend is {} ({}): they do not match.",
                description.backend,
                Uuid::from_bytes(identity.id),
                identity.description
            ));
        }
        if identity.id == superblock.backend && bytes < superblock.volume_bytes {
            report.damage(format!(
                "The backend has {bytes} bytes, the volume {}: the backend was truncated.",
                superblock.volume_bytes
            ));
        }
    }
    match superblock.state {
        State::Detached => {
            report.note("The cache is detached: the backend has all data, and no start uses this cache.".to_owned())
        }
        State::InUse if is_whole => {
            report.note("The cache was not shut down cleanly: its server was killed, or lost power.".to_owned());
        }
        State::InUse => report.note(
            "The cache was not shut down cleanly, or the damaged copy of the superblock has the record of it. A start \
             decides by the \
             backend's record."
                .to_owned(),
        ),
        State::Clean => {}
    }
    report.description = Some(description);
}

/// The metadata of an erase unit.
struct UnitWalk {
    unit: u32,
    /// The header of the first page, or of the footer if that page is unreadable.
    header: Header,
    /// Why the first page is unreadable.
    first: Option<PageError>,
    segments: Vec<Header>,
    records: Vec<Record>,
    /// The page after the last contiguous segment.
    end: u32,
    /// The end of the segments and the records according to the footer; `None` without a valid footer.
    footer: Option<(u32, Vec<Record>)>,
}

fn read_pages(flash: &dyn Disk, geometry: Geometry, unit: u32, page: u32, memory: &mut Memory) -> io::Result<()> {
    flash.read_at(memory.bytes_mut(), u64::from(geometry.slot(unit, page)) * BLOCK_BYTES as u64)
}

/// Reads the metadata of all units that this cache has written, by sequence.
fn walk_units(
    flash: &dyn Disk,
    superblock: &Superblock,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<BTreeMap<u64, UnitWalk>> {
    let geometry = superblock.geometry;
    let mut units = BTreeMap::new();
    for unit in 1..geometry.units {
        if let Some(walk) = walk_unit(flash, superblock, unit)? {
            units.insert(walk.header.sequence, walk);
        }
        progress(u64::from(geometry.unit_pages) * BLOCK_BYTES as u64);
    }
    Ok(units)
}

fn walk_unit(flash: &dyn Disk, superblock: &Superblock, unit: u32) -> io::Result<Option<UnitWalk>> {
    let (geometry, cache) = (superblock.geometry, cache_tag(superblock));
    let belongs = |header: &Header| belongs(geometry, cache, unit, header);
    let mut footer = Memory::new(geometry.footer_pages() as usize);
    read_pages(flash, geometry, unit, geometry.segments_end(), &mut footer)?;
    let footer = decode_footer(footer.bytes_mut()).filter(|(header, _)| belongs(header));
    let mut page = Memory::new(1);
    read_pages(flash, geometry, unit, 0, &mut page)?;
    let first = decode_metadata(Role::Segment, page.page(0)).and_then(|first| {
        if belongs(&first.header) && first.header.page == 0 { Ok(first.header) } else { Err(PageError::Magic) }
    });
    let header = match (&first, &footer) {
        (Ok(header), _) => *header,
        (Err(_), Some((header, _))) => *header,
        (Err(_), None) => return Ok(None),
    };
    let footer = footer
        .filter(|(footer, _)| footer.sequence == header.sequence && footer.epoch >= header.epoch)
        .map(|(footer, records)| (footer.data_pages, records));
    let mut walk =
        UnitWalk { unit, header, first: first.err(), segments: Vec::new(), records: Vec::new(), end: 0, footer };
    let skips = match superblock.in_order {
        true => resumed(geometry, cache, unit, header.sequence, &FlashUnits::of(flash, superblock))?,
        false => Default::default(),
    };
    while walk.end < geometry.segments_end() {
        let at = skips.get(&walk.end).copied().unwrap_or(walk.end);
        read_pages(flash, geometry, unit, at, &mut page)?;
        let Ok(MetadataPage { header, records }) = decode_metadata(Role::Segment, page.page(0)) else { break };
        let next = u64::from(at) + 1 + u64::from(header.data_pages);
        let epoch = walk.segments.last().map_or(walk.header.epoch, |last: &Header| last.epoch);
        let continues = belongs(&header) && goes_on(&header, &walk.header, epoch, at);
        if !continues || next > u64::from(geometry.segments_end()) {
            break;
        }
        walk.end = next as u32;
        walk.segments.push(header);
        walk.records.extend(records);
    }
    Ok(Some(walk))
}

/// Checks that the log is contiguous and each of its units is valid.
fn check_log(geometry: Geometry, units: &BTreeMap<u64, UnitWalk>, report: &mut Report) {
    let counts = &mut report.counts;
    // The newest unit may have been begun but never flushed. Then the one before it is the newest that counts. A footer
    // replaces segments after a damaged first page.
    let head = units.values().rev().find(|walk| !walk.segments.is_empty() || walk.footer.is_some());
    let Some(newest) = head else {
        counts.unused_units = geometry.log_units().into();
        return;
    };
    let head = newest.header.sequence;
    let sequences = newest.segments.last().map_or(newest.header.tail, |last| last.tail)..=head;
    counts.log_units = head + 1 - sequences.start();
    counts.unused_units = u64::from(geometry.log_units()).saturating_sub(counts.log_units);
    let mut damage = Vec::new();
    let mut next_previous_end = None;
    for sequence in sequences.rev() {
        let Some(walk) = units.get(&sequence) else {
            damage.push(format!(
                "Erase unit {} should hold part {sequence} of the log and does not: neither its first page nor its \
                 footer \
                 can be read.",
                geometry.unit_of(sequence)
            ));
            next_previous_end = None;
            continue;
        };
        let is_head = sequence == head;
        check_unit(geometry, walk, is_head, next_previous_end, &mut damage);
        next_previous_end = Some(walk.header.previous_end);
        let all =
            walk.footer.as_ref().filter(|(end, _)| *end >= walk.end).map_or(&walk.records, |(_, records)| records);
        for record in all {
            let count = match record.kind {
                Kind::Void => &mut counts.void_records,
                Kind::Clean => &mut counts.clean_records,
                Kind::Dirty => &mut counts.dirty_records,
                Kind::Forget => &mut counts.forget_records,
                Kind::Destaged | Kind::UnitDestaged => &mut counts.destaged_records,
                Kind::Lost => &mut counts.lost_records,
                Kind::Unsure | Kind::Sure | Kind::ForgetRegion => &mut counts.region_records,
                Kind::EpochEnd | Kind::EpochsDone | Kind::OrderBroken => &mut counts.epoch_records,
            };
            *count += 1;
        }
    }
    report.damages(damage);
}

/// Checks a unit. Each unit except the head was flushed before the next one began, which records the end of its
/// segments.
fn check_unit(geometry: Geometry, walk: &UnitWalk, is_head: bool, end: Option<u32>, damage: &mut Vec<String>) {
    let UnitWalk { unit, header, .. } = walk;
    if let Some(error) = walk.first {
        damage.push(format!(
            "Page {}, the first of erase unit {unit} and the header of a segment, is damaged: {error}. The unit's \
             footer repeats the \
             header, so nothing is lost.",
            geometry.slot(*unit, 0)
        ));
        return;
    }
    if let Some((footer_end, records)) = &walk.footer
        && (*footer_end, records) != (walk.end, &walk.records)
        // The footer of the head covers the segments up to its last idle time.
        && !(is_head && *footer_end < walk.end && walk.records.starts_with(records))
    {
        damage.push(format!(
            "Erase unit {unit}, part {} of the log: its segments can be read up to page {} with {} records, its footer \
             says \
             {footer_end} and {}.",
            header.sequence,
            walk.end,
            walk.records.len(),
            records.len()
        ));
    } else if let Some(end) = end
        && walk.end != end
        && !is_head
    {
        damage.push(format!(
            "Erase unit {unit}, part {} of the log: its segments can be read up to page {}, and were written up to \
             page {end}.",
            header.sequence, walk.end
        ));
    }
}

/// Checks the cache as a start would recover it.
fn check_recovered(
    flash: &dyn Disk,
    superblock: &Superblock,
    recovered: &Recovered,
    data: bool,
    report: &mut Report,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let log = &recovered.log;
    report.opens = true;
    report.counts.cached_blocks = log.len() as u64;
    // A detached cache was written back completely.
    report.counts.dirty_blocks = if superblock.state == State::Detached { 0 } else { log.dirty_blocks() };
    report.counts.lost_blocks = recovered.lost.len() as u64;
    if recovered.torn {
        report.note("The end of the log was torn by a crash. It was never flushed, and a start ignores it.".to_owned());
    }
    if !recovered.lost.is_empty() {
        let mut lost: Vec<u32> = recovered.lost.keys().copied().collect();
        lost.sort_unstable();
        let named: Vec<String> = lost.iter().take(TOLD_MAX).map(u32::to_string).collect();
        let more = if lost.len() > TOLD_MAX { ", ..." } else { "" };
        report.damage(format!(
            "The only copy of {} blocks was lost earlier: {}{more}. Reads of them fail until new data is written \
             there.",
            lost.len(),
            named.join(", ")
        ));
    }
    if superblock.state != State::Detached && log.free_units() == 0 {
        report.damage("The log has no free erase unit, so the cache cannot be started; it can be detached.".to_owned());
    }
    if let Some(zoned) = flash.zoned()
        && superblock.state == State::Clean
    {
        report.damages(check_write_pointers(zoned, recovered));
    }
    if data && superblock.state != State::Detached {
        check_data(flash, recovered, report, progress)?;
    }
    if superblock.state != State::Detached {
        report.note(format!(
            "A start reads {} erase units and finds {} blocks, {} of them newer than the backend's.",
            recovered.units,
            log.len(),
            log.dirty_blocks()
        ));
    }
    Ok(())
}

/// Compares the device's write pointers with the log after a clean shutdown. That of the newest unit must be at the end
/// of the log. Those of other units of the log must be at the end of their zones, and all others at the start.
fn check_write_pointers(zoned: &ZonedFlash, recovered: &Recovered) -> Vec<String> {
    let (log, geometry) = (&recovered.log, zoned.geometry());
    let expected: HashMap<u32, u32> = log
        .sequences()
        .map(|sequence| {
            let page = if log.is_head(sequence) { recovered.end.page } else { geometry.unit_pages };
            (log.geometry().unit_of(sequence), page)
        })
        .collect();
    let wrong = |unit: u32| {
        let (found, expected) = (zoned.written_pages(unit), expected.get(&unit).copied().unwrap_or(0));
        // A full unit has its footer after the end of the log.
        let has_footer =
            (geometry.segments_end()..=geometry.unit_pages).contains(&found) && expected + 1 >= geometry.segments_end();
        (found != expected && !has_footer).then(|| {
            format!(
                "Erase unit {unit}: the device's write pointer is at page {found}, the log's end there is page \
                {expected}."
            )
        })
    };
    (1..log.geometry().units).filter_map(wrong).collect()
}

fn check_data(
    flash: &dyn Disk,
    recovered: &Recovered,
    report: &mut Report,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let mut page = Memory::new(1);
    let mut damage = Vec::new();
    for block in recovered.log.blocks() {
        let slot = recovered.log.find(block).expect("a block of the log has a copy");
        let read = flash.read_at(page.bytes_mut(), u64::from(slot) * BLOCK_BYTES as u64);
        let wrong = match read {
            Ok(()) if checksum::crc32c(page.page(0)) == recovered.checksums[slot as usize] => None,
            Ok(()) => Some("has a wrong checksum".to_owned()),
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        report.counts.verified_blocks += 1;
        progress(BLOCK_BYTES as u64);
        let Some(wrong) = wrong else { continue };
        damage.push(if recovered.log.is_dirty(slot) {
            format!(
                "Block {block}, at page {slot}, {wrong}. It was the only copy: reads fail until new data is written \
                 there."
            )
        } else {
            format!("Block {block}, at page {slot}, {wrong}. It is read from the backend, which has it too.")
        });
    }
    report.damages(damage);
    Ok(())
}

#[cfg(test)]
mod tests;
