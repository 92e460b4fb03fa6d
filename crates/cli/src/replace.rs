//! Permission to overwrite an existing file.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_trace::output::{check_writable, is_stream, name_of};

use crate::failure::Misuse;

/// The option shared by commands whose output is not easily made again.
#[derive(Debug, Args)]
pub struct Replace {
    /// Overwrite an existing file without asking
    #[arg(long, hide_short_help = true)]
    force: bool,
}

impl Replace {
    /// Checks that `out` can and may be written from these traces, before they are read. Asks the user before it
    /// replaces a file.
    ///
    /// # Errors
    /// The file cannot be written, or exists and is not to be replaced, or there is no terminal to ask on.
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
