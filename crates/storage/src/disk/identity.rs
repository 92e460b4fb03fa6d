//! The identity of a backend across restarts, so that a cache is never used with the wrong one.
//!
//! A regular file has a random UUID in the extended attribute `user.flashwise.backend`, set on first use. The identity
//! survives moving and renaming. A copy with attributes shares it, which [`attach`](crate::attach) detects by other
//! means. If the file system has no such attributes, there is no identity. Numbers of file systems and inodes would
//! change with each mount of a FUSE, NFS or temporary file system.
//!
//! A block device is identified by the first of these in sysfs (sysfs-block in the kernel's ABI documentation):
//!
//! - the UUID of a device mapper or RAID device
//! - the UUID of a partition
//! - the world wide name or serial number of a disk
//! - the identity of the whole disk and the position of a partition on it
//! - the identity of the file behind a loop device and the position in it
//! - the label of a network block device
//!
//! If all are missing, the administrator names the backend with the key `backend-id`.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use uuid::Uuid;

use super::file::FileDisk;

/// The extended attribute with a file's UUID, as text.
const ATTRIBUTE: &str = "user.flashwise.backend";

/// The namespace of identities that are derived from a description (RFC 9562, section 5.5).
const NAMESPACE: Uuid = Uuid::from_u128(0x1b43_5c26_0d64_4b0e_9e0f_5c1f_7c4b_a2d6);

/// The identity of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Equal for the same backend, different for all others.
    pub id: [u8; 16],
    /// The source of the identity, for users.
    pub description: String,
}

impl Identity {
    fn from_description(description: String) -> Self {
        Self { id: Uuid::new_v5(&NAMESPACE, description.as_bytes()).into_bytes(), description }
    }
}

/// Why a backend has no identity.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum IdentityError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "{path}: nothing identifies it: {what}. Name it with backend-id, and keep that name as long as it has a cache"
    )]
    Unknown { path: String, what: &'static str },
    #[error("{path}: it was never the backend of a cache, and is open read-only, so it gets no identity")]
    Never { path: String },
}

/// Returns the identity of an open disk, and sets one on a regular file without. `given` is a name or UUID from the
/// administrator, which takes precedence.
pub fn identity(disk: &FileDisk, given: Option<&str>) -> Result<Identity, IdentityError> {
    if let Some(given) = given {
        let description = format!("backend-id {given}");
        return Ok(match Uuid::try_parse(given) {
            Ok(uuid) => Identity { id: uuid.into_bytes(), description },
            Err(_) => Identity::from_description(description),
        });
    }
    let unknown = |what| IdentityError::Unknown { path: disk.path().display().to_string(), what };
    if !disk.is_device() {
        let no_attributes = "its file system keeps no extended attributes, or it cannot be given one";
        return match file_identity(disk.file(), disk.path(), disk.is_read_only())? {
            FileIdentity::Identity(identity) => Ok(identity),
            FileIdentity::Never => Err(IdentityError::Never { path: disk.path().display().to_string() }),
            FileIdentity::NoAttributes => Err(unknown(no_attributes)),
        };
    }
    let metadata = disk.file().metadata()?;
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let sysfs = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    device_identity(&sysfs).ok_or_else(|| unknown("the system knows neither a serial number nor a UUID of it"))
}

/// The identity of a file.
enum FileIdentity {
    Identity(Identity),
    /// The file has no identity, and is open read-only.
    Never,
    NoAttributes,
}

/// Returns the identity of a file. Sets one if there is none, unless the file is open read-only.
fn file_identity(file: &File, path: &Path, read_only: bool) -> io::Result<FileIdentity> {
    let failed = |error: Errno| {
        io::Error::new(error.kind(), format!("{}: extended attribute {ATTRIBUTE}: {error}", path.display()))
    };
    let mut value = [0; 64];
    loop {
        match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut value) {
            Ok(length) => return parse(path, &value[..length]).map(FileIdentity::Identity),
            Err(Errno::RANGE) => return parse(path, b"more than 64 bytes").map(FileIdentity::Identity),
            Err(Errno::NODATA) if !read_only => {}
            Err(Errno::NODATA) => return Ok(FileIdentity::Never),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => return Ok(FileIdentity::NoAttributes),
            Err(error) => return Err(failed(error)),
        }
        let uuid = Uuid::new_v4().to_string();
        match rustix::fs::fsetxattr(file, ATTRIBUTE, uuid.as_bytes(), XattrFlags::CREATE) {
            // It must survive any crash that the cache's header survives.
            Ok(()) => file.sync_all()?,
            Err(Errno::EXIST) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => return Ok(FileIdentity::NoAttributes),
            Err(error) => return Err(failed(error)),
        }
    }
}

