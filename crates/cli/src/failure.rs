//! Exit codes: 0 for success, 1 for a failure, 2 for an error that a retry cannot fix: misuse or bad input.

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use flashwise_core::cache::settings::SettingError;
use flashwise_core::options::OptionError;
use flashwise_device::ArrayError;
use flashwise_sim::endurance::EnduranceError;
use flashwise_sim::size::SizeError;
use flashwise_trace::error::TraceError;
use flashwise_trace::output::STANDARD_OUTPUT;

/// Misuse that clap does not find, such as two contradictory options.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Prints the error, if any, and returns the exit code.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    // An I/O error without a path is from standard output.
    let is_full = error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::StorageFull);
    let error = if is_full { error.context(STANDARD_OUTPUT) } else { error };
    for text in all_that_is_wrong(&error) {
        crate::log::tell(tracing::Level::ERROR, &text);
    }
    ExitCode::from(if is_misuse(&error) { 2 } else { 1 })
}

/// The error for a closed standard output.
pub fn standard_output_closed() -> anyhow::Error {
    anyhow::anyhow!("{STANDARD_OUTPUT} is closed: open it, for example with >/dev/null")
}

/// Prints an error of the command line, as JSON if asked for, or the help or version.
pub fn of_command_line(error: &clap::Error, as_json: bool) -> ExitCode {
    let explained = crate::left_out::explain(error).or_else(|| is_configuration_as_a_flag(error));
    let (text, code) = match error.use_stderr() {
        // Help, or the version.
        false => match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => (format!("{STANDARD_OUTPUT}: {error}"), 1),
            _ if crate::closed::is_standard_output_closed() => (standard_output_closed().to_string(), 1),
            _ => return ExitCode::SUCCESS,
        },
        true if !as_json && explained.is_none() => error.exit(),
        true => (explained.unwrap_or_else(|| first_paragraph(error)), 2),
    };
    let line =
        if as_json { crate::log::json(tracing::Level::ERROR, &text, None, &[]) } else { format!("flashwise: {text}") };
    let _ = writeln!(std::io::stderr(), "{line}");
    ExitCode::from(code)
}

/// Explains the error of `serve --config FILE`.
fn is_configuration_as_a_flag(error: &clap::Error) -> Option<String> {
    let is = |kind, text: &str, exactly: bool| {
        error
            .get(kind)
            .map(ToString::to_string)
            .is_some_and(|found| if exactly { found == text } else { found.contains(text) })
    };
    let is_flag = error.kind() == ErrorKind::UnknownArgument && is(ContextKind::InvalidArg, "--config", true);
    (is_flag && is(ContextKind::Usage, "flashwise serve", false))
        .then(|| "serve has no flag --config; give the file only: flashwise serve FILE".to_owned())
}

/// Returns clap's error without the usage and hints that follow it.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The error's text is the help.
        let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
        return format!("no command given; usage: {usage}");
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).split("\n\n").next().unwrap_or_default();
    text.trim_end().to_owned()
}

/// True if the reader of standard output has closed it, as in `flashwise ... | head`. For another output that is a
/// failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    if let Some(TraceError::Io { path, .. }) = error.downcast_ref()
        && path != STANDARD_OUTPUT
    {
        return false;
    }
    let mut io = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

fn is_misuse(error: &anyhow::Error) -> bool {
    use TraceError::{
        Ambiguous, BlockSizes, Contradiction, Generate, NoProcesses, NoSuchVolume, Normalised, Option, OverwritesInput,
        Unsure,
    };
    let of_trace = |error: &TraceError| {
        let of_input = matches!(
            error,
            Option(_)
                | Ambiguous { .. }
                | Contradiction { .. }
                | Unsure { .. }
                | Normalised { .. }
                | NoSuchVolume { .. }
        );
        of_input || matches!(error, Generate(_) | BlockSizes { .. } | OverwritesInput { .. } | NoProcesses { .. })
    };
    let of_endurance = |error: &EnduranceError| match error {
        EnduranceError::Trace(error) => of_trace(error),
        _ => true,
    };
    error.is::<Misuse>()
        || error.downcast_ref::<EnduranceError>().is_some_and(of_endurance)
        || error.is::<SettingError>()
        || is_misuse_of_a_live_cache(error)
        || error.downcast_ref::<ArrayError>().is_some_and(|error| !matches!(error, ArrayError::Io { .. }))
        || error.is::<SizeError>()
        || error.is::<OptionError>()
        || error.downcast_ref::<TraceError>().is_some_and(of_trace)
}

/// Returns a message for each error; a configuration may have several.
#[cfg(feature = "serve")]
fn all_that_is_wrong(error: &anyhow::Error) -> Vec<String> {
    use flashwise_server::config::ConfigError;

    match error.downcast_ref() {
        Some(ConfigError::Several(errors)) => errors.iter().map(ToString::to_string).collect(),
        _ => vec![format!("{error:#}")],
    }
}

#[cfg(not(feature = "serve"))]
fn all_that_is_wrong(error: &anyhow::Error) -> Vec<String> {
    vec![format!("{error:#}")]
}

#[cfg(feature = "serve")]
fn is_misuse_of_a_live_cache(error: &anyhow::Error) -> bool {
    use flashwise_server::config::ConfigError;
    use flashwise_server::server::ServerError;
    use flashwise_storage::offline::capture::CaptureError;
    use flashwise_storage::offline::detach::DetachError;
    use flashwise_storage::offline::wipe::WipeError;
    use flashwise_storage::pool::PoolError;
    use flashwise_storage::record::RecordError;

    error.is::<ConfigError>()
        || error.downcast_ref::<CaptureError>().is_some_and(CaptureError::is_permanent)
        || error.downcast_ref::<RecordError>().is_some_and(RecordError::is_permanent)
        || error.downcast_ref::<WipeError>().is_some_and(|error| match error {
            WipeError::Io(_) => false,
            WipeError::Flash { error, .. } => error.is_permanent(),
            _ => true,
        })
        || error.downcast_ref::<ServerError>().is_some_and(ServerError::is_permanent)
        || error.downcast_ref::<PoolError>().is_some_and(PoolError::is_permanent)
        || error.downcast_ref::<DetachError>().is_some_and(DetachError::is_misuse)
}

#[cfg(not(feature = "serve"))]
fn is_misuse_of_a_live_cache(_: &anyhow::Error) -> bool {
    false
}
