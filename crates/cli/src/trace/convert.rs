//! `flashwise trace convert`: a trace of any kind to a normalised one.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_trace::human;
use flashwise_trace::output::{check_writable, name_of};

use crate::failure::Misuse;
use crate::input::{InputOptions, reading, warn};
use crate::log;

/// Convert a trace to a normalised one, an Arrow IPC file
///
/// Requests are cut into block accesses and blocks numbered. Other commands then map the file instead of reading the original
/// again. Blocks of a normalised trace can be made larger with --block-size.
#[derive(Debug, Args)]
pub struct Convert {
    /// A trace of any format, or a normalised one; - is standard input
    trace: PathBuf,
    /// The file to write; - is standard output
    #[arg(value_name = "OUT.arrow")]
    out: PathBuf,
    /// Replace the file if it is there, without asking
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    input: InputOptions,
}

impl Convert {
    pub fn run(&self) -> anyhow::Result<()> {
        check_writable(&self.out, std::slice::from_ref(&self.trace))?;
        if !self.force {
            may_replace(&self.out)?;
        }
        let bar = reading(std::slice::from_ref(&self.trace));
        let about = flashwise_trace::tools::convert::convert(&self.trace, &self.out, &self.input.settings(), &bar)?;
        drop(bar);
        warn(&name_of(&self.trace), &about);
        if let Some(written) = file(&self.out).filter(|_| !log::is_quiet()) {
            let bytes = human::bytes(written.len() as f64);
            writeln!(
                std::io::stdout(),
                "{}: {}, {bytes}",
                name_of(&self.out),
                human::counted(about.requests, "request")
            )?;
        }
        Ok(())
    }
}

/// The regular file at `path`, if there is one.
fn file(path: &Path) -> Option<std::fs::Metadata> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)
}

/// Asks whether a file that is there may be replaced; where nobody can answer, it may not.
fn may_replace(out: &Path) -> anyhow::Result<()> {
    if out == Path::new("-") || file(out).is_none() {
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
