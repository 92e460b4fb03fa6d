//! Simulated machines: directory trees like those of sysfs, proc and `/dev`.

use std::os::unix::fs::symlink;

use super::*;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        for folder in ["sys/block", "dev", "proc/self"] {
            std::fs::create_dir_all(machine.path(folder)).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    /// Adds a disk of 4 MiB with these attributes and initial bytes.
    fn disk(&self, name: &str, attributes: &[(&str, &str)], start: &[u8]) {
        self.write(&format!("sys/block/{name}/size"), "8192\n");
        for (attribute, value) in attributes {
            self.write(&format!("sys/block/{name}/{attribute}"), format!("{value}\n"));
        }
        self.device(name, 4 << 20, start);
    }

    fn device(&self, name: &str, size: usize, start: &[u8]) {
        let mut bytes = vec![0; size];
        bytes[..start.len()].copy_from_slice(start);
        self.write(&format!("dev/{name}"), bytes);
    }

    fn places(&self) -> Places {
        Places { sys: self.path("sys"), dev: self.path("dev"), proc: self.path("proc") }
    }

    fn scan(&self) -> Vec<DiskInfo> {
        scan(&self.places()).unwrap()
    }
}

#[test]
fn a_disk_of_scsi_has_all_that_the_kernel_knows_of_it() {
    let machine = Machine::new();
    let attributes = [
        ("device/vendor", "ATA     "),
        ("device/model", "ST1000DM010-2EP1"),
        ("device/wwid", "naa.5000c500a1b2c3d4"),
        ("queue/rotational", "1"),
        ("queue/zoned", "none"),
        ("removable", "0"),
        ("ro", "0"),
        ("device/hwmon/hwmon1/temp1_input", "36000"),
    ];
    machine.disk("sda", &attributes, &[]);
    machine.write("sys/block/sda/device/vpd_pg80", b"\0\x80\0\x08Z9A0WXYZ");
    // The device in sysfs is a link whose target is named after the address.
    let target = machine.path("sys/devices/pci0000:00/ata1/0:0:1:0");
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    std::fs::rename(machine.path("sys/block/sda/device"), &target).unwrap();
    symlink(&target, machine.path("sys/block/sda/device")).unwrap();
    let disks = machine.scan();
    let [disk] = &disks[..] else { panic!("{disks:?}") };
    assert_eq!(disk.path, machine.path("dev/sda").display().to_string());
    assert_eq!((disk.size_bytes, disk.is_file, disk.read_only, disk.removable), (4 << 20, false, false, false));
    assert_eq!(disk.model.as_deref(), Some("ST1000DM010-2EP1"));
    assert_eq!(disk.serial.as_deref(), Some("Z9A0WXYZ"));
    assert_eq!(disk.wwn.as_deref(), Some("naa.5000c500a1b2c3d4"));
    assert_eq!(disk.bus_address.as_deref(), Some("0:0:1:0"));
    assert_eq!((disk.rotational, disk.zoned.as_str()), (Some(true), "none"));
    assert_eq!((disk.temperature_celsius, disk.wear_percent), (Some(36.0), None));
    assert_eq!((disk.role, &disk.refused, disk.can_be_wiped), (Role::Spare, &None, true));
}

#[test]
fn a_disk_of_nvme_is_at_an_address_of_pci() {
    let machine = Machine::new();
    let attributes =
        [("device/address", "0000:01:00.0"), ("device/model", "SSD 9"), ("device/serial", "S4"), ("wwid", "eui.01")];
    machine.disk("nvme0n1", &attributes, &[]);
    let disk = machine.scan().remove(0);
    let told = [&disk.bus_address, &disk.model, &disk.serial, &disk.wwn].map(|text| text.clone().unwrap());
    assert_eq!(told, ["0000:01:00.0", "SSD 9", "S4", "eui.01"]);
}

