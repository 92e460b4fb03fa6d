//! Makes and removes the volumes of a server.

use std::sync::Arc;

use flashwise_storage::export::Exports;
use flashwise_storage::status::VolumeStatus;
use flashwise_storage::volume::{Volume, VolumeError};

use crate::config::made::Kind;
use crate::front::Assignments;
use crate::front::iscsi::names;
use crate::manage::plan::Plan;
use crate::manage::{ManageError, NewVolume};
use crate::reach::Reach;
use crate::state::making::Making;
use crate::state::served::Served;

/// Makes and removes volumes.
pub struct ServedVolumes {
    served: Arc<Served>,
    making: Arc<Making>,
    exports: Exports,
    assignments: Arc<Assignments>,
    reach: Reach,
}

impl ServedVolumes {
    /// Volumes that are among `exports`, and assigned to clients by `assignments`.
    pub(crate) fn new(
        served: Arc<Served>,
        making: Arc<Making>,
        exports: Exports,
        assignments: Arc<Assignments>,
        reach: Reach,
    ) -> ServedVolumes {
        ServedVolumes { served, making, exports, assignments, reach }
    }

    /// True if a running server created the volume or pool, so that it is not in the configuration.
    pub fn is_made(&self, name: &str) -> bool {
        self.making.is_made(name)
    }

    /// Refuses paths that a request may not name, and names that are taken.
    fn check(&self, new: &NewVolume) -> Result<(), ManageError> {
        self.reach.check_volume(new)?;
        self.making.check_unserved(Kind::Volume, &new.name, self.served.own_volume(&new.name).is_some())?;
        if self.exports.names().contains(&new.name) {
            return Err(ManageError::Conflict(format!("there is an export '{}' already", new.name)));
        }
        Ok(())
    }

    /// Describes the effect of making a volume.
    pub fn plan(&self, new: &NewVolume) -> Result<Plan, ManageError> {
        self.check(new)?;
        let mut plan = self.making.plan_volume(new)?;
        plan.does.push(format!(
            "Clients can open it at once, as the NBD export {} or the iSCSI target {}.",
            new.name,
            names::target(&new.name)
        ));
        Ok(plan)
    }

    /// Makes a volume, and serves it.
    pub fn make(&self, new: &NewVolume) -> Result<(), ManageError> {
        self.check(new)?;
        // Another volume of this name may have been for some clients only.
        let kept =
            |error| ManageError::Failed(format!("the clients of an earlier {} are not forgotten: {error}", new.name));
        self.assignments.forget(&new.name).map_err(kept)?;
        let (volume, opened) = self.making.make_volume(new)?;
        opened.notes.iter().for_each(|note| tracing::info!(event = "opened", volume = new.name, "{note}"));
        self.served.add_volume(Arc::clone(&volume));
        if !self.exports.add(&new.name, volume) {
            tracing::error!(
                event = "name-taken",
                volume = new.name,
                "another export took the name meanwhile; the next start refuses one of them"
            );
        }
        Ok(())
    }

    /// Describes the effect of removing a volume. `status` is that of the volume, if it is served.
    pub fn plan_end(&self, name: &str, status: Option<VolumeStatus>) -> Result<Plan, ManageError> {
        match status {
            Some(status) if self.served.pool(name).is_none() => self.making.plan_end_volume(&status),
            Some(_) => Err(ManageError::Conflict(format!("'{name}' is the cache of a pool: delete the pool"))),
            None => self.making.plan_forget_volume(name),
        }
    }

    /// True if a volume was made and is not served.
    pub fn is_unserved(&self, name: &str) -> bool {
        self.served.own_volume(name).is_none() && self.making.keeps(Kind::Volume, name)
    }

    /// Removes a volume that a running server created and that [`plan_end`](Self::plan_end) accepts: its backend has
    /// its data.
    pub fn end(&self, name: &str) -> Result<(), ManageError> {
        let Some(volume) = self.served.own_volume(name) else {
            self.making.forget(Kind::Volume, name)?;
            self.served.forget_volume(name);
            return Ok(());
        };
        // No client comes in between.
        self.exports.remove(name);
        if let Err(error) = self.finish(&volume) {
            self.exports.add(name, volume);
            return Err(error);
        }
        self.served.remove_volume(name);
        let failed = |error: String| ManageError::Failed(format!("the volume is not served any more, but: {error}"));
        // The detach ends with the volume: another volume may use this backend with a cache.
        match volume.attach() {
            Ok(()) | Err(VolumeError::NotDetached { .. }) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
        volume.close().map_err(|error| failed(error.to_string()))?;
        volume.clear_detached_flash().map_err(|error| failed(error.to_string()))?;
        self.making.forget(Kind::Volume, name).map_err(|error| failed(error.to_string()))?;
        self.assignments.forget(name).map_err(|error| failed(error.to_string()))
    }

    /// Has all data of a volume without clients on its backend.
    fn finish(&self, volume: &Volume) -> Result<(), ManageError> {
        self.making.plan_end_volume(&volume.status())?;
        let lost = match volume.has_flash() {
            true => volume.detach(),
            // It was detached before, or its flash has failed.
            false => Ok(volume.lost_blocks().len()),
        };
        match lost {
            Ok(0) => Ok(()),
            Ok(lost) => Err(ManageError::Conflict(format!("{lost} blocks of it are lost; overwrite them first"))),
            Err(error) => Err(ManageError::Failed(error.to_string())),
        }
    }
}
