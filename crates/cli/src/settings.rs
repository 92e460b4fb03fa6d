//! Flags that are made from tables: of the cache's settings, and of the words of a job.

use clap::error::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use flashwise_core::cache::settings::{SETTINGS, Setting};
use flashwise_core::format::Layout;
use flashwise_core::options::Parameter;
use flashwise_sim::job::{Job, Key, LayoutName, Stage};

use crate::help;

/// The flag of a setting.
fn flag(setting: &Setting) -> Arg {
    Arg::new(setting.name()).long(setting.name()).value_name(setting.values)
}

/// Returns the setting's meaning and its default.
fn setting_help(setting: &Setting) -> String {
    let Parameter { meaning, default, .. } = setting.parameter;
    format!("{meaning} [default: {default}]")
}

/// Settings in the short help of `flashwise serve`.
const OFTEN_SET: [&str; 4] = ["ram", "policy", "admission", "write-mode"];

/// The given flags of `flashwise serve`, with their values as text, to be parsed like keys of a configuration.
#[derive(Debug, Default)]
pub struct ServeSettings(Vec<(&'static str, String)>);

impl ServeSettings {
    /// The given settings, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().cloned()
    }
}

impl Args for ServeSettings {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(|setting| {
            let is_rare = !OFTEN_SET.contains(&setting.name());
            let heading = if setting.is_of(Layout::Log) { "Cache" } else { "WLFC (--layout wlfc)" };
            flag(setting).help(setting_help(setting)).help_heading(heading).hide_short_help(is_rare)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServeSettings::augment_args(command)
    }
}

impl FromArgMatches for ServeSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ServeSettings> {
        let given = |setting: &Setting| Some((setting.name(), matches.get_one::<String>(setting.name())?.clone()));
        Ok(ServeSettings(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = ServeSettings::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The given flags of a simulation that are made from the table of words: those of the devices around the cache, or
/// those of layouts.
#[derive(Clone, Debug, Default)]
pub struct Words<const ARRAY: bool>(Vec<(Key, String)>);

impl<const ARRAY: bool> Words<ARRAY> {
    fn keys() -> impl Iterator<Item = Key> {
        Key::all().filter(|key| key.about().is_some() && (key.stage() == Stage::Array) == ARRAY)
    }

    /// Puts the given words into `job`.
    pub fn put(&self, job: &mut Job) {
        for (key, text) in &self.0 {
            key.set(job, text).expect("the flag was read before");
        }
    }
}

/// Returns the heading of a word's flag.
fn heading(key: Key) -> &'static str {
    match key.implies() {
        _ if key.stage() == Stage::Array => help::ADMISSION,
        Some(LayoutName::InPlace) => help::WEAR,
        _ if key.layouts().contains(&LayoutName::Log) => help::LAYOUT,
        _ => help::BUCKETS,
    }
}

impl<const ARRAY: bool> Args for Words<ARRAY> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::keys().filter_map(|key| {
            let (values, about) = key.about()?;
            let read = move |text: &str| key.set(&mut Job::default(), text).map(|()| text.to_owned());
            let flag = Arg::new(key.name()).long(key.name()).value_name(values).value_parser(read);
            let flag = flag.help_heading(heading(key));
            Some(match about.split_once("\n\n") {
                Some((short, _)) => flag.help(short.trim_end_matches('.').to_owned()).long_help(about),
                None => flag.help(about),
            })
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const ARRAY: bool> FromArgMatches for Words<ARRAY> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self> {
        let given = |key: Key| Some((key, matches.get_one::<String>(key.name())?.clone()));
        Ok(Words(Self::keys().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Lists the settings that `flashwise set` can change, for its help.
pub fn settable_help() -> String {
    let line =
        |setting: &Setting| format!("  {}={}\n      {}", setting.name(), setting.values, setting.parameter.meaning);
    let lines: Vec<String> = Setting::settable().map(line).collect();
    format!("Settings:\n{}", lines.join("\n"))
}
