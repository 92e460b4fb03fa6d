//! Rebuilds the log from its records, newest first: the newest record of a block decides about its copy, or that it has
//! none.
//!
//! So each record needs one lookup of its block, and each block is inserted once. The records of a unit can be dropped
//! before the next is read. Marks come before the copies that they refer to, so they are kept until the older units are
//! reached.

use std::collections::{HashMap, HashSet};

use rustc_hash::FxBuildHasher;

use super::epochs::{Age, FoundEpochs};
use super::regions::Regions;
use crate::format::{Kind, Place, Record, Region};
use crate::layout::containers::Log;

/// Records whose blocks are prefetched together.
const BATCH: usize = 64;

/// Marks that copies on a unit were written back.
#[derive(Clone, Debug, Default)]
struct Marks {
    /// Slots, and the blocks whose copies were in them.
    copies: Vec<(u32, u32)>,
    /// All copies before this slot were written back.
    before: u32,
}

/// A log under reconstruction.
#[derive(Debug)]
pub(super) struct Rebuild {
    clean_from: Place,
    pub(super) log: Log,
    /// As [`Recovered::lost`](super::Recovered::lost).
    pub(super) lost: HashMap<u32, u64>,
    /// As [`Recovered::checksums`](super::Recovered::checksums).
    pub(super) checksums: Vec<u32>,
    /// Blocks without a copy, according to a newer record.
    absent: HashSet<u32, FxBuildHasher>,
    /// By unit and [`Age`].
    marks: HashMap<u32, [Marks; 2]>,
    regions: Regions,
    epochs: Option<FoundEpochs>,
    /// As [`Recovered::dropped_blocks`](super::Recovered::dropped_blocks).
    pub(super) dropped_blocks: u64,
}

/// A unit whose records are being applied.
struct Unit {
    first_slot: u32,
    /// By page, the block whose copy was written there.
    blocks: Vec<Option<u32>>,
    /// By [`Age`] and page: true if a mark declares the copy written back.
    destaged: [Vec<bool>; 2],
    /// By [`Age`]: all copies before this slot were written back.
    before: [u32; 2],
}

impl Unit {
    fn new(first_slot: u32, pages: u32, records: &[Record], marks: [Marks; 2]) -> Unit {
        let mut blocks = vec![None; pages as usize];
        for record in records.iter().filter(|record| has_copy(record.kind)) {
            blocks[(record.slot - first_slot) as usize] = Some(record.block);
        }
        let mut unit =
            Unit { first_slot, blocks, destaged: [(); 2].map(|()| vec![false; pages as usize]), before: [0; 2] };
        for (age, Marks { copies, before }) in [Age::Late, Age::Early].into_iter().zip(marks) {
            unit.before[age as usize] = before;
            copies.into_iter().for_each(|(slot, block)| unit.note_destaged(slot, block, age));
        }
        unit
    }

    fn has(&self, slot: u32) -> bool {
        slot.checked_sub(self.first_slot).is_some_and(|page| (page as usize) < self.blocks.len())
    }

    fn note_destaged(&mut self, slot: u32, block: u32, age: Age) {
        let page = (slot - self.first_slot) as usize;
        if self.blocks[page] == Some(block) {
            self.destaged[age as usize][page] = true;
        }
    }

    /// True if a mark declares the copy written back.
    fn is_destaged(&self, slot: u32, age: Age) -> bool {
        slot < self.before[age as usize] || self.destaged[age as usize][(slot - self.first_slot) as usize]
    }
}

fn has_copy(kind: Kind) -> bool {
    matches!(kind, Kind::Clean | Kind::Dirty)
}

impl Rebuild {
    /// Starts with the empty `log`, in which clean copies are valid from a place on.
    /// `epochs` is as in [`Superblock::epochs`](crate::format::Superblock::epochs).
    pub(super) fn new(log: Log, clean_from: Place, epochs: Option<Place>) -> Rebuild {
        let checksums = vec![0; log.geometry().pages() as usize];
        Rebuild {
            clean_from,
            log,
            lost: HashMap::new(),
            checksums,
            absent: HashSet::default(),
            marks: HashMap::new(),
            regions: Regions::default(),
            epochs: epochs.map(FoundEpochs::new),
            dropped_blocks: 0,
        }
    }

