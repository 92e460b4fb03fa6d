//! The volumes of a server, as the management API sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashwise_core::admission;
use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::{Live, Setting, Settings};
use flashwise_core::filter::Filter;
use flashwise_core::options::{Kind, Parameter};
use flashwise_core::policy;
use parking_lot::Mutex;

use crate::front::{Budget, Counters};
use crate::limits::Limits;
use crate::manage::plan::Plan;
use crate::manage::{Clients, DetachProgress, DetachState, ManageError, Managed, NewVolume, Pools, SettingStatus};
use crate::state::clients::ServedClients;
use crate::state::pools::ServedPools;
use crate::state::served::Served;
use crate::state::volumes::ServedVolumes;
use flashwise_storage::record::Recorder;
use flashwise_storage::status::{ServerStatus, VolumeState, VolumeStatus};
use flashwise_storage::volume::{Volume, VolumeError, check_exports};
use flashwise_storage::what_if::WhatIfStatus;

/// The volumes of a server, as the API sees them.
pub struct Volumes {
    served: Arc<Served>,
    listening: Vec<String>,
    insecure: Vec<String>,
    load: Load,
    recorder: Option<Arc<Recorder>>,
    pools: ServedPools,
    own: ServedVolumes,
    clients: ServedClients,
    /// Unfinished detaches, by the name of the volume.
    detaching: Mutex<HashMap<String, Arc<Detaching>>>,
    /// The settings that were changed since the start, by the volume's name.
    changed: Mutex<HashMap<String, Settings>>,
}

/// Resources of a server that clients use.
pub struct Load {
    /// Their connections, and how often they reached a limit.
    pub counters: Arc<Counters>,
    /// Memory of their requests and answers.
    pub budget: Arc<Budget>,
}

struct Detaching {
    destaged_before: u64,
    running: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Volumes {
    /// Creates the managed volumes. Clients reach them at `listening`, and without authentication at `insecure`. `load`
    /// returns the resources that clients use.
    pub fn new(
        served: Arc<Served>,
        listening: Vec<String>,
        insecure: Vec<String>,
        load: Load,
        recorder: Option<Arc<Recorder>>,
        (own, pools): (ServedVolumes, ServedPools),
        clients: ServedClients,
    ) -> Volumes {
        let (detaching, changed) = Default::default();
        Volumes { served, listening, insecure, load, recorder, pools, own, clients, detaching, changed }
    }

    fn find(&self, name: &str) -> Result<Arc<Volume>, ManageError> {
        let volumes = self.served.volumes();
        let found = volumes.iter().find(|volume| volume.config().name == name);
        found.cloned().ok_or_else(|| ManageError::NoSuchVolume {
            name: name.to_owned(),
            volumes: volumes.iter().map(|volume| volume.config().name.clone()).collect(),
        })
    }

    fn status_of(&self, volume: &Volume) -> VolumeStatus {
        let mut status = volume.status();
        if let Some(pool) = self.served.pool(&status.name) {
            status.size_bytes = pool.size_bytes();
            status.flushes = pool.flushes();
            status.faults.failed_requests += pool.refused_requests();
            let failed = pool.failed_disks();
            if !failed.is_empty() {
                let all: Vec<String> = status.state_reason.take().into_iter().chain(failed).collect();
                status.state_reason = Some(all.join("; "));
            }
        }
        if status.state == VolumeState::Detached && status.state_reason.is_none() {
            let hint = format!("to use a flash again, run 'flashwise attach {}' and restart the server", status.name);
            status.state_reason = Some(hint);
        }
        let changed = self.changed.lock();
        let names = changed.get(&status.name).into_iter().flat_map(Settings::names);
        status.changed_settings = names.map(str::to_owned).collect();
        status.changed_settings.sort();
        status.made = self.own.is_made(&status.name);
        status
    }

    /// Which clients' requests are cached, with the changes.
    fn filter_with(volume: &Volume, changes: &Settings) -> Filter {
        let mut filter = volume.guests().filter();
        changes.put_filter(&mut filter);
        filter
    }
}

/// The values of `copy-forward` to choose from. Another part of the queues can be given by its own text.
const COPY_FORWARD: [&str; 4] = ["used", "young:50%", "all", "none"];

fn becomes_write_back(changes: &Settings) -> bool {
    changes.given(Setting::named("write-mode")).is_some() && changes.mode() == Mode::WriteBack
}

impl Managed for Volumes {
    fn status(&self) -> ServerStatus {
        let Load { counters, budget } = &self.load;
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            connections: counters.connections.load(Ordering::Relaxed),
            request_memory_bytes: budget.used_bytes() as u64,
            request_memory_bytes_max: budget.bytes_max() as u64,
            limits_reached: counters.limits.counts(),
            listening: self.listening.clone(),
            insecure: self.insecure.clone(),
            recording: self.recorder.as_ref().map(|recorder| recorder.status()),
            volumes: self.served.volumes().iter().map(|volume| self.status_of(volume)).collect(),
            unserved_volumes: self.served.unserved_volumes(),
            unserved_pools: self.served.unserved_pools(),
            comparison: self.served.comparison(),
        }
    }

