//! The results of steps. After failures, possibly wrong data is never served, and lost data is remembered as lost.

use super::LogCache;
use super::event::{Appending, Cache};
use super::lost::Lost;
use super::previous::only_dirty;
use crate::format::{Kind as RecordKind, Record, Region};
use crate::layout::containers::Segment;
use crate::step::{Frame, LogRecord, Step};

impl LogCache {
    /// Handles a completed step.
    #[inline]
    pub(super) fn done(&mut self, step: &Step) {
        match *step {
            Step::ReadFlash { block, slot, dirty: true, .. }
                if !self.unreadable.is_empty() && !self.log.is_kept(slot) =>
            {
                self.unreadable.remove(&block);
            }
            Step::WriteBackend { block, batch, logged, .. } => {
                if batch.is_none() {
                    self.lost.write_ended(block);
                }
                self.backend_refuses = false;
                // If the log should have it too and does not, its copy is older: the block is still lost.
                self.backend_written(block, batch.is_some() || logged);
                if batch.is_some() {
                    self.pace.block_written_back(self.is_leaving());
                }
            }
            Step::ZeroBackend { block, count, .. } => {
                self.backend_lacks.retain(|lacking| !(block..block + count).contains(lacking));
            }
            Step::Append(ref segment) => self.previous.appended(segment, &self.log),
            Step::FlushFlash { sequence, page } => self.log.set_flushed(sequence, page),
            Step::FlushBackend { batch: None } => self.unflushed.end_flush(),
            Step::AwaitFlushes => self.promised = self.log.flushed(),
            Step::Destaged { batch } => self.end_batch(batch, true),
            _ => {}
        }
    }

    /// Lists an unreadable dirty block until it can be read.
    pub(super) fn postponed(&mut self, step: &Step) {
        if let Step::ReadFlash { block, slot, dirty: true, .. } = *step
            && !self.log.is_kept(slot)
        {
            self.unreadable.insert(block, slot);
        }
    }