#[test]
fn disks_in_use_or_with_contents_are_refused_with_a_reason() {
    let machine = Machine::new();
    machine.disk("sda", &[("dev", "8:0"), ("sda1/partition", "1"), ("sda1/dev", "8:1"), ("sda1/size", "2048")], &[]);
    machine.device("sda1", 1 << 20, b"XFSB");
    machine.write("proc/self/mountinfo", "1 0 8:1 / /srv rw - xfs /dev/sda1 rw\n");
    machine.disk("sdb", &[("holders/md0/x", "")], &[]);
    machine.disk(
        "sdc",
        &[("sdc2/partition", "2"), ("sdc2/size", "8"), ("sdc1/partition", "1"), ("sdc1/size", "8")],
        &[],
    );
    machine.disk("sdd", &[], b"LUKS\xba\xbe");
    machine.disk("sde", &[], &[1]);
    machine.disk("sdf", &[("ro", "1")], &[]);
    machine.disk("sdg", &[("queue/zoned", "host-managed")], &[]);
    machine.disk("sdh", &[], b"flashwis");
    machine.disk("sdi", &[], &POOL_MAGIC);
    machine.disk("sdl", &[], b"FWJM");
    machine.disk("sdm", &[("ro", "1")], b"flashwis");
    machine.disk("sdj", &[], &[]);
    std::fs::remove_file(machine.path("dev/sdj")).unwrap();
    machine.write("sys/block/loop0/size", "0\n");
    let swap = machine.path("dev/sdk");
    machine.disk("sdk", &[], &[]);
    machine.write("proc/swaps", format!("Filename Type Size Used Priority\n{} partition 8 0 -2\n", swap.display()));
    let disks = machine.scan();
    let told: Vec<_> = disks
        .iter()
        .map(|disk| {
            let name = disk.path.rsplit('/').next().unwrap();
            (name, disk.role.name(), disk.refused.as_deref().unwrap_or("-"), disk.can_be_wiped)
        })
        .collect();
    let expected = [
        ("sda", "system", "it is mounted at /srv", false),
        ("sdb", "system", "it is a part of md0", false),
        ("sdc", "foreign", "it has 2 partitions", true),
        ("sdd", "foreign", "it holds luks", true),
        ("sde", "foreign", "it holds data of an unknown kind", true),
        ("sdf", "spare", "it is read-only", false),
        ("sdg", "spare", "it has zones that must be written in order", false),
        ("sdh", "cache", "it holds a cache", true),
        ("sdi", "data", "it belongs to a pool", true),
        ("sdj", "foreign", "it cannot be read: No such file or directory (os error 2)", false),
        ("sdk", "system", "the machine swaps to it", false),
        ("sdl", "cache", "it holds the journal of a cache", true),
        ("sdm", "cache", "it is read-only", false),
    ];
    assert_eq!(told, expected);
    assert_eq!(disks.last().unwrap().holds(), Some("it holds a cache"));
    let sda = &disks[0].partitions[0];
    assert_eq!((sda.size_bytes, sda.mounts[0].as_str(), sda.signatures[0].kind.as_str()), (1 << 20, "/srv", "xfs"));
    let numbers: Vec<_> = disks[2].partitions.iter().map(|part| part.path.chars().last().unwrap()).collect();
    assert_eq!(numbers, ['1', '2']);
}

#[test]
fn a_regular_file_counts_as_a_disk_when_it_is_named() {
    let machine = Machine::new();
    machine.device("disk.img", 1 << 20, &[]);
    let path = machine.path("dev/disk.img");
    let disk = examine(&machine.places(), &path).unwrap();
    assert_eq!((disk.is_file, disk.size_bytes, disk.role, disk.rotational), (true, 1 << 20, Role::Spare, None));
    assert_eq!(disk.refused, None);
    let error = examine(&machine.places(), &machine.path("dev")).unwrap_err().to_string();
    assert!(error.ends_with("is neither a regular file nor a block device"), "{error}");
    let error = examine(&machine.places(), &machine.path("none")).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
}

#[test]
fn names_are_in_the_order_of_their_numbers() {
    let machine = Machine::new();
    for name in ["sdaa", "sdb", "nvme10n1", "nvme2n1", "cciss!c0d0"] {
        machine.disk(name, &[], &[]);
    }
    let disks = machine.scan();
    let names: Vec<_> = disks.iter().map(|disk| disk.path.rsplit("dev/").next().unwrap()).collect();
    assert_eq!(names, ["cciss/c0d0", "nvme2n1", "nvme10n1", "sdb", "sdaa"]);
}

#[test]
fn the_disks_behind_a_file_are_those_of_its_file_system() {
    let machine = Machine::new();
    machine.disk("sda", &[], b"");
    machine.disk("sdb", &[], b"");
    machine.disk("dm-0", &[], b"");
    machine.write("sys/block/sdb/sdb1/partition", "1\n");
    for folder in ["sys/dev/block", "sys/class/block", "sys/block/dm-0/slaves/sda", "sys/block/dm-0/slaves/sdb1"] {
        std::fs::create_dir_all(machine.path(folder)).unwrap();
    }
    let device = std::fs::metadata(machine.path("dev")).unwrap().dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    symlink("../../block/dm-0", machine.path(&format!("sys/dev/block/{number}"))).unwrap();
    symlink("../../block/sda", machine.path("sys/class/block/sda")).unwrap();
    symlink("../../block/sdb/sdb1", machine.path("sys/class/block/sdb1")).unwrap();
    let mut disks = BTreeSet::new();
    disks_behind(&machine.places(), &machine.path("dev/sda"), &mut disks);
    let expected = ["dm-0", "sda", "sdb"].map(|name| machine.path("dev").join(name).display().to_string());
    assert_eq!(disks.into_iter().collect::<Vec<_>>(), expected);
    let mut none = BTreeSet::new();
    disks_behind(&machine.places(), Path::new("/no/such/disk"), &mut none);
    assert!(none.is_empty());
}
