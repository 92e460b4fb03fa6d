//! The epochs of a log, found in its records, newest first.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::epochs::{Epoch, Epochs};
use crate::format::{Place, Record, Superblock};

/// The age of a mark: before the place from which clean copies are valid, or after it.
#[derive(Clone, Copy)]
pub(super) enum Age {
    Late,
    Early,
}

/// Stands for no epoch: the backend has the block, or something newer.
const NONE: u32 = u32::MAX;

/// The epochs found so far.
#[derive(Debug)]
pub(super) struct FoundEpochs {
    /// Before this place, only records of done epochs count.
    from: Place,
    /// Those that have ended, newest first.
    ended: Vec<Epoch>,
    /// By [`Age`]: the end of those that are done.
    done: [Place; 2],
    /// The time since 1970 of the later one; 0 if it is unknown.
    done_unix_us: u64,
    /// The time in seconds since 1970 when the order was broken, or 0 if it is good, according to the newest record.
    broken: Option<u32>,
    /// By block: the epoch of the oldest version found so far, by the number of epochs that ended after it.
    oldest: HashMap<u32, u32, FxBuildHasher>,
}

impl FoundEpochs {
    /// Starts without epochs. Ends and breaks count from a place on. Records of done epochs always count, because their
    /// copies have no other marks.
    pub fn new(from: Place) -> FoundEpochs {
        FoundEpochs {
            from,
            ended: Vec::new(),
            done: [Place::default(); 2],
            done_unix_us: 0,
            broken: None,
            oldest: HashMap::default(),
        }
    }

    /// Notes a record that an epoch ends, after the pages before a place.
    pub fn ends(&mut self, end: Place, record: &Record) {
        if end >= self.from {
            let ended_unix_us = u64::from(record.block) * 1_000_000 + u64::from(record.slot) * 1_000;
            self.ended.push(Epoch { end, begun_us: 0, ended_unix_us, flushes: 0 });
        }
    }

    /// Notes a record that epochs before a place are done. It has the time of that place.
    pub fn done(&mut self, place: Place, record: &Record, age: Age) {
        if self.done.iter().all(|done| place > *done) {
            self.done_unix_us = u64::from(record.block) * 1_000_000;
        }
        let done = &mut self.done[age as usize];
        *done = place.max(*done);
    }

    /// Notes a record after the pages before a place, which says since when the order is broken: 0 if it is good.
    pub fn broken(&mut self, place: Place, since: u32) {
        if place >= self.from {
            self.broken.get_or_insert(since);
        }
    }

    /// True if the dirty copy at a place was written back.
    pub fn is_done(&self, place: Place, age: Age) -> bool {
        place < self.done[age as usize]
    }

    /// Notes a version of a block that is older than all of it before. Returns true if the backend needs it although it
    /// is not the newest: it `is_dirty` and the next version belongs to a later epoch.
    pub fn is_kept(&mut self, block: u32, place: Place, is_dirty: bool) -> bool {
        if self.from == Superblock::NO_EPOCHS || self.done.iter().any(|done| place < *done) {
            return false;
        }
        let epoch = if is_dirty { self.ended.len() as u32 } else { NONE };
        let newer = self.oldest.insert(block, epoch);
        let is_kept = is_dirty && place >= self.from && newer.is_some_and(|newer| newer != NONE && newer != epoch);
        if newer == Some(NONE) {
            self.oldest.insert(block, NONE);
        }
        is_kept
    }

