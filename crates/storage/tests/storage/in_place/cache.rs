//! The plans of the cache: a block has one slot on flash. A write goes to the backend, and then to the slot.

use std::ops::Range;

use flashwise_core::cache::{Cache, Event, Kind, Reads, Request};
use flashwise_core::format::{BLOCK_BYTES, Geometry};

/// Frames of memory, more than a piece of a request needs.
const FRAMES: u32 = 256;
const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copies bytes of the client from `from` into a frame.
    Receive {
        frame: u32,
        at: usize,
        length: usize,
        from: u32,
    },
    /// Copies bytes of a frame to the client, at `to`.
    Send {
        frame: u32,
        at: usize,
        length: usize,
        to: u32,
    },
    Zero {
        frame: u32,
        at: usize,
        length: usize,
    },
    /// Reads a block into a frame, from its slot or from the backend.
    Read {
        block: u32,
        frame: u32,
        is_hit: bool,
    },
    WriteBackend {
        block: u32,
        frame: u32,
    },
    ZeroBackend {
        block: u32,
        count: u32,
        may_punch_holes: bool,
    },
    /// Writes a block to its slot, if the backend has it. `number` counts these writes.
    WriteFlash {
        block: u32,
        frame: u32,
        number: u64,
    },
    FlushFlash,
    FlushBackend,
    /// Writes the table of all slots.
    WriteTable,
    Reply,
}

/// The pages of the flash: a unit of superblocks, the table, and the slots.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub geometry: Geometry,
    pub table_pages: u32,
    pub slots: u32,
}

impl Shape {
    pub fn new(geometry: Geometry, entries_per_page: u32) -> Shape {
        let pages = geometry.pages() - geometry.unit_pages;
        let table_pages = pages.div_ceil(entries_per_page + 1);
        Shape { geometry, table_pages, slots: pages - table_pages }
    }

    pub fn slot(&self, block: u32) -> u32 {
        block % self.slots
    }

    /// Returns the page of a block's slot.
    pub fn page(&self, block: u32) -> u32 {
        self.geometry.unit_pages + self.table_pages + self.slot(block)
    }
}

/// The cache.
#[derive(Debug)]
pub struct InPlace {
    pub shape: Shape,
    /// By slot: the block that it has once all planned steps are done, and the number of its write.
    owners: Vec<Option<(u32, u64)>>,
    /// Writes of the flash so far.
    writes: u64,
    frame: u32,
    reads: Reads,
}

impl InPlace {
    /// Returns a cache with these blocks in their slots.
    pub fn new(shape: Shape, blocks: impl Iterator<Item = u32>) -> InPlace {
        let mut owners = vec![None; shape.slots as usize];
        blocks.for_each(|block| owners[shape.slot(block) as usize] = Some((block, 0)));
        InPlace { shape, owners, writes: 0, frame: 0, reads: Reads::default() }
    }

    pub fn is_cached(&self, block: u32) -> bool {
        self.owners[self.shape.slot(block) as usize].is_some_and(|(owner, _)| owner == block)
    }

    pub fn cached_blocks(&self) -> u64 {
        self.owners.iter().flatten().count() as u64
    }

    pub fn written_blocks(&self) -> u64 {
        self.writes
    }

    fn forget(&mut self, is_forgotten: impl Fn(u32, u64) -> bool) {
        for owner in &mut self.owners {
            owner.take_if(|(block, number)| is_forgotten(*block, *number));
        }
    }

    fn next_frame(&mut self) -> u32 {
        self.frame = (self.frame + 1) % FRAMES;
        self.frame
    }

    fn read(&self, block: u32, frame: u32) -> Step {
        Step::Read { block, frame, is_hit: self.is_cached(block) }
    }

    fn keep(&mut self, block: u32, frame: u32) -> Step {
        self.writes += 1;
        self.owners[self.shape.slot(block) as usize] = Some((block, self.writes));
        Step::WriteFlash { block, frame, number: self.writes }
    }

