//! The help of `flashwise simulate`: one screen of what most runs need, and the rest by topic, `--help=TOPIC`.

use clap::{Arg, CommandFactory, ValueEnum};

/// What `--help` tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// What most runs need.
    Main,
    /// How traces are read.
    Input,
    /// What is admitted, how long requests wait, and how long devices last.
    Admission,
    /// Where blocks lie, RAM, and the whole cache that `flashwise serve` runs.
    Layout,
    /// How fast the flash wears out.
    Wear,
    /// Caches that evict whole buckets.
    Buckets,
    /// All of it.
    All,
}

/// The headings of the topics' options, in the order in which they stand in `--help=all`.
pub const INPUT: &str = "How traces are read";
pub const ADMISSION: &str = "What is admitted, how long requests wait, and how long the devices last";
pub const LAYOUT: &str = "Where blocks lie, and the whole cache that flashwise serve runs: --layout log";
pub const WEAR: &str = "How fast the flash wears out: --layout in-place, --layout log with --device, or algorithms with a layout of \
                        their own: m, m+, c, h and their kin, ripq+, pannier, bcache";

pub const BUCKETS: &str = "Caches that evict whole buckets, one request after the other: --layout wlfc, wlfc_c, b-like";

/// What stands below the one screen.
pub const MORE: &str = "More options:\n  \
    --help=input      how traces are read: formats, block sizes, malformed records\n  \
    --help=admission  what is admitted, how long requests wait, how long the devices last\n  \
    --help=layout     where blocks lie, and the whole cache of flashwise serve\n  \
    --help=wear       how fast the flash wears out\n  \
    --help=buckets    caches that evict whole buckets: WLFC, and one modelled after bcache\n  \
    --help=all        all of it";

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

    /// Prints what a command can do, as far as the topic goes.
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

/// Shows an option if it stands under the heading.
fn shown(arg: Arg, heading: Option<&str>) -> Arg {
    let elsewhere = arg.get_help_heading() != heading;
    arg.hide(elsewhere)
}