fn parse(path: &Path, value: &[u8]) -> io::Result<Identity> {
    match Uuid::try_parse_ascii(value) {
        Ok(uuid) => Ok(Identity { id: uuid.into_bytes(), description: format!("file with {ATTRIBUTE} {uuid}") }),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: extended attribute {ATTRIBUTE} is {:?}, expected a UUID; remove it if no cache belongs to this \
                 file",
                path.display(),
                String::from_utf8_lossy(value)
            ),
        )),
    }
}

/// Returns the identity of the block device at `path`. Returns `None` for a file, or if the system knows no identity.
pub(crate) fn device_id(path: &Path) -> Option<[u8; 16]> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    Some(device_identity(&super::device::sysfs(metadata.rdev()))?.id)
}

/// Returns the identity of a device from its directory in sysfs.
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
    if let Some(path) = attribute("loop/backing_file") {
        let offset = attribute("loop/offset").unwrap_or_else(|| "0".to_owned());
        let file = File::open(&path).ok()?;
        let FileIdentity::Identity(behind) = file_identity(&file, Path::new(&path), false).ok()? else { return None };
        return Some(format!("loop device at {offset} of {}", behind.description));
    }
    attribute("backend").map(|backend| format!("network block device {backend}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::device::tests::sysfs;
    use crate::disk::file::{Allocation, Options, PageCache};

    #[test]
    fn a_device_is_known_by_the_strongest_name_that_sysfs_has() {
        let described = |attributes: &[(&str, &str)]| describe(sysfs(attributes).path());
        assert_eq!(described(&[("wwid", "eui.01"), ("device/serial", "S1")]).unwrap(), "disk eui.01");
        assert_eq!(described(&[("dm/uuid", "LVM-a"), ("serial", "S1")]).unwrap(), "device mapper LVM-a");
        assert_eq!(described(&[("dm/uuid", ""), ("serial", "S1")]).unwrap(), "disk with serial number S1");
        let behind = tempfile::NamedTempFile::with_prefix("a b").unwrap();
        let path = behind.path().to_str().unwrap();
        let uuid = match file_identity(behind.as_file(), behind.path(), false).unwrap() {
            FileIdentity::Identity(identity) => identity.description,
            FileIdentity::Never | FileIdentity::NoAttributes => panic!("a temporary file has attributes"),
        };
        assert_eq!(
            described(&[("loop/backing_file", path), ("loop/offset", "512")]).unwrap(),
            format!("loop device at 512 of {uuid}")
        );
        assert_eq!(described(&[("loop/backing_file", "/gone (deleted)")]), None);
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
        let first = identity(&FileDisk::create(&a, 8192, Allocation::Sparse, options).unwrap(), None).unwrap();
        let other = identity(&FileDisk::create(&b, 8192, Allocation::Sparse, options).unwrap(), None).unwrap();
        assert_ne!(first.id, other.id);
        std::fs::rename(&a, &c).unwrap();
        std::fs::write(&c, [7; 12288]).unwrap();
        let again = identity(&FileDisk::open(&c, Options { read_only: true, ..options }).unwrap(), None).unwrap();
        assert_eq!(first, again);
        assert!(again.description.contains(&Uuid::from_bytes(again.id).to_string()), "{}", again.description);
    }

    #[test]
    fn a_file_that_can_be_given_no_identity_needs_a_name_from_its_operator() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, [1; 4096]).unwrap();
        let disk = FileDisk::open(&path, Options { read_only: true, page_cache: PageCache::Use }).unwrap();
        let error = identity(&disk, None).unwrap_err().to_string();
        assert!(error.contains("it was never the backend of a cache"), "{error}");
        let named = identity(&disk, Some("rack 7")).unwrap();
        assert_eq!(named, identity(&disk, Some("rack 7")).unwrap());
        assert_ne!(named.id, identity(&disk, Some("rack 8")).unwrap().id);
        let uuid = Uuid::new_v4();
        assert_eq!(identity(&disk, Some(&uuid.to_string())).unwrap().id, uuid.into_bytes());
    }

    #[test]
    fn an_attribute_that_is_no_uuid_is_refused_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let disk = FileDisk::create(&path, 4096, Allocation::Sparse, Options::default()).unwrap();
        rustix::fs::fsetxattr(disk.file(), ATTRIBUTE, b"mine", XattrFlags::CREATE).unwrap();
        let error = identity(&disk, None).unwrap_err();
        assert!(error.to_string().contains("is \"mine\", expected a UUID"), "{error}");
    }
}
