//! What the cache makes of steps that are done or failed: nothing is served that may be wrong, and what was lost is remembered as lost.

use super::LogCache;
use super::event::{Appending, Cache};
use super::lost::Lost;
use crate::format::{Kind as RecordKind, Record};
use crate::layout::containers::Segment;
use crate::step::{Frame, LogRecord, Step};

impl LogCache {
    /// A dirty block that cannot be read for now is listed until it can.
    pub(super) fn postponed(&mut self, step: &Step) {
        if let Step::ReadFlash { block, slot, dirty: true, .. } = *step {
            self.unreadable.insert(block, slot);
        }
    }

    pub(super) fn failed(&mut self, step: &Step, missing: bool) {
        match step {
            &Step::Receive { block, frame, .. }
            | &Step::Copy { block, to: frame, .. }
            | &Step::ReadBackend { block, frame } => self.frame_failed(block, frame),
            &Step::ReadFlash { block, frame, .. } => {
                // For now or for good.
                self.postponed(step);
                self.frame_failed(block, frame);
            }
            &Step::Send { block, frame, .. } => {
                if self.read_buffer.peek(block) == Some(frame) {
                    // It would be found there after the log has something else of the block again.
                    self.forget_read(block);
                }
                self.memory_unreadable(block, frame);
            }
            // What the log has of it counts.
            &Step::WriteBackend { logged: true, .. } => self.backend_refuses |= !missing,
            // The log has it still, on flash or in memory.
            &Step::WriteBackend { block, batch: Some(batch), .. } => {
                self.batches.get_mut(&batch).expect("a batch ends after its writes").failed.push(block);
                self.backend_refuses |= !missing;
            }
            &Step::WriteBackend { block, frame, acknowledged, replaces, .. } => {
                self.no_more_on_its_way(block);
                self.backend_refuses |= !missing;
                self.frame_failed(block, frame);
                if replaces || (acknowledged && !missing) {
                    self.backend_write_failed(block);
                    // What was kept was older than this.
                    if let (Some(lost), false) = (self.lost.get_mut(&block), missing) {
                        lost.kept = false;
                    }
                }
            }
            Step::ZeroBackend { replaces, .. } => {
                replaces.iter().for_each(|&block| self.backend_write_failed(block));
            }
            Step::Append(segment) => {
                self.flash_failed();
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    self.record_failed(record, segment.sequence);
                }
            }
            Step::FlushFlash { .. } | Step::ResetUnit { .. } | Step::Witness(_) => self.flash_failed(),
            &Step::FlushBackend { batch } => self.backend_flush_failed(batch.is_none()),
            &Step::Destaged { batch } => self.end_batch(batch, false),
            Step::Zero { .. } | Step::AwaitFlushes | Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
    }

    /// What the records of a segment say that is written now.
    pub(super) fn appending(&mut self, appending: Appending<'_>) {
        let Appending { segment, checksums, doubtful, records } = appending;
        let mut checksums = checksums.iter();
        for record in &segment.records {
            let LogRecord { mut kind, block, mut slot, .. } = *record;
            let mut crc = 0;
            if kind.has_data() {
                let found = checksums.next().expect("each record with data has a checksum");
                match found {
                    _ if self.is_not_found(record, segment.sequence, found.is_some()) => kind = RecordKind::Lost,
                    None => kind = self.data_missing(record, segment.sequence),
                    Some(found) => {
                        self.unwritten.remove(&(block, slot));
                        crc = *found;
                        if doubtful && kind == RecordKind::Clean {
                            kind = RecordKind::Dirty;
                            self.distrust(record, segment.sequence);
                        }
                    }
                }
            }
            if kind == RecordKind::UnitDestaged && !self.log.is_clean_up_to(slot) {
                // A copy came back meanwhile whose successor could not be read. Slot 0 means no copy.
                (kind, slot) = (RecordKind::Destaged, 0);
            }
            records.push(Record { kind, block, slot, crc });
        }
    }

