//! Converts a trace of any kind to a normalised trace file.
//!
//! A normalised trace can be converted to larger blocks. If its original's addresses are in bytes or sectors, the
//! result is identical to a conversion of the original. A request touches a large block if it touches one of the small
//! blocks in it.

use std::ops::ControlFlow;
use std::path::Path;

use flashwise_core::quantity::ByteSize;

use crate::error::TraceError;
use crate::files::name_of;
use crate::normalised::{Description, Normaliser, Settings};
use crate::output::{output_name, write_whole};
use crate::progress::Progress;
use crate::requests::Requests;

/// Writes the trace at `path` (`-` is standard input) as a normalised trace to `out` (`-` is standard output).
/// `progress` receives the number of bytes read.
///
/// # Errors
/// A block size of a normalised trace that is not a multiple of its own.
pub fn convert(
    path: impl AsRef<Path>,
    out: impl AsRef<Path>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Description, TraceError> {
    let (path, out) = (path.as_ref(), out.as_ref());
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = match (&requests, settings.block_size_bytes) {
        (Requests::Normalised(trace, _), Some(wanted)) => {
            let own = trace.block_size_bytes();
            if wanted % own != 0 {
                let found = format!("--block-size {}", ByteSize::new(wanted));
                let expected = format!("its own of {} or a multiple", ByteSize::new(own));
                return Err(TraceError::Normalised { path: name_of(path), found, expected });
            }
            wanted
        }
        _ => requests.block_size_bytes(settings)?,
    };
    // The requests stay the same, so the description stays valid.
    let known = match &requests {
        Requests::Normalised(trace, _) => Some(trace.description().clone()),
        Requests::Original(..) | Requests::Merged(..) => None,
    };
    let inputs = [path.to_owned()];
    write_whole(out, &inputs, |file| {
        let mut normaliser = Normaliser::to(&output_name(out), &name_of(path), block_size_bytes, file)?;
        normaliser.description = requests.about();
        requests.for_each_batch(block_size_bytes, &mut |batch| normaliser.batch(batch).map(ControlFlow::Continue))?;
        if let Some(known) = known {
            normaliser.description = known;
        }
        let description = normaliser.described();
        normaliser.finish()?;
        Ok(description)
    })
}
