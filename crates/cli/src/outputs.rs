//! The output files of a command.

use std::io::Write;
use std::path::{Path, PathBuf};

use flashwise_trace::output::{check_writable, is_same_place, is_standard_output};

use crate::failure::Misuse;

/// The output files of a command. If one of them is standard output, nothing else is printed there.
pub struct Outputs<'a> {
    /// Each with its option.
    outputs: Vec<(&'static str, &'a Path)>,
    /// True if an option asks for other data on standard output.
    prints_data: bool,
}

impl<'a> Outputs<'a> {
    /// The given outputs, each with its option. `prints_data` is true if `--json` or `--csv` is given.
    pub fn new(outputs: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>, prints_data: bool) -> Self {
        let given = |(option, path): (_, Option<&'a Path>)| path.map(|path| (option, path));
        Outputs { outputs: outputs.into_iter().filter_map(given).collect(), prints_data }
    }

    /// Checks that the outputs can be written, before long work.
    ///
    /// # Errors
    /// Two outputs have the same path, or [`check_writable`] refuses one.
    pub fn check(&self, inputs: &[PathBuf]) -> anyhow::Result<()> {
        for (at, (option, path)) in self.outputs.iter().enumerate() {
            if let Some((other, _)) = self.outputs[..at].iter().find(|(_, other)| is_same_place(other, path)) {
                return Err(Misuse(format!("{other} and {option} name the same file")).into());
            }
            if self.prints_data && is_standard_output(path) {
                let found = "found standard output, to which --json or --csv writes";
                return Err(Misuse(format!("{option}: {found}, expected a file")).into());
            }
            check_writable(path, inputs)?;
        }
        Ok(())
    }

    /// Standard output, or a sink if one of the outputs goes there.
    pub fn screen(&self) -> Box<dyn Write> {
        if self.outputs.iter().any(|(_, path)| is_standard_output(path)) {
            return Box::new(std::io::sink());
        }
        Box::new(std::io::stdout().lock())
    }
}
