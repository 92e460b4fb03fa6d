//! `flashwise simulate`: what each policy would do on each trace at each cache size.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use flashwise_core::options::{OptionError, nearest};
use flashwise_core::policy::{POLICIES, Spec, larc};
use flashwise_report::{Report, Section};
use flashwise_sim::array::TraceRule;
use flashwise_sim::cache_settings::{CacheError, Ram};
use flashwise_sim::checks::{self, Checks};
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::experiment::{self, Experiment, ExperimentError, Layout, Log, reference, with_references};
use flashwise_sim::results::{self, ResultRow, WearLimits};
use flashwise_sim::sampled;
use flashwise_sim::sampling::SampleFigures;
use flashwise_sim::simulate::{Counting, Job, Run, Warmup, simulate};
use flashwise_sim::size::{Size, SizeError};
use flashwise_sim::wlfc::{BucketError, BucketJob, System, simulate_buckets};
use flashwise_trace::Trace;
use flashwise_trace::output::{check_writable, write_whole};
use flashwise_trace::progress::Silent;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::{Distance, Histogram, ReuseDistances};
use rayon::prelude::*;

use crate::array::ArrayOptions;
use crate::cache::{CacheOptions, Model};
use crate::failure::Misuse;
use crate::given::given;
use crate::help::{self, Topic};
use crate::input::InputOptions;
use crate::list::List;
use crate::progress::Bar;
use crate::sample::SampleOptions;
use crate::table;

/// Simulate caches over traces: hits and flash writes of each policy at each size
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Simulate {
    /// Traces of any format, or normalised ones; - is standard input
    #[arg(required_unless_present = "help", value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Policies or algorithms, of `flashwise policies`: lru,larc; can be given many times [default: all policies]
    ///
    /// With its options: lru, larc:fill=ghost, m+, c:buffers=8. Where wear is simulated, the default is lru, ripq+, pannier, m, m+ and c.
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<List<Choice>>,
    /// A cache size: 10% of the trace's unique blocks, 512MiB, 1%,5%; can be given many times [default: 1%,2%,5%,10%,20%,50%]
    ///
    /// A share of the trace's unique blocks (10%), bytes (512MiB) or a number of blocks, at most 2147483647; lists (1%,10%) and ranges
    /// (1%..10%:1%, 64MiB..1GiB:x2) too.
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_sizes)]
    sizes: Vec<Sizes>,
    /// Accesses at the start of each trace that are run but not counted: a number, or a share such as 10%
    #[arg(long, value_name = "ACCESSES", value_parser = parse_warmup, default_value = "0")]
    warmup: Warmup,
    /// Report figures for every N accesses as well (not in the table or CSV)
    ///
    /// Hit ratio, replacement rate and flash writes; behind a rule or devices also latency, wear and what the rule decided.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch: Option<u64>,
    #[command(flatten)]
    sample: SampleOptions,
    /// Print a JSON array, one object per trace, policy and size
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV, one line per trace, policy and size
    #[arg(long, conflicts_with = "epoch")]
    csv: bool,
    /// Write the results to a Parquet file
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write a report with charts: one HTML file that needs no network
    ///
    /// It compares with the best possible (MIN), or behind a rule or devices with policies alone, which are simulated for it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Use so many threads [default: one per core]; the results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print this help, or that of a topic (see below)
    #[arg(short, long, value_name = "TOPIC", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    help: Option<Topic>,
    /// Take the traces for one, each after the one before: the segments that a server records, in order
    #[arg(long, help_heading = help::INPUT)]
    join: bool,
    #[command(flatten)]
    input: InputOptions,
    #[command(flatten)]
    array: ArrayOptions,
    #[command(flatten)]
    cache: CacheOptions,
}

/// The sizes of one `--size`.
#[derive(Clone, Debug)]
pub struct Sizes(Vec<Size>);

impl Sizes {
    /// The sizes of all that were given, or those of `default`.
    pub fn all(given: &[Sizes], default: &str) -> Result<Vec<Size>, SizeError> {
        if given.is_empty() {
            return Size::parse_list(default);
        }
        Ok(given.iter().flat_map(|sizes| sizes.0.iter().cloned()).collect())
    }
}

/// Reads the sizes of one `--size`.
pub fn parse_sizes(text: &str) -> Result<Sizes, SizeError> {
    Size::parse_list(text).map(Sizes)
}

