//! Properties of a block device to check before use: its zones, and its alignment.
//!
//! Source: sysfs-block in the kernel's ABI documentation. It counts in sectors of 512 bytes for every device.

use std::path::{Path, PathBuf};

use super::ALIGNMENT;

const SECTOR: u64 = 512;

/// Returns the directory of a device in sysfs.
pub fn sysfs(rdev: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev)))
}

fn attribute(folder: &Path, name: &str) -> Option<String> {
    let value = std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}

/// Returns the disk of a partition, or the device itself.
pub fn whole_disk(sysfs: &Path) -> PathBuf {
    let parent = || Some(sysfs.canonicalize().ok()?.parent()?.to_owned());
    let is_partition = sysfs.join("partition").exists();
    is_partition.then(parent).flatten().unwrap_or_else(|| sysfs.to_owned())
}

/// Returns the file behind a loop device, or behind the loop device of a partition. The second value is true if the
/// device covers the whole file.
pub fn behind_loop(sysfs: &Path) -> Option<(PathBuf, bool)> {
    let whole = whole_disk(sysfs);
    let file = attribute(&whole, "loop/backing_file")?;
    let is_zero = |name| attribute(&whole, name).is_none_or(|text| text == "0");
    let is_all = is_zero("loop/offset") && is_zero("loop/sizelimit") && whole == sysfs;
    Some((file.into(), is_all))
}

/// True if a device must be written in order.
pub fn is_zoned(sysfs: &Path) -> bool {
    attribute(&whole_disk(sysfs), "queue/zoned").is_some_and(|zoned| zoned == "host-managed")
}

/// Reads a number from the queue directory of the device's disk.
pub(super) fn queue_number(sysfs: &Path, name: &str) -> Option<u64> {
    attribute(&whole_disk(sysfs), &format!("queue/{name}"))?.parse().ok()
}

/// Returns the number of write streams of a device (Linux 6.16 and later). A partition has none.
pub(super) fn write_streams(sysfs: &Path) -> u8 {
    if sysfs.join("partition").exists() {
        return 0;
    }
    queue_number(sysfs, "max_write_streams").map_or(0, |streams| streams.min(u8::MAX.into()) as u8)
}

/// Fails if a device must be written in order, which a backend does not support. The error continues a sentence that
/// names the device.
pub fn check_zones(sysfs: &Path) -> Result<(), String> {
    if is_zoned(sysfs) {
        return Err("which has zones that must be written in order (queue/zoned in sysfs is 'host-managed'); \
             expected a device that is written anywhere ('none' or 'host-aware')"
            .to_owned());
    }
    Ok(())
}

/// Returns a note if a device is not aligned to the blocks of 4,096 bytes of its disk.
pub fn alignment_note(sysfs: &Path) -> Option<String> {
    let number = |folder: &Path, name| attribute(folder, name)?.parse::<i64>().ok();
    let disk = whole_disk(sysfs);
    let offset = number(sysfs, "alignment_offset").unwrap_or(0);
    let begins = match (number(sysfs, "start"), number(sysfs, "loop/offset")) {
        // If the disk's own blocks are offset from its sectors, `alignment_offset` is used.
        (Some(start), _) if disk != sysfs && number(&disk, "alignment_offset").unwrap_or(0) == 0 => {
            let bytes = start as u64 * SECTOR;
            (!bytes.is_multiple_of(ALIGNMENT as u64))
                .then(|| format!("begins at sector {start} of its disk, byte {bytes}"))
        }
        (_, Some(bytes)) if !(bytes as u64).is_multiple_of(ALIGNMENT as u64) => {
            Some(format!("begins at byte {bytes} of its file"))
        }
        _ => None,
    };
    let begins = begins.or_else(|| {
        (offset != 0).then(|| format!("begins {offset} bytes off its disk's blocks (alignment_offset in sysfs)"))
    })?;
    Some(format!(
        "{begins}, which is no multiple of {ALIGNMENT}: each block spans two blocks of the disk, so writes are slow \
         and may tear. \
         A partition that begins at 1 MiB is aligned"
    ))
}

