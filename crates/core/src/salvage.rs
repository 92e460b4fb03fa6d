//! Salvage: the remaining knowledge about a log that cannot be recovered, and the certain part of it.
//!
//! Source: our own. Recovery rejects a log in which records are missing. Salvage reads every page of metadata
//! and orders the remaining segments. Unknown records leave a gap, which may hold any record
//! of any block. So a block is certain only if its newest known record is behind the last gap. For the others an older
//! copy, or nothing, may be known.
//!
//! Certain segments must be part of the log, not leftovers of an earlier run behind its end. They must connect to a
//! known end of the log by consecutive segments with non-decreasing epochs. At least one data page of each must match
//! its header. Segments between two gaps only provide uncertain copies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::checksum;
use crate::format::{BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, Page, Place, Record, Role, decode_metadata};
use crate::recovery::{Footer, Known, are_in_order, belongs, footer_of, is_witness, page_of};

/// A segment with a readable header.
#[derive(Clone, Debug)]
struct SalvagedSegment {
    header: Header,
    records: Vec<Record>,
    /// True if all of its data matches.
    is_whole: bool,
    /// True if some of its data matches or it has none: then the header belongs to the data behind it.
    is_likely: bool,
}

impl SalvagedSegment {
    fn next(&self) -> u32 {
        self.header.page + 1 + self.header.data_pages
    }

    /// Returns the end of the segment before it.
    fn begins(&self) -> u32 {
        self.header.page - self.header.skipped
    }
}

/// The readable metadata of an erase unit.
#[derive(Clone, Debug)]
pub struct UnitRemains {
    segments: Vec<SalvagedSegment>,
    footer: Option<Footer>,
}

impl UnitRemains {
    /// Reads a whole unit of the cache with the tag `cache`.
    pub fn new(geometry: Geometry, cache: u64, unit: u32, bytes: &[u8]) -> UnitRemains {
        let end = geometry.segments_end();
        let mut remains = UnitRemains { segments: Vec::new(), footer: None };
        let fits = |role: Role, page: u32, metadata: &MetadataPage| {
            let MetadataPage { header, records } = metadata;
            let next = u64::from(page) + 1 + u64::from(header.data_pages);
            belongs(geometry, cache, unit, header)
                && header.page == page
                && header.skipped <= page
                && (role == Role::Footer
                    || (next <= u64::from(end) && are_in_order(geometry, unit, page + 1, next as u32, records)))
        };
        for page in 0..geometry.unit_pages {
            let role = if page < end { Role::Segment } else { Role::Footer };
            let metadata = decode_metadata(role, page_of(bytes, page)).ok();
            let metadata = metadata.filter(|metadata| fits(role, page, metadata));
            if let Some(MetadataPage { header, records }) = metadata.filter(|_| role == Role::Segment) {
                let (right, wrong) = compare(geometry, &records, bytes);
                let (is_whole, is_likely) = (wrong == 0, right > 0 || wrong == 0);
                remains.segments.push(SalvagedSegment { header, records, is_whole, is_likely });
            }
        }
        remains.footer = footer_of(geometry, cache, unit, &bytes[end as usize * BLOCK_BYTES..]);
        remains
    }

    /// True if the unit holds nothing of the cache.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.footer.is_none()
    }

    fn headers(&self) -> impl Iterator<Item = &Header> {
        self.segments.iter().map(|segment| &segment.header).chain(self.footer.iter().map(|(header, _)| header))
    }
}

/// Counts matching and wrong data pages of a segment.
fn compare(geometry: Geometry, records: &[Record], bytes: &[u8]) -> (u32, u32) {
    let data = records.iter().filter(|record| matches!(record.kind, Kind::Clean | Kind::Dirty));
    let data_of = |record: &Record| -> &Page { page_of(bytes, record.slot % geometry.unit_pages) };
    data.fold((0, 0), |(right, wrong), record| {
        if checksum::crc32c(data_of(record)) == record.crc { (right + 1, wrong) } else { (right, wrong + 1) }
    })
}

/// A copy of a block on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The block.
    pub block: u32,
    /// The device's page of the copy.
    pub slot: u32,
    /// CRC32C of its data.
    pub crc: u32,
}

/// Pages of the log with unknown records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The erase unit.
    pub unit: u32,
    /// Its pages: headers and data.
    pub pages: Range<u32>,
}

