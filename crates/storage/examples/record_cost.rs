//! Measures the cost of recording a request for its thread: `record_cost [FILE]`. By default it writes segments of
//! `trace.zst` in the temporary directory.

use std::time::{Duration, Instant};

use flashwise_storage::export::{Operation, Request};
use flashwise_storage::record::{Limits, Recorder};

const REQUESTS: u64 = 4_000_000;
/// Number of requests recorded without a pause. Pauses limit the rate to 1,000,000 requests per second.
const BURST: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = std::env::temp_dir().join("trace.zst").display().to_string();
    let path = std::env::args().nth(1).unwrap_or(temporary);
    let limits = Limits { segment_bytes_max: 1 << 30, total_bytes_max: 10 << 30 };
    let recorder = Recorder::start(path.as_ref(), limits, &["volume".to_owned()])?;
    let mut spent = Duration::ZERO;
    for burst in 0..REQUESTS / BURST {
        let begun = Instant::now();
        for number in burst * BURST..(burst + 1) * BURST {
            let offset = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24 << 12;
            let request = Request {
                operation: Operation::Write,
                offset,
                length: 4096,
                force_unit_access: false,
                data: Vec::new(),
                caching: Default::default(),
            };
            recorder.record(number, 0, &request);
        }
        let took = begun.elapsed();
        spent += took;
        std::thread::sleep(Duration::from_micros(BURST).saturating_sub(took));
    }
    let status = recorder.finish()?;
    let each = spent.as_nanos() as f64 / REQUESTS as f64;
    println!("{each:.1} ns a request; {} recorded, {} dropped", status.recorded_requests, status.dropped_requests);
    Ok(())
}
