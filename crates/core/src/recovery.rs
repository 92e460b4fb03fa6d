//! Recovery: rebuilds the log from the contents of a flash device.
//!
//! Source: our own. The full scan of the units' metadata, and the use of epochs to find the newest copy, follow WLFC
//! (section IV.D).
//!
//! The newest unit has the highest sequence number in its header. Everything before it was flushed before it was
//! started, so its metadata is trusted. The newest unit is read segment by segment. Each segment records the page up to
//! which the unit was durable when it was written. Data before the highest such page is trusted too; damage there is an
//! error. Segments behind that page are checked with their data, up to the first incomplete one: that and its
//! successors were never flushed.
//!
//! The first page of each unit is enough to order them. Their footers are then read from the newest to the oldest, and
//! dropped once applied.
//!
//! A footer that declares everything that it repeats durable is a witness. It was written after a flush, while the
//! server was idle or shutting down, and replaces the headers before it. The superblock also records a place up to
//! which the log was durable.
//!
//! The log continues right after the last whole segment, in a new epoch. Within a unit epochs never decrease, so
//! leftovers of an earlier run further behind are not mistaken for a part of the log. A leftover at the very end could
//! become whole by chance, if the same data is written there again. So it is wiped before anything is written.
//!
//! Nothing can be wiped in a zoned unit. There the log continues behind the leftovers, and its next segment records how
//! many pages it [skips](Header::skipped).

mod epochs;
mod pages;
mod rebuild;
mod regions;

use std::collections::HashMap;

use crate::checksum;
use crate::format::{
    BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, Page, PageError, Place, Record, Role, Superblock,
    decode_metadata,
};
use crate::layout::containers::{Head, Log};

use self::pages::{Pages, Traces};
use self::rebuild::Rebuild;

/// Maximum valid sequence number: more units than can ever be written.
const SEQUENCE_MAX: u64 = 1 << 62;

/// True if a metadata page belongs to this cache and unit, and is valid.
pub fn belongs(geometry: Geometry, cache: u64, unit: u32, header: &Header) -> bool {
    header.cache == cache
        && (1..SEQUENCE_MAX).contains(&header.sequence)
        && geometry.unit_of(header.sequence) == unit
        && (1..=header.sequence).contains(&header.tail)
        && header.sequence - header.tail < u64::from(geometry.log_units())
        && header.epoch < u64::MAX
}

/// True if the records with data refer to pages from `first` to before `end` of `unit`, in order.
pub(crate) fn are_in_order(geometry: Geometry, unit: u32, first: u32, end: u32, records: &[Record]) -> bool {
    let mut free = geometry.slot(unit, first);
    let end = geometry.slot(unit, end);
    records.iter().all(|record| {
        let has_copy = matches!(record.kind, Kind::Clean | Kind::Dirty);
        let right = !has_copy || (free..end).contains(&record.slot);
        if has_copy {
            free = record.slot.saturating_add(1);
        }
        right && record.block != u32::MAX
    })
}

/// A footer: its header and records.
pub type Footer = (Header, Vec<Record>);

/// Returns the footer of a unit, if it is whole and belongs to the unit.
pub fn footer_of(geometry: Geometry, cache: u64, unit: u32, bytes: &[u8]) -> Option<Footer> {
    decode_footer(bytes).filter(|(header, records)| {
        belongs(geometry, cache, unit, header)
            && header.page == geometry.segments_end()
            && header.data_pages <= geometry.segments_end()
            && are_in_order(geometry, unit, 1, header.data_pages, records)
    })
}

/// Returns the header of a unit's first page.
fn first_header(geometry: Geometry, cache: u64, unit: u32, first: &Page) -> Result<Header, PageError> {
    match decode_metadata(Role::Segment, first)?.header {
        header if belongs(geometry, cache, unit, &header) && header.page == 0 => Ok(header),
        _ => Err(PageError::Magic),
    }
}

