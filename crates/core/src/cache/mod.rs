//! Caches, by the one interface that all have ([`Cache`]), and the one that a server runs: [`LogCache`], which turns requests of any length
//! and alignment into [`Step`]s.
//!
//! Sources: NCache (section 3.2: an LRU read buffer and a write buffer in RAM, in front of flash), LARC (section V.A: write
//! modes, I/O filter for sequential streams, cleaner), WLFC (section IV.D: recovery by epochs, commits that may be repeated).
//!
//! It plans as if every step were done at once; [`Step`] says how far steps may overlap. What becomes of steps is an [`Event`] as a request is.
//!
//! One rule makes it safe to lose power at any time: *the backend's copy of a block is changed only once no older clean copy of that
//! block on flash would count after a crash, and a flush is answered only once no older dirty one would.* A block written back is itself
//! that copy, durable before.
//! A write that goes straight to the backend goes to flash after all if there is a dirty copy, or if the block was lost; before it is
//! done over a clean one, the region of the backend is durably [unsure](crate::format::Kind::Unsure), as `intents.rs` says.
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

mod cleaner;
mod config;
mod done;
mod event;
mod failure;
mod figures;
mod intents;
mod lost;
mod pace;
mod past;
mod read;
pub mod request;
pub mod settings;
mod touched;
mod unflushed;
mod write;

use std::collections::{HashMap, HashSet};

use config::RESERVE_UNITS;
pub use config::{Config, CopyForward, Mode, Regions, admission};
pub use event::{Appending, Cache, Event};
pub use figures::{Figures, Reads};
use intents::Intents;
use lost::{Found, Lost};
use pace::Pace;
pub use request::{Kind, Request};
use request::{Part, parts};
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

/// Most blocks of a read, write or prefetch that is planned at once.
pub const PIECE_BLOCKS: u32 = 64;
/// Most blocks of a trim or of writing zeroes that is planned at once.
pub const ZERO_PIECE_BLOCKS: u32 = 16_384;
/// Nodes of a policy without ghosts that are not slots of the log, about: heads of lists, and blocks about to be written.
const NODES_BESIDE_SLOTS: u32 = 128;
/// The time between two ticks.
const TICK_US: u64 = 1_000_000;
/// Blocks that are written back at a time, at most; each has a frame of its own.
const DESTAGING_BLOCKS_MAX: u32 = 1_024;

/// Blocks that are fetched ahead of the one that a policy is shown.
const WARM_AHEAD: usize = 32;

