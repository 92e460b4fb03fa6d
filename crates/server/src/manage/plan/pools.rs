//! What a change of a pool would do, from the pool's status.

use flashwise_core::quantity::ByteSize;
use flashwise_engine::inventory::{DiskInfo, Role};
use flashwise_engine::pool::CHUNK_BYTES;
use flashwise_engine::pool::status::{LogicalDiskStatus, PoolDiskStatus, PoolStatus, WARN_PERCENT};

use super::Plan;
use crate::front::iscsi::names;
use crate::manage::{DiskAdded, LogicalDiskChange, ManageError, NewLogicalDisk, PoolChange};

/// What a change would do; refused where it would fail. `disk`: the one that is to be added.
pub fn of(pool: &PoolStatus, change: &PoolChange, disk: Option<&DiskInfo>) -> Result<Plan, ManageError> {
    match change {
        PoolChange::AddDisk(added) => Ok(add_disk(pool, added, disk)),
        PoolChange::RemoveDisk(number) => remove_disk(pool, *number),
        PoolChange::Create(new) => create(pool, new),
        PoolChange::Alter(name, change) => alter(pool, logical(pool, name)?, change),
        PoolChange::Delete(name) => delete(pool, logical(pool, name)?),
    }
}

/// What wiping a disk would do.
pub fn of_wipe(disk: &DiskInfo) -> Plan {
    Plan { does: vec![lost(disk), format!("{} is blank then, and free to be used.", disk.path)], destroys: true }
}

fn logical<'a>(pool: &'a PoolStatus, name: &str) -> Result<&'a LogicalDiskStatus, ManageError> {
    let found = pool.logical_disks.iter().find(|disk| disk.name == name);
    found.ok_or_else(|| ManageError::NotFound(format!("pool '{}': no logical disk '{name}'", pool.name)))
}

fn conflict<T>(pool: &PoolStatus, what: &str) -> Result<T, ManageError> {
    Err(ManageError::Conflict(format!("pool '{}': {what}", pool.name)))
}

fn size(bytes: u64) -> ByteSize {
    ByteSize::new(bytes)
}

/// What is lost with what a disk holds.
fn lost(disk: &DiskInfo) -> String {
    let holds = disk.refused.as_deref().unwrap_or("it is blank");
    let named = disk.signatures.iter().chain(disk.partitions.iter().flat_map(|part| &part.signatures));
    let named: Vec<String> = named
        .map(|signature| match &signature.label {
            Some(label) => format!("{} '{label}'", signature.kind),
            None => signature.kind.clone(),
        })
        .collect();
    let more = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let dirty = if disk.role == Role::Cache { ", with the blocks that its backend does not have" } else { "" };
    format!("What {} holds is lost{dirty}: {holds}{more}.", disk.path)
}

fn add_disk(pool: &PoolStatus, added: &DiskAdded, disk: Option<&DiskInfo>) -> Plan {
    let holds = disk.filter(|disk| disk.refused.is_some());
    let bytes = disk.map_or(0, |disk| disk.size_bytes);
    let comes = format!("{} becomes a disk of pool {}, which has {} more then.", added.path, pool.name, size(bytes));
    let moves = "What logical disks hold stays where it is; what they are given from then on may lie there.".to_owned();
    let keep = "The configuration has to name it at the next start: add it to the pool's disks.".to_owned();
    Plan { does: holds.map(lost).into_iter().chain([comes, moves, keep]).collect(), destroys: holds.is_some() }
}

