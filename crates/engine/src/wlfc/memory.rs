//! The memory of plans: the blocks of a backend bucket that a plan moves.

use std::ops::Range;

use flashwise_core::checksum;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::StepId;
use flashwise_core::wlfc::header::{Crc, Missing};
use flashwise_core::wlfc::{Log, Step};
use smallvec::{SmallVec, smallvec};

use crate::engine::{BACKEND, Part};
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation};

/// Size of a block in bytes.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Adjacent blocks of one backend bucket.
#[derive(Debug)]
pub(super) struct Region {
    /// The first block, by its number in the volume.
    pub first: u64,
    /// The number of blocks.
    pub blocks: u32,
    /// Number of steps that still use it.
    uses: u32,
    memory: Option<Memory>,
    /// Bitmap of the blocks without content; usually empty. And bitmap of those among them that the backend has.
    bad: Vec<u64>,
    of_backend: Vec<u64>,
    /// True if its content takes no memory.
    blank: bool,
}

impl Region {
    fn new(first: u64, blocks: u32, blank: bool) -> Region {
        Region { first, blocks, uses: 0, memory: None, bad: Vec::new(), of_backend: Vec::new(), blank }
    }

    fn at(&self, block: u64) -> u32 {
        (block - self.first) as u32
    }

    fn memory(&mut self) -> &mut Memory {
        let (blocks, blank) = (self.blocks as usize, self.blank);
        self.memory.get_or_insert_with(|| Memory::with_blank(blocks, if blank { blocks } else { 0 }))
    }

    /// Returns the memory of blocks for a transfer.
    pub fn buffer(&mut self, block: u64, blocks: u32) -> Buffer {
        let at = self.at(block);
        self.memory().buffer(at, blocks)
    }

    /// Returns bytes of the volume from `offset` on; none of blank data.
    pub fn bytes(&mut self, offset: u64, length: usize) -> &mut [u8] {
        if self.blank {
            return &mut [];
        }
        let at = (offset - self.first * BLOCK) as usize;
        &mut self.memory().bytes_mut()[at..at + length]
    }

    /// Returns why a block has no content, if it has none.
    pub fn missing(&self, block: u64) -> Option<Missing> {
        let at = self.at(block);
        let has = |bits: &[u64]| bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1);
        match (has(&self.bad), has(&self.of_backend)) {
            (false, _) => None,
            (true, false) => Some(Missing::Lost),
            (true, true) => Some(Missing::OfBackend),
        }
    }

    /// True if a block has no content.
    pub fn is_bad(&self, block: u64) -> bool {
        self.missing(block).is_some()
    }

    /// True if any of these blocks has no content.
    pub fn has_bad(&self, block: u64, blocks: u32) -> bool {
        !self.bad.is_empty() && (block..block + u64::from(blocks)).any(|block| self.is_bad(block))
    }

    /// True if any of these blocks is lost.
    pub fn has_lost(&self, block: u64, blocks: u32) -> bool {
        self.has_any(Missing::Lost, block, blocks)
    }

    /// True if any of these blocks is missing for this reason.
    pub fn has_any(&self, missing: Missing, block: u64, blocks: u32) -> bool {
        !self.bad.is_empty() && (block..block + u64::from(blocks)).any(|block| self.missing(block) == Some(missing))
    }

    /// Compares data that was read with its checksums. True if some of it is wrong.
    pub fn compare(&mut self, blocks: Range<u64>, expected: &[Crc]) -> bool {
        let mut wrong = false;
        for (number, block) in blocks.enumerate() {
            let missing = match expected.get(number) {
                Some(Ok(crc)) if checksum::crc32c(self.bytes(block * BLOCK, BLOCK_BYTES)) == *crc => None,
                Some(Err(Missing::OfBackend)) => Some(Missing::OfBackend),
                _ => Some(Missing::Lost),
            };
            self.set_missing(block, missing);
            wrong |= missing == Some(Missing::Lost);
        }
        wrong
    }

    /// Returns transfers of the backend for some of these blocks, one by one, last first. `is_wanted` gets the reason
    /// if a block has no content.
    pub fn apart(
        &mut self,
        step: StepId,
        blocks: Range<u64>,
        operation: Operation,
        is_wanted: impl Fn(Option<Missing>) -> bool,
    ) -> Vec<Part> {
        let wanted: Vec<u64> = blocks.rev().filter(|block| is_wanted(self.missing(*block))).collect();
        let part = |block: u64| {
            let buffers = smallvec![self.buffer(block, 1)];
            Part { buffers, ..Part::new(step, BACKEND, operation, block * BLOCK, BLOCK) }
        };
        wanted.into_iter().map(part).collect()
    }

    /// Records if a block has content.
    pub fn set_missing(&mut self, block: u64, missing: Option<Missing>) {
        if self.bad.is_empty() {
            if missing.is_none() {
                return;
            }
            self.bad = vec![0; self.blocks.div_ceil(64) as usize];
            self.of_backend.clone_from(&self.bad);
        }
        let at = self.at(block);
        let set = |bits: &mut [u64], bit: bool| {
            let word = &mut bits[at as usize / 64];
            *word = *word & !(1 << (at % 64)) | u64::from(bit) << (at % 64);
        };
        set(&mut self.bad, missing.is_some());
        set(&mut self.of_backend, missing == Some(Missing::OfBackend));
    }
}