    /// Returns the epochs that the backend lacks, if data was written back in order.
    pub fn finish(self) -> Option<Epochs> {
        if self.from == Superblock::NO_EPOCHS {
            return None;
        }
        let [late, early] = self.done;
        let mut epochs = Epochs::found(self.from, (late.max(early), self.done_unix_us), self.ended.into_iter().rev());
        if let Some(since) = self.broken.filter(|since| *since > 0) {
            epochs.break_order(None, u64::from(since) * 1_000_000, Place::default());
        }
        Some(epochs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::rebuild::Rebuild;
    use super::*;
    use crate::format::{Geometry, Kind};
    use crate::layout::containers::{Head, Log};

    const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };
    const TAIL: u64 = 13;
    const HEAD: u64 = 19;
    const FIRST: Place = Place { sequence: 0, page: 0 };

    type Units = Vec<(u64, Vec<Record>)>;

    fn place(sequence: u64, page: u32) -> Place {
        Place { sequence, page }
    }

    fn slot(sequence: u64, page: u32) -> u32 {
        GEOMETRY.slot(GEOMETRY.unit_of(sequence), page)
    }

    fn dirty(block: u32, sequence: u64, page: u32) -> Record {
        Record { kind: Kind::Dirty, block, slot: slot(sequence, page), crc: 0 }
    }

    fn end(seconds: u32) -> Record {
        Record { kind: Kind::EpochEnd, block: seconds, slot: 0, crc: 0 }
    }

    fn done(slot: u32) -> Record {
        Record { kind: Kind::EpochsDone, block: 0, slot, crc: 0 }
    }

    /// Recovers a log whose last units have these records. Returns the epochs, and the places of kept versions.
    fn recover(units: &Units, from: Option<Place>) -> (Option<Epochs>, BTreeSet<Place>) {
        let (_, epochs, kept) = rebuild(units, from);
        (epochs, kept)
    }

    fn rebuild(units: &Units, from: Option<Place>) -> (Log, Option<Epochs>, BTreeSet<Place>) {
        let head = Head { sequence: HEAD, end: 14, previous_end: 14, records: Vec::new() };
        let mut rebuild = Rebuild::new(Log::continued(GEOMETRY, TAIL, &head), FIRST, from);
        units.iter().rev().for_each(|(sequence, records)| rebuild.apply(*sequence, records));
        rebuild.finish();
        rebuild.log.check();
        let places = (TAIL..=HEAD).flat_map(|sequence| (0..16).map(move |page| place(sequence, page)));
        let kept = places.filter(|at| rebuild.log.is_kept(slot(at.sequence, at.page))).collect();
        let epochs = rebuild.log.take_epochs();
        (rebuild.log, epochs, kept)
    }

    fn recover_head(records: Vec<Record>) -> (Epochs, BTreeSet<Place>) {
        let (epochs, kept) = recover(&vec![(HEAD, records)], Some(FIRST));
        (epochs.expect("records of epochs count"), kept)
    }

    #[test]
    fn the_version_of_each_epoch_is_kept_until_its_end_is_missing() {
        let (first, second) = (dirty(7, HEAD, 1), dirty(7, HEAD, 3));
        let (epochs, kept) = recover_head(vec![first, end(5), second, end(6), dirty(7, HEAD, 5)]);
        assert_eq!((epochs.unfinished(), epochs.last()), (2, place(HEAD, 4)));
        assert_eq!(kept, BTreeSet::from([place(HEAD, 1), place(HEAD, 3)]));
        // A crash lost the record: both versions are of one epoch.
        let (epochs, kept) = recover_head(vec![first, second, end(6), dirty(7, HEAD, 5)]);
        assert_eq!((epochs.unfinished(), epochs.oldest().map(|it| it.ended_unix_us)), (1, Some(6_000_000)));
        assert_eq!(kept, BTreeSet::from([place(HEAD, 3)]));
        // A copy that moved forward is of the epoch that is open.
        let (epochs, kept) = recover_head(vec![first, second]);
        assert_eq!((epochs.unfinished(), kept.len()), (0, 0));
    }

    #[test]
    fn epochs_may_be_done_before_their_end_is_recorded() {
        let records = vec![dirty(7, HEAD, 1), end(5), dirty(7, HEAD, 3), done(slot(HEAD, 4)), dirty(7, HEAD, 5)];
        let (epochs, kept) = recover_head(records);
        assert_eq!((epochs.unfinished(), epochs.done(), epochs.last()), (0, place(HEAD, 4), place(HEAD, 4)));
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn a_record_of_done_epochs_names_the_last_use_of_a_unit_and_wrong_ones_name_none() {
        let units = |slot: u32| -> Units {
            let versions = [dirty(7, TAIL, 1), dirty(7, TAIL, 3)];
            vec![(TAIL, vec![versions[0], end(5), versions[1], end(6)]), (HEAD, vec![dirty(7, HEAD, 1), done(slot)])]
        };
        // Unit 10 was used for sequence number 10 before it was reset, and is free now.
        for (slot, unfinished, expected) in [
            (slot(TAIL, 2), 1, place(TAIL, 2)),
            (slot(TAIL, 4), 0, place(TAIL, 4)),
            (slot(20, 4), 2, place(10, 4)),
            (4, 2, FIRST),
            (GEOMETRY.pages(), 2, FIRST),
            (u32::MAX, 2, FIRST),
        ] {
            let (epochs, kept) = recover(&units(slot), Some(FIRST));
            let epochs = epochs.unwrap();
            assert_eq!((epochs.unfinished(), epochs.done(), kept.len()), (unfinished, expected, unfinished), "{slot}");
        }
    }

    #[test]
    fn the_order_is_broken_unless_epochs_were_done_since() {
        let since = |records: Vec<Record>, from| {
            let (epochs, _) = recover(&vec![(HEAD, records)], Some(from));
            epochs.unwrap().broken().map(|broken| broken.since_unix_us)
        };
        let (good, bad) = (done(slot(HEAD, 2)), Record { kind: Kind::OrderBroken, block: 5, slot: 0, crc: 0 });
        let data = dirty(7, HEAD, 1);
        assert_eq!(since(vec![data, bad], FIRST), Some(5_000_000));
        assert_eq!(since(vec![data, bad, good], FIRST), None);
        assert_eq!(since(vec![data, good, bad], FIRST), Some(5_000_000));
        assert_eq!(since(vec![data, bad], place(HEAD, 3)), None, "the order began later");
    }

    #[test]
    fn records_before_the_order_began_do_not_count_and_older_formats_have_none() {
        let units: Units = vec![(HEAD, vec![dirty(7, HEAD, 1), end(5), dirty(7, HEAD, 3), end(6), dirty(7, HEAD, 5)])];
        let (epochs, kept) = recover(&units, Some(place(HEAD, 3)));
        let epochs = epochs.unwrap();
        assert_eq!((epochs.unfinished(), kept), (1, BTreeSet::from([place(HEAD, 3)])));
        assert_eq!(recover(&units, None), (None, BTreeSet::new()));
    }

    /// Nothing else marks the copies of done epochs. If they became dirty again, they would replace newer data.
    #[test]
    fn done_epochs_stay_done_after_the_order_ended() {
        for from in [FIRST, Superblock::NO_EPOCHS] {
            let records = vec![dirty(7, HEAD, 1), done(slot(HEAD, 2)), dirty(8, HEAD, 3)];
            let (log, epochs, _) = rebuild(&vec![(HEAD, records)], Some(from));
            let is_dirty = [7, 8].map(|block| log.is_dirty(log.find(block).expect("a copy")));
            assert_eq!((is_dirty, epochs.is_some()), ([false, true], from == FIRST), "{from:?}");
        }
    }

    /// A version of a block, oldest first. Of data that the backend has, or will have, nothing older counts.
    struct Version {
        place: Place,
        epoch: usize,
        kind: Kind,
    }

    /// Finds epochs and kept versions in the order of writing.
    fn oldest_first(units: &Units, from: Place) -> (Vec<Place>, Place, BTreeSet<Place>) {
        let (mut ends, mut all_done, mut number) = (Vec::new(), FIRST, 0);
        let mut versions: HashMap<u32, Vec<Version>> = HashMap::new();
        for (sequence, records) in units {
            let mut page = 0;
            for record in records {
                let at = place(*sequence, record.slot % 16);
                match record.kind {
                    Kind::EpochEnd if place(*sequence, page) >= from => {
                        ends.push(place(*sequence, page));
                        number += 1;
                    }
                    Kind::EpochEnd => {}
                    Kind::EpochsDone => {
                        let unit = u64::from(record.slot / 16);
                        let of_unit = |at: &u64| u64::from(GEOMETRY.unit_of(*at)) == unit;
                        let last = (1..=*sequence).rev().find(of_unit);
                        all_done = last.map_or(all_done, |last| all_done.max(place(last, record.slot % 16)));
                    }
                    kind => {
                        let has_page = matches!(kind, Kind::Clean | Kind::Dirty);
                        let place = if has_page { at } else { place(*sequence, 0) };
                        page = if has_page { at.page + 1 } else { page };
                        versions.entry(record.block).or_default().push(Version { place, epoch: number, kind });
                    }
                }
            }
        }
        let mut kept = BTreeSet::new();
        for versions in versions.into_values() {
            let mut newer: Option<usize> = None;
            for Version { place, epoch, kind } in versions.into_iter().rev().filter(|it| it.place >= all_done) {
                if kind == Kind::Dirty && place >= from && newer.is_some_and(|newer| newer != epoch) {
                    kept.insert(place);
                }
                if kind != Kind::Dirty {
                    break;
                }
                newer = Some(epoch);
            }
        }
        ends.retain(|end| *end > all_done);
        (ends, all_done, kept)
    }

    /// Returns a number below `end`, from a linear congruential generator.
    fn random(state: &mut u64, end: u32) -> u32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as u32 % end
    }

    fn records(state: &mut u64, sequence: u64) -> Vec<Record> {
        let (mut page, mut records) = (1, Vec::new());
        while page < 14 && random(state, 30) > 0 {
            let block = random(state, 6);
            records.push(match random(state, 24) {
                0 => Record { kind: Kind::Clean, ..dirty(block, sequence, page) },
                1..7 => end(block),
                7 if random(state, 3) == 0 => {
                    // Seldom of no unit of the log. Servers name a place before the record.
                    let of = sequence - u64::from(random(state, 4));
                    let end = if of == sequence { page } else { 16 };
                    let right = slot(of, random(state, end));
                    done([right, right, right, 4, GEOMETRY.pages(), u32::MAX][random(state, 6) as usize])
                }
                _ => dirty(block, sequence, page),
            });
            page += u32::from(records.last().is_some_and(|record| record.kind.has_data()));
        }
        records
    }

    #[test]
    fn newest_first_and_oldest_first_agree_on_epochs() {
        let (mut state, mut all_kept, mut all_ends) = (1, 0, 0);
        for case in 0..20_000 {
            let units: Units = (TAIL..=HEAD).map(|sequence| (sequence, records(&mut state, sequence))).collect();
            let sequence = [0, TAIL + u64::from(random(&mut state, 7))][case % 2];
            let from = place(sequence, random(&mut state, 16));
            let (ends, all_done, kept) = oldest_first(&units, from);
            let (found, found_kept) = recover(&units, Some(from));
            let mut found = found.expect("records of epochs count");
            assert_eq!((found.done(), &found_kept), (all_done, &kept), "case {case}: {from:?}, {units:?}");
            let mut found_ends = Vec::new();
            while let Some(oldest) = found.oldest() {
                found_ends.push(oldest.end);
                found.finish_oldest();
            }
            assert_eq!(found_ends, ends, "case {case}: {from:?}, {units:?}");
            (all_kept, all_ends) = (all_kept + kept.len(), all_ends + ends.len());
        }
        assert!(all_kept > 10_000 && all_ends > 10_000, "{all_kept} kept, {all_ends} ends");
    }
}
