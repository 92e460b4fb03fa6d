//! Examining a cache device offline: what it holds, what is damaged, and what a start would make of it. It never writes.
//!
//! The format is that of `flashwise_core::format`; whether a log can be opened is for `flashwise_core::recovery` to say, and this
//! says where and why not.

mod buckets;

use std::collections::{BTreeMap, HashMap};
use std::io;

use flashwise_core::checksum;
use flashwise_core::format::{
    BLOCK_BYTES, Geometry, Header, Kind, Layout, MetadataPage, PageError, Record, Role, State, Superblock,
    decode_metadata,
};
use flashwise_core::recovery::{Recovered, belongs, decode_footer, goes_on, resumed};
use serde::Serialize;
use uuid::Uuid;

use crate::attach::Refusal;
use crate::disk::Disk;
use crate::disk::identity::Identity;
use crate::disk::zoned::ZonedFlash;
use crate::flash::{FlashError, FlashUnits, SCAN_THREADS, cache_tag, read_copies, read_superblock, recover_log};
use crate::memory::Memory;
use buckets::check_buckets;

/// Findings of one kind that are told one by one; of the rest, only the number is.
const TOLD_MAX: usize = 20;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it may be.
    Note,
    /// Of a flash and a backend that are no pair: nothing of either is damaged.
    Mismatch,
    /// As it must not be.
    Damage,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How grave it is.
    pub severity: Severity,
    /// What it is and what it means, in a sentence.
    pub text: String,
}

/// What the superblock says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheDescription {
    /// The cache's UUID.
    pub cache: String,
    /// The UUID of the backend that it belongs to.
    pub backend: String,
    /// `in-use`, `clean` or `detached`.
    pub state: &'static str,
    /// How data lies on the flash: `log` or `wlfc`.
    pub layout: &'static str,
    /// Size of the volume in bytes.
    pub volume_bytes: u64,
    /// Size of the flash in bytes.
    pub flash_bytes: u64,
    /// Size of an erase unit in bytes.
    pub erase_unit_bytes: u64,
}

