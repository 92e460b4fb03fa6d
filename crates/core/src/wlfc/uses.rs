//! The resources that each step of WLFC uses. In addition, the engine keeps the order of a plan's steps.
//!
//! A flush waits for all changes of its device, and changes of a device wait for all flushes. So after a power failure
//! the devices are in a state that is possible after some of the steps, executed one by one. Changes that rely on no
//! flush wait for none. Data and zeroes appended to logs describe themselves, independently of other steps. The backend
//! is written once the data is durable on flash.

use super::bucket::{Log, Oob, State};
use super::step::Step;
use crate::order::{Key, Use};

/// The chain of flushes of the flash, and the group of its changes.
pub const FLASH: Key = 0;
/// The chain of flushes of the backend, and the group of its changes.
pub const BACKEND: Key = 1;
/// The group of steps that reduce the number of open zones: resets, and appends that fill a zone at once.
const CLOSING: Key = 2;
/// The first of the chains of programs and resets of each cache bucket.
const BUCKETS: Key = 3;

/// The sizes of buckets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// The number of pages in a cache bucket.
    pub bucket_pages: u32,
    /// The number of blocks in a backend bucket.
    pub bucket_blocks: u32,
    /// True if cache buckets are zones. Few zones may be open, so one is begun once all earlier ones that were to be
    /// closed are closed.
    pub zoned: bool,
}

impl Shape {
    /// Returns the backend bucket that contains a block.
    pub fn bucket_of(&self, block: u64) -> u32 {
        let bucket = block / u64::from(self.bucket_blocks);
        u32::try_from(bucket).expect("a volume has at most 2^32 buckets")
    }
}

impl Step {
    /// Returns the device that the step changes.
    pub fn changes(&self) -> Option<Key> {
        match self {
            Step::Append { .. } | Step::Reset { .. } => Some(FLASH),
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => Some(BACKEND),
            _ => None,
        }
    }

    /// Returns the device that the step flushes.
    pub fn flushes(&self) -> Option<Key> {
        match self {
            Step::FlushFlash => Some(FLASH),
            Step::FlushBackend => Some(BACKEND),
            _ => None,
        }
    }

    /// Returns the devices whose current flushes a change has to wait for.
    fn relies_on(&self) -> &'static [Key] {
        match self {
            Step::Append { oob: Oob { state: State::Write, log: Log::Data | Log::Zeroes, .. }, .. } => &[],
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => &[FLASH],
            _ => &[FLASH, BACKEND],
        }
    }

    /// Passes each resource that the step uses to `each`.
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