    /// The content that `block` was to have in `frame` never came: a step that fills it failed.
    fn frame_failed(&mut self, block: u32, frame: Frame) {
        if self.read_buffer.peek(block) == Some(frame) {
            self.forget_read(block);
        }
        if self.write_buffer.get(block) == Some(frame) {
            self.write_buffer.remove(block);
            self.past.stays(block);
            self.frames.release(frame);
            if self.backend_lacks.remove(&block) {
                self.lost.entry(block).or_default();
            }
        }
        if let Some(slot) = self.log.find(block)
            && self.log.in_memory(slot) == Some(frame)
        {
            if self.log.is_dirty(slot) {
                // To be copied forward, and read by a client before: it is listed under the slot that it moves to.
                self.unreadable.insert(block, slot);
            } else {
                self.log.drop_slot(block, slot);
                self.log.policy_mut().remove(block);
            }
        }
    }

    /// The segment with `record` could not be written. What was copied forward is where it was. A dirty block is lost; what the flash has of
    /// it that the backend lacks may have been flushed, and still counts.
    fn record_failed(&mut self, record: &LogRecord, sequence: u64) {
        let LogRecord { block, slot, .. } = *record;
        let newest = self.log.is_newest(block, slot, sequence);
        let dirty = newest && self.log.is_dirty(slot);
        self.log.vacate(block, slot, sequence);
        let old = only_dirty(self.place_before(record, sequence));
        if !newest {
            self.unwritten.insert((block, slot), old);
            return;
        }
        self.log.policy_mut().remove(block);
        if !dirty {
            return;
        }
        // The flash failed, so that no unit is reset any more.
        let old = if record.is_copied() { record.old.map(|(old, _)| old) } else { old };
        let back = old.is_some_and(|old| self.log.bring_back(block, old, true, true));
        if !(record.is_copied() && back) {
            self.lost.entry(block).or_default().flushed |= old.is_some() && !back;
        }
    }

    /// The place of the block that `record` takes over, and whether that is dirty. A place whose own content never came is left out.
    fn place_before(&self, record: &LogRecord, sequence: u64) -> Option<(u32, bool)> {
        let (old, is_dirty) = match record.old {
            Some((old, true)) => {
                self.unwritten.get(&(record.block, old)).map_or(record.old, |before| Some(((*before)?, true)))?
            }
            old => old?,
        };
        let written_back = (record.block, old, self.log.sequence_before(old, sequence));
        Some((old, is_dirty && !self.replaced.contains(&written_back)))
    }

    /// The data of `record` never came: it could not be read. Returns what is recorded in its place in the unit of `sequence`.
    ///
    /// No acknowledged write is in such data: a write into a frame whose old content did not come fails.
    fn data_missing(&mut self, record: &LogRecord, sequence: u64) -> RecordKind {
        let LogRecord { kind, block, slot, .. } = *record;
        let old = self.place_before(record, sequence);
        let current = self.drop_copy(record, sequence);
        if !current && kind == RecordKind::Dirty && !record.is_copied() {
            self.unwritten.insert((block, slot), only_dirty(old));
        }
        match old {
            _ if kind == RecordKind::Clean => RecordKind::Void,
            // What follows may fail too.
            Some((old, true)) if !current && !record.is_copied() && self.log.holds(block, old) => RecordKind::Void,
            Some((old, dirty)) if current && !record.is_copied() && self.log.bring_back(block, old, dirty, false) => {
                RecordKind::Void
            }
            // Without the write that failed, the backend has it, unless one before it failed there.
            None | Some((_, false)) if !(current && self.backend_lacks.remove(&block)) => RecordKind::Forget,
            _ => {
                if current {
                    self.lost.entry(block).or_default().said = Some(sequence);
                }
                RecordKind::Lost
            }
        }
    }

    /// A segment is not written, and the data of some of its records never came: the clients' writes failed, so that each block is what it
    /// was before.
    pub(super) fn never_came(&mut self, segment: &Segment, records: &[u32]) {
        for &number in records {
            let record = &segment.records[number as usize];
            // A copy is where it was: that is found out as of any segment that fails.
            if record.is_copied() || !self.drop_copy(record, segment.sequence) {
                continue;
            }
            let LogRecord { block, .. } = *record;
            let old = self.place_before(record, segment.sequence);
            match old {
                Some((old, dirty)) if self.log.bring_back(block, old, dirty, true) => {}
                None | Some((_, false)) if !self.backend_lacks.remove(&block) => {}
                _ => self.lost.entry(block).or_default().flushed |= old.is_some_and(|(_, dirty)| dirty),
            }
        }
    }

