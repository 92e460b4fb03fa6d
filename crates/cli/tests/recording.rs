//! What `serve --record` writes, the readers of traces read: written by the server's recorder, read by the simulator's library and by
//! the program.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use common::succeed;
use flashwise_server::export::{Operation, Request};
use flashwise_server::record::Recorder;
use flashwise_sim::progress::Silent;
use flashwise_sim::recording::{self, Flags, RecordedRequest, Recording};

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
            let request = Request { operation, offset, length, force_unit_access, data: Vec::new() };
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
    let flags = Flags { force_unit_access: request.force_unit_access, no_hole, only_if_fast };
    let (offset_bytes, length_bytes) = (request.offset, request.length);
    RecordedRequest { time_us: time_us as i64, volume, operation, offset_bytes, length_bytes, flags }
}

#[test]
fn every_operation_comes_back_as_it_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.csv", "trace.zst"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let recorder = Recorder::start(path, &["db".to_owned(), "logs +1".to_owned()]).unwrap();
        for (time_us, volume, request) in requests() {
            recorder.record(time_us, volume, &request);
        }
        assert_eq!(recorder.finish().unwrap().recorded_requests, 18);
        let mut recording = Recording::open(path, &Silent).unwrap();
        let found: Vec<_> = recording.by_ref().map(Result::unwrap).collect();
        let wanted: Vec<_> =
            requests().iter().map(|(time_us, volume, request)| expected(*time_us, *volume, request)).collect();
        assert_eq!(found, wanted);
        assert_eq!(recording.volumes().names(), [&b"db"[..], b"logs +1"]);
    }
}

/// Two reads and two writes of 18 requests; requests 0 to 3 at blocks 0 to 3, the first of one block and the others, longer by 1 to 3
/// bytes, of two: 7 accesses of 5 blocks.
#[test]
fn the_program_asks_what_if_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.zst");
    let recorder = Recorder::start(path.to_str().unwrap(), &["db".to_owned(), "logs".to_owned()]).unwrap();
    for (time_us, _, request) in requests() {
        recorder.record(time_us, 0, &request);
    }
    recorder.finish().unwrap();
    let json = succeed(folder.path(), &["simulate", "trace.zst", "--policy", "lru", "--size", "5", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((rows[0]["accesses"].as_u64(), rows[0]["hits"].as_u64()), (Some(7), Some(2)));
    let about = succeed(folder.path(), &["trace", "info", "trace.zst"]);
    assert!(about.contains("flashwise"), "{about}");
}