    /// Handles a failed step. `missing`: it was not attempted, because content is missing.
    pub(super) fn failed(&mut self, step: &Step, missing: bool) {
        match step {
            &Step::Receive { block, frame, .. }
            | &Step::Copy { block, to: frame, .. }
            | &Step::ReadBackend { block, frame } => self.frame_failed(block, frame),
            &Step::ReadFlash { block, slot, frame, .. } => {
                // Temporarily or permanently.
                self.postponed(step);
                self.destaging.not_read(block, slot);
                self.frame_failed(block, frame);
            }
            &Step::Send { block, frame, .. } => {
                if self.read_buffer.peek(block) == Some(frame) {
                    // Otherwise it would be found there after the log has other data of the block.
                    self.forget_read(block);
                }
                self.memory_unreadable(block, frame);
            }
            // The log's copy is valid.
            &Step::WriteBackend { logged: true, .. } => self.backend_refuses |= !missing,
            // The log still has it, on flash or in memory.
            &Step::WriteBackend { block, batch: Some(batch), .. } => {
                self.destaging.not_written(batch, block, missing);
                self.backend_refuses |= !missing;
            }
            &Step::WriteBackend { block, frame, acknowledged, replaces, .. } => {
                self.lost.write_ended(block);
                self.backend_refuses |= !missing;
                self.frame_failed(block, frame);
                if replaces || (acknowledged && !missing) {
                    self.backend_write_failed(block);
                    // The kept data was older than this.
                    if let (Some(lost), false) = (self.lost.get_mut(block), missing) {
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
            &Step::FlushBackend { batch } => {
                // Otherwise a change could wait for an epoch for ever.
                self.backend_refuses |= self.in_order.is_some();
                self.backend_flush_failed(batch.is_none());
            }
            &Step::Destaged { batch } => self.end_batch(batch, false),
            // The batch fails.
            Step::WriteJournal(_) | Step::FlushJournal { .. } => {}
            Step::Zero { .. } | Step::AwaitFlushes | Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
    }

    /// Returns the records of a segment that is about to be written.
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
                        self.previous.came(block, slot);
                        crc = *found;
                        if doubtful && kind == RecordKind::Clean {
                            kind = RecordKind::Dirty;
                            self.distrust(record, segment.sequence);
                        }
                    }
                }
            }
            if doubtful && kind == RecordKind::Sure {
                // Clean copies rely on data that the backend may lack.
                kind = RecordKind::Unsure;
                self.intents.stay_unsure(Region { first: block, blocks: slot }, segment.sequence, self.now_us);
            }
            if kind == RecordKind::UnitDestaged && !self.log.is_clean_up_to(slot) {
                // A copy was restored because its successor could not be read. Slot 0 means no copy.
                (kind, slot) = (RecordKind::Destaged, 0);
            }
            records.push(Record { kind, block, slot, crc });
        }
    }

    /// Handles missing content of `block` in `frame`, because a step that fills it failed.
    fn frame_failed(&mut self, block: u32, frame: Frame) {
        if self.read_buffer.peek(block) == Some(frame) {
            self.forget_read(block);
        }
        if self.write_buffer.get(block) == Some(frame) {
            self.write_buffer.remove(block);
            self.past.stays(block);
            self.frames.release(frame);
            if self.backend_lacks.remove(&block) {
                self.lost.add(block);
            }
        }
        if let Some(slot) = self.log.find(block)
            && self.log.in_memory(slot) == Some(frame)
        {
            if self.log.is_dirty(slot) {
                // It is being copied forward, and was read by a client before: it is listed under its new slot.
                self.unreadable.insert(block, slot);
            } else {
                self.log.drop_slot(block, slot);
                self.log.policy_mut().remove(block);
            }
        }
    }

    /// Handles a record whose segment could not be written. Data copied forward is still in its old slot. A dirty block
    /// is lost; older dirty data of it on flash may have been flushed, and stays valid.
    fn record_failed(&mut self, record: &LogRecord, sequence: u64) {
        let LogRecord { block, slot, .. } = *record;
        let newest = self.log.is_newest(block, slot, sequence);
        let dirty = newest && self.log.is_dirty(slot);
        self.log.vacate(block, slot, sequence);
        let old = self.previous.before(record, sequence, &self.log);
        if !newest {
            self.previous.fail(record, old);
            return;
        }
        self.log.policy_mut().remove(block);
        if !dirty {
            return;
        }
        // The flash failed, so no further unit is reset.
        let old = if record.is_copied() { record.old.map(|(old, _)| old) } else { only_dirty(old) };
        let back = old.is_some_and(|old| self.log.bring_back(block, old, true, true));
        if !(record.is_copied() && back) {
            self.lost.add(block).flushed |= old.is_some() && !back;
        }
    }

    /// Handles unreadable data of `record`. Returns the kind to record instead in the unit of `sequence`.
    ///
    /// Such data contains no acknowledged write: a write into a frame whose old content is missing fails.
    fn data_missing(&mut self, record: &LogRecord, sequence: u64) -> RecordKind {
        let LogRecord { kind, block, .. } = *record;
        let old = self.previous.before(record, sequence, &self.log);
        let current = self.drop_copy(record, sequence);
        if !current && kind == RecordKind::Dirty && !record.is_copied() {
            self.previous.fail(record, old);
        }
        match old {
            _ if kind == RecordKind::Clean => RecordKind::Void,
            // Its successor may fail too.
            Some((old, true)) if !current && !record.is_copied() && self.log.holds(block, old) => RecordKind::Void,
            Some((old, dirty)) if current && !record.is_copied() && self.log.bring_back(block, old, dirty, false) => {
                RecordKind::Void
            }
            // Without the failed write, the backend has the data, unless an earlier write failed there.
            None | Some((_, false)) if !(current && self.backend_lacks.remove(&block)) => RecordKind::Forget,
            _ => {
                if current {
                    self.lost.add(block).said = Some(sequence);
                }
                RecordKind::Lost
            }
        }
    }

    /// Handles a segment that is not written, in which the data of some records is missing. The clients' writes failed,
    /// so each block is as before.
    pub(super) fn never_came(&mut self, segment: &Segment, records: &[u32]) {
        for &number in records {
            let record = &segment.records[number as usize];
            // A copy is still in its old slot, which is handled like any failed segment.
            if record.is_copied() || !self.drop_copy(record, segment.sequence) {
                continue;
            }
            let LogRecord { block, .. } = *record;
            let old = self.previous.before(record, segment.sequence, &self.log);
            match old {
                Some((old, dirty)) if self.log.bring_back(block, old, dirty, true) => {}
                None | Some((_, false)) if !self.backend_lacks.remove(&block) => {}
                _ => self.lost.add(block).flushed |= old.is_some_and(|(_, dirty)| dirty),
            }
        }
    }

    /// Drops the copy that `record` should have put into the unit of `sequence`. Returns true if it was the newest of
    /// the block.
    pub(super) fn drop_copy(&mut self, record: &LogRecord, sequence: u64) -> bool {
        let LogRecord { block, slot, .. } = *record;
        let current = self.log.is_newest(block, slot, sequence);
        self.log.vacate(block, slot, sequence);
        if current {
            self.log.policy_mut().remove(block);
        }
        current
    }

    /// Marks the copy of a clean `record` as dirty, because the backend may lack the data.
    fn distrust(&mut self, record: &LogRecord, sequence: u64) {
        if self.log.is_newest(record.block, record.slot, sequence) {
            self.log.distrust(record.slot);
            self.note_change();
            (self.clean_from, self.due_from, self.pace.clean_until) = (0, (0, 0), 0);
        }
    }

    /// Handles a failed flush of the backend: its writes wait for the next. `planned` is false for a batch's flush. The
    /// blocks of a batch stay dirty on flash.
    fn backend_flush_failed(&mut self, planned: bool) {
        if self.unflushed.is_empty() {
            return;
        }
        let before = self.unflushed.ended();
        self.unflushed.flush_failed(planned);
        if let Some(order) = &mut self.in_order {
            order.epochs.flush_failed(before, self.unflushed.with_next());
        }
        self.log.need_backend_flush();
    }

    /// Handles missing content of a block in `frame`. If it waits there for the flash, it is unreadable until it is
    /// rewritten. A newer write of it may be in another frame.
    fn memory_unreadable(&mut self, block: u32, frame: Frame) {
        if let Some(slot) = self.log.find(block)
            && self.log.is_dirty(slot)
            && self.log.in_memory(slot) == Some(frame)
        {
            self.unreadable.insert(block, slot);
        }
    }

    /// Handles acknowledged data that could not be written to the backend.
    fn backend_write_failed(&mut self, block: u32) {
        self.forget_read(block);
        // A clean copy planned since has the same data, or older; a later write may still repair it.
        if !self.is_newer_than_backend(block) {
            self.lost.write_failed(block);
        } else {
            self.backend_lacks.insert(block);
        }
    }

    /// Handles a complete write of a block to the backend. Data written back from the log may be older than the lost
    /// data.
    pub(super) fn backend_written(&mut self, block: u32, back: bool) {
        if !self.backend_lacks.is_empty() {
            self.backend_lacks.remove(&block);
        }
        if !back {
            self.lost.written(block);
        }
    }

    /// Handles a failure of the flash device: from now on the cache only reads.
    ///
    /// Continuing with writes to the backend would be unsafe: the next start would mistake the device's contents for
    /// newer data.
    fn flash_failed(&mut self) {
        self.flash_failed = true;
        // Their epochs were never promised.
        self.log.drop_kept_from(self.promised);
    }

    /// True if the backend has everything that is durable on flash, so a failed flash can be abandoned.
    pub fn can_give_up_flash(&self) -> bool {
        let nothing_dirty = self.log.dirty_blocks() == 0 || self.durable_dirty_blocks() == 0;
        nothing_dirty && self.lost_on_flash() == 0
    }

    /// Handles a record that is about to be written. Returns true if it is a clean copy of a lost block whose data the
    /// backend has not accepted. Then the block is still lost, and the loss is recorded in the unit of `sequence`
    /// instead. The copy's fate is final.
    fn is_not_found(&mut self, record: &LogRecord, sequence: u64, came: bool) -> bool {
        let LogRecord { kind, block, slot, .. } = *record;
        // A later copy may not be written before the unit with the record of the loss is reset.
        let Some(is_last) = self.lost.take_found(block, slot) else { return false };
        let refused = is_last && (self.lost.get(block).is_some() || self.backend_lacks.contains(&block));
        if kind != RecordKind::Clean || came && !refused {
            return false;
        }
        self.drop_copy(record, sequence);
        if is_last && !self.has_dirty_copy(block) {
            self.lost.add(block).said = Some(sequence);
        }
        true
    }

    /// True if the log has a dirty copy.
    pub(super) fn has_dirty_copy(&self, block: u32) -> bool {
        self.log.find(block).is_some_and(|slot| self.log.is_dirty(slot))
    }

    /// True if a flush can succeed.
    pub(super) fn can_be_durable(&self) -> bool {
        self.lost.is_left || self.lost.is_empty() || self.without_a_place(|lost| lost.kept).is_empty()
    }

    /// Returns the blocks whose content, or whose loss, is only known in memory, in order. No flush may succeed before
    /// they are rewritten.
    pub fn not_durable_blocks(&self) -> Vec<u32> {
        // A flush records losses that are known when it begins.
        self.without_a_place(|lost| lost.kept || lost.is_unsaid())
    }

    /// Returns lost blocks for which `is_such` is true; without a flash, all lost blocks. In order.
    fn without_a_place(&self, is_such: impl Fn(&Lost) -> bool) -> Vec<u32> {
        if !self.has_flash {
            return self.lost_blocks();
        }
        let mut blocks = self.lost.such(is_such);
        blocks.retain(|&block| self.write_buffer.get(block).is_none());
        blocks
    }

    /// Returns the number of lost blocks that the flash records as lost, or whose flushed version it may have. Without
    /// the flash, their content would be the backend's older data.
    pub fn lost_on_flash(&self) -> usize {
        self.lost.such(|lost| lost.is_on_flash() && !lost.kept).len()
    }

    /// True if a block is [kept in memory](Cache::keep), and a start would use the flash's record of it.
    pub fn is_kept_and_on_flash(&self, block: u32) -> bool {
        self.lost.get(block).is_some_and(|lost| lost.is_on_flash() && lost.kept)
    }

    /// Leaves [not durable](Self::not_durable_blocks) blocks to the caller, so flushes no longer fail because of them.
    pub fn leave_lost(&mut self) {
        self.lost.is_left = true;
    }

    /// Takes over the list of lost blocks when a cache continues without flash. They stay lost until they are
    /// rewritten.
    pub fn take_over_lost(&mut self, before: Option<&LogCache>, blocks: impl IntoIterator<Item = u32>) {
        self.lost.is_left |= before.is_some_and(|before| before.lost.is_left);
        for block in blocks {
            self.touched.add(block..block + 1);
            *self.lost.add(block) = Lost::default();
        }
    }

    /// Returns the dirty blocks whose last read from flash failed.
    pub(super) fn unreadable_now(&self) -> impl Iterator<Item = u32> {
        let unreadable = self.unreadable.iter().filter(|(block, slot)| self.is_unreadable(**block, **slot));
        unreadable.map(|(block, _)| *block)
    }

    /// Returns the number of dirty blocks whose last read from flash failed.
    pub fn unreadable_blocks(&self) -> u64 {
        self.unreadable_now().count() as u64
    }

    pub(super) fn is_unreadable(&self, block: u32, slot: u32) -> bool {
        self.log.find(block) == Some(slot) && self.log.is_dirty(slot)
    }

    /// True if the flash device can no longer be written.
    pub fn has_flash_failed(&self) -> bool {
        self.flash_failed
    }
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

    /// Reports each step as done, except writes to the backend if `fails`.
    fn perform(cache: &mut LogCache, steps: &[Step], fails: bool) {
        for step in steps {
            match step {
                Step::WriteBackend { .. } if fails => cache.on(Event::Failed { step, missing: false }, &mut Vec::new()),
                _ => cache.on(Event::Done(step), &mut Vec::new()),
            }
        }
    }

    /// Block 7 is written back while a newer write of it is appended. The append fails, and then the older content
    /// reaches the backend.
    #[test]
    fn written_back_copies_do_not_replace_lost_ones() {
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

    /// More is lost than the log can hold as dirty: the rest goes to the backend, with clean copies that replace the
    /// loss records.
    #[test]
    fn blocks_lost_on_a_small_flash_are_rewritten() {
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
                Step::Append(segment) => Some(segment.needs_backend_flush || segment.follows_writes),
                _ => None,
            });
            assert!(clean.filter(|waits| *waits).count() > 10, "{kind:?}");
        }
    }

    /// The records on a flash, in order, by the sequence number of the unit.
    #[derive(Default)]
    struct Flash {
        units: BTreeMap<u64, Vec<(u32, RecordKind)>>,
        /// Frames whose content is missing.
        bad: HashSet<u32>,
    }

    impl Flash {
        /// Executes steps like an engine; writes to the `refused` blocks of the backend fail.
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

        /// Returns the last record of a block.
        fn last(&self, block: u32) -> Option<RecordKind> {
            let mut records = self.units.values().rev().flat_map(|unit| unit.iter().rev());
            let says = |kind: RecordKind| kind != RecordKind::Void && !kind.is_of_region();
            let of_block = |(of, kind): &(u32, RecordKind)| (*of == block && says(*kind)).then_some(*kind);
            records.find_map(of_block)
        }
    }

    /// Blocks recorded as lost are rewritten while the flash has no room and the backend rejects them. The record of
    /// the loss must survive other writes and resets until a write succeeds. Otherwise the backend's data would be
    /// mistaken for the flushed data.
    #[test]
    fn the_flash_lists_unreplaced_blocks_as_lost() {
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
            // The flash has no room for more dirty data.
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
            // Now it accepts them.
            ask(&mut cache, kind, refused, &(0..0));
            assert!(cache.lost_blocks().into_iter().all(|block| block >= 100));
            ask(&mut cache, Kind::Flush, 0..0, &(0..0));
            (0..100).for_each(|block| assert_ne!(flash.last(block), Some(RecordKind::Lost), "block {block}"));
        }
    }

    /// Two partial writes of a block fail, one on top of the other, because the backend cannot be read: the backend
    /// still has the block.
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
                // An unreadable flash fails like a backend.
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
        // It is rewritten.
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
