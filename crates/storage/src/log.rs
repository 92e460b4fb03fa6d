//! The log as the engine of a volume.

use std::io;
use std::sync::Arc;

use flashwise_core::cache::{Cache, Config, LogCache, Reads};
use flashwise_core::epochs::BackendState;
use flashwise_core::filter::Caching;
use flashwise_core::format::{Geometry, Layout, Place, Superblock};
use flashwise_core::human;
use flashwise_core::recovery::Recovered;
use flashwise_engine::engine::{Legacy, Settings};
use flashwise_engine::log::{Engine, SPARE_FRAMES};

use crate::disk::Disk;
use crate::driver::{Driver, Measured, Performer};
use crate::export::{Done, Operation, Request};
use crate::flash::{FlashError, Progress, cache_tag, recover_log, settle};
use crate::layout::{CacheLayout, End, Held};
use crate::offline::check::{Report, check_log_layout};
use crate::offline::detach::{DetachError, Pair, destage, destage_in_order, dirty_copies};
use crate::offline::salvage::{List, Outcome, SalvageOptions, salvage_log};
use crate::status::{CacheStatus, VolumeStatus};
use crate::time;
use crate::volume::{BLOCK, Opening, READ_PATIENCE, VolumeError, backend_status, cache_config};

/// A log.
#[derive(Debug)]
pub(crate) struct LogLayout;

impl CacheLayout for LogLayout {
    fn number(&self) -> Layout {
        Layout::Log
    }

    fn empty(&self, superblock: &Superblock) -> Box<dyn Held> {
        Box::new(Recovered::empty(superblock.geometry, superblock.in_order))
    }

