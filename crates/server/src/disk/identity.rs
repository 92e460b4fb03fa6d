//! What tells one backend from another across restarts, so that a cache is never put in front of the wrong one.
//!
//! A regular file carries a random UUID in the extended attribute `user.flashwise.backend`, given to it on first use. Where the
//! file system keeps no such attributes, or the file is opened for reading only and has none yet, it is known by the numbers of
//! its file system and inode. Moving or renaming a file keeps its identity; so does a copy made with its attributes, which is
//! why a copy must not be used in place of its original.
//!
//! A block device is known by the first of these that sysfs (sysfs-block in the kernel's ABI documentation) tells of it: the UUID of a
//! device mapper or RAID device, the UUID of a partition, the world wide name or serial number of a disk, the identity of the
//! whole disk and the place of a partition on it, the file behind a loop device and the place in it, the label of a network
//! block device. Failing all, by its path and size.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use uuid::Uuid;

use super::Disk;
use super::file::FileDisk;

/// The extended attribute that holds a file's UUID, as text.
const ATTRIBUTE: &str = "user.flashwise.backend";

/// The namespace of the identities that are made from a description (RFC 9562, section 5.5).
const NAMESPACE: Uuid = Uuid::from_u128(0x1b43_5c26_0d64_4b0e_9e0f_5c1f_7c4b_a2d6);

/// Which backend this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Equal for the same backend, and for it alone.
    pub id: [u8; 16],
    /// What the identity rests on, for people.
    pub description: String,
}

impl Identity {
    fn from_description(description: String) -> Self {
        Self { id: Uuid::new_v5(&NAMESPACE, description.as_bytes()).into_bytes(), description }
    }
}

/// The identity of an open disk; gives one to a regular file that has none.
pub fn identity(disk: &FileDisk) -> io::Result<Identity> {
    let metadata = disk.file().metadata()?;
    if !disk.is_device() {
        return file_identity(disk, &metadata);
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let sysfs = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    Ok(device_identity(&sysfs).unwrap_or_else(|| {
        let description = format!("block device {} of {} bytes", disk.path().display(), disk.size());
        Identity::from_description(description)
    }))
}

fn file_identity(disk: &FileDisk, metadata: &Metadata) -> io::Result<Identity> {
    let failed = |error: Errno| {
        io::Error::new(error.kind(), format!("{}: extended attribute {ATTRIBUTE}: {error}", disk.path().display()))
    };
    let mut value = [0; 64];
    loop {
        match rustix::fs::fgetxattr(disk.file(), ATTRIBUTE, &mut value) {
            Ok(length) => return parse(disk, &value[..length]),
            Err(Errno::RANGE) => return parse(disk, b"more than 64 bytes"),
            Err(Errno::NODATA) if !disk.is_read_only() => {}
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => break,
            Err(error) => return Err(failed(error)),
        }
        let uuid = Uuid::new_v4().to_string();
        match rustix::fs::fsetxattr(disk.file(), ATTRIBUTE, uuid.as_bytes(), XattrFlags::CREATE) {
            // It must not be lost in a crash that the cache's own header survives.
            Ok(()) => disk.file().sync_all()?,
            Err(Errno::EXIST) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::DQUOT) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    let description = format!("file with inode {} on device {}", metadata.ino(), metadata.dev());
    Ok(Identity::from_description(description))
}

fn parse(disk: &FileDisk, value: &[u8]) -> io::Result<Identity> {
    match Uuid::try_parse_ascii(value) {
        Ok(uuid) => Ok(Identity { id: uuid.into_bytes(), description: format!("file with {ATTRIBUTE} {uuid}") }),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: extended attribute {ATTRIBUTE} is {:?}, expected a UUID; remove it if no cache belongs to this file",
                disk.path().display(),
                String::from_utf8_lossy(value)
            ),
        )),
    }
}

/// What sysfs tells of a device, by its directory there.
fn device_identity(sysfs: &Path) -> Option<Identity> {
    describe(sysfs).map(Identity::from_description)
}

