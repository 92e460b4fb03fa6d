//! Detaching the flash: all dirty blocks are written back first, so the backend is complete.

use std::collections::BTreeMap;
use std::time::Duration;

use flashwise_core::cache::{Cache, LogCache};
use flashwise_core::format::{Geometry, Page};
use flashwise_core::layout::containers::Log;
use flashwise_engine::engine::{BACKEND, Bug, FLASH, Settings};
use flashwise_engine::log::{Engine, SPARE_FRAMES};

use super::config::cache_config;
use super::devices::geometry_without_flash;
use super::recovery::find_again;
use super::state::Without;
use super::unwritten::{read_rests, write_unwritten};
use super::{Inner, Volume, VolumeConfig, VolumeError};
use crate::driver::Driver;
use crate::export::{Error, Export};
use crate::time;
use crate::vital::MutexGuard;

/// Failed attempts to write back after which a detach fails.
const ATTEMPTS: u32 = 10;
/// Failed attempts to read a failed flash after which a block counts as lost.
const ATTEMPTS_TO_READ: u32 = 25;
/// Time between attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(200);

/// Number of dirty blocks that may remain when clients start to wait.
const FEW_BLOCKS: u64 = 12;
/// The cleaner makes no progress if clients keep up with it for this time.
const STALLED: Duration = Duration::from_secs(30);
/// The cleaner makes no progress if it writes nothing for this time. It starts with the newest erase unit once a
/// second.
const IDLE: Duration = Duration::from_secs(3);
/// Time between two checks of the progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A detach in progress.
pub(super) struct Detach<'a> {
    volume: &'a Volume,
    /// The reason why the volume then uses only its backend.
    why: Without,
    /// True once the contents of the flash are no longer valid.
    marked: bool,
}

impl<'a> Detach<'a> {
    /// Performs [`Volume::detach`].
    pub fn run(volume: &'a Volume, why: Without) -> Result<(), VolumeError> {
        let _only = (volume.config.planted != Some(Bug::DetachesTwice)).then(|| volume.detaching.lock());
        let mode;
        {
            let mut inner = volume.lock();
            match inner.state.without() {
                Some(Without::NotConfigured) => return Ok(()),
                Some(_) => {
                    drop(inner);
                    return keep_detached(volume, why);
                }
                None => inner.state.detach(),
            }
            // Blocks in RAM go to the flash, which is faster than the backend. The cleaner finds out if the backend
            // works.
            drop(inner);
            drop(volume.begin_flush());
            inner = volume.lock();
            mode = inner.engine.log().map(|cache| cache.config().mode);
            inner.engine.log_mut().into_iter().for_each(LogCache::stop_admitting);
        }
        let mut detach = Detach { volume, why, marked: false };
        detach.write_most_back();
        volume.lock().engine.log_mut().into_iter().for_each(LogCache::write_around);
        let result = detach.write_all_back();
        if let Err(error) = &result
            && !detach.marked
        {
            let mut inner = volume.lock();
            inner.state.stay(format!("the flash was not detached: when that was asked for last, {error}"));
            let log = inner.engine.log_mut();
            log.zip(mode).into_iter().for_each(|(log, mode)| log.admit_again(mode));
        }
        result
    }

    /// Waits while the cleaner of a log makes progress with dirty blocks. Clients continue meanwhile, and few blocks
    /// remain when they have to wait.
    fn write_most_back(&self) {
        let (mut fewest, mut fewer_at) = (u64::MAX, time::now());
        loop {
            let mut inner = self.volume.lock();
            let fails = inner.engine.recovery().has_flash_failed() || inner.health[BACKEND].last_failure().is_some();
            let (left, unwritten, is_idle) = match inner.engine.log() {
                Some(cache) if !inner.state.is_gone() && !fails => {
                    let unwritten = (cache.buffered_blocks() == 0).then(|| cache.blocks_to_give_back());
                    (cache.blocks_to_write_back(), unwritten, cache.destaging_blocks() == 0)
                }
                _ => return,
            };
            // Before that, blocks in RAM may replace dirty ones on the flash.
            if let Some(unwritten) = unwritten {
                inner.state.note_remaining(time::now(), unwritten);
            }
            if left < fewest {
                (fewest, fewer_at) = (left, time::now());
            }
            drop(inner);
            let waited = time::elapsed(fewer_at);
            if left <= FEW_BLOCKS || waited > STALLED || is_idle && waited > IDLE {
                return;
            }
            time::sleep(LOOK_INTERVAL);
        }
    }