/// The memory of a plan: a region for each backend bucket.
#[derive(Debug, Default)]
pub(super) struct Regions {
    regions: SmallVec<[Region; 2]>,
    /// Regions before this index are no longer used.
    start: usize,
    /// True if their content takes no memory.
    blank: bool,
}

impl Regions {
    /// Creates a memory without regions. If its content is `blank`, it takes no memory.
    pub fn new(blank: bool) -> Regions {
        Regions { blank, ..Regions::default() }
    }

    /// Adds a step's use of these blocks, which are in one backend bucket.
    pub fn add_use(&mut self, block: u64, blocks: u32, bucket_blocks: u32) {
        let bucket = |block: u64| block / u64::from(bucket_blocks);
        let end = block + u64::from(blocks);
        let known = self.regions.iter_mut().rfind(|region| bucket(region.first) == bucket(block));
        let region = match known {
            Some(region) => {
                let first = region.first.min(block);
                let last = (region.first + u64::from(region.blocks)).max(end);
                (region.first, region.blocks) = (first, (last - first) as u32);
                region
            }
            None => {
                self.regions.push(Region::new(block, blocks, self.blank));
                self.regions.last_mut().expect("one was added")
            }
        };
        region.uses += 1;
    }

    /// Returns the region with a block.
    pub fn of(&mut self, block: u64) -> &mut Region {
        let has = |region: &&mut Region| (region.first..region.first + u64::from(region.blocks)).contains(&block);
        self.regions[self.start..].iter_mut().find(has).expect("a step's blocks have a region")
    }

    /// Ends a step's use of a block. Frees memory that no step uses any more.
    pub fn end_use(&mut self, block: u64) {
        let region = self.of(block);
        region.uses -= 1;
        if region.uses == 0 {
            region.memory = None;
        }
        while self.regions.get(self.start).is_some_and(|region| region.uses == 0) {
            self.start += 1;
        }
    }

    /// Size of the two largest regions in bytes, which is the maximum in use at one time.
    pub fn bytes(&self) -> u64 {
        let mut largest = [0, 0];
        for region in &self.regions {
            let smaller = usize::from(largest[1] < largest[0]);
            largest[smaller] = largest[smaller].max(region.blocks);
        }
        largest.iter().map(|blocks| u64::from(*blocks) * BLOCK_BYTES as u64).sum()
    }
}

/// Returns the blocks of memory that a step uses.
pub(super) fn blocks_of(step: &Step, bucket_blocks: u32) -> Option<(u64, u32)> {
    let bytes = |offset: u64, length: u32| {
        let (first, end) = (offset / BLOCK, (offset + u64::from(length)).div_ceil(BLOCK));
        Some((first, (end - first) as u32))
    };
    match *step {
        Step::Receive { offset, length } | Step::Send { offset, length } | Step::Zero { offset, length } => {
            bytes(offset, length)
        }
        Step::ReadRam { block, .. } | Step::KeepInRam { block, .. } => Some((block, 1)),
        Step::ReadFlash { block, blocks, .. }
        | Step::ReadBackend { block, blocks }
        | Step::WriteBackend { block, blocks, .. } => Some((block, blocks)),
        Step::Append { oob, .. } if oob.log == Log::Data => {
            Some((u64::from(oob.backend) * u64::from(bucket_blocks) + u64::from(oob.at), oob.blocks))
        }
        Step::Append { .. }
        | Step::ZeroBackend { .. }
        | Step::FlushFlash
        | Step::FlushBackend
        | Step::Reset { .. }
        | Step::Fail
        | Step::Reply => None,
    }
}
