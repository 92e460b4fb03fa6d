//! Readers of traces read recordings of `serve --record`: written by the server's recorder, read by the simulator's
//! library and by the program.

use std::process::Command;

use crate::common::{run, succeed};
use crate::serving::Setting;
use flashwise_storage::export::{Operation, Request};
use flashwise_storage::record::segments::Names;
use flashwise_storage::record::{Limits, Recorder};
use flashwise_testing::waiting::{wait_for, wait_until};
use flashwise_trace::progress::Silent;
use flashwise_trace::recording::{self, Flags, RecordedRequest, Recording};
use serde_json::Value;

const LIMITS: Limits = Limits { segment_bytes_max: 1 << 30, total_bytes_max: 1 << 30 };

/// Every operation with every flag that it can have.
fn requests() -> Vec<(u64, u32, Request)> {
    let zeroes = |may_punch_holes, only_if_fast| Operation::WriteZeroes { may_punch_holes, only_if_fast };
    let mut requests = Vec::new();
    for operation in [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Trim,
        Operation::Cache,
        zeroes(false, false),
        zeroes(false, true),
        zeroes(true, false),
        zeroes(true, true),
    ] {
        for force_unit_access in [false, true] {
            let number = requests.len() as u64;
            let (offset, length) = if operation == Operation::Flush { (0, 0) } else { (4096 * number, 4096 + number) };
            let request =
                Request { operation, offset, length, force_unit_access, data: Vec::new(), caching: Default::default() };
            requests.push((1_000_000 * number, number as u32 % 2, request));
        }
    }
    requests
}

fn expected(time_us: u64, volume: u32, request: &Request) -> RecordedRequest {
    let (no_hole, only_if_fast) = match request.operation {
        Operation::WriteZeroes { may_punch_holes, only_if_fast } => (!may_punch_holes, only_if_fast),
        _ => (false, false),
    };
    let operation = match request.operation {
        Operation::Read => recording::Operation::Read,
        Operation::Write => recording::Operation::Write,
        Operation::Flush => recording::Operation::Flush,
        Operation::Trim => recording::Operation::Trim,
        Operation::WriteZeroes { .. } => recording::Operation::WriteZeroes,
        Operation::Cache => recording::Operation::Cache,
    };
    let flags = Flags { force_unit_access: request.force_unit_access, no_hole, only_if_fast, caching: request.caching };
    let (offset_bytes, length_bytes) = (request.offset, request.length);
    RecordedRequest { time_us: time_us as i64, volume, operation, offset_bytes, length_bytes, flags }
}

#[test]
fn every_operation_comes_back_as_it_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.csv", "trace.zst"] {
        let path = folder.path().join(name);
        let recorder = Recorder::start(&path, LIMITS, &["db".to_owned(), "logs +1".to_owned()]).unwrap();
        for (time_us, volume, request) in requests() {
            recorder.record(time_us, volume, &request);
        }
        assert_eq!(recorder.finish().unwrap().recorded_requests, 18);
        let segment = Names::of(&path).path(1);
        let mut recording = Recording::open(segment.to_str().unwrap(), &Silent).unwrap();
        let found: Vec<_> = recording.by_ref().map(Result::unwrap).collect();
        let wanted: Vec<_> =
            requests().iter().map(|(time_us, volume, request)| expected(*time_us, *volume, request)).collect();
        assert_eq!(found, wanted);
        assert_eq!(recording.volumes().names(), [&b"db"[..], b"logs +1"]);
    }
}

