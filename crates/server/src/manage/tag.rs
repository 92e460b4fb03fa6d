//! Entity tags, so that a client changes only the version of an object that it has seen.
//!
//! Source: RFC 9110, sections 8.8.3 (`ETag`) and 13.1.1 (`If-Match`).
//!
//! A volume's tag covers its settings. A pool's tag covers its disks and logical disks without their figures. So a tag
//! covers everything that a request can change, and nothing that changes without one. A dry run that would wipe disks
//! returns the tag of these disks, so that the real request wipes no others.

use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use flashwise_storage::pool::status::{PoolDiskState, PoolStatus};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::clients::IscsiStatus;
use super::plan::Plan;
use super::{ManageError, SettingStatus};

/// The tag of a volume with these settings.
pub fn of_settings(settings: &[SettingStatus]) -> String {
    of(&settings.iter().map(|setting| (&setting.name, &setting.value)).collect::<Vec<_>>())
}

/// Returns the tag of the access rules of exports.
pub fn of_iscsi(iscsi: &IscsiStatus) -> String {
    of(&iscsi.exports)
}

/// The tag of a pool.
pub fn of_pool(pool: &PoolStatus) -> String {
    let disks =
        pool.disks.iter().map(|disk| (disk.number, &disk.uuid, &disk.path, disk.state == PoolDiskState::Leaving));
    let logical = pool.logical_disks.iter().map(|disk| {
        let of_space = (&disk.name, &disk.uuid, disk.size_bytes, disk.thick, disk.striped);
        (of_space, disk.cached, &disk.mode, disk.pinned_ram_bytes)
    });
    of(&(&pool.uuid, disks.collect::<Vec<_>>(), logical.collect::<Vec<_>>()))
}

/// Returns the tag of the disks that a plan would wipe, combined with the tag of the changed object, if any. `None` if
/// the plan wipes nothing.
pub fn of_wipes(of_thing: Option<&str>, plan: &Plan) -> Option<String> {
    (!plan.wipes.is_empty()).then(|| of(&(of_thing, &plan.wipes)))
}

fn of(value: &impl Serialize) -> String {
    // These are numbers and text, which JSON has.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest: String = Sha256::digest(json)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digest}\"")
}

/// Returns the tags of the `If-Match` header; `None` if any version is accepted.
pub fn wanted(headers: &HeaderMap) -> Option<Vec<String>> {
    let given: Vec<&str> = headers.get_all(IF_MATCH).iter().filter_map(|value| value.to_str().ok()).collect();
    let tags: Vec<String> = given.iter().flat_map(|value| value.split(',')).map(|tag| tag.trim().to_owned()).collect();
    (!tags.is_empty() && !tags.contains(&"*".to_owned())).then_some(tags)
}

/// Refuses a request that is for other tags than the one of now.
pub fn check(wanted: Option<&[String]>, now: &str) -> Result<(), ManageError> {
    let is_other = wanted.is_some_and(|wanted| !wanted.iter().any(|tag| tag == now));
    if is_other { Err(ManageError::Changed) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use flashwise_storage::pool::status::{LogicalDiskStatus, PoolDiskStatus};

    use super::*;

    #[test]
    fn a_tag_covers_settings_and_no_figures() {
        let disk = PoolDiskStatus { path: "/dev/sdb".to_owned(), ..PoolDiskStatus::default() };
        let logical = LogicalDiskStatus { name: "mail".to_owned(), size_bytes: 4096, ..LogicalDiskStatus::default() };
        let pool = PoolStatus { disks: vec![disk], logical_disks: vec![logical], ..PoolStatus::default() };
        let tag = of_pool(&pool);
        assert!(tag.len() == 34 && tag.starts_with('"'), "{tag}");
        let mut busy = pool.clone();
        (busy.used_bytes, busy.generation) = (5, 7);
        (busy.logical_disks[0].reads, busy.logical_disks[0].clients, busy.disks[0].used_bytes) = (9, 1, 3);
        assert_eq!(of_pool(&busy), tag);
        let changes: [fn(&mut PoolStatus); 5] = [
            |pool| pool.logical_disks[0].size_bytes = 8192,
            |pool| pool.logical_disks[0].cached = true,
            |pool| pool.disks[0].state = PoolDiskState::Leaving,
            |pool| pool.logical_disks.clear(),
            |pool| pool.disks.push(PoolDiskStatus { number: 1, ..PoolDiskStatus::default() }),
        ];
        for change in changes {
            let mut other = pool.clone();
            change(&mut other);
            assert_ne!(of_pool(&other), tag);
        }
    }

    #[test]
    fn a_request_for_other_tags_is_refused() {
        let sent =
            |values: &[&str]| HeaderMap::from_iter(values.iter().map(|value| (IF_MATCH, value.parse().unwrap())));
        for (values, passes) in [
            (&[][..], true),
            (&["*"], true),
            (&["\"a\""], true),
            (&["\"b\", \"a\""], true),
            (&["\"b\""], false),
            (&["W/\"a\""], false),
            (&[""], false),
        ] {
            let wanted = wanted(&sent(values));
            assert_eq!(check(wanted.as_deref(), "\"a\"").is_ok(), passes, "{values:?}");
        }
    }
}
