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
//! A footer that calls durable all that it repeats is a witness: it was written after a flush, while the server was idle or before
//! it ended, and stands in for the headers before it. The superblock too knows a place up to which the log was durable.
//!
//! The log goes on right behind the last whole segment, in a new epoch. Within a unit epochs only rise, so that what an earlier run
//! left further behind is not taken for a part of the log. What it left at the very place could become whole by chance, when the
//! same data is written there again: it is to be wiped before anything is written.

use std::collections::HashMap;

use crate::format::{
    BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, Page, PageError, Place, Record, Role, Superblock,
    decode_metadata,
};
use crate::layout::containers::{Head, Log};

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
fn are_in_order(geometry: Geometry, unit: u32, first: u32, end: u32, records: &[Record]) -> bool {
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

/// What the first page and the footer of a unit say.
#[derive(Clone, Debug)]
pub struct UnitScan {
    unit: u32,
    first: Result<MetadataPage, PageError>,
    footer: Option<(Header, Vec<Record>)>,
}

impl UnitScan {
    /// Reads a unit's first page and its footer, which is [`Geometry::footer_pages`] pages.
    pub fn new(geometry: Geometry, cache: u64, unit: u32, first: &Page, footer: &[u8]) -> UnitScan {
        let first = match decode_metadata(Role::Segment, first) {
            Ok(page) if !belongs(geometry, cache, unit, &page.header) || page.header.page != 0 => Err(PageError::Magic),
            other => other,
        };
        let footer = decode_footer(footer).filter(|(header, records)| {
            belongs(geometry, cache, unit, header)
                && header.page == geometry.segments_end()
                && header.data_pages <= geometry.segments_end()
                && are_in_order(geometry, unit, 1, header.data_pages, records)
        });
        UnitScan { unit, first, footer }
    }

    /// What is wrong with the unit's first page, if something is.
    pub fn damage(&self) -> Option<PageError> {
        self.first.as_ref().err().copied()
    }

    /// The unit.
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// The unit's sequence number, if it has one. A first page that cannot be read is stood in for by the footer.
    fn header(&self) -> Option<&Header> {
        match (&self.first, &self.footer) {
            (Ok(page), _) => Some(&page.header),
            (Err(_), Some((header, _))) => Some(header),
            (Err(_), None) => None,
        }
    }

    /// The records of the footer, if it belongs to what the first page begins.
    fn footer_records(&self) -> Option<&(Header, Vec<Record>)> {
        let footer = self.footer.as_ref()?;
        let header = self.header()?;
        (footer.0.sequence == header.sequence && footer.0.epoch >= header.epoch).then_some(footer)
    }

    /// The footer, if all that it repeats was durable when it was written.
    fn witness(&self) -> Option<&(Header, Vec<Record>)> {
        self.footer_records().filter(|(footer, _)| is_witness(footer))
    }
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

/// The records of one unit that count, in order.
struct UnitRecords {
    sequence: u64,
    records: Vec<Record>,
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
}

impl Known {
    /// What a superblock knows.
    pub fn of(superblock: &Superblock) -> Known {
        let cache = u64::from_le_bytes(superblock.cache[..8].try_into().expect("8 of 16 bytes"));
        Known { cache, durable: superblock.durable, clean_from: superblock.clean_from }
    }
}

/// Rebuilds the log from the scans of all of its units. `read_unit` reads a whole unit into the buffer, which is as long.
pub fn recover<E>(
    geometry: Geometry,
    known: Known,
    scans: &[UnitScan],
    mut read_unit: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
) -> Result<Recovered, RecoveryError<E>> {
    let mut by_sequence: Vec<&UnitScan> = scans.iter().filter(|scan| scan.header().is_some()).collect();
    let sequence_of = |scan: &UnitScan| scan.header().map_or(0, |header| header.sequence);
    by_sequence.sort_unstable_by_key(|scan| sequence_of(scan));
    let mut end = LogEnd { geometry, known, epoch: 0, torn: None, leftovers: Vec::new() };
    end.epoch = scans.iter().filter_map(UnitScan::header).map(|header| header.epoch).max().unwrap_or(0);
    let mut buffer = vec![0; geometry.unit_pages as usize * BLOCK_BYTES];
    let head = end.find_head(&mut by_sequence, &mut buffer, &mut read_unit)?;
    let head_sequence = head.as_ref().map_or(0, |head| head.first.sequence);
    end.look_behind(head_sequence, &mut buffer, &mut read_unit)?;
    if head_sequence < known.durable.sequence {
        return Err(missing(geometry, scans, known.durable.sequence));
    }
    let epoch = end.epoch + 1;
    let mut checksums = vec![0; geometry.pages() as usize];
    let (leftovers, torn) = (end.leftovers, end.torn.is_some() || head.as_ref().is_some_and(|head| head.torn));
    let Some(HeadUnit { first, tail, end, records, .. }) = head else {
        let log = Log::new(geometry);
        let (lost, head_records, end) = (HashMap::new(), Vec::new(), Place::default());
        return Ok(Recovered { log, lost, checksums, epoch, end, units: 0, torn, head_records, leftovers });
    };
    let head = Head { sequence: first.sequence, end, previous_end: first.previous_end, records };
    let mut units = vec![UnitRecords { sequence: head.sequence, records: head.records.clone() }];
    let mut previous_end = head.previous_end;
    for sequence in (tail..head.sequence).rev() {
        let scan = by_sequence.pop().filter(|scan| sequence_of(scan) == sequence);
        let Some(scan) = scan else { return Err(missing(geometry, scans, sequence)) };
        let records = match scan.footer_records() {
            Some((header, records)) if header.data_pages == previous_end => {
                previous_end = header.previous_end;
                records.clone()
            }
            _ => {
                read_unit(scan.unit, &mut buffer).map_err(RecoveryError::Read)?;
                let walked = walk(geometry, known.cache, scan, &buffer, previous_end, previous_end);
                let Some(first) = scan.header().filter(|_| walked.end == previous_end && walked.tail.is_some()) else {
                    let what = format!("its segments end at page {}, not {previous_end}", walked.end);
                    return Err(RecoveryError::UnitMissing { unit: scan.unit, sequence, what });
                };
                previous_end = first.previous_end;
                walked.records
            }
        };
        units.push(UnitRecords { sequence, records });
    }
    units.reverse();
    let (log, lost) = apply(geometry, tail, &head, &units, known.clean_from, &mut checksums);
    let units = units.len() as u32;
    let end = Place { sequence: head.sequence, page: head.end };
    Ok(Recovered { log, lost, checksums, epoch, end, units, torn, head_records: head.records, leftovers })
}

/// The error for a unit that should be there.
fn missing<E>(geometry: Geometry, scans: &[UnitScan], sequence: u64) -> RecoveryError<E> {
    let unit = geometry.unit_of(sequence);
    let damage = scans.iter().find(|scan| scan.unit == unit).and_then(UnitScan::damage);
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
struct LogEnd {
    geometry: Geometry,
    known: Known,
    /// The highest epoch seen.
    epoch: u64,
    /// The sequence of a unit of which no segment is whole.
    torn: Option<u64>,
    leftovers: Vec<u32>,
}

impl LogEnd {
    /// The newest unit whose first segment is whole is the head. One further unit may have been begun.
    fn find_head<E>(
        &mut self,
        by_sequence: &mut Vec<&UnitScan>,
        buffer: &mut [u8],
        read_unit: &mut impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<HeadUnit>, RecoveryError<E>> {
        let (geometry, cache) = (self.geometry, self.known.cache);
        loop {
            let scan = by_sequence.pop();
            let sequence = scan.and_then(UnitScan::header).map_or(0, |header| header.sequence);
            // A unit is begun once the one before it is durable.
            if let Some(torn) = self.torn
                && sequence + 1 != torn
            {
                let what = "the next unit was begun".to_owned();
                return Err(RecoveryError::UnitMissing { unit: geometry.unit_of(torn - 1), sequence: torn - 1, what });
            }
            let Some(scan) = scan else { return Ok(None) };
            read_unit(scan.unit, buffer).map_err(RecoveryError::Read)?;
            let durable_end = self.traces(scan.unit, sequence, buffer);
            let walked = walk(geometry, cache, scan, buffer, geometry.segments_end(), durable_end);
            if walked.end < durable_end {
                return Err(RecoveryError::SegmentDamaged { unit: scan.unit, page: walked.end, durable_end });
            }
            self.note_leftovers(scan, sequence, &walked, buffer);
            if let (Some(&first), Some(tail)) = (scan.header(), walked.tail) {
                return Ok(Some(HeadUnit { first, tail, end: walked.end, records: walked.records, torn: walked.torn }));
            }
            self.torn = Some(sequence);
        }
    }

    /// Notes what must not be found again: a segment right behind the end, and a footer of more or other segments than were found. A
    /// witness stays true.
    fn note_leftovers(&mut self, scan: &UnitScan, sequence: u64, walked: &Walked, bytes: &[u8]) {
        let header = |role, page| decode_metadata(role, page_of(bytes, page)).ok().map(|page| page.header);
        let segments_end = self.geometry.segments_end();
        let is_left = |header: &Header| header.cache == self.known.cache && header.sequence == sequence;
        if walked.end < segments_end && header(Role::Segment, walked.end).as_ref().is_some_and(is_left) {
            self.leftovers.push(self.geometry.slot(scan.unit, walked.end));
        }
        let right = scan.footer.as_ref().is_some_and(|(footer, records)| {
            footer.data_pages == walked.end && *records == walked.records && walked.tail.is_some()
        });
        if !right && scan.witness().is_none() && header(Role::Footer, segments_end).as_ref().is_some_and(is_left) {
            self.leftovers.push(self.geometry.slot(scan.unit, segments_end));
        }
    }

    /// Looks through the unit behind the head, of which a first page that cannot be read would tell nothing.
    fn look_behind<E>(
        &mut self,
        head: u64,
        buffer: &mut [u8],
        read_unit: &mut impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), RecoveryError<E>> {
        let unit = self.geometry.unit_of(head + 1);
        read_unit(unit, buffer).map_err(RecoveryError::Read)?;
        let durable_end = self.traces(unit, head + 1, buffer);
        if durable_end > 0 {
            return Err(RecoveryError::SegmentDamaged { unit, page: 0, durable_end });
        }
        Ok(())
    }

    /// Up to which page the unit was durable, by what can be read of its metadata; takes note of epochs.
    fn traces(&mut self, unit: u32, sequence: u64, bytes: &[u8]) -> u32 {
        let mut durable_end = if sequence == self.known.durable.sequence { self.known.durable.page } else { 0 };
        for page in 0..self.geometry.unit_pages {
            let role = if page < self.geometry.segments_end() { Role::Segment } else { Role::Footer };
            let Ok(MetadataPage { header, .. }) = decode_metadata(role, page_of(bytes, page)) else { continue };
            if belongs(self.geometry, self.known.cache, unit, &header)
                && (header.sequence, header.page) == (sequence, page)
            {
                durable_end = durable_end.max(header.durable_end.min(self.geometry.segments_end()));
                self.epoch = self.epoch.max(header.epoch);
            }
        }
        durable_end
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

fn page_of(bytes: &[u8], page: u32) -> &Page {
    let start = page as usize * BLOCK_BYTES;
    bytes[start..start + BLOCK_BYTES].try_into().expect("a page's length")
}

/// Walks the segments of a unit up to `limit`, from where a witness ends if there is one. Those up to `durable_end` were flushed: their
/// data is checked when it is read. The data of others is checked here; the walk ends at the first that is not whole.
fn walk(geometry: Geometry, cache: u64, scan: &UnitScan, bytes: &[u8], limit: u32, durable_end: u32) -> Walked {
    let mut walked = Walked { records: Vec::new(), end: 0, tail: None, torn: false };
    let Some(first) = scan.header() else { return walked };
    let mut epoch = first.epoch;
    if let Some((witness, records)) = scan.witness().filter(|(witness, _)| witness.data_pages <= limit) {
        epoch = witness.epoch;
        walked = Walked { records: records.clone(), end: witness.data_pages, tail: Some(witness.tail), torn: false };
    }
    while walked.end < limit {
        let page = page_of(bytes, walked.end);
        let Ok(MetadataPage { header, records }) = decode_metadata(Role::Segment, page) else { break };
        let continues = belongs(geometry, cache, scan.unit, &header) && goes_on(&header, first, epoch, walked.end);
        let next = u64::from(walked.end) + 1 + u64::from(header.data_pages);
        if !continues || next > u64::from(limit) {
            break;
        }
        let next = next as u32;
        let is_right =
            |record: &Record| crc32c::crc32c(page_of(bytes, record.slot % geometry.unit_pages)) == record.crc;
        let mut copies = records.iter().filter(|record| matches!(record.kind, Kind::Clean | Kind::Dirty));
        let in_order = are_in_order(geometry, scan.unit, walked.end + 1, next, &records);
        let too_many = walked.records.len() + records.len() > geometry.unit_records_max();
        if !in_order || too_many || (next > durable_end && !copies.all(is_right)) {
            walked.torn = true;
            break;
        }
        epoch = header.epoch;
        walked.end = next;
        walked.tail = Some(header.tail);
        walked.records.extend(records);
    }
    walked
}

/// Applies the records of all units, oldest first.
fn apply(
    geometry: Geometry,
    tail: u64,
    head: &Head,
    units: &[UnitRecords],
    clean_from: Place,
    checksums: &mut [u32],
) -> (Log, HashMap<u32, u64>) {
    let mut log = Log::continued(geometry, tail, head);
    let mut lost = HashMap::new();
    // Until the place is reached from which clean copies count. Where only marks follow it in its unit, it is taken for a later one,
    // which costs copies that the backend has too.
    let mut before = units.first().is_some_and(|unit| unit.sequence <= clean_from.sequence);
    for UnitRecords { sequence, records } in units {
        if before && *sequence > clean_from.sequence {
            log.drop_clean();
            before = false;
        }
        for record in records {
            let block = record.block;
            if before
                && *sequence == clean_from.sequence
                && record.kind.has_data()
                && record.slot % geometry.unit_pages >= clean_from.page
            {
                log.drop_clean();
                before = false;
            }
            match record.kind {
                Kind::Void => {}
                Kind::Clean | Kind::Dirty => {
                    lost.remove(&block);
                    log.restore(block, Some((record.slot, record.kind == Kind::Dirty)));
                    checksums[record.slot as usize] = record.crc;
                }
                Kind::Forget => {
                    lost.remove(&block);
                    log.restore(block, None);
                }
                Kind::Destaged => {
                    if log.find(block) == Some(record.slot) {
                        log.set_dirty(record.slot, false);
                    }
                }
                Kind::UnitDestaged => log.clean_up_to(record.slot),
                Kind::Lost => {
                    log.restore(block, None);
                    lost.insert(block, *sequence);
                }
            }
        }
    }
    if before {
        log.drop_clean();
    }
    (log, lost)
}
