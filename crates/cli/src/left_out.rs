//! Explains that a command is missing because its feature was left out of the build.

use clap::error::{ContextKind, ContextValue, Error};

/// Optional features: name, true if it is built in, and its commands.
const FEATURES: [(&str, bool, &[&str]); 2] = [
    (
        "serve",
        cfg!(feature = "serve"),
        &[
            "serve", "status", "flush", "page", "set", "disks", "volume", "pool", "disk", "detach", "attach", "check",
            "wipe", "demo", "capture",
        ],
    ),
    ("parquet", cfg!(feature = "parquet"), &["sweep"]),
];

/// Explains the error of a command that was left out.
pub fn explain(error: &Error) -> Option<String> {
    let ContextValue::String(command) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    let is_left_out = |(_, built, commands): &&(&str, bool, &[&str])| !built && commands.contains(&command.as_str());
    let (feature, ..) = FEATURES.iter().find(is_left_out)?;
    Some(format!(
        "{command} needs a flashwise built with the feature {feature}, for example by `cargo install --path crates/cli`"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn commands_of_features_are_there_or_are_explained() {
        let command = crate::Arguments::command();
        for (feature, built, commands) in FEATURES {
            for name in commands {
                assert_eq!(command.find_subcommand(name).is_some(), built, "{name}");
                let Err(error) = crate::Arguments::command().try_get_matches_from(["flashwise", "trace", *name]) else {
                    panic!("trace {name}")
                };
                assert_eq!(explain(&error).is_some(), !built, "{feature}");
            }
        }
    }

    #[test]
    fn an_unknown_command_is_not_explained() {
        let error = crate::Arguments::command().try_get_matches_from(["flashwise", "nothing"]).unwrap_err();
        assert_eq!(explain(&error), None);
    }

    #[cfg(feature = "serve")]
    #[test]
    fn every_command_of_a_live_cache_is_known_here() {
        use clap::Subcommand;

        let live = crate::live::Live::augment_subcommands(clap::Command::new("live"));
        let names: Vec<&str> = live.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, FEATURES[0].2);
    }
}
