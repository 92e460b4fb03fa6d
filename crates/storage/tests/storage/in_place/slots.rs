//! The layout: the resources of each step, its transfers, and the bytes of the table.

use flashwise_core::cache::Cache;
use flashwise_core::checksum::crc32c;
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::order::{Bond, Key, Order, StepId, Use};
use flashwise_engine::engine::{BACKEND, Engine, FLASH, Layout, Part, Running, Settings};
use flashwise_engine::memory::Memory;
use flashwise_engine::transfer::Operation as Transfer;
use flashwise_storage::export::Error;

use super::cache::{InPlace, Shape, Step};

/// Entries in a page of the table, after the magic number, the tag of the cache, its start and the checksum.
pub const ENTRIES: usize = (BLOCK_BYTES - ENTRIES_START) / 8;
const ENTRIES_START: usize = 32;
const CRC: std::ops::Range<usize> = 24..28;
const MAGIC: u64 = u64::from_le_bytes(*b"in place");
/// The entry of an empty slot.
const EMPTY: u32 = u32::MAX;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// The groups of the writes to the backend and to slots, and the chain of the steps that write the table.
const BACKEND_WRITES: Key = 0;
const FLASH_WRITES: Key = 1;
const TABLE: Key = 2;

/// A slot: its block, and the checksum of that.
pub type Slot = Option<(u32, u32)>;

/// The slots on flash, and the memory.
pub struct Slots {
    memory: Memory,
    /// By frame: true if its content could not be read.
    bad: Vec<bool>,
    slots: Vec<Slot>,
    shape: Shape,
    /// The first bytes of each page of the table.
    tag: [u64; 3],
    table_frame: u32,
}

/// Creates the engine. The settings have the tag of the cache, and the number of its start.
pub fn engine(shape: Shape, slots: Vec<Slot>, settings: Settings) -> Engine<Slots> {
    let cache = InPlace::new(shape, slots.iter().flatten().map(|(block, _)| *block));
    let frames = cache.frame_count();
    let slots = Slots {
        memory: Memory::new((frames + shape.table_pages) as usize),
        bad: vec![false; frames as usize],
        slots,
        shape,
        tag: [MAGIC, settings.cache, settings.start],
        table_frame: frames,
    };
    Engine::with(cache, settings, slots, Order::new(frames), 1)
}

/// Reads a page of the table; `None` if it is not of this start.
pub fn decode(page: &Page, cache: u64, start: u64) -> Option<Vec<Slot>> {
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let mut unsigned = *page;
    unsigned[CRC].fill(0);
    let tag = [MAGIC, cache, start].map(u64::to_le_bytes).concat();
    let is_valid = page[..CRC.start] == tag[..] && word(CRC.start) == crc32c(&unsigned);
    let entry = |number: usize| (word(ENTRIES_START + 8 * number), word(ENTRIES_START + 8 * number + 4));
    is_valid.then(|| (0..ENTRIES).map(entry).map(|slot| (slot.0 != EMPTY).then_some(slot)).collect())
}

impl Slots {
    /// Writes the table into memory. Slots that the cache has forgotten are empty.
    fn encode(&mut self, cache: &InPlace) {
        for (number, slots) in (0..).zip(self.slots.chunks(ENTRIES)) {
            let page = self.memory.page_mut(self.table_frame + number);
            page.fill(0);
            page[..CRC.start].copy_from_slice(&self.tag.map(u64::to_le_bytes).concat());
            let entries = slots.iter().map(|slot| slot.filter(|(block, _)| cache.is_cached(*block)));
            let entries = entries.chain(std::iter::repeat(None)).map(|slot| slot.unwrap_or((EMPTY, 0)));
            for (bytes, (block, crc)) in page[ENTRIES_START..].chunks_mut(8).zip(entries) {
                bytes.copy_from_slice(&[block.to_le_bytes(), crc.to_le_bytes()].concat());
            }
            let crc = crc32c(page);
            page[CRC].copy_from_slice(&crc.to_le_bytes());
        }
    }