/// The known blocks of a volume; each list is sorted.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// Newest copies that the backend may lack.
    pub certain: Vec<BlockCopy>,
    /// Newest known copies that may be outdated, by another copy or by the backend.
    pub uncertain: Vec<BlockCopy>,
    /// Blocks whose only copy was already lost.
    pub lost: Vec<u32>,
    /// Blocks without certain knowledge: a page in a gap may hold the newest copy.
    pub unknown: Vec<Range<u32>>,
    /// The gaps, where records are missing.
    pub gaps: Vec<Gap>,
}

/// The part of the log in one unit.
#[derive(Default)]
struct UnitPart {
    unit: u32,
    before: Vec<Record>,
    gap: Option<Range<u32>>,
    after: Vec<Record>,
    /// The end of the part, and its epoch.
    end: u32,
    epoch: u64,
    tail: u64,
    previous_end: Option<u32>,
}

/// Combines the remains of all units, unit 1 first. `end_is_known` is true if the cache is known to be the newest of
/// its kind and its log to end at its apparent end. Otherwise nothing is certain.
pub fn salvage(
    geometry: Geometry,
    known: &Known,
    end_is_known: bool,
    volume_blocks: u32,
    units: &[UnitRemains],
) -> Salvaged {
    assert_eq!(units.len(), geometry.log_units() as usize, "one for each unit of the log");
    let newest = units.iter().flat_map(UnitRemains::headers).map(|header| header.sequence).max().unwrap_or(0);
    let newest = newest.max(known.durable.sequence);
    let mut blocks = SalvagedBlocks::new(geometry);
    let mut tail = newest.saturating_sub(u64::from(geometry.log_units()) - 1).max(1);
    let mut parts: Vec<UnitPart> = Vec::new();
    let mut end = None;
    let mut behind_end = Behind::default();
    let mut sequence = newest;
    while sequence >= tail {
        let unit = geometry.unit_of(sequence);
        let remains = &units[unit as usize - 1];
        let mut part = if sequence == newest {
            let durable_end = durable_end(geometry, known, sequence, remains);
            let mut head = assemble(geometry, sequence, remains, Some(durable_end), true);
            behind_end = follow(geometry, sequence, remains, &mut head);
            head
        } else {
            assemble(geometry, sequence, remains, end, false)
        };
        part.unit = unit;
        tail = tail.max(part.tail);
        end = part.previous_end;
        parts.push(part);
        sequence -= 1;
    }
    for (part, sequence) in parts.iter().rev().zip(sequence + 1..) {
        part.before.iter().for_each(|record| blocks.apply(sequence, record));
        if let Some(pages) = &part.gap {
            blocks.gap(part.unit, pages.clone());
        }
        part.after.iter().for_each(|record| blocks.apply(sequence, record));
    }
    // If nothing is missing before, a partial segment at the end was, to the best of our knowledge, never flushed.
    if !end_is_known || !blocks.gaps.is_empty() {
        blocks.doubts = behind_end.doubts;
        if behind_end.continues || !end_is_known {
            let (unit, from) = parts.first().map_or((1, 0), |head| (head.unit, head.end));
            blocks.gap(unit, from..geometry.segments_end());
        }
    }
    blocks.classify(volume_blocks)
}

/// Returns the page up to which the newest unit was known to be durable.
fn durable_end(geometry: Geometry, known: &Known, sequence: u64, remains: &UnitRemains) -> u32 {
    let of_unit = remains.headers().filter(|header| header.sequence == sequence);
    let recorded = of_unit.map(|header| header.durable_end).max().unwrap_or(0);
    let known = if known.durable.sequence == sequence { known.durable.page } else { 0 };
    recorded.max(known).min(geometry.segments_end())
}

