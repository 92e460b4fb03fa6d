//! The row of the layout: its contents on flash, and its engine in a volume.

use std::io;

use flashwise_core::cache::{Cache, Reads};
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout, Place, State, Superblock};
use flashwise_engine::engine::{Engine, Settings};
use flashwise_engine::memory::Memory;
use flashwise_storage::disk::Disk;
use flashwise_storage::driver::{Driver, Performer};
use flashwise_storage::flash::{FlashError, Progress, cache_tag};
use flashwise_storage::layout::{CacheLayout, End, Held};
use flashwise_storage::offline::check::Report;
use flashwise_storage::offline::detach::{DetachError, Pair};
use flashwise_storage::offline::salvage::{List, Outcome, SalvageOptions};
use flashwise_storage::status::VolumeStatus;
use flashwise_storage::volume::{Opening, VolumeError};

use super::cache::Shape;
use super::slots::{ENTRIES, Slot, Slots, decode, engine};

/// The row.
#[derive(Debug)]
pub struct InPlaceLayout {
    /// A planted bug: the table of an earlier start counts, also after a crash.
    pub trusts_any_table: bool,
}

pub static IN_PLACE: InPlaceLayout = InPlaceLayout { trusts_any_table: false };
pub static TRUSTING: InPlaceLayout = InPlaceLayout { trusts_any_table: true };

/// The slots of a cache that is not in use.
#[derive(Debug)]
pub struct Contents {
    shape: Shape,
    slots: Vec<Slot>,
}

impl Contents {
    fn empty(geometry: Geometry) -> Contents {
        let shape = Shape::new(geometry, ENTRIES as u32);
        Contents { shape, slots: vec![None; shape.slots as usize] }
    }

    pub fn start(self, superblock: &Superblock, settings: Settings) -> Engine<Slots> {
        let settings = Settings { cache: cache_tag(superblock), start: superblock.attach, ..settings };
        engine(self.shape, self.slots, settings)
    }
}

impl CacheLayout for InPlaceLayout {
    fn number(&self) -> Layout {
        Layout::Other(1)
    }

    fn empty(&self, superblock: &Superblock) -> Box<dyn Held> {
        Box::new(Contents::empty(superblock.geometry))
    }

    /// Only a clean shutdown leaves a table that counts.
    fn read(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        _threads: u32,
        _progress: Progress<'_>,
    ) -> Result<Box<dyn Held>, FlashError> {
        let mut contents = Contents::empty(superblock.geometry);
        let mut page = Memory::new(1);
        let unit = superblock.geometry.unit_pages;
        let slots = contents.slots.chunks_mut(ENTRIES);
        for (number, slots) in (unit..).zip(slots).filter(|_| superblock.state == State::Clean || self.trusts_any_table)
        {
            flash.read_at(page.bytes_mut(), u64::from(number) * BLOCK_BYTES as u64)?;
            let starts =
                if self.trusts_any_table { 1..superblock.attach + 1 } else { superblock.attach..superblock.attach + 1 };
            let found = starts.rev().find_map(|start| decode(page.page(0), cache_tag(superblock), start));
            slots.iter_mut().zip(found.into_iter().flatten()).for_each(|(slot, found)| *slot = found);
        }
        Ok(Box::new(contents))
    }

    fn changes(&self) -> bool {
        false
    }

    fn check(
        &self,
        _flash: &dyn Disk,
        _superblock: &Superblock,
        _data: bool,
        _report: &mut Report,
        _progress: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()> {
        Ok(())
    }

    fn salvage(
        &self,
        _pair: Pair<'_>,
        _superblock: (Superblock, bool),
        _options: &SalvageOptions,
        _list: List<'_>,
        _reading: Progress<'_>,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Outcome, DetachError> {
        unreachable!("a damaged cache is dropped, because it is clean")
    }
}

impl Held for Contents {
    fn blocks(&self) -> (u64, u64) {
        (self.slots.iter().flatten().count() as u64, 0)
    }

    fn drop_clean(&mut self, _flash: &dyn Disk, _superblock: &mut Superblock) -> io::Result<u64> {
        Ok(self.slots.iter_mut().filter_map(Option::take).count() as u64)
    }

    fn open(self: Box<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn Driver>, VolumeError> {
        opening.opened.cached_blocks = self.blocks().0;
        let settings = Settings { retries: 2, holds_failed: true, ..Settings::default() };
        Ok(Box::new(Served(self.start(opening.attachment.superblock(), settings))))
    }
}

/// The engine of a volume.
struct Served(Engine<Slots>);

impl Driver for Served {
    fn performer(&self) -> &(dyn Performer + 'static) {
        &self.0
    }

    fn performer_mut(&mut self) -> &mut (dyn Performer + 'static) {
        &mut self.0
    }

    fn reads(&self) -> Reads {
        self.0.cache().figures()
    }

    fn requests(&self) -> usize {
        self.0.unanswered()
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.0.order().blocks().is_used(block)
    }

    fn end(&self) -> Option<End> {
        Some(End::from(Place::default()))
    }

    fn flash_bytes(&self) -> (u64, u64) {
        let cache = self.0.cache();
        (u64::from(cache.shape.slots) * 4096, cache.written_blocks() * 4096)
    }

    fn status(&self, _has_flash: bool) -> VolumeStatus {
        let (cache, reads) = (self.0.cache(), self.0.cache().figures());
        VolumeStatus {
            policy: "in-place".to_owned(),
            write_mode: "write-through".to_owned(),
            reads: reads.blocks,
            flash_read_hits: reads.flash_hits,
            capacity_blocks: cache.shape.slots.into(),
            cached_blocks: cache.cached_blocks(),
            flash_bytes_written: cache.written_blocks() * 4096,
            ..VolumeStatus::default()
        }
    }
}
