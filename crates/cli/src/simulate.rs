//! `flashwise simulate`: simulates each policy on each trace at each cache size.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use flashwise_core::human;
use flashwise_core::options::OptionError;
use flashwise_core::quantity::Share;
use flashwise_report::Report;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::experiment::{Cache, check};
use flashwise_sim::job::lines::{Lines, LinesError, Origin, checksum};
use flashwise_sim::job::{Comparison, Job, JobError, Many, Placement, Reads, Runs, compared, run_each};
use flashwise_sim::results::{self, ResultRow};
use flashwise_sim::sampling::margin;
use flashwise_sim::simulate::Warmup;
use flashwise_sim::size::{Size, SizeError};
use flashwise_trace::Trace;
use flashwise_trace::output::{check_appendable, is_stream, write_whole};
use flashwise_trace::request_file::RequestFile;

use crate::array::ArrayOptions;
use crate::cache::CacheOptions;
use crate::date::today;
use crate::failure::Misuse;
use crate::help::{self, Topic};
use crate::input::{InputOptions, read_once, reading};
use crate::list::{List, ListError};
use crate::log::detail;
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::sample::SampleOptions;
use crate::table;

/// Simulate caches over traces: hits and flash writes by policy
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Simulate {
    /// Traces in any format; - is standard input
    #[arg(required_unless_present_any = ["help", "print_jobs"], value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Policies of `flashwise policies`, such as lru,larc; repeatable [default: all]
    ///
    /// Options follow the name: larc:fill=ghost, c:buffers=8. If wear is simulated, the default is lru, ripq+, pannier,
    /// m, m+ and c. Without this option, the table has lru, larc, the two best others and the bound, min. --policy all
    /// prints a line for each policy and size.
    #[arg(long = "policy", value_name = "POLICY", value_parser = parse_policies)]
    policies: Vec<Policies>,
    /// Cache sizes, such as 10%,512MiB; repeatable [default: 1%,2%,5%,10%,20%,50%]
    ///
    /// A size is a share of the trace's unique blocks (10%), bytes (512MiB) or a number of blocks, at most 2147483647.
    /// Lists (1%,10%) and ranges (1%..10%:1%, 64MiB..1GiB:x2) are allowed.
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_sizes)]
    sizes: Vec<Sizes>,
    /// Uncounted accesses at the start: a number, or a share such as 10% [default: 0]
    #[arg(long, value_name = "ACCESSES")]
    warmup: Option<Warmup>,
    /// Add figures for every N accesses to JSON and reports
    ///
    /// Only counted accesses are included. Hit ratio, replacement rate and flash writes. With an admission rule or
    /// devices also latency, wear and the rule's decisions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch: Option<u64>,
    #[command(flatten)]
    sample: SampleOptions,
    /// Print JSON: an object per trace, policy and size
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: a line per trace, policy and size
    #[arg(long, conflicts_with = "epoch")]
    csv: bool,
    /// Append rows as lines of JSON; skip existing rows
    ///
    /// Rows are appended as soon as they are finished. After an interruption, the same command resumes. Each line has
    /// the version and the trace's SHA-256, which identify the row.
    /// - is standard output; there and in pipes no row is skipped. With --accuracy, rows are written when all of them
    ///   are accurate.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "html", "parquet", "print_jobs"])]
    jsonl: Option<PathBuf>,
    /// Write the results to a Parquet file
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write a report with charts to one HTML file
    ///
    /// It compares the results with the best possible (MIN), or, if there is a rule or devices, with the policies
    /// without a rule. Both are simulated for it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Title of the report [default: that of the traces]
    #[arg(long, value_name = "TEXT", requires = "html")]
    title: Option<String>,
    /// Run the jobs listed in a file; - is standard input
    ///
    /// A job is a JSON object of options, as --print-jobs prints it: {"policy": "larc", "size": "10%"}. Or it is a line
    /// of words, as in the field job of a row: policy=larc size=10%. Its rows are those that the options would give.
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// Print the jobs of the options as JSON; run none
    #[arg(long, conflicts_with_all = ["job", "html", "parquet"])]
    print_jobs: bool,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print this help, or the help on a topic (see below)
    #[arg(short, long, value_name = "TOPIC", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    #[arg(hide_possible_values = true)]
    help: Option<Topic>,
    /// Join the traces into one, in order, such as the segments of a server's recording
    ///
    /// A gap longer than a minute and than the recording before it is reported and left out of the time.
    #[arg(long, help_heading = help::INPUT)]
    join: bool,
    /// Simulate a separate cache for each volume of a trace; percentages are of its blocks
    #[arg(long, help_heading = help::INPUT)]
    per_volume: bool,
    #[command(flatten)]
    input: InputOptions,
    #[command(flatten)]
    array: ArrayOptions,
    #[command(flatten)]
    cache: CacheOptions,
}

