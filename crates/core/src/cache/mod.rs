//! Caches: the common interface ([`Cache`]), and the cache of a server, [`LogCache`], which turns requests of any
//! length and alignment into [`Step`]s.
//!
//! Sources: NCache, section 3.2: an LRU read buffer and a write buffer in RAM, in front of flash. LARC, section V.A:
//! write modes, I/O filter for sequential streams, cleaner. WLFC, section IV.D: recovery by epochs, idempotent
//! commits.
//!
//! It plans as if every step completed immediately; [`Step`] defines the allowed overlaps. The results of steps are
//! [`Event`]s, like requests.
//!
//! Two rules make it safe to lose power at any time. *The backend's copy of a block changes only once no older clean
//! copy on flash would be valid after a crash. A flush is answered only once no older dirty copy would be valid.* A
//! block that is written back has that copy on flash, made durable before. A write to the backend goes to flash as well
//! or instead if there is a dirty copy, or if the block was lost. Before it overwrites a block with a clean copy, the
//! region of the backend is durably [unsure](crate::format::Kind::Unsure); see `intents.rs`.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Request};
//! use flashwise_core::format::Geometry;
//! use flashwise_core::layout::containers::Log;
//! use flashwise_core::step::Step;
//!
//! // Flash of 24 erase units of 16 pages, a page being a block of 4 KiB.
//! let geometry = Geometry { units: 24, unit_pages: 16 };
//! let config = Config::new(geometry, "lru".parse()?);
//! let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
//!
//! // Reads block 7 twice, at 1 s and at 2 s: first from the backend, then from memory or flash.
//! for (now_us, is_hit) in [(1_000_000, false), (2_000_000, true)] {
//!     let mut steps = Vec::new();
//!     for piece in Request::pieces(Kind::Read, 7 * 4096, 4096, false) {
//!         cache.on(Event::Request { request: &piece, now_us }, &mut steps);
//!     }
//!     let reads_backend = steps.iter().any(|step| matches!(step, Step::ReadBackend { block: 7, .. }));
//!     assert_eq!(reads_backend, !is_hit);
//!     assert!(steps.contains(&Step::Reply));
//! }
//! # Ok::<(), flashwise_core::options::OptionError>(())
//! ```

mod append;
mod cleaner;
mod config;
mod destage;
mod event;
mod figures;
mod groups;
mod in_order;
mod intents;
mod lost;
mod order_lost;
mod pace;
mod past;
mod previous;
mod read;
pub mod request;
mod results;
pub mod settings;
mod touched;
mod unflushed;
mod write;

use std::collections::{HashMap, HashSet};

pub use config::{Config, CopyForward, Mode, Regions, WriteBackOrder, admission};
use destage::Destaging;
pub use event::{Appending, Cache, Event};
pub use figures::{Figures, Reads};
use groups::InOrder;
use in_order::PLAN_UNITS_LEAST;
use intents::Intents;
use lost::Losses;
use pace::Pace;
use previous::Previous;
use request::{BlockPart, parts};
pub use request::{Kind, Request};
use settings::{Devices, Live, SettingError, Settings};
use touched::Touched;

use crate::admission::Admission;
use crate::admission::adaptive::Decision;
use crate::counters::Counters;
use crate::format::{BLOCK_BYTES, Geometry, Place};
use crate::frames::Frames;
use crate::index::Hashed;
use crate::layout::containers::Log;
use crate::layout::contents::AnyPolicy;
use crate::policy::{Boxed, Policy, Spec};
use crate::ram::read_buffer::ReadBuffer;
use crate::ram::write_buffer::WriteBuffer;
use crate::step::{Cause, Frame, Step};
use crate::streams::{STREAMS_DEFAULT, Streams};

