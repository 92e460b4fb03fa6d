//! Any bytes as a trace, in the format and compression that they are recognised as: read to the end, or refused.
//!
//! A trace that was read is mapped, and requests rebuilt from its accesses equal the original ones.
#![no_main]

use std::io::Cursor;

use flashwise_trace::Trace;
use flashwise_trace::input::Input;
use flashwise_trace::normalised::{Settings, normalise};
use flashwise_trace::progress::Silent;
use flashwise_trace::recording::Recording;
use flashwise_trace::requests::rebuild;
use flashwise_trace::tools::info::Info;
use libfuzzer_sys::fuzz_target;

/// Limit for the decompressed size of small inputs; tests check the limit on memory beyond it.
const CONTENTS_BYTES_MAX: usize = 1 << 20;

fn contents(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut input = Input::new("trace", Box::new(Cursor::new(bytes.to_vec())), &Silent).ok()?;
    let mut contents = vec![0; CONTENTS_BYTES_MAX + 1];
    let filled = input.fill_to_cut(&mut contents).ok()?;
    contents.truncate(filled);
    (filled <= CONTENTS_BYTES_MAX).then_some(contents)
}

fuzz_target!(|bytes: &[u8]| {
    let Some(contents) = contents(bytes) else { return };
    let input = || Input::new("trace", Box::new(Cursor::new(contents.clone())), &Silent);
    if let Ok(recording) = input().and_then(Recording::new) {
        recording.take_while(Result::is_ok).for_each(drop);
    }
    for lenient in [false, true] {
        let Ok(input) = input() else { return };
        let settings = Settings { lenient, ..Settings::default() };
        let file = tempfile::tempfile().expect("there is room for a file");
        let Ok(file) = normalise(input, &settings, file) else { continue };
        let trace = Trace::map("trace", &file).expect("what was written is mapped");
        let info = Info::of(&trace);
        assert_eq!(info.accesses, trace.len() as u64);
        assert!(trace.accesses().all(|(block, _)| (block as usize) < trace.unique_blocks()));
        let mut requests = 0;
        let count = |batch: flashwise_trace::formats::Batch| {
            requests += batch.requests.len() as u64;
            Ok(())
        };
        rebuild(&trace, &Silent, count).expect("what was written is read");
        assert_eq!(requests, trace.description().requests);
        return;
    }
});
