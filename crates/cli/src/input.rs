//! Options for reading traces, shared by all commands that read one.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_core::filter::Filter;
use flashwise_core::human;
use flashwise_core::quantity::{Duration, QuantityError};
use flashwise_sim::size::parse_block_size;
use flashwise_trace::error::TraceError;
use flashwise_trace::formats::FormatSpec;
use flashwise_trace::normalised::times::Times;
use flashwise_trace::normalised::trace::{Accesses, Description, Trace};
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::output::name_of;
use flashwise_trace::progress::Silent;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::sources::sources;
use flashwise_trace::tools::concat::{join as join_traces, join_with_requests};
use flashwise_trace::tools::pass::{About, pass};
use flashwise_trace::tools::{sample, volumes};

use crate::help;
use crate::log::{detail, warning};
use crate::progress::Bar;

/// Options for reading traces. A name may stand for several traces that are merged: see [`sources`].
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::INPUT)]
pub struct InputOptions {
    /// Trace format and its options, as listed by `flashwise trace formats` [default: detected from the contents]
    #[arg(long, value_name = "FORMAT")]
    format: Option<FormatSpec>,
    /// Block size: a power of two from 512 to 1MiB [default: 4KiB, or that of a normalised trace]
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size)]
    block_size: Option<u64>,
    /// Skip and count malformed records instead of stopping at the first
    #[arg(long)]
    lenient: bool,
}

/// Reads a duration of at least a microsecond.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let time: Duration = text.parse().map_err(|error: QuantityError| error.to_string())?;
    if time.us() == 0 { Err(format!("found '{text}', expected 1us or more, such as 1ms")) } else { Ok(time) }
}

impl InputOptions {
    /// The settings for reading a trace.
    pub fn settings(&self) -> Settings {
        Settings { format: self.format.clone(), block_size_bytes: self.block_size, lenient: self.lenient, filter: None }
    }

    /// The given options as text, if any are given.
    pub fn given(&self) -> Option<String> {
        let format = self.format.as_ref().map(|format| format!("--format {format}"));
        let block_size = self.block_size.map(|bytes| format!("--block-size {bytes}"));
        let lenient = self.lenient.then(|| "--lenient".to_owned());
        let given: Vec<String> = format.into_iter().chain(block_size).chain(lenient).collect();
        (!given.is_empty()).then(|| given.join(" "))
    }

    /// Opens a trace of any kind, with a progress bar; `-` is standard input. Warns of malformed records.
    pub fn open(&self, path: &Path) -> Result<Trace, TraceError> {
        let trace = normalised::open(path, &self.settings(), &reading(&[path.to_owned()]))?;
        warn_of_trace(&trace);
        Ok(trace)
    }

    /// Passes all accesses of a trace of any kind to `each`, without a copy on disk, with a progress bar. Warns of
    /// malformed records.
    pub fn pass(&self, path: &Path, each: impl FnMut(&Accesses)) -> Result<About, TraceError> {
        let about = pass(path, &self.settings(), &reading(&[path.to_owned()]), each)?;
        warn_of(&about.name, &about.description, &about.times);
        Ok(about)
    }

    /// Opens a sample of a trace of any kind, with a progress bar.
    pub fn open_sampled(&self, path: &Path, sampling: Sampling) -> Result<Trace, TraceError> {
        let trace = sample::open(path, &self.settings(), sampling, &reading(&[path.to_owned()]))?;
        warn_of_trace(&trace);
        Ok(trace)
    }

