//! A server that only records its calls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use flashwise_core::cache::settings::{Setting, Settings};
use flashwise_server::limits::Limits;
use flashwise_server::manage::{DetachProgress, DetachState, ManageError, Managed, SettingStatus};
use flashwise_storage::status::{
    CacheStatus, FaultsStatus, LatencyBucket, LatencyStatus, ServerStatus, VolumeState, VolumeStatus,
};
use flashwise_storage::what_if::{EstimateStatus, WhatIfStatus};

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    changes: Settings,
    policy: Option<String>,
    detaching: bool,
    flush_broken: bool,
    flush_held: bool,
    /// The state of the second volume.
    second: VolumeState,
}

/// A server that only records its calls.
#[derive(Debug, Default)]
pub struct Fake {
    state: Mutex<State>,
    changed: Condvar,
    pub limits: Arc<Limits>,
}

/// Returns a volume whose figures start with its seed.
pub fn volume(name: &str, seed: u64) -> VolumeStatus {
    let latency = LatencyStatus {
        operation: "read".to_owned(),
        count: 3,
        mean_us: 6_666_706.6,
        p50_us: 100,
        p99_us: 20_000_000,
        p999_us: 20_000_000,
        max_us: 20_000_000,
        ..LatencyStatus::default()
    };
    VolumeStatus {
        name: name.to_owned(),
        policy: "larc".to_owned(),
        reads: seed + 10,
        flash_read_hits: seed + 3,
        cache: CacheStatus { flash_copy_forward_blocks: seed + 2, ..CacheStatus::default() },
        lifetime_years_rated: (seed > 0).then_some(1.0),
        latencies: vec![latency],
        faults: FaultsStatus { failed_requests: seed, ..FaultsStatus::default() },
        ..VolumeStatus::default()
    }
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns the names of the calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Returns the last change.
    pub fn changes(&self) -> Settings {
        self.state().changes.clone()
    }

    /// Makes flushes fail.
    pub fn break_flush(&self) {
        self.state().flush_broken = true;
    }

    /// Makes flushes wait until they are released.
    pub fn hold_flush(&self) {
        self.state().flush_held = true;
    }

    /// Sets the state of the second volume.
    pub fn set_state(&self, state: VolumeState) {
        self.state().second = state;
    }

    pub fn release_flush(&self) {
        self.state().flush_held = false;
        self.changed.notify_all();
    }

    /// Waits for a call.
    pub fn wait_for(&self, call: &str) {
        let missing = |state: &mut State| !state.calls.iter().any(|made| made == call);
        drop(self.changed.wait_while(self.state(), missing).unwrap());
    }

    /// Returns its status, including the fields that JSON omits.
    pub fn status_with_buckets(&self) -> ServerStatus {
        let mut status = self.status_now();
        // 20 us, 100 us and 20 s.
        for latency in status.volumes.iter_mut().flat_map(|volume| &mut volume.latencies) {
            latency.sum_us = 20_000_120;
            let bucket = |us_max, count| LatencyBucket { us_max, count };
            latency.buckets = vec![bucket(10, 0), bucket(50, 1), bucket(100, 1), bucket(10_000_000, 0)];
        }
        status
    }

    /// Returns its status.
    pub fn status_now(&self) -> ServerStatus {
        let mut one = volume("one", 0);
        if let Some(policy) = &self.state().policy {
            one.policy.clone_from(policy);
        }
        let two = VolumeStatus { state: self.state().second, ..volume("two / three", 1000) };
        let volumes = vec![one, two];
        let limits_reached = self.limits.counts();
        let version = "0.1.0".to_owned();
        ServerStatus { version, pid: 5, connections: 2, volumes, limits_reached, ..ServerStatus::default() }
    }
}

impl Managed for Fake {
    fn status(&self) -> ServerStatus {
        self.status_with_buckets()
    }

    fn flush(&self, volume: Option<&str>) -> Result<(), ManageError> {
        volume.map_or(Ok(()), |name| self.volume(name).map(drop))?;
        let mut state = self.state();
        state.calls.push(format!("flush {}", volume.unwrap_or("all")));
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |state| state.flush_held).unwrap();
        if state.flush_broken { Err(ManageError::Failed("volume one: the flash failed".to_owned())) } else { Ok(()) }
    }

    fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits)
    }

    fn what_if(&self, name: &str) -> Result<WhatIfStatus, ManageError> {
        self.volume(name)?;
        let estimate =
            EstimateStatus { policy: "larc".to_owned(), read_hit_ratio: Some(0.5), ..EstimateStatus::default() };
        Ok(WhatIfStatus { sampled_share: 0.1, estimates: vec![estimate], ..WhatIfStatus::default() })
    }

    fn check_detach(&self, name: &str) -> Result<(), ManageError> {
        self.volume(name).map(drop)
    }

    fn detach(&self, name: &str) -> Result<(), ManageError> {
        self.volume(name)?;
        if std::mem::replace(&mut self.state().detaching, true) {
            return Err(ManageError::Conflict(format!("volume {name} is being detached")));
        }
        Ok(())
    }

    fn check_attach(&self, name: &str) -> Result<(), ManageError> {
        self.volume(name)?;
        match self.state().detaching {
            true => Ok(()),
            false => Err(ManageError::Conflict(format!("volume {name} is not detached"))),
        }
    }

    fn attach(&self, name: &str) -> Result<(), ManageError> {
        self.check_attach(name)?;
        self.state().detaching = false;
        Ok(())
    }

    fn detach_progress(&self, name: &str) -> Result<DetachProgress, ManageError> {
        self.volume(name)?;
        if !self.state().detaching {
            return Ok(DetachProgress { state: DetachState::Attached, ..DetachProgress::default() });
        }
        Ok(DetachProgress {
            state: DetachState::Detaching,
            dirty_blocks: 7,
            destaged_blocks: 3,
            remaining_seconds: Some(4.5),
        })
    }

    fn settings(&self, name: &str) -> Result<Vec<SettingStatus>, ManageError> {
        self.volume(name)?;
        let setting = |setting: &'static Setting| SettingStatus {
            name: setting.name().to_owned(),
            value: setting.parameter.default.to_owned(),
            ..SettingStatus::default()
        };
        Ok(Setting::settable().map(setting).collect())
    }

    fn check_set(&self, name: &str, changes: &Settings) -> Result<(), ManageError> {
        self.volume(name)?;
        // The other limit belongs to the volume; for this one, both have their defaults.
        changes.check().map_err(|error| ManageError::Invalid(error.to_string()))
    }

    fn set(&self, name: &str, changes: &Settings) -> Result<(), ManageError> {
        self.check_set(name, changes)?;
        let mut state = self.state();
        let policy = changes.given(Setting::named("policy")).map(ToString::to_string);
        state.policy = policy.or(state.policy.take());
        state.changes = changes.clone();
        Ok(())
    }
}
