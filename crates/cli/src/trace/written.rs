//! Output of commands that write a trace: a check of its name, and a summary.

use std::io::Write;
use std::path::Path;

use flashwise_core::human;
use flashwise_trace::output::{is_stream, name_of};

use crate::failure::Misuse;
use crate::log;

/// Endings of names of files in other formats.
const OTHERS: [&str; 10] = ["csv", "txt", "json", "jsonl", "parquet", "zst", "gz", "bz2", "xz", "zip"];

/// Refuses a name for a normalised trace that has the ending of another format.
pub fn check_name(out: &Path) -> Result<(), Misuse> {
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let Some(ending) = ending.filter(|ending| OTHERS.contains(&ending.as_str())) else { return Ok(()) };
    let name = name_of(out);
    Err(Misuse(format!(
        "{name}: found a name that ends in .{ending}, expected one that ends in .arrow for an Arrow file; write CSV \
         with \
         `flashwise trace export`"
    )))
}

/// Prints the number of requests written and the file's size, unless `out` is standard output or another stream.
pub fn tell(out: &Path, requests: u64) -> std::io::Result<()> {
    if log::is_quiet() || is_stream(out).unwrap_or(true) {
        return Ok(());
    }
    let written = std::fs::metadata(out)?;
    let bytes = human::bytes(written.len() as f64);
    writeln!(std::io::stdout(), "{}: {}, {bytes}", name_of(out), human::counted(requests, "request"))
}