    /// Writes back all dirty blocks, and removes the flash.
    fn write_all_back(&mut self) -> Result<(), VolumeError> {
        let volume = self.volume;
        let (mut attempts_left, mut fewest) = (ATTEMPTS, u64::MAX);
        loop {
            let mut inner = volume.lock();
            let in_order = inner.engine.log().is_some_and(|cache| cache.epochs().is_some());
            if in_order && !self.marked && inner.engine.recovery().has_flash_failed() {
                drop(inner);
                let error = |error| VolumeError::Backend { volume: volume.config.whose(), error };
                volume.pair.note_ahead().map_err(error)?;
                inner = volume.lock();
            }
            match self.marked {
                true => inner.engine.destage_rest(time::now_us()),
                false => inner.engine.destage_all(time::now_us()),
            }
            volume.dispatch(inner);
            let mut inner = volume.freeze();
            if inner.engine.admits_while_leaving() && inner.engine.blocks_to_write_back() > 0 {
                // Blocks written meanwhile; the cache still admits blocks.
                inner.engine.destage_all(time::now_us());
                volume.dispatch(inner);
                inner = volume.freeze();
            }
            let cache = &*inner.engine;
            let dirty_blocks = cache.blocks_to_write_back();
            if inner.state.is_gone() {
                return Err(VolumeError::Closed { volume: volume.config.whose() });
            }
            if dirty_blocks == 0 {
                match read_rests(&*volume.backend, &cache.unwritten()) {
                    Ok(rests) => return self.give_up_flash(inner, rests),
                    Err(error) if attempts_left <= 1 => {
                        volume.thaw(inner);
                        return Err(VolumeError::Backend { volume: volume.config.whose(), error });
                    }
                    // A retry may succeed.
                    Err(_) => {}
                }
            }
            if !self.marked
                && dirty_blocks > 0
                && cache.recovery().has_flash_failed()
                && cache.durable_dirty_blocks() == 0
            {
                // The rest is only in memory. It may go to the backend when older copies on flash are invalid.
                let result = self.check_flash_knows_none(cache).and_then(|()| self.leave_flash());
                volume.thaw(inner);
                result?;
                (self.marked, attempts_left) = (true, ATTEMPTS_TO_READ);
                continue;
            }
            attempts_left -= 1;
            if !self.marked && dirty_blocks < fewest {
                // A backend that accepts a block again accepts the rest.
                (attempts_left, fewest) = (ATTEMPTS, dirty_blocks);
            }
            if self.marked && attempts_left == 0 && cache.is_rest_unreadable() {
                return self.give_up_flash(inner, BTreeMap::new());
            }
            volume.thaw(inner);
            if attempts_left == 0 {
                let inner = volume.lock();
                self.check_flash_knows_none(&*inner.engine)?;
                let of = volume.config.whose();
                return Err(match inner.health[FLASH].last_failure() {
                    Some(reason) if inner.health[BACKEND].last_failure().is_none() => {
                        VolumeError::NotRead { volume: of, reason: reason.to_owned() }
                    }
                    _ => VolumeError::NotDestaged { volume: of, dirty_blocks },
                });
            }
            time::sleep(ATTEMPT_INTERVAL);
            find_again(volume);
        }
    }

    /// Removes the flash. `rests` has the [rests](read_rests) of blocks that memory has in part.
    fn give_up_flash(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        rests: BTreeMap<u64, Box<Page>>,
    ) -> Result<(), VolumeError> {
        let Volume { config, backend, pair, .. } = self.volume;
        let left = self.check_flash_knows_none(&*inner.engine).and_then(|()| self.leave_flash());
        if let Err(error) = left {
            self.volume.thaw(inner);
            return Err(error);
        }
        let Inner { engine: before, state, queue, budget, .. } = &mut *inner;
        let geometry = before.geometry().unwrap_or_else(|| geometry_without_flash(config));
        let lost = before.lost_blocks();
        let refused = write_unwritten(&**backend, before.take_unwritten(), rests);
        let waiting = before.take_waiting();
        let mut engine = engine_without_flash(config, geometry, self.volume.size(), true);
        Driver::set_backend(&mut engine, backend.clone());
        let blocks: Vec<u32> = lost.iter().chain(refused.keys()).map(|block| *block as u32).collect();
        engine.cache_mut().take_over_lost(before.log(), blocks);
        if config.planted != Some(Bug::DropsRefusedData) {
            engine.take_over_unwritten(refused);
        }
        engine.succeed(before.legacy());
        before.log().into_iter().for_each(|before| engine.cache_mut().take_over_pins(before));
        budget.close(&mut **before, &config.name);
        state.leave_flash(self.why, before.status(true));
        *before = Box::new(engine);
        waiting.into_iter().for_each(|(request, done)| before.submit_waited(request, done, time::now_us(), 0));
        if let Err(error) = pair.flash.let_go() {
            tracing::warn!(event = "flash-still-open", volume = config.name, %error, "the flash stays open until the \
                server ends");
        }
        queue.begin_anew();
        self.volume.thaw(inner);
        Ok(())
    }

