//! Recovery: from what a flash device holds to the log that it was.
//!
//! Source: our own; that a full scan of the units' metadata is enough, and that epochs tell the newest copy, follows WLFC (section
//! IV.D).
//!
//! The newest unit is the one whose header has the highest sequence. Everything before it was flushed before it was begun, so its
//! metadata is believed as it stands. The newest unit is walked segment by segment. Each says up to where the unit was durable when
//! it was written: what lies before the highest such page is believed too, and refused if it is damaged. Behind that page every
//! segment is checked with its data, up to the first that is not whole: that and what follows was never flushed.
//!
//! The first page of each unit is enough to put them in order. Their footers are then read from the newest to the oldest, and dropped
//! once applied.
//!
//! A footer that calls durable all that it repeats is a witness: it was written after a flush, while the server was idle or before
//! it ended, and stands in for the headers before it. The superblock too knows a place up to which the log was durable.
//!
//! The log goes on right behind the last whole segment, in a new epoch. Within a unit epochs only rise, so that what an earlier run
//! left further behind is not taken for a part of the log. What it left at the very place could become whole by chance, when the
//! same data is written there again: it is to be wiped before anything is written.
//!
//! In a unit that is written in order nothing can be wiped. There the log goes on behind what was left, and its next segment says how
//! many pages it [skips](Header::skipped).

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

/// Highest sequence that is believed: more units than can ever be written.
const SEQUENCE_MAX: u64 = 1 << 62;

/// Whether a metadata page is of this cache, of this unit, and possible.
pub fn belongs(geometry: Geometry, cache: u64, unit: u32, header: &Header) -> bool {
    header.cache == cache
        && (1..SEQUENCE_MAX).contains(&header.sequence)
        && geometry.unit_of(header.sequence) == unit
        && (1..=header.sequence).contains(&header.tail)
        && header.sequence - header.tail < u64::from(geometry.log_units())
        && header.epoch < u64::MAX
}

/// Whether the records with data are those of pages from `first` to before `end` of `unit`, in order.
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

/// A footer: its header, and the records that it repeats.
pub type Footer = (Header, Vec<Record>);

/// The footer of a unit, if there is one that is whole and belongs to it.
pub fn footer_of(geometry: Geometry, cache: u64, unit: u32, bytes: &[u8]) -> Option<Footer> {
    decode_footer(bytes).filter(|(header, records)| {
        belongs(geometry, cache, unit, header)
            && header.page == geometry.segments_end()
            && header.data_pages <= geometry.segments_end()
            && are_in_order(geometry, unit, 1, header.data_pages, records)
    })
}

/// The header of a unit's first page.
fn first_header(geometry: Geometry, cache: u64, unit: u32, first: &Page) -> Result<Header, PageError> {
    match decode_metadata(Role::Segment, first)?.header {
        header if belongs(geometry, cache, unit, &header) && header.page == 0 => Ok(header),
        _ => Err(PageError::Magic),
    }
}

/// What the metadata of a unit says of it as a whole.
#[derive(Clone, Copy, Debug)]
pub struct UnitScan {
    unit: u32,
    /// What is wrong with the first page, if something is.
    damage: Option<PageError>,
    /// Sequence and epoch, if it has them. A first page that cannot be read is stood in for by the footer.
    begun: Option<(u64, u64)>,
}

impl UnitScan {
    /// Reads a unit's first page and its footer, which is [`Geometry::footer_pages`] pages.
    pub fn new(geometry: Geometry, cache: u64, unit: u32, first: &Page, footer: &[u8]) -> UnitScan {
        let first = first_header(geometry, cache, unit, first);
        let stand_in = || Some(footer_of(geometry, cache, unit, footer)?.0);
        let header = first.ok().or_else(stand_in);
        UnitScan { unit, damage: first.err(), begun: header.map(|header| (header.sequence, header.epoch)) }
    }

    /// Whether the unit was ever begun, as far as can be told. Recovery needs no scan of those that were not.
    pub fn was_begun(&self) -> bool {
        self.begun.is_some() || self.damage != Some(PageError::Magic)
    }

