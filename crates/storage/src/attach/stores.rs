//! The storage of the backend's record: an extended attribute of a file, if supported, otherwise a file in the state
//! directory. A device has no spare room outside the volume, and a file beside it would be in `/dev`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use uuid::Uuid;

use super::{BackendSide, Record, Stamp, Writes};
use crate::disk::Disk;
use crate::disk::file::FileDisk;
use crate::replace::replace_file;

/// The extended attribute with the record.
const ATTRIBUTE: &str = "user.flashwise.cache";

/// Maximum length of a record.
const RECORD_BYTES_MAX: usize = 4096;

/// Returns the default state directory: the one of the service manager, if any.
pub fn default_state_directory() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
    // The first of several, which colons separate.
    let first = given.to_string_lossy().split(':').next().unwrap_or_default().to_owned();
    if first.is_empty() { PathBuf::from("/var/lib/flashwise") } else { PathBuf::from(first) }
}

/// Returns the side of the backend with this `id`.
pub fn side_of(backend: Arc<FileDisk>, id: [u8; 16], state_directory: &Path) -> io::Result<Box<dyn BackendSide>> {
    if !backend.is_device() {
        match read_attribute(&backend) {
            Ok(_) => return Ok(Box::new(Attribute { backend })),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(named(&backend, error.into())),
        }
    }
    let path = state_directory.join(format!("{}.json", Uuid::from_bytes(id)));
    Ok(Box::new(StateFile { backend, path }))
}

fn named(backend: &FileDisk, error: io::Error) -> io::Error {
    let what = format!("{}: extended attribute {ATTRIBUTE}: {error}", backend.path().display());
    io::Error::new(error.kind(), what)
}

fn read_attribute(backend: &FileDisk) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; RECORD_BYTES_MAX];
    match rustix::fs::fgetxattr(backend.file(), ATTRIBUTE, &mut value) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A record in an extended attribute.
struct Attribute {
    backend: Arc<FileDisk>,
}

impl BackendSide for Attribute {
    fn read(&self) -> io::Result<Option<Record>> {
        let value = read_attribute(&self.backend).map_err(|error| named(&self.backend, error.into()))?;
        value.map(|json| Record::decode(&json).map_err(|error| named(&self.backend, error))).transpose()
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        rustix::fs::fsetxattr(self.backend.file(), ATTRIBUTE, &record.encode(), XattrFlags::empty())
            .map_err(|error| named(&self.backend, error.into()))?;
        self.backend.file().sync_all()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        stamp(&self.backend)
    }

    fn inode(&self) -> Option<u64> {
        Some(self.backend.file().metadata().ok()?.ino())
    }
}

/// A record in a state file.
struct StateFile {
    backend: Arc<FileDisk>,
    path: PathBuf,
}

impl StateFile {
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

impl BackendSide for StateFile {
    fn read(&self) -> io::Result<Option<Record>> {
        match std::fs::read(&self.path) {
            Ok(json) => Record::decode(&json).map(Some).map_err(|error| self.named(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.named(&error)),
        }
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        replace_file(&self.path, &record.encode()).map_err(|error| {
            let what = format!("{}: {error}; give a state-directory that can be written", self.path.display());
            io::Error::new(error.kind(), what)
        })
    }

    fn stamp(&self) -> io::Result<Stamp> {
        stamp(&self.backend)
    }

    fn inode(&self) -> Option<u64> {
        None
    }
}

fn stamp(backend: &FileDisk) -> io::Result<Stamp> {
    let metadata = backend.file().metadata()?;
    if backend.is_device() {
        return Ok(Stamp { size: backend.size(), modified_ns: None, writes: writes(metadata.rdev()) });
    }
    let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    Ok(Stamp { size: metadata.len(), modified_ns: Some(modified_ns), writes: None })
}

/// Returns the number of writes and discards of a device, from sysfs (block/stat in the kernel's documentation).
fn writes(device: u64) -> Option<Writes> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let count = fields.get(4)? + fields.get(11).unwrap_or(&0);
    Some(Writes { boot, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::{Allocation, Options};

    fn check(side: &dyn BackendSide) {
        assert_eq!(side.read().unwrap(), None);
        for attach in [1, 2] {
            let record = Record::new([3; 16], attach, attach == 2, side.inode());
            side.write(&record).unwrap();
            assert_eq!(side.read().unwrap(), Some(record));
        }
    }

    #[test]
    fn a_record_is_kept_with_the_file_or_in_the_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend");
        let backend = Arc::new(FileDisk::create(&path, 8192, Allocation::Sparse, Options::default()).unwrap());
        let attribute = Attribute { backend: backend.clone() };
        check(&attribute);
        assert!(attribute.inode().is_some());
        let state = folder.path().join("state/flashwise");
        let file = StateFile { backend: backend.clone(), path: state.join("id.json") };
        check(&file);
        assert_eq!(file.inode(), None);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "nothing else is left behind");
        std::fs::write(state.join("id.json"), "{}").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("id.json: found \"{}\", expected JSON"), "{error}");
    }

    #[test]
    fn a_written_file_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend");
        let backend = FileDisk::create(&path, 8192, Allocation::Sparse, Options::default()).unwrap();
        let before = stamp(&backend).unwrap();
        assert_eq!(stamp(&backend).unwrap(), before);
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(stamp(&backend).unwrap().changes(&before).is_some());
    }
}