/// True if `path` can only be meant as a device, so that no file must be created there. This is the case below `/dev`,
/// except in `/dev/shm`.
pub fn names_a_device(path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The nearest existing directory, because that of a missing device may be missing, too.
    let folder = absolute.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok()).unwrap_or_default();
    folder.starts_with("/dev") && !folder.starts_with("/dev/shm")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a directory with the files of a device in sysfs.
    pub fn sysfs(attributes: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, value) in attributes {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        directory
    }

    #[test]
    fn a_loop_device_is_the_file_behind_it_or_a_part_of_that() {
        let whole = sysfs(&[("loop/backing_file", "/a b"), ("loop/offset", "0"), ("loop/sizelimit", "0")]);
        assert_eq!(behind_loop(whole.path()), Some(("/a b".into(), true)));
        let part = sysfs(&[("loop/backing_file", "/a"), ("loop/offset", "4096"), ("p1/partition", "1")]);
        assert_eq!(behind_loop(part.path()), Some(("/a".into(), false)));
        assert_eq!(behind_loop(&part.path().join("p1")), Some(("/a".into(), false)));
        assert_eq!(behind_loop(sysfs(&[("size", "8")]).path()), None);
    }

    #[test]
    fn a_device_whose_host_must_manage_its_zones_is_refused_and_so_are_its_partitions() {
        let zoned = |model| sysfs(&[("queue/zoned", model), ("p1/partition", "1"), ("p1/start", "2048")]);
        for model in ["none", "host-aware"] {
            let root = zoned(model);
            assert_eq!(check_zones(root.path()), Ok(()));
            assert_eq!(check_zones(&root.path().join("p1")), Ok(()));
        }
        assert_eq!(check_zones(sysfs(&[("size", "8")]).path()), Ok(()), "a kernel that knows no zones");
        let root = zoned("host-managed");
        for path in [root.path().to_owned(), root.path().join("p1")] {
            let problem = check_zones(&path).unwrap_err();
            assert!(problem.contains("'host-managed'") && problem.contains("'none' or 'host-aware'"), "{problem}");
        }
    }

    #[test]
    fn write_streams_are_those_of_a_whole_disk() {
        let disk = sysfs(&[("queue/max_write_streams", "8"), ("p1/partition", "1")]);
        assert_eq!((write_streams(disk.path()), write_streams(&disk.path().join("p1"))), (8, 0));
        assert_eq!(write_streams(sysfs(&[("queue/max_write_streams", "999")]).path()), 255);
        assert_eq!(write_streams(sysfs(&[("size", "8")]).path()), 0, "a kernel that knows none");
    }

    #[test]
    fn a_device_that_begins_within_a_block_gets_a_remark_with_the_numbers() {
        let disk = |shift: &str, start: &str, offset: &str| {
            let root = sysfs(&[
                ("alignment_offset", shift),
                ("p1/partition", "1"),
                ("p1/start", start),
                ("p1/alignment_offset", offset),
            ]);
            alignment_note(&root.path().join("p1"))
        };
        assert_eq!(disk("0", "2048", "0"), None);
        let note = disk("0", "63", "0").unwrap();
        assert!(
            note.starts_with("begins at sector 63 of its disk, byte 32256, which is no multiple of 4096"),
            "{note}"
        );
        let note = disk("0", "2048", "3584").unwrap();
        assert!(note.starts_with("begins 3584 bytes off its disk's blocks"), "{note}");
        // A disk whose blocks begin at sector 7, for partitions that begin at sector 63.
        assert_eq!(disk("3584", "63", "0"), None);
        let root = sysfs(&[("loop/offset", "512")]);
        assert!(alignment_note(root.path()).unwrap().starts_with("begins at byte 512 of its file"));
        assert_eq!(alignment_note(sysfs(&[("loop/offset", "8192"), ("alignment_offset", "0")]).path()), None);
    }

    #[test]
    fn a_path_below_dev_names_a_device_and_the_directory_for_shared_memory_does_not() {
        for device in ["/dev/sdz9", "/dev/disk/by-id/none", "/dev/../dev/sdz9", "/tmp/../dev/mapper/x"] {
            assert!(names_a_device(Path::new(device)), "{device}");
        }
        for file in ["/tmp/dev/x", "cache.img", "/dev/shm/cache.img", "/development/x"] {
            assert!(!names_a_device(Path::new(file)), "{file}");
        }
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("devices");
        std::os::unix::fs::symlink("/dev", &link).unwrap();
        assert!(names_a_device(&link.join("sdz9")));
    }
}