    /// Applies the records of a unit, older than all units before. Their slots are in the unit, and each occurs once.
    pub(super) fn apply(&mut self, sequence: u64, records: &[Record]) {
        let geometry = self.log.geometry();
        let number = geometry.unit_of(sequence);
        let marks = self.marks.remove(&number).unwrap_or_default();
        let mut unit = Unit::new(geometry.slot(number, 0), geometry.unit_pages, records, marks);
        let early = self.early_records(sequence, records);
        let mut end = records.len();
        for batch in records.rchunks(BATCH) {
            batch.iter().for_each(|record| self.log.prefetch(record.block));
            for record in batch.iter().rev() {
                end -= 1;
                let age = if end < early { Age::Early } else { Age::Late };
                if record.kind.is_of_epoch()
                    && let Some(epochs) = &mut self.epochs
                {
                    let last = records[..end].iter().rfind(|record| has_copy(record.kind));
                    let place = Place { sequence, page: last.map_or(0, |last| last.slot % geometry.unit_pages + 1) };
                    match record.kind {
                        Kind::EpochEnd => epochs.ends(place, record),
                        Kind::OrderBroken => epochs.broken(place, record.block),
                        _ => epochs.broken(place, 0),
                    }
                }
                self.apply_record(&mut unit, sequence, record, age);
            }
        }
    }

