//! `flashwise sweep`: runs many jobs over many traces.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use flashwise_core::human;
use flashwise_report::sweep::render_sweep;
use flashwise_sim::sampling::takes_whole_trace;
use flashwise_sim::sweep::{PlanError, Rows, Shard, SweepError, SweepPlan, Task, TaskResults, rows};
use flashwise_trace::output::{name_of, write_whole};
use flashwise_trace::progress::Progress;
use tracing::Level;

use crate::failure::Misuse;
use crate::log::{note, tell, warning};
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::sample::WHOLE_TRACE;
use crate::simulate::{command, misuse};

/// Run the missing jobs of a plan over many traces
///
/// Results are one Parquet file per trace. The plan is a TOML file with the traces, the results folder, and options of
/// jobs or lists of them; see docs/sweep.md.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Sweep {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    /// Plan, a TOML file; docs/sweep.md has an example
    #[arg(required_unless_present = "task", value_name = "PLAN.toml")]
    plan: Option<PathBuf>,
    /// Traces to run in parallel, each in its own process, so a crash ends one only [default: one after another in this
    /// process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Number of threads per trace [default: one per core, shared by the workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Run only the K-th of N parts of the traces, for N machines: 1/4
    #[arg(long, value_name = "K/N", value_parser = str::parse::<Shard>)]
    shard: Option<Shard>,
    /// Continue with the other traces if one fails
    #[arg(long)]
    keep_going: bool,
    /// Run the task on standard input, as a worker
    #[arg(long, hide = true)]
    task: bool,
}

#[derive(Debug, Subcommand)]
enum SweepCommand {
    /// Show which results of a plan exist
    Status {
        /// Plan
        #[arg(value_name = "PLAN.toml")]
        plan: PathBuf,
        /// Show only the K-th of N parts of the traces: 1/4
        #[arg(long, value_name = "K/N", value_parser = str::parse::<Shard>)]
        shard: Option<Shard>,
        /// Print a JSON array, one object per trace
        #[arg(long)]
        json: bool,
    },
    /// Write a page that compares policies in pairs over all traces and by family of traces
    Report {
        /// Results folder
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// Output page, one self-contained HTML file
        #[arg(long, value_name = "FILE")]
        html: PathBuf,
    },
}

impl Sweep {
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Some(SweepCommand::Status { plan, shard, json }) => return status(plan, *shard, *json),
            Some(SweepCommand::Report { folder, html }) => return report(folder, html),
            None => {}
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or(cores / usize::from(self.workers.unwrap_or(1)), usize::from).max(1);
        if self.workers.is_none() || self.task {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().context("starting threads")?;
        }
        if self.task {
            return worker();
        }
        let plan = read(self.plan.as_deref().unwrap_or(Path::new("")))?;
        let tasks = of_shard(plan, self.shard).tasks;
        if tasks.iter().any(|task| task.accuracy.is_some() && takes_whole_trace(&task.jobs)) {
            note!("accuracy: {WHOLE_TRACE}");
        }
        let bar = Bar::traces("sweep".to_owned(), tasks.len() as u64);
        let (begun, failed, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let Some(task) = tasks.get(begun.fetch_add(1, Ordering::Relaxed)) else { break };
                let done = match self.workers {
                    None => task.run(&Remarks(&bar)).map(|file| name_of(&file)).map_err(refused),
                    Some(_) => in_process(task, threads),
                };
                match done {
                    Ok(file) => {
                        let mut out = std::io::stdout().lock();
                        // A closed output is no failure: the results are in files.
                        let _ = writeln!(out, "{}: {file}", name_of(&task.trace));
                    }
                    Err(error) => {
                        let (name, error) = (name_of(&task.trace), format!("{error:#}"));
                        let names_it = error.contains(&name);
                        tell(Level::ERROR, &if names_it { error } else { format!("{name}: {error}") });
                        failed.fetch_add(1, Ordering::Relaxed);
                        stop.fetch_or(!self.keep_going, Ordering::Relaxed);
                    }
                }
                bar.advance(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.workers.unwrap_or(1) {
                scope.spawn(work);
            }
        });
        drop(bar);
        match failed.into_inner() {
            0 => Ok(()),
            failed => {
                let traces = human::counted(tasks.len() as u64, "trace");
                let what = match tasks.len().saturating_sub(begun.into_inner()) {
                    0 => String::new(),
                    1 => "; 1 was not started (--keep-going)".to_owned(),
                    left => format!("; {left} were not started (--keep-going)"),
                };
                Err(anyhow!("{failed} of {traces} failed{what}"))
            }
        }
    }
}

