//! `flashwise man`: the manual pages.

#[cfg(feature = "serve")]
mod configuration;
mod pages;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};
use flashwise_trace::output::write_whole;

use crate::failure::Misuse;
use crate::help;

/// Write the manual pages to a directory
///
/// The pages are flashwise(1), one for each command, and flashwise.toml(5). The page of `serve` is in section 8.
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
        write(&self.directory, "flashwise.1", |file| overview(&command, file))?;
        #[cfg(feature = "serve")]
        write(&self.directory, "flashwise.toml.5", |file| {
            configuration::page(&mut title("flashwise.toml", "5"), file)
        })?;
        command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| self.of(command))
    }

    /// Writes the pages of a command and its subcommands.
    fn of(&self, command: &Command) -> anyhow::Result<()> {
        command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| self.of(command))?;
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let section = section(name);
        write(&self.directory, &format!("{name}.{section}"), |file| match section {
            "8" => server(command, file),
            _ => of_command(command, file),
        })
    }
}

/// Returns the section of a command's page.
fn section(name: &str) -> &'static str {
    if name == "flashwise-serve" { "8" } else { "1" }
}

/// Writes a page, completely or not at all.
fn write(directory: &Path, name: &str, render: impl Fn(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    write_whole(directory.join(name), &[], |file| anyhow::Ok(render(file)?))
}

/// A paragraph of a page.
pub enum Text {
    /// Prose.
    Plain(&'static str),
    /// Commands, each a line.
    Commands(&'static str),
    /// A name and its meaning.
    Entry(&'static str, &'static str),
}

/// A section of a page.
pub type Section = (&'static str, &'static [Text]);

/// Date of the last change of these pages. It is fixed, so that builds of a package are reproducible.
const DATE: &str = "2026-11-29";

fn title(name: &str, section: &str) -> Roff {
    let mut roff = Roff::new();
    let version = concat!("flashwise ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name.to_uppercase().as_str(), section, DATE, version]);
    roff
}

/// Renders the options of a command.
fn options(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let mut rendered = Vec::new();
    Page::new(command.clone()).render_options_section(&mut rendered)?;
    // A blank line is a space, and breaks beside it are superfluous.
    let rendered = String::from_utf8_lossy(&rendered).replace(".br\n\n.br\n", ".sp\n").replace("\n\n.br\n", "\n.br\n");
    out.write_all(rendered.as_bytes())
}

fn add(roff: &mut Roff, sections: &[Section]) {
    for (heading, texts) in sections {
        roff.control("SH", [*heading]);
        for (at, text) in texts.iter().enumerate() {
            if at > 0 && !matches!(text, Text::Entry(..)) {
                roff.control("PP", []);
            }
            match text {
                Text::Plain(text) => {
                    roff.text([roman(*text)]);
                }
                Text::Commands(lines) => {
                    roff.control("EX", []);
                    for line in lines.lines() {
                        roff.text([roman(line)]);
                    }
                    roff.control("EE", []);
                }
                Text::Entry(name, meaning) => {
                    roff.control("TP", []);
                    roff.text([bold(*name)]);
                    roff.text([roman(*meaning)]);
                }
            }
        }
    }
}

fn name(roff: &mut Roff, name: &str, about: &str) {
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {}", about.trim_end_matches('.')))]);
}

/// Renders the first parts of a command's page.
fn beginning(command: &Command, roff: &mut Roff) {
    let of = command.get_display_name().unwrap_or_else(|| command.get_name());
    name(roff, of, &command.get_about().map(ToString::to_string).unwrap_or_default());
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage(command))]);
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    for (at, paragraph) in about.split("\n\n").enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        for line in paragraph.lines() {
            roff.text([roman(line)]);
        }
    }
}

/// Returns the usage in one line. Optional flags have no names there, because some commands have more than 50.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    usage.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders flashwise(1): an overview with references to all pages.
fn overview(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = title("flashwise", "1");
    beginning(command, &mut roff);
    roff.control("SH", ["COMMANDS"]);
    for (group, commands) in help::groups(command) {
        roff.control("SS", [group]);
        for command in commands {
            let of = command.get_display_name().unwrap_or_else(|| command.get_name());
            roff.control("TP", []);
            roff.text([bold(of), roman(format!("({})", section(of)))]);
            roff.text([roman(command.get_about().map(ToString::to_string).unwrap_or_default())]);
        }
    }
    roff.to_writer(out)?;
    options(command, out)?;
    let mut roff = Roff::new();
    add(&mut roff, pages::OVERVIEW);
    roff.to_writer(out)
}

/// Renders flashwise-serve(8).
fn server(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = title("flashwise-serve", "8");
    beginning(command, &mut roff);
    roff.to_writer(out)?;
    options(command, out)?;
    let mut roff = Roff::new();
    add(&mut roff, pages::SERVER);
    roff.to_writer(out)
}

fn of_command(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let of = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut roff = title(of, "1");
    beginning(command, &mut roff);
    roff.to_writer(out)?;
    options(command, out)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        Page::new(command.clone()).render_subcommands_section(out)?;
    }
    let mut roff = Roff::new();
    add(&mut roff, pages::COMMAND);
    roff.to_writer(out)
}