/// Maximum number of blocks of a read, write or prefetch that is planned in one piece.
pub const PIECE_BLOCKS: u32 = 64;
/// Maximum number of blocks of a trim or of zeroing that is planned in one piece.
pub const ZERO_PIECE_BLOCKS: u32 = 16_384;
/// Approximate number of a policy's nodes besides slots of the log and ghosts: heads of lists, and new blocks.
const NODES_BESIDE_SLOTS: u32 = 128;
/// The time between two ticks.
const TICK_US: u64 = 1_000_000;
/// Prefetch distance in blocks when warming a policy.
const WARM_AHEAD: usize = 32;

/// Builds the policy of `config`, for a cache whose space is already in use if it `is_full`.
fn build_policy(config: &Config, is_full: bool) -> AnyPolicy {
    let (policy, capacity) = (&config.policy, config.capacity_blocks());
    let mut policy: AnyPolicy = if let Some(Admission { rule, setting }) = &config.admission {
        // A rule's memory has an index like the policy's, with numbers that need not be as large.
        let index = Hashed::with_capacity(config.data_pages() as usize, 0);
        rule.build(policy, index, capacity, setting)
    } else {
        // The policy's table is the log's directory: an entry for each block with a copy, numbered by slot. Ghosts make
        // it grow.
        let node_max = config.geometry.pages().saturating_add(NODES_BESIDE_SLOTS);
        policy.build(Hashed::with_capacity(config.data_pages() as usize, node_max), capacity, Boxed)
    };
    policy.set_young(config.copy_forward.young_share());
    if is_full {
        policy.space_is_full();
    }
    policy
}

/// A cache in RAM and in a log on flash, in front of a backend.
pub struct LogCache {
    config: Config,
    /// The log, with the policy, whose table of blocks it shares.
    log: Log,
    read_buffer: ReadBuffer<Frame>,
    /// The pin of the current requests: see [`ReadBuffer`].
    pin: u8,
    write_buffer: WriteBuffer<Frame>,
    past: past::Past,
    streams: Streams,
    frames: Frames,
    /// By frame in the write buffer: length in blocks of the request that wrote it last.
    frame_request_blocks: Vec<u32>,
    /// Frames of the request that is being planned.
    transient: Vec<Frame>,
    destaging: Destaging,
    pace: Pace,
    /// Units before this sequence number have no dirty blocks outside write-backs in progress.
    clean_from: u64,
    /// How often blocks became due; and the sequence number before which units have no due blocks outside write-backs
    /// in progress.
    due_from: (u64, u64),
    /// The time when the unit being filled was last cleaned.
    head_cleaned_us: u64,
    /// The epochs, if data is written back in order.
    in_order: Option<InOrder>,
    lost: Losses,
    touched: Touched,
    intents: Intents,
    /// Dirty blocks whose last read from flash failed, with their slots.
    unreadable: HashMap<u32, u32>,
    /// Blocks whose acknowledged write failed on the backend, for which an unfinished later write may make up.
    backend_lacks: HashSet<u32>,
    unflushed: unflushed::Unflushed,
    /// True if the last write to the backend failed.
    backend_refuses: bool,
    flash_failed: bool,
    /// The end of the log at the last reply that promised durability, or at the start.
    promised: Place,
    previous: Previous,
    /// True if the policy is consulted; false once the flash is being removed.
    admitting: bool,
    /// True if there is a flash; otherwise nothing is ever added to the log.
    has_flash: bool,
    /// True if the flash's contents are no longer valid.
    detached: bool,
    request_blocks: u32,
    /// Blocks of the current change whose pieces are not planned yet.
    change_blocks: u64,
    now_us: u64,
    /// The time of the last tick.
    ticked_us: u64,
    /// True if anything happened after the last tick.
    active: bool,
    /// The end of the log at the last tick.
    ticked_end: Place,
    figures: Figures,
    counters: Counters,
    /// Blocks written to flash so far in addition to those that the policy requested, as reported to the policy.
    others_written: f64,
}

impl std::fmt::Debug for LogCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogCache").field("config", &self.config).field("figures", &self.figures).finish_non_exhaustive()
    }
}