    /// Opens traces, or samples of them: joined into one if `join`, split by volume if `per_volume`.
    pub fn open_all(
        &self,
        paths: &[PathBuf],
        join: bool,
        per_volume: bool,
        sampling: Option<Sampling>,
    ) -> Result<Vec<Trace>, TraceError> {
        let settings = self.settings();
        let traces = match sampling.filter(|_| !per_volume) {
            Some(sampling) if join => vec![sample::open_joined(paths, &settings, sampling, &reading(paths))?],
            Some(sampling) => paths.iter().map(|path| self.open_sampled(path, sampling)).collect::<Result<_, _>>()?,
            None if join => vec![join_traces(paths, &settings, &reading(paths))?],
            None => paths.iter().map(|path| self.open(path)).collect::<Result<_, _>>()?,
        };
        if join {
            traces.iter().for_each(warn_of_trace);
        }
        if !per_volume {
            return Ok(traces);
        }
        let volumes = traces.iter().flat_map(split_by_volume);
        match sampling {
            Some(sampling) => volumes.map(|volume| sample::of_volume(&volume, sampling, &Silent)).collect(),
            None => Ok(volumes.collect()),
        }
    }

    /// Opens traces with their original requests; `filter` chooses the processes that are cached. See
    /// [`open_all`](Self::open_all).
    pub fn open_all_with_requests(
        &self,
        paths: &[PathBuf],
        join: bool,
        per_volume: bool,
        filter: &Option<Filter>,
    ) -> Result<Vec<(Trace, RequestFile)>, TraceError> {
        let settings = Settings { filter: filter.clone(), ..self.settings() };
        let opened = match join {
            true => vec![join_with_requests(paths, &settings, &reading(paths))?],
            false => {
                let open = |path: &PathBuf| {
                    normalised::open_with_requests(path, &settings, &reading(std::slice::from_ref(path)))
                };
                paths.iter().map(open).collect::<Result<_, _>>()?
            }
        };
        opened.iter().for_each(|(trace, _)| warn_of_trace(trace));
        if !per_volume {
            return Ok(opened);
        }
        let mut volumes = Vec::new();
        for (trace, requests) in opened {
            volumes.extend(split_by_volume(&trace).into_iter().zip(requests.each(&trace.description().volumes)?));
        }
        Ok(volumes)
    }
}

/// Names a trace that can be read only once: standard input or a pipe. `None` if it can be read again.
pub fn read_once(path: &Path) -> Option<String> {
    if path == Path::new("-") {
        return Some("standard input".to_owned());
    }
    let is_pipe = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    is_pipe.then(|| format!("{}, a pipe,", path.display()))
}

/// Splits a trace into its volumes, with a progress bar.
fn split_by_volume(trace: &Trace) -> Vec<Trace> {
    volumes::each(trace, &Bar::accesses(format!("volumes of {}", trace.name()), trace.len() as u64))
}

/// Returns a progress bar for reading traces.
pub fn reading(paths: &[PathBuf]) -> Bar {
    let size = |file: &PathBuf| std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bytes = |path: &PathBuf| sources(path).unwrap_or_default().iter().map(size).sum::<u64>();
    let names: Vec<String> = paths.iter().map(|path| name_of(path)).collect();
    Bar::bytes(format!("reading {}", names.join(", ")), paths.iter().map(bytes).sum())
}

/// Warns of problems of an opened trace, if there are any.
fn warn_of_trace(trace: &Trace) {
    warn_of(trace.name(), trace.description(), &trace.times());
}

/// Warns of problems of the trace called `name`, if there are any: malformed records, and times that are no clock.
fn warn_of(name: &str, about: &Description, times: &Times) {
    detail!("{name}: read as {}, {}", about.format, human::counted(about.requests, "request"));
    warn(name, about);
    if let Some(refusal) = times.refusal(about.requests) {
        warning!("{name}: nothing is said per day or per year, since its times are no clock: {refusal}");
    } else if let Some(disorder) = times.disorder(about.requests) {
        warning!("{name}: {disorder}");
    }
}

/// Warns of the malformed records of the trace called `name`, if any were skipped.
pub fn warn(name: &str, about: &Description) {
    if about.malformed_records > 0 {
        let were = if about.malformed_records == 1 { "was" } else { "were" };
        let records = human::counted(about.malformed_records, "malformed record");
        warning!("{name}: {records} {were} skipped");
    }
}
