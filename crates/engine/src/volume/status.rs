//! What a volume says of itself.

use flashwise_core::cache::{Cache, LogCache, Mode, Reads};
use flashwise_core::filter::listed;
use flashwise_core::format::Layout;
use flashwise_core::wlfc::Wlfc;

use super::driver::Driver;
use super::{BLOCK, Inner, Volume};
use crate::engine::{BACKEND, FLASH};
use crate::export::Export;
use crate::status::{CacheStatus, FaultsStatus, Rating, VolumeState, VolumeStatus};
use crate::time;

impl Volume {
    /// The blocks whose only copy was lost, or cannot be read, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        self.lock().engine.lost_blocks()
    }

    /// What there is to know of it.
    pub fn status(&self) -> VolumeStatus {
        let inner = self.lock();
        let (state, state_reason) = state(&inner);
        let (engine, faults) = (&inner.engine, inner.engine.faults());
        let of_buckets = self.config.layout == Layout::Wlfc;
        let has_flash = !self.config.flash.as_os_str().is_empty() && !of_buckets;
        let mut of_cache = match engine {
            Driver::Log(engine) => log_status(engine.cache(), has_flash),
            Driver::Wlfc(engine) => wlfc_status(engine.cache()),
        };
        if of_buckets {
            // Of one that was given up too.
            (of_cache.policy, of_cache.admission) = ("wlfc".to_owned(), "none".to_owned());
        }
        if let Some(before) = &inner.given_up {
            of_cache.go_on_from(before);
        }
        of_cache.throttled_seconds += inner.held_back_us as f64 / 1e6;
        let mut status = VolumeStatus {
            name: self.config.name.clone(),
            size_bytes: self.size(),
            backend: self.config.backend.display().to_string(),
            flash: self.config.flash.display().to_string(),
            layout: self.config.layout.name().to_owned(),
            state,
            state_reason,
            queue_depth: (engine.requests() + inner.waiting.len()) as u64,
            dirty_bytes: engine.blocks_to_write_back() * BLOCK,
            lost_blocks: engine.lost_blocks(),
            unwritten_blocks: engine.unwritten_blocks() as u64,
            backend_load: inner.load.until(time::now_us()),
            memory_bytes: resident_bytes(),
            faults: FaultsStatus {
                flash_read_errors: faults.flash_read_errors,
                flash_checksum_errors: faults.flash_checksum_errors,
                flash_write_errors: faults.flash_write_errors,
                backend_read_errors: faults.backend_read_errors,
                backend_write_errors: faults.backend_write_errors,
                failed_requests: inner.failed_requests,
            },
            ..of_cache
        };
        if state == VolumeState::Detaching {
            status.detach_remaining_seconds = inner.remaining.and_then(|remaining| remaining.seconds(time::now()));
        }
        status.write_budget = self.budget_status(&inner);
        drop(inner);
        status.latencies = self.latencies.status();
        status.clients = self.guests.status();
        let filter = self.guests.filter();
        status.cache_clients = filter.clients.name().to_owned();
        (status.allow_clients, status.deny_clients) = (listed(&filter.allow), listed(&filter.deny));
        let rating = self
            .config
            .drive_writes_per_day
            .map(|drive_writes_per_day| Rating { drive_writes_per_day, warranty_years: self.config.warranty_years });
        status.set_wear(time::elapsed(self.opened).as_secs_f64(), rating);
        status
    }
}

/// What is counted by the engine of a volume, which another takes over from.
pub(super) fn figures_of(engine: &Driver) -> VolumeStatus {
    match engine {
        Driver::Log(engine) => log_status(engine.cache(), true),
        Driver::Wlfc(engine) => wlfc_status(engine.cache()),
    }
}

/// What a log says of itself.
fn log_status(cache: &LogCache, has_flash: bool) -> VolumeStatus {
    let (figures, log, config) = (cache.figures(), cache.log(), cache.config());
    VolumeStatus {
        policy: config.policy.to_string(),
        admission: config.admission.as_ref().map_or("none".to_owned(), |admission| admission.rule.to_string()),
        admission_choice: cache.admission_choice(),
        admission_threshold: cache.admission_threshold(),
        admission_decisions: cache.decision().map_or(0, |decision| decision.number),
        write_mode: config.mode.name().to_owned(),
        reads: figures.reads,
        writes: figures.writes,
        ram_read_hits: figures.ram_read_hits,
        flash_read_hits: figures.flash_read_hits,
        read_hit_ratio: figures.read_hit_ratio(),
        cache: CacheStatus::from(&figures),
        flash_write_requests: figures.flash_write_requests,
        flash_bytes_written: figures.flash_written_blocks() * BLOCK,
        erasures: figures.erasures,
        throttled_seconds: cache.throttled_us() as f64 / 1e6,
        destaging_blocks: cache.destaging_blocks(),
        bypasses: cache.counters().bypasses(),
        flushes: figures.flushes,
        flash_bytes: if has_flash { u64::from(config.geometry.pages()) * BLOCK } else { 0 },
        capacity_blocks: if has_flash { config.capacity_blocks() as u64 } else { 0 },
        flash_room_blocks: if has_flash { config.data_pages() } else { 0 },
        cached_blocks: log.len() as u64,
        dirty_blocks: log.dirty_blocks(),
        buffered_blocks: cache.buffered_blocks() as u64,
        oldest_dirty_seconds: log
            .oldest_dirty_us()
            .map(|since_us| time::now_us().saturating_sub(since_us) as f64 / 1e6),
        ..VolumeStatus::default()
    }
}

/// What a cache of buckets says of itself.
fn wlfc_status(cache: &Wlfc) -> VolumeStatus {
    let (figures, config) = (cache.figures(), cache.config());
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
            destaged_blocks: figures.backend_written_blocks - figures.passed_blocks.min(figures.backend_written_blocks),
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
        cached_blocks: cache.cached_blocks(),
        dirty_blocks: cache.blocks_to_write_back(),
        ..VolumeStatus::default()
    }
}

/// What state it is in, and why if a device failed.
pub(super) fn state(inner: &Inner) -> (VolumeState, Option<String>) {
    let backend = inner.health[BACKEND].failure(time::now()).map(|reason| format!("backend: {reason}"));
    if inner.engine.has_flash_failed() || inner.unread_since.is_some() || inner.state == VolumeState::WithoutFlash {
        let flash = inner.health[FLASH].last_failure().map(|last| format!("flash: {last}"));
        let reasons: Vec<_> = flash.into_iter().chain(backend).chain(inner.engine.remarks()).collect();
        let state = match inner.state {
            VolumeState::WithoutFlash => VolumeState::WithoutFlash,
            _ => VolumeState::FlashFailed,
        };
        return (state, Some(reasons.join("; ")).filter(|reason| !reason.is_empty()));
    }
    match (inner.state, backend) {
        (VolumeState::Ok | VolumeState::Detached, Some(reason)) => {
            let all: Vec<_> = std::iter::once(reason).chain(inner.detaching_failed.iter().cloned()).collect();
            (VolumeState::BackendFailed, Some(all.join("; ")))
        }
        (state, None) => {
            let remarks: Vec<_> = inner.detaching_failed.iter().cloned().chain(inner.engine.remarks()).collect();
            (state, (!remarks.is_empty()).then(|| remarks.join("; ")))
        }
        (state, reason) => (state, reason),
    }
}

/// Memory that the process has, by proc(5); 0 where that is not told.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
