//! What a volume says of itself.

use std::time::Instant;

use flashwise_core::cache::Cache;
use flashwise_core::filter::listed;

use super::{BLOCK, Inner, Volume};
use crate::engine::{BACKEND, FLASH};
use crate::export::Export;
use crate::status::{CacheStatus, FaultsStatus, Rating, VolumeState, VolumeStatus};

impl Volume {
    /// What there is to know of it.
    pub fn status(&self) -> VolumeStatus {
        let inner = self.lock();
        let (engine, cache) = (&inner.engine, inner.engine.cache());
        let (figures, faults, log, config) = (cache.figures(), engine.faults(), cache.log(), cache.config());
        let (state, state_reason) = state(&inner);
        let has_flash = !self.config.flash.as_os_str().is_empty();
        let mut status = VolumeStatus {
            name: self.config.name.clone(),
            size_bytes: self.size(),
            backend: self.config.backend.display().to_string(),
            flash: self.config.flash.display().to_string(),
            policy: config.policy.to_string(),
            admission: config.admission.as_ref().map_or("none".to_owned(), |admission| admission.rule.to_string()),
            admission_choice: cache.admission_choice(),
            admission_threshold: cache.admission_threshold(),
            admission_decisions: cache.decision().map_or(0, |decision| decision.number),
            write_mode: config.mode.name().to_owned(),
            state,
            state_reason,
            read_blocks: figures.read_blocks,
            written_blocks: figures.written_blocks,
            ram_read_hits: figures.ram_read_hits,
            flash_read_hits: figures.flash_read_hits,
            read_hit_ratio: figures.read_hit_ratio(),
            cache: CacheStatus::from(&figures),
            flash_written_bytes: figures.flash_written_blocks() * BLOCK,
            erasures: figures.erasures,
            throttled_seconds: cache.throttled_us() as f64 / 1e6,
            queue_depth: (inner.engine.requests() + inner.waiting.len()) as u64,
            destaging_blocks: cache.destaging_blocks(),
            bypassed_blocks: cache.counters().bypasses(),
            flushes: figures.flushes,
            flash_bytes: if has_flash { u64::from(config.geometry.pages()) * BLOCK } else { 0 },
            capacity_blocks: if has_flash { config.capacity_blocks() as u64 } else { 0 },
            flash_room_blocks: if has_flash { config.data_pages() } else { 0 },
            cached_blocks: log.len() as u64,
            dirty_blocks: log.dirty_blocks(),
            dirty_bytes: cache.blocks_to_write_back() * BLOCK,
            buffered_blocks: cache.buffered_blocks() as u64,
            lost_blocks: cache.lost_blocks().into_iter().map(u64::from).collect(),
            memory_bytes: resident_bytes(),
            faults: FaultsStatus {
                flash_read_errors: faults.flash_read_errors,
                flash_checksum_errors: faults.flash_checksum_errors,
                flash_write_errors: faults.flash_write_errors,
                backend_read_errors: faults.backend_read_errors,
                backend_write_errors: faults.backend_write_errors,
                failed_requests: inner.failed_requests,
            },
            ..VolumeStatus::default()
        };
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
        status.set_wear(self.opened.elapsed().as_secs_f64(), rating);
        status
    }
}

/// What state it is in, and why if a device failed.
fn state(inner: &Inner) -> (VolumeState, Option<String>) {
    let backend = inner.health[BACKEND].failure(Instant::now()).map(|reason| format!("backend: {reason}"));
    if inner.engine.cache().has_flash_failed() || inner.state == VolumeState::WithoutFlash {
        let flash = inner.health[FLASH].last_failure().map(|last| format!("flash: {last}"));
        let reasons: Vec<_> = flash.into_iter().chain(backend).collect();
        let state = match inner.state {
            VolumeState::WithoutFlash => VolumeState::WithoutFlash,
            _ => VolumeState::FlashFailed,
        };
        return (state, Some(reasons.join("; ")).filter(|reason| !reason.is_empty()));
    }
    match (inner.state, backend) {
        (VolumeState::Ok | VolumeState::Detached, Some(reason)) => (VolumeState::BackendFailed, Some(reason)),
        (state, reason) => (state, reason),
    }
}

/// Memory that the process has, by proc(5); 0 where that is not told.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
