//! Flash and backend that lose unflushed data in a power failure. This can be any part at the end of a cache bucket,
//! resets included, and any number of the last writes of each backend block.

use std::collections::HashMap;

use super::random::Random;
use crate::wlfc::{Config, Log, Oob, Scan, Step};

/// Sectors of a block, each with the number of its last write.
pub const SECTORS: u64 = 2;
pub const SECTOR: u64 = 4096 / SECTORS;
pub type Content = [u32; SECTORS as usize];

#[derive(Clone, Debug)]
struct Page {
    oob: Oob,
    data: Vec<Content>,
}

#[derive(Clone, Debug)]
enum Change {
    Program(Page),
    Reset,
}

/// A cache bucket on flash.
#[derive(Clone, Debug, Default)]
struct Zone {
    durable: Vec<Page>,
    now: Vec<Page>,
    pending: Vec<Change>,
    torn: bool,
}

impl Zone {
    fn change(pages: &mut Vec<Page>, change: Change) {
        match change {
            Change::Program(page) => pages.push(page),
            Change::Reset => pages.clear(),
        }
    }

    fn apply(&mut self, change: Change) {
        Zone::change(&mut self.now, change.clone());
        self.pending.push(change);
    }

    fn flush(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.now);
    }

    fn fail(&mut self, random: &mut Random) {
        let kept = random.below(self.pending.len() as u64 + 1) as usize;
        let lost = self.pending.split_off(kept);
        for change in self.pending.drain(..) {
            self.torn &= !matches!(change, Change::Reset);
            Zone::change(&mut self.durable, change);
        }
        // The page being programmed may be partly written.
        self.torn |= matches!(lost.first(), Some(Change::Program(_))) && random.once_in(3);
        self.now.clone_from(&self.durable);
    }
}

#[derive(Clone, Debug, Default)]
struct Block {
    durable: Content,
    pending: Vec<Content>,
}

/// The devices, and the memory between them.
#[derive(Clone, Debug)]
pub struct Devices {
    page_blocks: u32,
    bucket_blocks: u64,
    zones: Vec<Zone>,
    backend: Vec<Block>,
    ram: HashMap<u32, (u64, Content)>,
    memory: HashMap<u64, Content>,
    /// Bytes sent to the client: sectors of the volume, and their contents.
    pub sent: Vec<(u64, u32)>,
}

impl Devices {
    pub fn new(config: &Config) -> Devices {
        Devices {
            page_blocks: config.page_blocks,
            bucket_blocks: config.bucket_blocks.into(),
            zones: vec![Zone::default(); config.buckets as usize],
            backend: vec![Block::default(); config.volume_blocks as usize],
            ram: HashMap::new(),
            memory: HashMap::new(),
            sent: Vec::new(),
        }
    }

    /// Starts a plan with empty memory.
    pub fn begin(&mut self) {
        self.memory.clear();
        self.sent.clear();
    }

    fn set(&mut self, offset: u64, length: u32, number: u32) {
        assert!(offset.is_multiple_of(SECTOR) && u64::from(length).is_multiple_of(SECTOR));
        for sector in offset / SECTOR..(offset + u64::from(length)) / SECTOR {
            // A block not in memory is garbage until it is written whole.
            let content = self.memory.entry(sector / SECTORS).or_insert([u32::MAX; SECTORS as usize]);
            content[(sector % SECTORS) as usize] = number;
        }
    }

    fn get(&self, block: u64) -> Content {
        *self.memory.get(&block).unwrap_or_else(|| panic!("block {block} is not in memory"))
    }

