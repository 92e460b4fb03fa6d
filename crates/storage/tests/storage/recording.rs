//! The recorder's output, byte for byte. A test of the program checks that the simulator reads it.

use std::path::Path;

use flashwise_storage::export::{Operation, Request};
use flashwise_storage::record::segments::Names;
use flashwise_storage::record::{Limits, Recorder};
use flashwise_storage::status::RecordingState;
use flashwise_testing::waiting::wait_until;

const ZEROES: Operation = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: true };
const HOLES: Operation = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };

fn request(operation: Operation, offset: u64, length: u64, force_unit_access: bool) -> Request {
    Request { operation, offset, length, force_unit_access, data: Vec::new(), caching: Default::default() }
}

const LIMITS: Limits = Limits { segment_bytes_max: 1 << 30, total_bytes_max: 1 << 30 };

fn start(path: &Path, volumes: &[&str]) -> Recorder {
    let volumes: Vec<String> = volumes.iter().map(|&name| name.to_owned()).collect();
    Recorder::start(path, LIMITS, &volumes).unwrap()
}

/// Returns the decompressed contents of a segment; empty if it does not exist yet, or a piece is incomplete.
fn read_segment(path: &Path, number: u64) -> String {
    let Ok(mut bytes) = std::fs::read(Names::of(path).path(number)) else { return String::new() };
    if path.extension().is_some() {
        bytes = match zstd::decode_all(&*bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Vec::new(),
            decoded => decoded.unwrap(),
        };
    }
    String::from_utf8(bytes).unwrap()
}

fn read(path: &Path) -> String {
    read_segment(path, 1)
}

#[test]
fn a_request_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.zst"] {
        let path = folder.path().join(name);
        let recorder = start(&path, &["db", "logs +1"]);
        for (time_us, volume, request) in [
            (1, 1, request(Operation::Read, 512, 1024, false)),
            (2, 0, request(Operation::Write, 8192, 4096, true)),
            (2, 0, request(Operation::Flush, 0, 0, false)),
            (3, 0, request(Operation::Trim, 0, 1 << 40, true)),
            (4, 1, request(ZEROES, 4096, 4096, true)),
            (5, 1, request(HOLES, 4096, 4096, false)),
            (6, 0, request(Operation::Cache, 4096, 4096, false)),
        ] {
            recorder.record(time_us, volume, &request);
        }
        let status = recorder.finish().unwrap();
        assert_eq!((status.recorded_requests, status.dropped_requests, status.error), (7, 0, None));
        let expected = "time_us,volume,op,offset,length,flags\n\
            1,logs +1,read,512,1024,\n\
            2,db,write,8192,4096,fua\n\
            2,db,flush,0,0,\n\
            3,db,trim,0,1099511627776,fua\n\
            4,logs +1,write-zeroes,4096,4096,fua+no-hole+fast-zero\n\
            5,logs +1,write-zeroes,4096,4096,\n\
            6,db,cache,4096,4096,\n";
        assert_eq!(read(&path), expected, "{name}");
    }
}

/// A killed process leaves what its file holds, and nothing that it has in memory: here, as long as the recorder runs.
#[test]
fn recorded_requests_are_on_disk_before_the_recording_ends() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.zst"] {
        let path = folder.path().join(name);
        let recorder = start(&path, &["db"]);
        for number in 0..1000 {
            recorder.record(number, 0, &request(Operation::Read, 4096 * number, 4096, false));
        }
        wait_until("all is there", || read(&path).ends_with("\n999,db,read,4091904,4096,\n"));
        drop(recorder);
        assert_eq!(read(&path).lines().count(), 1001);
    }
}

#[test]
fn every_start_has_a_segment_of_its_own_and_leaves_the_others_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.zst"] {
        let path = folder.path().join(name);
        // A recording of an earlier version, and a start at which nothing was asked.
        std::fs::write(&path, "precious").unwrap();
        start(&path, &["db"]).finish().unwrap();
        let mut before = Vec::new();
        for number in 1..=3 {
            let recorder = start(&path, &["db"]);
            recorder.record(number, 0, &request(Operation::Read, 0, 4096, false));
            let segment = recorder.finish().unwrap().segment.unwrap();
            assert_eq!(Path::new(&segment), Names::of(&path).path(number));
            let lines = format!("time_us,volume,op,offset,length,flags\n{number},db,read,0,4096,\n");
            assert_eq!(read_segment(&path, number), lines);
            before.push((segment.clone(), std::fs::read(&segment).unwrap()));
            assert!(before.iter().all(|(path, bytes)| std::fs::read(path).unwrap() == *bytes));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}

