//! Reads of the flash: the data, and before it the header pages with checksums that are not in memory.

use std::collections::hash_map::Entry;
use std::ops::Range;

use flashwise_core::cache::Cache;
use flashwise_core::format::Page;
use flashwise_core::order::StepId;
use flashwise_core::wlfc::Step;
use flashwise_core::wlfc::header::{Crc, Header, Missing};
use rustc_hash::FxHashMap;

use super::checksums::{Checksums, HeaderPages, Says, header_at, says};
use super::{Running, Settings, StepState, Work};
use crate::memory::Memory;

/// A header page within this distance before the data is read together with it.
const TOGETHER: u32 = 4;

/// The read of a step: pages of a bucket, for blocks of the volume.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub bucket: u32,
    pub page: u32,
    pub block: u64,
    pub blocks: u32,
}

impl Run {
    /// Returns that of a step.
    pub fn of<C: Cache<Step = Step>>(running: &Running<C>) -> Run {
        let Work::Step(Step::ReadFlash { bucket, slot, block, blocks }) = running.step else {
            unreachable!("it reads the flash")
        };
        Run { bucket, page: slot, block, blocks }
    }

    /// Returns its blocks.
    pub fn range(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }
}

/// The next transfer of a read.
pub(super) enum Next {
    /// The data.
    Data,
    /// A header page, with the data after it or without.
    Header { page: u32, with_data: bool },
    /// None: another step reads the header page.
    Wait,
    /// None: the data came with the header page.
    Came,
}

/// The header pages, and the checksums in them.
pub(super) struct Reads {
    pub headers: HeaderPages,
    /// The recently used checksums of data.
    checksums: Checksums,
    /// The headers by page, if data is blank: nothing is on flash.
    blank_headers: Option<FxHashMap<(u32, u32), Header>>,
    /// Steps that wait for a header page that another step reads.
    waiting: FxHashMap<(u32, u32), Vec<StepId>>,
    bucket_pages: u32,
    /// The first bytes of the cache's UUID.
    cache: u64,
}

impl Reads {
    /// Begins with the header pages on flash.
    pub fn new(headers: HeaderPages, pages: u32, bucket_pages: u32, settings: &Settings) -> Reads {
        let (checksums, waiting, cache) = (Checksums::new(pages), FxHashMap::default(), settings.cache);
        let blank_headers = settings.blank.then(FxHashMap::default);
        Reads { headers, checksums, blank_headers, waiting, bucket_pages, cache }
    }

    /// Begins a read: only the data, if all its checksums are in memory.
    pub fn begin(&mut self, id: StepId, run: Run, state: &mut StepState) -> Next {
        let first = run.bucket * self.bucket_pages + run.page;
        let known = (first..first + run.blocks).map_while(|slot| self.checksums.get(slot).map(Ok));
        state.expected = known.collect();
        self.next(id, run, state)
    }

    /// Reads the next header page, or the data once all checksums are known. Pages without one count as wrong.
    fn next(&mut self, id: StepId, run: Run, state: &StepState) -> Next {
        let found = state.expected.len() as u32;
        let lacks = found < run.blocks;
        match lacks.then(|| self.headers.of(run.bucket, state.holds, run.page + found)).flatten() {
            Some(page) => self.read_header(id, run, state, page),
            None => Next::Data,
        }
    }

    /// Reads a header page: together with the data if it is near, otherwise once for all steps that need it.
    pub fn read_header(&mut self, id: StepId, run: Run, state: &StepState, page: u32) -> Next {
        if state.expected.is_empty() && run.page - page <= TOGETHER {
            return Next::Header { page, with_data: true };
        }
        match self.waiting.entry((run.bucket, page)) {
            Entry::Occupied(mut others) => {
                others.get_mut().push(id);
                Next::Wait
            }
            Entry::Vacant(first) => {
                first.insert(Vec::new());
                Next::Header { page, with_data: false }
            }
        }
    }

    /// Takes the steps that wait for a header page.
    pub fn take_waiting(&mut self, bucket: u32, page: u32) -> Vec<StepId> {
        self.waiting.remove(&(bucket, page)).unwrap_or_default()
    }

    /// Takes the checksums for a step from a header page of a bucket in this epoch, and continues.
    pub fn take_over(
        &mut self,
        (id, run): (StepId, Run),
        state: &mut StepState,
        (header, with_data): (u32, bool),
        bytes: &Page,
        epoch: u64,
    ) -> Next {
        let of = match &self.blank_headers {
            Some(headers) => headers.get(&(run.bucket, header)).copied().filter(|of| of.oob.epoch == epoch),
            None => header_at(bytes, self.cache, epoch, header),
        };
        let before = state.expected.len() as u32;
        let mut elsewhere = None;
        while (state.expected.len() as u32) < run.blocks {
            match says(of.as_ref(), bytes, run.page + state.expected.len() as u32) {
                Says::Checksum(crc) => state.expected.push(crc),
                Says::Elsewhere(other) => {
                    elsewhere = Some(other);
                    break;
                }
                Says::Nothing => break,
            }
        }
        let found = state.expected.len() as u32;
        if let Some(of) = of.filter(|_| found > before) {
            let first = run.page + before;
            self.checksums.keep(&of, bytes, run.bucket * self.bucket_pages + first, first, found - before);
        }
        match elsewhere {
            // Another header page of the same program: the right one, or the next.
            Some(other) if other != header && (found > before) == (other > header) => {
                self.read_header(id, run, state, other)
            }
            _ if with_data => Next::Came,
            _ => {
                if found == before {
                    // The header has no checksums for these pages, so they count as wrong.
                    state.expected.resize(run.blocks as usize, Err(Missing::Lost));
                }
                self.next(id, run, state)
            }
        }
    }

    /// Forgets the checksums of a read in memory.
    pub fn forget(&mut self, run: Run) {
        self.checksums.forget(run.bucket * self.bucket_pages + run.page, run.blocks);
    }

    /// Returns the header pages of a program, with `padding` pages after them, and the checksum of the first one.
    pub fn program(&mut self, header: &Header, bucket: u32, checksums: &[Crc], padding: u32) -> (Memory, Option<u32>) {
        let (page, parts) = (header.page, header.parts());
        (page..header.end()).for_each(|at| self.headers.set(bucket, at, at < page + parts));
        self.checksums.program(bucket * self.bucket_pages + header.data_page(), checksums);
        let mut memory = Memory::new((parts + padding) as usize);
        for part in 0..parts {
            let header = Header { part, ..*header };
            if let Some(headers) = &mut self.blank_headers {
                headers.insert((bucket, page + part), header);
                continue;
            }
            let described = header.described();
            header.encode(&checksums[described.start as usize..described.end as usize], memory.page_mut(part));
        }
        let sum = self.blank_headers.is_none().then(|| Header::checksum_of(memory.page(0)));
        (memory, sum)
    }
}