    /// What `record` was to put into the unit of `sequence` is not there. Returns whether it was what is newest of the block.
    pub(super) fn drop_copy(&mut self, record: &LogRecord, sequence: u64) -> bool {
        let LogRecord { block, slot, .. } = *record;
        let current = self.log.is_newest(block, slot, sequence);
        self.log.vacate(block, slot, sequence);
        if current {
            self.log.policy_mut().remove(block);
        }
        current
    }

    /// The backend may not hold what a clean `record` says that it holds: from now on it is dirty.
    fn distrust(&mut self, record: &LogRecord, sequence: u64) {
        if self.log.is_newest(record.block, record.slot, sequence) {
            self.log.set_dirty(record.slot, true);
            (self.clean_from, self.due_from, self.pace.clean_until) = (0, (0, 0), 0);
        }
    }

    /// A flush of the backend failed: what it was to make durable waits for the next. `planned`: not of a batch.
    fn backend_flush_failed(&mut self, planned: bool) {
        self.unflushed.flush_failed(planned);
        self.log.need_backend_flush();
    }

    /// What a block should hold in `frame` never came. If it waits there for the flash, it cannot be read before it is written anew. A newer
    /// write of it may wait in another frame.
    fn memory_unreadable(&mut self, block: u32, frame: Frame) {
        if let Some(slot) = self.log.find(block)
            && self.log.is_dirty(slot)
            && self.log.in_memory(slot) == Some(frame)
        {
            self.unreadable.insert(block, slot);
        }
    }

    /// Data that was acknowledged could not be written to the backend.
    fn backend_write_failed(&mut self, block: u32) {
        self.forget_read(block);
        // A clean copy that was planned since is one of the same data, or less; a later write may still make it good.
        if !self.is_newer_than_backend(block) {
            let lost = self.lost.entry(block).or_default();
            // The copy that was to take the place of what the flash says will say so itself.
            lost.said = self.found.get(&block).map(|found| found.sequence).or(lost.said);
        } else {
            self.backend_lacks.insert(block);
        }
    }

    /// A block was written to the backend, whole. What was written back from the log may be older than what was lost since.
    pub(super) fn backend_written(&mut self, block: u32, back: bool) {
        if !self.backend_lacks.is_empty() {
            self.backend_lacks.remove(&block);
        }
        let is_unsaid = |lost: &Lost| lost.said.is_none() || self.found.contains_key(&block);
        if !back && self.lost.get(&block).is_some_and(is_unsaid) {
            self.lost.remove(&block);
        }
    }

    /// The flash device can no longer be written: from now on the cache only reads.
    ///
    /// Writing on, to the backend alone, could not be made safe: what the device still holds would be taken for newer at the next start.
    fn flash_failed(&mut self) {
        self.flash_failed = true;
    }

    /// Whether the backend has all that is durable on flash: a flash that failed can be given up.
    pub fn can_give_up_flash(&self) -> bool {
        let nothing_dirty = self.log.dirty_blocks() == 0 || self.durable_dirty_blocks() == 0;
        nothing_dirty && self.lost_on_flash() == 0
    }

    /// Dirty blocks that could not be read from flash the last time.
    pub(super) fn unreadable_now(&self) -> impl Iterator<Item = u32> {
        let unreadable = self.unreadable.iter().filter(|(block, slot)| self.is_unreadable(**block, **slot));
        unreadable.map(|(block, _)| *block)
    }

    /// How many dirty blocks could not be read from flash the last time.
    pub fn unreadable_blocks(&self) -> u64 {
        self.unreadable_now().count() as u64
    }

    /// Dirty blocks that could not be read from flash the last time, from `first` on and then from the beginning, in order.
    pub fn unreadable_from(&self, first: u32) -> Vec<u32> {
        let mut blocks: Vec<u32> = self.unreadable_now().collect();
        blocks.sort_unstable_by_key(|block| (*block < first, *block));
        blocks
    }

