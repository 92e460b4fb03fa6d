//! Giving the flash up: everything is written back first, so that the backend alone is whole.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use flashwise_core::cache::{Cache, LogCache};
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout, Page};
use flashwise_core::layout::containers::Log;
use flashwise_engine::engine::{BACKEND, Bug, FLASH, Settings};
use flashwise_engine::log::{Engine, SPARE_FRAMES};
use flashwise_engine::memory::Memory;

use super::config::cache_config;
use super::devices::geometry_without_flash;
use super::remaining::Remaining;
use super::requests::Waiting;
use super::{BLOCK, Inner, Volume, VolumeConfig, VolumeError};
use crate::attach::{attach_again, note_detached};
use crate::driver::Driver;
use crate::export::{Error, Export, Request};
use crate::status::VolumeState;
use crate::time;
use crate::vital::MutexGuard;

/// How often what is to be written back is tried in vain before the flash stays, ...
const ATTEMPTS: u32 = 10;
/// ... how often what cannot be read of one that failed is tried before it counts as lost, ...
const ATTEMPTS_TO_READ: u32 = 25;
/// ... and how long that rests in between.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(200);

/// Blocks that are written back while clients wait.
const FEW_BLOCKS: u64 = 12;
/// The cleaner does not get on if clients make as much dirty as it writes back for so long, ...
const STALLED: Duration = Duration::from_secs(30);
/// ... or if it writes nothing for so long: it begins with the newest erase unit once a second.
const IDLE: Duration = Duration::from_secs(3);
/// How often it is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

impl Volume {
    /// Writes everything back and gives the cache up: afterwards the backend alone is whole, and the volume goes on
    /// without flash. Where that fails, the volume goes on with its flash, unless what the flash holds counts no more
    /// already.
    ///
    /// A flash that failed is given up once the backend has all that was flushed. What was answered since, and is
    /// nowhere any more, is lost from then on: it cannot be read and no flush succeeds until it is written anew.
    /// Returns how many blocks these are.
    pub fn detach(&self) -> Result<usize, VolumeError> {
        let volume = &self.config.name;
        self.detach_into(VolumeState::Detached).inspect_err(
            |error| tracing::error!(event = "detach-failed", volume, %error, "the flash is not detached"),
        )?;
        let lost_blocks = self.lock().engine.lost_blocks().len();
        tracing::info!(
            event = "detached",
            volume,
            lost_blocks,
            "the volume is detached and continues without its flash"
        );
        Ok(lost_blocks)
    }

    /// Ends a detach: the next start uses the flash of the configuration again. This run goes on without it.
    ///
    /// # Errors
    /// The volume is not detached, or its record cannot be written.
    pub fn attach(&self) -> Result<(), VolumeError> {
        let _only = self.detaching.lock();
        let volume = || self.config.whose();
        if self.lock().state != VolumeState::Detached {
            return Err(VolumeError::NotDetached { volume: volume() });
        }
        attach_again(&*self.side)
            .map_err(|error| VolumeError::Backend { volume: volume(), error: io::Error::other(error.to_string()) })?;
        self.lock().remark = Some("the next start uses the flash again".to_owned());
        Ok(())
    }

    /// Where the flash failed and nothing is only there, the volume goes on without it, and the backend knows. Else
    /// requests that failed are answered so, until an operator detaches it.
    pub(super) fn go_on_without_flash(&self) {
        {
            let mut inner = self.lock();
            let failed = inner.engine.has_flash_failed();
            // A flash that cannot be read for now may be read later.
            if !failed
                || inner.engine.waits()
                || inner.state != VolumeState::Ok
                || inner.closed
                || std::mem::replace(&mut inner.flash_given_up, true)
            {
                return;
            }
        }
        // What is under way may still be lost with the flash.
        let inner = self.freeze();
        let can_go_on = inner.engine.can_give_up_flash();
        self.thaw(inner);
        let volume = &self.config.name;
        let gone_on = can_go_on.then(|| self.detach_into(VolumeState::WithoutFlash));
        let mut inner = self.lock();
        match gone_on {
            Some(Ok(())) => {
                let lost = inner.engine.lost_blocks().len();
                drop(inner);
                return match lost {
                    0 => tracing::error!(
                        event = "without-flash",
                        volume,
                        "the flash failed; it held no unwritten data, and the volume continues without it"
                    ),
                    lost => tracing::error!(
                        event = "without-flash",
                        volume,
                        lost_blocks = lost,
                        "the flash failed with unflushed blocks, and the volume continues without it; until they are \
                         rewritten, they cannot be \
                         read and no flush succeeds"
                    ),
                };
            }
            Some(Err(error)) => {
                tracing::error!(event = "flash-failed", volume, %error, "the flash failed, and the volume cannot \
                    continue without it");
            }
            None => tracing::error!(
                event = "flash-failed",
                volume,
                "the flash failed and holds unwritten data: writes are refused until 'flashwise detach'"
            ),
        }
        let mut held = std::mem::take(&mut inner.held);
        let failed = inner.engine.stop_holding();
        if self.config.planted != Some(Bug::ForgetsHeldRequests) {
            held.extend(failed);
        }
        inner.failed_requests += held.len() as u64;
        self.dispatch(inner);
        held.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
    }