/// Returns the segments of a unit in order, up to `end` if known; of the newest unit, up to its durable end.
fn assemble(geometry: Geometry, sequence: u64, remains: &UnitRemains, end: Option<u32>, is_newest: bool) -> UnitPart {
    let of_unit = |header: &Header| header.sequence == sequence;
    let newest = remains.headers().filter(|header| of_unit(header)).max_by_key(|header| header.epoch);
    let mut part = UnitPart { previous_end: newest.map(|header| header.previous_end), ..UnitPart::default() };
    let limit = end.unwrap_or(geometry.segments_end());
    let footer = remains.footer.as_ref().filter(|(footer, _)| {
        let is_all = !is_newest && Some(footer.data_pages) == end;
        of_unit(footer) && footer.data_pages <= limit && (is_all || is_witness(footer))
    });
    if let Some((footer, records)) = footer {
        part.before.clone_from(records);
        (part.end, part.epoch, part.tail) = (footer.data_pages, footer.epoch, footer.tail);
    }
    let by_page = segments(sequence, remains, part.previous_end);
    while let Some(segment) = by_page.get(&part.end)
        && segment.header.epoch >= part.epoch
        && segment.next() <= limit
        && segment.is_likely
    {
        part.before.extend(&segment.records);
        (part.end, part.epoch) = (segment.next(), segment.header.epoch);
        part.tail = part.tail.max(segment.header.tail);
    }
    if Some(part.end) == end {
        return part;
    }
    // The segments that lead to the end, last first.
    let mut last: Vec<&SalvagedSegment> = Vec::new();
    let (from, mut start, mut epoch) = (part.end, limit, u64::MAX);
    for segment in by_page.values().rev().filter(|_| end.is_some()) {
        let (page, found) = (segment.begins(), segment.header.epoch);
        if page >= from && segment.next() == start && (part.epoch..=epoch).contains(&found) && segment.is_likely {
            (start, epoch) = (page, found);
            last.push(segment);
        }
    }
    let between = by_page.values().filter(|segment| segment.header.page >= from && segment.next() <= start);
    part.before.extend(between.flat_map(|segment| &segment.records));
    part.gap = Some(from..start);
    for segment in last.iter().rev() {
        part.after.extend(&segment.records);
        part.epoch = segment.header.epoch;
        part.tail = part.tail.max(segment.header.tail);
    }
    part.end = limit;
    part
}

/// Returns the segments of a unit by the end of their predecessors, without skipped ones.
fn segments(sequence: u64, remains: &UnitRemains, previous_end: Option<u32>) -> BTreeMap<u32, &SalvagedSegment> {
    let of_unit = remains.segments.iter().filter(|segment| segment.header.sequence == sequence);
    let belongs = of_unit.filter(|segment| Some(segment.header.previous_end) == previous_end);
    let mut by_begin: BTreeMap<u32, &SalvagedSegment> = BTreeMap::new();
    for segment in belongs {
        if segment.header.skipped > 0 {
            by_begin.retain(|_, before| before.header.page < segment.begins());
        }
        by_begin.insert(segment.begins(), segment);
    }
    by_begin
}

/// Segments behind the end of the log that may belong to it.
#[derive(Default)]
struct Behind {
    /// Blocks of segments that are not whole.
    doubts: HashSet<u32>,
    /// True if later segments imply that more was written.
    continues: bool,
}

/// Continues behind the durable end, segment by segment as long as they are whole.
fn follow(geometry: Geometry, sequence: u64, remains: &UnitRemains, head: &mut UnitPart) -> Behind {
    let by_page = segments(sequence, remains, head.previous_end);
    let mut behind = Behind::default();
    let (mut at, mut is_whole) = (head.end, true);
    while let Some(segment) = by_page.get(&at).filter(|segment| segment.header.epoch >= head.epoch) {
        is_whole &= segment.is_whole;
        at = segment.next();
        if is_whole {
            head.after.extend(&segment.records);
            (head.end, head.epoch) = (at, segment.header.epoch);
            head.tail = head.tail.max(segment.header.tail);
        } else {
            let of_blocks = segment
                .records
                .iter()
                .filter(|it| it.kind != Kind::Void && !it.kind.is_of_region() && !it.kind.is_of_epoch());
            behind.doubts.extend(of_blocks.map(|record| record.block));
        }
    }
    behind.continues = at < geometry.segments_end() && by_page.range(at..).any(|(_, it)| it.header.epoch >= head.epoch);
    behind
}

#[derive(Clone, Copy)]
enum Content {
    /// A copy, with its place if the backend may lack it.
    Copy {
        slot: u32,
        crc: u32,
        place: Option<Place>,
    },
    Backend,
    Lost,
}

/// The state of all blocks, according to the records so far.
struct SalvagedBlocks {
    geometry: Geometry,
    /// The newest content of each block, and the number of gaps before it.
    newest: HashMap<u32, (Content, usize)>,
    by_slot: HashMap<u32, u32>,
    gaps: Vec<Gap>,
    doubts: HashSet<u32>,
    /// The backend has all epochs before this place.
    done: Place,
}

impl SalvagedBlocks {
    fn new(geometry: Geometry) -> SalvagedBlocks {
        SalvagedBlocks {
            geometry,
            newest: HashMap::new(),
            by_slot: HashMap::new(),
            gaps: Vec::new(),
            doubts: HashSet::new(),
            done: Place::default(),
        }
    }