/// A summary of a unit's metadata.
#[derive(Clone, Copy, Debug)]
pub struct UnitScan {
    unit: u32,
    /// The damage of the first page, if any.
    damage: Option<PageError>,
    /// Sequence number and epoch, if present. The footer replaces an unreadable first page.
    begun: Option<(u64, u64)>,
}

impl UnitScan {
    /// Decodes a unit's first page and its footer, [`Geometry::footer_pages`] pages.
    pub fn new(geometry: Geometry, cache: u64, unit: u32, first: &Page, footer: &[u8]) -> UnitScan {
        let first = first_header(geometry, cache, unit, first);
        let stand_in = || Some(footer_of(geometry, cache, unit, footer)?.0);
        let header = first.ok().or_else(stand_in);
        UnitScan { unit, damage: first.err(), begun: header.map(|header| (header.sequence, header.epoch)) }
    }

    /// True if the unit was ever started, as far as known. Recovery needs no scan of other units.
    pub fn was_begun(&self) -> bool {
        self.begun.is_some() || self.damage != Some(PageError::Magic)
    }

    fn sequence(&self) -> u64 {
        self.begun.map_or(0, |(sequence, _)| sequence)
    }

    /// True if a footer belongs to the unit's first page.
    fn agrees(&self, (footer, _): &Footer) -> bool {
        self.begun.is_some_and(|(sequence, epoch)| footer.sequence == sequence && footer.epoch >= epoch)
    }
}

/// A unit that is read entirely.
struct WholeUnit<'a, U> {
    geometry: Geometry,
    cache: u64,
    unit: u32,
    pages: Pages<'a, U>,
    /// The header of the first page, or of the footer that replaces it.
    header: Option<Header>,
    /// The footer, if it belongs to the first page.
    footer: Option<Footer>,
    traces: Traces,
}

impl<'a, U: Units> WholeUnit<'a, U> {
    /// Searches the unit for metadata of `sequence`.
    fn new(geometry: Geometry, cache: u64, unit: u32, sequence: u64, units: &'a U) -> Result<Self, U::Error> {
        let mut pages = Pages::new(geometry, units, unit);
        let first = first_header(geometry, cache, unit, pages.page(0)?).ok();
        let traces = Traces::find(geometry, cache, sequence, &mut pages)?;
        let footer = footer_of(geometry, cache, unit, &pages.read(geometry.segments_end()..geometry.unit_pages)?);
        let header = first.or(footer.as_ref().map(|(header, _)| *header));
        let agrees = |(footer, _): &Footer| {
            header.is_some_and(|header| footer.sequence == header.sequence && footer.epoch >= header.epoch)
        };
        Ok(WholeUnit { geometry, cache, unit, pages, header, footer: footer.filter(agrees), traces })
    }