    fn detach_into(&self, state: VolumeState) -> Result<(), VolumeError> {
        let _only = (self.config.planted != Some(Bug::DetachesTwice)).then(|| self.detaching.lock());
        let mode;
        {
            let mut inner = self.lock();
            if self.config.flash.as_os_str().is_empty() {
                return Ok(());
            }
            if inner.state.is_without_flash() {
                drop(inner);
                return self.keep_detached(state);
            }
            inner.state = VolumeState::Detaching;
            inner.remaining = None;
            inner.remark = None;
            // What waits in RAM goes to the flash, which takes it sooner than the backend. The cleaner finds out
            // whether that works.
            drop(inner);
            drop(self.begin_flush());
            inner = self.lock();
            mode = inner.engine.log().map(|cache| cache.config().mode);
            inner.engine.log_mut().into_iter().for_each(LogCache::stop_admitting);
        }
        self.write_most_back();
        self.lock().engine.log_mut().into_iter().for_each(LogCache::write_around);
        let mut marked = false;
        let result = self.write_all_back(state, &mut marked);
        if let Err(error) = &result
            && !marked
        {
            let mut inner = self.lock();
            inner.state = VolumeState::Ok;
            inner.remark = Some(format!("the flash was not detached: when that was asked for last, {error}"));
            let log = inner.engine.log_mut();
            log.zip(mode).into_iter().for_each(|(log, mode)| log.admit_again(mode));
        }
        result
    }

