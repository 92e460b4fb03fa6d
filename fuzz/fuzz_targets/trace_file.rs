//! A damaged normalised trace: any bytes, or some changes to a valid file, which reach deeper. A trace that can be
//! mapped is read completely; all others are refused.
#![no_main]

use std::io::{Cursor, Read, Seek, Write};
use std::sync::OnceLock;

use flashwise_trace::Trace;
use flashwise_trace::input::Input;
use flashwise_trace::normalised::{Settings, normalise};
use flashwise_trace::progress::Silent;
use flashwise_trace::requests::rebuild;
use flashwise_trace::tools::info::Info;
use libfuzzer_sys::fuzz_target;

/// Returns a valid file: two volumes, requests of one block and of several.
fn right() -> &'static [u8] {
    static RIGHT: OnceLock<Vec<u8>> = OnceLock::new();
    RIGHT.get_or_init(|| {
        let lines = (0..40).map(|line| {
            let (volume, op) = (["a", "b"][line % 2], ["Read", "Write"][line % 3 % 2]);
            format!(
                "{},{volume},0,{op},{},{},1\n",
                128_166_372_000_000_000 + line * 10,
                line % 7 * 4096,
                1 + line * 500
            )
        });
        let text: String = lines.collect();
        let input = Input::new("trace", Box::new(Cursor::new(text.into_bytes())), &Silent).expect("text is read");
        let file = tempfile::tempfile().expect("there is room for a file");
        let mut file = normalise(input, &Settings::default(), file).expect("the trace is in order");
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a file is read");
        bytes
    })
}

/// Changes single bytes of a valid file. Each change has a position from the start or from the end, where the tables
/// are, and a new value.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut bytes = right().to_vec();
    for change in changes.chunks_exact(4).take(64) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let at = if change[2] % 2 == 0 { place } else { bytes.len().wrapping_sub(1 + place) };
        let Some(byte) = bytes.get_mut(at) else { continue };
        match change[2] / 2 % 4 {
            0 => *byte = change[3],
            1 => *byte = byte.wrapping_add(change[3]),
            2 => *byte ^= change[3],
            _ => bytes.truncate(at),
        }
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let damaged = match bytes.split_first() {
        Some((first, rest)) if first % 4 == 0 => rest.to_vec(),
        Some((_, rest)) => changed(rest),
        None => return,
    };
    let mut file =
        tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).expect("there is room for a file");
    file.write_all(&damaged).expect("there is room for a file");
    let Ok(trace) = Trace::map("trace", &file) else { return };
    let info = Info::of(&trace);
    assert_eq!(info.accesses, trace.len() as u64);
    assert!(trace.accesses().all(|(block, _)| (block as usize) < trace.unique_blocks()));
    assert_eq!(trace.next_uses(&Silent).expect("a small trace").len(), trace.len());
    // The description's data about requests may be wrong.
    let _ = rebuild(&trace, &Silent, |_| Ok(()));
});