    /// True if the data of all records matches their checksums.
    fn is_right(&mut self, records: &[Record]) -> Result<bool, U::Error> {
        for record in records.iter().filter(|record| matches!(record.kind, Kind::Clean | Kind::Dirty)) {
            if checksum::crc32c(self.pages.page(record.slot % self.geometry.unit_pages)?) != record.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the footer, if everything that it repeats was durable when it was written.
    fn witness(&self) -> Option<&Footer> {
        self.footer.as_ref().filter(|(footer, _)| is_witness(footer))
    }
}

/// Returns where segments of a unit continue after skipped pages, by the page where their predecessors end.
pub fn resumed<U: Units>(
    geometry: Geometry,
    cache: u64,
    unit: u32,
    sequence: u64,
    units: &U,
) -> Result<HashMap<u32, u32>, U::Error> {
    Ok(Traces::find(geometry, cache, sequence, &mut Pages::new(geometry, units, unit))?.resumed)
}

/// True if everything that a footer repeats was durable when it was written.
pub fn is_witness(footer: &Header) -> bool {
    footer.data_pages > 0 && footer.durable_end == footer.data_pages
}

/// True if a segment at `page` continues the unit that `first` begins, behind a segment of `epoch`. A restarted server
/// continues in the same unit, in a later epoch.
pub fn goes_on(header: &Header, first: &Header, epoch: u64, page: u32) -> bool {
    header.sequence == first.sequence
        && header.epoch >= epoch
        && header.page == page
        && header.previous_end == first.previous_end
}

/// Returns the header of a unit's footer and its records, if all its pages are whole.
pub fn decode_footer(bytes: &[u8]) -> Option<(Header, Vec<Record>)> {
    let pages_max = bytes.len() / BLOCK_BYTES;
    let decode = |at: usize| decode_metadata(Role::Footer, page_of(bytes, at as u32)).ok();
    let MetadataPage { header: first, mut records } = decode(0)?;
    let pages = if first.footer_pages == 0 { pages_max } else { first.footer_pages as usize };
    if pages > pages_max {
        return None;
    }
    for at in 1..pages {
        let MetadataPage { header, records: more } = decode(at)?;
        if header != (Header { page: first.page + at as u32, ..first }) {
            return None;
        }
        records.extend(more);
    }
    Some((first, records))
}

/// A reason why a cache cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecoveryError<E> {
    #[error("the flash device cannot be read: {0}")]
    Read(E),
    #[error(
        "erase unit {unit} should hold part {sequence} of the log and does not ({what}). \
         Its blocks are unknown, so the backend may lack their newest data"
    )]
    UnitMissing { unit: u32, sequence: u64, what: String },
    #[error(
        "erase unit {unit} was durable up to page {durable_end}, and page {page} of it is damaged. \
         The blocks after it are unknown, so the backend may lack their newest data"
    )]
    SegmentDamaged { unit: u32, page: u32, durable_end: u32 },
}

/// The result of recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The log, ready to continue at its end.
    pub log: Log,
    /// Blocks whose only copy was lost, with the sequence number of the unit that records it.
    pub lost: HashMap<u32, u64>,
    /// Dropped clean copies, whose blocks may have been overwritten on the backend just before a crash.
    pub dropped_blocks: u64,
    /// Checksums of the data in each occupied slot, by slot.
    pub checksums: Vec<u32>,
    /// The epoch of later writes.
    pub epoch: u64,
    /// The end of the log.
    pub end: Place,
    /// Units that hold part of the log.
    pub units: u32,
    /// True if incomplete segments at the end of the log, which were never flushed, were dropped.
    pub torn: bool,
    /// The records of the unit in which the log continues.
    pub head_records: Vec<Record>,
    /// Pages of the device to wipe durably before anything is written.
    pub leftovers: Vec<u32>,
}

impl Recovered {
    /// Returns the contents of a new cache. `in_order` is as in [`Superblock::in_order`].
    pub fn empty(geometry: Geometry, in_order: bool) -> Recovered {
        let mut log = Log::new(geometry);
        if in_order {
            log.write_in_order(0);
        }
        Recovered {
            log,
            lost: HashMap::new(),
            dropped_blocks: 0,
            checksums: vec![0; geometry.pages() as usize],
            epoch: 1,
            end: Place::default(),
            units: 0,
            torn: false,
            head_records: Vec::new(),
            leftovers: Vec::new(),
        }
    }
}

/// Knowledge about a log besides its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// As [`Superblock::durable`].
    pub durable: Place,
    /// As [`Superblock::clean_from`].
    pub clean_from: Place,
    /// As [`Superblock::in_order`].
    pub in_order: bool,
    /// As [`Superblock::epochs`].
    pub epochs: Option<Place>,
}

impl Known {
    /// Returns the knowledge of a superblock.
    pub fn of(superblock: &Superblock) -> Known {
        let cache = u64::from_le_bytes(superblock.cache[..8].try_into().expect("8 of 16 bytes"));
        let Superblock { durable, clean_from, in_order, epochs, .. } = *superblock;
        Known { cache, durable, clean_from, in_order, epochs }
    }
}

/// Read access to the units of a log.
pub trait Units {
    /// The error of a failed read.
    type Error;