fn remove_disk(pool: &PoolStatus, number: u32) -> Result<Plan, ManageError> {
    let Some(disk) = pool.disks.iter().find(|disk| disk.number == number) else {
        return conflict(pool, &format!("it has no disk {number}"));
    };
    if pool.disks.len() == 1 {
        return conflict(pool, "it has one disk, which cannot be taken out");
    }
    if disk.state == "missing" && disk.used_bytes > 0 {
        return conflict(pool, &format!("disk {number} is missing, and what it has is only there"));
    }
    let others = |other: &&PoolDiskStatus| other.number != number && other.state == "ok";
    let free: u64 = pool.disks.iter().filter(others).map(|disk| disk.size_bytes - disk.used_bytes).sum();
    if disk.used_bytes > free {
        return conflict(pool, &format!("{} bytes are needed on other disks, {free} are free", disk.used_bytes));
    }
    let moved = match disk.used_bytes {
        0 => format!("Nothing is on {}: it is taken out at once.", disk.path),
        bytes => format!("{} on {} move to other disks, which may take long.", size(bytes), disk.path),
    };
    let then = format!("Then {} is no part of pool {} any more.", disk.path, pool.name);
    let keep = "The configuration must not name it at the next start: take it out of the pool's disks.".to_owned();
    Ok(Plan { does: vec![moved, then, keep], destroys: false })
}

/// What a pool holds in relation to its size, with so much more that its logical disks have.
fn filling(pool: &PoolStatus, more_bytes: u64) -> Option<String> {
    let provisioned = pool.provisioned_bytes + more_bytes;
    let too_much = provisioned > pool.size_bytes / 100 * WARN_PERCENT;
    too_much.then(|| {
        let (all, room) = (size(provisioned), size(pool.size_bytes));
        format!("All logical disks have {all} together then, and the pool {room}: it may fill up.")
    })
}

fn create(pool: &PoolStatus, new: &NewLogicalDisk) -> Result<Plan, ManageError> {
    if pool.logical_disks.iter().any(|disk| disk.name == new.name) {
        return conflict(pool, &format!("there is a logical disk '{}' already", new.name));
    }
    let needed = new.size_bytes.next_multiple_of(CHUNK_BYTES);
    if new.thick && needed > pool.free_bytes {
        return conflict(pool, &format!("{needed} bytes are needed, {} are free", pool.free_bytes));
    }
    let NewLogicalDisk { name, size_bytes, thick, striped, cached } = new;
    let space = match thick {
        true => format!("It takes {} of the {} that are free at once.", size(needed), size(pool.free_bytes)),
        false => format!("It takes space as it is written; {} are free now.", size(pool.free_bytes)),
    };
    let place = match striped {
        true => "Neighbouring chunks go to different disks.",
        false => "It fills one disk and then the next.",
    };
    let through = if *cached { "Its requests go through the pool's cache." } else { "Its requests are not cached." };
    let mut does = vec![
        format!("A logical disk {name} of {} is made in pool {}.", size(*size_bytes), pool.name),
        space,
        place.to_owned(),
        through.to_owned(),
        format!("Clients can open it at once, as the NBD export {name} or the iSCSI target {}.", names::target(name)),
    ];
    does.extend(filling(pool, *size_bytes));
    Ok(Plan { does, destroys: false })
}

fn alter(pool: &PoolStatus, disk: &LogicalDiskStatus, change: &LogicalDiskChange) -> Result<Plan, ManageError> {
    let mut does = Vec::new();
    if let Some(wanted) = change.size_bytes {
        if wanted <= disk.size_bytes {
            let what = format!(
                "'{}' has {} bytes, found {wanted}, expected more: it can only grow",
                disk.name, disk.size_bytes
            );
            return conflict(pool, &what);
        }
        let chunks = |bytes: u64| bytes.next_multiple_of(CHUNK_BYTES);
        let needed = chunks(wanted) - chunks(disk.size_bytes);
        if disk.thick && needed > pool.free_bytes {
            return conflict(pool, &format!("{needed} bytes are needed, {} are free", pool.free_bytes));
        }
        does.push(format!("{} grows from {} to {}.", disk.name, size(disk.size_bytes), size(wanted)));
        if disk.clients > 0 {
            does.push("Clients that have it open see that when they open it anew.".to_owned());
        }
        does.extend(filling(pool, wanted - disk.size_bytes));
    }
    match change.cached {
        Some(cached) if cached == disk.cached => {
            does.push(format!("{} stays {}.", disk.name, if cached { "cached" } else { "uncached" }));
        }
        Some(true) => does.push(format!("Requests of {} go through the pool's cache from then on.", disk.name)),
        Some(false) => does.push(format!("Requests of {} are not cached from then on.", disk.name)),
        None => {}
    }
    Ok(Plan { does, destroys: false })
}

