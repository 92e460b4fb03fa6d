//! Every request of a known workload on a loop device is captured, in order. For root, with tracepoints of the kernel.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use crate::common::{fail, parts, succeed};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

const DEVICE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 4096;

/// Mounts tracefs if there is none.
const TRACEFS: &str = "[ -d /sys/kernel/tracing/instances ] || mount -t tracefs tracefs /sys/kernel/tracing";
/// The instance of a process whose number is beyond the last.
const LEFT: &str = "/sys/kernel/tracing/instances/flashwise-4194305";

/// A file as a block device. All of it is in the page cache while it is open here. So other programs that look for
/// disks, such as a server, make no request to it.
struct Loop {
    path: String,
    _open: File,
}

impl Loop {
    fn new(folder: &TempDir) -> Loop {
        let path = folder.path().join("disk.img");
        File::create(&path).unwrap().set_len(DEVICE_BYTES).unwrap();
        let (device, err, code) =
            parts(Command::new("losetup").args(["--find", "--show"]).arg(&path).output().unwrap());
        assert_eq!(code, 0, "losetup: {err}");
        let mut open = File::open(device.trim()).unwrap();
        assert_eq!(std::io::copy(&mut open, &mut std::io::sink()).unwrap(), DEVICE_BYTES);
        Loop { path: device.trim().to_owned(), _open: open }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).output();
    }
}

/// Memory that begins where a page does, as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; 4 * BLOCK_BYTES as usize]);

#[test]
fn every_request_to_a_device_is_found_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let device = Loop::new(&folder);
    // A tracefs is mounted in a private namespace if there is none. The instance left by a killed capture is removed;
    // its process number cannot exist.
    let script = format!("{TRACEFS}; mkdir -p {LEFT}; exec \"$0\" \"$@\"");
    let mut capture = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_flashwise"), "capture", &device.path])
        .args(["--out", "capture.csv.zst", "--segment-size", "1MiB"])
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(capture.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, format!("flashwise: requests to {} are recorded to ./capture.NUMBER.csv.zst\n", device.path));

    // Past the page cache each call is a request, and the device takes one after the other. Others read only the first
    // and the last bytes, which stay in the page cache.
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let disk = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&device.path).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut data = Box::new(Aligned([0x5a; 4 * BLOCK_BYTES as usize]));
    let mut expected = Vec::new();
    for number in 0..2000 {
        let length = random.random_range(1..=4) * BLOCK_BYTES;
        let offset = random.random_range(1024..DEVICE_BYTES / BLOCK_BYTES - 1024) * BLOCK_BYTES;
        let bytes = &mut data.0[..length as usize];
        let operation = if random.random_bool(0.5) {
            disk.read_exact_at(bytes, offset).unwrap();
            "read"
        } else {
            disk.write_all_at(bytes, offset).unwrap();
            "write"
        };
        expected.push(format!("{operation},{offset},{length},"));
        if number % 100 == 99 {
            disk.sync_data().unwrap();
            expected.push("flush,0,0,".to_owned());
        }
    }
    drop(disk);

    let process = rustix::process::Pid::from_child(&capture);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert!(capture.wait().unwrap().success());
    line.clear();
    told.read_line(&mut line).unwrap();
    let count = expected.len();
    assert!(
        line.starts_with(&format!("flashwise: {},{:03} requests recorded in ", count / 1000, count % 1000)),
        "{line}"
    );
    line.clear();
    assert_eq!(told.read_line(&mut line).unwrap(), 0, "{line}");

    let recorded = File::open(folder.path().join("capture.000001.csv.zst")).unwrap();
    let recorded = String::from_utf8(zstd::decode_all(recorded).unwrap()).unwrap();
    let mut lines = recorded.lines();
    assert_eq!(lines.next(), Some("time_us,volume,op,offset,length,flags"));
    // The program that opens a device may make the kernel look for partitions on it: those reads lie outside of the
    // workload.
    let what: Vec<&str> = lines.map(|line| line.splitn(3, ',').nth(2).unwrap()).collect();
    assert_eq!(what, expected);
    // The instance is gone, and simulate reads what was recorded.
    let left = format!("{TRACEFS}; ls /sys/kernel/tracing/instances");
    let left = Command::new("unshare").args(["--mount", "sh", "-c", &left]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert!(!left.contains(&format!("flashwise-{}", capture.id())) && !left.contains("flashwise-4194305"), "{left}");
    let rows =
        succeed(folder.path(), &["simulate", "capture.000001.csv.zst", "--policy", "lru", "--size", "10", "--csv"]);
    assert_eq!(rows.lines().count(), 2);
}

#[test]
fn a_capture_that_sees_nothing_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let device = Loop::new(&folder);
    let script = format!("{TRACEFS}; exec \"$0\" \"$@\"");
    let capture =
        ["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_flashwise"), "capture", &device.path, "--time", "1s"];
    let capture = Command::new("unshare").args(capture).current_dir(folder.path()).output().unwrap();
    let (_, err, code) = parts(capture);
    assert_eq!(code, 0, "{err}");
    let hint = "was seen: it was idle, or the page cache answered every read\n";
    assert!(err.ends_with(&format!("flashwise: no request to {} {hint}", device.path)), "{err}");
}

#[test]
fn other_files_and_recordings_of_themselves_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let err = fail(folder.path(), &["capture", "/dev/null"], 2);
    assert_eq!(err, "flashwise: /dev/null: found no block device, expected one such as /dev/sdb\n");
    let err = fail(folder.path(), &["capture", "/dev/nowhere"], 2);
    let expected =
        "flashwise: /dev/nowhere: No such file or directory (os error 2); expected a block device such as /dev/sdb\n";
    assert_eq!(err, expected);
    let device = Loop::new(&folder);
    let err = fail(folder.path(), &["capture", &device.path, "--out", "nowhere/capture.csv"], 2);
    assert!(err.starts_with("flashwise: cannot record to nowhere/capture.csv: "), "{err}");
    let err = fail(folder.path(), &["capture", &device.path, "--size-max", "1KiB"], 2);
    assert_eq!(err, "flashwise: --size-max: found 1KiB, expected at least 1MiB\n");
    for (options, expected) in [
        (["--out", "-"], "found '-', standard output, expected a file whose name ends in .csv.zst or .csv"),
        (["--out", "sdb.parquet"], "found 'sdb.parquet', expected a file whose name ends in .csv.zst or .csv"),
        (["--time", "0"], "found '0', expected 1us or more"),
    ] {
        let err = fail(folder.path(), &[&["capture", &device.path], &options[..]].concat(), 2);
        assert!(err.contains(expected), "{err}");
    }
    // A file system on the device, for the recording.
    let mount = folder.path().join("mounted");
    std::fs::create_dir(&mount).unwrap();
    let (_, err, code) = parts(Command::new("mkfs.ext4").args(["-q", &device.path]).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let (_, err, code) = parts(Command::new("mount").arg(&device.path).arg(&mount).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let err = fail(folder.path(), &["capture", &device.path, "--out", "mounted/capture.csv"], 2);
    let (_, told, code) = parts(Command::new("umount").arg(&mount).output().unwrap());
    assert_eq!(code, 0, "{told}");
    assert!(err.contains("itself, expected one elsewhere: the recording would record itself"), "{err}");
}