    /// Executes a step; `number` identifies the write of the client's bytes.
    pub fn perform(&mut self, step: &Step, number: u32) {
        match *step {
            Step::Receive { offset, length } => self.set(offset, length, number),
            Step::Zero { offset, length } => self.set(offset, length, 0),
            Step::Send { offset, length } => {
                for sector in offset / SECTOR..(offset + u64::from(length)) / SECTOR {
                    let found = self.get(sector / SECTORS)[(sector % SECTORS) as usize];
                    self.sent.push((sector, found));
                }
            }
            Step::ReadRam { block, frame } => {
                let (kept, content) = self.ram[&frame];
                assert_eq!(kept, block, "frame {frame} holds another block");
                self.memory.insert(block, content);
            }
            Step::KeepInRam { block, frame } => {
                self.ram.insert(frame, (block, self.get(block)));
            }
            Step::ReadFlash { bucket, slot, block, blocks } => {
                for at in 0..blocks {
                    let (page, inside) = ((slot + at) / self.page_blocks, (slot + at) % self.page_blocks);
                    let Page { oob, data } = &self.zones[bucket as usize].now[page as usize];
                    let holds = u64::from(oob.backend) * self.bucket_blocks + u64::from(oob.at + inside);
                    assert_eq!(holds, block + u64::from(at), "the page holds another block");
                    self.memory.insert(holds, data[inside as usize]);
                }
            }
            Step::ReadBackend { block, blocks } => {
                for block in block..block + u64::from(blocks) {
                    let Block { durable, pending } = &self.backend[block as usize];
                    self.memory.insert(block, *pending.last().unwrap_or(durable));
                }
            }
            Step::Append { bucket, page, pages, oob } => {
                let zone = &self.zones[bucket as usize];
                assert_eq!(zone.now.len() as u32, page, "the write pointer of cache bucket {bucket}");
                assert!(
                    !zone.torn || zone.pending.iter().any(|change| matches!(change, Change::Reset)),
                    "{bucket} is torn"
                );
                for number in 0..pages {
                    let oob = oob.of_page(number, self.page_blocks);
                    let first = u64::from(oob.backend) * self.bucket_blocks + u64::from(oob.at);
                    let blocks = if oob.log == Log::Data { oob.blocks } else { 0 };
                    let data = (first..first + u64::from(blocks)).map(|block| self.get(block)).collect();
                    self.zones[bucket as usize].apply(Change::Program(Page { oob, data }));
                }
                let fits = self.bucket_blocks / u64::from(self.page_blocks);
                assert!(self.zones[bucket as usize].now.len() as u64 <= fits, "cache bucket {bucket} is too full");
            }
            Step::WriteBackend { block, blocks, .. } => {
                for block in block..block + u64::from(blocks) {
                    let content = self.get(block);
                    self.backend[block as usize].pending.push(content);
                }
            }
            Step::ZeroBackend { block, blocks, .. } => {
                let zeroed = &mut self.backend[block as usize..(block + u64::from(blocks)) as usize];
                zeroed.iter_mut().for_each(|block| block.pending.push(Content::default()));
            }
            Step::FlushFlash => {
                for zone in &mut self.zones {
                    zone.torn &= !zone.pending.iter().any(|change| matches!(change, Change::Reset));
                    zone.flush();
                }
            }
            Step::FlushBackend => {
                for Block { durable, pending } in &mut self.backend {
                    *durable = pending.last().copied().unwrap_or(*durable);
                    pending.clear();
                }
            }
            Step::Reset { bucket } => self.zones[bucket as usize].apply(Change::Reset),
            Step::Fail => panic!("nothing fails here"),
            Step::Reply => {}
        }
    }

    /// Simulates a power failure.
    pub fn fail(&mut self, random: &mut Random) {
        self.ram.clear();
        self.zones.iter_mut().for_each(|zone| zone.fail(random));
        for Block { durable, pending } in &mut self.backend {
            let kept = random.below(pending.len() as u64 + 1) as usize;
            *durable = pending[..kept].last().copied().unwrap_or(*durable);
            pending.clear();
        }
    }

    /// Returns the scans of a start.
    pub fn scan(&self) -> Vec<Scan> {
        let of = |zone: &Zone| {
            let found = (0..).zip(&zone.now).map(|(number, page)| (number, page.oob)).collect();
            Scan { found, end: zone.now.len() as u32, torn: zone.torn }
        };
        self.zones.iter().map(of).collect()
    }

    /// Returns a sector of the backend, which must have no unflushed writes.
    pub fn durable_sector(&self, sector: u64) -> u32 {
        let Block { durable, pending } = &self.backend[(sector / SECTORS) as usize];
        assert!(pending.is_empty(), "sector {sector} is not flushed");
        durable[(sector % SECTORS) as usize]
    }

    /// Returns a sector in memory.
    pub fn sector(&self, sector: u64) -> u32 {
        self.get(sector / SECTORS)[(sector % SECTORS) as usize]
    }
}