/// The policy of `config`, of a cache whose space is in use already if it `is_full`.
fn build_policy(config: &Config, is_full: bool) -> AnyPolicy {
    let (policy, capacity) = (&config.policy, config.capacity_blocks());
    let mut policy: AnyPolicy = if let Some(Admission { rule, setting }) = &config.admission {
        // What a rule remembers has an index like the policy's, under numbers that need not be as large.
        let index = Hashed::with_capacity(config.data_pages() as usize, 0);
        rule.build(policy, index, capacity, setting)
    } else {
        // It is the log's directory: an entry for each block with a copy, under the number of its slot. Ghosts make it grow.
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
    /// With the policy, whose table of blocks is the log's as well.
    log: Log,
    read_buffer: ReadBuffer<Frame>,
    /// Of whom requests are: see [`ReadBuffer`].
    pin: u8,
    write_buffer: WriteBuffer<Frame>,
    past: past::Past,
    streams: Streams,
    frames: Frames,
    /// By frame, of those in the write buffer: length in blocks of the request that wrote it last.
    frame_request_blocks: Vec<u32>,
    /// Frames of the request that is being planned.
    transient: Vec<Frame>,
    destage_frame: u32,
    batches: HashMap<u32, Batch>,
    next_batch: u32,
    destaging_blocks: u64,
    pace: Pace,
    /// No unit before this sequence has dirty blocks that are not being written back.
    clean_from: u64,
    /// How often blocks became due, and before which sequence no unit has due ones since that are not being written back.
    due_from: (u64, u64),
    /// When the unit that is being filled was cleaned last.
    head_cleaned_us: u64,
    /// After writing back failed, when to try again.
    destage_after_us: u64,
    /// Blocks whose only copy was lost.
    lost: HashMap<u32, Lost>,
    touched: Touched,
    /// Blocks that were, and are being written to the backend, with the clean copies that are to take the place of what the flash says.
    found: HashMap<u32, Found>,
    intents: Intents,
    /// Dirty blocks that could not be read from flash the last time, with their slots.
    unreadable: HashMap<u32, u32>,
    /// Blocks of which the backend lacks an acknowledged write, for which a later one that is not done yet may make up.
    backend_lacks: HashSet<u32>,
    unflushed: unflushed::Unflushed,
    /// The last write that the backend was asked for failed.
    backend_refuses: bool,
    flash_failed: bool,
    /// Up to where the log was durable when a client was told so last, or at the start.
    promised: Place,
    /// Once it has, by block and slot: of copies that never came to be and were not the newest, the slot of what the backend lacks before them.
    unwritten: HashMap<(u32, u32), Option<u32>>,
    /// Dirty copies that were written back after plans replaced them, by block, slot and sequence of the unit. What replaces them may never come:
    /// then the backend has what counts.
    replaced: HashSet<(u32, u32, u64)>,
    /// False once the flash is being given up.
    admitting: bool,
    /// Whether there is a flash at all: else nothing is ever put into the log.
    has_flash: bool,
    /// See [`leave_lost`](Self::leave_lost).
    leaves_lost: bool,
    /// Nothing on the flash counts any more.
    detached: bool,
    request_blocks: u32,
    now_us: u64,
    /// When the last tick was.
    ticked_us: u64,
    /// Whether anything happened after the last tick.
    active: bool,
    /// Where the log ended at the last tick.
    ticked_end: Place,
    figures: Figures,
    counters: Counters,
    /// Blocks written to flash so far beyond those that the policy asked for, as the policy knows.
    others_written: f64,
}

impl std::fmt::Debug for LogCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogCache").field("config", &self.config).field("figures", &self.figures).finish_non_exhaustive()
    }
}

/// Blocks of one unit that are being written back together.
#[derive(Debug)]
struct Batch {
    /// Of the unit.
    sequence: u64,
    /// The last slot of the unit whose dirty copies are all among the blocks; none where only some are.
    last_slot: Option<u32>,
    /// Blocks with their slots.
    blocks: Vec<(u32, u32)>,
    /// Those of them that could not be written to the backend, so far.
    failed: Vec<u32>,
}

impl LogCache {
    /// A cache over a log that is empty or was recovered; `lost` are the blocks that recovery found lost, each with the sequence of
    /// the unit that says so.
    pub fn new(config: Config, mut log: Log, lost: HashMap<u32, u64>) -> LogCache {
        log.limit_segments(config.segment_blocks);
        let working = config.working_frames();
        let clean_from = *log.sequences().start();
        log.set_policy(build_policy(&config, log.has_wrapped()));
        // All that recovery found may have been promised.
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
            destage_frame: 0,
            batches: HashMap::new(),
            next_batch: 0,
            destaging_blocks: 0,
            pace: Pace::default(),
            clean_from,
            due_from: (0, 0),
            head_cleaned_us: 0,
            destage_after_us: 0,
            lost: lost
                .into_iter()
                .map(|(block, sequence)| (block, Lost { said: Some(sequence), ..Lost::default() }))
                .collect(),
            touched: Touched::default(),
            found: HashMap::new(),
            intents: Intents::new(config.regions),
            unreadable: HashMap::new(),
            backend_lacks: HashSet::new(),
            // An earlier run may have written to the backend and died before it was flushed.
            unflushed: unflushed::Unflushed::new(),
            backend_refuses: false,
            flash_failed: false,
            promised,
            unwritten: HashMap::new(),
            replaced: HashSet::new(),
            admitting: true,
            has_flash: true,
            detached: false,
            leaves_lost: false,
            request_blocks: 1,
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
        cache.warm_policy();
        cache.lost.keys().for_each(|&block| cache.touched.add(block..block + 1));
        cache
    }

