//! `flashwise completions`: what a shell completes on its command line.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print what a shell needs to complete flashwise's commands and options
///
/// bash: flashwise completions bash > ~/.local/share/bash-completion/completions/flashwise. The packages install those of bash, zsh and
/// fish.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
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