/// The policies of one `--policy`.
#[derive(Clone, Debug)]
enum Policies {
    /// The policies that are simulated by default; the table shows all of them.
    All,
    /// A list.
    Listed(List<Algorithm>),
}

fn parse_policies(text: &str) -> Result<Policies, ListError<OptionError>> {
    if text == "all" { Ok(Policies::All) } else { text.parse().map(Policies::Listed) }
}

/// The sizes of one `--size`.
#[derive(Clone, Debug)]
pub struct Sizes(Vec<Size>);

impl Sizes {
    /// The sizes of all given options.
    pub fn given(given: &[Sizes]) -> Vec<Size> {
        given.iter().flat_map(|sizes| sizes.0.iter().cloned()).collect()
    }
}

/// Reads the sizes of one `--size`.
pub fn parse_sizes(text: &str) -> Result<Sizes, SizeError> {
    Size::parse_list(text).map(Sizes)
}

impl Simulate {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(topic) = self.help {
            return Ok(topic.print("simulate")?);
        }
        if self.traces.iter().filter(|trace| *trace == Path::new("-")).count() > 1 {
            return Err(Misuse("- (standard input) is given more than once".to_owned()).into());
        }
        if self.parquet.is_some() && !cfg!(feature = "parquet") {
            let problem = "--parquet needs a flashwise built with the feature parquet";
            return Err(Misuse(problem.to_owned()).into());
        }
        if let Some(threads) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into());
            pool.build_global().context("starting threads")?;
        }
        let inputs: Vec<PathBuf> = self.traces.iter().chain(&self.job).cloned().collect();
        self.outputs().check(&inputs)?;
        if let Some(path) = &self.jsonl {
            check_appendable(path, &inputs)?;
        }
        if let (Some(option), true) = (self.sample.accuracy_given(), self.job.is_some() || self.print_jobs) {
            let what = format!(
                "{option} does not go with --job or --print-jobs, because a job has a fixed sample; give --sample"
            );
            return Err(Misuse(what).into());
        }
        if self.print_jobs {
            return print_jobs(&self.jobs(self.sample.share())?);
        }
        if let Some(path) = &self.jsonl {
            return self.write_lines(path);
        }
        let done = self.accurate()?;
        let rows: Vec<ResultRow> = done.asked().cloned().collect();
        // Print first, and fail last: a file that cannot be written does not lose the results, nor a closed output the
        // files.
        let printed = self.print(&rows);
        self.write_report(&done)?;
        self.write_parquet(&rows)?;
        printed?;
        self.print_name_of_report()
    }

    /// Runs jobs, and the jobs that a report compares them with.
    fn work(&self, jobs: Vec<Job>) -> anyhow::Result<Done> {
        if self.html.is_some() {
            refuse_reports_of_buckets(&jobs)?;
        }
        let comparison = if self.html.is_some() { compared(&jobs).map_err(misuse)? } else { Comparison::default() };
        let (before, asked) = (comparison.before.len(), jobs.len());
        let jobs = [comparison.before, jobs, comparison.after].concat();
        // Jobs from options all read the same parts of the traces; jobs of a file may differ.
        let (mut rows, mut traces): (Vec<Vec<ResultRow>>, _) = (Vec::new(), Vec::new());
        for jobs in jobs.chunk_by(|job, other| job.reads().ok() == other.reads().ok()) {
            let (opened, requests) = self.open(&jobs[0].reads().map_err(misuse)?)?;
            let runs = Runs::new(&opened, requests.into(), jobs).map_err(misuse)?;
            let bar = Bar::accesses(format!("{} runs", runs.count()), runs.accesses());
            let (runs_count, began) = (runs.count(), std::time::Instant::now());
            rows.resize(opened.len(), Vec::new());
            for (rows, more) in rows.iter_mut().zip(runs.run(&bar).map_err(misuse)?) {
                rows.extend(more);
            }
            let runs = human::counted(runs_count as u64, "run");
            detail!(
                "{runs} took {} on {} threads",
                human::seconds(began.elapsed().as_secs_f64()),
                rayon::current_num_threads()
            );
            traces = opened;
        }
        Ok(Done { jobs, before, asked, traces, rows })
    }

    /// Runs the jobs whose rows are not yet in the file at `path`, and appends each row when it is done.
    fn write_lines(&self, path: &Path) -> anyhow::Result<()> {
        let refused = |what: &str, expected: &str| Misuse(format!("--jsonl: found {what}, expected {expected}"));
        let to_file = !is_stream(path)?;
        if let Some(once) = self.traces.iter().filter(|_| to_file).find_map(|trace| read_once(trace)) {
            return Err(refused(&format!("{once} as a trace"), "files, which can be read again").into());
        }
        let jobs = self.jobs(self.sample.share())?;
        let lines = Lines::open(path).map_err(|error| match error {
            LinesError::Trace(error) => anyhow::Error::from(error),
            error => Misuse(error.to_string()).into(),
        })?;
        let (mut written, mut known) = (0, 0);
        let origins = if to_file { self.origins()? } else { Vec::new() };
        let unknown = Origin::default();
        let origin = |trace: usize| match &origins[..] {
            [one] => one,
            each => each.get(trace).unwrap_or(&unknown),
        };
        if self.sample.accuracy_given().is_some() {
            // The jobs depend on the sample that is accurate enough, which is known only after the runs.
            let done = self.accurate()?;
            for (number, (trace, rows)) in done.traces.iter().zip(&done.rows).enumerate() {
                for (job, row) in done.jobs.iter().zip(rows) {
                    if lines.has(trace.name(), origin(number), job) {
                        known += 1;
                    } else {
                        lines.write(row, origin(number))?;
                        written += 1;
                    }
                }
            }
            return say_lines(path, to_file, written, known);
        }
        for jobs in jobs.chunk_by(|job, other| job.reads().ok() == other.reads().ok()) {
            let (traces, requests) = self.open(&jobs[0].reads().map_err(misuse)?)?;
            let each = (0..traces.len()).flat_map(|trace| (0..jobs.len()).map(move |job| (trace, job)));
            let is_new = |&(trace, job): &(usize, usize)| !lines.has(traces[trace].name(), origin(trace), &jobs[job]);
            let new: Vec<(usize, usize)> = each.filter(is_new).collect();
            let runs = Runs::of(&traces, Arc::default(), jobs, &new).map_err(misuse)?;
            let bar = Bar::accesses(format!("{} runs", runs.count()), runs.accesses());
            let done = |trace: usize, row: ResultRow| Ok(lines.write(&row, origin(trace))?);
            run_each(&traces, &requests.into(), jobs, &new, &bar, &done).map_err(misuse)?;
            written += new.len();
            known += traces.len() * jobs.len() - new.len();
        }
        say_lines(path, to_file, written, known)
    }

    /// Runs the jobs over the given sample, or over the first sample that is accurate enough.
    fn accurate(&self) -> anyhow::Result<Done> {
        if self.sample.accuracy_given().is_none() {
            return self.work(self.jobs(self.sample.share())?);
        }
        let work = |share| self.work(self.jobs(share)?);
        self.sample.accurate(&self.jobs(None)?, &self.traces, work, |done| margin(done.asked().map(|row| &row.sample)))
    }

    /// The origin of each trace's rows. There is one origin for all if `--join` or `--per-volume` changes the traces.
    fn origins(&self) -> anyhow::Result<Vec<Origin>> {
        let bar = reading(&self.traces);
        let as_named = !self.join && !self.per_volume;
        let together = if as_named { 1 } else { self.traces.len() };
        let origin = |traces: &[PathBuf]| -> anyhow::Result<Origin> {
            Ok(Origin { trace_checksum: Some(checksum(traces, &bar)?), reading: self.input.given() })
        };
        self.traces.chunks(together).map(origin).collect()
    }

    /// The jobs to run: those of a file, or those of the options. They run over a sample of each trace if `sample` is
    /// given.
    fn jobs(&self, sample: Option<Share>) -> anyhow::Result<Vec<Job>> {
        let mut base = Job { warmup: self.warmup, epoch: self.epoch, ..Job::default() };
        self.cache.put(&mut base);
        self.array.put(&mut base);
        self.sample.put(&mut base, sample);
        let many = Many {
            base,
            policies: self.listed(),
            sizes: Sizes::given(&self.sizes),
            admissions: self.array.rules(),
            spares: self.cache.spares().to_vec(),
        };
        let Some(path) = &self.job else { return many.jobs().map_err(misuse) };
        if let Some(option) = many.said() {
            return Err(Misuse(format!("--job already describes the runs; remove {option}")).into());
        }
        if path == Path::new("-") && self.traces.contains(path) {
            return Err(Misuse("- (standard input) is given as a trace and as --job".to_owned()).into());
        }
        read_jobs(path)
    }

    /// The policies that are listed; none for the default.
    fn listed(&self) -> Vec<Algorithm> {
        let lists = self.policies.iter().map(|policies| match policies {
            Policies::Listed(list) => Some(list),
            Policies::All => None,
        });
        let lists: Option<Vec<&List<Algorithm>>> = lists.collect();
        lists.unwrap_or_default().into_iter().flatten().cloned().collect()
    }

    /// The traces, with their original requests if the jobs read them.
    fn open(&self, reads: &Reads) -> anyhow::Result<(Vec<Trace>, Vec<RequestFile>)> {
        let Reads { requests, filter, sampling } = reads;
        if !requests {
            return Ok((self.input.open_all(&self.traces, self.join, self.per_volume, *sampling)?, Vec::new()));
        }
        let opened = self.input.open_all_with_requests(&self.traces, self.join, self.per_volume, filter)?;
        Ok(opened.into_iter().unzip())
    }

    /// Writes the report of the runs, if asked for.
    fn write_report(&self, done: &Done) -> anyhow::Result<()> {
        let (Some(html), Some(first)) = (&self.html, done.jobs.first()) else { return Ok(()) };
        let bar = Bar::accesses("reuse distances".to_owned(), done.traces.iter().map(|trace| trace.len() as u64).sum());
        let report = Report::of(command()?, first, &done.traces, &done.rows, &bar).map_err(misuse)?;
        let report = Report { title: self.title.clone(), date: Some(today()), ..report };
        let report = flashwise_report::render(&report)?;
        write_whole(html, &self.traces, |file| anyhow::Ok(file.write_all(report.as_bytes())?))
    }

    #[cfg(feature = "parquet")]
    fn write_parquet(&self, rows: &[ResultRow]) -> anyhow::Result<()> {
        let Some(parquet) = &self.parquet else { return Ok(()) };
        let contents = results::parquet(rows)?;
        write_whole(parquet, &self.traces, |file| anyhow::Ok(file.write_all(&contents)?))
    }

    /// Does nothing: `--parquet` is refused before anything runs.
    #[cfg(not(feature = "parquet"))]
    fn write_parquet(&self, _: &[ResultRow]) -> anyhow::Result<()> {
        Ok(())
    }

    /// The output files besides the results.
    fn outputs(&self) -> Outputs<'_> {
        let files = [("--html", self.html.as_deref()), ("--parquet", self.parquet.as_deref())];
        Outputs::new(files, self.json || self.csv)
    }

    fn print(&self, rows: &[ResultRow]) -> anyhow::Result<()> {
        let mut out = self.outputs().screen();
        if self.json {
            serde_json::to_writer_pretty(&mut out, rows).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else if self.csv {
            results::write_csv(rows, &mut out)?;
        } else {
            let is_default = self.policies.is_empty() && self.job.is_none();
            let brief = Some(rows).filter(|_| is_default).and_then(table::brief);
            writeln!(out, "{}", brief.unwrap_or_else(|| table::results(rows)))?;
        }
        Ok(())
    }

    /// Prints the report's path, unless standard output is data.
    fn print_name_of_report(&self) -> anyhow::Result<()> {
        match &self.html {
            Some(html) if !self.json && !self.csv => {
                Ok(writeln!(self.outputs().screen(), "\nReport: {}", html.display())?)
            }
            _ => Ok(()),
        }
    }
}