    /// Returns how many of a unit's records come before the place from which clean copies are valid. If only marks
    /// follow it in its unit, a later place is assumed, which costs only copies that the backend also has.
    fn early_records(&self, sequence: u64, records: &[Record]) -> usize {
        let pages = self.log.geometry().unit_pages;
        let is_behind = |record: &Record| record.kind.has_data() && record.slot % pages >= self.clean_from.page;
        match sequence.cmp(&self.clean_from.sequence) {
            std::cmp::Ordering::Less => records.len(),
            std::cmp::Ordering::Equal => records.iter().position(is_behind).unwrap_or(records.len()),
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// Finishes after all records: drops clean copies of unsure regions, wherever their records are.
    pub(super) fn finish(&mut self) {
        if let Some(epochs) = self.epochs.take().and_then(FoundEpochs::finish) {
            self.log.set_epochs(epochs);
        }
        let unsure = self.regions.unsure();
        if unsure.is_empty() {
            return;
        }
        for sequence in self.log.sequences() {
            for (block, slot) in self.log.blocks_in(sequence) {
                if !self.log.is_dirty(slot) && self.regions.is_unsure(block) {
                    self.log.drop_slot(block, slot);
                    self.dropped_blocks += 1;
                }
            }
        }
        self.log.forget_first(unsure);
    }

    fn apply_record(&mut self, unit: &mut Unit, sequence: u64, record: &Record, age: Age) {
        let Record { kind, block, slot, crc } = *record;
        match kind {
            Kind::Void => {}
            Kind::Clean | Kind::Dirty => {
                self.checksums[slot as usize] = crc;
                let place = Place { sequence, page: slot % self.log.geometry().unit_pages };
                let is_done = |age| {
                    unit.is_destaged(slot, age) || self.epochs.as_ref().is_some_and(|epochs| epochs.is_done(place, age))
                };
                let was_clean = kind == Kind::Clean || is_done(Age::Early);
                let is_dirty = !was_clean && !is_done(Age::Late);
                let is_kept = self.epochs.as_mut().is_some_and(|epochs| epochs.is_kept(block, place, is_dirty));
                if self.is_decided(block) {
                    if is_kept {
                        self.log.restore_kept(block, slot);
                    }
                    return;
                }
                match age {
                    Age::Early if was_clean => {
                        self.absent.insert(block);
                    }
                    _ if !is_dirty && self.regions.is_forgotten(block) => {
                        self.absent.insert(block);
                        self.dropped_blocks += 1;
                    }
                    _ => self.log.restore(block, slot, is_dirty),
                }
            }
            Kind::Forget | Kind::Lost => {
                if let Some(epochs) = &mut self.epochs {
                    epochs.is_kept(block, Place { sequence, page: 0 }, kind == Kind::Lost);
                }
                if !self.is_decided(block) {
                    self.absent.insert(block);
                    if kind == Kind::Lost {
                        self.lost.insert(block, sequence);
                    }
                }
            }
            Kind::Destaged if unit.has(slot) => unit.note_destaged(slot, block, age),
            Kind::Destaged => self.marks_on(slot, |marks| marks[age as usize].copies.push((slot, block))),
            Kind::UnitDestaged => {
                let raise = |before: &mut u32| *before = (*before).max(slot.saturating_add(1));
                if unit.has(slot) {
                    raise(&mut unit.before[age as usize]);
                } else {
                    self.marks_on(slot, |marks| raise(&mut marks[age as usize].before));
                }
            }
            Kind::EpochEnd | Kind::OrderBroken => {}
            Kind::EpochsDone => {
                let place = self.log.geometry().place_up_to(sequence, slot);
                if let (Some(epochs), Some(place)) = (&mut self.epochs, place) {
                    epochs.done(place, record, age);
                }
            }
            Kind::Unsure | Kind::Sure | Kind::ForgetRegion => {
                self.regions.note(kind, Region { first: block, blocks: slot });
            }
        }
    }

    /// True if a newer record of the block was applied.
    fn is_decided(&self, block: u32) -> bool {
        self.log.find(block).is_some() || self.absent.contains(&block)
    }

    /// Stores a mark for the unit of `slot`, to be used when that unit is applied, if it is older.
    fn marks_on(&mut self, slot: u32, note: impl FnOnce(&mut [Marks; 2])) {
        if slot < self.log.geometry().pages() {
            note(self.marks.entry(slot / self.log.geometry().unit_pages).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::format::Geometry;
    use crate::layout::containers::Head;

    const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };
    const HEAD: u64 = 19;
    const TAIL: u64 = 13;
    const BLOCKS: u32 = 25;

    /// The contents of a log: slot and dirty flag by block, and lost blocks with the unit that records them.
    type Held = (BTreeMap<u32, (u32, bool)>, BTreeMap<u32, u64>);

    /// Applies the records in the order of writing, oldest first.
    fn oldest_first(units: &[(u64, Vec<Record>)], clean_from: Place) -> (Held, Vec<u32>) {
        let (mut copies, mut lost) = Held::default();
        let mut before = units[0].0 <= clean_from.sequence;
        // By block.
        let mut unsure = [false; BLOCKS as usize];
        let mut forgotten: [HashSet<u32>; BLOCKS as usize] = Default::default();
        let region = |record: &Record| {
            let blocks = if record.slot == 0 { BLOCKS } else { record.slot };
            let first = record.block / blocks * blocks;
            first as usize..(first + blocks).min(BLOCKS) as usize
        };
        for (sequence, records) in units {
            for record in records {
                let place = (*sequence, record.slot % GEOMETRY.unit_pages);
                let is_data_behind = record.kind.has_data() && place >= (clean_from.sequence, clean_from.page);
                if before && (*sequence > clean_from.sequence || is_data_behind) {
                    copies.retain(|_, (_, dirty)| *dirty);
                    before = false;
                }
                let Record { kind, block, slot, .. } = *record;
                match kind {
                    Kind::Void => {}
                    Kind::Clean | Kind::Dirty => {
                        lost.remove(&block);
                        copies.insert(block, (slot, kind == Kind::Dirty));
                    }
                    Kind::Forget => {
                        lost.remove(&block);
                        copies.remove(&block);
                    }
                    Kind::Destaged => {
                        if let Some((at, dirty)) = copies.get_mut(&block)
                            && *at == slot
                        {
                            *dirty = false;
                        }
                    }
                    Kind::UnitDestaged => {
                        let first = slot / GEOMETRY.unit_pages * GEOMETRY.unit_pages;
                        let on_unit = copies.values_mut().filter(|(at, _)| (first..=slot).contains(at));
                        on_unit.for_each(|(_, dirty)| *dirty = false);
                    }
                    Kind::Lost => {
                        copies.remove(&block);
                        lost.insert(block, *sequence);
                    }
                    Kind::EpochEnd | Kind::EpochsDone | Kind::OrderBroken => unreachable!("crash tests cover epochs"),
                    Kind::Unsure => unsure[region(record)].fill(true),
                    Kind::Sure => unsure[region(record)].fill(false),
                    Kind::ForgetRegion => {
                        unsure[region(record)].fill(false);
                        let slots = copies.values().map(|(slot, _)| *slot);
                        forgotten[region(record)].iter_mut().for_each(|forgotten| forgotten.extend(slots.clone()));
                    }
                }
            }
        }
        if before {
            copies.retain(|_, (_, dirty)| *dirty);
        }
        copies.retain(|&block, (slot, dirty)| {
            *dirty || !(unsure[block as usize] || forgotten[block as usize].contains(slot))
        });
        let unsure = (0..BLOCKS).filter(|&block| unsure[block as usize]).collect();
        ((copies, lost), unsure)
    }

    fn newest_first(units: &[(u64, Vec<Record>)], clean_from: Place) -> (Held, HashSet<u32>) {
        let head = Head { sequence: HEAD, end: 14, previous_end: 14, records: Vec::new() };
        let mut rebuild = Rebuild::new(Log::continued(GEOMETRY, TAIL, &head), clean_from, None);
        for (sequence, records) in units.iter().rev() {
            rebuild.apply(*sequence, records);
        }
        rebuild.finish();
        rebuild.log.check();
        let copy = |block| {
            let slot = rebuild.log.find(block).expect("a block of the log has a copy");
            (block, (slot, rebuild.log.is_dirty(slot)))
        };
        let unsure = rebuild.regions.unsure().into_iter().flat_map(|Region { first, blocks }| match blocks {
            0 => 0..BLOCKS,
            _ => first..(first + blocks).min(BLOCKS),
        });
        let held = (rebuild.log.blocks().into_iter().map(copy).collect(), rebuild.lost.into_iter().collect());
        (held, unsure.collect())
    }

    /// Returns a number below `end`, from a linear congruential generator.
    fn random(state: &mut u64, end: u32) -> u32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as u32 % end
    }

    /// Returns records of a unit in any valid order, with marks of any slot.
    fn records(state: &mut u64, sequence: u64) -> Vec<Record> {
        let mut page = 1;
        let mut records = Vec::new();
        for _ in 0..random(state, 20) {
            let kinds = [
                Kind::Void,
                Kind::Clean,
                Kind::Clean,
                Kind::Dirty,
                Kind::Dirty,
                Kind::Dirty,
                Kind::Forget,
                Kind::Destaged,
                Kind::Destaged,
                Kind::Lost,
                Kind::UnitDestaged,
                [Kind::Unsure, Kind::Unsure, Kind::Sure, Kind::ForgetRegion][random(state, 4) as usize],
            ];
            let kind = kinds[random(state, kinds.len() as u32) as usize];
            let block = random(state, BLOCKS);
            // Some marks name a slot beyond the device.
            let mut slot = random(state, GEOMETRY.pages() + 2);
            if kind.is_of_region() {
                // Few concern the whole volume.
                slot = [4, 4, 4, 10, 10, 0][random(state, 6) as usize];
            }
            if kind.has_data() {
                page += random(state, 2);
                slot = GEOMETRY.slot(GEOMETRY.unit_of(sequence), page);
                page += 1;
            }
            if kind.has_data() && page > 14 {
                break;
            }
            records.push(Record { kind, block, slot, crc: slot });
        }
        records
    }

    /// Makes marks name the block and the slot of a copy, as a server's do; random slots seldom match.
    fn make_marks_right(state: &mut u64, units: &mut [(u64, Vec<Record>)]) {
        let copies: Vec<Record> =
            units.iter().flat_map(|(_, records)| records).filter(|record| has_copy(record.kind)).copied().collect();
        for record in units.iter_mut().flat_map(|(_, records)| records) {
            if record.kind == Kind::Destaged && !copies.is_empty() && random(state, 4) > 0 {
                let copy = copies[random(state, copies.len() as u32) as usize];
                (record.block, record.slot) = (copy.block, copy.slot);
            }
        }
    }

    #[test]
    fn newest_first_and_oldest_first_agree() {
        let mut state = 1;
        let (mut copies, mut dirty, mut lost, mut all_unsure) = (0, 0, 0, 0);
        for case in 0..20_000 {
            let mut units: Vec<(u64, Vec<Record>)> =
                (TAIL..=HEAD).map(|sequence| (sequence, records(&mut state, sequence))).collect();
            make_marks_right(&mut state, &mut units);
            let sequence = [0, u64::from(random(&mut state, 12)) + TAIL - 2][case % 2];
            let clean_from = Place { sequence, page: random(&mut state, 16) };
            let (expected, unsure) = oldest_first(&units, clean_from);
            let (found, found_unsure) = newest_first(&units, clean_from);
            assert_eq!(found, expected, "case {case}: {clean_from:?}, {units:?}");
            // A block made sure by a record of another region size may still be found unsure: that costs only clean
            // copies.
            assert!(
                unsure.iter().all(|block| found_unsure.contains(block)),
                "case {case}: {unsure:?}, {found_unsure:?}"
            );
            all_unsure += unsure.len();
            copies += expected.0.len();
            dirty += expected.0.values().filter(|(_, dirty)| *dirty).count();
            lost += expected.1.len();
        }
        let enough = dirty > 10_000 && copies - dirty > 10_000 && lost > 10_000 && all_unsure > 10_000;
        assert!(enough, "{copies} {dirty} {lost} {all_unsure}");
    }
}
