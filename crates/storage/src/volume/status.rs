//! The status of a volume.

use flashwise_core::filter::listed;
use flashwise_core::human;
use flashwise_engine::engine::{BACKEND, FLASH, JOURNAL};

use super::state::Without;
use super::{BLOCK, Inner, Volume};
use crate::export::Export;
use crate::status::{FaultsStatus, Rating, VolumeState, VolumeStatus};
use crate::time;

/// Returns the status of a volume.
pub(super) fn status(volume: &Volume) -> VolumeStatus {
    let inner = volume.lock();
    let (state, state_reason) = state(&inner);
    let (engine, faults) = (&inner.engine, inner.engine.faults());
    let policy = volume.config.layout.policy();
    let has_flash = !volume.config.flash.as_os_str().is_empty() && policy.is_none();
    let mut of_cache = engine.status(has_flash);
    if let Some(policy) = policy {
        // Also for a removed flash.
        (of_cache.policy, of_cache.admission) = (policy.to_owned(), "none".to_owned());
    }
    if let Some(before) = inner.state.before() {
        of_cache.go_on_from(before);
    }
    of_cache.throttled_seconds += inner.queue.held_back_us as f64 / 1e6;
    let mut status = VolumeStatus {
        name: volume.config.name.clone(),
        size_bytes: volume.size(),
        backend: volume.config.backend.display().to_string(),
        flash: volume.config.flash.display().to_string(),
        layout: volume.config.layout.number().name().to_owned(),
        state,
        state_reason,
        queue_depth: (engine.requests() + inner.queue.len()) as u64,
        dirty_bytes: engine.blocks_to_write_back() * BLOCK,
        lost_blocks: engine.lost_blocks(),
        unwritten_blocks: engine.unwritten_blocks() as u64,
        attaches_at_start: inner.state.without() == Some(Without::Detached { attaches: true }),
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
    status.detach_remaining_seconds = inner.state.remaining_seconds(time::now());
    status.write_budget = inner.budget.status(&**engine);
    drop(inner);
    status.latencies = volume.latencies.status();
    status.clients = volume.guests.status();
    let filter = volume.guests.filter();
    status.cache_clients = filter.clients.name().to_owned();
    (status.allow_clients, status.deny_clients) = (listed(&filter.allow), listed(&filter.deny));
    let rating = volume
        .config
        .drive_writes_per_day
        .map(|drive_writes_per_day| Rating { drive_writes_per_day, warranty_years: volume.config.warranty_years });
    status.set_wear(time::elapsed(volume.opened).as_secs_f64(), rating);
    status
}

/// Returns the state of a volume, and the reason for it.
pub(super) fn state(inner: &Inner) -> (VolumeState, Option<String>) {
    let failure = |disk: usize, name| Some(format!("{name}: {}", inner.health[disk].failure(time::now())?));
    let backend = failure(BACKEND, "backend").or_else(|| failure(JOURNAL, "journal"));
    let remark = inner.state.remark().map(str::to_owned);
    let (state, reasons): (VolumeState, Vec<String>) = match (inner.state.reported(), backend) {
        (state @ (VolumeState::FlashFailed | VolumeState::WithoutFlash), backend) => {
            let flash = inner.health[FLASH].last_failure().map(|last| format!("flash: {last}"));
            (state, flash.into_iter().chain(backend).chain(remarks(inner)).chain(remark).collect())
        }
        (VolumeState::Ok | VolumeState::Detached, Some(reason)) => {
            (VolumeState::BackendFailed, [reason].into_iter().chain(remark).collect())
        }
        (state, None) => (state, remark.into_iter().chain(remarks(inner)).collect()),
        (state, reason) => (state, reason.into_iter().collect()),
    };
    let reasons: Vec<String> = reasons.into_iter().chain(broken_order(inner)).chain(waiting_journal(inner)).collect();
    (state, (!reasons.is_empty()).then(|| reasons.join("; ")))
}

/// Returns remarks about partly failed devices.
fn remarks(inner: &Inner) -> Vec<String> {
    let waiting = inner.engine.unwritten_blocks();
    let refuses = if inner.engine.recovery().has_flash_failed() { "flash" } else { "backend" };
    let waiting = (waiting > 0).then(|| {
        format!(
            "{waiting} answered blocks wait in memory, because the {refuses} cannot take them: if the server ends, \
             they are lost"
        )
    });
    waiting.into_iter().chain(inner.engine.remarks()).collect()
}

/// Returns a remark if the order of write-back is broken.
fn broken_order(inner: &Inner) -> Option<String> {
    let broken = inner.engine.log()?.epochs()?.broken()?;
    let why = match broken.block {
        Some(block) => format!("block {block} was lost"),
        None => "blocks were lost, or were dirty before the order began".to_owned(),
    };
    let age = time::unix_seconds() - broken.since_unix_us as f64 / 1e6;
    let since = (broken.since_unix_us > 0).then(|| format!(" since {} ago", human::seconds(age.max(0.0).round())));
    Some(format!(
        "the order is broken{}: {why}; without the flash, the backend is a mixture of old and new blocks",
        since.unwrap_or_default()
    ))
}

/// Returns a remark if blocks of a missing disk are only in the journal.
fn waiting_journal(inner: &Inner) -> Option<String> {
    let paths = &inner.journal_waits_for;
    (!paths.is_empty()).then(|| {
        format!(
            "the journal has blocks for {}, missing at the start, and takes no other group; start again with that \
             disk, or after giving it up",
            paths.join(" and ")
        )
    })
}

/// Returns the resident memory of the process from proc(5), or 0 if unknown.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
