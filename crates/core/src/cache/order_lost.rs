//! Versions of ordered write-back that the flash lost.
//!
//! The epoch of a version that cannot be read stays open, and the read is retried. If a client's change waits for the
//! epoch, the version counts as lost after some time, so that nothing waits for ever. A version that a newer one has
//! replaced counts as lost when the flash is removed, too: its block is not lost.
//!
//! Then the backend gets the later epochs. It is no state of the volume until it has a newer version of the block. The
//! order is [broken](crate::epochs::Break), which the log records before the backend changes.

use std::collections::BTreeSet;

use super::append::Appender;
use super::lost::{Losses, Lost};
use super::unflushed::Unflushed;
use crate::epochs::Epochs;
use crate::format::Kind as RecordKind;
use crate::layout::containers::Log;
use crate::ram::write_buffer::WriteBuffer;
use crate::step::Frame;

/// The lost versions.
#[derive(Debug, Default)]
pub(super) struct LostVersions {
    /// Versions of the oldest epoch that count as lost, as (block, slot).
    unread: Vec<(u32, u32)>,
    /// True if a client's change waits for the oldest epoch.
    is_awaited: bool,
    /// True if one waited when the current attempt to write the epoch back began. Then the driver retries reads.
    is_patient: bool,
    /// Lost blocks without a newer version.
    blocks: BTreeSet<u32>,
    /// The sequence number of the unit whose record states that the order is broken.
    said: Option<u64>,
}