/// Finished jobs.
struct Done {
    /// Jobs for comparison, then the user's, then more for comparison.
    jobs: Vec<Job>,
    /// Number of jobs before the user's.
    before: usize,
    /// Number of the user's jobs.
    asked: usize,
    traces: Vec<Trace>,
    /// For each trace the rows of the jobs, in their order.
    rows: Vec<Vec<ResultRow>>,
}

impl Done {
    /// The rows of the user's jobs, trace by trace.
    fn asked(&self) -> impl Iterator<Item = &ResultRow> {
        self.rows.iter().flat_map(|rows| rows.iter().skip(self.before).take(self.asked))
    }
}

/// Reads the jobs of the file at `path`, in order.
fn read_jobs(path: &Path) -> anyhow::Result<Vec<Job>> {
    let mut text = String::new();
    let (name, read) = match path == Path::new("-") {
        true => ("standard input".to_owned(), std::io::stdin().read_to_string(&mut text)),
        false => {
            (path.display().to_string(), std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)))
        }
    };
    read.with_context(|| name.clone())?;
    // Jobs are words, as in rows, or JSON objects.
    if !text.trim_start().is_empty() && !text.trim_start().starts_with(['{', '[', '"']) {
        let of_line = |(number, line): (usize, &str)| {
            line.parse().map_err(|error: JobError| Misuse(format!("{name}:{}: {error}", number + 1)).into())
        };
        return text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(of_line).collect();
    }
    let jobs: Result<Vec<Job>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    match jobs {
        Ok(jobs) if jobs.is_empty() => Err(Misuse(format!(
            "{name}: found no job, expected one such as {{\"policy\": \"lru\", \"size\": \"10%\"}}"
        ))
        .into()),
        Ok(jobs) => Ok(jobs),
        Err(error) => Err(Misuse(format!("{name}: {error}")).into()),
    }
}

