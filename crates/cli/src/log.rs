//! Messages on standard error: their level, and their format, text or one JSON object a line.
//!
//! Messages of the program have a level, like those of the cache and the server. In text they start with the program's
//! name. Messages of a server name their event, and what it is about, in fields: docs/log.md.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use clap::{ArgAction, Args, ValueEnum};
use serde_json::{Map, Value, json};
use tracing::Level;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::fit;

/// Options for messages, which every command has.
#[derive(Clone, Debug, Args)]
pub struct LogOptions {
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 1000)]
    quiet: bool,
    /// Print more messages; -vv prints all of them
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 1000, hide_short_help = true)]
    verbose: u8,
    /// Format of messages on standard error: text or json
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text", display_order = 1000)]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    log_format: Format,
}

/// Format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line of text.
    Text,
    /// A JSON object a line, with timestamp, level, message and the fields of an event.
    Json,
}

/// The options given at start.
struct Chosen {
    format: Format,
    /// The level given on the command line, if any.
    level: Option<LevelFilter>,
    filter: reload::Handle<LevelFilter, Registry>,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();

impl LogOptions {
    /// Installs the logger. Call it once, before the first message.
    pub fn start(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Some(LevelFilter::ERROR),
            (false, 0) => None,
            (false, 1) => Some(LevelFilter::DEBUG),
            (false, _) => Some(LevelFilter::TRACE),
        };
        let (filter, handle) = reload::Layer::new(level.unwrap_or(LevelFilter::INFO));
        // Write errors are dropped: they would go to standard error, which has just failed.
        let messages =
            fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false).log_internal_errors(false);
        let messages = match self.log_format {
            Format::Text => messages.without_time().fmt_fields(TextFields).boxed(),
            Format::Json => messages.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
        };
        // Details from libraries, such as retries, need -vv.
        let all = self.verbose > 1;
        let of_libraries =
            filter_fn(move |about| all || about.target().starts_with("flashwise") || *about.level() <= Level::WARN);
        let messages = messages.with_filter(of_libraries);
        // Cannot fail: no other logger is installed.
        let _ = tracing_subscriber::registry().with(filter).with(messages).try_init();
        let _ = CHOSEN.set(Chosen { format: self.log_format, level, filter: handle });
    }
}

/// Sets the level of the server's messages, unless the command line has set it.
pub fn set_level(level: LevelFilter) {
    let Some(chosen) = CHOSEN.get() else { return };
    if chosen.level.is_none() {
        // Fails only if the logger is gone.
        let _ = chosen.filter.modify(|current| *current = level);
    }
}

/// Fields of a message in text: the message, then the others except the event, which the message describes.
struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        let mut text = Text { writer, result: Ok(()), is_first: true };
        fields.record(&mut text);
        text.result
    }
}

struct Text<'writer> {
    writer: Writer<'writer>,
    result: std::fmt::Result,
    is_first: bool,
}

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let name = field.name();
        // Those of the `log` crate say where a message of a library is from.
        if name == EVENT || name.starts_with("log.") || self.result.is_err() {
            return;
        }
        let space = if std::mem::take(&mut self.is_first) { "" } else { " " };
        self.result = match name {
            "message" => write!(self.writer, "{space}{value:?}"),
            _ => write!(self.writer, "{space}{}={value:?}", name.trim_start_matches("r#")),
        };
    }
}

/// The field that names an event.
const EVENT: &str = "event";

/// Prints a message of a level.
pub fn tell(level: Level, text: &str) {
    tell_event(level, None, &[], text);
}

/// Prints a message about an event of a server. JSON has its name and its fields too.
pub fn tell_event(level: Level, event: Option<&str>, fields: &[(&str, Value)], text: &str) {
    let Some(chosen) = CHOSEN.get() else { return };
    // The level in a configuration applies to the server only.
    if level > chosen.level.unwrap_or(LevelFilter::INFO) {
        return;
    }
    let line = match chosen.format {
        Format::Text => fit::sentences(&format!("flashwise: {}", visible(text)), 0, fit::width_of_errors()),
        Format::Json => json(level, text, event, fields),
    };
    // If standard error is closed, such as with a terminal, the program continues.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Escapes control characters, which would reach the terminal from a name or a path. Line breaks stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let escaped = |letter: char| if is_hidden(letter) { letter.escape_default().to_string() } else { letter.into() };
    text.chars().map(escaped).collect()
}

/// A message as a JSON object.
pub fn json(level: Level, text: &str, event: Option<&str>, fields: &[(&str, Value)]) -> String {
    let own = [("timestamp", json!(now())), ("level", json!(level.as_str())), ("message", json!(text))];
    let event = event.map(|event| (EVENT, json!(event)));
    let all = own.into_iter().chain(event).chain(fields.iter().cloned());
    Value::Object(all.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>()).to_string()
}

/// True if a command line, valid or not, asks for messages in JSON.
pub fn is_json_asked_for(arguments: &[OsString]) -> bool {
    let follows = |pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json";
    arguments.windows(2).any(follows) || arguments.iter().any(|argument| argument == "--log-format=json")
}

/// The time, in the format of the server's messages.
fn now() -> String {
    let mut now = String::new();
    // Writing to memory does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    now
}

/// True if only errors are printed.
pub fn is_quiet() -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen.level == Some(LevelFilter::ERROR))
}

/// True if progress is shown: on a terminal, as text, unless quiet.
pub fn shows_progress() -> bool {
    let for_people = CHOSEN.get().is_some_and(|chosen| chosen.format == Format::Text);
    for_people && !is_quiet() && std::io::stderr().is_terminal()
}

/// Prints a note for the operator.
macro_rules! note {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::INFO, &format!($($text)*)) };
}

/// Prints a warning.
macro_rules! warning {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::WARN, &format!($($text)*)) };
}

/// Prints a message about an event of a server: its level, name, fields and text.
#[cfg(feature = "serve")]
macro_rules! event {
    ($level:ident, $event:literal, [$($field:ident = $value:expr),*], $($text:tt)*) => {
        $crate::log::tell_event(
            tracing::Level::$level,
            Some($event),
            &[$((stringify!($field), serde_json::json!($value))),*],
            &format!($($text)*),
        )
    };
}

/// Prints a detail about a result, with `--verbose`.
macro_rules! detail {
    ($($text:tt)*) => { $crate::log::tell(tracing::Level::DEBUG, &format!($($text)*)) };
}

#[cfg(feature = "serve")]
pub(crate) use event;
pub(crate) use {detail, note, warning};
