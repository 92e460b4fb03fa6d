//! The state of the backend without its flash, in a file of the state directory. A start reads it when the flash is
//! lost.

use std::io;
use std::path::{Path, PathBuf};

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::epochs::BackendState;
use flashwise_core::human;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Volume, VolumeConfig};
use crate::replace::replace_file;
use crate::status::BackendStatus;
use crate::time;

/// Minimum seconds between two writes of the file.
const PERIOD_SECONDS: f64 = 5.0;

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct BackendRecord {
    /// The time of the record, in seconds since 1970.
    at_seconds: f64,
    backend: BackendStatus,
}

/// The file of a volume.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None` in virtual time, and for a cache that writes back in any order.
    path: Option<PathBuf>,
    last: Option<BackendRecord>,
}

fn path_of(config: &VolumeConfig, backend: [u8; 16]) -> PathBuf {
    config.state_directory.join(format!("backend-state-{}.json", Uuid::from_bytes(backend)))
}

/// Returns the state of the backend for a status.
pub(crate) fn backend_status(state: BackendState, dirty_age_us: u64, newer_blocks: u64) -> BackendStatus {
    let now = time::unix_seconds();
    let age_us = match state {
        BackendState::Of(Some(unix_us)) => Some((time::start_unix_us() + time::now_us()).saturating_sub(unix_us)),
        BackendState::Of(None) | BackendState::Mixed => None,
    };
    let age_seconds = age_us.map(|us| us as f64 / 1e6);
    BackendStatus {
        is_consistent: state != BackendState::Mixed,
        consistent_seconds: age_seconds.map(|age| now - age),
        age_seconds,
        age_seconds_max: dirty_age_us as f64 / 1e6,
        newer_blocks,
    }
}

impl Keeper {
    /// Opens the file of a volume. Without an order, it removes an older file, which no longer describes the backend.
    pub fn new(config: &VolumeConfig, backend: [u8; 16]) -> Keeper {
        let path = path_of(config, backend);
        let is_ordered = config.cache.order() != WriteBackOrder::None && !config.flash.as_os_str().is_empty();
        if time::is_virtual() || !is_ordered {
            if !time::is_virtual() {
                let _ = std::fs::remove_file(path);
            }
            return Keeper { path: None, last: None };
        }
        Keeper { path: Some(path), last: None }
    }

    fn write(&mut self, backend: BackendStatus, at_seconds: f64, always: bool) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(last) = &self.last {
            let is_same = last.backend.newer_blocks == 0 && backend.newer_blocks == 0;
            if is_same || !always && at_seconds < last.at_seconds + PERIOD_SECONDS {
                return Ok(());
            }
        }
        let record = BackendRecord { at_seconds, backend };
        replace_file(path, &serde_json::to_vec_pretty(&record)?)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        self.last = Some(record);
        Ok(())
    }
}

/// Records the state of the backend, if data is written back in order: every few seconds, or `always`.
pub(super) fn keep(volume: &Volume, always: bool) {
    let state = volume.lock().engine.status(true).backend_state;
    let Some(state) = state else { return };
    if let Err(error) = volume.keeper.lock().write(state, time::unix_seconds(), always) {
        let name = &volume.config.name;
        tracing::warn!(event = "backend-state-not-saved", volume = name, %error, "the state of the backend could not \
            be saved; a start with --discard-cache cannot name it");
    }
}

/// Describes the loss of the flash, for a message before the cache is discarded.
pub(super) fn without_flash(config: &VolumeConfig, backend: [u8; 16]) -> String {
    let record = (!time::is_virtual()).then(|| read(&path_of(config, backend))).flatten();
    record.map_or_else(
        || "blocks that were not written back are lost, and the backend can be a mixture of old and new blocks".into(),
        describe,
    )
}

fn read(path: &Path) -> Option<BackendRecord> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn describe(BackendRecord { at_seconds, backend }: BackendRecord) -> String {
    // The record can be some seconds older than the end of the run.
    let lost = match backend.newer_blocks {
        0 => "all newer blocks are lost".to_owned(),
        1 => "1 newer block, and all written since, are lost".to_owned(),
        count => format!("{} newer blocks, and all written since, are lost", human::count(count)),
    };
    let before = |moment: f64| human::seconds((at_seconds - moment).max(0.0).round());
    let state = backend.described(|moment| format!(", {} before this was last recorded", before(moment)));
    format!("the backend is {state}; {lost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30 14:03:20 UTC.
    const MOMENT: f64 = 1_796_047_400.0;

    fn state(newer_blocks: u64) -> BackendStatus {
        BackendStatus {
            is_consistent: true,
            consistent_seconds: Some(MOMENT),
            newer_blocks,
            ..BackendStatus::default()
        }
    }

    #[test]
    fn a_lost_flash_is_described_by_the_last_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut keeper = Keeper { path: Some(path.clone()), last: None };
        keeper.write(state(1204), MOMENT + 250.0, false).unwrap();
        // Too early, and then late enough.
        keeper.write(state(1300), MOMENT + 252.0, false).unwrap();
        assert_eq!(
            describe(read(&path).unwrap()),
            "the backend is consistent as of 2026-11-30 14:03:20 UTC, 4.17 min before this was last \
             recorded; 1,204 newer blocks, and all written since, are lost"
        );
        keeper.write(state(1), MOMENT + 256.0, false).unwrap();
        assert!(describe(read(&path).unwrap()).ends_with("; 1 newer block, and all written since, are lost"));
        keeper.write(state(0), MOMENT + 257.0, true).unwrap();
        assert!(describe(read(&path).unwrap()).ends_with("; all newer blocks are lost"));
        let mixed = BackendRecord {
            at_seconds: MOMENT,
            backend: BackendStatus { newer_blocks: 7, ..BackendStatus::default() },
        };
        assert!(describe(mixed).starts_with("the backend is a mixture"), "{}", describe(mixed));
    }

    #[test]
    fn a_volume_without_order_leaves_no_older_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = VolumeConfig::of("v", Path::new("backend"), Path::new("flash"));
        config.state_directory = folder.path().to_owned();
        let path = path_of(&config, [1; 16]);
        std::fs::write(&path, "").unwrap();
        Keeper::new(&config, [1; 16]);
        assert!(!path.exists());
        assert!(without_flash(&config, [1; 16]).contains("a mixture"));
    }
}