    /// Shows the policy what the log holds, oldest first.
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

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the settings that are given, all of them or, where they do not go with the others, none. Those that cannot change while a
    /// cache runs stay as they are.
    pub fn change(&mut self, settings: &Settings, devices: &Devices) -> Result<(), SettingError> {
        self.config = self.changed(settings, devices)?;
        self.active = true;
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

    /// Refuses settings that [`change`](Self::change) would refuse.
    pub fn check_change(&self, settings: &Settings, devices: &Devices) -> Result<(), SettingError> {
        self.changed(settings, devices).map(drop)
    }

    fn changed(&self, settings: &Settings, devices: &Devices) -> Result<Config, SettingError> {
        let mut config = self.config.clone();
        settings.put_live(&mut config, devices);
        config.check()?;
        Ok(config)
    }

    /// Changes the policy and the admission rule in front of it; new ones are shown what is on flash.
    pub fn set_policy(&mut self, policy: Spec, admission: Option<Admission>) {
        (self.config.policy, self.config.admission) = (policy, admission);
        self.rebuild_policy();
    }

    fn rebuild_policy(&mut self) {
        self.log.set_policy(build_policy(&self.config, self.log.has_wrapped()));
        self.warm_policy();
    }

    /// What an admission rule that adapts decided last; none before the first time.
    pub fn decision(&self) -> Option<&Decision> {
        self.log.policy().decision()
    }

    /// The threshold of an admission rule that adapts: a portion, blocks or references. None where no rule adapts a threshold, before
    /// its first decision, and where everything is admitted by size.
    pub fn admission_threshold(&self) -> Option<f64> {
        let rule = &self.config.admission.as_ref()?.rule;
        rule.threshold(self.log.policy().decision()?)
    }

    /// What an admission rule that adapts holds to now, in words; none if no rule adapts.
    pub fn admission_choice(&self) -> Option<String> {
        let Admission { rule, setting } = self.config.admission.as_ref()?;
        rule.choice(&self.config.policy, self.log.policy().decision(), setting.block_bytes)
    }

    /// Changes the write mode; the cleaner writes back what is dirty if no more may be.
    pub fn set_mode(&mut self, mode: Mode) {
        self.config.mode = mode;
        self.active = true;
    }

    /// Keeps this many blocks of the read buffer for a pin, of what its requests read; whether there is room for that besides the other pins.
    pub fn pin_ram(&mut self, pin: u8, blocks: usize) -> bool {
        self.read_buffer.pin(pin, blocks)
    }

    /// Of which pin the requests are that come next; of none: 0.
    pub fn set_pin(&mut self, pin: u8) {
        self.pin = pin;
    }

    /// Keeps as much for each pin as another cache did, which this one follows.
    pub fn take_over_pins(&mut self, before: &LogCache) {
        let pinned = before.read_buffer.pinned_blocks();
        for (pin, blocks) in (0u8..).zip(pinned).filter(|(_, blocks)| **blocks > 0) {
            self.read_buffer.pin(pin, *blocks);
        }
    }

    /// There is no flash: what is read stays in the read buffer, and what is written in the write buffer until it makes room or is flushed,
    /// and then goes to the backend. A block that the backend does not take is lost, and every flush fails until it is written anew.
    pub fn do_without_flash(&mut self) {
        (self.admitting, self.has_flash) = (false, false);
    }

    /// Begins to give up the flash: reads are not admitted, and the cleaner writes back all dirty blocks. Writes still go to the flash if their
    /// block is dirty, and otherwise at half the rate of writing back, so that clients wait for the backend only if they write faster.
    pub fn stop_admitting(&mut self) {
        self.admitting = false;
    }

    /// From now on, writes go around the flash where they can.
    pub fn write_around(&mut self) {
        self.config.mode = Mode::WriteAround;
    }

    /// Whether the flash is being given up.
    fn is_leaving(&self) -> bool {
        self.has_flash && !self.admitting
    }

    /// The flash stays after all: what [`stop_admitting`](Self::stop_admitting) ended goes on, in the mode that there was.
    pub fn admit_again(&mut self, mode: Mode) {
        self.admitting = true;
        self.config.mode = mode;
    }

    /// Plans a request: adds the steps that answer it and what the cache does in the background after it.
    fn plan(&mut self, request: &Request, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        self.tick_policy(now_us);
        self.active = true;
        let whole_blocks = request.whole_length.div_ceil(BLOCK_BYTES as u64);
        self.request_blocks = u32::try_from(whole_blocks).unwrap_or(u32::MAX).max(1);
        if self.flash_failed && !matches!(request.kind, Kind::Read | Kind::Prefetch | Kind::Flush) {
            steps.push(Step::Fail);
            steps.push(Step::Reply);
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
        steps.push(Step::Reply);
        self.background(steps);
        self.transient.drain(..).for_each(|frame| self.frames.release(frame));
    }

    /// When a tick has something to do, as long as nothing else happens.
    fn due_us(&self) -> Option<u64> {
        let retry_us = (self.destage_after_us > self.ticked_us).then_some(self.destage_after_us);
        let appends = self.log.lacks_witness() || self.log.waits_to_say_sure();
        let witness_us = appends.then_some(self.ticked_us);
        let sure_us = self.intents.due_us();
        self.commit_us().into_iter().chain(self.aged_us()).chain(retry_us).chain(sure_us).chain(witness_us).min()
    }

    /// Plans what is due at a time, without a request.
    fn tick(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        (self.ticked_us, self.active) = (now_us, false);
        if self.flash_failed {
            return;
        }
        if self.commit_us().is_some_and(|commit_us| commit_us <= now_us) {
            // Only before accesses, which come at the same times in a replay; other ticks need not.
            self.tick_policy(now_us);
            self.commit(steps);
        }
        self.clean_all(steps);
        self.background(steps);
        self.become_sure(steps);
        // Where nothing was appended for a while: a witness costs as much as a small segment.
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
        self.log.set_time(now_us, self.config.dirty_age_us);
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
                if self.destaging_blocks == 0 {
                    self.go_on(steps);
                }
            }
            Event::DestageAll { now_us } => self.destage_all(now_us, steps),
            Event::DestageRest { now_us } => self.destage_rest(now_us, steps),
            Event::Close { now_us } => self.close(now_us, steps),
            Event::Appending(appending) => self.appending(appending),
            Event::Done(step) => {
                self.went_past(step);
                self.done(step);
            }
            Event::Missing { step: Step::Append(segment), blocks } => self.never_came(segment, blocks),
            Event::Missing { .. } => unreachable!("only a segment has blocks that have no content"),
            Event::Postponed(step) => self.postponed(step),
            Event::Failed { step, missing } => {
                self.went_past(step);
                self.failed(step, missing);
            }
        }
    }

