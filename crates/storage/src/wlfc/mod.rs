//! The engine of buckets as the engine of a volume.

mod again;
pub(crate) mod made_up;
pub mod start;

use std::io;

use flashwise_core::cache::{self, Cache, Mode, Reads};
use flashwise_core::format::{Digest, Geometry, Layout, Place, Resets, Superblock};
use flashwise_core::quantity::Share;
use flashwise_core::wlfc::BucketOptions;
use flashwise_engine::engine::{Legacy, Settings};
use flashwise_engine::wlfc::Engine;

use crate::attach::Attachment;
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::driver::{Driver, Performer, recover};
use crate::export::Request;
use crate::flash::{FlashError, Progress, cache_tag, write_superblock};
use crate::layout::{CacheLayout, End, Held};
use crate::offline::check::{Report, check_buckets};
use crate::offline::detach::{DetachError, Pair, destage_buckets};
use crate::offline::salvage::{List, Outcome, SalvageOptions, salvage_buckets};
use crate::status::{CacheStatus, VolumeStatus};
use crate::volume::{BLOCK, Opening, READ_PATIENCE, READ_PAUSE, VolumeConfig, VolumeError};

/// Buckets.
#[derive(Debug)]
pub(crate) struct WlfcLayout;

impl CacheLayout for WlfcLayout {
    fn number(&self) -> Layout {
        Layout::Wlfc
    }

    fn check_flash(&self, flash: &dyn Disk, geometry: Geometry) -> io::Result<()> {
        start::check_flash(flash, geometry)
    }

    fn begin(&self, superblock: &mut Superblock) {
        superblock.resets = Resets::EverySector;
    }

    fn format(&self, flash: &dyn Disk, superblock: &Superblock) -> io::Result<()> {
        start::format(flash, superblock)
    }

    fn empty(&self, superblock: &Superblock) -> Box<dyn Held> {
        Box::new(start::Held::empty(superblock))
    }

    fn read(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        threads: u32,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Held>, FlashError> {
        Ok(Box::new(start::scan(flash, superblock, threads, progress)?))
    }

    /// The last bucket ends where the volume ended.
    fn grows(&self) -> bool {
        false
    }

    fn changes(&self) -> bool {
        false
    }

    fn policy(&self) -> Option<&'static str> {
        Some(Layout::Wlfc.name())
    }

    /// It keeps its RAM, without a write buffer.
    fn fit_without_flash(&self, config: &VolumeConfig, cache: &mut cache::Config) {
        cache.read_buffer_blocks = (config.cache.buckets().ram_bytes / BLOCK).try_into().unwrap_or(u32::MAX);
        cache.write_buffer_blocks = 0;
    }

