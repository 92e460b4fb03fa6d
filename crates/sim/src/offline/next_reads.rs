//! Next references: Step 1 of Algorithm H.

use flashwise_core::access::NEVER;

use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;

/// Returns, for each access of `trace`, the position of the next access to its block if that is a read, else [`NEVER`].
///
/// # Errors
/// The trace has 2^32 - 1 accesses or more, so positions do not fit.
pub fn next_reads(trace: &Trace, progress: &dyn Progress) -> Result<Vec<u32>, TraceError> {
    let len = trace.len();
    if len >= NEVER as usize {
        let (path, most) = (trace.name().to_owned(), u64::from(NEVER) - 1);
        return Err(TraceError::TooLarge { path, what: "accesses for an offline algorithm", found: len as u64, most });
    }
    let mut next_reads = vec![NEVER; len];
    let mut next_read_of = vec![NEVER; trace.unique_blocks()];
    let mut end = len;
    for columns in trace.batches().rev() {
        let (blocks, ops, start) = (&columns.block[..], &columns.op[..], end - columns.rows);
        for position in (start..end).rev() {
            let at = position - start;
            let before = if ops[at] == 0 { position as u32 } else { NEVER };
            let block = blocks[at] as usize;
            next_reads[position] = std::mem::replace(&mut next_read_of[block], before);
        }
        end = start;
        // Allows the caller to end the work.
        progress.advance(0);
    }
    Ok(next_reads)
}