    pub(super) fn is_unreadable(&self, block: u32, slot: u32) -> bool {
        self.log.find(block) == Some(slot) && self.log.is_dirty(slot)
    }

    /// Whether the flash device can no longer be written.
    pub fn has_flash_failed(&self) -> bool {
        self.flash_failed
    }
}

/// The slot of a place that is dirty.
fn only_dirty(place: Option<(u32, bool)>) -> Option<u32> {
    place.and_then(|(slot, dirty)| dirty.then_some(slot))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};
    use std::ops::Range;

    use super::*;
    use crate::cache::{Cache, Config, Event, Kind, Request};
    use crate::format::{BLOCK_BYTES, Geometry};
    use crate::layout::containers::Log;

    fn plan(cache: &mut LogCache, kind: Kind, length: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for request in Request::pieces(kind, 7 * 4096, length, false) {
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        steps
    }

    /// Tells the cache that each step was done, but for writing to the backend where that fails.
    fn perform(cache: &mut LogCache, steps: &[Step], fails: bool) {
        for step in steps {
            match step {
                Step::WriteBackend { .. } if fails => cache.on(Event::Failed { step, missing: false }, &mut Vec::new()),
                _ => cache.on(Event::Done(step), &mut Vec::new()),
            }
        }
    }

    /// Block 7 is written back while a newer write of it is appended; the append fails, and the older content comes to the backend after that.
    #[test]
    fn what_is_written_back_does_not_pass_for_what_was_lost_since() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        for kind in [Kind::Write, Kind::Flush] {
            let steps = plan(&mut cache, kind, 4096);
            perform(&mut cache, &steps, false);
        }
        let mut back = Vec::new();
        cache.on(Event::DestageAll { now_us: 1 }, &mut back);
        assert!(
            back.iter().any(|step| matches!(step, Step::WriteBackend { block: 7, batch: Some(_), .. })),
            "{back:?}"
        );
        let mut newer = plan(&mut cache, Kind::Write, 4096);
        newer.extend(plan(&mut cache, Kind::Flush, 4096));
        for step in &newer {
            let event = match step {
                Step::Append(_) => Event::Failed { step, missing: false },
                _ => Event::Done(step),
            };
            cache.on(event, &mut Vec::new());
        }
        assert_eq!(cache.lost_blocks(), [7]);
        perform(&mut cache, &back, false);
        assert_eq!(cache.lost_blocks(), [7], "the backend has what was there before");
    }

    /// More is lost than the log may hold of what is not written back: the rest goes to the backend, with clean copies that say so.
    #[test]
    fn what_a_small_flash_calls_lost_is_written_anew_whatever_its_size() {
        let geometry = Geometry { units: 24, unit_pages: 64 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        for kind in [Kind::Write, Kind::WriteZeroes { may_punch_holes: true }, Kind::Trim] {
            let lost = (7..2007).map(|block| (block, 1 + u64::from(block % 20))).collect();
            let mut cache = LogCache::new(config.clone(), Log::new(geometry), lost);
            assert!(plan(&mut cache, Kind::Read, 4096).contains(&Step::Fail));
            let steps = plan(&mut cache, kind, 2000 * 4096);
            perform(&mut cache, &steps, false);
            assert_eq!(cache.lost_blocks(), [0; 0], "{kind:?}");
            assert!(cache.log().dirty_blocks() <= cache.config().dirty_max(), "{kind:?}");
            assert!(!plan(&mut cache, Kind::Flush, 0).contains(&Step::Fail), "{kind:?}");
            cache.check();
            let clean = steps.iter().filter_map(|step| match step {
                Step::Append(segment) => Some(segment.needs_backend_flush),
                _ => None,
            });
            assert!(clean.filter(|needs| *needs).count() > 10, "{kind:?}");
        }
    }

    /// What a flash says: of each unit, by its sequence, the records in order.
    #[derive(Default)]
    struct Flash {
        units: BTreeMap<u64, Vec<(u32, RecordKind)>>,
        /// Frames of which the content never came.
        bad: HashSet<u32>,
    }

    impl Flash {
        /// Performs steps as an engine would; what goes to these blocks of the backend fails.
        fn perform(&mut self, cache: &mut LogCache, steps: &[Step], refused: &Range<u32>) {
            for step in steps {
                let mut ok = true;
                match step {
                    Step::Receive { frame, length, .. } if usize::from(*length) < BLOCK_BYTES => {
                        ok = !self.bad.contains(&frame.number);
                    }
                    Step::Receive { frame, .. } | Step::Zero { frame, .. } => drop(self.bad.remove(&frame.number)),
                    Step::Copy { from, to, .. } if self.bad.contains(&from.number) => {
                        ok = false;
                        self.bad.insert(to.number);
                    }
                    Step::ReadBackend { block, frame } if refused.contains(block) => {
                        ok = false;
                        self.bad.insert(frame.number);
                    }
                    Step::WriteBackend { block, frame, .. } if refused.contains(block) => {
                        ok = false;
                        self.bad.insert(frame.number);
                    }
                    Step::ZeroBackend { block, .. } => ok = !refused.contains(block),
                    Step::Append(segment) => {
                        let with_data = segment.records.iter().filter(|record| record.kind.has_data());
                        let came = |record: &LogRecord| (!self.bad.contains(&record.frame.number)).then_some(0);
                        let (checksums, mut records): (Vec<_>, _) = (with_data.map(came).collect(), Vec::new());
                        let (doubtful, records_of) = (false, &mut records);
                        let appending = Appending { segment, checksums: &checksums, doubtful, records: records_of };
                        cache.on(Event::Appending(appending), &mut Vec::new());
                        let unit = self.units.entry(segment.sequence).or_default();
                        unit.extend(records.iter().map(|record| (record.block, record.kind)));
                    }
                    Step::ResetUnit { unit } => {
                        let geometry = cache.config().geometry;
                        self.units.retain(|sequence, _| geometry.unit_of(*sequence) != *unit);
                    }
                    _ => {}
                }
                let event = if ok { Event::Done(step) } else { Event::Failed { step, missing: false } };
                cache.on(event, &mut Vec::new());
                if let (false, Step::WriteBackend { block, .. }) = (ok, step) {
                    cache.keep(*block);
                }
            }
        }

        /// What it says last of a block.
        fn last(&self, block: u32) -> Option<RecordKind> {
            let mut records = self.units.values().rev().flat_map(|unit| unit.iter().rev());
            let says = |kind: RecordKind| kind != RecordKind::Void && !kind.is_of_region();
            let of_block = |(of, kind): &(u32, RecordKind)| (*of == block && says(*kind)).then_some(*kind);
            records.find_map(of_block)
        }
    }

    /// Blocks that the flash calls lost are written anew while it has no room and the backend refuses them: it calls them lost until that has worked,
    /// whatever else is written and whichever units are reset. Else what the backend has would be taken for what was flushed.
    #[test]
    fn the_flash_calls_lost_what_nothing_else_has_taken_since() {
        let geometry = Geometry { units: 24, unit_pages: 64 };
        for zeroes in [false, true] {
            let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
            let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
            let mut flash = Flash::default();
            let refused = 0..100;
            let mut steps = Vec::new();
            refused.clone().for_each(|block| cache.mark_lost(block, &mut steps));
            cache.make_durable(&mut steps);
            flash.perform(&mut cache, &steps, &refused);
            let mut ask = |cache: &mut LogCache, kind, blocks: Range<u32>, refused: &Range<u32>| {
                let length = blocks.len() as u64 * 4096;
                let mut steps = Vec::new();
                for request in Request::pieces(kind, u64::from(blocks.start) * 4096, length, false) {
                    cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
                }
                flash.perform(cache, &steps, refused);
                cache.check();
                for block in cache.lost_blocks().into_iter().filter(|block| *block < 100) {
                    assert_eq!(flash.last(block), Some(RecordKind::Lost), "block {block}, zeroes {zeroes}");
                }
            };
            // The flash has no room for more that is dirty.
            let dirty = 1000..1000 + cache.config().dirty_max() as u32 + 100;
            ask(&mut cache, Kind::Write, dirty, &(0..2000));
            assert!(!cache.has_room_for_dirty());
            let kind = if zeroes { Kind::WriteZeroes { may_punch_holes: true } } else { Kind::Write };
            for round in 0..30u32 {
                let first = 7 * round % 90;
                ask(&mut cache, kind, first..first + 10, &(0..2000));
                // Clean copies of others, so that units are reset.
                let clean = 3000 + 50 * (round % 4)..3050 + 50 * (round % 4);
                ask(&mut cache, Kind::Read, clean.clone(), &(0..2000));
                ask(&mut cache, Kind::Trim, clean, &(0..2000));
            }
            let lost = cache.lost_blocks().into_iter().filter(|block| *block < 100).count();
            assert!(cache.log().resets() > 10 && lost > 40, "{} resets, {lost} lost", cache.log().resets());
            // It takes them.
            ask(&mut cache, kind, refused, &(0..0));
            assert!(cache.lost_blocks().into_iter().all(|block| block >= 100));
            ask(&mut cache, Kind::Flush, 0..0, &(0..0));
            (0..100).for_each(|block| assert_ne!(flash.last(block), Some(RecordKind::Lost), "block {block}"));
        }
    }

    /// Two writes of parts of a block fail, one over the other, because the backend cannot be read: the backend still has the block.
    #[test]
    fn writes_that_fail_one_over_the_other_lose_nothing() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        for flushed_before in [false, true] {
            let mut cache = LogCache::new(config.clone(), Log::new(geometry), HashMap::new());
            let mut flash = Flash::default();
            if flushed_before {
                let mut steps = plan(&mut cache, Kind::Write, 4096);
                steps.extend(plan(&mut cache, Kind::Flush, 0));
                flash.perform(&mut cache, &steps, &(0..0));
            }
            let mut steps = Vec::new();
            for (kind, length) in [(Kind::Write, 512), (Kind::Flush, 0), (Kind::Write, 1024), (Kind::Flush, 0)] {
                steps.extend(plan(&mut cache, kind, length));
            }
            for step in &mut steps {
                // A flash that cannot be read fails as a backend does.
                if let &mut Step::ReadFlash { block, frame, .. } = step {
                    *step = Step::ReadBackend { block, frame };
                }
            }
            flash.perform(&mut cache, &steps, &(0..100));
            assert_eq!(cache.lost_blocks(), [0; 0], "flushed before: {flushed_before}");
            let expected = if flushed_before { Some(RecordKind::Dirty) } else { Some(RecordKind::Forget) };
            assert_eq!(flash.last(7), expected, "flushed before: {flushed_before}");
            cache.check();
        }
    }

    #[test]
    fn without_flash_a_write_that_the_backend_refused_is_lost_and_no_flush_hides_it() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 4, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        cache.do_without_flash();
        let writes = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::WriteBackend { block: 7, .. }));
        let fails = |steps: &[Step]| steps.contains(&Step::Fail);
        let steps = plan(&mut cache, Kind::Write, 4096);
        assert!(!writes(&steps) && cache.is_newer_than_backend(7), "it waits in RAM");
        perform(&mut cache, &steps, true);
        let steps = plan(&mut cache, Kind::Flush, 0);
        assert!(writes(&steps) && !fails(&steps));
        perform(&mut cache, &steps, true);
        assert_eq!(cache.lost_blocks(), [7]);
        assert!(fails(&plan(&mut cache, Kind::Read, 4096)) && fails(&plan(&mut cache, Kind::Flush, 0)));
        // It is written anew.
        let steps = plan(&mut cache, Kind::Write, 4096);
        perform(&mut cache, &steps, false);
        assert!(!fails(&plan(&mut cache, Kind::Read, 4096)));
        let steps = plan(&mut cache, Kind::Flush, 0);
        assert!(writes(&steps) && !fails(&steps));
        perform(&mut cache, &steps, false);
        assert!(cache.lost_blocks().is_empty() && !fails(&plan(&mut cache, Kind::Flush, 0)));
        let steps = plan(&mut cache, Kind::Read, 4096);
        assert!(!fails(&steps) && cache.figures().flash_written_blocks() == 0);
        cache.check();
    }
}
