//! What commands share that write a trace: the name that it may have, and what is told of it.

use std::io::Write;
use std::path::Path;

use flashwise_trace::human;
use flashwise_trace::output::{is_stream, name_of};

use crate::failure::Misuse;
use crate::log;

/// Endings of names that say of what another format a file is.
const OTHERS: [&str; 10] = ["csv", "txt", "json", "jsonl", "parquet", "zst", "gz", "bz2", "xz", "zip"];

/// Refuses a name for a normalised trace that says that it is something else.
pub fn check_name(out: &Path) -> Result<(), Misuse> {
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let Some(ending) = ending.filter(|ending| OTHERS.contains(&ending.as_str())) else { return Ok(()) };
    let name = name_of(out);
    Err(Misuse(format!(
        "{name}: found a name that ends in .{ending}, expected one that ends in .arrow, since an Arrow file is what is written; \
         `flashwise trace export` writes CSV"
    )))
}

/// Says how many requests were written and how long the file is, unless it is standard output or something else that is no file.
pub fn tell(out: &Path, requests: u64) -> std::io::Result<()> {
    if log::is_quiet() || is_stream(out).unwrap_or(true) {
        return Ok(());
    }
    let written = std::fs::metadata(out)?;
    let bytes = human::bytes(written.len() as f64);
    writeln!(std::io::stdout(), "{}: {}, {bytes}", name_of(out), human::counted(requests, "request"))
}
