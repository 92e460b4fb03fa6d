//! The machine's disks: their properties, contents, current use, and possible use.
//!
//! Source: sysfs-block in the kernel's ABI documentation. Writes and locks nothing.
//!
//! | file | holds |
//! | --- | --- |
//! | `signature.rs` | detects contents by magic numbers |
//! | `mounts.rs` | mounted file systems and swap |
//! | `locks.rs` | locks of processes |
//! | `condition.rs` | the state of a disk |
//! | `wear.rs` | wear and temperature |
//! | `smart.rs` | the same of SATA and SAS disks |

mod condition;
mod locks;
mod mounts;
mod signature;
mod smart;
mod wear;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::locks::{Holder, Locks};
use self::mounts::Mounts;
pub(crate) use self::mounts::same;
use self::signature::{CACHE, Ends, POOL};
pub use self::signature::{JOURNAL, POOL_MAGIC, Signature};
use self::wear::condition;
pub(crate) use self::wear::written_bytes;
use crate::disk::device::whole_disk;

/// The sector size in sysfs, regardless of the device's.
const SECTOR: u64 = 512;

flashwise_core::words! {
    /// The use of a disk.
    #[derive(Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Role {
        /// It belongs to a pool.
        Data "data",
        /// It holds a cache, or its journal.
        Cache "cache",
        /// It is blank and available.
        #[default]
        Spare "spare",
        /// It holds something else, or cannot be examined.
        Foreign "foreign",
        /// The machine uses it: it is mounted, used as swap, or part of another device. Or it is blank, and a process
        /// has locked it.
        System "system",
    }
}

/// A partition of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// The path of the device.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The mount points, and `[SWAP]` if it is used as swap.
    pub mounts: Vec<String>,
    /// Devices that use it.
    pub holders: Vec<String>,
    /// The detected contents.
    pub signatures: Vec<Signature>,
}

/// A disk: a block device, or a given regular file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskInfo {
    /// The path of the device or file.
    pub path: String,
    /// True if it is a regular file.
    pub is_file: bool,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Vendor and model. Like the following fields, null if unknown.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// World wide name, or the equivalent of NVMe.
    pub wwn: Option<String>,
    /// The bus address: host, channel, target and unit for SCSI and SATA (`0:0:1:0`), the PCI address for NVMe, or the
    /// virtual device.
    pub bus_address: Option<String>,
    /// The file behind a loop device.
    pub backing_file: Option<String>,
    /// True for a hard disk, false for an SSD; null for files.
    pub rotational: Option<bool>,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: String,
    /// True if it is read-only.
    pub read_only: bool,
    /// True if it is removable.
    pub removable: bool,
    /// The mount points, and `[SWAP]` if it is used as swap.
    pub mounts: Vec<String>,
    /// Devices that use it: RAID, device mapper, or loop devices of a file.
    pub holders: Vec<String>,
    /// The partitions, by number.
    pub partitions: Vec<Partition>,
    /// The detected contents, without those of the partitions.
    pub signatures: Vec<Signature>,
    /// Used share of the rated endurance in percent, if the disk reports it.
    pub wear_percent: Option<u16>,
    /// Temperature in degrees Celsius, if the disk reports it.
    pub temperature_celsius: Option<f64>,
    /// Errors that the disk could not correct, if it reports them.
    #[serde(default)]
    pub media_errors: Option<u64>,
    /// Sectors replaced by spare ones, if the disk reports them.
    #[serde(default)]
    pub reallocated: Option<u64>,
    /// Hours in operation, if the disk reports them.
    #[serde(default)]
    pub power_on_hours: Option<u64>,
    /// Remaining spare capacity in percent, if the disk reports it.
    #[serde(default)]
    pub spare_percent: Option<u16>,
    /// True if the disk predicts its own failure.
    #[serde(default)]
    pub is_failing: Option<bool>,
    /// The use of the disk.
    pub role: Role,
    /// Why a pool would refuse the disk as it is, or null.
    pub refused: Option<String>,
    /// True if a pool would accept the disk after wiping.
    pub can_be_wiped: bool,
}

impl DiskInfo {
    /// Returns a text that changes if another disk appears at this path, or other contents on the disk.
    pub fn identity(&self) -> String {
        let disk = (&self.path, self.size_bytes, &self.model, &self.serial, &self.wwn, &self.backing_file);
        // For a file, the path does not show that it was replaced or written.
        let file = std::fs::metadata(&self.path).ok().filter(|_| self.is_file);
        let file = file.map(|file| (file.dev(), file.ino(), file.mtime(), file.mtime_nsec()));
        format!("{disk:?} {:?} {:?} {file:?}", self.partitions, self.signatures)
    }