/// Reads a warm-up.
pub fn parse_warmup(text: &str) -> Result<Warmup, String> {
    text.parse()
}

/// A policy, or an algorithm that only makes sense where wear is simulated.
#[derive(Clone, Debug)]
enum Choice {
    Policy(Spec),
    Algorithm(Algorithm),
}

impl FromStr for Choice {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Choice, OptionError> {
        match Spec::parse(text) {
            Err(OptionError::UnknownName { .. }) => {}
            parsed => return parsed.map(Choice::Policy),
        }
        match Algorithm::parse(text) {
            Err(OptionError::UnknownName { name, mut expected, .. }) => {
                expected.extend(
                    POLICIES.iter().map(|info| info.name).filter(|name| !expected.contains(name)).collect::<Vec<_>>(),
                );
                Err(OptionError::UnknownName { what: "policy", near: nearest(&name, &expected), name, expected })
            }
            parsed => parsed.map(Choice::Algorithm),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Policy(policy) => policy.fmt(f),
            Choice::Algorithm(algorithm) => algorithm.fmt(f),
        }
    }
}

/// Where wear is simulated and no algorithm is named: those of Figure 5 of the paper.
const ALGORITHMS: [&str; 6] = ["lru", "ripq+", "pannier", "m", "m+", "c"];
/// The bound that the report compares with.
const BEST: &str = "min";
/// What the report compares LARC with where that fills an empty cache with whatever is missed.
const LARC_ALGORITHM_1: &str = "larc:fill=ghost";
/// Sizes where none are given.
const SIZES: &str = "1%,2%,5%,10%,20%,50%";

