//! What each step of WLFC uses. Steps of a plan also follow each other, as the engine sees to.
//!
//! A flush waits for all changes of its device, and changes of a device wait for all flushes: a power failure finds what it might have found
//! after some of the steps, done one by one. Changes that rely on no flush wait for none. Data and zeroes appended to logs describe
//! themselves, whatever else happens; and the backend is written once the data is durable on flash.

use super::bucket::{Log, Oob, State};
use super::step::Step;
use crate::order::{Key, Use};

/// The chain of flushes of the flash, and the group of its changes.
pub const FLASH: Key = 0;
/// The same of the backend.
pub const BACKEND: Key = 1;
/// The group of steps that leave fewer zones open: resets, and appends that fill a zone at once.
const CLOSING: Key = 2;
/// The first of the chains of what is programmed to a cache bucket, or resets it.
const BUCKETS: Key = 3;

/// The sizes of buckets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Pages of a cache bucket.
    pub bucket_pages: u32,
    /// Blocks of a backend bucket.
    pub bucket_blocks: u32,
    /// True if cache buckets are zones, of which few may be open: one is begun once all earlier ones that were to be closed are.
    pub zoned: bool,
}

impl Shape {
    /// The bucket of the backend that has a block.
    pub fn bucket_of(&self, block: u64) -> u32 {
        let bucket = block / u64::from(self.bucket_blocks);
        u32::try_from(bucket).expect("a volume has at most 2^32 buckets")
    }
}

impl Step {
    /// The device that the step changes.
    pub fn changes(&self) -> Option<Key> {
        match self {
            Step::Append { .. } | Step::Reset { .. } => Some(FLASH),
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => Some(BACKEND),
            _ => None,
        }
    }

    /// The device that the step flushes.
    pub fn flushes(&self) -> Option<Key> {
        match self {
            Step::FlushFlash => Some(FLASH),
            Step::FlushBackend => Some(BACKEND),
            _ => None,
        }
    }

    /// The devices whose flushes under way a change has to follow.
    fn relies_on(&self) -> &'static [Key] {
        match self {
            Step::Append { oob: Oob { state: State::Write, log: Log::Data | Log::Zeroes, .. }, .. } => &[],
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => &[FLASH],
            _ => &[FLASH, BACKEND],
        }
    }

    /// Gives each thing that the step uses.
    pub fn uses(&self, shape: Shape, mut each: impl FnMut(Use)) {
        let pages = |bucket: u32, first: u32, count: u32| {
            let first = bucket * shape.bucket_pages + first;
            first..first + count
        };
        if let Some(device) = self.changes() {
            self.relies_on().iter().for_each(|&flushes| each(Use::After(flushes)));
            each(Use::Join(device));
        }
        match *self {
            Step::ReadFlash { bucket, slot, blocks, .. } => {
                each(Use::AfterPages(pages(bucket, slot, blocks)));
                each(Use::KeepPages(pages(bucket, slot, blocks)));
            }
            Step::Append { bucket, page, pages: count, oob } => {
                if shape.zoned && page == 0 {
                    each(Use::AfterAll(CLOSING));
                }
                if shape.zoned && oob.state != State::Write {
                    each(Use::Join(CLOSING));
                }
                each(Use::Next(BUCKETS + Key::from(bucket)));
                each(Use::WritePages(pages(bucket, page, count)));
            }
            Step::Reset { bucket } => {
                if shape.zoned {
                    each(Use::Join(CLOSING));
                }
                each(Use::Next(BUCKETS + Key::from(bucket)));
                each(Use::ErasePages(pages(bucket, 0, shape.bucket_pages)));
            }
            Step::ReadBackend { block, .. } => each(Use::ReadBlock(shape.bucket_of(block))),
            Step::WriteBackend { block, .. } | Step::ZeroBackend { block, .. } => {
                let bucket = shape.bucket_of(block);
                each(Use::WriteBlocks(bucket..bucket + 1));
            }
            Step::ReadRam { frame, .. } => each(Use::ReadMemory(frame)),
            Step::KeepInRam { frame, .. } => each(Use::WriteMemory(frame)),
            Step::FlushFlash | Step::FlushBackend => {
                let device = self.flushes().expect("it is a flush");
                each(Use::AfterAll(device));
                each(Use::Next(device));
            }
            Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Fail | Step::Reply => {}
        }
    }
}