impl LogCache {
    /// Creates a cache over a log that is empty or was recovered. `lost` are the blocks that recovery found lost, each
    /// with the sequence number of the unit that records it.
    pub fn new(config: Config, mut log: Log, lost: HashMap<u32, u64>) -> LogCache {
        log.limit_segments(config.segment_blocks);
        let working = config.working_frames();
        let clean_from = *log.sequences().start();
        log.set_policy(build_policy(&config, log.has_wrapped()));
        // Everything that recovery found may have been acknowledged as durable.
        let promised = log.flushed();
        let mut cache = LogCache {
            log,
            read_buffer: ReadBuffer::new(config.read_buffer_blocks as usize),
            pin: 0,
            past: past::Past::default(),
            write_buffer: WriteBuffer::new(config.write_buffer_blocks as usize, config.write_buffer_half_life),
            streams: Streams::new(config.sequential_blocks.into(), STREAMS_DEFAULT),
            frames: Frames::new(0, working),
            frame_request_blocks: vec![0; working as usize],
            transient: Vec::new(),
            destaging: Destaging::new(working),
            pace: Pace::default(),
            clean_from,
            due_from: (0, 0),
            head_cleaned_us: 0,
            in_order: None,
            lost: Losses::new(lost),
            touched: Touched::default(),
            intents: Intents::new(config.regions),
            unreadable: HashMap::new(),
            backend_lacks: HashSet::new(),
            // An earlier run may have written to the backend and crashed before its flush.
            unflushed: unflushed::Unflushed::new(),
            backend_refuses: false,
            flash_failed: false,
            promised,
            previous: Previous::default(),
            admitting: true,
            has_flash: true,
            detached: false,
            request_blocks: 1,
            change_blocks: 0,
            now_us: 0,
            ticked_us: 0,
            active: true,
            ticked_end: Place::default(),
            figures: Figures::default(),
            counters: Counters::default(),
            others_written: 0.0,
            config,
        };
        cache.others_written = cache.count_others_written();
        cache.set_order();
        cache.warm_policy();
        cache.lost.blocks().for_each(|&block| cache.touched.add(block..block + 1));
        cache
    }