/// Lines of 21 to 25 bytes: 100,000 take 2,489 kB, nine pieces of 256 KiB and half a one. Three fit a segment of 1 MiB,
/// so that there are three; seven fit 2 MiB, so that the third segment is the last.
#[test]
fn segments_rotate_and_at_the_limit_recording_stops_and_goes_on_once_there_is_room() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let record = |recorder: &Recorder| {
        for number in 0..100_000 {
            recorder.record(number, 0, &request(Operation::Read, 4096, 4096, false));
        }
    };
    let path = folder.path().join("rotated");
    let limits = Limits { segment_bytes_max: MIB, ..LIMITS };
    let recorder = Recorder::start(&path, limits, &["db".to_owned()]).unwrap();
    record(&recorder);
    let status = recorder.finish().unwrap();
    assert_eq!((status.recorded_requests, status.dropped_requests), (100_000, 0));
    let segments: Vec<String> = (1..=3).map(|number| read_segment(&path, number)).collect();
    assert!(segments.iter().all(|text| !text.is_empty() && text.len() as u64 <= MIB));
    assert_eq!(segments.iter().map(String::len).sum::<usize>() as u64, status.size_bytes);
    let numbers = segments.iter().flat_map(|text| text.lines().skip(1)).map(|line| line.split(',').next().unwrap());
    assert!(numbers.eq((0..100_000).map(|number| number.to_string())));

    let path = folder.path().join("limited");
    let limits = Limits { segment_bytes_max: MIB, total_bytes_max: 2 * MIB };
    let recorder = Recorder::start(&path, limits, &["db".to_owned()]).unwrap();
    record(&recorder);
    wait_until("requests are dropped", || recorder.status().dropped_requests > 0);
    let status = recorder.status();
    assert_eq!(status.state, RecordingState::Full);
    let error = "its segments have reached record-size-max, 2MiB; move some away, or set a larger one";
    assert_eq!(status.error.as_deref(), Some(error));
    assert!(status.size_bytes <= 2 * MIB && status.size_bytes > MIB, "{status:?}");
    assert!(!read_segment(&path, 3).is_empty() && read_segment(&path, 4).is_empty());
    std::fs::remove_file(Names::of(&path).path(1)).unwrap();
    recorder.record(7_000_000, 0, &request(Operation::Read, 4096, 4096, false));
    let status = recorder.finish().unwrap();
    assert_eq!((status.state, status.error), (RecordingState::Recording, None));
    assert_eq!(status.recorded_requests + status.dropped_requests, 100_001);
    assert!(read_segment(&path, 4).ends_with("\n7000000,db,read,4096,4096,\n"));
}

/// Eight threads record 5,000 requests each, which is less than the queue holds.
#[test]
fn requests_of_each_thread_stay_in_order_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.zst");
    let names: Vec<_> = (0..8).map(|number| number.to_string()).collect();
    let recorder = Recorder::start(&path, LIMITS, &names).unwrap();
    std::thread::scope(|scope| {
        for volume in 0..8 {
            let recorder = &recorder;
            scope.spawn(move || {
                for number in 0..5000 {
                    recorder.record(number, volume, &request(Operation::Write, 4096 * number, 4096, false));
                }
            });
        }
    });
    let status = recorder.finish().unwrap();
    assert_eq!((status.recorded_requests, status.dropped_requests), (40_000, 0));
    let mut next = [0; 8];
    for line in read(&path).lines().skip(1) {
        let mut fields = line.split(',');
        let (time_us, volume) = (fields.next().unwrap().parse::<u64>().unwrap(), fields.next().unwrap());
        let next = &mut next[volume.parse::<usize>().unwrap()];
        assert_eq!(time_us, *next);
        *next += 1;
    }
    assert_eq!(next, [5000; 8]);
}
