//! `flashwise man`: the manual pages.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use flashwise_trace::output::write_whole;

use crate::failure::Misuse;

/// Write the manual pages to a directory
///
/// The pages are flashwise.1 and one for each command.
#[derive(Debug, Args)]
pub struct Man {
    /// Directory, created if missing
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Man {
    pub fn run(&self) -> anyhow::Result<()> {
        if self.directory.exists() && !self.directory.is_dir() {
            let name = self.directory.display();
            return Err(Misuse(format!("{name} is not a directory; give another path")).into());
        }
        std::fs::create_dir_all(&self.directory).with_context(|| self.directory.display().to_string())?;
        let mut command = crate::Arguments::command().disable_help_subcommand(true);
        command.build();
        write(command, &self.directory)
    }
}

/// Writes the pages of a command and its subcommands, each completely or not at all.
fn write(command: Command, directory: &Path) -> anyhow::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write(command.clone(), directory)?;
    }
    let page = Page::new(command);
    write_whole(directory.join(page.get_filename()), &[], |file| anyhow::Ok(page.render(file)?))
}
