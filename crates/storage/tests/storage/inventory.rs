//! The machine's own disks, over loop devices; needs root, losetup(8), mkfs.ext4(8) and mount(8).

use std::path::Path;
use std::process::Command;

use flashwise_core::cache::settings::Settings;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::inventory::{DiskInfo, Holder, Locks, Places, Role, examine, scan};
use flashwise_storage::pool::status::PoolDiskState;
use flashwise_storage::pool::{Pool, PoolConfig, prepare};
use flashwise_storage::volume::VolumeConfig;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Loop {
        Loop(run("losetup", &["--find", "--show", file.to_str().unwrap()]))
    }

    fn scanned(&self) -> DiskInfo {
        scan(&Places::default()).unwrap().into_iter().find(|disk| disk.path == self.0).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

#[test]
fn the_role_of_a_loop_device_follows_its_contents_and_users() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![0; 16 << 20]).unwrap();
    let device = Loop::new(&file);
    let disk = device.scanned();
    assert_eq!((disk.size_bytes, disk.role, disk.refused.as_deref()), (16 << 20, Role::Spare, None));
    assert_eq!(disk.backing_file.as_deref(), file.to_str());
    assert_eq!(examine(&Places::default(), Path::new(&device.0)).unwrap(), disk, "a disk that is named is the same");

    run("mkfs.ext4", &["-q", "-L", "home", &device.0]);
    let disk = device.scanned();
    assert_eq!((disk.role, disk.refused.as_deref()), (Role::Foreign, Some("it holds ext4")));
    assert_eq!(disk.signatures[0].label.as_deref(), Some("home"));
    // blkid(8) reads the same.
    let uuid = run("blkid", &["--probe", "--output", "value", "--match-tag", "UUID", &device.0]);
    assert_eq!(disk.signatures[0].uuid.as_deref(), Some(uuid.as_str()));

    let mount = tempfile::tempdir().unwrap();
    run("mount", &[&device.0, mount.path().to_str().unwrap()]);
    let disk = device.scanned();
    run("umount", &[mount.path().to_str().unwrap()]);
    assert_eq!((disk.role, disk.can_be_wiped), (Role::System, false));
    assert_eq!(disk.mounts, [mount.path().to_str().unwrap()]);
}

#[test]
fn the_formats_that_tools_make_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for (tool, arguments, kind) in [
        ("mkfs.ext2", &["-q", "-F"][..], "ext2"),
        ("mkfs.ext3", &["-q", "-F"], "ext3"),
        ("mkfs.ext4", &["-q", "-F"], "ext4"),
        ("mkfs.xfs", &["-q", "-f"], "xfs"),
        ("mkswap", &[], "swap"),
    ] {
        let file = folder.path().join(kind);
        std::fs::File::create(&file).unwrap().set_len(512 << 20).unwrap();
        run(tool, &[arguments, &[file.to_str().unwrap()]].concat());
        let disk = examine(&Places::default(), &file).unwrap();
        let kinds: Vec<_> = disk.signatures.iter().map(|signature| signature.kind.as_str()).collect();
        assert_eq!((kinds, disk.role), (vec![kind], Role::Foreign));
    }
}

/// A drive without a medium has size 0, like a drive that is gone but still known. A pool in degraded mode starts
/// without it.
#[test]
fn a_device_that_nothing_is_behind_is_a_missing_disk() {
    let folder = tempfile::tempdir().unwrap();
    let [there, gone, empty] = ["there", "gone", "empty"].map(|name| folder.path().join(name));
    std::fs::write(&there, vec![0; 8 << 20]).unwrap();
    std::fs::write(&gone, vec![0; 8 << 20]).unwrap();
    std::fs::write(&empty, []).unwrap();
    drop(prepare::create("tank", &[there.clone(), gone], &[]).unwrap());
    let device = Loop::new(&empty);
    let error = FileDisk::open(Path::new(&device.0), Options::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("has a size of 0: nothing is in the drive, or it is gone"), "{error}");
    let mut cache = VolumeConfig::of("tank", Path::new(""), Path::new(""));
    cache.state_directory = folder.path().to_owned();
    cache.cache = Settings::of(&[("ram", "4MiB")]).unwrap();
    let mut config = PoolConfig { disks: vec![there, device.0.clone().into()], degraded: false, cache };
    let refused = Pool::open(config.clone(), &|_, _| ()).err().unwrap().to_string();
    assert!(refused.contains("has a size of 0"), "{refused}");
    config.degraded = true;
    let (pool, opened) = Pool::open(config, &|_, _| ()).unwrap();
    assert_eq!(pool.status().disks[1].state, PoolDiskState::Missing);
    assert!(opened.notes.iter().any(|note| note.contains("has a size of 0")), "{:?}", opened.notes);
    pool.close().unwrap();
}

/// A loop device and the file behind it are one disk.
#[test]
fn users_of_a_loop_device_use_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![0; 16 << 20]).unwrap();
    let device = Loop::new(&file);
    // The file is what the device is made of, whether that is mounted or not.
    let disk = examine(&Places::default(), &file).unwrap();
    assert_eq!((disk.role, disk.can_be_wiped), (Role::System, false));
    let expected = format!("it is a part of {}", device.0.trim_start_matches("/dev/"));
    assert_eq!(disk.refused.as_deref(), Some(expected.as_str()));
    let refused = prepare::create("tank", &[file.clone(), device.0.clone().into()], &[]).err().unwrap().to_string();
    assert!(refused.contains(&expected), "{refused}");
    // A lock of one excludes other users from the other.
    let (of_file, of_device) = (file.as_path(), Path::new(&device.0));
    for (used, other) in [(of_file, of_device), (of_device, of_file)] {
        let open = FileDisk::open(used, Options::default()).unwrap();
        let error = FileDisk::open(other, Options::default()).unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        assert_eq!(Locks::read(&Places::default()).holder(other), Some(Holder::Ourselves));
        let refused = prepare::check(of_device, true).unwrap_err().to_string();
        assert_eq!(refused, format!("{}: it is in use by this server", device.0));
        drop(open);
        assert_eq!(Locks::read(&Places::default()).holder(other), None);
    }
    let again = Loop::new(&file);
    let open = FileDisk::open(of_device, Options::default()).unwrap();
    assert!(FileDisk::open(Path::new(&again.0), Options::default()).is_err(), "two loop devices on one file");
    drop(open);
}