    fn gap(&mut self, unit: u32, pages: Range<u32>) {
        self.gaps.push(Gap { unit, pages });
    }

    /// Applies a record of the unit with this sequence number.
    fn apply(&mut self, sequence: u64, record: &Record) {
        let Record { kind, block, slot, crc } = *record;
        let content = match kind {
            // Records of regions only invalidate clean copies, which the backend has.
            Kind::Void | Kind::Unsure | Kind::Sure | Kind::ForgetRegion | Kind::EpochEnd | Kind::OrderBroken => return,
            Kind::EpochsDone => {
                self.done = self.geometry.place_up_to(sequence, slot).map_or(self.done, |done| done.max(self.done));
                return;
            }
            Kind::Clean | Kind::Dirty => {
                self.by_slot.insert(slot, block);
                let place = Place { sequence, page: slot % self.geometry.unit_pages };
                Content::Copy { slot, crc, place: (kind == Kind::Dirty).then_some(place) }
            }
            Kind::Forget => Content::Backend,
            Kind::Lost => Content::Lost,
            Kind::Destaged => return self.destaged(block, slot),
            Kind::UnitDestaged => {
                for at in slot - slot % self.geometry.unit_pages..=slot {
                    if let Some(&block) = self.by_slot.get(&at) {
                        self.destaged(block, at);
                    }
                }
                return;
            }
        };
        self.newest.insert(block, (content, self.gaps.len()));
    }

    /// Marks the copy of the block at `slot` as written back.
    fn destaged(&mut self, block: u32, slot: u32) {
        if let Some((Content::Copy { slot: newest, place, .. }, _)) = self.newest.get_mut(&block)
            && *newest == slot
        {
            *place = None;
        }
    }

    fn classify(self, volume_blocks: u32) -> Salvaged {
        let SalvagedBlocks { newest, gaps, doubts, done, .. } = self;
        let mut salvaged = Salvaged::default();
        // Blocks that are listed, or known for certain.
        let mut decided: Vec<u32> = Vec::new();
        for (block, (content, before)) in newest {
            let is_certain = before == gaps.len() && !doubts.contains(&block);
            match content {
                Content::Copy { slot, crc, place: Some(place) } if place >= done => {
                    let list = if is_certain { &mut salvaged.certain } else { &mut salvaged.uncertain };
                    list.push(BlockCopy { block, slot, crc });
                }
                Content::Lost => salvaged.lost.push(block),
                _ if is_certain => {}
                _ => continue,
            }
            decided.push(block);
        }
        salvaged.certain.sort_unstable_by_key(|copy| copy.block);
        salvaged.uncertain.sort_unstable_by_key(|copy| copy.block);
        salvaged.lost.sort_unstable();
        if gaps.is_empty() {
            assert!(doubts.is_empty(), "doubts come with gaps");
        } else {
            decided.sort_unstable();
            let mut free = 0;
            for block in decided.into_iter().chain([volume_blocks]).filter(|&block| block <= volume_blocks) {
                if free < block {
                    salvaged.unknown.push(free..block);
                }
                free = block.saturating_add(1);
            }
        }
        salvaged.gaps = gaps;
        salvaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The backend has the copies of done epochs, or something newer that passed the flash.
    #[test]
    fn copies_of_done_epochs_are_not_written_back_again() {
        let geometry = Geometry { units: 4, unit_pages: 16 };
        let (sequence, unit) = (5, geometry.unit_of(5));
        let record = |kind, block, page| Record { kind, block, slot: geometry.slot(unit, page), crc: 0 };
        let mut blocks = SalvagedBlocks::new(geometry);
        for (sequence, record) in [
            (sequence, record(Kind::Dirty, 7, 1)),
            (sequence, record(Kind::Dirty, 8, 3)),
            (sequence, record(Kind::EpochsDone, 0, 2)),
            // An earlier use of a unit is before all of it.
            (sequence, Record { slot: geometry.slot(geometry.unit_of(4), 9), ..record(Kind::EpochsDone, 0, 0) }),
        ] {
            blocks.apply(sequence, &record);
        }
        let salvaged = blocks.classify(100);
        assert_eq!(salvaged.certain.iter().map(|copy| copy.block).collect::<Vec<_>>(), [8]);
        assert_eq!((salvaged.uncertain, salvaged.unknown), (vec![], vec![]));
    }
}
