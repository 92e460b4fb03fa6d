//! What a change would do, before it is made.

use flashwise_core::cache::settings::{Setting, Settings};
use flashwise_core::human;
use flashwise_storage::inventory::DiskInfo;
use flashwise_storage::pool::plan::lost;
use flashwise_storage::status::VolumeStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::SettingStatus;

/// Whether only what would happen is asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DryRun {
    /// Says what would happen, and does nothing.
    #[serde(default, rename = "dry-run")]
    pub dry_run: bool,
}

/// What would happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// In sentences.
    pub does: Vec<String>,
    /// Whether it cannot simply be taken back.
    pub destroys: bool,
    /// What tells the disks that it would wipe from others.
    #[serde(skip)]
    pub wipes: Vec<String>,
}

impl From<flashwise_storage::pool::plan::Plan> for Plan {
    fn from(plan: flashwise_storage::pool::plan::Plan) -> Plan {
        Plan { does: plan.does, destroys: plan.destroys, wipes: plan.wipes }
    }
}

/// What wiping a disk would do.
pub fn of_wipe(disk: &DiskInfo) -> Plan {
    let does = vec![lost(disk), format!("{} is blank then, and free to be used.", disk.path)];
    Plan { does, destroys: true, wipes: vec![disk.identity()] }
}

/// How a setting that is given is written.
pub fn shown(changes: &Settings, name: &str) -> String {
    changes.given(Setting::named(name)).map(ToString::to_string).unwrap_or_default()
}

/// What changing settings would do. Those that are what they were already do nothing.
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
                "The new policy begins with the {} that are cached; what it has not seen it learns anew.",
                human::bytes(status.cached_blocks as f64 * flashwise_core::format::BLOCK_BYTES as f64)
            )),
            "write-mode" if before == "write-back" && status.dirty_bytes > 0 => does.push(format!(
                "{} that are dirty now stay dirty until they are written back.",
                human::bytes(status.dirty_bytes as f64)
            )),
            "write-mode" if after == "write-back" => {
                does.push("What is written from then on is for some time only on flash.".to_owned());
            }
            _ => {}
        }
    }
    does.push("This holds until the server is started again.".to_owned());
    Plan { does, ..Plan::default() }
}

/// What detaching would do.
pub fn of_detach(status: &VolumeStatus) -> Plan {
    let dirty = match status.dirty_bytes {
        0 => "Nothing is dirty: nothing has to be written back.".to_owned(),
        bytes => format!("{} are written back to {}, which may take long.", human::bytes(bytes as f64), status.backend),
    };
    let clients = match status.clients.len() {
        0 => "No client has the volume open.".to_owned(),
        1 => "1 client goes on, without the flash.".to_owned(),
        many => format!("{many} clients go on, without the flash."),
    };
    let end = format!("What is cached on {} is given up.", status.flash);
    Plan { does: vec![dirty, clients, end], destroys: true, ..Plan::default() }
}

#[cfg(test)]
mod tests {
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
    fn a_change_says_what_it_does() {
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
            "3 MiB that are dirty now stay dirty until they are written back.",
            "The new policy begins with the 1 MiB that are cached; what it has not seen it learns anew.",
            "This holds until the server is started again.",
            "dirty-age stays 15min.",
            "policy changes from larc to lru.",
            "write-mode changes from write-back to write-through.",
        ];
        assert_eq!((does, plan.destroys), (expected.map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn detaching_says_what_is_written_back() {
        let plan = of_detach(&status());
        assert_eq!(plan.does[0], "3 MiB are written back to /dev/sda, which may take long.");
        assert!(plan.destroys);
        let clean = of_detach(&VolumeStatus { dirty_bytes: 0, ..status() });
        assert_eq!(clean.does[0], "Nothing is dirty: nothing has to be written back.");
    }
}