    /// Fails if only the flash records lost blocks, or has their last flushed contents. First writes back blocks that
    /// wait in memory: until the flash is removed, its records count after a crash.
    fn check_flash_knows_none(&self, cache: &(dyn Driver + 'static)) -> Result<(), VolumeError> {
        let (volume, lost) = (self.volume.config.whose(), cache.lost_on_flash());
        let unwritten = || write_unwritten(&*self.volume.backend, cache.unwritten_on_flash(), BTreeMap::new()).len();
        match (lost, cache.recovery().has_flash_failed()) {
            (0, _) => match unwritten() as u64 {
                0 => Ok(()),
                dirty_blocks => Err(VolumeError::NotDestaged { volume, dirty_blocks }),
            },
            (_, true) => Err(VolumeError::LostWithFlash { volume, lost }),
            (_, false) => Err(VolumeError::Lost { volume, lost }),
        }
    }

    /// Marks the contents of the flash as outdated.
    fn leave_flash(&self) -> Result<(), VolumeError> {
        let volume = || self.volume.config.whose();
        self.volume.pair.leave(self.why).map_err(|error| VolumeError::Flash { volume: volume(), error })
    }
}

/// A volume with a failed flash counts as detached when an operator detaches it.
fn keep_detached(volume: &Volume, why: Without) -> Result<(), VolumeError> {
    if matches!(why, Without::Detached { .. }) {
        let error = |error| VolumeError::Backend { volume: volume.config.whose(), error };
        volume.pair.note_detached().map_err(error)?;
        volume.lock().state.set_without(why);
    }
    Ok(())
}

/// Removes a failed flash without dirty blocks, and records that on the backend. Otherwise, requests fail until an
/// operator detaches the flash.
pub(super) fn decide(volume: &Volume) {
    {
        let mut inner = volume.lock();
        // An unreadable flash may recover.
        if inner.engine.recovery().waits() || !inner.state.decide() {
            return;
        }
    }
    // Requests in progress may still be lost with the flash.
    let inner = volume.freeze();
    let can_go_on = inner.engine.can_give_up_flash();
    volume.thaw(inner);
    let name = &volume.config.name;
    let gone_on = can_go_on.then(|| Detach::run(volume, Without::Failed));
    let mut inner = volume.lock();
    match gone_on {
        Some(Ok(())) => {
            let lost = inner.engine.lost_blocks().len();
            drop(inner);
            return match lost {
                0 => tracing::error!(
                    event = "without-flash",
                    volume = name,
                    "the flash failed; it held no unwritten data, and the volume continues without it"
                ),
                lost => tracing::error!(
                    event = "without-flash",
                    volume = name,
                    lost_blocks = lost,
                    "the flash failed with unflushed blocks, and the volume continues without it; until they are \
                     rewritten, they cannot be read and no flush succeeds"
                ),
            };
        }
        Some(Err(error)) => {
            tracing::error!(event = "flash-failed", volume = name, %error, "the flash failed, and the volume cannot \
                continue without it");
        }
        None => tracing::error!(
            event = "flash-failed",
            volume = name,
            "the flash failed and holds unwritten data: writes are refused until 'flashwise detach'"
        ),
    }
    let mut failed = inner.queue.take_owed();
    let held = inner.engine.recovery_mut().stop_holding();
    if volume.config.planted != Some(Bug::ForgetsHeldRequests) {
        failed.extend(held);
    }
    inner.failed_requests += failed.len() as u64;
    volume.dispatch(inner);
    failed.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
}

/// Creates the engine of a volume without flash, only with RAM. `detached`: it had a flash, so every write goes to the
/// backend at once.
pub(super) fn engine_without_flash(
    config: &VolumeConfig,
    geometry: Geometry,
    size_bytes: u64,
    detached: bool,
) -> Engine {
    let mut of_cache = cache_config(config, geometry, size_bytes);
    config.layout.fit_without_flash(config, &mut of_cache);
    let mut cache = LogCache::new(of_cache, Log::new(geometry), Default::default());
    if detached {
        cache.stop_admitting();
        cache.write_around();
    }
    cache.do_without_flash();
    let settings = Settings {
        cache: 0,
        epoch: 0,
        retries: 2,
        discard: false,
        spare_frames: SPARE_FRAMES,
        answers_flushes_at_once: false,
        planted: config.planted,
        ..Settings::default()
    };
    Engine::new(cache, settings, vec![0; geometry.pages() as usize], Vec::new())
}