/// Blocks and records that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Erase units of the log, or buckets, that count.
    pub log_units: u64,
    /// Erase units or buckets that were never written by this cache, or that hold what no longer counts.
    pub unused_units: u64,
    /// Records of data that the backend has too; blocks in read copies of buckets.
    pub clean_records: u64,
    /// Records of data that is newer than the backend's; blocks in logs of buckets, older ones of a block too.
    pub dirty_records: u64,
    /// Records that earlier ones of a block no longer count; of writes that went past buckets.
    pub forget_records: u64,
    /// Records that a block, or all that a unit had, was written back.
    pub destaged_records: u64,
    /// Records that the only copy of a block was lost.
    pub lost_records: u64,
    /// Records that clean copies of a region do not count, or count again.
    pub region_records: u64,
    /// Records of data that nothing refers to.
    pub void_records: u64,
    /// Blocks with a copy.
    pub cached_blocks: u64,
    /// Blocks whose copy is newer than the backend's.
    pub dirty_blocks: u64,
    /// Blocks whose only copy was lost.
    pub lost_blocks: u64,
    /// Blocks whose data was compared with its checksum.
    pub verified_blocks: u64,
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What the superblock says, if it could be read.
    pub description: Option<CacheDescription>,
    /// True if a start would open it. What it would find of blocks is counted only then.
    pub opens: bool,
    /// What was counted.
    pub counts: Counts,
    /// What was found.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if there is no damage, and nothing that is no pair.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Adds what a start would have against the flash and its backend as a pair.
    pub fn add_refusal(&mut self, refusal: &Refusal) {
        let text = format!("A start with this backend would be refused: {refusal}.");
        // Each is whole, and belongs to another.
        if matches!(refusal, Refusal::OtherCache { .. }) { self.mismatch(text) } else { self.damage(text) }
    }

    /// Adds that the backend's record of its cache is damaged. `is_paired`: true if the flash names the backend.
    pub fn add_damaged_record(&mut self, error: &io::Error, is_paired: bool) {
        let advice = match is_paired {
            true => {
                "'flashwise detach' with this flash and backend writes back the dirty blocks and a new record; give the flash that was used last, as an \
                 older copy is not recognised"
            }
            false => "If its cache is lost, start once with --discard-cache",
        };
        self.damage(format!(
            "The backend's record of its cache is damaged ({error}), and a start is refused. {advice}."
        ));
    }

    /// True if a part is damaged, and not only no part of this pair.
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Damage)
    }

    /// Adds that the flash and its backend are no pair.
    pub fn mismatch(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Mismatch, text });
    }

    fn note(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Note, text });
    }

    fn damage(&mut self, text: String) {
        self.findings.push(Finding { severity: Severity::Damage, text });
    }

    /// Tells of `all`, but of no more than [`TOLD_MAX`] one by one.
    fn damages(&mut self, all: Vec<String>) {
        let left = all.len().saturating_sub(TOLD_MAX);
        all.into_iter().take(TOLD_MAX).for_each(|text| self.damage(text));
        if left > 0 {
            self.damage(format!("{left} more like the last."));
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

/// Examines a cache. With a backend, its identity and size are compared; with `data`, all data of the cache with its checksums.
/// `progress` is told of bytes that were dealt with, of [`total_bytes`]. Fails only if the device cannot be read at all.
pub fn check(
    flash: &dyn Disk,
    backend: Option<(&Identity, u64)>,
    data: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Report> {
    let mut report = Report::default();
    if flash.zoned().is_some() {
        flash.notes().iter().for_each(|note| report.note(note.clone()));
    }
    let is_whole = check_copies(flash, &mut report)?;
    let superblock = match read_superblock(flash) {
        Ok(superblock) => superblock,
        Err(FlashError::Io(error)) => return Err(error),
        Err(error) => {
            report.damage(format!("The cache cannot be opened: {error}."));
            return Ok(report);
        }
    };
    describe(&superblock, is_whole, backend, &mut report);
    if superblock.layout == Layout::Wlfc {
        check_buckets(flash, &superblock, data, &mut report, progress)?;
        return Ok(report);
    }
    let units = walk_units(flash, &superblock, progress)?;
    check_log(superblock.geometry, &units, &mut report);
    match recover_log(flash, &superblock, SCAN_THREADS, &|_, _| ()) {
        Ok(recovered) => check_recovered(flash, &superblock, &recovered, data, &mut report, progress)?,
        Err(FlashError::Io(error)) => return Err(error),
        Err(error) => report.damage(format!(
            "The cache cannot be opened: {error}. Blocks that were only there are lost; the backend has the rest."
        )),
    }
    Ok(report)
}

/// Bytes that [`check`] tells its progress of.
pub fn total_bytes(flash: &dyn Disk, data: bool) -> u64 {
    flash.size() * if data { 2 } else { 1 }
}

/// True if both copies of the superblock are whole.
fn check_copies(flash: &dyn Disk, report: &mut Report) -> io::Result<bool> {
    let copies = read_copies(flash)?;
    let errors: Vec<(usize, PageError)> =
        copies.iter().enumerate().filter_map(|(copy, found)| Some((copy, *found.as_ref().err()?))).collect();
    if let [(copy, error)] = errors[..]
        && copies.len() > 1
    {
        report.damage(format!(
            "Copy {copy} of the superblock is damaged: {error}. The other copy is whole and is used; the next start writes \
             this one anew."
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
                "The cache belongs to backend {}, and this backend is {} ({}): they are no pair.",
                description.backend,
                Uuid::from_bytes(identity.id),
                identity.description
            ));
        }
        if identity.id == superblock.backend && bytes < superblock.volume_bytes {
            report.damage(format!(
                "The backend has {bytes} bytes, the volume {}: the backend was cut short.",
                superblock.volume_bytes
            ));
        }
    }
    match superblock.state {
        State::Detached => report.note(
            "The cache is detached: everything was written back, the backend alone is whole, and a start makes an empty \
             cache of it."
                .to_owned(),
        ),
        State::InUse if is_whole => {
            report.note("The cache was not closed in order: its server was killed, or lost power.".to_owned());
        }
        State::InUse => report.note(
            "The cache was not closed in order, unless it is the damaged copy of the superblock that says so: a start knows it from the \
             backend's record."
                .to_owned(),
        ),
        State::Clean => {}
    }
    report.description = Some(description);
}

/// What the metadata of an erase unit says.
struct UnitWalk {
    unit: u32,
    /// Of the first page, or of the footer where that cannot be read.
    header: Header,
    /// Why the first page cannot be read.
    first: Option<PageError>,
    segments: Vec<Header>,
    records: Vec<Record>,
    /// The page after the last segment that continues the first.
    end: u32,
    /// Where the footer says that segments end, and its records; none if there is no footer that belongs to the unit.
    footer: Option<(u32, Vec<Record>)>,
}

fn read_pages(flash: &dyn Disk, geometry: Geometry, unit: u32, page: u32, memory: &mut Memory) -> io::Result<()> {
    flash.read_at(memory.bytes_mut(), u64::from(geometry.slot(unit, page)) * BLOCK_BYTES as u64)
}

/// The metadata of all units that this cache has written, by sequence.
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

/// True if the log is continuous, and each of its units as it should be.
fn check_log(geometry: Geometry, units: &BTreeMap<u64, UnitWalk>, report: &mut Report) {
    let counts = &mut report.counts;
    // The newest unit may have been begun and never flushed; then the one before it is the newest that counts. A footer says what segments
    // say behind a first page that is damaged.
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
                "Erase unit {} should hold part {sequence} of the log and does not: neither its first page nor its footer \
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
            };
            *count += 1;
        }
    }
    report.damages(damage);
}

