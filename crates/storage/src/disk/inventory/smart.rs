//! The state of SATA and SAS disks, by `smartctl --json` of smartmontools, where it is installed.
//!
//! It knows the attributes of each model that count wear, and reaches disks behind bridges and RAID controllers. Its
//! database is kept by others; the bare commands of ATA and SCSI (by SG_IO) would need a copy of it. NVMe has one log
//! for all models, which is read without it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::condition::Condition;

/// Paths of the program. A service may have another search path.
const PROGRAMS: [&str; 4] =
    ["/usr/sbin/smartctl", "/usr/local/sbin/smartctl", "/usr/bin/smartctl", "/run/current-system/sw/bin/smartctl"];
/// A disk that hangs does not keep the list waiting.
const TIME_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Attributes of ATA: errors that could not be corrected, reported to hosts and found by the disk itself.
const REPORTED_UNCORRECTABLE: u64 = 187;
const OFFLINE_UNCORRECTABLE: u64 = 198;
const REALLOCATED_SECTORS: u64 = 5;

/// Asks the disk at this path for its state. Unknown without the program, or if it fails.
pub fn condition(device: &Path) -> Condition {
    let program = PROGRAMS.into_iter().find(|program| Path::new(program).exists());
    program.and_then(|program| ask(program, device)).map(|json| of_json(&json)).unwrap_or_default()
}

fn ask(program: &str, device: &Path) -> Option<Value> {
    // A disk in standby is not woken.
    let mut child = Command::new(program)
        .args(["--json", "--health", "--attributes", "--nocheck=standby", "--"])
        .arg(device)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut output = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).map(|_| text)
    });
    let started = Instant::now();
    // Its status has bits for what is wrong with the disk, so that it says nothing about the answer.
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > TIME_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    serde_json::from_slice(&reader.join().ok()?.ok()?).ok()
}

fn of_json(json: &Value) -> Condition {
    let number = |path: &str| json.pointer(path).and_then(Value::as_u64);
    let table = json.pointer("/ata_smart_attributes/table").and_then(Value::as_array);
    let raw = |id: u64| {
        let is_it = |row: &&Value| row["id"].as_u64() == Some(id);
        table?.iter().find(is_it)?.pointer("/raw/value")?.as_u64()
    };
    let of_scsi = || {
        let errors = |which: &str| number(&format!("/scsi_error_counter_log/{which}/total_uncorrected_errors"));
        let all = ["read", "write", "verify"].map(errors);
        all.iter().any(Option::is_some).then(|| all.into_iter().flatten().sum())
    };
    let wear = number("/endurance_used/current_percent");
    Condition {
        wear_percent: wear
            .or_else(|| number("/scsi_percentage_used_endurance_indicator"))
            .map(|percent| percent as u16),
        temperature_celsius: json.pointer("/temperature/current").and_then(Value::as_f64),
        media_errors: raw(REPORTED_UNCORRECTABLE).or_else(|| raw(OFFLINE_UNCORRECTABLE)).or_else(of_scsi),
        reallocated: raw(REALLOCATED_SECTORS).or_else(|| number("/scsi_grown_defect_list")),
        power_on_hours: number("/power_on_time/hours"),
        spare_percent: number("/spare_available/current_percent").map(|percent| percent as u16),
        is_failing: json.pointer("/smart_status/passed").and_then(Value::as_bool).map(|passed| !passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from the output of smartctl 7.4 for a SATA SSD and a SAS disk.
    #[test]
    fn the_answer_of_smartctl_has_wear_errors_and_temperature() {
        let sata = serde_json::json!({
            "smart_status": {"passed": true},
            "ata_smart_attributes": {"table": [
                {"id": 5, "name": "Reallocated_Sector_Ct", "value": 100, "raw": {"value": 8, "string": "8"}},
                {"id": 187, "name": "Reported_Uncorrect", "value": 100, "raw": {"value": 2, "string": "2"}},
                {"id": 198, "name": "Offline_Uncorrectable", "value": 100, "raw": {"value": 1, "string": "1"}}
            ]},
            "endurance_used": {"current_percent": 12},
            "power_on_time": {"hours": 20111},
            "temperature": {"current": 33}
        });
        let expected = Condition {
            wear_percent: Some(12),
            temperature_celsius: Some(33.0),
            media_errors: Some(2),
            reallocated: Some(8),
            power_on_hours: Some(20111),
            spare_percent: None,
            is_failing: Some(false),
        };
        assert_eq!(of_json(&sata), expected);
        let sas = serde_json::json!({
            "smart_status": {"passed": false},
            "scsi_grown_defect_list": 3,
            "scsi_percentage_used_endurance_indicator": 4,
            "scsi_error_counter_log": {
                "read": {"total_uncorrected_errors": 5},
                "write": {"total_uncorrected_errors": 1}
            },
            "temperature": {"current": 41}
        });
        let found = of_json(&sas);
        assert_eq!((found.wear_percent, found.media_errors, found.reallocated), (Some(4), Some(6), Some(3)));
        assert_eq!((found.is_failing, found.temperature_celsius), (Some(true), Some(41.0)));
        assert_eq!(of_json(&Value::Null), Condition::default());
    }
}
