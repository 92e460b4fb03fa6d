//! Wear and temperature of disks that report them.
//!
//! NVMe: the SMART / health information log (page 02h of Get Log Page; NVM Express base specification), by the admin
//! command of linux/nvme_ioctl.h. eMMC: `life_time` in sysfs (JEDEC 84-B51, `DEVICE_LIFE_TIME_EST`). Other
//! temperatures: hwmon in sysfs, which supports SATA disks with the kernel module drivetemp. For SATA and SAS disks,
//! see `smart.rs`.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use rustix::ioctl::{Opcode, Updater, opcode};

use super::condition::Condition;
use super::{attribute, smart};

/// Returns the condition of the disk at `sysfs`, whose device at `path` is open as `device`.
pub fn condition(sysfs: &Path, path: &Path, device: Option<&File>) -> Condition {
    let is_nvme = sysfs.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvme"));
    let told = match device {
        Some(device) if is_nvme => health_log(device).map(|log| of_health_log(&log)),
        Some(_) => is_scsi(sysfs).then(|| smart::condition(path)),
        None => None,
    };
    let told = told.unwrap_or_default();
    Condition {
        wear_percent: told.wear_percent.or_else(|| emmc_wear(sysfs)),
        temperature_celsius: told.temperature_celsius.or_else(|| sensor(sysfs)),
        ..told
    }
}

/// True for SATA and SAS disks, and others that speak SCSI.
fn is_scsi(sysfs: &Path) -> bool {
    sysfs.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sd"))
}

/// `struct nvme_admin_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_to_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const NVME_IOCTL_ADMIN_CMD: Opcode = opcode::read_write::<AdminCommand>(b'N', 0x41);
const GET_LOG_PAGE: u8 = 0x02;
const HEALTH: u32 = 0x02;
const HEALTH_BYTES: usize = 512;

fn health_log(device: &File) -> Option<[u8; HEALTH_BYTES]> {
    let mut log = [0; HEALTH_BYTES];
    // The number of 32-bit words minus one, and the number of the page.
    let what = ((HEALTH_BYTES as u32 / 4 - 1) << 16) | HEALTH;
    let mut command = AdminCommand {
        opcode: GET_LOG_PAGE,
        namespace: u32::MAX,
        address: log.as_mut_ptr().expose_provenance() as u64,
        data_length: HEALTH_BYTES as u32,
        words_10_to_15: [what, 0, 0, 0, 0, 0],
        ..AdminCommand::default()
    };
    // SAFETY: the kernel fills `data_length` bytes at `address`, which belong to `log`, and the result in the command.
    let asked = unsafe { rustix::ioctl::ioctl(device, Updater::<NVME_IOCTL_ADMIN_CMD, _>::new(&mut command)) };
    asked.ok().map(|()| log)
}

/// Returns the bytes that hosts have written to the NVMe drive at `sysfs`, or to the drive of the partition there.
/// `device` is the same, open. Returns `None` for other drives, and for a drive that does not count.
pub fn written_bytes(sysfs: &Path, device: &File) -> Option<u64> {
    let folder = sysfs.canonicalize().ok()?;
    let is_nvme = folder.file_name()?.to_string_lossy().starts_with("nvme");
    written_of_health_log(&is_nvme.then(|| health_log(device)).flatten()?)
}

/// Bytes of a data unit: 1,000 sectors of 512 bytes.
const DATA_UNIT_BYTES: u64 = 512_000;

/// Data units written are in bytes 48 to 63. Drives without a counter report 0.
fn written_of_health_log(log: &[u8; HEALTH_BYTES]) -> Option<u64> {
    let units = u128::from_le_bytes(log[48..64].try_into().ok()?);
    let bytes = u64::try_from(units).ok()?.checked_mul(DATA_UNIT_BYTES)?;
    (bytes > 0).then_some(bytes)
}