    /// Returns the path, with model and serial number if known.
    pub fn named(&self) -> String {
        let serial = self.serial.as_ref().map(|serial| format!("serial number {serial}"));
        let more: Vec<String> = self.model.iter().cloned().chain(serial).collect();
        if more.is_empty() { self.path.clone() } else { format!("{} ({})", self.path, more.join(", ")) }
    }

    /// Says which data of caches or pools the disk holds, if any. Writes of others would destroy that.
    pub fn holds(&self) -> Option<&'static str> {
        match self.role {
            Role::Data => Some("it belongs to a pool"),
            Role::Cache if self.has(CACHE) => Some("it holds a cache"),
            Role::Cache => Some("it holds the journal of a cache"),
            Role::Spare | Role::System | Role::Foreign => None,
        }
    }

    fn has(&self, kind: &str) -> bool {
        self.signatures.iter().any(|signature| signature.kind == kind)
    }
}

/// The directories of the kernel's device information. Tests have their own.
#[derive(Clone, Debug)]
pub struct Places {
    /// sysfs.
    pub sys: PathBuf,
    /// The directory of device files.
    pub dev: PathBuf,
    /// proc.
    pub proc: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places { sys: "/sys".into(), dev: "/dev".into(), proc: "/proc".into() }
    }
}

/// A present block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The size in bytes.
    pub size_bytes: u64,
    /// A number that the kernel increases with each new device; 0 before Linux 5.15.
    pub came: u64,
}

/// Reads an attribute in sysfs. Returns `None` if it is missing or empty.
fn attribute(folder: &Path, name: &str) -> Option<String> {
    let value = std::fs::read(folder.join(name)).ok()?;
    let value = String::from_utf8_lossy(&value).trim_matches(['\0', ' ', '\n', '\t']).to_owned();
    (!value.is_empty()).then_some(value)
}

/// Returns all block devices with a size above 0, ordered by name.
pub fn scan(places: &Places) -> io::Result<Vec<DiskInfo>> {
    let folder = places.sys.join("block");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // In natural order: sdb before sdaa, nvme2n1 before nvme10n1.
    names.sort_by_key(|name| (name.chars().take(2).collect::<String>(), name.len(), name.clone()));
    let mounts = Mounts::read(&places.proc);
    let disks = names.iter().map(|name| device(places, &mounts, name));
    Ok(disks.filter(|disk| disk.size_bytes > 0).collect())
}

/// Returns the block devices with a size above 0, by path, with their size and kernel sequence number. Both reveal a
/// replaced device. Reads only sysfs, so sleeping disks are not woken.
pub fn present(places: &Places) -> io::Result<BTreeMap<String, Presence>> {
    let entries = std::fs::read_dir(places.sys.join("block"))?.flatten();
    let there = entries.filter_map(|entry| {
        let (folder, name) = (entry.path(), entry.file_name());
        let size_bytes = size(&folder);
        let came = attribute(&folder, "diskseq").and_then(|text| text.parse().ok()).unwrap_or(0);
        let path = device_path(places, &name.to_string_lossy()).display().to_string();
        (size_bytes > 0).then_some((path, Presence { size_bytes, came }))
    });
    Ok(there.collect())
}

/// Adds the paths of the disks behind a file or block device to `disks`. It finds them through partitions, file systems
/// except btrfs, device mapper, RAID and loop devices.
pub fn disks_behind(places: &Places, path: &Path, disks: &mut BTreeSet<String>) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let number = format!("dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    disks_below(places, &places.sys.join(number), disks);
}

fn disks_below(places: &Places, folder: &Path, disks: &mut BTreeSet<String>) {
    let Ok(folder) = whole_disk(folder).canonicalize() else { return };
    disks.insert(device_path(places, &folder.file_name().unwrap_or_default().to_string_lossy()).display().to_string());
    for name in inside_of(&folder.join("slaves")) {
        disks_below(places, &places.sys.join("class/block").join(name), disks);
    }
    if let Some(file) = attribute(&folder, "loop/backing_file") {
        disks_behind(places, Path::new(&file), disks);
    }
}

