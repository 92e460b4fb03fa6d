//! Events of disks and pools: disks that appeared or disappeared, pools that lack a disk or fill up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flashwise_core::human;
use flashwise_storage::disk::inventory::Presence;
use flashwise_storage::pool::status::{PoolDiskState, PoolDiskStatus, PoolStatus};

use super::Pools;
use super::history::Severity;

/// Pools are checked once in this many checks of the disks, because their figures are counted over all chunks.
const POOLS_EVERY: u64 = 6;

/// The disks and pools at the last look; empty before the first.
#[derive(Debug, Default)]
pub struct News {
    disks: Option<BTreeMap<String, Presence>>,
    /// Paths of the disks that volumes and pools used at the last look.
    used_disks: BTreeSet<String>,
    looks: u64,
    pools: HashMap<String, Seen>,
}

/// A pool at the last look.
#[derive(Debug)]
struct Seen {
    warning: Option<String>,
    used_bytes: u64,
    /// By disk number.
    disks: BTreeMap<u32, PoolDiskStatus>,
}

impl News {
    /// Allocated bytes of each pool at the last look.
    pub fn used(&self) -> HashMap<String, u64> {
        self.pools.iter().map(|(name, seen)| (name.clone(), seen.used_bytes)).collect()
    }

    /// Compares disks and pools with the last look. Calls `happened` for each event, with the pool if it concerns one.
    pub fn look(&mut self, pools: Option<&dyn Pools>, mut happened: impl FnMut(Option<&str>, Severity, String)) {
        let Some(pools) = pools else { return };
        let now = pools.present_disks();
        if let Some(before) = self.disks.replace(now.clone()) {
            of_disks(&before, &now, &self.used_disks, &mut |severity, text| happened(None, severity, text));
        }
        self.used_disks = pools.used_disks();
        let is_turn = self.looks.is_multiple_of(POOLS_EVERY);
        self.looks += 1;
        for pool in is_turn.then(|| pools.status()).into_iter().flatten() {
            let disks = pool.disks.iter().map(|disk| (disk.number, disk.clone())).collect();
            let now = Seen { warning: pool.warning.clone(), used_bytes: pool.used_bytes, disks };
            of_pool(self.pools.get(&pool.name), &now, &pool, &mut |severity, text| {
                happened(Some(&pool.name), severity, text);
            });
            self.pools.insert(pool.name, now);
        }
    }
}

fn of_disks(
    before: &BTreeMap<String, Presence>,
    now: &BTreeMap<String, Presence>,
    used: &BTreeSet<String>,
    happened: &mut dyn FnMut(Severity, String),
) {
    for path in before.iter().filter(|(path, was)| now.get(*path) != Some(was)).map(|(path, _)| path) {
        let (severity, use_of_it) = match used.contains(path) {
            true => (Severity::Warning, ", which a volume or pool uses, is"),
            false => (Severity::Info, " is"),
        };
        happened(severity, format!("The disk {path}{use_of_it} gone"));
    }
    for (path, is) in now.iter().filter(|(path, is)| before.get(*path) != Some(is)) {
        happened(Severity::Info, format!("The disk {path} of {} was connected", human::bytes(is.size_bytes as f64)));
    }
}

fn of_pool(before: Option<&Seen>, now: &Seen, pool: &PoolStatus, happened: &mut dyn FnMut(Severity, String)) {
    if now.warning.is_some() && before.is_none_or(|before| before.warning.is_none()) {
        happened(Severity::Warning, format!("The pool warns: {}", now.warning.as_deref().unwrap_or_default()));
    }
    let Some(before) = before else { return };
    if now.warning.is_none() && before.warning.is_some() {
        happened(Severity::Info, format!("The pool is {}, and warns of nothing any more", pool.state));
    }
    for (number, was) in &before.disks {
        let Some(disk) = now.disks.get(number) else {
            happened(Severity::Info, format!("Disk {number}, {}, is empty and was removed", was.path));
            continue;
        };
        if disk.state != was.state {
            let is_fault = disk.state == PoolDiskState::Missing;
            let severity = if is_fault { Severity::Fault } else { Severity::Info };
            happened(severity, format!("Disk {number}, {}, is {}", disk.path, disk.state));
        }
        if let Some(failed) = disk.failed.as_ref().filter(|_| disk.failed != was.failed) {
            happened(Severity::Warning, format!("Disk {number}, {}, is not emptied any further: {failed}", disk.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_disks_are_reported() {
        let is = |size_bytes, came| Presence { size_bytes, came };
        let of = |disks: &[(&str, Presence)]| disks.iter().map(|(path, is)| ((*path).to_owned(), *is)).collect();
        let before = of(&[("/dev/sda", is(1 << 30, 1)), ("/dev/sdb", is(1 << 30, 2)), ("/dev/sdc", is(1 << 30, 3))]);
        let now = of(&[("/dev/sda", is(1 << 30, 1)), ("/dev/sdc", is(1 << 30, 4)), ("/dev/sdd", is(2 << 30, 5))]);
        let mut told = Vec::new();
        let used = BTreeSet::from(["/dev/sda", "/dev/sdc"].map(str::to_owned));
        of_disks(&before, &now, &used, &mut |severity, text| told.push((severity, text)));
        let expected = [
            (Severity::Info, "The disk /dev/sdb is gone".to_owned()),
            (Severity::Warning, "The disk /dev/sdc, which a volume or pool uses, is gone".to_owned()),
            (Severity::Info, "The disk /dev/sdc of 1 GiB was connected".to_owned()),
            (Severity::Info, "The disk /dev/sdd of 2 GiB was connected".to_owned()),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn pools_report_warnings_and_changes_of_disks() {
        let disk = |number, state| PoolDiskStatus {
            number,
            path: format!("/dev/sd{number}"),
            state,
            ..PoolDiskStatus::default()
        };
        let mut seen = None;
        let mut look = |disks: Vec<PoolDiskStatus>, warning: Option<&str>| {
            let warning = warning.map(str::to_owned);
            let pool = PoolStatus { name: "tank".to_owned(), disks, warning, ..PoolStatus::default() };
            let disks = pool.disks.iter().map(|disk| (disk.number, disk.clone())).collect();
            let now = Seen { warning: pool.warning.clone(), used_bytes: 0, disks };
            let mut told = Vec::new();
            of_pool(seen.as_ref(), &now, &pool, &mut |_, text| told.push(text));
            seen = Some(now);
            told
        };
        assert!(look(vec![disk(0, PoolDiskState::Ok), disk(1, PoolDiskState::Ok)], None).is_empty());
        assert!(look(vec![disk(0, PoolDiskState::Ok), disk(1, PoolDiskState::Ok)], None).is_empty());
        assert_eq!(
            look(vec![disk(0, PoolDiskState::Ok), disk(1, PoolDiskState::Leaving)], None),
            ["Disk 1, /dev/sd1, is leaving"]
        );
        let failed = PoolDiskStatus { failed: Some("no room".to_owned()), ..disk(1, PoolDiskState::Leaving) };
        let told = look(vec![disk(0, PoolDiskState::Ok), failed], Some("full"));
        let expected = ["The pool warns: full", "Disk 1, /dev/sd1, is not emptied any further: no room"];
        assert_eq!(told, expected);
        let told = look(vec![disk(0, PoolDiskState::Ok)], Some("fuller"));
        assert_eq!(told, ["Disk 1, /dev/sd1, is empty and was removed"]);
        assert_eq!(look(vec![disk(0, PoolDiskState::Ok)], None), ["The pool is ok, and warns of nothing any more"]);
    }
}