    /// Fills `bytes` with pages of a unit, from `page` on.
    fn read_pages(&self, unit: u32, page: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Returns the written pages of a zoned unit; the last one may be partial.
    fn written_pages(&self, unit: u32) -> Result<u32, Self::Error>;

    /// Reads the footers of `units` and passes them to `each`, as [`footer_of`] returns them and in this order, until
    /// it fails.
    fn read_footers(
        &self,
        units: &[u32],
        each: &mut dyn FnMut(Option<Footer>) -> Result<(), RecoveryError<Self::Error>>,
    ) -> Result<(), RecoveryError<Self::Error>>;
}

/// Rebuilds the log from its units. `scans` are those of all units that [were started](UnitScan::was_begun).
pub fn recover<U: Units>(
    geometry: Geometry,
    known: Known,
    mut scans: Vec<UnitScan>,
    units: &U,
) -> Result<Recovered, RecoveryError<U::Error>> {
    scans.sort_unstable_by_key(UnitScan::sequence);
    let mut by_sequence = &scans[scans.partition_point(|scan| scan.begun.is_none())..];
    let mut end = LogEnd { geometry, known, units, epoch: 0, torn: None, leftovers: Vec::new() };
    end.epoch = by_sequence.iter().filter_map(|scan| Some(scan.begun?.1)).max().unwrap_or(0);
    let head = end.find_head(&mut by_sequence)?;
    let head_sequence = head.as_ref().map_or(0, |head| head.first.sequence);
    end.look_behind(head_sequence)?;
    // The superblock may name the first page of a unit that was started only in memory: everything before was durable.
    let durable = known.durable;
    if head_sequence < durable.sequence - u64::from(durable.page == 0 && durable.sequence > 0) {
        return Err(missing(geometry, &scans, durable.sequence));
    }
    let epoch = end.epoch + 1;
    let (leftovers, torn) = (end.leftovers, end.torn.is_some() || head.as_ref().is_some_and(|head| head.torn));
    let Some(HeadUnit { first, tail, end, records, .. }) = head else {
        return Ok(Recovered { epoch, torn, leftovers, ..Recovered::empty(geometry, known.in_order) });
    };
    // Behind the head, from the newest to the oldest.
    let mut behind = Vec::new();
    for sequence in (tail..first.sequence).rev() {
        match by_sequence.split_last() {
            Some((scan, older)) if scan.sequence() == sequence => {
                behind.push(scan);
                by_sequence = older;
            }
            _ => return Err(missing(geometry, &scans, sequence)),
        }
    }
    let head = Head { sequence: first.sequence, end, previous_end: first.previous_end, records };
    let mut log = Log::continued(geometry, tail, &head);
    if known.in_order {
        let written = units.written_pages(geometry.unit_of(head.sequence)).map_err(RecoveryError::Read)?;
        log.write_in_order(written.max(head.end));
    }
    let mut rebuild = Rebuild::new(log, known.clean_from, known.epochs);
    rebuild.apply(head.sequence, &head.records);
    let mut previous_end = head.previous_end;
    let numbers: Vec<u32> = behind.iter().map(|scan| scan.unit).collect();
    let mut scans = behind.into_iter();
    units.read_footers(&numbers, &mut |footer| {
        let scan = scans.next().expect("a footer for each unit");
        let (header, records) = match footer.filter(|footer| scan.agrees(footer)) {
            Some((header, records)) if header.data_pages == previous_end => (header, records),
            _ => {
                let unit = WholeUnit::new(geometry, known.cache, scan.unit, scan.sequence(), units);
                walk_whole(unit.map_err(RecoveryError::Read)?, scan.sequence(), previous_end)?
            }
        };
        previous_end = header.previous_end;
        rebuild.apply(scan.sequence(), &records);
        Ok(())
    })?;
    let units = numbers.len() as u32 + 1;
    rebuild.finish();
    let Rebuild { log, lost, checksums, dropped_blocks, .. } = rebuild;
    let (end, head_records) = (Place { sequence: head.sequence, page: head.end }, head.records);
    Ok(Recovered { log, lost, dropped_blocks, checksums, epoch, end, units, torn, head_records, leftovers })
}

/// Returns the header and the records of a unit whose segments were flushed up to `end`, from the segments.
fn walk_whole<U: Units>(
    mut unit: WholeUnit<'_, U>,
    sequence: u64,
    end: u32,
) -> Result<Footer, RecoveryError<U::Error>> {
    let walked = walk(&mut unit, end, end).map_err(RecoveryError::Read)?;
    match unit.header {
        Some(header) if walked.end == end && walked.tail.is_some() => Ok((header, walked.records)),
        _ => {
            let what = format!("its segments end at page {}, not {end}", walked.end);
            Err(RecoveryError::UnitMissing { unit: unit.unit, sequence, what })
        }
    }
}

/// Returns the error for a missing unit.
fn missing<E>(geometry: Geometry, scans: &[UnitScan], sequence: u64) -> RecoveryError<E> {
    let unit = geometry.unit_of(sequence);
    let scan = scans.iter().find(|scan| scan.unit == unit);
    let damage = scan.map_or(Some(PageError::Magic), |scan| scan.damage);
    let what = damage.map_or("it holds another".to_owned(), |damage| damage.to_string());
    RecoveryError::UnitMissing { unit, sequence, what }
}

/// The newest unit, with the segments found.
struct HeadUnit {
    first: Header,
    tail: u64,
    end: u32,
    records: Vec<Record>,
    torn: bool,
}

/// Finds the end of the log, and leftovers of an interrupted run behind it.
struct LogEnd<'a, U> {
    geometry: Geometry,
    known: Known,
    units: &'a U,
    /// The highest epoch seen.
    epoch: u64,
    /// The sequence number of a unit without a whole segment.
    torn: Option<u64>,
    leftovers: Vec<u32>,
}

