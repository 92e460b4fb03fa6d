//! Parses a trace in parallel, in chunks of whole records.

use std::collections::BTreeMap;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Place, TraceError};
use crate::formats::{Batch, Parse};
use crate::input::Input;

/// The number of bytes from which the format of a trace is recognised.
pub const SAMPLE_BYTES: usize = 64 << 10;
/// The size of a chunk, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// The maximum length of a record, in bytes; a longer line is an error.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 20;

/// Cuts the input at record ends and parses the chunks in parallel. Hands the batches to `consume` in order, each with
/// the number of its first record. Returns true if the last line may be incomplete.
pub fn parse(
    input: &mut Input,
    head: Vec<u8>,
    parser: &dyn Parse,
    mut consume: impl FnMut(Batch, u64) -> Result<(), TraceError>,
) -> Result<bool, TraceError> {
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get()).clamp(1, 8);
    thread::scope(|scope| {
        let (chunks_in, chunks): (Sender<(u64, Vec<u8>)>, Receiver<_>) = bounded(2 * workers);
        let (batches_in, batches) = bounded(2 * workers);
        for _ in 0..workers {
            let (chunks, batches_in) = (chunks.clone(), batches_in.clone());
            scope.spawn(move || {
                for (number, chunk) in chunks {
                    let mut batch = Batch::default();
                    parser.parse(&chunk, &mut batch);
                    if batches_in.send((number, batch)).is_err() {
                        return;
                    }
                }
            });
        }
        drop((chunks, batches_in));
        let reader = scope.spawn(move || read_chunks(input, head, parser, &chunks_in));
        let mut early = BTreeMap::new();
        let (mut next, mut records) = (0, 0);
        for (number, batch) in &batches {
            early.insert(number, batch);
            while let Some(batch) = early.remove(&next) {
                let in_batch = batch.records;
                consume(batch, records)?;
                records += in_batch;
                next += 1;
            }
        }
        drop(batches);
        // A panic has its own cause, for example a progress callback that cancels the work.
        reader.join().unwrap_or_else(|unwound| std::panic::resume_unwind(unwound))
    })
}

/// Sends the input in numbered chunks of whole records. Stops early if the receiver is gone. Returns true if the last
/// line may be incomplete.
fn read_chunks(
    input: &mut Input,
    head: Vec<u8>,
    parser: &dyn Parse,
    chunks: &Sender<(u64, Vec<u8>)>,
) -> Result<bool, TraceError> {
    let mut rest = head;
    let mut first_byte = 0;
    for number in 0.. {
        let kept = rest.len();
        let wanted = CHUNK_BYTES.max(kept + SAMPLE_BYTES);
        let mut chunk = vec![0; wanted];
        chunk[..kept].copy_from_slice(&rest);
        let room = &mut chunk[kept..];
        let read = if parser.may_be_cut() { input.fill_to_cut(room)? } else { input.fill(room)? };
        chunk.truncate(kept + read);
        let last = kept + read < wanted;
        let whole = parser.whole(&chunk);
        let end = if last { chunk.len() } else { whole };
        if end == 0 && chunk.len() > RECORD_BYTES_MAX {
            let expected = format!("lines shorter than {RECORD_BYTES_MAX} bytes");
            let found = format!("a line of more than {} bytes", chunk.len());
            return Err(TraceError::Malformed {
                path: input.path().to_owned(),
                place: Place::Byte(first_byte),
                found,
                expected,
            });
        }
        rest = chunk[end..].to_vec();
        chunk.truncate(end);
        first_byte += end as u64;
        let is_unfinished = last && parser.may_be_cut() && whole < end;
        if chunks.send((number, chunk)).is_err() || last {
            return Ok(is_unfinished);
        }
    }
    unreachable!("the input ends")
}
