//! Finds the process that has locked a disk: `/proc/locks`, proc_locks(5). flashwise locks its disks by flock(2).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Places;
use crate::disk::device::{behind_loop, sysfs};

/// A process that has locked a disk. Displayed as the reason why the disk is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    Ourselves,
    /// Another process, by its number; 0 if it is not visible from here.
    Process(u32),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Ourselves => f.write_str("it is in use by this server"),
            Holder::Process(0) => f.write_str("it is in use by another process"),
            Holder::Process(number) => write!(f, "it is in use by process {number}"),
        }
    }
}

/// The locks of all processes.
#[derive(Clone, Debug)]
pub struct Locks(String);

impl Locks {
    /// Reads the file below `places.proc`; a missing file counts as empty. Locks nothing.
    pub fn read(places: &Places) -> Locks {
        Locks(std::fs::read_to_string(places.proc.join("locks")).unwrap_or_default())
    }

    /// Returns the process that has locked a file, a block device, or the file behind a loop device. File systems that
    /// hide the number of their device (btrfs) are not supported.
    pub fn holder(&self, path: &Path) -> Option<Holder> {
        let metadata = std::fs::metadata(path).ok()?;
        let behind = behind_loop(&sysfs(metadata.rdev())).filter(|_| metadata.rdev() != 0);
        let behind = behind.and_then(|(behind, _)| std::fs::metadata(behind).ok());
        let files: Vec<String> = [Some(metadata), behind].into_iter().flatten().map(|file| number(&file)).collect();
        let is_it = |(_, file): &(u32, &str)| files.iter().any(|it| it == file);
        let (process, _) = self.0.lines().filter_map(locked).find(is_it)?;
        Some(if process == std::process::id() { Holder::Ourselves } else { Holder::Process(process) })
    }
}

/// Formats the file as the kernel does: the device in hexadecimal, the inode in decimal.
fn number(file: &std::fs::Metadata) -> String {
    format!("{:02x}:{:02x}:{}", rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()), file.ino())
}

/// Parses the process and the file of a line such as `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. Lines with
/// `->`, which only wait for a lock, are skipped.
fn locked(line: &str) -> Option<(u32, &str)> {
    let mut words = line.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let process = words.nth(2)?.parse().unwrap_or(0);
    Some((process, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::file::{Allocation, FileDisk, Options};

    #[test]
    fn a_line_names_a_process_and_a_file() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
        assert_eq!(locked(line), Some((4711, "fe:00:1234")));
        assert_eq!(locked("2: FLOCK  ADVISORY  READ -1 fe:00:7 0 EOF"), Some((0, "fe:00:7")));
        assert_eq!(locked("3: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(locked("1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(locked(""), None);
    }

    #[test]
    fn a_disk_that_is_open_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let disk = FileDisk::create(&path, 8192, Allocation::Sparse, Options::default()).unwrap();
        assert_eq!(Locks::read(&Places::default()).holder(&path), Some(Holder::Ourselves), "{}", disk.description());
        drop(disk);
        assert_eq!(Locks::read(&Places::default()).holder(&path), None);
    }
}