fn read(plan: &Path) -> anyhow::Result<SweepPlan> {
    SweepPlan::read(plan).map_err(|error| match error {
        PlanError::Io { .. } => error.into(),
        error => Misuse(error.to_string()).into(),
    })
}

/// Returns the shard of `plan`, or all of it.
fn of_shard(plan: SweepPlan, shard: Option<Shard>) -> SweepPlan {
    match shard {
        Some(shard) => plan.shard(shard),
        None => plan,
    }
}

fn refused(error: SweepError) -> anyhow::Error {
    match error {
        SweepError::Job(error) => misuse(error),
        error => error.into(),
    }
}

/// Runs the task on standard input and prints the path of its results.
fn worker() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let task: Task = serde_json::from_str(&text).map_err(|error| Misuse(format!("standard input: {error}")))?;
    let bar = Bar::traces(name_of(&task.trace), 1);
    let file = task.run(&Remarks(&bar)).map_err(refused)?;
    Ok(write!(std::io::stdout(), "{}", file.display())?)
}

/// Runs a task in a process of its own and returns the path of its results.
fn in_process(task: &Task, threads: usize) -> anyhow::Result<String> {
    let name = name_of(&task.trace);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["sweep", "--task", "--threads", &threads.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{name}: starting a worker"))?;
    if let Some(mut input) = child.stdin.take() {
        // A worker that does not read everything reports why when it exits.
        let _ = input.write_all(serde_json::to_string(task)?.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| name.clone())?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let messages = messages.trim().trim_start_matches("flashwise: ");
    match (output.status.success(), output.status.signal()) {
        (true, _) => {
            if !messages.is_empty() {
                warning!("{messages}");
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        (false, Some(signal)) => Err(anyhow!("{name}: its worker was ended by signal {signal}")),
        (false, None) => Err(anyhow!("{messages}")),
    }
}

fn status(plan: &Path, shard: Option<Shard>, json: bool) -> anyhow::Result<()> {
    let tasks = of_shard(read(plan)?, shard).tasks;
    let bar = Bar::traces("reading traces".to_owned(), tasks.len() as u64);
    let mut rows = Vec::new();
    for task in &tasks {
        rows.push((name_of(&task.trace), task.find(&Remarks(&bar))));
        bar.advance(1);
    }
    drop(bar);
    let mut out = std::io::stdout().lock();
    if json {
        let row = |(trace, found): &(String, Result<TaskResults, SweepError>)| match found {
            Ok(found) => serde_json::json!({"trace": trace, "file": found.file, "done": found.is_done}),
            Err(error) => serde_json::json!({"trace": trace, "error": chain(error)}),
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&rows.iter().map(row).collect::<Vec<_>>())?)?;
        return Ok(());
    }
    for (trace, found) in &rows {
        match found {
            Ok(TaskResults { file: Some(file), is_done: true }) => writeln!(out, "{trace}: {}", file.display())?,
            Ok(_) => writeln!(out, "{trace}: to do")?,
            Err(error) => writeln!(out, "{}", chain(error))?,
        }
    }
    let done = rows.iter().filter(|(_, found)| found.as_ref().is_ok_and(|found| found.is_done)).count();
    Ok(writeln!(out, "{done} of {} done", human::counted(rows.len() as u64, "trace"))?)
}

/// Writes the page about the results in `folder`.
fn report(folder: &Path, html: &Path) -> anyhow::Result<()> {
    let outputs = Outputs::new([("--html", Some(html))], false);
    outputs.check(&[])?;
    let Rows { rows, stale } = rows(folder)?;
    stale.iter().for_each(|message| warning!("{message}"));
    let page = render_sweep(&command()?, &rows)?;
    write_whole(html, &[], |file| anyhow::Ok(file.write_all(page.as_bytes())?))?;
    Ok(writeln!(outputs.screen(), "Page: {}", html.display())?)
}

/// Formats an error with its chain of causes.
fn chain(error: &SweepError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Forwards notes about traces but no progress, which the bar of tasks shows.
struct Remarks<'a>(&'a Bar);

impl Progress for Remarks<'_> {
    fn advance(&self, _: u64) {}

    fn note(&self, path: &str, what: &str) {
        self.0.note(path, what);
    }

    fn ends_early(&self, path: &str, rows: u64) {
        self.0.ends_early(path, rows);
    }
}
