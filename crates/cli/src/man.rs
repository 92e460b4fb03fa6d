//! `flashwise man`: its manual pages.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

/// Write the manual pages, flashwise.1 and one for each command, to a directory
#[derive(Debug, Args)]
pub struct Man {
    /// The directory, which is made if it is missing
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Man {
    pub fn run(&self) -> anyhow::Result<()> {
        let into = || self.directory.display().to_string();
        std::fs::create_dir_all(&self.directory).with_context(into)?;
        clap_mangen::generate_to(crate::Arguments::command(), &self.directory).with_context(into)
    }
}