fn delete(pool: &PoolStatus, disk: &LogicalDiskStatus) -> Result<Plan, ManageError> {
    if disk.clients > 0 {
        let who = if disk.clients == 1 { "a client has it" } else { "clients have it" };
        return conflict(pool, &format!("'{}' is in use: {who} open; have them close it first", disk.name));
    }
    let does = vec![
        format!("What {} holds, {}, is lost.", disk.name, size(disk.allocated_bytes)),
        format!("No client finds the export {} or the target {} any more.", disk.name, names::target(&disk.name)),
    ];
    Ok(Plan { does, destroys: true })
}

#[cfg(test)]
mod tests {
    use flashwise_engine::inventory::Signature;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Two disks of 100 MiB, of which the second has 60 MiB of the one logical disk.
    fn tank() -> PoolStatus {
        let disk = |number, used_bytes| PoolDiskStatus {
            number,
            path: format!("/dev/sd{number}"),
            size_bytes: 100 * MIB,
            used_bytes,
            state: "ok".to_owned(),
            ..PoolDiskStatus::default()
        };
        let mail = LogicalDiskStatus {
            name: "mail".to_owned(),
            size_bytes: 80 * MIB,
            allocated_bytes: 60 * MIB,
            thick: true,
            cached: true,
            ..LogicalDiskStatus::default()
        };
        PoolStatus {
            name: "tank".to_owned(),
            size_bytes: 200 * MIB,
            used_bytes: 60 * MIB,
            free_bytes: 140 * MIB,
            provisioned_bytes: 80 * MIB,
            disks: vec![disk(0, 0), disk(1, 60 * MIB)],
            logical_disks: vec![mail],
            ..PoolStatus::default()
        }
    }

    fn new(name: &str, size_bytes: u64, thick: bool) -> PoolChange {
        PoolChange::Create(NewLogicalDisk { name: name.to_owned(), size_bytes, thick, striped: true, cached: false })
    }

    fn alter(size_bytes: Option<u64>, cached: Option<bool>) -> PoolChange {
        PoolChange::Alter("mail".to_owned(), LogicalDiskChange { size_bytes, cached })
    }

    /// The sentences, or the error.
    fn told(pool: &PoolStatus, change: &PoolChange) -> (Vec<String>, bool) {
        match of(pool, change, None) {
            Ok(Plan { does, destroys }) => (does, destroys),
            Err(error) => (vec![error.to_string()], false),
        }
    }

    #[test]
    fn making_a_logical_disk_says_what_it_takes() {
        let (does, destroys) = told(&tank(), &new("web", 100 * MIB, false));
        let expected = [
            "A logical disk web of 100MiB is made in pool tank.",
            "It takes space as it is written; 140MiB are free now.",
            "Neighbouring chunks go to different disks.",
            "Its requests are not cached.",
            "Clients can open it at once, as the NBD export web or the iSCSI target iqn.2026-11.org.flashwise:web.",
            "All logical disks have 180MiB together then, and the pool 200MiB: it may fill up.",
        ];
        assert_eq!((does, destroys), (expected.map(str::to_owned).to_vec(), false));
        let thick = told(&tank(), &new("web", 64 * MIB + 4096, true)).0;
        assert_eq!(thick[1], "It takes 65600KiB of the 140MiB that are free at once.");
        let error = told(&tank(), &new("web", 141 * MIB, true)).0;
        assert_eq!(error, ["pool 'tank': 147849216 bytes are needed, 146800640 are free"]);
        let error = told(&tank(), &new("mail", MIB, false)).0;
        assert_eq!(error, ["pool 'tank': there is a logical disk 'mail' already"]);
    }

