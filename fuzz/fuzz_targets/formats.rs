//! A trace in the format that its first line names, as on the command line (`csv:time=0,offset=3`).
//!
//! No record makes a parser panic, accepted requests lie within a volume, and the division into chunks makes no
//! difference.
#![no_main]

use flashwise_trace::formats::{Batch, FormatSpec, Parse, REQUEST_BYTES_MAX, Sample};
use libfuzzer_sys::fuzz_target;

/// Requests with the names of their volumes, and the numbers of malformed records.
type Read = (Vec<(Vec<u8>, i64, u64, u64)>, Vec<u64>, u64, u64);

fn read(parser: &dyn Parse, chunks: &[&[u8]]) -> Read {
    let mut read = Read::default();
    for chunk in chunks {
        let mut batch = Batch::default();
        parser.parse(chunk, &mut batch);
        for request in &batch.requests {
            assert!((1..=REQUEST_BYTES_MAX).contains(&request.length_bytes));
            assert!(request.offset_bytes.checked_add(request.length_bytes).is_some());
            let name = batch.volumes.names()[request.volume as usize].clone();
            read.0.push((name, request.time_us, request.offset_bytes, request.length_bytes));
        }
        assert!(
            batch.malformed.iter().all(|(record, malformed)| *record < batch.records && !malformed.expected.is_empty())
        );
        assert!(batch.recorded.iter().all(|request| (request.volume as usize) < batch.volumes.names().len()));
        read.1.extend(batch.malformed.iter().map(|(record, _)| read.2 + record));
        read.2 += batch.records;
        read.3 += batch.skipped;
    }
    read
}

fuzz_target!(|bytes: &[u8]| {
    let (first, contents) = bytes.split_at(bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()));
    let Some(contents) = contents.get(1..) else { return };
    let sample = Sample { bytes: contents, whole: true };
    // Any format may be recognised.
    let _ = FormatSpec::recognise("trace", &sample);
    let Some(spec) = std::str::from_utf8(first).ok().and_then(|text| text.parse::<FormatSpec>().ok()) else { return };
    let Ok(parser) = spec.parser(&sample, 4096) else { return };
    let cut = parser.whole(&contents[..contents.len() / 2]);
    let whole = read(&*parser, &[contents]);
    assert_eq!(read(&*parser, &[&contents[..cut], &contents[cut..]]), whole);
});