    fn check(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        data: bool,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()> {
        check_buckets(flash, superblock, data, report, progress)
    }

    fn salvage(
        &self,
        pair: Pair<'_>,
        superblock: (Superblock, bool),
        options: &SalvageOptions,
        list: List<'_>,
        reading: Progress<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Outcome, DetachError> {
        salvage_buckets(pair, superblock, options, list, reading, progress)
    }
}

impl Held for start::Held {
    fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        start::Held::settle(self, flash)
    }

    /// The ends of runs are as found when the cache was settled.
    fn note_in(&self, superblock: &mut Superblock, _in_order: bool) {
        if self.marks_from_now_on() {
            superblock.resets = Resets::EverySector;
        }
        self.ends.iter().for_each(|end| superblock.note_end(*end));
        (superblock.durable, superblock.epochs) = (Place::default(), None);
    }

    fn digest(&self, start: u64) -> Option<Digest> {
        Some(start::Held::digest(self, start))
    }

    fn may_be_dirty(&self) -> bool {
        start::Held::may_be_dirty(self)
    }

    fn blocks(&self) -> (u64, u64) {
        start::Held::blocks(self)
    }

    /// Before it resets buckets, it writes the superblock of the new start without a digest.
    fn drop_clean(&mut self, flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<u64> {
        let clean = self.clean_blocks();
        superblock.digest = None;
        write_superblock(flash, superblock)?;
        start::Held::drop_clean(self, flash)?;
        Ok(clean)
    }

    fn destage(
        self: Box<Self>,
        flash: &dyn Disk,
        backend: &dyn Disk,
        superblock: &Superblock,
        _done: Place,
        _note_ahead: &dyn Fn() -> io::Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(u64, Vec<u32>), DetachError> {
        destage_buckets(flash, backend, superblock, *self, progress)
    }

    fn open(self: Box<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn Driver>, VolumeError> {
        Ok(Box::new(open(opening, *self)?))
    }
}

/// Creates the engine of a volume from the buckets found on its flash.
fn open(opening: &mut Opening<'_>, held: start::Held) -> Result<Engine, VolumeError> {
    let &mut Opening { config, flash, attachment, size_bytes, ref mut opened, .. } = opening;
    let superblock = attachment.superblock();
    let refuse = |error| VolumeError::Cache {
        volume: config.whose(),
        path: config.flash.display().to_string(),
        error: FlashError::Config(error),
    };
    let options =
        BucketOptions { written_max: flash.zoned().and_then(ZonedFlash::written_max), ..config.cache.buckets() };
    let cache = start::config(superblock.geometry, &options, size_bytes).map_err(refuse)?;
    if let Some(zones) = options.written_max {
        let unlimited = BucketOptions { written_max: None, ..options };
        let asked = start::config(superblock.geometry, &unlimited, size_bytes).map_err(refuse)?.write_queue;
        if cache.write_queue < asked {
            let found = cache.write_queue;
            let share = (1e3 * f64::from(found) / f64::from(found + cache.read_queue)).round() / 1e3;
            let share = Share::new(share).unwrap_or_default();
            opened.notes.push(format!(
                "{} {}: its write queue has {found} buckets, {share} of them, where write-queue asks for {asked}: \
                 {zones} zones of its flash can be \
                 open together",
                config.whose().kind(),
                config.name
            ));
        }
    }
    (opened.cached_blocks, opened.dirty_blocks) = held.blocks();
    let (wlfc, started) = held.start(cache).map_err(refuse)?;
    let settings = Settings {
        cache: cache_tag(superblock),
        start: superblock.attach,
        retries: 2,
        patience: READ_PATIENCE,
        read_pause: READ_PAUSE,
        zoned: flash.zoned().is_some(),
        holds_failed: true,
        answers_flushes_at_once: config.unsafe_ignore_flushes,
        ..Settings::default()
    };
    let is_frozen = wlfc.is_frozen();
    let mut engine = Engine::new(wlfc, settings, started);
    if is_frozen {
        engine.recovery_mut().fail_flash(false);
    }
    Ok(engine)
}

impl Driver for Engine {
    fn performer(&self) -> &(dyn Performer + 'static) {
        self
    }

    fn performer_mut(&mut self) -> &mut (dyn Performer + 'static) {
        self
    }

    fn reads(&self) -> Reads {
        Reads::from(&self.cache().figures())
    }

    fn requests(&self) -> usize {
        Engine::requests(self)
    }

    fn recover(
        &mut self,
        flash: &dyn Disk,
        attachment: &mut Attachment,
        backend_fails: bool,
    ) -> Result<(), FlashError> {
        recover(self, flash, attachment, backend_fails)
    }

    fn look(&mut self, now_us: u64) {
        self.read_again();
        self.read_unreadable(now_us);
        if !self.cache().is_frozen() {
            self.make_what_was_lost();
        }
    }

    fn pause(&mut self) -> Option<End> {
        Engine::pause(self).map(End::from)
    }

    fn admits_while_leaving(&self) -> bool {
        true
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        Engine::is_newer_than_backend(self, block)
    }

    /// A stopped engine does not know, so it reports at least one.
    fn blocks_to_write_back(&self) -> u64 {
        self.cache().blocks_to_write_back().max(self.recovery().stopped().is_some().into())
    }

    /// Data that has left the cache for a plan is nowhere else. The engine moves data that is only in memory by itself.
    fn durable_dirty_blocks(&self) -> u64 {
        Driver::blocks_to_write_back(self)
    }

    fn unwritten_blocks(&self) -> usize {
        Engine::unwritten_blocks(self)
    }

    fn remarks(&self) -> Vec<String> {
        let (failing, lossy) = (self.cache().failing().len(), self.lossy());
        let (failing, failed) = (failing.saturating_sub(lossy), self.failures().units());
        let mut remarks = Vec::new();
        if self.recovery().waits() {
            remarks.push("flash: it cannot be read: all requests fail until it can".to_owned());
        }
        if lossy > 0 {
            remarks.push(format!(
                "flash: {lossy} buckets of the backend are not written back, because some of their dirty blocks cannot \
                 be read from it"
            ));
        }
        if failing > 0 {
            remarks.push(format!(
                "backend: {failing} buckets could not be written; they stay in the cache and are retried"
            ));
        }
        if !failed.is_empty() {
            remarks.push(format!("flash: erase units {failed:?} have failed and are no longer written"));
        }
        if self.cache().is_frozen() {
            remarks.push("flash: it is no longer written, because it is unreliable".to_owned());
        }
        remarks
    }

    fn lost_blocks(&self) -> Vec<u64> {
        Engine::lost_blocks(self)
    }

    fn can_give_up_flash(&self) -> bool {
        let nothing_dirty = self.recovery().stopped().is_none() && self.cache().blocks_to_write_back() == 0;
        nothing_dirty && self.failures().lost_blocks().is_empty()
    }

    fn lost_on_flash(&self) -> usize {
        self.failures().lost_blocks().len()
    }

    fn unwritten(&self) -> Vec<Request> {
        Engine::unwritten(self)
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        Engine::take_unwritten(self)
    }

    fn end(&self) -> Option<End> {
        self.recovery().stopped().is_none().then(|| End::from(Engine::end(self)))
    }

    fn flash_bytes(&self) -> (u64, u64) {
        let (figures, config) = (self.cache().figures(), self.cache().config());
        let pages = u64::from(config.buckets) * u64::from(config.bucket_pages());
        (pages * BLOCK, figures.flash_written_blocks() * BLOCK)
    }

    fn status(&self, _has_flash: bool) -> VolumeStatus {
        let (figures, config) = (self.cache().figures(), self.cache().config());
        let reads = Reads::from(&figures);
        let room = config.capacity_blocks();
        VolumeStatus {
            write_mode: Mode::WriteBack.name().to_owned(),
            reads: reads.blocks,
            writes: figures.written_blocks,
            ram_read_hits: reads.ram_hits,
            flash_read_hits: reads.flash_hits,
            read_hit_ratio: reads.hit_ratio(),
            cache: CacheStatus {
                flash_client_blocks: figures.log_blocks,
                flash_admission_blocks: figures.copy_blocks - figures.copy_forward_blocks,
                flash_copy_forward_blocks: figures.copy_forward_blocks,
                flash_metadata_blocks: figures.metadata_blocks + figures.padding_blocks,
                backend_read_blocks: figures.backend_read_blocks,
                backend_written_blocks: figures.passed_blocks,
                destaged_blocks: figures.backend_written_blocks
                    - figures.passed_blocks.min(figures.backend_written_blocks),
                ..CacheStatus::default()
            },
            flash_write_requests: figures.flash_write_requests,
            flash_bytes_written: figures.flash_written_blocks() * BLOCK,
            erasures: figures.resets,
            bypasses: figures.passed_blocks,
            flushes: figures.flushes,
            flash_bytes: u64::from(config.buckets) * u64::from(config.bucket_pages()) * BLOCK,
            capacity_blocks: room,
            flash_room_blocks: room,
            cached_blocks: self.cache().cached_blocks(),
            dirty_blocks: self.cache().blocks_to_write_back(),
            ..VolumeStatus::default()
        }
    }

    fn legacy(&self) -> Legacy {
        Engine::legacy(self)
    }
}
