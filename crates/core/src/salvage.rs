//! Salvage: what is still known of a log that cannot be recovered, and what of it is certain.
//!
//! Source: our own. Recovery refuses a log in which records are missing. Salvage looks at every page of metadata, mends those of which
//! one bit is wrong, and puts the segments that are left in their order. Where records are unknown there is a gap, which may hold any
//! record of any block. So a block is certain only if its newest known record lies behind the last gap. Of the others an older copy
//! may be known, or nothing.
//!
//! What counts as certain must be a part of the log, and not something that an earlier run left behind its end: it is joined to a place
//! up to which the log is known to reach by segments that follow each other, with epochs that do not fall, and one of the data pages
//! of each segment is what its header says. What lies between two gaps is used for copies that are not certain.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::checksum;
use crate::format::{BLOCK_BYTES, Geometry, Header, Kind, MetadataPage, Page, Record, Role, decode_metadata};
use crate::mending::Mending;
use crate::recovery::{Footer, Known, are_in_order, belongs, footer_of, is_witness, page_of};

/// A segment whose header can be read.
#[derive(Clone, Debug)]
struct Segment {
    header: Header,
    records: Vec<Record>,
    /// Whether all of its data is right.
    is_whole: bool,
    /// Whether some of it is, if it has any: the header belongs to what follows it.
    is_likely: bool,
}

impl Segment {
    fn next(&self) -> u32 {
        self.header.page + 1 + self.header.data_pages
    }

    /// Where the segment before it ends.
    fn begins(&self) -> u32 {
        self.header.page - self.header.skipped
    }
}

/// What can be read of the metadata of an erase unit.
#[derive(Clone, Debug)]
pub struct UnitRemains {
    segments: Vec<Segment>,
    footer: Option<Footer>,
    /// Pages of which one bit was wrong.
    pub mended: u32,
}

impl UnitRemains {
    /// Reads all of a unit of the cache whose tag is `cache`, and mends it in `bytes`.
    pub fn new(geometry: Geometry, cache: u64, unit: u32, bytes: &mut [u8], mending: &Mending) -> UnitRemains {
        let end = geometry.segments_end();
        let mut remains = UnitRemains { segments: Vec::new(), footer: None, mended: 0 };
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
            let found = page_of(bytes, page);
            let metadata = match decode_metadata(role, found) {
                Ok(metadata) => Some(metadata).filter(|metadata| fits(role, page, metadata)),
                Err(_) => mending.metadata(role, found).filter(|(_, metadata)| fits(role, page, metadata)).map(
                    |(mended, metadata)| {
                        remains.mended += 1;
                        bytes[page as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&mended);
                        metadata
                    },
                ),
            };
            if let Some(MetadataPage { header, records }) = metadata.filter(|_| role == Role::Segment) {
                let (right, wrong) = compare(geometry, &records, bytes);
                let (is_whole, is_likely) = (wrong == 0, right > 0 || wrong == 0);
                remains.segments.push(Segment { header, records, is_whole, is_likely });
            }
        }
        remains.footer = footer_of(geometry, cache, unit, &bytes[end as usize * BLOCK_BYTES..]);
        remains
    }

    /// Whether the unit holds anything of the cache.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.footer.is_none()
    }

    fn headers(&self) -> impl Iterator<Item = &Header> {
        self.segments.iter().map(|segment| &segment.header).chain(self.footer.iter().map(|(header, _)| header))
    }
}

/// How many data pages of a segment are right, and how many wrong.
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
    /// The device's page where the copy is.
    pub slot: u32,
    /// CRC32C of its data.
    pub crc: u32,
}

/// Pages of the log whose records are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The erase unit.
    pub unit: u32,
    /// Its pages: headers and data.
    pub pages: Range<u32>,
}

/// What is known of the blocks of a volume, each list in their order.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// Newest copies that the backend may not have.
    pub certain: Vec<BlockCopy>,
    /// The newest copies that are known of blocks that may have newer ones, or that the backend may have newer.
    pub uncertain: Vec<BlockCopy>,
    /// Blocks whose only copy was lost before.
    pub lost: Vec<u32>,
    /// Blocks of which nothing certain is known: one of the pages in a gap may hold the newest copy.
    pub unknown: Vec<Range<u32>>,
    /// Where records are missing.
    pub gaps: Vec<Gap>,
}

/// A unit's part of the log.
#[derive(Default)]
struct Part {
    unit: u32,
    before: Vec<Record>,
    gap: Option<Range<u32>>,
    after: Vec<Record>,
    /// Where the part ends, and in which epoch.
    end: u32,
    epoch: u64,
    tail: u64,
    previous_end: Option<u32>,
}

/// Puts together what remains of all units, unit 1 first. `end_is_known`: whether the cache is known to be the newest of its kind and
/// its log to end where it seems to; else nothing is certain.
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
    let mut blocks =
        Blocks { geometry, newest: HashMap::new(), by_slot: HashMap::new(), gaps: Vec::new(), doubts: HashSet::new() };
    let mut tail = newest.saturating_sub(u64::from(geometry.log_units()) - 1).max(1);
    let mut parts: Vec<Part> = Vec::new();
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
    for part in parts.iter().rev() {
        part.before.iter().for_each(|record| blocks.apply(record));
        if let Some(pages) = &part.gap {
            blocks.gap(part.unit, pages.clone());
        }
        part.after.iter().for_each(|record| blocks.apply(record));
    }
    // Where nothing is missing before, what was not whole at the end was never flushed, as far as anyone can tell.
    if !end_is_known || !blocks.gaps.is_empty() {
        blocks.doubts = behind_end.doubts;
        if behind_end.continues || !end_is_known {
            let (unit, from) = parts.first().map_or((1, 0), |head| (head.unit, head.end));
            blocks.gap(unit, from..geometry.segments_end());
        }
    }
    blocks.classify(volume_blocks)
}