impl Simulate {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(topic) = self.help {
            return Ok(topic.print("simulate")?);
        }
        if self.traces.iter().filter(|trace| *trace == Path::new("-")).count() > 1 {
            return Err(Misuse("standard input, -, is given more than once".to_owned()).into());
        }
        if self.html.iter().chain(&self.parquet).any(|path| path == Path::new("-")) {
            return Err(Misuse("--html and --parquet take a file, standard output shows the results".to_owned()).into());
        }
        if self.parquet.is_some() && !cfg!(feature = "parquet") {
            let problem = "--parquet: this flashwise was built without it, expected one built with the feature parquet";
            return Err(Misuse(problem.to_owned()).into());
        }
        if self.html.is_some() && self.html == self.parquet {
            return Err(Misuse("--html and --parquet name the same file".to_owned()).into());
        }
        if let Some(threads) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into());
            pool.build_global().context("starting threads")?;
        }
        for path in self.html.iter().chain(&self.parquet) {
            check_writable(path, &self.traces)?;
        }
        let algorithm = self.policies.iter().flatten().find(|choice| matches!(choice, Choice::Algorithm(_)));
        let model = self.cache.model(algorithm.map(|algorithm| format!("policy '{algorithm}'")).as_deref())?;
        let alone = matches!(model, Model::Policy(Ram::Bytes(0))) && !self.array.is_given();
        self.sample.check(alone, matches!(model, Model::Log(..) | Model::Buckets(_)))?;
        match model {
            _ if alone => self.run_policies(),
            Model::Policy(ram) => {
                let layouts = [Layout::None { ram }];
                let limits = WearLimits { wfue_alpha: 0.5, device: None, drive_writes_per_day: None };
                self.run_experiments(&self.open()?, &layouts, &limits)
            }
            Model::Log(settings, ssd, limits) => {
                let (traces, requests) = self.open_with_requests()?;
                self.run_experiments(&traces, &[Layout::Log(Log { settings, requests: requests.into(), ssd })], &limits)
            }
            Model::Buckets(system) => self.run_buckets(system),
            Model::Endurance(settings, limits) => {
                let layouts: Vec<_> = settings.into_iter().map(Layout::Flash).collect();
                self.run_experiments(&self.open()?, &layouts, &limits)
            }
        }
    }

    fn open(&self) -> anyhow::Result<Vec<Trace>> {
        let judged = self.array.rules().iter().any(Option::is_some);
        Ok(self.sample.open(&self.input, &self.traces, self.join, judged)?)
    }

    /// The traces, and their requests as they came.
    fn open_with_requests(&self) -> anyhow::Result<(Vec<Trace>, Vec<RequestFile>)> {
        let filter = self.cache.filter();
        if self.join {
            let (trace, requests) = self.input.open_joined_with_requests(&self.traces, &filter)?;
            return Ok((vec![trace], vec![requests]));
        }
        let open = |path: &PathBuf| self.input.open_with_requests(path, &filter);
        let opened: Vec<_> = self.traces.iter().map(open).collect::<Result<_, _>>()?;
        Ok(opened.into_iter().unzip())
    }

    /// A cache that evicts whole buckets.
    fn run_buckets(&self, system: System) -> anyhow::Result<()> {
        let own = [
            ("--policy", !self.policies.is_empty()),
            ("--epoch", self.epoch.is_some()),
            ("--html", self.html.is_some()),
        ];
        let settings = self.cache.buckets(system, self.array.storage_device(), given(own).chain(self.array.given()))?;
        let (traces, requests) = self.open_with_requests()?;
        let job = |trace: usize, _: &(), size, capacity_blocks| {
            let flash_bytes = capacity_blocks as u64 * traces[trace].block_size_bytes();
            BucketJob { trace, system, size, flash_bytes }
        };
        let jobs = self.runs(&traces, &[()], job)?;
        let total = jobs.iter().map(|job| traces[job.trace].len() as u64).sum();
        let bar = Bar::accesses(format!("{} runs", jobs.len()), total);
        let requests: Vec<_> = requests.into_iter().zip(&traces).map(|(file, trace)| (file, trace.len())).collect();
        let results =
            simulate_buckets(&requests, jobs, &settings, self.counting(), &bar).map_err(|error| match error {
                BucketError::Trace(error) => anyhow::Error::new(error),
                error => Misuse(error.to_string()).into(),
            })?;
        drop(bar);
        let rows: Vec<_> =
            results.iter().map(|result| ResultRow::of_buckets(&traces[result.job.trace], result)).collect();
        self.write_parquet(&rows)?;
        self.print(&rows, table::bucket_results)
    }

    fn run_policies(&self) -> anyhow::Result<()> {
        let asked = self.policies()?;
        let mut policies = asked.clone();
        if self.html.is_some() {
            let also = |name: &str| (!asked.iter().any(|policy| policy.to_string() == name)).then(|| Spec::parse(name));
            let larc = if asked.iter().any(larc::fills_freely) { also(LARC_ALGORITHM_1) } else { None };
            for policy in larc.into_iter().chain(also(BEST)) {
                policies.push(policy?);
            }
        }
        let work = |traces: &[Trace]| self.simulate(traces, self.jobs(traces, &policies)?);
        let (traces, runs) = self.sample.accurate(&self.input, &self.traces, self.join, work, |runs| margin(runs))?;
        let row = |run: &Run| ResultRow::new(&traces[run.job.trace], run);
        if self.html.is_some() {
            let of_trace = |number| runs.iter().filter(|run| run.job.trace == number).map(row).collect();
            self.write_report(&traces, &of_trace, true)?;
        }
        let is_asked = |run: &&Run| asked.iter().any(|policy| policy.to_string() == run.job.policy.to_string());
        let rows: Vec<_> = runs.iter().filter(is_asked).map(row).collect();
        self.write_parquet(&rows)?;
        self.print(&rows, table::results)
    }

    /// Policies and algorithms behind admission rules, once in each of the layouts, with what the report and the figures of wear compare
    /// with.
    fn run_experiments(&self, traces: &[Trace], layouts: &[Layout], limits: &WearLimits) -> anyhow::Result<()> {
        let devices = match layouts {
            [Layout::Log(_), ..] => self.array.devices_of_log(),
            _ => self.array.devices(),
        };
        let of_layout = |layout: &Layout| Experiment {
            layout: layout.clone(),
            devices: devices.clone(),
            counting: self.counting(),
        };
        let rules = self.array.rules();
        let on_flash = matches!(layouts, [Layout::Flash(_), ..]);
        let in_log = matches!(layouts, [Layout::Log(_), ..]);
        let algorithms = self.algorithms(&layouts[0])?;
        let mut jobs = self.jobs_behind(traces, &algorithms, &rules)?;
        let first = of_layout(&layouts[0]);
        if self.policies.is_empty() {
            jobs.retain(|job| first.check(job).is_ok());
        }
        jobs.iter().try_for_each(|job| first.check(job)).map_err(misuse)?;
        let asked = jobs.len();
        let compared = if self.html.is_some() { self.compared(traces, &algorithms, &rules)? } else { Vec::new() };
        let compared_len = compared.len();
        jobs.extend(compared);
        if on_flash {
            jobs = with_references(jobs);
        }
        let total = jobs.iter().map(|job| traces[job.trace].len() as u64).sum::<u64>() * layouts.len() as u64;
        let bar = Bar::accesses(format!("{} runs", jobs.len() * layouts.len()), total);
        // A row for each layout, one after the other.
        let mut rows: Vec<Vec<(usize, ResultRow)>> = vec![Vec::new(); asked + compared_len];
        for layout in layouts {
            let (runs, samples) = self.experiment(traces, &jobs, &of_layout(layout), &bar).map_err(misuse)?;
            for ((rows, run), sample) in rows.iter_mut().zip(&runs).zip(samples) {
                let trace = run.job.trace;
                let row = ResultRow::of_run(&traces[trace], run, reference(&runs, run), limits);
                rows.push((trace, ResultRow { sample, ..row }));
            }
        }
        drop(bar);
        if self.html.is_some() {
            // First what the others are compared with, last what auto chooses among.
            let (asked, compared) = rows.split_at(asked);
            let is_asked = |rows: &&Vec<(usize, ResultRow)>| {
                algorithms.iter().any(|algorithm| algorithm.to_string() == rows[0].1.policy)
            };
            let (alone, candidates): (Vec<_>, Vec<_>) = compared.iter().partition(is_asked);
            let of_trace = |number| {
                let all = alone.iter().copied().chain(asked).chain(candidates.iter().copied()).flatten();
                all.filter(|(trace, _)| *trace == number).map(|(_, row)| row.clone()).collect()
            };
            self.write_report(traces, &of_trace, false)?;
        }
        let rows: Vec<_> = rows.into_iter().take(asked).flatten().map(|(_, row)| row).collect();
        self.write_parquet(&rows)?;
        let table = match devices {
            _ if on_flash => table::endurance_results,
            _ if in_log => table::cache_results,
            Some(_) => table::array_results,
            None => table::results,
        };
        self.print(&rows, table)
    }

    /// Runs jobs over the traces, or over their samples, and how good these are.
    fn experiment(
        &self,
        traces: &[Trace],
        jobs: &[experiment::Job],
        experiment: &Experiment,
        bar: &Bar,
    ) -> Result<(Vec<experiment::Run>, Vec<Option<SampleFigures>>), ExperimentError> {
        if self.sample.is_given() {
            let runs = sampled::run(traces, jobs, experiment, bar)?;
            return Ok(runs.into_iter().map(|sampled| (sampled.run, Some(sampled.figures))).unzip());
        }
        Ok((experiment::run(traces, jobs.to_vec(), experiment, bar)?, vec![None; jobs.len()]))
    }

    /// What a report compares with besides what was asked for: each policy alone, and each that `auto` chooses among.
    fn compared(
        &self,
        traces: &[Trace],
        algorithms: &[Algorithm],
        rules: &[Option<TraceRule>],
    ) -> anyhow::Result<Vec<experiment::Job>> {
        let mut alone: Vec<Algorithm> =
            if rules.iter().any(Option::is_none) { Vec::new() } else { algorithms.to_vec() };
        for candidate in rules.iter().flatten().flat_map(|rule| rule.spec().candidates()) {
            let known = |algorithm: &&Algorithm| algorithm.to_string() == candidate.to_string();
            if !algorithms.iter().chain(&alone).any(|algorithm| known(&algorithm)) {
                alone.push(Algorithm::parse(&candidate.to_string())?);
            }
        }
        self.jobs_behind(traces, &alone, &[None])
    }

    /// Writes the report of the rows of each trace, by its number. What is recommended of policies alone is run again.
    fn write_report(
        &self,
        traces: &[Trace],
        rows: &(dyn Fn(usize) -> Vec<ResultRow> + Sync),
        with_checks: bool,
    ) -> anyhow::Result<()> {
        let Some(html) = &self.html else { return Ok(()) };
        let report = self.report(traces, rows, with_checks)?;
        write_whole(html, &self.traces, |file| anyhow::Ok(file.write_all(report.as_bytes())?))
    }

    #[cfg(feature = "parquet")]
    fn write_parquet(&self, rows: &[ResultRow]) -> anyhow::Result<()> {
        let Some(parquet) = &self.parquet else { return Ok(()) };
        let contents = results::parquet(rows)?;
        write_whole(parquet, &self.traces, |file| anyhow::Ok(file.write_all(&contents)?))
    }

    /// Asking for one is refused before anything runs.
    #[cfg(not(feature = "parquet"))]
    fn write_parquet(&self, _: &[ResultRow]) -> anyhow::Result<()> {
        Ok(())
    }

    /// What the report recommends, run again to say how sure that is; none where what knows the future is all there is.
    fn checks(&self, trace: &Trace, rows: &[ResultRow]) -> anyhow::Result<Option<Checks>> {
        let Some(row) = flashwise_report::recommended(rows) else { return Ok(None) };
        let policy = Spec::parse(&row.policy)?;
        if policy.info().offline {
            return Ok(None);
        }
        checks::run(trace, &policy, row, self.warmup, &Silent).map(Some).map_err(misuse)
    }

    fn report(
        &self,
        traces: &[Trace],
        rows: &(dyn Fn(usize) -> Vec<ResultRow> + Sync),
        with_checks: bool,
    ) -> anyhow::Result<String> {
        let bar = Bar::accesses("reuse distances".to_owned(), traces.iter().map(|trace| trace.len() as u64).sum());
        let section = |(number, trace): (usize, &Trace)| {
            let (info, reuse) = (Info::of(trace), reuse(trace, &bar));
            let rows = rows(number);
            let checks = if with_checks { self.checks(trace, &rows)? } else { None };
            anyhow::Ok(Section { info, reuse, rows, checks })
        };
        let sections = traces.par_iter().enumerate().map(section).collect::<Result<_, _>>()?;
        let command = command()?;
        Ok(flashwise_report::render(&Report { command, counting: self.counting(), sections })?)
    }

    fn policies(&self) -> anyhow::Result<Vec<Spec>> {
        if self.policies.is_empty() {
            return POLICIES.iter().map(|info| Ok(Spec::parse(info.name)?)).collect();
        }
        let policies = self.policies.iter().flatten().filter_map(|choice| match choice {
            Choice::Policy(policy) => Some(policy.clone()),
            Choice::Algorithm(_) => None,
        });
        Ok(policies.collect())
    }

    fn jobs(&self, traces: &[Trace], policies: &[Spec]) -> anyhow::Result<Vec<Job>> {
        let job =
            |trace, policy: &Spec, size, capacity_blocks| Job { trace, policy: policy.clone(), size, capacity_blocks };
        self.runs(traces, policies, job)
    }

    /// The policies and algorithms that were named, or those that are run where none is.
    fn algorithms(&self, layout: &Layout) -> anyhow::Result<Vec<Algorithm>> {
        let on_flash = matches!(layout, Layout::Flash(_));
        if self.policies.is_empty() && on_flash {
            return ALGORITHMS.iter().map(|name| Ok(Algorithm::parse(name)?)).collect();
        }
        if self.policies.is_empty() {
            let online = POLICIES.iter().filter(|info| !info.offline);
            return online.map(|info| Ok(Algorithm::parse(info.name)?)).collect();
        }
        let algorithm = |choice: &Choice| match choice {
            Choice::Policy(policy) if policy.info().offline && on_flash => Err(anyhow::Error::new(Misuse(format!(
                "policy '{policy}' knows the future of hits alone, expected m where flash is simulated: it is the best there"
            )))),
            Choice::Policy(policy) if policy.info().offline && matches!(layout, Layout::Log(_)) => {
                Err(anyhow::Error::new(Misuse(CacheError::Offline { policy: policy.to_string() }.to_string())))
            }
            Choice::Policy(policy) if policy.info().offline => Err(anyhow::Error::new(Misuse(format!(
                "policy '{policy}' knows the future, expected one that can run behind --admission and --ram, and before devices"
            )))),
            Choice::Policy(policy) => Ok(Algorithm::parse(&policy.to_string())?),
            Choice::Algorithm(algorithm) => Ok(algorithm.clone()),
        };
        self.policies.iter().flatten().map(algorithm).collect()
    }

    /// A job for each trace, algorithm, size and rule.
    fn jobs_behind(
        &self,
        traces: &[Trace],
        algorithms: &[Algorithm],
        rules: &[Option<TraceRule>],
    ) -> anyhow::Result<Vec<experiment::Job>> {
        let job = |trace, algorithm: &Algorithm, size, capacity_blocks| experiment::Job {
            trace,
            algorithm: algorithm.clone(),
            admission: None,
            size,
            capacity_blocks,
        };
        let jobs = self.runs(traces, algorithms, job)?.into_iter().flat_map(|job| {
            let of_rule = move |rule: &Option<TraceRule>| {
                let admission = rule.as_ref().map(|rule| rule.of(&traces[job.trace]));
                experiment::Job { admission, ..job.clone() }
            };
            rules.iter().map(of_rule)
        });
        Ok(jobs.collect())
    }

    /// A job for each trace, policy and size.
    fn runs<P, J>(
        &self,
        traces: &[Trace],
        policies: &[P],
        job: impl Fn(usize, &P, String, usize) -> J,
    ) -> anyhow::Result<Vec<J>> {
        let sizes = Sizes::all(&self.sizes, SIZES)?;
        let mut jobs = Vec::new();
        for (number, trace) in traces.iter().enumerate() {
            let (name, len) = (trace.name(), trace.whole_len());
            let warmup = self.warmup.accesses(len as usize);
            if warmup >= len {
                let what =
                    format!("{name}: a warm-up of {warmup} accesses leaves none to count, expected fewer than {len}");
                return Err(Misuse(what).into());
            }
            for policy in policies {
                for size in &sizes {
                    let unique_blocks = trace.whole_unique_blocks() as usize;
                    let capacity_blocks = size.capacity_blocks(unique_blocks, trace.block_size_bytes())?;
                    jobs.push(job(number, policy, size.to_string(), capacity_blocks));
                }
            }
        }
        Ok(jobs)
    }

    fn simulate(&self, traces: &[Trace], jobs: Vec<Job>) -> anyhow::Result<Vec<Run>> {
        let total = jobs.iter().map(|job| traces[job.trace].len() as u64).sum();
        let bar = Bar::accesses(format!("{} runs", jobs.len()), total);
        Ok(simulate(traces, jobs, self.counting(), &bar)?)
    }

    fn counting(&self) -> Counting {
        Counting { warmup: self.warmup, epoch: self.epoch }
    }

    fn print(&self, rows: &[ResultRow], table: fn(&[ResultRow]) -> String) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, rows).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else if self.csv {
            results::write_csv(rows, &mut out)?;
        } else {
            writeln!(out, "{}", table(rows))?;
            if let Some(html) = &self.html {
                writeln!(out, "\nReport: {}", html.display())?;
            }
        }
        Ok(())
    }
}

