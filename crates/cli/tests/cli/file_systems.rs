//! Real file systems on a served volume: made, filled, trimmed, checked, the server killed under them, and the backend
//! without its cache at the end. Needs root, for loop devices and mounts.

use std::path::Path;

use flashwise_testing::mounted::{Device, Mount, check, run, text};

use crate::serving::Setting;

/// Files of many sizes, overwritten in part, renamed and deleted, and a tree of sources.
fn work(directory: &Path, seed: u32) {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../core");
    run("cp", &["-r", sources, text(&directory.join(format!("core-{seed}")))]);
    for number in 0..400_u32 {
        let path = directory.join(format!("file-{number}"));
        let size = (number.wrapping_mul(2_654_435_761) ^ seed) % 100_000;
        let bytes: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(31) ^ number ^ seed) as u8).collect();
        std::fs::write(&path, bytes).unwrap();
        match number % 5 {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => std::fs::rename(&path, directory.join(format!("renamed-{number}"))).unwrap(),
            2 => std::fs::File::open(&path).unwrap().sync_all().unwrap(),
            _ => {}
        }
    }
}

fn sums(directory: &Path) -> String {
    run("sh", &["-c", &format!("cd {} && find . -type f | sort | xargs -d '\\n' sha256sum", text(directory))])
}

fn make(file_system: &str, device: &str) {
    match file_system {
        "ext4" => run("mkfs.ext4", &["-q", "-F", device]),
        "xfs" => run("mkfs.xfs", &["-q", "-f", device]),
        _ => run("mkfs.btrfs", &["-q", "-f", device]),
    };
}

fn lives_on_a_volume(file_system: &str, write_mode: &str) {
    lives_with(file_system, &format!("erase-unit = \"1MiB\"\nwrite-mode = \"{write_mode}\"\npolicy = \"larc\""));
}

fn lives_with(file_system: &str, keys: &str) {
    let keys = format!("flash-size = \"48MiB\"\nram = \"8MiB\"\n{keys}");
    let setting = Setting::new(640 << 20, &keys);
    let at = setting.path("mounted");
    let mut expected = String::new();
    {
        let server = setting.serve();
        let device = Device::new(setting.directory.path(), &setting.uri());
        make(file_system, &device.device);
        for round in 0..3 {
            let mount = Mount::new(&device.device, &at);
            if round > 0 {
                assert_eq!(sums(&at), expected, "{file_system}, round {round}");
            }
            work(&at, round);
            run("fstrim", &[text(&at)]);
            run("sync", &["-f", text(&at)]);
            expected = sums(&at);
            drop(mount);
            check(file_system, &device.device).unwrap();
        }
        drop(device);
        // All is flushed by the unmount: nothing of it is lost with the process.
        server.kill();
    }
    {
        let server = setting.serve();
        let device = Device::new(setting.directory.path(), &setting.uri());
        check(file_system, &device.device).unwrap();
        let mount = Mount::new(&device.device, &at);
        assert_eq!(sums(&at), expected, "{file_system}, after the server was killed");
        drop(mount);
        drop(device);
        server.end();
    }
    let config = setting.path("flashwise.toml");
    run(env!("CARGO_BIN_EXE_flashwise"), &["detach", "--config", text(&config)]);
    let device = run("losetup", &["--find", "--show", text(&setting.path("disk.img"))]).trim().to_owned();
    check(file_system, &device).unwrap();
    let mount = Mount::new(&device, &at);
    assert_eq!(sums(&at), expected, "{file_system}, on the backend alone");
    drop(mount);
    run("losetup", &["--detach", &device]);
}

#[test]
fn ext4_lives_on_a_volume() {
    lives_on_a_volume("ext4", "write-back");
}

#[test]
fn ext4_lives_on_buckets() {
    lives_with("ext4", "layout = \"wlfc\"\nerase-unit = \"512KiB\"\nrefresh = \"evict\"");
}

#[test]
fn xfs_lives_on_buckets() {
    lives_with("xfs", "layout = \"wlfc\"\nerase-unit = \"512KiB\"");
}

#[test]
fn xfs_lives_on_a_volume() {
    lives_on_a_volume("xfs", "write-back");
}

#[test]
fn btrfs_lives_on_a_volume() {
    lives_on_a_volume("btrfs", "write-through");
}

#[test]
fn ext4_lives_on_a_volume_that_writes_around_flash() {
    lives_on_a_volume("ext4", "write-around");
}