/// Prints the number of rows written to `path`, if it is a file.
fn say_lines(path: &Path, to_file: bool, written: usize, known: usize) -> anyhow::Result<()> {
    if to_file {
        let mut out = std::io::stdout().lock();
        let (rows, before) = (human::counted(written as u64, "row"), human::count(known as u64));
        writeln!(out, "{}: {rows} written, {before} there before", path.display())?;
    }
    Ok(())
}

fn print_jobs(jobs: &[Job]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for job in jobs {
        writeln!(out, "{}", serde_json::to_string(job).map_err(std::io::Error::from)?)?;
    }
    Ok(())
}

fn refuse_reports_of_buckets(jobs: &[Job]) -> anyhow::Result<()> {
    for job in jobs {
        if let Placement::Buckets(system, _) = job.meaning().map_err(misuse)?.place {
            check(Cache::Buckets(system), ["--html"]).map_err(|error| Misuse(error.to_string()))?;
        }
    }
    Ok(())
}

/// Converts an error: contradictory options are misuse, missing or damaged files are not.
pub fn misuse(error: JobError) -> anyhow::Error {
    match error {
        JobError::Of { trace, error } => match misuse(*error).downcast::<Misuse>() {
            Ok(Misuse(what)) => Misuse(format!("{trace}: {what}")).into(),
            Err(error) => error.context(trace),
        },
        JobError::Endurance(error) => error.into(),
        JobError::Trace(error) => error.into(),
        JobError::Array(error) => error.into(),
        error => Misuse(error.to_string()).into(),
    }
}

/// Returns the command line, quoted for a shell.
pub fn command() -> Result<String, shlex::QuoteError> {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let arguments: Vec<String> = arguments.collect();
    shlex::try_join(std::iter::once("flashwise").chain(arguments.iter().map(String::as_str)))
}