    fn plan(&mut self, request: &Request, steps: &mut Vec<Step>) {
        // Background work after the reply.
        let mut kept = Vec::new();
        let is_read = matches!(request.kind, Kind::Read | Kind::Prefetch);
        let mut zeroes = 0..0;
        if let Kind::Trim | Kind::WriteZeroes { .. } = request.kind {
            zeroes = whole_blocks(request);
            if !zeroes.is_empty() {
                let may_punch_holes = request.kind != Kind::WriteZeroes { may_punch_holes: false };
                let count = zeroes.end - zeroes.start;
                steps.push(Step::ZeroBackend { block: zeroes.start, count, may_punch_holes });
                self.forget(|block, _| zeroes.contains(&block));
            }
        }
        // A trim leaves parts of blocks as they are.
        let others = if request.kind == Kind::Trim { 0..0 } else { request.blocks() };
        for block in others.filter(|block| !zeroes.contains(block)) {
            let first = u64::from(block) * BLOCK;
            let (start, end) = (first.max(request.offset), (first + BLOCK).min(request.offset + request.length));
            let (frame, at, length) = (self.next_frame(), (start - first) as usize, (end - start) as usize);
            let from = (start - request.offset) as u32;
            if is_read {
                self.reads.blocks += 1;
                self.reads.flash_hits += u64::from(self.is_cached(block));
            }
            if is_read || length < BLOCK_BYTES {
                steps.push(self.read(block, frame));
            }
            match request.kind {
                Kind::Read => steps.push(Step::Send { frame, at, length, to: from }),
                Kind::Write => steps.push(Step::Receive { frame, at, length, from }),
                Kind::Prefetch => {}
                _ => steps.push(Step::Zero { frame, at, length }),
            }
            if !is_read {
                steps.push(Step::WriteBackend { block, frame });
            }
            if !is_read || !self.is_cached(block) {
                kept.push(self.keep(block, frame));
            }
        }
        if request.kind == Kind::Flush || request.durable && request.last {
            steps.push(Step::FlushBackend);
        }
        steps.push(Step::Reply);
        steps.append(&mut kept);
    }
}

/// Returns the blocks that a request covers.
fn whole_blocks(request: &Request) -> Range<u32> {
    let (start, end) = (request.offset.div_ceil(BLOCK), (request.offset + request.length) / BLOCK);
    start as u32..end.max(start) as u32
}

impl Cache for InPlace {
    type Step = Step;
    type Figures = Reads;

    fn on(&mut self, event: Event<'_, Step>, steps: &mut Vec<Step>) {
        match event {
            Event::Request { request, .. } => self.plan(request, steps),
            Event::Close { .. } => steps.extend([Step::FlushFlash, Step::WriteTable, Step::FlushFlash]),
            Event::Failed { step: &Step::WriteFlash { block, number, .. }, .. } => {
                self.forget(|owner, last| (owner, last) == (block, number));
            }
            Event::Failed { step: &Step::WriteBackend { block, .. }, .. } => self.forget(|owner, _| owner == block),
            // The backend may have lost what the flash has.
            Event::Failed { step: Step::FlushBackend, .. } => self.forget(|_, _| true),
            _ => {}
        }
    }

    fn next_tick_us(&self, _now_us: u64) -> Option<u64> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.shape.geometry
    }

    fn frame_count(&self) -> u32 {
        FRAMES
    }

    fn is_newer_than_backend(&self, _block: u32) -> bool {
        false
    }

    fn blocks_to_write_back(&self) -> u64 {
        0
    }

    fn lost_blocks(&self) -> Vec<u32> {
        Vec::new()
    }

    fn figures(&self) -> Reads {
        self.reads
    }

    fn check(&self) {
        let owners = (0..).zip(&self.owners).filter_map(|(slot, owner)| Some((slot, owner.as_ref()?.0)));
        owners.for_each(|(slot, block)| assert_eq!(self.shape.slot(block), slot, "block {block} is in its slot"));
    }
}
