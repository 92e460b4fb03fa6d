//! Recovery: from what a flash device holds to the log that it was.
//!
//! Source: our own; that a full scan of the units' metadata is enough, and that epochs tell the newest copy, follows WLFC (section
//! IV.D).
//!
//! The newest unit is the one whose header has the highest sequence. Everything before it was flushed before it was begun, so its
//! metadata is believed as it stands. Of the newest unit, and of units that a crash left without a footer, every segment is
//! checked with its data, up to the first that is not whole: what follows was never flushed.

use std::collections::HashMap;

use crate::format::{
    BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, Page, PageError, Record, Role, decode_metadata,
};
use crate::layout::containers::Log;

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
        let first = decode_metadata(Role::Segment, first);
        let belongs =
            |header: &Header| header.cache == cache && header.sequence > 0 && geometry.unit_of(header.sequence) == unit;
        let first = match first {
            Ok(page) if !belongs(&page.header) || page.header.page != 0 => Err(PageError::Magic),
            other => other,
        };
        UnitScan { unit, first, footer: decode_footer(footer).filter(|(header, _)| belongs(header)) }
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
        (footer.0.sequence == header.sequence && footer.0.epoch == header.epoch).then_some(footer)
    }
}

fn decode_footer(bytes: &[u8]) -> Option<(Header, Vec<Record>)> {
    let mut all: Option<(Header, Vec<Record>)> = None;
    for (page, at) in bytes.chunks_exact(BLOCK_BYTES).zip(0..) {
        let page: &Page = page.try_into().expect("a chunk of a page's length");
        let MetadataPage { header, records } = decode_metadata(Role::Footer, page).ok()?;
        match &mut all {
            None if at == 0 => all = Some((header, records)),
            Some((first, gathered))
                if *first == (Header { page: first.page, ..header }) && header.page == first.page + at =>
            {
                gathered.extend(records);
            }
            _ => return None,
        }
    }
    all
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
}

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// The log, at whose end a new unit will be begun.
    pub log: Log,
    /// Blocks whose only copy was lost, with the sequence of the unit that says so.
    pub lost: HashMap<u32, u64>,
    /// Checksums of the data in each slot that holds a block, by slot.
    pub checksums: Vec<u32>,
    /// The epoch of what is written from now on.
    pub epoch: u64,
    /// Units that hold part of the log.
    pub units: u32,
    /// Segments at the end of the log that were not whole and were never flushed.
    pub torn: bool,
}

/// The records of one unit that count, in order.
struct UnitRecords {
    sequence: u64,
    records: Vec<Record>,
}

/// Rebuilds the log from the scans of all of its units. `read_unit` reads a whole unit into the buffer, which is as long.
pub fn recover<E>(
    geometry: Geometry,
    cache: u64,
    scans: &[UnitScan],
    mut read_unit: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
) -> Result<Recovered, RecoveryError<E>> {
    let epochs = scans.iter().filter_map(UnitScan::header).map(|header| header.epoch);
    let epoch = epochs.max().unwrap_or(0) + 1;
    let mut by_sequence: Vec<&UnitScan> = scans.iter().filter(|scan| scan.header().is_some()).collect();
    let sequence_of = |scan: &UnitScan| scan.header().map_or(0, |header| header.sequence);
    by_sequence.sort_unstable_by_key(|scan| sequence_of(scan));
    let mut buffer = vec![0; geometry.unit_pages as usize * BLOCK_BYTES];
    let mut torn = false;
    // The newest unit whose first segment is whole is the head.
    let head = loop {
        let Some(scan) = by_sequence.pop() else {
            let checksums = vec![0; geometry.pages() as usize];
            return Ok(Recovered { log: Log::new(geometry), lost: HashMap::new(), checksums, epoch, units: 0, torn });
        };
        read_unit(scan.unit, &mut buffer).map_err(RecoveryError::Read)?;
        let walked = walk(geometry, cache, scan, &buffer, None);
        torn |= walked.torn;
        if !walked.segments.is_empty() {
            break walked;
        }
    };
    let last = head.segments.last().expect("the head has a segment");
    let (head_sequence, head_end, tail) = (last.sequence, head.end, last.tail);
    let mut units = vec![UnitRecords { sequence: head_sequence, records: head.records }];
    let mut previous_end = head.segments[0].previous_end;
    for sequence in (tail..head_sequence).rev() {
        let unit = geometry.unit_of(sequence);
        let missing = |what: String| RecoveryError::UnitMissing { unit, sequence, what };
        let scan = by_sequence.pop().filter(|scan| sequence_of(scan) == sequence);
        let Some(scan) = scan else {
            let damage = scans.iter().find(|scan| scan.unit == unit).and_then(UnitScan::damage);
            return Err(missing(damage.map_or("it holds another".to_owned(), |damage| damage.to_string())));
        };
        let records = match scan.footer_records() {
            Some((header, records)) if header.data_pages == previous_end => {
                previous_end = header.previous_end;
                records.clone()
            }
            _ => {
                read_unit(unit, &mut buffer).map_err(RecoveryError::Read)?;
                let walked = walk(geometry, cache, scan, &buffer, Some(previous_end));
                if walked.end != previous_end || walked.segments.is_empty() {
                    return Err(missing(format!("its segments end at page {}, not {previous_end}", walked.end)));
                }
                previous_end = walked.segments[0].previous_end;
                walked.records
            }
        };
        units.push(UnitRecords { sequence, records });
    }
    units.reverse();
    let count = units.len() as u32;
    let mut checksums = vec![0; geometry.pages() as usize];
    let (log, lost) = apply(geometry, tail, head_sequence, head_end, &units, &mut checksums);
    Ok(Recovered { log, lost, checksums, epoch, units: count, torn })
}