    #[test]
    fn changing_a_logical_disk_says_what_becomes_of_it() {
        let grown = told(&tank(), &alter(Some(90 * MIB), Some(false))).0;
        assert_eq!(grown, ["mail grows from 80MiB to 90MiB.", "Requests of mail are not cached from then on."]);
        let mut used = tank();
        used.logical_disks[0].clients = 2;
        let grown = told(&used, &alter(Some(90 * MIB), None)).0;
        assert_eq!(grown[1], "Clients that have it open see that when they open it anew.");
        assert_eq!(told(&tank(), &alter(None, Some(true))).0, ["mail stays cached."]);
        let error = told(&tank(), &alter(Some(80 * MIB), None)).0;
        assert_eq!(error, ["pool 'tank': 'mail' has 83886080 bytes, found 83886080, expected more: it can only grow"]);
        let error = told(&tank(), &alter(Some(300 * MIB), None)).0;
        assert_eq!(error, ["pool 'tank': 230686720 bytes are needed, 146800640 are free"]);
    }

    #[test]
    fn deleting_says_what_is_lost() {
        let mut pool = tank();
        let delete = PoolChange::Delete("mail".to_owned());
        let (does, destroys) = told(&pool, &delete);
        assert_eq!((does[0].as_str(), destroys), ("What mail holds, 60MiB, is lost.", true));
        pool.logical_disks[0].clients = 1;
        let error = told(&pool, &delete).0;
        assert_eq!(error, ["pool 'tank': 'mail' is in use: a client has it open; have them close it first"]);
        let gone = of(&pool, &PoolChange::Delete("male".to_owned()), None);
        assert_eq!(gone, Err(ManageError::NotFound("pool 'tank': no logical disk 'male'".to_owned())));
    }

    #[test]
    fn a_disk_is_emptied_where_there_is_room() {
        let mut pool = tank();
        let does = told(&pool, &PoolChange::RemoveDisk(1)).0;
        assert_eq!(does[0], "60MiB on /dev/sd1 move to other disks, which may take long.");
        let does = told(&pool, &PoolChange::RemoveDisk(0)).0;
        assert_eq!(does[0], "Nothing is on /dev/sd0: it is taken out at once.");
        pool.disks[0].used_bytes = 50 * MIB;
        let error = told(&pool, &PoolChange::RemoveDisk(1)).0;
        assert_eq!(error, ["pool 'tank': 62914560 bytes are needed on other disks, 52428800 are free"]);
        assert_eq!(told(&pool, &PoolChange::RemoveDisk(7)).0, ["pool 'tank': it has no disk 7"]);
        pool.disks[1].state = "missing".to_owned();
        let error = told(&pool, &PoolChange::RemoveDisk(1)).0;
        assert_eq!(error, ["pool 'tank': disk 1 is missing, and what it has is only there"]);
        pool.disks.pop();
        assert_eq!(
            told(&pool, &PoolChange::RemoveDisk(0)).0,
            ["pool 'tank': it has one disk, which cannot be taken out"]
        );
    }

    #[test]
    fn what_a_disk_holds_is_told_before_it_is_lost() {
        let ext4 = Signature { kind: "ext4".to_owned(), label: Some("home".to_owned()), uuid: None };
        let disk = DiskInfo {
            path: "/dev/sdx".to_owned(),
            size_bytes: 4 << 40,
            signatures: vec![ext4],
            refused: Some("it holds ext4".to_owned()),
            role: Role::Foreign,
            ..DiskInfo::default()
        };
        let added = PoolChange::AddDisk(DiskAdded { path: "/dev/sdx".to_owned(), wipe: Some("/dev/sdx".to_owned()) });
        let plan = of(&tank(), &added, Some(&disk)).unwrap();
        assert_eq!(plan.does[0], "What /dev/sdx holds is lost: it holds ext4 (ext4 'home').");
        assert_eq!(plan.does[1], "/dev/sdx becomes a disk of pool tank, which has 4TiB more then.");
        assert!(plan.destroys);
        let blank = DiskInfo { refused: None, signatures: Vec::new(), role: Role::Spare, ..disk.clone() };
        assert!(!of(&tank(), &added, Some(&blank)).unwrap().destroys);
        let cache = DiskInfo { refused: Some("it holds a cache".to_owned()), role: Role::Cache, ..blank };
        let lost = "What /dev/sdx holds is lost, with the blocks that its backend does not have: it holds a cache.";
        assert_eq!(
            of_wipe(&cache),
            Plan {
                does: vec![lost.to_owned(), "/dev/sdx is blank then, and free to be used.".to_owned()],
                destroys: true
            }
        );
    }
}
