//! What the program tells on standard error besides its results: how much of it, and whether for people or as JSON, one object a line.
//!
//! Messages of the program itself have a level as those of the cache and the server have. For people they stand behind the program's name.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use clap::{ArgAction, Args, ValueEnum};
use serde_json::json;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::fit;

/// How much is told, and how; the same for every command.
#[derive(Clone, Debug, Args)]
pub struct LogOptions {
    /// Tell nothing but errors on standard error: no notes, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 1000)]
    quiet: bool,
    /// Tell more on standard error; twice, still more
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 1000)]
    verbose: u8,
    /// How messages on standard error are written
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text", display_order = 1000)]
    log_format: Format,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line of text.
    Text,
    /// A JSON object with timestamp, level and message on a line.
    Json,
}

/// What was chosen when the program began.
struct Chosen {
    format: Format,
    /// The level that was asked for, if any was.
    level: Option<LevelFilter>,
    filter: reload::Handle<LevelFilter, Registry>,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();

impl LogOptions {
    /// Begins to tell. Called once, before anything is told.
    pub fn start(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Some(LevelFilter::ERROR),
            (false, 0) => None,
            (false, 1) => Some(LevelFilter::DEBUG),
            (false, _) => Some(LevelFilter::TRACE),
        };
        let (filter, handle) = reload::Layer::new(level.unwrap_or(LevelFilter::INFO));
        // Errors of writing go nowhere: standard error, where they would be told, is what cannot be written.
        let told =
            fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false).log_internal_errors(false);
        let told = match self.log_format {
            Format::Text => told.without_time().boxed(),
            Format::Json => told.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
        };
        // What libraries do, such as that they ask again, is told only with all else.
        let all = self.verbose > 1;
        let of_libraries =
            filter_fn(move |about| all || about.target().starts_with("flashwise") || *about.level() <= Level::WARN);
        let told = told.with_filter(of_libraries);
        // Fails where somebody else has begun to tell, which nobody has.
        let _ = tracing_subscriber::registry().with(filter).with(told).try_init();
        let _ = CHOSEN.set(Chosen { format: self.log_format, level, filter: handle });
    }
}

/// Lets the parts of a server tell so much, unless the command line says how much.
pub fn set_level(level: LevelFilter) {
    let Some(chosen) = CHOSEN.get() else { return };
    if chosen.level.is_none() {
        // Fails only where the log is gone.
        let _ = chosen.filter.modify(|current| *current = level);
    }
}

/// Tells something of a level.
pub fn tell(level: Level, text: &str) {
    let Some(chosen) = CHOSEN.get() else { return };
    // The level of a configuration is that of the server's parts.
    if level > chosen.level.unwrap_or(LevelFilter::INFO) {
        return;
    }
    let line = match chosen.format {
        Format::Text => fit::sentences(&format!("flashwise: {}", visible(text)), 0, fit::width_of_errors()),
        Format::Json => json(level, text),
    };
    // Where nobody listens any more, such as on a terminal that was closed, the program goes on.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The text with control characters escaped, which would reach the terminal from a name or a path; it keeps its lines.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let escaped = |letter: char| if is_hidden(letter) { letter.escape_default().to_string() } else { letter.into() };
    text.chars().map(escaped).collect()
}

/// A message as a JSON object.
pub fn json(level: Level, text: &str) -> String {
    json!({"timestamp": now(), "level": level.as_str(), "message": text}).to_string()
}

/// Whether a command line, which may be a wrong one, asks for messages in JSON.
pub fn is_json_asked_for(arguments: &[OsString]) -> bool {
    let follows = |pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json";
    arguments.windows(2).any(follows) || arguments.iter().any(|argument| argument == "--log-format=json")
}

/// The time, as it stands in messages of the server's parts.
fn now() -> String {
    let mut now = String::new();
    // Writing to memory does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    now
}

/// Whether nothing is to be told that nobody asked for.
pub fn is_quiet() -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen.level == Some(LevelFilter::ERROR))
}

/// Whether progress is shown: on a terminal, for people, unless it is to be quiet.
pub fn shows_progress() -> bool {
    let for_people = CHOSEN.get().is_some_and(|chosen| chosen.format == Format::Text);
    for_people && !is_quiet() && std::io::stderr().is_terminal()
}

/// Tells the operator what happens.
macro_rules! note {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::INFO, &format!($($text)*)) };
}

/// Tells the user what may be wrong.
macro_rules! warning {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::WARN, &format!($($text)*)) };
}

/// Tells who asked for more how a result came about.
macro_rules! detail {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::DEBUG, &format!($($text)*)) };
}

pub(crate) use {detail, note, warning};