struct Walked {
    segments: Vec<Header>,
    records: Vec<Record>,
    /// The page after the last whole segment.
    end: u32,
    /// Whether something that looks like a segment follows and is not whole.
    torn: bool,
}

/// Walks the segments of a unit. Without a known `end`, the data of each is checked, and the walk ends at the first that is not
/// whole; up to a known end, the data was flushed, and is checked when it is read.
fn walk(geometry: Geometry, cache: u64, scan: &UnitScan, bytes: &[u8], end: Option<u32>) -> Walked {
    let page_at = |page: u32| -> &Page {
        let start = page as usize * BLOCK_BYTES;
        bytes[start..start + BLOCK_BYTES].try_into().expect("a page's length")
    };
    let mut walked = Walked { segments: Vec::new(), records: Vec::new(), end: 0, torn: false };
    let Some(first) = scan.header() else { return walked };
    let limit = end.unwrap_or(geometry.segments_end());
    while walked.end < limit {
        let Ok(MetadataPage { header, records }) = decode_metadata(Role::Segment, page_at(walked.end)) else { break };
        let continues = header.cache == cache
            && header.sequence == first.sequence
            && header.epoch == first.epoch
            && header.page == walked.end
            && header.previous_end == first.previous_end;
        let next = u64::from(walked.end) + 1 + u64::from(header.data_pages);
        if !continues || next > u64::from(limit) {
            break;
        }
        let first_slot = geometry.slot(scan.unit, 0);
        let whole = records.iter().filter(|record| matches!(record.kind, Kind::Clean | Kind::Dirty)).all(|record| {
            let page = record.slot.checked_sub(first_slot).filter(|&page| page > walked.end && u64::from(page) < next);
            page.is_some_and(|page| end.is_some() || crc32c::crc32c(page_at(page)) == record.crc)
        });
        if !whole {
            walked.torn = true;
            break;
        }
        walked.end = next as u32;
        walked.segments.push(header);
        walked.records.extend(records);
    }
    walked
}

/// Applies the records of all units, oldest first.
fn apply(
    geometry: Geometry,
    tail: u64,
    head: u64,
    head_end: u32,
    units: &[UnitRecords],
    checksums: &mut [u32],
) -> (Log, HashMap<u32, u64>) {
    let mut log = Log::continued(geometry, tail, head, head_end);
    let mut lost = HashMap::new();
    for UnitRecords { sequence, records } in units {
        for record in records {
            let block = record.block;
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
                Kind::Lost => {
                    log.restore(block, None);
                    lost.insert(block, *sequence);
                }
            }
        }
    }
    (log, lost)
}