    /// The next whole second, or after idle ones the first in which something is due. Where ticks are made so, before each request, what
    /// they do depends on the requests and their times alone.
    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        // None is made up for that would have had nothing to do: time does not go back.
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

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.write_buffer.get(block).is_some() || self.has_dirty_copy(block)
    }

    fn blocks_to_write_back(&self) -> u64 {
        self.log.dirty_blocks() + self.buffered_blocks() as u64
    }

    fn may_go_on(&self) -> bool {
        self.past.leaving() > 0
    }

    fn lost_blocks(&self) -> Vec<u32> {
        let mut lost: Vec<u32> = self.lost.keys().copied().chain(self.unreadable_now()).collect();
        lost.retain(|&block| self.write_buffer.get(block).is_none());
        lost.sort_unstable();
        lost
    }

    fn is_lost(&self, block: u32) -> bool {
        let is_unreadable = || self.unreadable.get(&block).is_some_and(|slot| self.is_unreadable(block, *slot));
        (self.lost.contains_key(&block) || is_unreadable()) && self.write_buffer.get(block).is_none()
    }

    fn keep(&mut self, block: u32) {
        if let Some(lost) = self.lost.get_mut(&block) {
            lost.kept = true;
        }
    }

    fn is_kept(&self, block: u32) -> bool {
        self.lost.get(&block).is_some_and(|lost| lost.kept) && self.write_buffer.get(block).is_none()
    }

    fn leaves(&self, block: u32) -> bool {
        self.leaves_lost && (!self.has_flash || self.lost.get(&block).is_some_and(|lost| lost.kept))
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
        let is_said = |(block, lost): &(&u32, &Lost)| lost.said.is_some() && !self.found.contains_key(block);
        for (block, _) in self.lost.iter().filter(is_said) {
            assert_eq!(self.log.find(*block), None, "block {block} is lost and has a copy");
        }
    }
}