impl LostVersions {
    /// Starts with blocks that were lost before. `said`: the oldest unit that can state that the order is broken.
    pub fn of<'a>(blocks: impl Iterator<Item = &'a u32>, said: Option<u64>) -> LostVersions {
        LostVersions { blocks: blocks.copied().collect(), said, ..LostVersions::default() }
    }

    /// True if the log states that the order is broken.
    pub fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Sets whether a client's change waits for the oldest epoch.
    pub fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
    }

    /// Begins an attempt to write the oldest epoch back.
    pub fn begin_attempt(&mut self) {
        self.is_patient = self.is_awaited;
    }

    /// True if the driver retries the reads of this attempt.
    pub fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// True if versions count as lost and are not recorded as such.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Handles versions of the oldest epoch whose blocks are in `unread`, because the flash could not read them.
    /// `drains` is true if all ended epochs are to be written back. Returns the number of those that count as lost.
    pub fn not_read(&mut self, versions: &[(u32, u32)], unread: &[u32], drains: bool, log: &Log) -> usize {
        let before = self.unread.len();
        for &(block, slot) in versions.iter().filter(|(block, _)| unread.contains(block)) {
            if self.is_patient || drains && log.is_kept(slot) {
                self.unread.push((block, slot));
            }
        }
        self.unread.len() - before
    }

    /// Takes the versions that count as lost and are not recorded as such.
    pub fn take_unread(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.unread)
    }

    /// True if a unit up to that of `sequence` states that the order is broken.
    pub fn is_said_by(&self, sequence: u64) -> bool {
        self.said.is_some_and(|said| said <= sequence)
    }

    /// Adds a record that the order is broken, if it is.
    pub fn mark_broken(&mut self, epochs: &Epochs, end: &mut Appender<'_>) {
        self.said = epochs.broken().map(|broken| {
            let since = u32::try_from(broken.since_unix_us / 1_000_000).unwrap_or(0).max(1);
            end.mark(RecordKind::OrderBroken, since, 0);
            *end.log.sequences().end()
        });
    }

    /// Judges, before an epoch is done, whether the order is broken: a block lacks a version that was durable, and a
    /// newer one.
    pub fn judge(
        &mut self,
        epochs: &mut Epochs,
        unix_us: u64,
        (lost, write_buffer): (&Losses, &WriteBuffer<Frame>),
        (log, unflushed): (&Log, &Unflushed),
    ) {
        self.blocks.extend(lost.such(Lost::is_on_flash));
        let Some(&first) = self.blocks.first() else { return };
        let mut until = epochs.done();
        self.blocks.retain(|&block| {
            let has_newer = lost.get(block).is_none() && write_buffer.get(block).is_none();
            let newest = log.find(block).filter(|&slot| log.is_dirty(slot));
            if has_newer && let Some(slot) = newest {
                until = until.max(log.place_after(slot));
            }
            !has_newer || newest.is_none() && unflushed.contains(block)
        });
        epochs.break_order(Some(first), unix_us, until);
        epochs.set_lacking(!self.blocks.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::{Appending, Cache, Config, Event, Kind, LogCache, Request, WriteBackOrder};
    use super::*;
    use crate::format::Geometry;
    use crate::step::Step;

    fn cache() -> LogCache {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config {
            order: WriteBackOrder::Barriers,
            unix_us: 1_000_000_000,
            write_buffer_blocks: 0,
            ..Config::new(geometry, "lru".parse().unwrap())
        };
        LogCache::new(config, Log::new(geometry), HashMap::new())
    }

    /// Executes steps and all that follow, on a flash that cannot read these slots. Returns the kinds of marks, and the
    /// blocks written back, in order. The steps of write-back go to `waiting`, if that is given.
    fn perform(
        cache: &mut LogCache,
        mut steps: Vec<Step>,
        unreadable: &[u32],
        mut waiting: Option<&mut Vec<Step>>,
    ) -> Vec<String> {
        let (mut bad, mut done) = (HashSet::new(), Vec::new());
        let of_write_back = |step: &mut Step| match step {
            Step::WriteBackend { batch, .. } | Step::FlushBackend { batch } => batch.is_some(),
            step => matches!(step, Step::ReadFlash { .. } | Step::Destaged { .. }),
        };
        while !steps.is_empty() {
            if let Some(waiting) = &mut waiting {
                waiting.extend(steps.extract_if(.., of_write_back));
            }
            for step in std::mem::take(&mut steps) {
                let mut event = Event::Done(&step);
                match &step {
                    Step::ReadFlash { slot, frame, .. } if unreadable.contains(slot) => {
                        bad.insert(frame.number);
                        event = Event::Failed { step: &step, missing: false };
                    }
                    Step::ReadFlash { frame, .. } => drop(bad.remove(&frame.number)),
                    Step::WriteBackend { frame, .. } if bad.contains(&frame.number) => {
                        event = Event::Failed { step: &step, missing: true };
                    }
                    Step::WriteBackend { block, .. } => done.push(format!("write {block}")),
                    Step::Append(segment) => {
                        let with_data = segment.records.iter().filter(|record| record.kind.has_data()).count();
                        let (checksums, mut records) = (vec![Some(0); with_data], Vec::new());
                        let (doubtful, records_of) = (false, &mut records);
                        let appending = Appending { segment, checksums: &checksums, doubtful, records: records_of };
                        cache.on(Event::Appending(appending), &mut Vec::new());
                        let broken = records.iter().filter(|record| record.kind == RecordKind::OrderBroken);
                        done.extend(broken.map(|record| format!("broken since {}", record.block)));
                    }
                    _ => {}
                }
                cache.on(event, &mut Vec::new());
            }
            cache.on(Event::GoOn, &mut steps);
        }
        cache.check();
        done
    }

    /// Writes a block and flushes, while the backend does not answer. Returns its slot.
    fn write(cache: &mut LogCache, block: u32, waiting: &mut Vec<Step>) -> u32 {
        let mut steps = Vec::new();
        for kind in [Kind::Write, Kind::Flush] {
            let length = if kind == Kind::Write { 4096 } else { 0 };
            let request = Request::whole(kind, u64::from(block) * 4096, length, false);
            cache.on(Event::Request { request: &request, now_us: cache.now_us }, &mut steps);
        }
        perform(cache, steps, &[], Some(waiting));
        cache.log.find(block).unwrap()
    }

    fn destage_all(cache: &mut LogCache, mut steps: Vec<Step>, now_us: u64, unreadable: &[u32]) -> Vec<String> {
        cache.on(Event::DestageAll { now_us }, &mut steps);
        perform(cache, steps, unreadable, None)
    }

    #[test]
    fn a_replaced_version_that_cannot_be_read_breaks_the_order_until_the_newer_one_is_written_back() {
        let mut cache = cache();
        let mut waiting = Vec::new();
        let old = write(&mut cache, 7, &mut waiting);
        write(&mut cache, 8, &mut waiting);
        write(&mut cache, 7, &mut waiting);
        let done = destage_all(&mut cache, waiting, 1, &[old]);
        assert_eq!(done, ["broken since 1000", "write 8", "write 7"]);
        let epochs = cache.epochs().unwrap();
        assert!(epochs.all_done() && epochs.broken().is_none() && cache.lost_blocks().is_empty());
    }

    #[test]
    fn the_newest_version_is_lost_if_a_client_waits_for_it_and_the_order_heals_when_it_is_rewritten() {
        let mut cache = cache();
        let mut waiting = Vec::new();
        let newest = write(&mut cache, 7, &mut waiting);
        write(&mut cache, 8, &mut waiting);
        assert_eq!(destage_all(&mut cache, waiting, 1, &[newest]), [""; 0]);
        // A detach is refused, and the block can still be read later.
        assert_eq!((cache.lost_blocks(), cache.epochs().unwrap().unfinished()), (vec![7], 2));
        assert!(cache.epochs().unwrap().broken().is_none() && !cache.gives_up_unread());
        // A trim of this length does not go through the log.
        let trim = Request::whole(Kind::Trim, 0, 100 * 4096, false);
        assert!(cache.waits(&trim));
        let mut steps = Vec::new();
        cache.on(Event::Tick { now_us: 2_000_000 }, &mut steps);
        assert!(cache.gives_up_unread(), "the driver retries the read");
        assert_eq!(perform(&mut cache, steps, &[newest], None), ["broken since 1002", "write 8"]);
        assert!(!cache.waits(&trim));
        let broken = cache.epochs().unwrap().broken().copied().expect("block 7 lacks a newer version");
        assert_eq!((broken.block, broken.since_unix_us), (Some(7), 1_002_000_000));
        assert_eq!(cache.lost_blocks(), [7]);
        let mut waiting = Vec::new();
        write(&mut cache, 7, &mut waiting);
        assert!(cache.epochs().unwrap().broken().is_some());
        destage_all(&mut cache, waiting, 3_000_000, &[]);
        assert!(cache.epochs().unwrap().broken().is_none() && cache.lost_blocks().is_empty());
    }
}