/// A unit behind the head was flushed before the next was begun, which says where its segments end.
fn check_unit(geometry: Geometry, walk: &UnitWalk, is_head: bool, end: Option<u32>, damage: &mut Vec<String>) {
    let UnitWalk { unit, header, .. } = walk;
    if let Some(error) = walk.first {
        damage.push(format!(
            "Page {}, the first of erase unit {unit} and the header of a segment, is damaged: {error}. The unit's footer repeats the \
             header, so nothing is lost.",
            geometry.slot(*unit, 0)
        ));
        return;
    }
    if let Some((footer_end, records)) = &walk.footer
        && (*footer_end, records) != (walk.end, &walk.records)
        // The footer of a unit that is being filled says how far it was when it was last at rest.
        && !(is_head && *footer_end < walk.end && walk.records.starts_with(records))
    {
        damage.push(format!(
            "Erase unit {unit}, part {} of the log: its segments can be read up to page {} with {} records, its footer says \
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
            "Erase unit {unit}, part {} of the log: its segments can be read up to page {}, and were written up to page {end}.",
            header.sequence, walk.end
        ));
    }
}

/// What a start would make of the cache.
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
    // What a detached cache has was written back, whatever it says.
    report.counts.dirty_blocks = if superblock.state == State::Detached { 0 } else { log.dirty_blocks() };
    report.counts.lost_blocks = recovered.lost.len() as u64;
    if recovered.torn {
        report.note(
            "The end of the log was torn by a crash. It was never flushed, and a start leaves it out.".to_owned(),
        );
    }
    if !recovered.lost.is_empty() {
        let mut lost: Vec<u32> = recovered.lost.keys().copied().collect();
        lost.sort_unstable();
        let named: Vec<String> = lost.iter().take(TOLD_MAX).map(u32::to_string).collect();
        let more = if lost.len() > TOLD_MAX { ", ..." } else { "" };
        report.damage(format!(
            "The only copy of {} blocks was lost before: {}{more}. Reading them is an error until they are written anew.",
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
            "A start reads {} erase units and finds {} blocks, of which {} are newer than the backend's.",
            recovered.units,
            log.len(),
            log.dirty_blocks()
        ));
    }
    Ok(())
}

/// After an orderly end, the device's write pointers are where the log says: the newest unit's at the end of the log, those of other
/// units of the log at the end of their zones, and all others at the start.
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
        // The footer of a full unit follows the end of the log.
        let has_footer =
            (geometry.segments_end()..=geometry.unit_pages).contains(&found) && expected + 1 >= geometry.segments_end();
        (found != expected && !has_footer).then(|| {
            format!("Erase unit {unit}: the device's write pointer is at page {found}, the log's end there is page {expected}.")
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
            format!("Block {block}, at page {slot}, {wrong}. It was the only copy: reading it is an error until it is written anew.")
        } else {
            format!("Block {block}, at page {slot}, {wrong}. It is read from the backend, which has it too.")
        });
    }
    report.damages(damage);
    Ok(())
}

#[cfg(test)]
mod tests;