    fn has(&self, block: u32, frame: u32) -> bool {
        self.slots[self.shape.slot(block) as usize] == Some((block, crc32c(self.memory.page(frame))))
    }
}

/// A step of the cache's plan is a step of the engine. A read that falls back has a state.
impl Layout for Slots {
    type Cache = InPlace;
    type Step = Step;
    type State = ();

    fn uses(&self, _cache: &InPlace, step: &Step, _state: &(), mut each: impl FnMut(Use, Bond)) {
        use Bond::{Follows, Needs};
        match *step {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } => each(Use::WriteMemory(frame), Follows),
            Step::Send { frame, .. } => each(Use::ReadMemory(frame), Follows),
            Step::Read { block, frame, is_hit } => {
                each(Use::WriteMemory(frame), Follows);
                // A hit may fall back to the backend.
                each(Use::ReadBlock(block), Follows);
                if is_hit {
                    let page = self.shape.page(block);
                    each(Use::AfterPages(page..page + 1), Follows);
                    each(Use::KeepPages(page..page + 1), Follows);
                }
            }
            Step::WriteBackend { block, frame } => {
                each(Use::ReadMemory(frame), Follows);
                each(Use::WriteBlocks(block..block + 1), Follows);
                each(Use::Join(BACKEND_WRITES), Follows);
            }
            Step::ZeroBackend { block, count, .. } => {
                each(Use::WriteBlocks(block..block + count), Follows);
                each(Use::Join(BACKEND_WRITES), Follows);
            }
            Step::WriteFlash { block, frame, .. } => {
                let page = self.shape.page(block);
                each(Use::ReadMemory(frame), Follows);
                each(Use::ReadBlock(block), Needs);
                each(Use::ErasePages(page..page + 1), Follows);
                each(Use::AfterPages(page..page + 1), Follows);
                each(Use::WritePages(page..page + 1), Follows);
                each(Use::Join(FLASH_WRITES), Follows);
            }
            Step::FlushBackend => each(Use::AfterAll(BACKEND_WRITES), Follows),
            Step::FlushFlash => {
                each(Use::AfterAll(FLASH_WRITES), Follows);
                each(Use::Next(TABLE), Needs);
            }
            Step::WriteTable => each(Use::Next(TABLE), Needs),
            Step::Reply => {}
        }
    }

    fn planned(step: &Step) -> Option<&Step> {
        Some(step)
    }

    fn enter(engine: &mut Engine<Slots>, steps: &mut Vec<Step>, request: Option<u32>, base: u32) {
        let mut client = request;
        for mut step in steps.drain(..) {
            match &mut step {
                Step::Reply => {
                    client = None;
                    continue;
                }
                Step::Receive { from: at, .. } | Step::Send { to: at, .. } => *at += base,
                _ => {}
            }
            engine.queue(step, client, ());
        }
    }

    fn start(engine: &mut Engine<Slots>, id: StepId) {
        let running = engine.peek(id);
        let (step, request) = (running.step, running.request);
        let ok = !running.is_doomed() && {
            let (unit, shape) = (engine.cache().geometry().unit_pages, engine.layout().shape);
            let offset = |page: u32| u64::from(page) * BLOCK;
            match step {
                Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } => move_bytes(engine, &step, request),
                Step::Read { block, frame, is_hit: true } => {
                    return transfer(engine, id, FLASH, Transfer::Read, offset(shape.page(block)), Some(frame));
                }
                Step::Read { block, frame, is_hit: false } => {
                    return transfer(engine, id, BACKEND, Transfer::Read, offset(block), Some(frame));
                }
                Step::WriteBackend { frame, .. } | Step::WriteFlash { frame, .. }
                    if engine.layout().bad[frame as usize] =>
                {
                    false
                }
                Step::WriteBackend { block, frame } => {
                    return transfer(engine, id, BACKEND, Transfer::Write, offset(block), Some(frame));
                }
                Step::WriteFlash { block, frame, .. } => {
                    return transfer(engine, id, FLASH, Transfer::Write, offset(shape.page(block)), Some(frame));
                }
                Step::ZeroBackend { block, count, may_punch_holes } => {
                    let (operation, length) = (Transfer::Zero { may_punch_holes }, offset(count));
                    return engine.hand_over(Part::new(id, BACKEND, operation, offset(block), length));
                }
                Step::FlushFlash => return transfer(engine, id, FLASH, Transfer::Sync, 0, None),
                Step::FlushBackend => return transfer(engine, id, BACKEND, Transfer::Sync, 0, None),
                Step::WriteTable => {
                    let (slots, cache) = engine.layout_and_cache();
                    slots.encode(cache);
                    let buffer = slots.memory.buffer(slots.table_frame, shape.table_pages);
                    let mut part = Part::new(id, FLASH, Transfer::Write, offset(unit), buffer.length as u64);
                    part.buffers.push(buffer);
                    return engine.hand_over(part);
                }
                Step::Reply => true,
            }
        };
        engine.finish(id, if ok { Ok(()) } else { Err(Error::Io) });
    }

    /// A hit that cannot be read, or is not what was written, falls back to the backend.
    fn part_completed(engine: &mut Engine<Slots>, part: Part, result: Result<(), Error>) {
        let (step, is_of_flash) = (engine.peek(part.step).step, part.disk == FLASH);
        let result = match step {
            Step::Read { block, frame, .. } if is_of_flash && !engine.layout().has(block, frame) => Err(Error::Io),
            _ => result,
        };
        let Err((part, error)) = engine.retry(part, result) else { return };
        engine.count_fault(&part);
        match step {
            Step::Read { block, frame, .. } if is_of_flash => {
                transfer(engine, part.step, BACKEND, Transfer::Read, u64::from(block) * BLOCK, Some(frame));
            }
            _ => engine.finish(part.step, Err(error)),
        }
    }

    fn settled(engine: &mut Engine<Slots>, running: &Running<Slots>, result: Result<(), Error>) {
        let Slots { memory, bad, slots, shape, .. } = engine.layout_mut();
        match running.step {
            Step::Read { frame, .. } => bad[frame as usize] = result.is_err(),
            Step::WriteFlash { block, frame, .. } => {
                slots[shape.slot(block) as usize] = result.is_ok().then(|| (block, crc32c(memory.page(frame))));
            }
            _ => {}
        }
    }
}

