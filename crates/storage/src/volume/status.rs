//! What a volume says of itself.

use flashwise_core::filter::listed;
use flashwise_core::format::Layout;
use flashwise_engine::engine::{BACKEND, FLASH};

use super::{BLOCK, Inner, Volume};
use crate::export::Export;
use crate::status::{FaultsStatus, Rating, VolumeState, VolumeStatus};
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
        let mut of_cache = engine.status(has_flash);
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
            // In this state, the remark is that of the attach.
            attaches_at_start: inner.state == VolumeState::Detached && inner.remark.is_some(),
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

/// What state it is in, and why if a device failed.
pub(super) fn state(inner: &Inner) -> (VolumeState, Option<String>) {
    let backend = inner.health[BACKEND].failure(time::now()).map(|reason| format!("backend: {reason}"));
    if inner.engine.has_flash_failed() || inner.unread_since.is_some() || inner.state == VolumeState::WithoutFlash {
        let flash = inner.health[FLASH].last_failure().map(|last| format!("flash: {last}"));
        let reasons: Vec<_> = flash.into_iter().chain(backend).chain(remarks(inner)).collect();
        let state = match inner.state {
            VolumeState::WithoutFlash => VolumeState::WithoutFlash,
            _ => VolumeState::FlashFailed,
        };
        return (state, Some(reasons.join("; ")).filter(|reason| !reason.is_empty()));
    }
    match (inner.state, backend) {
        (VolumeState::Ok | VolumeState::Detached, Some(reason)) => {
            let all: Vec<_> = std::iter::once(reason).chain(inner.remark.iter().cloned()).collect();
            (VolumeState::BackendFailed, Some(all.join("; ")))
        }
        (state, None) => {
            let remarks: Vec<_> = inner.remark.iter().cloned().chain(remarks(inner)).collect();
            (state, (!remarks.is_empty()).then(|| remarks.join("; ")))
        }
        (state, reason) => (state, reason),
    }
}

/// Returns remarks about devices that failed in part.
fn remarks(inner: &Inner) -> Vec<String> {
    let waiting = inner.engine.unwritten_blocks();
    let refuses = if inner.engine.has_flash_failed() { "flash" } else { "backend" };
    let waiting = (waiting > 0).then(|| {
        format!(
            "{refuses}: {waiting} blocks that were answered have found no place yet: they wait in memory, and are \
            lost if the server ends before"
        )
    });
    waiting.into_iter().chain(inner.engine.remarks()).collect()
}

/// Memory that the process has, by proc(5); 0 where that is not told.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