/// Up to which page the newest unit is known to have been durable.
fn durable_end(geometry: Geometry, known: &Known, sequence: u64, remains: &UnitRemains) -> u32 {
    let of_unit = remains.headers().filter(|header| header.sequence == sequence);
    let told = of_unit.map(|header| header.durable_end).max().unwrap_or(0);
    let known = if known.durable.sequence == sequence { known.durable.page } else { 0 };
    told.max(known).min(geometry.segments_end())
}

/// The segments of a unit in order, up to `end` if it is known where they end; of the newest unit, up to where it was durable.
fn assemble(geometry: Geometry, sequence: u64, remains: &UnitRemains, end: Option<u32>, is_newest: bool) -> Part {
    let of_unit = |header: &Header| header.sequence == sequence;
    let newest = remains.headers().filter(|header| of_unit(header)).max_by_key(|header| header.epoch);
    let mut part = Part { previous_end: newest.map(|header| header.previous_end), ..Part::default() };
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
    let mut last: Vec<&Segment> = Vec::new();
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

/// The segments of a unit by where the ones before them end, without those that were skipped.
fn segments(sequence: u64, remains: &UnitRemains, previous_end: Option<u32>) -> BTreeMap<u32, &Segment> {
    let of_unit = remains.segments.iter().filter(|segment| segment.header.sequence == sequence);
    let belongs = of_unit.filter(|segment| Some(segment.header.previous_end) == previous_end);
    let mut by_begin: BTreeMap<u32, &Segment> = BTreeMap::new();
    for segment in belongs {
        if segment.header.skipped > 0 {
            by_begin.retain(|_, before| before.header.page < segment.begins());
        }
        by_begin.insert(segment.begins(), segment);
    }
    by_begin
}

/// What follows the end of the log and may have been a part of it.
#[derive(Default)]
struct Behind {
    /// Blocks of segments that are not whole.
    doubts: HashSet<u32>,
    /// Whether something follows that says that more was written.
    continues: bool,
}

/// Goes on behind what was durable, segment by segment as long as they are whole.
fn follow(geometry: Geometry, sequence: u64, remains: &UnitRemains, head: &mut Part) -> Behind {
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
            let of_blocks = segment.records.iter().filter(|it| it.kind != Kind::Void && !it.kind.is_of_region());
            behind.doubts.extend(of_blocks.map(|record| record.block));
        }
    }
    behind.continues = at < geometry.segments_end() && by_page.range(at..).any(|(_, it)| it.header.epoch >= head.epoch);
    behind
}

#[derive(Clone, Copy)]
enum Content {
    Copy { slot: u32, crc: u32, dirty: bool },
    Backend,
    Lost,
}

/// What the records say so far.
struct Blocks {
    geometry: Geometry,
    /// Of each block, the newest content, and how many gaps were before it.
    newest: HashMap<u32, (Content, usize)>,
    by_slot: HashMap<u32, u32>,
    gaps: Vec<Gap>,
    doubts: HashSet<u32>,
}

impl Blocks {
    fn gap(&mut self, unit: u32, pages: Range<u32>) {
        self.gaps.push(Gap { unit, pages });
    }

    fn apply(&mut self, record: &Record) {
        let Record { kind, block, slot, crc } = *record;
        let content = match kind {
            // Of regions only clean copies are said not to count, which the backend has.
            Kind::Void | Kind::Unsure | Kind::Sure | Kind::ForgetRegion => return,
            Kind::Clean | Kind::Dirty => {
                self.by_slot.insert(slot, block);
                Content::Copy { slot, crc, dirty: kind == Kind::Dirty }
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

    /// The copy of the block at `slot` was written back.
    fn destaged(&mut self, block: u32, slot: u32) {
        if let Some((Content::Copy { slot: newest, dirty, .. }, _)) = self.newest.get_mut(&block)
            && *newest == slot
        {
            *dirty = false;
        }
    }

    fn classify(self, volume_blocks: u32) -> Salvaged {
        let Blocks { newest, gaps, doubts, .. } = self;
        let mut salvaged = Salvaged::default();
        // Blocks that are listed, or known for certain.
        let mut told: Vec<u32> = Vec::new();
        for (block, (content, before)) in newest {
            let is_certain = before == gaps.len() && !doubts.contains(&block);
            match content {
                Content::Copy { slot, crc, dirty: true } => {
                    let list = if is_certain { &mut salvaged.certain } else { &mut salvaged.uncertain };
                    list.push(BlockCopy { block, slot, crc });
                }
                Content::Lost => salvaged.lost.push(block),
                _ if is_certain => {}
                _ => continue,
            }
            told.push(block);
        }
        salvaged.certain.sort_unstable_by_key(|copy| copy.block);
        salvaged.uncertain.sort_unstable_by_key(|copy| copy.block);
        salvaged.lost.sort_unstable();
        if gaps.is_empty() {
            assert!(doubts.is_empty(), "doubts come with gaps");
        } else {
            told.sort_unstable();
            let mut free = 0;
            for block in told.into_iter().chain([volume_blocks]).filter(|&block| block <= volume_blocks) {
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