/// Two reads and two writes among 18 requests. Requests 0 to 3 begin at blocks 0 to 3. The first has one block; the
/// others are 1 to 3 bytes longer and touch two. That makes 7 accesses to 5 blocks.
#[test]
fn the_program_replays_a_recording_with_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.zst");
    let recorder = Recorder::start(&path, LIMITS, &["db".to_owned(), "logs".to_owned()]).unwrap();
    for (time_us, _, request) in requests() {
        recorder.record(time_us, 0, &request);
    }
    recorder.finish().unwrap();
    let json = succeed(folder.path(), &["simulate", "trace.000001.zst", "--policy", "lru", "--size", "5", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((rows[0]["accesses"].as_u64(), rows[0]["hits"].as_u64()), (Some(7), Some(2)));
    let about = succeed(folder.path(), &["trace", "info", "trace.000001.zst"]);
    assert!(about.contains("flashwise"), "{about}");
}

/// Returns the figures of a successful simulation with one row, and its messages.
fn simulated(setting: &Setting, arguments: &[&str]) -> (Value, String) {
    let (out, told, code) = run(setting.directory.path(), &[&["simulate"], arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{told}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    (rows[0].clone(), told)
}

/// Waits until the recording has all requests that were answered.
fn recorded(setting: &Setting) -> u64 {
    wait_for("all is recorded", || {
        let status = setting.flashwise(&["status", "--json", "--api", &setting.api()]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let latencies = status["volumes"][0]["latencies"].as_array().unwrap();
        let answered: u64 = latencies.iter().map(|latency| latency["count"].as_u64().unwrap()).sum();
        let recording = &status["recording"];
        assert_eq!((&recording["state"], &recording["dropped_requests"]), (&"recording".into(), &0.into()), "{status}");
        (recording["recorded_requests"].as_u64() == Some(answered)).then_some(answered)
    })
}

/// Three servers are killed, each after 1 MiB, 256 blocks, was written: 768 accesses of 256 blocks; 512 hit.
#[test]
fn killed_servers_leave_their_segments_and_one_command_replays_them_all() {
    for name in ["requests.csv", "requests.csv.zst"] {
        let keys = "flash-size = \"8MiB\"\nerase-unit = \"64KiB\"\nram = \"1MiB\"";
        let setting = Setting::with(&format!("record = {name:?}"), 8 << 20, keys);
        std::fs::write(setting.path("data.img"), vec![7; 1 << 20]).unwrap();
        let mut segments = Vec::new();
        let mut rows = 0;
        for number in 1..=3 {
            let server = setting.serve();
            let expected = "flashwise: requests are recorded to ./requests.NUMBER.csv";
            wait_until(expected, || server.told().contains(expected));
            let mut copy = Command::new("nbdcopy");
            let copied = copy.args(["--flush", "data.img", &setting.uri()]).current_dir(&setting.directory).output();
            assert!(copied.unwrap().status.success());
            rows = recorded(&setting);
            server.kill();
            let segment = setting.path(&name.replace(".csv", &format!(".00000{number}.csv")));
            segments.push((segment.clone(), std::fs::read(&segment).unwrap()));
            assert!(segments.iter().all(|(path, bytes)| std::fs::read(path).unwrap() == *bytes), "{segments:?}");
        }
        let names: Vec<String> = segments.iter().map(|(path, _)| path.display().to_string()).collect();
        let mut arguments = vec!["--join", &names[0], &names[1], &names[2], "--policy", "lru", "--size", "256"];
        let (row, told) = simulated(&setting, &arguments);
        assert_eq!((row["accesses"].as_u64(), row["hits"].as_u64(), told.as_str()), (Some(768), Some(512), ""));
        // The whole cache, with the flushes.
        arguments.truncate(6);
        arguments.extend(["--size", "8MiB", "--erase-unit", "64KiB", "--ram", "1MiB", "--write-mode", "write-back"]);
        let (row, _) = simulated(&setting, &arguments);
        assert_eq!(row["writes"].as_u64(), Some(768), "{row}");

        // A write that the kill cut short: every row before the cut is there.
        let (last, bytes) = &segments[2];
        std::fs::write(last, &bytes[..bytes.len() - 5]).unwrap();
        let (row, told) =
            simulated(&setting, &["--join", &names[0], &names[1], &names[2], "--policy", "lru", "--size", "256"]);
        assert!(row["accesses"].as_u64() >= Some(512), "{row}");
        let expected = format!("flashwise: {}: the end is missing, as after a server was killed; ", names[2]);
        assert!(told.starts_with(&expected) && told.ends_with(" rows were read\n"), "{told}");
        if name == "requests.csv" {
            assert_eq!(told, format!("{expected}{} rows were read\n", rows - 1));
        }
        // Killed before its first row was written: nothing is missing but that.
        std::fs::write(last, "").unwrap();
        let (row, told) =
            simulated(&setting, &["--join", &names[0], &names[2], &names[1], "--policy", "lru", "--size", "256"]);
        assert_eq!(row["accesses"].as_u64(), Some(512));
        assert_eq!(told, format!("{expected}0 rows were read\n"));
    }
}