    fn flush(&self, name: Option<&str>) -> Result<(), ManageError> {
        let volumes = match name {
            Some(name) => vec![self.find(name)?],
            None => self.served.volumes(),
        };
        self.pools.flush(name)?;
        let failed =
            |volume: &Volume, error| ManageError::Failed(format!("volume '{}': {error}", volume.config().name));
        volumes.iter().try_for_each(|volume| volume.flush().map_err(|error| failed(volume, error)))
    }

    fn plan_volume(&self, new: &NewVolume) -> Result<Plan, ManageError> {
        self.own.plan(new)
    }

    fn make_volume(&self, new: &NewVolume) -> Result<(), ManageError> {
        // The changes and the detach of an earlier volume with this name are obsolete.
        self.changed.lock().remove(&new.name);
        self.detaching.lock().remove(&new.name);
        self.own.make(new)
    }

    fn plan_end_volume(&self, name: &str) -> Result<Plan, ManageError> {
        let status = if self.own.is_unserved(name) { None } else { Some(self.find(name)?.status()) };
        self.own.plan_end(name, status)
    }

    fn end_volume(&self, name: &str) -> Result<(), ManageError> {
        self.plan_end_volume(name)?;
        self.own.end(name)
    }

    fn pools(&self) -> Option<&dyn Pools> {
        Some(&self.pools)
    }

    fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.load.counters.limits)
    }

    fn clients(&self) -> Option<&dyn Clients> {
        Some(&self.clients)
    }

    fn what_if(&self, name: &str) -> Result<WhatIfStatus, ManageError> {
        let none =
            || ManageError::NotFound(format!("volume '{name}' has no flash: there is no policy to compare with"));
        self.find(name)?.what_if().ok_or_else(none)
    }

    fn check_detach(&self, name: &str) -> Result<(), ManageError> {
        let status = self.find(name)?.status();
        if status.flash.is_empty() {
            return Err(ManageError::Conflict(format!("volume '{name}' has no flash: there is nothing to detach")));
        }
        Ok(())
    }

    fn detach(&self, name: &str) -> Result<(), ManageError> {
        let volume = self.find(name)?;
        let mut detaching = self.detaching.lock();
        if detaching.get(name).is_some_and(|detaching| detaching.running.load(Ordering::Acquire)) {
            return Ok(());
        }
        let state = Arc::new(Detaching {
            destaged_before: volume.status().cache.destaged_blocks,
            running: AtomicBool::new(true),
            error: Mutex::default(),
        });
        detaching.insert(name.to_owned(), state.clone());
        let thread = std::thread::Builder::new().name(format!("detach {name}"));
        let pool = self.served.pool(name);
        let started = thread.spawn(move || {
            let detached = pool.as_ref().map_or_else(|| volume.detach(), |pool| pool.detach());
            if let Err(error) = detached.map_err(|error| error.to_string()).and_then(|lost| match lost {
                0 => Ok(()),
                lost => Err(format!(
                    "the flash is detached; {lost} unflushed blocks were lost with it; reads of them fail until new \
                     data is written there"
                )),
            }) {
                let missing = pool.map(|pool| pool.missing_disks()).unwrap_or_default();
                let error = match missing.is_empty() {
                    true => error,
                    false => format!(
                        "{error}; the pool misses {}, the home of some dirty blocks. Start with it, or remove it and \
                         lose its data and these blocks",
                        missing.join(" and ")
                    ),
                };
                *state.error.lock() = Some(error);
            }
            state.running.store(false, Ordering::Release);
        });
        started.map(drop).map_err(|error| ManageError::Failed(format!("cannot start a thread: {error}")))
    }

    fn detach_progress(&self, name: &str) -> Result<DetachProgress, ManageError> {
        let status = self.find(name)?.status();
        let state = self.detaching.lock().get(name).cloned();
        let dirty_blocks = status.dirty_blocks + status.buffered_blocks;
        let Some(state) = state else {
            let is_attached = !status.flash.is_empty() && status.state != VolumeState::Detached;
            let state = if is_attached { DetachState::Attached } else { DetachState::Detached };
            return Ok(DetachProgress { state, dirty_blocks, ..DetachProgress::default() });
        };
        let running = state.running.load(Ordering::Acquire);
        let failed = state.error.lock().clone();
        let destaged_blocks = status.cache.destaged_blocks.saturating_sub(state.destaged_before);
        let state = match (running, failed) {
            (true, _) => DetachState::Detaching,
            (false, None) => DetachState::Detached,
            (false, Some(error)) => return Err(ManageError::Failed(error)),
        };
        Ok(DetachProgress { state, dirty_blocks, destaged_blocks, remaining_seconds: status.detach_remaining_seconds })
    }

    fn check_attach(&self, name: &str) -> Result<(), ManageError> {
        let volume = self.find(name)?;
        match volume.status().state {
            VolumeState::Detached => Ok(()),
            _ => Err(ManageError::Conflict(VolumeError::NotDetached { volume: volume.config().whose() }.to_string())),
        }
    }

    fn attach(&self, name: &str) -> Result<(), ManageError> {
        self.find(name)?.attach().map_err(|error| match error {
            VolumeError::NotDetached { .. } => ManageError::Conflict(error.to_string()),
            error => ManageError::Failed(error.to_string()),
        })
    }

    fn settings(&self, name: &str) -> Result<Vec<SettingStatus>, ManageError> {
        let volume = self.find(name)?;
        let changed = self.changed.lock().get(name).cloned().unwrap_or_default();
        let status = |setting: &'static Setting| {
            let Parameter { name, default, meaning, kind } = setting.parameter;
            let value = changed.given(setting).or_else(|| volume.config().cache.given(setting));
            SettingStatus {
                name: name.to_owned(),
                value: value.map_or_else(|| default.to_owned(), ToString::to_string),
                default: default.to_owned(),
                meaning: meaning.to_owned(),
                choices: match (name, kind) {
                    (_, Kind::Choice(words)) => words.iter().map(|&word| word.to_owned()).collect(),
                    ("copy-forward", _) => COPY_FORWARD.map(str::to_owned).to_vec(),
                    _ => Vec::new(),
                },
                names: match name {
                    "policy" => policy::online().map(|info| info.name.to_owned()).collect(),
                    "admission" => {
                        let rules = admission::RULES.iter().map(|info| info.name);
                        std::iter::once("none").chain(rules).map(str::to_owned).collect()
                    }
                    _ => Vec::new(),
                },
                changed: changed.given(setting).is_some(),
            }
        };
        Ok(Setting::settable().map(status).collect())
    }

    fn check_set(&self, name: &str, changes: &Settings) -> Result<(), ManageError> {
        let volume = self.find(name)?;
        let filter = Self::filter_with(&volume, changes);
        let names = volume.config().export_names();
        check_exports(filter.rules(), &names).map_err(ManageError::Invalid)?;
        // The record says that the detached volume's backend is complete. This must stay true.
        if becomes_write_back(changes) && volume.status().state.is_without_flash() {
            let what = "write-mode: the volume has no flash, and writes go to the backend directly; \
                found write-back, \
                        which a start with the flash has again";
            return Err(ManageError::Invalid(what.to_owned()));
        }
        volume.check_change(changes).map_err(|error| ManageError::Invalid(error.to_string()))
    }

    fn set(&self, name: &str, changes: &Settings) -> Result<(), ManageError> {
        self.check_set(name, changes)?;
        let volume = self.find(name)?;
        let filter = Self::filter_with(&volume, changes);
        if becomes_write_back(changes) {
            volume.allow_dirty().map_err(|error| ManageError::Failed(error.to_string()))?;
        }
        volume.change(changes).map_err(|error| ManageError::Invalid(error.to_string()))?;
        if changes.changes(Live::Clients) {
            volume.guests().set_filter(filter);
        }
        self.changed.lock().entry(name.to_owned()).or_default().take_over(changes);
        Ok(())
    }
}
