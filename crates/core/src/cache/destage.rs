//! Write-back: batches of dirty blocks, from plan to end.

use std::collections::HashMap;

use crate::frames::Frames;
use crate::layout::containers::Log;
use crate::step::{Frame, JournalPart, JournalWrite, Step};

/// Maximum number of blocks in write-back at once; each has its own frame.
pub(super) const DESTAGING_BLOCKS_MAX: u32 = 1_024;

/// Pause of the cleaner after a failed write to the backend.
const RETRY_US: u64 = 1_000_000;

/// Maximum number of blocks in a batch.
pub(super) const BATCH_BLOCKS: usize = DESTAGING_BLOCKS_MAX as usize / 2;

/// Blocks of a batch that are read before they are written.
const CHUNK_BLOCKS: usize = 64;

/// The destination of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The backend: blocks of the unit with this sequence number.
    Unit(u64),
    /// The backend: blocks of the oldest epochs.
    Epochs,
    /// The journal.
    Journal,
}

/// Blocks whose write-back is in progress.
#[derive(Debug)]
pub(super) struct Batch {
    pub target: Target,
    /// The last slot up to which all dirty copies of the unit are in the batch; `None` if only some are.
    pub last_slot: Option<u32>,
    /// Blocks with their slots.
    pub blocks: Vec<(u32, u32)>,
    /// Blocks that could not be written to the backend so far.
    pub failed: Vec<u32>,
    /// Those of them that could not be read from the flash.
    pub unread: Vec<u32>,
}

impl Batch {
    /// Returns a batch that nothing has happened to. It has some of the dirty copies of a unit.
    pub fn of(target: Target, blocks: Vec<(u32, u32)>) -> Batch {
        Batch { target, last_slot: None, blocks, failed: Vec::new(), unread: Vec::new() }
    }
}

/// The batches in progress.
#[derive(Debug)]
pub(super) struct Destaging {
    batches: HashMap<u32, Batch>,
    next_batch: u32,
    /// The number of their blocks.
    blocks: u64,
    /// Write-backs have their own frames, used in turn, so that a slow backend does not block clients. This is the
    /// number of the first one, and the distance of the next one.
    frames: (u32, u32),
    /// The time of the next attempt after a failed write-back.
    pub after_us: u64,
}

impl Destaging {
    /// Starts without batches. Its frames are numbered from `first_frame`.
    pub fn new(first_frame: u32) -> Destaging {
        Destaging { batches: HashMap::new(), next_batch: 0, blocks: 0, frames: (first_frame, 0), after_us: 0 }
    }

    /// Returns the number of blocks whose write-back is in progress.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// True if another batch may start. The number of blocks is limited so that readers and writers of the backend do
    /// not wait for many.
    pub fn may_begin(&self) -> bool {
        self.blocks as usize <= DESTAGING_BLOCKS_MAX as usize - BATCH_BLOCKS
    }

    /// Returns the unfinished batches.
    pub fn batches(&self) -> impl Iterator<Item = (u32, &Batch)> {
        self.batches.iter().map(|(number, batch)| (*number, batch))
    }

    /// Plans to write a batch back, whose blocks are in the backend's order.
    pub fn write_back(&mut self, blocks: Batch, log: &Log, frames: &mut Frames, steps: &mut Vec<Step>) {
        let batch = self.number();
        for chunk in blocks.blocks.chunks(CHUNK_BLOCKS) {
            let frames = self.read(chunk, log, frames, steps);
            steps.extend(chunk.iter().zip(frames).map(|(&(block, _), frame)| Step::WriteBackend {
                block,
                frame,
                acknowledged: false,
                replaces: false,
                logged: false,
                batch: Some(batch),
            }));
        }
        steps.push(Step::FlushBackend { batch: Some(batch) });
        self.begin(batch, blocks, steps);
    }

    /// Plans to write parts of the journal. The contents of some blocks go to a page and those behind it. Returns the
    /// number of pages.
    pub fn write_journal(
        &mut self,
        part: Option<JournalPart>,
        (page, blocks): (u32, Vec<(u32, u32)>),
        log: &Log,
        frames: &mut Frames,
        steps: &mut Vec<Step>,
    ) -> u64 {
        let batch = self.number();
        let frames = self.read(&blocks, log, frames, steps);
        let blocks_part = (!frames.is_empty()).then_some(JournalPart::Blocks { page, frames });
        let mut pages = 0;
        for part in part.into_iter().chain(blocks_part) {
            pages += part.pages();
            steps.push(Step::WriteJournal(Box::new(JournalWrite { batch, part })));
        }
        steps.push(Step::FlushJournal { batch });
        self.begin(batch, Batch::of(Target::Journal, blocks), steps);
        pages
    }

