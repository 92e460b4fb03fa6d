//! Whether something may be written where a file is already.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_trace::output::{check_writable, is_stream, name_of};

use crate::failure::Misuse;

/// What commands share that write what is not easily made again.
#[derive(Debug, Args)]
pub struct Replace {
    /// Replace the file if it is there, without asking
    #[arg(long)]
    force: bool,
}

impl Replace {
    /// Whether `out` can and may be written from these traces, before they are read: where a file is already, the user is asked, and where
    /// nobody can answer, it stays as it is.
    pub fn check(&self, out: &Path, traces: &[PathBuf]) -> anyhow::Result<()> {
        check_writable(out, traces)?;
        if self.force || is_stream(out)? || !out.is_file() {
            return Ok(());
        }
        let name = name_of(out);
        let (input, mut asking) = (std::io::stdin(), std::io::stderr());
        if !(input.is_terminal() && asking.is_terminal()) {
            return Err(Misuse(format!("{name}: found a file, expected none, or --force to replace it")).into());
        }
        write!(asking, "{name} is there already. Replace it? [y/N] ")?;
        let mut answer = String::new();
        input.read_line(&mut answer)?;
        if answer.trim().eq_ignore_ascii_case("y") || answer.trim().eq_ignore_ascii_case("yes") {
            return Ok(());
        }
        Err(Misuse(format!("{name}: left as it was")).into())
    }
}