impl<U: Units> LogEnd<'_, U> {
    /// Finds the head: the newest unit whose first segment is whole. One further unit may have been started.
    fn find_head(&mut self, by_sequence: &mut &[UnitScan]) -> Result<Option<HeadUnit>, RecoveryError<U::Error>> {
        let geometry = self.geometry;
        loop {
            let scan = by_sequence.split_off_last();
            let sequence = scan.map_or(0, UnitScan::sequence);
            // A unit is started only when the one before it is durable.
            if let Some(torn) = self.torn
                && sequence + 1 != torn
            {
                let what = "the next unit was begun".to_owned();
                return Err(RecoveryError::UnitMissing { unit: geometry.unit_of(torn - 1), sequence: torn - 1, what });
            }
            let Some(scan) = scan else { return Ok(None) };
            let unit = WholeUnit::new(geometry, self.known.cache, scan.unit, sequence, self.units);
            let mut unit = unit.map_err(RecoveryError::Read)?;
            let durable_end = self.durable_end(sequence, &unit.traces);
            let walked = walk(&mut unit, geometry.segments_end(), durable_end).map_err(RecoveryError::Read)?;
            if walked.end < durable_end {
                return Err(RecoveryError::SegmentDamaged { unit: scan.unit, page: walked.end, durable_end });
            }
            if !self.known.in_order {
                self.note_leftovers(&mut unit, sequence, &walked).map_err(RecoveryError::Read)?;
            }
            if let (Some(first), Some(tail)) = (unit.header, walked.tail) {
                return Ok(Some(HeadUnit { first, tail, end: walked.end, records: walked.records, torn: walked.torn }));
            }
            self.torn = Some(sequence);
        }
    }

    /// Records leftovers that must not be found again: a segment right behind the end, and a footer that differs from
    /// the segments found. A witness stays valid.
    fn note_leftovers(&mut self, unit: &mut WholeUnit<'_, U>, sequence: u64, walked: &Walked) -> Result<(), U::Error> {
        let segments_end = self.geometry.segments_end();
        let right = unit.footer.as_ref().is_some_and(|(footer, records)| {
            footer.data_pages == walked.end && *records == walked.records && walked.tail.is_some()
        });
        let is_replaced = !right && unit.witness().is_none();
        let is_left = |header: &Header| header.cache == self.known.cache && header.sequence == sequence;
        for (role, page, may_be_left) in
            [(Role::Segment, walked.end, walked.end < segments_end), (Role::Footer, segments_end, is_replaced)]
        {
            let header = if may_be_left { decode_metadata(role, unit.pages.page(page)?).ok() } else { None };
            if header.is_some_and(|page| is_left(&page.header)) {
                self.leftovers.push(self.geometry.slot(unit.unit, page));
            }
        }
        Ok(())
    }

    /// Searches the unit behind the head, in case its first page is unreadable.
    fn look_behind(&mut self, head: u64) -> Result<(), RecoveryError<U::Error>> {
        let unit = self.geometry.unit_of(head + 1);
        let mut pages = Pages::new(self.geometry, self.units, unit);
        let traces = Traces::find(self.geometry, self.known.cache, head + 1, &mut pages);
        let durable_end = self.durable_end(head + 1, &traces.map_err(RecoveryError::Read)?);
        if durable_end > 0 {
            return Err(RecoveryError::SegmentDamaged { unit, page: 0, durable_end });
        }
        Ok(())
    }

    /// Returns the page up to which the unit of a sequence number was durable; also tracks epochs.
    fn durable_end(&mut self, sequence: u64, traces: &Traces) -> u32 {
        self.epoch = self.epoch.max(traces.epoch);
        let known = if sequence == self.known.durable.sequence { self.known.durable.page } else { 0 };
        traces.durable_end.max(known)
    }
}