    fn number(&mut self) -> u32 {
        let batch = self.next_batch;
        self.next_batch = self.next_batch.wrapping_add(1);
        batch
    }

    /// Plans to read blocks with their slots. Returns the frames of their contents.
    fn read(&mut self, blocks: &[(u32, u32)], log: &Log, frames: &mut Frames, steps: &mut Vec<Step>) -> Vec<Frame> {
        let (first, next) = &mut self.frames;
        let read = |&(block, slot): &(u32, u32)| {
            // In memory only if the flash failed before the segment was written.
            log.in_memory(slot).unwrap_or_else(|| {
                let frame = frames.refilled(*first + *next);
                *next = (*next + 1) % DESTAGING_BLOCKS_MAX;
                steps.push(Step::ReadFlash { block, slot, frame, dirty: true });
                frame
            })
        };
        blocks.iter().map(read).collect()
    }

    fn begin(&mut self, batch: u32, blocks: Batch, steps: &mut Vec<Step>) {
        self.blocks += blocks.blocks.len() as u64;
        self.batches.insert(batch, blocks);
        steps.push(Step::Destaged { batch });
    }

    /// Handles a block that could not be read for the journal.
    pub fn not_read(&mut self, block: u32, slot: u32) {
        let is_its =
            |batch: &&mut Batch| matches!(batch.target, Target::Journal) && batch.blocks.contains(&(block, slot));
        if let Some(batch) = self.batches.values_mut().find(is_its) {
            batch.unread.push(block);
        }
    }

    /// Handles a block that was not written to the backend. `missing`: it could not be read.
    pub fn not_written(&mut self, batch: u32, block: u32, missing: bool) {
        let batch = self.batches.get_mut(&batch).expect("a batch ends after its writes");
        batch.failed.push(block);
        batch.unread.extend(missing.then_some(block));
    }

    /// Ends a batch.
    pub fn end(&mut self, batch: u32) -> Batch {
        let batch = self.batches.remove(&batch).expect("a batch ends once");
        self.blocks -= batch.blocks.len() as u64;
        batch
    }

    /// Writes no more for a while, because a write failed.
    pub fn rest(&mut self, now_us: u64) {
        self.after_us = now_us + RETRY_US;
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::{Appending, Cache, Config, Event, Kind, LogCache, Request};
    use super::*;
    use crate::filter::Caching;
    use crate::format::{Geometry, Kind as RecordKind};
    use crate::layout::containers::Log;
    use crate::step::LogRecord;

    fn write(cache: &mut LogCache, blocks: Range<u64>, length: u64, caching: Caching) -> Vec<Step> {
        let mut steps = Vec::new();
        for block in blocks {
            let request = Request { caching, ..Request::whole(Kind::Write, block * 4096, length, false) };
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        steps
    }

    fn perform(cache: &mut LogCache, steps: &[Step]) {
        steps.iter().for_each(|step| cache.on(Event::Done(step), &mut Vec::new()));
    }

    /// Block 7 is written back while a part of it is rewritten. The data of that part is missing, and the unit with the
    /// old copy will be reset.
    #[test]
    fn written_back_blocks_survive_a_write_that_never_came() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        let mut steps = write(&mut cache, 7..8, 4096, Caching::default());
        steps.extend(write(&mut cache, 100..116, 4096, Caching::Through));
        cache.on(Event::Request { request: &Request::whole(Kind::Flush, 0, 0, false), now_us: 1 }, &mut steps);
        perform(&mut cache, &steps);
        let mut back = Vec::new();
        cache.on(Event::DestageAll { now_us: 1 }, &mut back);
        let mut later = write(&mut cache, 7..8, 512, Caching::default());
        perform(&mut cache, &back);
        later.extend(write(&mut cache, 200..600, 4096, Caching::Through));
        assert!(later.iter().any(|step| matches!(step, Step::ResetUnit { unit: 1 })));
        let of_block = |step: &Step| match step {
            Step::Append(segment) if segment.records.iter().any(|record| record.block == 7) => Some(segment.clone()),
            _ => None,
        };
        let segment = later.iter().find_map(of_block).unwrap();
        let came = |record: &LogRecord| (record.block != 7).then_some(0);
        let checksums: Vec<_> = segment.records.iter().filter(|record| record.kind.has_data()).map(came).collect();
        let mut records = Vec::new();
        let appending = Appending { segment: &segment, checksums: &checksums, doubtful: false, records: &mut records };
        cache.on(Event::Appending(appending), &mut Vec::new());
        let kind = records.iter().find(|record| record.block == 7).map(|record| record.kind);
        assert_eq!((cache.lost_blocks(), kind), (vec![], Some(RecordKind::Forget)));
    }
}
