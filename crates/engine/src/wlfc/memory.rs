//! The memory of plans: the blocks of a backend bucket that a plan moves, each at its place.

use flashwise_core::format::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::disk::Buffer;
use crate::memory::Memory;

/// Bytes of a block.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of one backend bucket, side by side.
#[derive(Debug)]
pub(super) struct Region {
    /// The first block, of the volume's.
    pub first: u64,
    /// How many.
    pub blocks: u32,
    /// Steps that still use it.
    uses: u32,
    memory: Option<Memory>,
    /// Blocks whose content never came, a bit each; none in most.
    bad: Vec<u64>,
}

impl Region {
    fn new(first: u64, blocks: u32) -> Region {
        Region { first, blocks, uses: 0, memory: None, bad: Vec::new() }
    }

    fn at(&self, block: u64) -> u32 {
        (block - self.first) as u32
    }

    fn memory(&mut self) -> &mut Memory {
        let blocks = self.blocks as usize;
        self.memory.get_or_insert_with(|| Memory::new(blocks))
    }

    /// Blocks for a transfer.
    pub fn buffer(&mut self, block: u64, blocks: u32) -> Buffer {
        let at = self.at(block);
        self.memory().buffer(at, blocks)
    }

    /// Bytes of the volume from `offset` on.
    pub fn bytes(&mut self, offset: u64, length: usize) -> &mut [u8] {
        let at = (offset - self.first * BLOCK) as usize;
        &mut self.memory().bytes_mut()[at..at + length]
    }

    /// Whether the content of a block never came.
    pub fn is_bad(&self, block: u64) -> bool {
        let at = self.at(block);
        self.bad.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether that of any of these did not.
    pub fn has_bad(&self, block: u64, blocks: u32) -> bool {
        !self.bad.is_empty() && (block..block + u64::from(blocks)).any(|block| self.is_bad(block))
    }

    /// Remembers whether the content of a block came.
    pub fn set_bad(&mut self, block: u64, bad: bool) {
        if self.bad.is_empty() {
            if !bad {
                return;
            }
            self.bad = vec![0; self.blocks.div_ceil(64) as usize];
        }
        let at = self.at(block);
        let word = &mut self.bad[at as usize / 64];
        *word = *word & !(1 << (at % 64)) | u64::from(bad) << (at % 64);
    }
}

/// The memory of a plan: a region of each backend bucket that it is about.
#[derive(Debug, Default)]
pub(super) struct Regions {
    regions: SmallVec<[Region; 2]>,
    /// Those before it are not used any more.
    start: usize,
}

impl Regions {
    /// A step uses these blocks, which are of one backend bucket.
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
                self.regions.push(Region::new(block, blocks));
                self.regions.last_mut().expect("one was added")
            }
        };
        region.uses += 1;
    }

    /// The region that has a block.
    pub fn of(&mut self, block: u64) -> &mut Region {
        let has = |region: &&mut Region| (region.first..region.first + u64::from(region.blocks)).contains(&block);
        self.regions[self.start..].iter_mut().find(has).expect("a step's blocks have a region")
    }

    /// A step that used a block is done: memory that no step uses any more is given back.
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

    /// Bytes of the largest two: what is in use at a time.
    pub fn bytes(&self) -> u64 {
        let mut largest = [0, 0];
        for region in &self.regions {
            let smaller = usize::from(largest[1] < largest[0]);
            largest[smaller] = largest[smaller].max(region.blocks);
        }
        largest.iter().map(|blocks| u64::from(*blocks) * BLOCK_BYTES as u64).sum()
    }
}