struct Walked {
    records: Vec<Record>,
    /// The page after the last whole segment.
    end: u32,
    /// The oldest valid unit according to the last whole segment; `None` without one.
    tail: Option<u64>,
    /// True if an incomplete segment follows.
    torn: bool,
}

pub(crate) fn page_of(bytes: &[u8], page: u32) -> &Page {
    let start = page as usize * BLOCK_BYTES;
    bytes[start..start + BLOCK_BYTES].try_into().expect("a page's length")
}

/// Reads the segments of a unit up to `limit`, starting at the end of a witness if there is one. Those up to
/// `durable_end` were flushed: their data is checked when it is read. The data of later ones is checked here, and the
/// first incomplete one ends the walk.
fn walk<U: Units>(unit: &mut WholeUnit<'_, U>, limit: u32, durable_end: u32) -> Result<Walked, U::Error> {
    let WholeUnit { geometry, cache, .. } = *unit;
    let mut walked = Walked { records: Vec::new(), end: 0, tail: None, torn: false };
    let Some(first) = unit.header else { return Ok(walked) };
    let mut epoch = first.epoch;
    if let Some((witness, records)) = unit.witness().filter(|(witness, _)| witness.data_pages <= limit) {
        epoch = witness.epoch;
        walked = Walked { records: records.clone(), end: witness.data_pages, tail: Some(witness.tail), torn: false };
    }
    while walked.end < limit {
        let page = unit.traces.begins_at(walked.end);
        if page >= limit {
            break;
        }
        let Ok(MetadataPage { header, records }) = decode_metadata(Role::Segment, unit.pages.page(page)?) else {
            break;
        };
        let continues = belongs(geometry, cache, unit.unit, &header) && goes_on(&header, &first, epoch, page);
        let next = u64::from(page) + 1 + u64::from(header.data_pages);
        if !continues || header.skipped != page - walked.end || next > u64::from(limit) {
            break;
        }
        let next = next as u32;
        let in_order = are_in_order(geometry, unit.unit, page + 1, next, &records);
        let too_many = walked.records.len() + records.len() > geometry.unit_records_max();
        if !in_order || too_many || (next > durable_end && !unit.is_right(&records)?) {
            walked.torn = true;
            break;
        }
        epoch = header.epoch;
        walked.end = next;
        walked.tail = Some(header.tail);
        walked.records.extend(records);
    }
    Ok(walked)
}