/// The reuse distances of a trace; none of a sample, whose distances are not those of the whole trace.
fn reuse(trace: &Trace, bar: &Bar) -> ReuseDistances {
    if trace.sample().is_none() {
        return ReuseDistances::of(trace, Distance::Unique, bar);
    }
    ReuseDistances { distance: Distance::Unique, reads: Histogram::default(), writes: Histogram::default() }
}

/// How far hit ratios from samples are off at most; none if a sample is too small to say.
pub fn margin(runs: &[Run]) -> Option<f64> {
    let margin = |run: &Run| match &run.sample {
        Some(sample) if sample.sample_caveat.is_some() => None,
        Some(sample) => Some(sample.hit_ratio_margin),
        None => Some(0.0),
    };
    runs.iter().map(margin).try_fold(0.0, |most: f64, margin| Some(most.max(margin?)))
}

/// What does not go together is a misuse; what is missing or damaged is not.
fn misuse(error: ExperimentError) -> anyhow::Error {
    match error {
        ExperimentError::Endurance(error) => error.into(),
        ExperimentError::Trace(error) => error.into(),
        error => Misuse(error.to_string()).into(),
    }
}

/// The command line, as a shell would take it.
pub fn command() -> Result<String, shlex::QuoteError> {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let arguments: Vec<String> = arguments.collect();
    shlex::try_join(std::iter::once("flashwise").chain(arguments.iter().map(String::as_str)))
}
