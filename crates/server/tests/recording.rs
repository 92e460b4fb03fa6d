//! What the recorder writes, byte for byte. That the simulator reads it is tested with the program.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

use std::io::Read;
use std::path::Path;

use flashwise_server::export::{Operation, Request};
use flashwise_server::record::Recorder;

const ZEROES: Operation = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: true };
const HOLES: Operation = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };

fn request(operation: Operation, offset: u64, length: u64, force_unit_access: bool) -> Request {
    Request { operation, offset, length, force_unit_access, data: Vec::new() }
}

/// What a file holds, decompressed as far as it goes.
fn read(path: &Path) -> String {
    let file = std::fs::File::open(path).unwrap();
    let mut text = Vec::new();
    if path.extension().is_some() {
        // Where the frame is not complete yet, that is an error after what there is.
        let _ = zstd::Decoder::new(file).unwrap().read_to_end(&mut text);
    } else {
        text = std::fs::read(path).unwrap();
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_request_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.zst"] {
        let path = folder.path().join(name);
        let recorder = Recorder::start(path.to_str().unwrap(), &["db".to_owned(), "logs +1".to_owned()]).unwrap();
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
fn what_was_recorded_is_on_disk_before_the_recording_ends() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace", "trace.zst"] {
        let path = folder.path().join(name);
        let recorder = Recorder::start(path.to_str().unwrap(), &["db".to_owned()]).unwrap();
        for number in 0..1000 {
            recorder.record(number, 0, &request(Operation::Read, 4096 * number, 4096, false));
        }
        while !read(&path).ends_with("\n999,db,read,4091904,4096,\n") {
            std::thread::yield_now();
        }
        drop(recorder);
        assert_eq!(read(&path).lines().count(), 1001);
    }
}

/// Eight threads record 5,000 requests each, which is less than the queue holds.
#[test]
fn requests_of_each_thread_stay_in_order_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.zst");
    let names: Vec<_> = (0..8).map(|number| number.to_string()).collect();
    let recorder = Recorder::start(path.to_str().unwrap(), &names).unwrap();
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
