//! `flashwise completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print a shell's completion script
///
/// bash: flashwise completions bash > ~/.local/share/bash-completion/completions/flashwise. The packages install the
/// scripts for bash, zsh and fish.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut crate::Arguments::command(), "flashwise", &mut script);
        Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
    }
}
