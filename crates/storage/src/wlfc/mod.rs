//! The engine of buckets as the engine of a volume.

mod again;
pub(crate) mod made_up;
pub mod start;

use flashwise_core::cache::{Cache, Mode, Reads};
use flashwise_core::quantity::Share;
use flashwise_core::wlfc::Options;
use flashwise_engine::engine::{Legacy, Settings};
use flashwise_engine::wlfc::Engine;

use crate::attach::{Attachment, End};
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::driver::{Driver, recover};
use crate::export::Request;
use crate::flash::{FlashError, cache_tag};
use crate::status::{CacheStatus, VolumeStatus};
use crate::volume::{BLOCK, Opening, READ_PATIENCE, READ_PAUSE, VolumeError};

/// Creates the engine of a volume from the buckets found on its flash.
pub(crate) fn open(opening: &mut Opening<'_>, held: start::Held) -> Result<Engine, VolumeError> {
    let &mut Opening { config, flash, attachment, size_bytes, ref mut opened } = opening;
    let superblock = attachment.superblock();
    let refuse = |error| VolumeError::Cache {
        volume: config.whose(),
        path: config.flash.display().to_string(),
        error: FlashError::Config(error),
    };
    let options = Options { written_max: flash.zoned().and_then(ZonedFlash::written_max), ..config.cache.buckets() };
    let cache = start::config(superblock.geometry, &options, size_bytes).map_err(refuse)?;
    if let Some(zones) = options.written_max {
        let unlimited = Options { written_max: None, ..options };
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
        Engine::pause(self).map(End::Buckets)
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
        let (failing, failed) = (failing.saturating_sub(lossy), self.failed_units());
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
        nothing_dirty && self.unreadable() == 0
    }

    fn lost_on_flash(&self) -> usize {
        self.unreadable()
    }

    fn unwritten(&self) -> Vec<Request> {
        Engine::unwritten(self)
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        Engine::take_unwritten(self)
    }

    fn end(&self) -> Option<End> {
        self.recovery().stopped().is_none().then(|| End::Buckets(Engine::end(self)))
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
