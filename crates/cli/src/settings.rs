//! Flags for the cache's settings, made from their table.

use clap::error::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use flashwise_core::cache::settings::{SETTINGS, Setting, Settings, Value};
use flashwise_core::options::Parameter;
use flashwise_sim::job::{Key, read_setting};

/// The flag of a setting.
fn flag(setting: &Setting) -> Arg {
    Arg::new(setting.name()).long(setting.name()).value_name(setting.values)
}

/// Returns the setting's meaning, a note and its default.
fn help(setting: &Setting, note: &str) -> String {
    let Parameter { meaning, default, .. } = setting.parameter;
    format!("{meaning}{note} [default: {default}]")
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
            flag(setting).help(help(setting, "")).help_heading("Cache").hide_short_help(is_rare)
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

/// Notes that the help of a simulation adds to the meaning of a setting.
const NOTES: [(&str, &str); 4] = [
    ("dirty-low", "; a lower --dirty-high lowers the default"),
    ("dirty-age", ", in the trace's time"),
    ("cache-clients", "; for traces with processes: fiu, blkparse, ftrace, biosnoop and etw"),
    ("allow-clients", "; a trace has pid and program only"),
];

/// The given flags of `flashwise simulate`, except those that it defines itself because they mean more there.
#[derive(Clone, Debug, Default)]
pub struct SimulateSettings(pub Settings);

impl Args for SimulateSettings {
    fn augment_args(command: Command) -> Command {
        command.args(Key::settings().map(|setting| {
            let note = NOTES.iter().find(|(name, _)| *name == setting.name()).map_or("", |(_, note)| note);
            flag(setting).help(help(setting, note)).value_parser(move |text: &str| read_setting(setting, text))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SimulateSettings::augment_args(command)
    }
}

impl FromArgMatches for SimulateSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SimulateSettings> {
        let mut settings = Settings::default();
        for setting in Key::settings() {
            if let Some(value) = matches.get_one::<Value>(setting.name()) {
                settings.set(setting, value.clone());
            }
        }
        Ok(SimulateSettings(settings))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = SimulateSettings::from_arg_matches(matches)?;
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