    fn sequence(&self) -> u64 {
        self.begun.map_or(0, |(sequence, _)| sequence)
    }

    /// Whether a footer belongs to what the first page begins.
    fn agrees(&self, (footer, _): &Footer) -> bool {
        self.begun.is_some_and(|(sequence, epoch)| footer.sequence == sequence && footer.epoch >= epoch)
    }
}

/// A unit that is read whole.
struct WholeUnit<'a, U> {
    geometry: Geometry,
    cache: u64,
    unit: u32,
    pages: Pages<'a, U>,
    /// Of the first page, or of the footer that stands in for it.
    header: Option<Header>,
    /// If it belongs to what the first page begins.
    footer: Option<Footer>,
    traces: Traces,
}

impl<'a, U: Units> WholeUnit<'a, U> {
    /// Looks through the unit for what belongs to `sequence`.
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

    /// Whether the data of all records is what they say.
    fn is_right(&mut self, records: &[Record]) -> Result<bool, U::Error> {
        for record in records.iter().filter(|record| matches!(record.kind, Kind::Clean | Kind::Dirty)) {
            if checksum::crc32c(self.pages.page(record.slot % self.geometry.unit_pages)?) != record.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The footer, if all that it repeats was durable when it was written.
    fn witness(&self) -> Option<&Footer> {
        self.footer.as_ref().filter(|(footer, _)| is_witness(footer))
    }
}

/// Where the segments of a unit go on that skip some pages: by the page where the ones before end.
pub fn resumed<U: Units>(
    geometry: Geometry,
    cache: u64,
    unit: u32,
    sequence: u64,
    units: &U,
) -> Result<HashMap<u32, u32>, U::Error> {
    Ok(Traces::find(geometry, cache, sequence, &mut Pages::new(geometry, units, unit))?.resumed)
}

/// Whether all that a footer repeats was durable when it was written.
pub fn is_witness(footer: &Header) -> bool {
    footer.data_pages > 0 && footer.durable_end == footer.data_pages
}

/// Whether a segment goes on at `page` of the unit that `first` begins, behind a segment of `epoch`. A server that was started again
/// goes on in the same unit, in a later epoch.
pub fn goes_on(header: &Header, first: &Header, epoch: u64, page: u32) -> bool {
    header.sequence == first.sequence
        && header.epoch >= epoch
        && header.page == page
        && header.previous_end == first.previous_end
}

/// The header of a unit's footer and its records, if every page of it is whole.
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

/// Why a cache cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecoveryError<E> {
    #[error("the flash device cannot be read: {0}")]
    Read(E),
    #[error(
        "erase unit {unit} should hold part {sequence} of the log and does not ({what}); \
         which blocks were on it is not known, so the backend may miss their newest data"
    )]
    UnitMissing { unit: u32, sequence: u64, what: String },
    #[error(
        "erase unit {unit} was durable up to page {durable_end}, and page {page} of it is damaged; \
         which blocks follow is not known, so the backend may miss their newest data"
    )]
    SegmentDamaged { unit: u32, page: u32, durable_end: u32 },
}

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// The log, which goes on where it ends.
    pub log: Log,
    /// Blocks whose only copy was lost, with the sequence of the unit that says so.
    pub lost: HashMap<u32, u64>,
    /// Clean copies that do not count, as their blocks may have been overwritten on the backend just before a crash.
    pub dropped_blocks: u64,
    /// Checksums of the data in each slot that holds a block, by slot.
    pub checksums: Vec<u32>,
    /// The epoch of what is written from now on.
    pub epoch: u64,
    /// Where the log ends.
    pub end: Place,
    /// Units that hold part of the log.
    pub units: u32,
    /// Segments at the end of the log that were not whole and were never flushed.
    pub torn: bool,
    /// The records of the unit that the log goes on in.
    pub head_records: Vec<Record>,
    /// Pages of the device to be wiped, durably, before anything is written.
    pub leftovers: Vec<u32>,
}

