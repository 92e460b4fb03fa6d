//! The effects of a change, before it is made.

use flashwise_core::cache::settings::{Setting, Settings};
use flashwise_core::human;
use flashwise_storage::disk::inventory::DiskInfo;
use flashwise_storage::pool::plan::lost;
use flashwise_storage::status::{VolumeState, VolumeStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::SettingStatus;

/// Query of a dry run.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DryRun {
    /// Returns the plan, and changes nothing.
    #[serde(default, rename = "dry-run")]
    pub dry_run: bool,
}

/// The effects of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The effects, in sentences.
    pub does: Vec<String>,
    /// True if data would be lost, or the change cannot be undone.
    pub destroys: bool,
    /// Identifiers of the disks that would be wiped.
    #[serde(skip)]
    pub wipes: Vec<String>,
}

impl From<flashwise_storage::pool::plan::Plan> for Plan {
    fn from(plan: flashwise_storage::pool::plan::Plan) -> Plan {
        Plan { does: plan.does, destroys: plan.destroys, wipes: plan.wipes }
    }
}

/// Describes the effect of wiping a disk.
pub fn of_wipe(disk: &DiskInfo) -> Plan {
    let does = vec![lost(disk), format!("{} will be blank, and can be used again.", disk.path)];
    Plan { does, destroys: true, wipes: vec![disk.identity()] }
}

/// How a setting that is given is written.
pub fn shown(changes: &Settings, name: &str) -> String {
    changes.given(Setting::named(name)).map(ToString::to_string).unwrap_or_default()
}

/// Describes the effect of changing settings. Settings with unchanged values have none.
pub fn of_change(status: &VolumeStatus, now: &[SettingStatus], changes: &Settings) -> Plan {
    let mut does = Vec::new();
    for name in changes.names() {
        let (before, after) = (now.iter().find(|setting| setting.name == name), shown(changes, name));
        let before = before.map_or("", |setting| &setting.value);
        if before == after {
            does.push(format!("{name} stays {after}."));
            continue;
        }
        does.push(format!("{name} changes from {before} to {after}."));
        match name {
            "policy" => does.push(format!(
                "The new policy starts with the {} in the cache and without a history.",
                human::bytes(status.cached_blocks as f64 * flashwise_core::format::BLOCK_BYTES as f64)
            )),
            "write-mode" if before == "write-back" && status.dirty_bytes > 0 => does.push(format!(
                "{} of dirty data stay on the flash until they are written back.",
                human::bytes(status.dirty_bytes as f64)
            )),
            "write-mode" if after == "write-back" => {
                does.push("New writes will be only on the flash until they are written back.".to_owned());
            }
            _ => {}
        }
    }
    does.push("This holds until the server is started again.".to_owned());
    Plan { does, ..Plan::default() }
}

/// Describes the effect of a detach.
pub fn of_detach(status: &VolumeStatus) -> Plan {
    if status.state == VolumeState::Detached {
        let does = vec![format!("The next start of the server does not use {}. Nothing else changes.", status.flash)];
        return Plan { does, ..Plan::default() };
    }
    let dirty = match status.dirty_bytes {
        0 => "Nothing is dirty, so nothing is written back.".to_owned(),
        bytes => {
            format!("{} are written back to {}. This can take minutes.", human::bytes(bytes as f64), status.backend)
        }
    };
    let clients = match (status.clients.len(), status.dirty_bytes) {
        (0, _) => "No client has the volume open.".to_owned(),
        (1, 0) => "1 client stays connected.".to_owned(),
        (many, 0) => format!("{many} clients stay connected."),
        (1, _) => "1 client stays connected. Until everything is written back, its writes are slower.".to_owned(),
        (many, _) => {
            format!("{many} clients stay connected. Until everything is written back, their writes are slower.")
        }
    };
    let end = format!("Then the cached blocks on {} are discarded, and requests go to the backend.", status.flash);
    let back = "This lasts, also over restarts, until you attach the flash again.".to_owned();
    Plan { does: vec![dirty, clients, end, back], destroys: true, ..Plan::default() }
}

/// Describes the effect of an attach.
pub fn of_attach(status: &VolumeStatus) -> Plan {
    let does = vec![
        format!("The next start of the server uses {} for {} again.", status.flash, status.name),
        "The cache is empty then. All data is on the backend.".to_owned(),
        "Until then, nothing changes: requests go to the backend.".to_owned(),
    ];
    Plan { does, ..Plan::default() }
}

#[cfg(test)]
mod tests {
    use flashwise_storage::status::ClientStatus;

    use super::*;
    use crate::manage::changes::parse;

    fn status() -> VolumeStatus {
        VolumeStatus {
            backend: "/dev/sda".to_owned(),
            flash: "/dev/nvme0n1".to_owned(),
            dirty_bytes: 3 << 20,
            cached_blocks: 256,
            ..VolumeStatus::default()
        }
    }

    #[test]
    fn a_plan_describes_each_change() {
        let setting = |name: &str, value: &str| SettingStatus {
            name: name.to_owned(),
            value: value.to_owned(),
            ..SettingStatus::default()
        };
        let now = [setting("policy", "larc"), setting("write-mode", "write-back"), setting("dirty-age", "15min")];
        let changes = parse(br#"{"policy": "lru", "write-mode": "write-through", "dirty-age": "15min"}"#).unwrap();
        let plan = of_change(&status(), &now, &changes);
        let mut does = plan.does;
        does.sort();
        let expected = [
            "3 MiB of dirty data stay on the flash until they are written back.",
            "The new policy starts with the 1 MiB in the cache and without a history.",
            "This holds until the server is started again.",
            "dirty-age stays 15min.",
            "policy changes from larc to lru.",
            "write-mode changes from write-back to write-through.",
        ];
        assert_eq!((does, plan.destroys), (expected.map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn the_plan_of_a_detach_has_the_dirty_bytes() {
        let plan = of_detach(&status());
        assert_eq!(plan.does[0], "3 MiB are written back to /dev/sda. This can take minutes.");
        assert!(plan.destroys);
        let used = VolumeStatus { clients: vec![ClientStatus::default()], ..status() };
        let waits = "1 client stays connected. Until everything is written back, its writes are slower.";
        assert_eq!(of_detach(&used).does[1], waits);
        let clean = of_detach(&VolumeStatus { dirty_bytes: 0, ..status() });
        assert_eq!(clean.does[0], "Nothing is dirty, so nothing is written back.");
    }
}
