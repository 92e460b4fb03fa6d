//! Block devices as disks, over loop devices; needs root and losetup(8).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::identity::identity;
use flashwise_storage::disk::{ALIGNMENT, Buffer, Disk, Method, Operation, Transfer, transfers};
use tempfile::TempDir;

/// A loop device over a file of its own.
struct Loop {
    device: PathBuf,
    file: PathBuf,
    _directory: TempDir,
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Loop {
    fn new(size: usize, sector: u32) -> Self {
        Loop::at(size, sector, 0)
    }

    /// A device that begins at byte `offset` of its file.
    fn at(size: usize, sector: u32, offset: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, vec![0xaa; size]).unwrap();
        let (sector, offset) = (sector.to_string(), offset.to_string());
        let arguments = ["--find", "--show", "--sector-size", &sector, "--offset", &offset, file.to_str().unwrap()];
        let device = run("losetup", &arguments);
        Self { device: device.into(), file, _directory: directory }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.device.to_str().unwrap()]);
    }
}

fn open(device: &Path) -> std::io::Result<FileDisk> {
    FileDisk::open(device, Options::default())
}

#[test]
fn a_device_has_its_size_and_is_opened_past_the_page_cache_by_one_user() {
    let device = Loop::new((1 << 20) + 512, 512);
    let disk = open(&device.device).unwrap();
    assert_eq!((disk.size(), disk.is_device(), disk.is_direct()), ((1 << 20) + 512, true, true));
    for read_only in [false, true] {
        let error = FileDisk::open(&device.device, Options { read_only, ..Options::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        assert!(error.to_string().starts_with(&format!("{}: in use", device.device.display())), "{error}");
    }
    drop(disk);
    open(&device.device).unwrap();
}

#[test]
fn a_mounted_device_is_in_use() {
    let device = Loop::new(16 << 20, 512);
    run("mkfs.ext4", &["-q", device.device.to_str().unwrap()]);
    let mount = tempfile::tempdir().unwrap();
    run("mount", &[device.device.to_str().unwrap(), mount.path().to_str().unwrap()]);
    let error = open(&device.device).unwrap_err();
    run("umount", &[mount.path().to_str().unwrap()]);
    assert!(error.to_string().contains("in use by another process, or mounted"), "{error}");
    open(&device.device).unwrap();
}

#[test]
fn transfers_on_a_device_read_write_zero_and_discard_up_to_its_last_sector() {
    for (method, sector) in [(Method::Ring, 512), (Method::Pool, 512), (Method::Ring, 4096), (Method::Pool, 4096)] {
        let size = (1 << 20) + sector as usize % ALIGNMENT;
        let device = Loop::new(size, sector);
        let units = size.div_ceil(ALIGNMENT);
        let (sender, ends) = channel();
        let completed = Box::new(move |batch: &mut Vec<_>| batch.drain(..).for_each(|end| sender.send(end).unwrap()));
        let transfers = transfers(vec![Arc::new(open(&device.device).unwrap())], method, completed).unwrap();
        let mut memory = vec![0xbb; (units + 1) * ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let buffer = |memory: &mut Vec<u8>, unit: usize, units: usize| Buffer {
            start: memory[start + unit * ALIGNMENT..].as_mut_ptr(),
            length: units * ALIGNMENT,
        };
        let perform = |operation, unit: usize, units: usize, buffers| {
            let (offset, length) = ((unit * ALIGNMENT) as u64, (units * ALIGNMENT) as u64);
            transfers.submit(&mut vec![Transfer { tag: 0, disk: 0, operation, offset, length, buffers, stream: 0 }]);
            ends.recv().unwrap().result.unwrap();
        };
        let second_half = vec![buffer(&mut memory, units / 2, units - units / 2)];
        perform(Operation::Write, units / 2, units - units / 2, second_half);
        perform(Operation::Zero { may_punch_holes: false }, 0, 8, Vec::new());
        perform(Operation::Zero { may_punch_holes: true }, 8, 8, Vec::new());
        perform(Operation::Discard, 16, 8, Vec::new());
        perform(Operation::Zero { may_punch_holes: true }, units - 1, 1, Vec::new());
        perform(Operation::Sync, 0, 0, Vec::new());
        let all = vec![buffer(&mut memory, 0, units)];
        perform(Operation::Read, 0, units, all);
        let mut expected = vec![0xaa; units * ALIGNMENT];
        expected[units / 2 * ALIGNMENT..].fill(0xbb);
        expected[..24 * ALIGNMENT].fill(0);
        expected[(units - 1) * ALIGNMENT..].fill(0);
        assert!(memory[start..][..units * ALIGNMENT] == expected);
        drop(transfers);
        assert!(std::fs::read(&device.file).unwrap() == expected[..size]);
        let holes = 24 * ALIGNMENT as u64 / 512;
        let blocks = std::fs::metadata(&device.file).unwrap().blocks();
        assert!(
            blocks <= (units * ALIGNMENT) as u64 / 512 - holes / 3 * 2,
            "punched and discarded space is given back"
        );
    }
}

#[test]
fn a_loop_device_is_known_by_the_file_behind_it() {
    let device = Loop::new(1 << 20, 512);
    let other = Loop::new(1 << 20, 512);
    let first = identity(&open(&device.device).unwrap(), None).unwrap();
    assert!(
        first.description.starts_with("loop device at 0 of file with user.flashwise.backend "),
        "{}",
        first.description
    );
    assert_eq!(first, identity(&open(&device.device).unwrap(), None).unwrap());
    assert_ne!(first.id, identity(&open(&other.device).unwrap(), None).unwrap().id);
}

#[test]
fn a_device_that_begins_within_a_block_gets_a_remark() {
    let device = Loop::at(1 << 20, 512, 512);
    let notes = open(&device.device).unwrap().notes().to_owned();
    let expected =
        format!("{}: begins at byte 512 of its file, which is no multiple of 4096: ", device.device.display());
    assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{notes:?}");
    assert_eq!(open(&Loop::at(1 << 20, 512, 8192).device).unwrap().notes(), [] as [String; 0]);
}

#[test]
fn a_partition_that_begins_within_a_block_gets_a_remark() {
    let device = Loop::new(4 << 20, 512);
    let disk = device.device.to_str().unwrap();
    for (number, start, misaligned) in [("1", "63", true), ("2", "4096", false)] {
        run("addpart", &[disk, number, start, "2048"]);
        let partition = PathBuf::from(format!("{disk}p{number}"));
        let notes = open(&partition).map(|disk| disk.notes().to_owned());
        run("delpart", &[disk, number]);
        let notes = notes.unwrap();
        let remark =
            format!("{}: begins at sector 63 of its disk, byte 32256, which is no multiple", partition.display());
        assert_eq!(notes.iter().any(|note| note.starts_with(&remark)), misaligned, "{notes:?}");
        assert_eq!(notes.is_empty(), !misaligned, "{notes:?}");
    }
}