/// Examines one disk: a regular file, a whole block device, or a partition.
pub fn examine(places: &Places, path: &Path) -> io::Result<DiskInfo> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(named)?;
    let mounts = Mounts::read(&places.proc);
    if metadata.is_file() {
        let size_bytes = metadata.len();
        let read_only = metadata.permissions().readonly();
        let path_shown = path.display().to_string();
        let mut disk = DiskInfo { path: path_shown, is_file: true, size_bytes, read_only, ..DiskInfo::default() };
        disk.zoned = "none".to_owned();
        disk.mounts = mounts.of(&std::path::absolute(path).map_err(named)?, None);
        disk.holders = loops_on(places, path);
        judge(&mut disk, ends(path, size_bytes).as_ref());
        return Ok(disk);
    }
    if !metadata.file_type().is_block_device() {
        let what = format!("{}: is neither a regular file nor a block device", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let device_path = path.canonicalize().map_err(named)?;
    let name = device_path.file_name().unwrap_or_default().to_string_lossy().replace('/', "!");
    if places.sys.join("block").join(&name).exists() {
        return Ok(DiskInfo { path: path.display().to_string(), ..device(places, &mounts, &name) });
    }
    let class = places.sys.join("class/block").join(&name);
    let part = partition(places, &mounts, &class, &name);
    let mut disk = DiskInfo {
        path: path.display().to_string(),
        size_bytes: part.size_bytes,
        read_only: attribute(&class, "ro").as_deref() == Some("1"),
        zoned: "none".to_owned(),
        mounts: part.mounts,
        holders: part.holders,
        ..DiskInfo::default()
    };
    judge(&mut disk, ends(path, part.size_bytes).as_ref());
    Ok(disk)
}

/// Marks the disks that processes have locked, such as those that a server serves: they are not available.
pub fn mark_locked(places: &Places, disks: &mut [DiskInfo]) {
    let locks = Locks::read(places);
    for disk in disks.iter_mut().filter(|disk| disk.can_be_wiped) {
        if let Some(holder) = locks.holder(Path::new(&disk.path)) {
            (disk.can_be_wiped, disk.refused) = (false, Some(holder.to_string()));
            if disk.role == Role::Spare {
                disk.role = Role::System;
            }
        }
    }
}

fn device(places: &Places, mounts: &Mounts, name: &str) -> DiskInfo {
    let folder = places.sys.join("block").join(name);
    let path = device_path(places, name);
    let inside = |name: &str| attribute(&folder.join("device"), name);
    let size_bytes = size(&folder);
    let open = File::open(&path).ok().filter(|_| size_bytes > 0);
    let condition = condition(&folder, &path, open.as_ref());
    let mut disk = DiskInfo {
        path: path.display().to_string(),
        size_bytes,
        model: model(&inside),
        serial: attribute(&folder, "serial").or_else(|| inside("serial")).or_else(|| page_80(&folder)),
        wwn: attribute(&folder, "wwid").or_else(|| inside("wwid")),
        bus_address: bus_address(&folder),
        backing_file: attribute(&folder, "loop/backing_file"),
        rotational: attribute(&folder, "queue/rotational").map(|text| text == "1"),
        zoned: attribute(&folder, "queue/zoned").unwrap_or_else(|| "none".to_owned()),
        read_only: attribute(&folder, "ro").as_deref() == Some("1"),
        removable: attribute(&folder, "removable").as_deref() == Some("1"),
        mounts: mounts.of(&path, attribute(&folder, "dev").as_deref()),
        holders: inside_of(&folder.join("holders")),
        partitions: partitions(places, mounts, &folder),
        wear_percent: condition.wear_percent,
        temperature_celsius: condition.temperature_celsius,
        media_errors: condition.media_errors,
        reallocated: condition.reallocated,
        power_on_hours: condition.power_on_hours,
        spare_percent: condition.spare_percent,
        is_failing: condition.is_failing,
        ..DiskInfo::default()
    };
    judge(&mut disk, ends(&path, size_bytes).as_ref());
    disk
}

/// Names in sysfs have `!` in place of `/`.
fn device_path(places: &Places, name: &str) -> PathBuf {
    places.dev.join(name.replace('!', "/"))
}

fn size(folder: &Path) -> u64 {
    attribute(folder, "size").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * SECTOR
}

/// The vendor `ATA` of SATA disks means only that they are behind a translation.
fn model(inside: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let vendor = inside("vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    match (vendor, inside("model").or_else(|| inside("name"))) {
        (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
        (_, model) => model,
    }
}

/// Reads the unit serial number of SCSI: four bytes of header, then the text.
fn page_80(folder: &Path) -> Option<String> {
    let page = std::fs::read(folder.join("device/vpd_pg80")).ok()?;
    let text = String::from_utf8_lossy(page.get(4..)?).trim_matches(['\0', ' ']).to_owned();
    (!text.is_empty()).then_some(text)
}

fn bus_address(folder: &Path) -> Option<String> {
    let device = folder.join("device");
    attribute(&device, "address").or_else(|| {
        let target = device.canonicalize().ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    })
}

/// Returns the loop devices of a file.
fn loops_on(places: &Places, path: &Path) -> Vec<String> {
    let is_it = |name: &String| {
        let behind = attribute(&places.sys.join("block").join(name), "loop/backing_file");
        behind.is_some_and(|behind| same(Path::new(&behind), path))
    };
    inside_of(&places.sys.join("block")).into_iter().filter(is_it).collect()
}

fn inside_of(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn partitions(places: &Places, mounts: &Mounts, folder: &Path) -> Vec<Partition> {
    let number = |name: &String| attribute(&folder.join(name), "partition")?.parse::<u32>().ok();
    let mut numbered: Vec<_> = inside_of(folder).into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
    numbered.sort();
    numbered.into_iter().map(|(_, name)| partition(places, mounts, &folder.join(&name), &name)).collect()
}

fn partition(places: &Places, mounts: &Mounts, folder: &Path, name: &str) -> Partition {
    let path = device_path(places, name);
    let size_bytes = size(folder);
    let signatures = ends(&path, size_bytes).map(|ends| ends.signatures()).unwrap_or_default();
    Partition {
        size_bytes,
        mounts: mounts.of(&path, attribute(folder, "dev").as_deref()),
        holders: inside_of(&folder.join("holders")),
        signatures,
        path: path.display().to_string(),
    }
}

fn ends(path: &Path, size: u64) -> io::Result<Ends> {
    let file = File::open(path)?;
    Ends::read(size, |buffer, offset| file.read_exact_at(buffer, offset))
}

/// Determines the role of a disk, and the reasons against its use.
fn judge(disk: &mut DiskInfo, ends: Result<&Ends, &io::Error>) {
    disk.signatures = ends.map(Ends::signatures).unwrap_or_default();
    let mounts = || disk.mounts.iter().chain(disk.partitions.iter().flat_map(|part| &part.mounts)).next();
    let holders = || disk.holders.iter().chain(disk.partitions.iter().flat_map(|part| &part.holders)).next();
    let used = match (mounts(), holders()) {
        (Some(mount), _) if mount == "[SWAP]" => Some("the machine swaps to it".to_owned()),
        (Some(mount), _) => Some(format!("it is mounted at {mount}")),
        (None, Some(holder)) => Some(format!("it is a part of {holder}")),
        (None, None) => None,
    };
    let is_blank = ends.is_ok_and(Ends::are_blank);
    let first = || disk.signatures.first().map(|signature| format!("it holds {}", signature.kind));
    let (role, holds) = match ends {
        _ if used.is_some() => (Role::System, None),
        Err(error) => (Role::Foreign, Some(format!("it cannot be read: {error}"))),
        _ if !disk.partitions.is_empty() => {
            let parts = disk.partitions.len();
            (Role::Foreign, Some(format!("it has {parts} partition{}", if parts == 1 { "" } else { "s" })))
        }
        _ if disk.has(POOL) => (Role::Data, None),
        _ if disk.has(CACHE) || disk.has(JOURNAL) => (Role::Cache, None),
        _ if is_blank => (Role::Spare, None),
        _ => (Role::Foreign, first().or_else(|| Some("it holds data of an unknown kind".to_owned()))),
    };
    disk.role = role;
    let unfit = if disk.read_only {
        Some("it is read-only".to_owned())
    } else if disk.zoned == "host-managed" {
        Some("it has zones that must be written in order".to_owned())
    } else {
        None
    };
    disk.can_be_wiped = used.is_none() && unfit.is_none() && ends.is_ok();
    disk.refused = used.or(unfit).or(holds).or_else(|| disk.holds().map(str::to_owned));
}

#[cfg(test)]
mod tests;