    /// Warms the policy with the blocks of the log, oldest first.
    fn warm_policy(&mut self) {
        for sequence in self.log.sequences() {
            let blocks = self.log.blocks_in(sequence);
            for (at, &(block, _)) in blocks.iter().enumerate() {
                if let Some(&(ahead, _)) = blocks.get(at + WARM_AHEAD) {
                    self.log.prefetch(ahead);
                }
                self.log.policy_mut().warm(block);
                self.touched.add(block..block + 1);
            }
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the given settings: all of them, or none if they are inconsistent. Settings that cannot change at run
    /// time keep their values.
    pub fn change(&mut self, settings: &Settings, devices: &Devices) -> Result<(), SettingError> {
        self.config = self.changed(settings, devices)?;
        self.active = true;
        self.set_order();
        if settings.changes(Live::Policy) {
            self.rebuild_policy();
        }
        if settings.changes(Live::CopyForward) {
            self.log.policy_mut().set_young(self.config.copy_forward.young_share());
        }
        if settings.changes(Live::Streams) {
            self.streams = Streams::new(self.config.sequential_blocks.into(), STREAMS_DEFAULT);
        }
        Ok(())
    }

    /// Rejects settings that [`change`](Self::change) would reject.
    pub fn check_change(&self, settings: &Settings, devices: &Devices) -> Result<(), SettingError> {
        self.changed(settings, devices).map(drop)
    }

    fn changed(&self, settings: &Settings, devices: &Devices) -> Result<Config, SettingError> {
        let mut config = self.config.clone();
        settings.put_live(&mut config, devices);
        config.check()?;
        Ok(config)
    }

    /// Replaces the policy and its admission rule; new ones are warmed with the blocks on flash.
    pub fn set_policy(&mut self, policy: Spec, admission: Option<Admission>) {
        (self.config.policy, self.config.admission) = (policy, admission);
        self.rebuild_policy();
    }

    fn rebuild_policy(&mut self) {
        self.log.set_policy(build_policy(&self.config, self.log.has_wrapped()));
        self.warm_policy();
    }

    /// Returns the last decision of an adaptive admission rule; `None` before the first.
    pub fn decision(&self) -> Option<&Decision> {
        self.log.policy().decision()
    }

    /// Returns the threshold of an adaptive admission rule: a portion, blocks or references. `None` if no rule adapts a
    /// threshold, before its first decision, and if everything is admitted by size.
    pub fn admission_threshold(&self) -> Option<f64> {
        let rule = &self.config.admission.as_ref()?.rule;
        rule.threshold(self.log.policy().decision()?)
    }

    /// Describes the current choice of an adaptive admission rule; `None` if none adapts.
    pub fn admission_choice(&self) -> Option<String> {
        let Admission { rule, setting } = self.config.admission.as_ref()?;
        rule.choice(&self.config.policy, self.log.policy().decision(), setting.block_bytes)
    }

    /// Returns the counters of reads so far.
    #[inline]
    pub fn reads(&self) -> Reads {
        Reads::from(&self.figures)
    }

    /// Returns the log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the counters of the policy's outcomes.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of acknowledged blocks that are only in RAM.
    pub fn buffered_blocks(&self) -> usize {
        self.write_buffer.len()
    }

    /// Sets the write mode; the cleaner writes back dirty blocks that the new mode does not allow.
    pub fn set_mode(&mut self, mode: Mode) {
        self.config.mode = mode;
        self.active = true;
    }

    /// Reserves blocks of the read buffer for reads of a pin. Returns false if the other pins leave no room.
    pub fn pin_ram(&mut self, pin: u8, blocks: usize) -> bool {
        self.read_buffer.pin(pin, blocks)
    }

    /// Sets the pin of the next requests; 0 for none.
    pub fn set_pin(&mut self, pin: u8) {
        self.pin = pin;
    }

    /// Takes over the reservations of pins from a predecessor.
    pub fn take_over_pins(&mut self, before: &LogCache) {
        let pinned = before.read_buffer.pinned_blocks();
        for (pin, blocks) in (0u8..).zip(pinned).filter(|(_, blocks)| **blocks > 0) {
            self.read_buffer.pin(pin, *blocks);
        }
    }

    /// Plans a request: adds the steps of its reply, and then background steps.
    fn plan(&mut self, request: &Request, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        self.tick_policy(now_us);
        self.end_last_run(steps);
        self.active = true;
        let whole_blocks = request.whole_length.div_ceil(BLOCK_BYTES as u64);
        self.request_blocks = u32::try_from(whole_blocks).unwrap_or(u32::MAX).max(1);
        let is_change = !matches!(request.kind, Kind::Read | Kind::Prefetch | Kind::Flush);
        if is_change && self.change_blocks == 0 {
            self.change_blocks = whole_blocks;
        }
        let later_blocks = self.change_blocks.saturating_sub(request.blocks().len() as u64).max(1);
        let later_blocks = if is_change && !request.last { later_blocks } else { 0 };
        if is_change && (self.flash_failed || self.lacks_room(request, PLAN_UNITS_LEAST)) {
            self.change_blocks = later_blocks;
            steps.extend([Step::Fail, Step::Reply]);
            return;
        }
        if matches!(request.kind, Kind::Read | Kind::Prefetch | Kind::Write) {
            self.touched.add(request.blocks());
        }
        match request.kind {
            Kind::Read => self.plan_read(request, true, steps),
            Kind::Prefetch => self.plan_read(request, false, steps),
            Kind::Write => self.plan_write(request, steps),
            Kind::Flush => self.plan_flush(steps),
            Kind::Trim => self.plan_zeroes(request, true, true, steps),
            Kind::WriteZeroes { may_punch_holes } => self.plan_zeroes(request, false, may_punch_holes, steps),
        }
        self.change_blocks = later_blocks;
        steps.push(Step::Reply);
        self.background(steps);
        self.transient.drain(..).for_each(|frame| self.frames.release(frame));
    }

    /// Returns the time when blocks leave the write buffer because of age; `None` if all of them are already leaving.
    fn commit_us(&self) -> Option<u64> {
        let oldest_us = self.write_buffer.oldest_us().filter(|_| self.write_buffer.len() > self.past.leaving())?;
        Some(oldest_us.saturating_add(self.config.commit_age_us))
    }

    /// Returns the time when a tick has work, if nothing else happens.
    fn due_us(&self) -> Option<u64> {
        let retry_us = (self.destaging.after_us > self.ticked_us).then_some(self.destaging.after_us);
        let appends = self.log.lacks_witness() || self.log.waits_to_say_sure();
        let witness_us = appends.then_some(self.ticked_us);
        let others_us = [self.epoch_ends_us(), self.aged_us(), retry_us, self.intents.due_us(), witness_us];
        self.commit_us().into_iter().chain(others_us.into_iter().flatten()).min()
    }

    /// Plans the work that is due, without a request.
    fn tick(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        (self.ticked_us, self.active) = (now_us, false);
        if self.flash_failed {
            return;
        }
        self.end_last_run(steps);
        if self.commit_us().is_some_and(|commit_us| commit_us <= now_us) {
            // Only before accesses, whose times are the same in a replay; other ticks are not reproducible.
            self.tick_policy(now_us);
            self.commit(steps);
        } else if self.epoch_ends_us().is_some_and(|ends_us| ends_us <= now_us) {
            self.end_epoch(steps);
        }
        self.clean_all(steps);
        self.background(steps);
        self.become_sure(now_us, steps);
        // After a while without appends: a witness costs as much as a small segment.
        if self.ticked_end == self.log.end() {
            if self.log.waits_to_say_sure() || self.log.writes_in_order() {
                self.log_seal(steps);
            }
            self.log.bear_witness(steps);
        }
        self.ticked_end = self.log.end();
    }

    fn set_time(&mut self, now_us: u64) {
        self.now_us = now_us;
        // Each change of a dirty block writes the flash, so none stays dirty for longer than a tick while the budget of
        // writes is overdrawn.
        let age_max_us = if self.log.policy().is_overdrawn() { TICK_US } else { u64::MAX };
        self.log.set_time(now_us, self.config.dirty_age_us.min(age_max_us));
    }
}

impl Cache for LogCache {
    type Step = Step;
    type Figures = Figures;

    #[inline]
    fn on(&mut self, event: Event<'_>, steps: &mut Vec<Step>) {
        match event {
            Event::Request { request, now_us } => self.plan(request, now_us, steps),
            Event::Tick { now_us } => self.tick(now_us, steps),
            Event::GoOn => {
                self.send_past(steps);
                if self.destaging.blocks() == 0 {
                    self.go_on(steps);
                }
            }
            Event::DestageAll { now_us } => self.destage_all(now_us, steps),
            Event::DestageRest { now_us } => self.destage_rest(now_us, steps),
            Event::Close { now_us } => self.close(now_us, steps),
            Event::Appending(appending) => self.appending(appending),
            Event::Done(step) => {
                self.past.end(step, &mut self.frames);
                self.done(step);
            }
            Event::Missing { step: Step::Append(segment), blocks } => self.never_came(segment, blocks),
            Event::Missing { .. } => unreachable!("only a segment has blocks that have no content"),
            Event::Postponed(step) => self.postponed(step),
            Event::Failed { step, missing } => {
                self.past.end(step, &mut self.frames);
                self.failed(step, missing);
            }
        }
    }

    /// Returns the next whole second, or after idle seconds the first one with due work. With ticks at these times,
    /// before each request, their effects depend only on the requests and their times.
    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        // Skip ticks without work: time does not go back.
        let next_us = (self.ticked_us.max(self.now_us) / TICK_US + 1).checked_mul(TICK_US)?;
        if next_us > now_us || self.active {
            return (next_us <= now_us).then_some(next_us);
        }
        let due_us = self.due_us()?.checked_next_multiple_of(TICK_US)?.max(next_us);
        (due_us <= now_us).then_some(due_us)
    }

    fn geometry(&self) -> Geometry {
        self.config.geometry
    }

    fn frame_count(&self) -> u32 {
        self.config.frame_count()
    }

    fn is_free(&self, frame: u32) -> bool {
        self.frames.is_free(frame)
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.write_buffer.get(block).is_some() || self.has_dirty_copy(block)
    }

    fn blocks_to_write_back(&self) -> u64 {
        // Nothing else may write to the backend before a group in the journal has its mark.
        let in_journal = u64::from(self.has_group_in_journal());
        self.log.dirty_blocks() + self.log.kept_blocks() + self.buffered_blocks() as u64 + in_journal
    }

    fn may_go_on(&self) -> bool {
        self.past.leaving() > 0 || self.waited_for_flush()
    }

    fn relies_on_flush(&self) -> bool {
        !self.unflushed.is_empty()
    }

    fn gives_up_unread(&self) -> bool {
        self.in_order.as_ref().is_some_and(|order| order.lost.is_patient()) && !self.flash_failed
    }

    fn waits(&mut self, request: &Request) -> bool {
        self.waits_for_order(request)
    }

    fn lost_blocks(&self) -> Vec<u32> {
        let mut lost: Vec<u32> = self.lost.blocks().copied().chain(self.unreadable_now()).collect();
        lost.retain(|&block| self.write_buffer.get(block).is_none());
        lost.sort_unstable();
        lost
    }

    fn is_lost(&self, block: u32) -> bool {
        let is_unreadable = || self.unreadable.get(&block).is_some_and(|slot| self.is_unreadable(block, *slot));
        (self.lost.get(block).is_some() || is_unreadable()) && self.write_buffer.get(block).is_none()
    }

    fn keep(&mut self, block: u32) {
        self.lost.get_mut(block).into_iter().for_each(|lost| lost.kept = true);
    }

    fn is_kept(&self, block: u32) -> bool {
        self.lost.get(block).is_some_and(|lost| lost.kept) && self.write_buffer.get(block).is_none()
    }

    fn unreadable(&self) -> Vec<u32> {
        self.unreadable_now().collect()
    }

    fn leaves(&self, block: u32) -> bool {
        self.lost.is_left && (!self.has_flash || self.lost.get(block).is_some_and(|lost| lost.kept))
    }

    fn figures(&self) -> Figures {
        Figures {
            flash_client_blocks: self.log.written_blocks(Cause::Client),
            flash_admission_blocks: self.log.written_blocks(Cause::Admission),
            flash_copy_forward_blocks: self.log.written_blocks(Cause::CopyForward),
            flash_metadata_blocks: self.log.metadata_pages(),
            erasures: self.log.resets(),
            ..self.figures
        }
    }

    fn check(&self) {
        self.log.check();
        self.log.policy().check();
        self.read_buffer.check();
        self.write_buffer.check();
        assert!(self.past.leaving_blocks().all(|block| self.write_buffer.get(block).is_some()));
        assert!(self.transient.is_empty());
        assert!(self.flash_failed || self.log.free_units() >= 1, "a unit is free for copying forward");
        for block in self.lost.such(|lost| lost.said.is_some()).into_iter().filter(|block| !self.lost.is_found(*block))
        {
            assert_eq!(self.log.find(block), None, "block {block} is lost and has a copy");
        }
    }
}