/// Moves bytes between a frame and a client. False if the rest of the block is missing.
fn move_bytes(engine: &mut Engine<Slots>, step: &Step, request: Option<u32>) -> bool {
    let request = request.expect("a client waits for its bytes");
    let (Slots { memory, bad, .. }, client) = engine.layout_and_client(request);
    let (Step::Receive { frame, at, length, .. }
    | Step::Send { frame, at, length, .. }
    | Step::Zero { frame, at, length }) = *step
    else {
        unreachable!("it moves bytes")
    };
    bad[frame as usize] &= matches!(step, Step::Send { .. }) || length < BLOCK_BYTES;
    if bad[frame as usize] {
        return false;
    }
    let bytes = &mut memory.page_mut(frame)[at..at + length];
    match *step {
        Step::Receive { from, .. } => bytes.copy_from_slice(&client.request.data[from as usize..][..length]),
        Step::Send { to, .. } => {
            client.put(to as usize, bytes);
        }
        _ => bytes.fill(0),
    }
    true
}

/// Transfers a frame, or flushes.
fn transfer(engine: &mut Engine<Slots>, id: StepId, disk: usize, operation: Transfer, offset: u64, frame: Option<u32>) {
    let mut part = Part::new(id, disk, operation, offset, if frame.is_some() { BLOCK } else { 0 });
    part.buffers.extend(frame.map(|frame| engine.layout().memory.buffer(frame, 1)));
    engine.hand_over(part);
}