    fn read(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        threads: u32,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Held>, FlashError> {
        Ok(Box::new(recover_log(flash, superblock, threads, progress)?))
    }

    fn check(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        data: bool,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()> {
        check_log_layout(flash, superblock, data, report, progress)
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
        salvage_log(pair, superblock, options, list, reading, progress)
    }
}

impl Held for Recovered {
    fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        settle(flash, self)
    }

    fn note_in(&self, superblock: &mut Superblock, in_order: bool) {
        superblock.durable = self.end;
        superblock.epochs = match (in_order, superblock.epochs) {
            (true, Some(before)) if before != Superblock::NO_EPOCHS => Some(before),
            (true, _) => Some(self.end),
            // Older programs cannot read the records.
            (false, before) => before.map(|_| Superblock::NO_EPOCHS),
        };
    }

    fn may_be_dirty(&self) -> bool {
        self.log.dirty_blocks() > 0 || !self.lost.is_empty()
    }

    fn blocks(&self) -> (u64, u64) {
        (self.log.len() as u64, self.log.dirty_blocks() + self.lost.len() as u64)
    }

    /// The superblock says where in the log that happened.
    fn drop_clean(&mut self, _flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<u64> {
        let clean = self.log.len() as u64 - self.log.dirty_blocks();
        superblock.clean_from = self.end;
        self.log.drop_clean();
        Ok(clean)
    }

    fn note(&self) -> Option<String> {
        let dropped = self.dropped_blocks;
        (dropped > 0).then(|| {
            format!(
                "{dropped} clean blocks of the cache were dropped, because the last run ended during writes to the \
                 backend near them"
            )
        })
    }

    fn destage(
        mut self: Box<Self>,
        flash: &dyn Disk,
        backend: &dyn Disk,
        _superblock: &Superblock,
        done: Place,
        note_ahead: &dyn Fn() -> io::Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(u64, Vec<u32>), DetachError> {
        let (destaged_blocks, damaged) = match self.log.take_epochs() {
            Some(mut epochs) => {
                epochs.finish_until(done.min(self.log.end()));
                destage_in_order(flash, backend, &mut self, epochs, note_ahead, progress)?
            }
            None => destage(flash, backend, &dirty_copies(&self), progress)?,
        };
        backend.sync()?;
        let mut blocks: Vec<u32> = self.lost.keys().copied().chain(damaged).collect();
        blocks.sort_unstable();
        Ok((destaged_blocks, blocks))
    }

    fn open(self: Box<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn Driver>, VolumeError> {
        Ok(Box::new(open(opening, *self)?))
    }
}

/// Makes the engine of a volume from the log that was found on its flash.
fn open(opening: &mut Opening<'_>, recovered: Recovered) -> Result<Engine, VolumeError> {
    let &mut Opening { config, flash, attachment, journal, size_bytes, ref mut opened } = opening;
    if recovered.log.free_units() == 0 {
        return Err(VolumeError::LogFull { volume: config.whose(), path: config.flash.display().to_string() });
    }
    opened.cached_blocks = recovered.log.len() as u64;
    opened.dirty_blocks = recovered.log.dirty_blocks();
    opened.lost_blocks = recovered.lost.len() as u64;
    let superblock = attachment.superblock();
    let of_cache = Config { journal, ..cache_config(config, superblock.geometry, size_bytes) };
    let cache = LogCache::new(of_cache, recovered.log, recovered.lost);
    if cache.backend_state(0) == Some(BackendState::Mixed) {
        opened.notes.push(format!(
            "{} {}: the order of its {} dirty blocks is unknown; the backend is consistent once they are written \
             back, which begins now",
            config.whose().kind(),
            config.name,
            human::count(opened.dirty_blocks)
        ));
    }
    let settings = Settings {
        cache: cache_tag(superblock),
        epoch: recovered.epoch,
        retries: 2,
        patience: READ_PATIENCE,
        holds_failed: true,
        pauses: true,
        discard: config.discard || flash.zoned().is_some(),
        write_streams: flash.write_streams(),
        spare_frames: SPARE_FRAMES,
        answers_flushes_at_once: config.unsafe_ignore_flushes,
        planted: config.planted,
        ..Settings::default()
    };
    Ok(Engine::new(cache, settings, recovered.checksums, recovered.head_records))
}

impl Driver for Engine {
    fn performer(&self) -> &(dyn Performer + 'static) {
        self
    }

    fn performer_mut(&mut self) -> &mut (dyn Performer + 'static) {
        self
    }

    fn log(&self) -> Option<&LogCache> {
        Some(self.cache())
    }

    fn log_mut(&mut self) -> Option<&mut LogCache> {
        Some(self.cache_mut())
    }

    fn set_backend(&mut self, backend: Arc<dyn Disk>) {
        Engine::set_backend(self, Arc::new(Measured(backend)));
    }

    fn reads(&self) -> Reads {
        self.cache().reads()
    }

    fn requests(&self) -> usize {
        Engine::requests(self)
    }

    fn has_postponed(&self) -> bool {
        Engine::has_postponed(self)
    }

    fn give_flash_up(&mut self) {
        Engine::give_flash_up(self);
    }

    fn look(&mut self, now_us: u64) {
        self.read_again();
        self.read_unreadable(now_us);
        self.write_unwritten(now_us);
    }

    fn pause(&mut self) -> Option<End> {
        Engine::pause(self).map(End::from)
    }

    fn set_calm(&mut self, calm: bool) {
        Engine::set_calm(self, calm);
    }

    fn destage_rest(&mut self, now_us: u64) {
        Engine::destage_rest(self, now_us);
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        Engine::is_newer_than_backend(self, block)
    }

    fn failed_flushes(&self) -> u64 {
        Engine::failed_flushes(self)
    }

    fn blocks_to_write_back(&self) -> u64 {
        self.cache().blocks_to_write_back()
    }

    fn durable_dirty_blocks(&self) -> u64 {
        self.cache().durable_dirty_blocks()
    }

    fn unwritten_blocks(&self) -> usize {
        Engine::unwritten_blocks(self)
    }

    fn lost_blocks(&self) -> Vec<u64> {
        Engine::lost_blocks(self).into_iter().map(u64::from).collect()
    }

    fn can_give_up_flash(&self) -> bool {
        self.cache().can_give_up_flash()
    }

    fn lost_on_flash(&self) -> usize {
        self.cache().lost_on_flash()
    }

    fn is_rest_unreadable(&self) -> bool {
        self.cache().unreadable_blocks() == self.cache().blocks_to_write_back()
    }

    fn take_waiting(&mut self) -> Vec<(Request, Done)> {
        Engine::take_waiting(self)
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        Engine::take_unwritten(self).into_iter().map(write_of).collect()
    }

    fn unwritten_on_flash(&self) -> Vec<Request> {
        Engine::unwritten_on_flash(self).into_iter().map(write_of).collect()
    }

    fn end(&self) -> Option<End> {
        Some(End::from(self.cache().log().end()))
    }

    fn flash_bytes(&self) -> (u64, u64) {
        let pages = u64::from(self.cache().config().geometry.pages());
        (pages * BLOCK, self.cache().figures().flash_written_blocks() * BLOCK)
    }

    fn status(&self, has_flash: bool) -> VolumeStatus {
        let (figures, log, config) = (self.cache().figures(), self.cache().log(), self.cache().config());
        VolumeStatus {
            policy: config.policy.to_string(),
            admission: config.admission.as_ref().map_or("none".to_owned(), |admission| admission.rule.to_string()),
            admission_choice: self.cache().admission_choice(),
            admission_threshold: self.cache().admission_threshold(),
            admission_decisions: self.cache().decision().map_or(0, |decision| decision.number),
            write_mode: config.mode.name().to_owned(),
            write_back_order: config.order.name().to_owned(),
            backend_state: self
                .cache()
                .backend_state(time::now_us())
                .map(|state| backend_status(state, config.dirty_age_us, self.cache().blocks_to_write_back())),
            reads: figures.reads,
            writes: figures.writes,
            ram_read_hits: figures.ram_read_hits,
            flash_read_hits: figures.flash_read_hits,
            read_hit_ratio: figures.read_hit_ratio(),
            cache: CacheStatus::from(&figures),
            flash_write_requests: figures.flash_write_requests,
            flash_bytes_written: figures.flash_written_blocks() * BLOCK,
            erasures: figures.erasures,
            throttled_seconds: self.cache().throttled_us() as f64 / 1e6,
            destaging_blocks: self.cache().destaging_blocks(),
            bypasses: self.cache().counters().bypasses(),
            flushes: figures.flushes,
            flash_bytes: if has_flash { u64::from(config.geometry.pages()) * BLOCK } else { 0 },
            capacity_blocks: if has_flash { config.capacity_blocks() as u64 } else { 0 },
            flash_room_blocks: if has_flash { config.data_pages() } else { 0 },
            cached_blocks: log.len() as u64,
            dirty_blocks: log.dirty_blocks(),
            buffered_blocks: self.cache().buffered_blocks() as u64,
            oldest_dirty_seconds: log
                .oldest_dirty_us()
                .map(|since_us| time::now_us().saturating_sub(since_us) as f64 / 1e6),
            ..VolumeStatus::default()
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        Some(self.cache().config().geometry)
    }

    fn legacy(&self) -> Legacy {
        Engine::legacy(self)
    }
}

/// Returns the write of a block that is kept in memory.
fn write_of((block, data): (u32, Vec<u8>)) -> Request {
    let (operation, offset, caching) = (Operation::Write, u64::from(block) * BLOCK, Caching::default());
    Request { operation, offset, length: BLOCK, force_unit_access: false, data, caching }
}
