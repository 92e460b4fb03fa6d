//! The list of commands by group, and the help of `flashwise simulate`: one screen, and more by topic, `--help=TOPIC`.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory, ValueEnum};

/// A topic of `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// Options of most runs.
    Main,
    /// Trace input.
    Input,
    /// Admission rules, waiting requests and devices.
    Admission,
    /// Layouts on flash, RAM, and the whole cache of `flashwise serve`.
    Layout,
    /// Flash wear.
    Wear,
    /// Caches that evict whole buckets.
    Buckets,
    /// Every option.
    All,
}

// The headings of the topics' options, in the order of `--help=all`.
pub const INPUT: &str = "Trace input";
pub const ADMISSION: &str = "Admission, arrivals and devices";
pub const LAYOUT: &str = "Layout on flash, and the whole cache of flashwise serve (--layout log)";
pub const WEAR: &str = "Flash wear (--layout in-place; --layout log with --device; algorithms with a layout of their \
    own: m, m+, c, h \
                        and variants, ripq+, pannier, bcache)";
pub const BUCKETS: &str = "Caches that evict whole buckets (--layout wlfc, wlfc_c, b-like)";

/// The topics, listed below the main screen.
pub const MORE: &str = concat!(
    "More options:\n",
    "  --help=input      trace input: formats, block sizes, malformed records\n",
    "  --help=admission  admission rules, waiting requests, devices\n",
    "  --help=layout     layouts on flash, and the whole cache of flashwise serve\n",
    "  --help=wear       flash wear\n",
    "  --help=buckets    caches that evict whole buckets: WLFC, bcache\n",
    "  --help=all        every option"
);

/// Commands by purpose, in the order of the list. Others follow under [`OTHER_COMMANDS`].
const GROUPS: [(&str, &[&str]); 3] = [
    ("Find out", &["simulate", "advise", "curve", "pareto", "sweep", "lifetime", "policies", "trace", "capture"]),
    ("Serve", &["serve", "demo", "volume", "pool", "disk", "set", "flush"]),
    ("Look after", &["status", "page", "disks", "detach", "attach", "check", "wipe"]),
];
const OTHER_COMMANDS: &str = "Other";

/// The program with its commands in groups: clap knows one list only.
pub fn with_groups(mut program: Command) -> Command {
    program.build();
    let styles = program.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let commands: Vec<&Command> = program.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let width = commands.iter().map(|command| command.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, commands) in groups(&program) {
        if title == OTHER_COMMANDS {
            let names: Vec<&str> = commands.iter().map(|command| command.get_name()).collect();
            let _ = writeln!(text, "{header}{title}:{header:#} {}\n", names.join(", "));
            continue;
        }
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for command in commands {
            let (name, about) = (command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default());
            let _ = writeln!(text, "  {literal}{name}{literal:#}{:blank$}  {about}", "", blank = width - name.len());
        }
        text.push('\n');
    }
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}{header}Options:{header:#}\n{{options}}"
    ))
}

/// Returns the visible commands of the program by group.
pub fn groups(program: &Command) -> Vec<(&'static str, Vec<&Command>)> {
    let commands: Vec<&Command> = program.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let find = |name: &&str| commands.iter().find(|command| command.get_name() == *name).copied();
    let mut groups: Vec<_> =
        GROUPS.iter().map(|(title, names)| (*title, names.iter().filter_map(find).collect())).collect();
    let is_other = |command: &&Command| GROUPS.iter().all(|(_, names)| !names.contains(&command.get_name()));
    groups.push((OTHER_COMMANDS, commands.iter().copied().filter(is_other).collect()));
    groups
}

impl Topic {
    /// The heading of the topic's options.
    fn heading(self) -> Option<&'static str> {
        match self {
            Topic::Main | Topic::All => None,
            Topic::Input => Some(INPUT),
            Topic::Admission => Some(ADMISSION),
            Topic::Layout => Some(LAYOUT),
            Topic::Wear => Some(WEAR),
            Topic::Buckets => Some(BUCKETS),
        }
    }

    /// Prints the help of a command on the topic.
    pub fn print(self, name: &str) -> std::io::Result<()> {
        let mut program = crate::Arguments::command();
        program.build();
        let command = program.find_subcommand(name).expect("a command of the program").clone();
        let command = command.override_usage(format!("flashwise {name} [OPTIONS] <TRACE>..."));
        match self {
            Topic::Main => command.after_help(MORE).mut_args(|arg| shown(arg, None)).print_help(),
            Topic::All => command.after_help("").print_long_help(),
            topic => command.mut_args(|arg| shown(arg, topic.heading())).print_long_help(),
        }
    }
}

/// Leaves options with a heading out of the short help, for commands that share the options of `simulate`.
pub fn without_stages(arg: Arg) -> Arg {
    let has_heading = arg.get_help_heading().is_some();
    arg.hide_short_help(has_heading)
}

/// Shows an option if it stands under the heading.
fn shown(arg: Arg, heading: Option<&str>) -> Arg {
    let elsewhere = arg.get_help_heading() != heading;
    arg.hide(elsewhere)
}