    /// Waits while the cleaner of a log writes back what is dirty, as long as it gets on: clients go on meanwhile, and
    /// little is left to be written back while they wait.
    fn write_most_back(&self) {
        let (mut fewest, mut fewer_at) = (u64::MAX, time::now());
        loop {
            let mut inner = self.lock();
            let fails = inner.engine.has_flash_failed() || inner.health[BACKEND].last_failure().is_some();
            let (left, unwritten, is_idle) = match inner.engine.log() {
                Some(cache) if !inner.closed && !fails => {
                    let unwritten = (cache.buffered_blocks() == 0).then(|| cache.blocks_to_give_back());
                    (cache.blocks_to_write_back(), unwritten, cache.destaging_blocks() == 0)
                }
                _ => return,
            };
            // Before, blocks in RAM may be newer ones of those on the flash.
            if let Some(unwritten) = unwritten {
                inner.remaining = Some(Remaining::seen(inner.remaining, time::now(), unwritten));
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

    /// Writes everything back until nothing is only on flash, and gives that up; `marked` is set where it counts no
    /// more before that.
    fn write_all_back(&self, state: VolumeState, marked: &mut bool) -> Result<(), VolumeError> {
        let (mut attempts_left, mut fewest) = (ATTEMPTS, u64::MAX);
        loop {
            let mut inner = self.lock();
            match *marked {
                true => inner.engine.destage_rest(time::now_us()),
                false => inner.engine.destage_all(time::now_us()),
            }
            self.dispatch(inner);
            let mut inner = self.freeze();
            if inner.engine.admits_while_leaving() && inner.engine.blocks_to_write_back() > 0 {
                // What was written meanwhile; it admits no less for being given up.
                inner.engine.destage_all(time::now_us());
                self.dispatch(inner);
                inner = self.freeze();
            }
            let cache = &*inner.engine;
            let dirty_blocks = cache.blocks_to_write_back();
            if inner.closed {
                return Err(VolumeError::Closed { volume: self.config.whose() });
            }
            if dirty_blocks == 0 {
                match self.read_rests(&cache.unwritten()) {
                    Ok(rests) => return self.give_up_flash(inner, state, rests),
                    Err(error) if attempts_left <= 1 => {
                        self.thaw(inner);
                        return Err(VolumeError::Backend { volume: self.config.whose(), error });
                    }
                    // It may be readable soon.
                    Err(_) => {}
                }
            }
            if !*marked && dirty_blocks > 0 && cache.has_flash_failed() && cache.durable_dirty_blocks() == 0 {
                // The rest is in memory alone, and may go to the backend once nothing older on flash counts any more.
                let result = self.check_flash_knows_none(cache).and_then(|()| self.mark_detached(state));
                self.thaw(inner);
                result?;
                (*marked, attempts_left) = (true, ATTEMPTS_TO_READ);
                continue;
            }
            attempts_left -= 1;
            if !*marked && dirty_blocks < fewest {
                // A backend that takes something again takes the rest.
                (attempts_left, fewest) = (ATTEMPTS, dirty_blocks);
            }
            if *marked && attempts_left == 0 && cache.is_rest_unreadable() {
                return self.give_up_flash(inner, state, BTreeMap::new());
            }
            self.thaw(inner);
            if attempts_left == 0 {
                let inner = self.lock();
                self.check_flash_knows_none(&*inner.engine)?;
                let volume = self.config.whose();
                return Err(match inner.health[FLASH].last_failure() {
                    Some(reason) if inner.health[BACKEND].last_failure().is_none() => {
                        VolumeError::NotRead { volume, reason: reason.to_owned() }
                    }
                    _ => VolumeError::NotDestaged { volume, dirty_blocks },
                });
            }
            time::sleep(ATTEMPT_INTERVAL);
            self.mend();
        }
    }

    /// `rests`: of blocks that [memory has in part](Self::read_rests).
    fn give_up_flash(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        state: VolumeState,
        rests: BTreeMap<u64, Box<Page>>,
    ) -> Result<(), VolumeError> {
        let marked = self.check_flash_knows_none(&*inner.engine).and_then(|()| self.mark_detached(state));
        if let Err(error) = marked {
            self.thaw(inner);
            return Err(error);
        }
        let geometry = inner.engine.geometry().unwrap_or_else(|| geometry_without_flash(&self.config));
        let lost = inner.engine.lost_blocks();
        let refused = self.write_unwritten(inner.engine.take_unwritten(), rests);
        let mut engine = engine_without_flash(&self.config, geometry, self.size(), true);
        Driver::set_backend(&mut engine, self.backend.clone());
        let blocks: Vec<u32> = lost.iter().chain(refused.keys()).map(|block| *block as u32).collect();
        engine.cache_mut().take_over_lost(inner.engine.log(), blocks);
        if self.config.planted != Some(Bug::DropsRefusedData) {
            engine.take_over_unwritten(refused);
        }
        engine.succeed(inner.engine.legacy());
        inner.engine.log().into_iter().for_each(|before| engine.cache_mut().take_over_pins(before));
        self.close_account(&mut inner);
        inner.given_up = Some(Box::new(inner.engine.status(true)));
        inner.engine = Box::new(engine);
        inner.state = state;
        if let Err(error) = self.flash.let_go() {
            tracing::warn!(event = "flash-still-open", volume = self.config.name, %error, "the flash stays open until \
                the server ends");
        }
        let held = std::mem::take(&mut inner.held);
        let held = held.into_iter().rev().map(|(request, done)| Waiting::new(request, done));
        held.for_each(|held| inner.waiting.push_front(held));
        self.thaw(inner);
        Ok(())
    }

    /// What the backend has of the blocks of which changes are about a part.
    fn read_rests(&self, changes: &[Request]) -> io::Result<BTreeMap<u64, Box<Page>>> {
        let mut rests = BTreeMap::new();
        for request in changes {
            for block in [request.offset / BLOCK, (request.offset + request.length - 1) / BLOCK] {
                if !is_whole(request, block) && !rests.contains_key(&block) {
                    rests.insert(block, self.read_block(block)?);
                }
            }
        }
        Ok(rests)
    }

    /// Writes changes that only memory has to the backend, durably. Returns the blocks that the backend refuses, with
    /// their content; none of a block that is changed in part and whose rest is not among `rests` and cannot be read.
    fn write_unwritten(
        &self,
        changes: Vec<Request>,
        mut rests: BTreeMap<u64, Box<Page>>,
    ) -> BTreeMap<u64, Option<Box<Page>>> {
        let mut contents: BTreeMap<u64, Option<Box<Page>>> = BTreeMap::new();
        for request in changes {
            let end = request.offset + request.length;
            for block in request.offset / BLOCK..end.div_ceil(BLOCK) {
                let before = match contents.remove(&block) {
                    _ if is_whole(&request, block) => Some(Box::new([0; BLOCK_BYTES])),
                    Some(before) => before,
                    None => rests.remove(&block).or_else(|| self.read_block(block).ok()),
                };
                let content = before.map(|mut content| {
                    request.put_over(block * BLOCK, &mut *content);
                    content
                });
                contents.insert(block, content);
            }
        }
        if contents.is_empty() {
            return contents;
        }
        // Devices may want it aligned.
        let mut memory = Memory::new(1);
        let mut write = |block: u64, content: &Page| {
            memory.page_mut(0).copy_from_slice(content);
            self.backend.write_at(memory.page(0), block * BLOCK)
        };
        let written = |(block, content): (&u64, &Option<Box<Page>>)| {
            content.as_ref().is_some_and(|content| write(*block, content).is_ok()).then_some(*block)
        };
        let written: Vec<u64> = contents.iter().filter_map(written).collect();
        if self.backend.sync().is_ok() {
            written.iter().for_each(|block| drop(contents.remove(block)));
        }
        contents
    }

    fn read_block(&self, block: u64) -> io::Result<Box<Page>> {
        let mut memory = Memory::new(1);
        self.backend.read_at(memory.page_mut(0), block * BLOCK)?;
        Ok(Box::new(*memory.page(0)))
    }

    /// Refuses to give up a flash that alone knows of blocks that they are lost, or has them as they were flushed last.
    /// Those that wait in memory are written back first: until the flash is given up, what it says of them counts after
    /// a crash.
    fn check_flash_knows_none(&self, cache: &dyn Driver) -> Result<(), VolumeError> {
        let (volume, lost) = (self.config.whose(), cache.lost_on_flash());
        match (lost, cache.has_flash_failed()) {
            (0, _) => match self.write_unwritten(cache.unwritten_on_flash(), BTreeMap::new()).len() as u64 {
                0 => Ok(()),
                dirty_blocks => Err(VolumeError::NotDestaged { volume, dirty_blocks }),
            },
            (_, true) => Err(VolumeError::LostWithFlash { volume, lost }),
            (_, false) => Err(VolumeError::Lost { volume, lost }),
        }
    }

    /// A volume whose flash failed is detached once an operator asks for it.
    fn keep_detached(&self, state: VolumeState) -> Result<(), VolumeError> {
        if state == VolumeState::Detached {
            let volume = self.config.whose();
            note_detached(&*self.side).map_err(|error| VolumeError::Backend { volume, error })?;
            let mut inner = self.lock();
            (inner.state, inner.remark) = (state, None);
        }
        Ok(())
    }

    /// From now on, what the flash holds counts no more.
    fn mark_detached(&self, state: VolumeState) -> Result<(), VolumeError> {
        let detached = self.with_attachment(|attachment| match state {
            VolumeState::Detached => attachment.detach(&*self.flash, &*self.side),
            _ => attachment.leave_failed(&*self.flash, &*self.side),
        });
        detached.map_err(|error| VolumeError::Flash { volume: self.config.whose(), error })
    }
}

/// True if a change is about all of a block.
fn is_whole(change: &Request, block: u64) -> bool {
    change.offset <= block * BLOCK && (block + 1) * BLOCK <= change.offset + change.length
}

/// The engine of a volume that has no flash, of a cache that would have had this geometry: RAM alone. `detached`:
/// whether it had one, whose backend is to be whole by itself, so that what is written goes there at once.
pub(super) fn engine_without_flash(
    config: &VolumeConfig,
    geometry: Geometry,
    size_bytes: u64,
    detached: bool,
) -> Engine {
    let mut of_cache = cache_config(config, geometry, size_bytes);
    if config.layout == Layout::Wlfc {
        // It has the RAM that it had, and no write buffer.
        of_cache.read_buffer_blocks = (config.cache.buckets().ram_bytes / BLOCK).try_into().unwrap_or(u32::MAX);
        of_cache.write_buffer_blocks = 0;
    }
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