/// Critical warnings are in byte 0, the temperature in kelvin in bytes 1 and 2, and the available spare in byte 3. Byte
/// 5 has the percentage used; 255 is more than 254. Bytes 128 to 143 have the hours, and bytes 160 to 175 the media and
/// data integrity errors.
fn of_health_log(log: &[u8; HEALTH_BYTES]) -> Condition {
    let kelvin = u16::from_le_bytes([log[1], log[2]]);
    // 16 bytes each, of which no drive needs more than eight.
    let count = |at: usize| log[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    Condition {
        wear_percent: Some(u16::from(log[5])),
        temperature_celsius: (kelvin > 0).then(|| f64::from(kelvin) - 273.0),
        media_errors: count(160),
        reallocated: None,
        power_on_hours: count(128),
        spare_percent: Some(u16::from(log[3])),
        is_failing: Some(log[0] != 0),
    }
}

/// The higher value of both types of memory: 0x01 is up to 10 %, 0x0b above 100 %.
fn emmc_wear(sysfs: &Path) -> Option<u16> {
    let text = attribute(&sysfs.join("device"), "life_time")?;
    let number = |word: &str| u16::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    text.split_whitespace().filter_map(number).filter(|&number| number > 0).max().map(|tenths| tenths * 10)
}

fn sensor(sysfs: &Path) -> Option<f64> {
    let device = sysfs.join("device");
    let inside = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_sensor = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hwmon"));
    let folders = inside(&device).into_iter().chain(inside(&device.join("hwmon"))).filter(|path| is_sensor(path));
    let read = |folder: std::path::PathBuf| attribute(&folder, "temp1_input")?.parse::<f64>().ok();
    folders.filter_map(read).map(|thousandths| thousandths / 1000.0).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::device::tests::sysfs;

    /// Computed by hand: 0x0137 = 311 K = 38 °C, and 7 % used.
    #[test]
    fn the_health_log_has_temperature_and_wear_where_the_specification_says() {
        let mut log = [0; HEALTH_BYTES];
        (log[1], log[2], log[3], log[5]) = (0x37, 0x01, 100, 7);
        (log[128], log[129], log[160]) = (0x10, 0x27, 3);
        let expected = Condition {
            wear_percent: Some(7),
            temperature_celsius: Some(38.0),
            media_errors: Some(3),
            reallocated: None,
            power_on_hours: Some(10_000),
            spare_percent: Some(100),
            is_failing: Some(false),
        };
        assert_eq!(of_health_log(&log), expected);
        log[0] = 4;
        assert_eq!(of_health_log(&log).is_failing, Some(true));
        assert_eq!(of_health_log(&[0; HEALTH_BYTES]).temperature_celsius, None);
        assert_eq!(size_of::<AdminCommand>(), 72, "as linux/nvme_ioctl.h has it");
    }

    /// Computed by hand: 0x0102 = 258 data units of 512,000 bytes.
    #[test]
    fn the_health_log_has_the_written_bytes_where_the_specification_says() {
        let mut log = [0; HEALTH_BYTES];
        (log[32], log[48], log[49]) = (9, 0x02, 0x01);
        assert_eq!(written_of_health_log(&log), Some(258 * 512_000));
        assert_eq!(written_of_health_log(&[0; HEALTH_BYTES]), None);
        assert_eq!(written_of_health_log(&[255; HEALTH_BYTES]), None);
        let disk = sysfs(&[("size", "8")]);
        assert_eq!(written_bytes(disk.path(), &File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn sysfs_tells_the_temperature_of_disks_with_a_sensor_and_the_wear_of_emmc() {
        let disk = sysfs(&[("device/hwmon/hwmon3/temp1_input", "41500")]);
        assert_eq!(condition(disk.path(), Path::new(""), None).temperature_celsius, Some(41.5));
        let nvme = sysfs(&[("device/hwmon1/temp1_input", "38850")]);
        assert_eq!(condition(nvme.path(), Path::new(""), None).temperature_celsius, Some(38.85));
        let emmc = sysfs(&[("device/life_time", "0x02 0x01")]);
        assert_eq!(condition(emmc.path(), Path::new(""), None).wear_percent, Some(20));
        assert_eq!(condition(sysfs(&[("size", "8")]).path(), Path::new(""), None), Condition::default());
    }
}
