//! `flashwise sweep`: many jobs over many traces.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use flashwise_report::sweep::render_sweep;
use flashwise_sim::sampling::takes_whole_trace;
use flashwise_sim::sweep::{Found, Plan, PlanError, Rows, Shard, SweepError, Task, rows};
use flashwise_trace::human;
use flashwise_trace::output::{name_of, write_whole};
use flashwise_trace::progress::Progress;
use tracing::Level;

use crate::failure::Misuse;
use crate::log::{note, tell, warning};
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::sample::WHOLE_TRACE;
use crate::simulate::{command, misuse};

/// Run many jobs over many traces: a Parquet file for each trace, and only what is not there yet
///
/// The plan is a TOML file: traces, the folder of the results, and words of jobs or lists of them (docs/sweep.md).
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Sweep {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    /// The plan; docs/sweep.md has one
    #[arg(required_unless_present = "task", value_name = "PLAN.toml")]
    plan: Option<PathBuf>,
    /// Run this many traces at a time, each in a process of its own: where one dies, the others go on [default: one after another in this one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Use this many threads for each trace [default: one per core, shared by the workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Run the K-th of N parts of the traces only, one for each machine: 1/4
    #[arg(long, value_name = "K/N", value_parser = str::parse::<Shard>)]
    shard: Option<Shard>,
    /// Go on with the others where a trace fails
    #[arg(long)]
    keep_going: bool,
    /// Run the task on standard input: what workers are started with
    #[arg(long, hide = true)]
    task: bool,
}

#[derive(Debug, Subcommand)]
enum SweepCommand {
    /// Show which results of a plan are there
    Status {
        /// The plan
        #[arg(value_name = "PLAN.toml")]
        plan: PathBuf,
        /// Look at the K-th of N parts of the traces only: 1/4
        #[arg(long, value_name = "K/N", value_parser = str::parse::<Shard>)]
        shard: Option<Shard>,
        /// Print a JSON array, one object per trace
        #[arg(long)]
        json: bool,
    },
    /// Compare the policies over all traces of a sweep, pair by pair and by family of traces, on a page
    Report {
        /// The folder of the results
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// The page: one HTML file that needs no network
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
                        // Whoever reads may have seen enough; the results are files.
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
                    1 => "; 1 was not begun (--keep-going)".to_owned(),
                    left => format!("; {left} were not begun (--keep-going)"),
                };
                Err(anyhow!("{failed} of {traces} failed{what}"))
            }
        }
    }
}

fn read(plan: &Path) -> anyhow::Result<Plan> {
    Plan::read(plan).map_err(|error| match error {
        PlanError::Io { .. } => error.into(),
        error => Misuse(error.to_string()).into(),
    })
}

/// The part of `plan` that is asked for, or all of it.
fn of_shard(plan: Plan, shard: Option<Shard>) -> Plan {
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

/// Runs the task on standard input, and prints the file with its results.
fn worker() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let task: Task = serde_json::from_str(&text).map_err(|error| Misuse(format!("standard input: {error}")))?;
    let bar = Bar::traces(name_of(&task.trace), 1);
    let file = task.run(&Remarks(&bar)).map_err(refused)?;
    Ok(write!(std::io::stdout(), "{}", file.display())?)
}

/// Runs a task in a process of its own, and tells the file with its results.
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
        // What keeps it from reading all, its exit says.
        let _ = input.write_all(serde_json::to_string(task)?.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| name.clone())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("flashwise: ");
    match (output.status.success(), output.status.signal()) {
        (true, _) => {
            if !said.is_empty() {
                warning!("{said}");
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        (false, Some(signal)) => Err(anyhow!("{name}: its worker was ended by signal {signal}")),
        (false, None) => Err(anyhow!("{said}")),
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
        let row = |(trace, found): &(String, Result<Found, SweepError>)| match found {
            Ok(found) => serde_json::json!({"trace": trace, "file": found.file, "done": found.is_done}),
            Err(error) => serde_json::json!({"trace": trace, "error": chain(error)}),
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&rows.iter().map(row).collect::<Vec<_>>())?)?;
        return Ok(());
    }
    for (trace, found) in &rows {
        match found {
            Ok(Found { file: Some(file), is_done: true }) => writeln!(out, "{trace}: {}", file.display())?,
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
    stale.iter().for_each(|said| warning!("{said}"));
    let page = render_sweep(&command()?, &rows)?;
    write_whole(html, &[], |file| anyhow::Ok(file.write_all(page.as_bytes())?))?;
    Ok(writeln!(outputs.screen(), "Page: {}", html.display())?)
}

/// An error with all that caused it.
fn chain(error: &SweepError) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    said
}

/// Passes on what is to be known of traces, and no progress: a bar of tasks shows that.
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