fn describe(sysfs: &Path) -> Option<String> {
    let attribute = |name: &str| {
        let value = std::fs::read(sysfs.join(name)).ok()?;
        let value = String::from_utf8_lossy(&value).trim_matches(['\0', ' ', '\n']).to_owned();
        (!value.is_empty()).then_some(value)
    };
    let named = [("dm/uuid", "device mapper"), ("md/uuid", "RAID")];
    if let Some(description) = named.iter().find_map(|(name, kind)| Some(format!("{kind} {}", attribute(name)?))) {
        return Some(description);
    }
    if let Some(number) = attribute("partition") {
        let events = attribute("uevent").unwrap_or_default();
        if let Some(uuid) = events.lines().find_map(|line| line.strip_prefix("PARTUUID=")) {
            return Some(format!("partition {uuid}"));
        }
        let disk = describe(sysfs.canonicalize().ok()?.parent()?)?;
        return Some(format!("partition {number} at sector {} of {disk}", attribute("start")?));
    }
    let named = [
        ("wwid", "disk"),
        ("device/wwid", "disk"),
        ("serial", "disk with serial number"),
        ("device/serial", "disk with serial number"),
        ("device/cid", "card"),
    ];
    if let Some(description) = named.iter().find_map(|(name, kind)| Some(format!("{kind} {}", attribute(name)?))) {
        return Some(description);
    }
    if let Some(file) = attribute("loop/backing_file") {
        let offset = attribute("loop/offset").unwrap_or_else(|| "0".to_owned());
        return Some(format!("loop device over {file} at {offset}"));
    }
    attribute("backend").map(|backend| format!("network block device {backend}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::{Allocation, Options, PageCache};

    fn sysfs(attributes: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, value) in attributes {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        directory
    }

    #[test]
    fn a_device_is_known_by_the_strongest_name_that_sysfs_has() {
        let described = |attributes: &[(&str, &str)]| describe(sysfs(attributes).path());
        assert_eq!(described(&[("wwid", "eui.01"), ("device/serial", "S1")]).unwrap(), "disk eui.01");
        assert_eq!(described(&[("dm/uuid", "LVM-a"), ("serial", "S1")]).unwrap(), "device mapper LVM-a");
        assert_eq!(described(&[("dm/uuid", ""), ("serial", "S1")]).unwrap(), "disk with serial number S1");
        assert_eq!(
            described(&[("loop/backing_file", "/a b"), ("loop/offset", "512")]).unwrap(),
            "loop device over /a b at 512"
        );
        assert_eq!(described(&[("size", "8")]), None);
    }

    #[test]
    fn a_partition_is_known_by_its_own_uuid_or_by_its_place_on_a_known_disk() {
        let root = sysfs(&[
            ("wwid", "eui.01"),
            ("p1/partition", "1"),
            ("p1/start", "2048"),
            ("p2/partition", "2"),
            ("p2/uevent", "MAJOR=8\nPARTUUID=1234-02\nPARTN=2"),
        ]);
        assert_eq!(describe(&root.path().join("p1")).unwrap(), "partition 1 at sector 2048 of disk eui.01");
        assert_eq!(describe(&root.path().join("p2")).unwrap(), "partition 1234-02");
    }

    #[test]
    fn a_file_keeps_its_identity_when_it_is_renamed_and_rewritten_and_shares_it_with_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b, c) = (directory.path().join("a"), directory.path().join("b"), directory.path().join("c"));
        let options = Options::default();
        let first = identity(&FileDisk::create(&a, 8192, Allocation::Sparse, options).unwrap()).unwrap();
        let other = identity(&FileDisk::create(&b, 8192, Allocation::Sparse, options).unwrap()).unwrap();
        assert_ne!(first.id, other.id);
        std::fs::rename(&a, &c).unwrap();
        std::fs::write(&c, [7; 12288]).unwrap();
        let again = identity(&FileDisk::open(&c, Options { read_only: true, ..options }).unwrap()).unwrap();
        assert_eq!(first, again);
        assert!(again.description.contains(&Uuid::from_bytes(again.id).to_string()), "{}", again.description);
    }

    #[test]
    fn a_read_only_file_without_the_attribute_is_known_by_its_inode_and_is_not_given_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, [1; 4096]).unwrap();
        let disk = FileDisk::open(&path, Options { read_only: true, page_cache: PageCache::Use }).unwrap();
        let first = identity(&disk).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        assert!(first.description.starts_with(&format!("file with inode {inode} ")), "{}", first.description);
        assert_eq!(first, identity(&disk).unwrap());
    }

    #[test]
    fn an_attribute_that_is_no_uuid_is_refused_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let disk = FileDisk::create(&path, 4096, Allocation::Sparse, Options::default()).unwrap();
        rustix::fs::fsetxattr(disk.file(), ATTRIBUTE, b"mine", XattrFlags::CREATE).unwrap();
        let error = identity(&disk).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("is \"mine\", expected a UUID"), "{error}");
    }
}