impl Recovered {
    /// What a cache holds that was just made. `in_order`: as [`Superblock::in_order`].
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

/// What is known of a log beside what its units say.
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
}

impl Known {
    /// What a superblock knows.
    pub fn of(superblock: &Superblock) -> Known {
        let cache = u64::from_le_bytes(superblock.cache[..8].try_into().expect("8 of 16 bytes"));
        let Superblock { durable, clean_from, in_order, .. } = *superblock;
        Known { cache, durable, clean_from, in_order }
    }
}

/// Where the units of a log are read from.
pub trait Units {
    /// Why they cannot be.
    type Error;

    /// Fills `bytes` from `page` of a unit on.
    fn read_pages(&self, unit: u32, page: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// How many pages of a unit that is written in order were written, the last one maybe not whole.
    fn written_pages(&self, unit: u32) -> Result<u32, Self::Error>;

    /// Reads the footers of `units` and hands them to `each`, as [`footer_of`] has them and in this order, until it fails.
    fn read_footers(
        &self,
        units: &[u32],
        each: &mut dyn FnMut(Option<Footer>) -> Result<(), RecoveryError<Self::Error>>,
    ) -> Result<(), RecoveryError<Self::Error>>;
}

/// Rebuilds the log from its units. `scans` are those of all of them, but for any that never [was begun](UnitScan::was_begun).
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
    // Superblocks may name the first page of a unit that was begun in memory alone: all before it was durable.
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
    let mut rebuild = Rebuild::new(log, known.clean_from);
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

/// The header and the records of a unit whose segments were flushed up to `end`, from the segments.
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

/// The error for a unit that should be there.
fn missing<E>(geometry: Geometry, scans: &[UnitScan], sequence: u64) -> RecoveryError<E> {
    let unit = geometry.unit_of(sequence);
    let scan = scans.iter().find(|scan| scan.unit == unit);
    let damage = scan.map_or(Some(PageError::Magic), |scan| scan.damage);
    let what = damage.map_or("it holds another".to_owned(), |damage| damage.to_string());
    RecoveryError::UnitMissing { unit, sequence, what }
}

/// The newest unit, walked.
struct HeadUnit {
    first: Header,
    tail: u64,
    end: u32,
    records: Vec<Record>,
    torn: bool,
}

/// Finds where the log ends, and what an interrupted run left behind it.
struct LogEnd<'a, U> {
    geometry: Geometry,
    known: Known,
    units: &'a U,
    /// The highest epoch seen.
    epoch: u64,
    /// The sequence of a unit of which no segment is whole.
    torn: Option<u64>,
    leftovers: Vec<u32>,
}

impl<U: Units> LogEnd<'_, U> {
    /// The newest unit whose first segment is whole is the head. One further unit may have been begun.
    fn find_head(&mut self, by_sequence: &mut &[UnitScan]) -> Result<Option<HeadUnit>, RecoveryError<U::Error>> {
        let geometry = self.geometry;
        loop {
            let scan = by_sequence.split_off_last();
            let sequence = scan.map_or(0, UnitScan::sequence);
            // A unit is begun once the one before it is durable.
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

    /// Notes what must not be found again: a segment right behind the end, and a footer of more or other segments than were found. A
    /// witness stays true.
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

    /// Looks through the unit behind the head, of which a first page that cannot be read would tell nothing.
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

    /// Up to which page the unit of a sequence was durable; takes note of epochs.
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
    /// What the last whole segment says of the oldest unit that counts; none if no segment is whole.
    tail: Option<u64>,
    /// Whether something that looks like a segment follows and is not whole.
    torn: bool,
}

pub(crate) fn page_of(bytes: &[u8], page: u32) -> &Page {
    let start = page as usize * BLOCK_BYTES;
    bytes[start..start + BLOCK_BYTES].try_into().expect("a page's length")
}

/// Walks the segments of a unit up to `limit`, from where a witness ends if there is one. Those up to `durable_end` were flushed: their
/// data is checked when it is read. The data of others is checked here; the walk ends at the first that is not whole.
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
