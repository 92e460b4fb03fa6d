//! Mounted disks and swap devices: proc_pid_mountinfo(5), and proc_swaps(5) for `/proc/swaps`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mounted file systems and the swap devices.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    mounted: Vec<Mount>,
    swaps: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct Mount {
    /// The device number, such as `8:1`. File systems of several devices have a number of their own.
    number: String,
    /// The source as it was given to mount.
    source: PathBuf,
    point: String,
}

impl Mounts {
    /// Reads both files below `proc`. A missing file counts as empty.
    pub fn read(proc: &Path) -> Mounts {
        let text = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
        let mounted = text("self/mountinfo").lines().filter_map(mount).collect();
        let first = |line: &str| Some(PathBuf::from(unescaped(line.split_whitespace().next()?)));
        Mounts { mounted, swaps: text("swaps").lines().skip(1).filter_map(first).collect() }
    }

    /// Returns the uses of a device or file without duplicates: sorted mount points, and `[SWAP]`.
    pub fn of(&self, path: &Path, number: Option<&str>) -> Vec<String> {
        let is_it = |other: &Path| same(other, path);
        let is_mounted = |mount: &&Mount| number == Some(mount.number.as_str()) || is_it(&mount.source);
        let mut points: Vec<_> = self.mounted.iter().filter(is_mounted).map(|mount| mount.point.clone()).collect();
        points.sort();
        points.dedup();
        if self.swaps.iter().any(|swap| is_it(swap)) {
            points.push("[SWAP]".to_owned());
        }
        points
    }
}

/// True if two paths are the same file or device.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    if !one.is_absolute() {
        return false;
    }
    if one == other {
        return true;
    }
    let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino()) || one.rdev() != 0 && one.rdev() == other.rdev()
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let (number, point) = (before.nth(2)?, before.nth(1)?);
    let source = after.split(' ').nth(1)?;
    Some(Mount { number: number.to_owned(), source: unescaped(source).into(), point: unescaped(point) })
}

/// Decodes spaces and other characters that are escaped as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("self")).unwrap();
        let lines = "36 35 8:1 / /mnt/with\\040space rw,noatime master:1 - ext4 /dev/nothing rw\n\
                     37 35 0:44 /sub /data rw - btrfs /dev/many rw\n\
                     38 35 8:1 / /again rw shared:2 - ext4 /dev/nothing rw\n\
                     broken line\n";
        std::fs::write(folder.path().join("self/mountinfo"), lines).unwrap();
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/swap\\040one partition 1 0 -2\n";
        std::fs::write(folder.path().join("swaps"), swaps).unwrap();
        let mounts = Mounts::read(folder.path());
        assert_eq!(mounts.of(Path::new("/dev/x"), Some("8:1")), ["/again", "/mnt/with space"]);
        assert_eq!(mounts.of(Path::new("/dev/many"), Some("8:2")), ["/data"]);
        assert_eq!(mounts.of(Path::new("/dev/swap one"), None), ["[SWAP]"]);
        assert!(mounts.of(Path::new("/dev/y"), Some("8:3")).is_empty());
        assert!(Mounts::read(Path::new("/nowhere")).of(Path::new("/dev/many"), None).is_empty());
    }
}
