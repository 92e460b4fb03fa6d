//! `flashwise pareto`: which caches are worth having.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flashwise_core::human;
use flashwise_core::options::OptionError;
use flashwise_report::pareto::{self, Point};
use flashwise_sim::columns::about;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::experiment::{self, Case, Experiment, ExperimentError, Layout};
use flashwise_sim::job::{Job, Placement};
use flashwise_sim::results::{EnduranceFigures, ResultRow, TierFigures};
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_sim::size::Size;
use flashwise_trace::Trace;
use flashwise_trace::output::write_whole;

use crate::cache::CacheOptions;
use crate::failure::Misuse;
use crate::fit;
use crate::help;
use crate::input::InputOptions;
use crate::list::{List, ListError, distinct};
use crate::log::note;
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::simulate::{Sizes, misuse, parse_sizes};
use crate::table::{self, caveats, rate};

/// Find the caches that hit most for their erasures
///
/// All caches have the same RAM: --ram, or more if the write buffer or the open erase units of one need it. A share is
/// of the largest size.
#[derive(Debug, Args)]
#[command(mut_args(help::without_stages))]
pub struct Pareto {
    /// Trace in any format; - is standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Online policies, with their options: lru,larc; repeatable [default: all, some with other parameters too]
    #[arg(long = "policy", value_name = "POLICY", value_parser = parse_policies)]
    policies: Vec<List<Algorithm>>,
    /// Cache sizes, as for simulate; repeatable [default: 1%,2%,5%,10%,20%]
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_sizes)]
    sizes: Vec<Sizes>,
    /// Accesses at the start that are not counted: a number, or a share such as 10%
    #[arg(long, value_name = "ACCESSES", default_value = "0")]
    warmup: Warmup,
    /// Print all caches, not only the frontiers
    #[arg(long)]
    all: bool,
    /// Print all caches as a JSON array
    #[arg(long)]
    json: bool,
    /// Write a chart of hits against erasures to an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    input: InputOptions,
    #[command(flatten)]
    cache: CacheOptions,
}

fn parse_policies(text: &str) -> Result<List<Algorithm>, ListError<OptionError>> {
    List::read(text, parse_policy)
}

fn parse_policy(text: &str) -> Result<Algorithm, OptionError> {
    let algorithm = Algorithm::parse(text)?;
    if algorithm.offline() {
        let expected = "an online policy; the offline ones are always included";
        return Err(OptionError::bad_value("pareto", "policy", text, expected));
    }
    Ok(algorithm)
}

impl Pareto {
    pub fn run(&self) -> anyhow::Result<()> {
        self.outputs().check(std::slice::from_ref(&self.trace))?;
        let mut job = Job { spare: self.cache.spares().first().copied(), ..Job::default() };
        self.cache.put(&mut job);
        let meaning = job.meaning_with(Some("flashwise pareto")).map_err(misuse)?;
        let Placement::Flash(settings) = meaning.place else {
            let found = job.layout.map_or_else(String::new, |layout| layout.to_string());
            return Err(Misuse(format!("--layout: found {found}, expected in-place or containers for pareto")).into());
        };
        if self.cache.spares().len() > 1 {
            return Err(Misuse("--spare: found a list, expected one share for pareto".to_owned()).into());
        }
        let trace = self.input.open(&self.trace)?;
        let given = Sizes::given(&self.sizes);
        let sizes = if given.is_empty() { Size::parse_list(pareto::SIZES)? } else { given };
        let online: Vec<Algorithm> =
            if self.policies.is_empty() { pareto::online().collect() } else { distinct(&self.policies) };
        let mut cases = pareto::cases(&trace, &online, &sizes)?;
        let counting = Counting { warmup: self.warmup, epoch: None };
        let experiment = Experiment { layout: Layout::Flash(settings), devices: None, counting };
        let experiment = experiment.with_equal_ram(&trace, &cases);
        if self.sizes.is_empty() {
            leave_out(&trace, &mut cases, &experiment)?;
        }
        let bar = Bar::accesses(format!("{} runs", cases.len()), cases.len() as u64 * trace.len() as u64);
        let runs = experiment::run(std::slice::from_ref(&trace), cases, &experiment, &bar);
        let runs = runs.map_err(|error| misuse(error.into()))?;
        drop(bar);
        let points = pareto::points(&trace, runs.iter());
        if let Some(svg) = &self.svg {
            let chart = pareto::chart(&points);
            write_whole(svg, std::slice::from_ref(&self.trace), |file| anyhow::Ok(file.write_all(chart.as_bytes())?))?;
        }
        self.print(&points)
    }

    fn outputs(&self) -> Outputs<'_> {
        Outputs::new([("--svg", self.svg.as_deref())], self.json)
    }

    fn print(&self, points: &[Point]) -> anyhow::Result<()> {
        let mut out = self.outputs().screen();
        if self.json {
            serde_json::to_writer_pretty(&mut out, points).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        let shown =
            |offline: bool| points.iter().filter(move |point| point.offline == offline && (self.all || point.frontier));
        writeln!(out, "Online:\n\n{}\n", frontier(shown(false)))?;
        writeln!(out, "Offline (sees the future):\n\n{}\n", frontier(shown(true)))?;
        let footnote = "RAM: equal for all caches; read hits: share of the reads; erased: erase units, per day each; \
            flash writes: blocks";
        let footnote = match self.all {
            true => {
                format!(
                    "{footnote}; *: on the frontier: no other has more hits without more erasures, or fewer erasures \
                     without fewer hits."
                )
            }
            false => {
                format!("{footnote}. No other cache is better in one of hits and erasures and as good in the other.")
            }
        };
        writeln!(out, "{}", fit::sentences(&footnote, 0, fit::width()))?;
        let caveats = caveats(points.iter().map(|point| (&point.trace[..], point.caveat.as_deref())));
        write!(out, "{}", fit::sentences(&caveats, 0, fit::width()))?;
        if let Some(svg) = &self.svg {
            writeln!(out, "\nChart: {}", svg.display())?;
        }
        Ok(())
    }
}

/// Drops caches of default sizes that are too small, with a note. Fails if none is left.
fn leave_out(trace: &Trace, cases: &mut Vec<Case>, experiment: &Experiment) -> anyhow::Result<()> {
    let mut left_out: Vec<(Case, ExperimentError)> = Vec::new();
    cases.retain(|case| match experiment::fits(trace, case, experiment) {
        Ok(()) => true,
        Err(why) => {
            left_out.push((case.clone(), why));
            false
        }
    });
    if cases.is_empty() {
        let why = left_out.into_iter().next().map(|(_, why)| why);
        return why.map_or(Ok(()), |why| Err(misuse(why.into())));
    }
    for of_size in left_out.chunk_by(|(one, _), (other, _)| one.size == other.size) {
        let names: Vec<String> = of_size.iter().map(|(case, _)| case.algorithm.to_string()).collect();
        let is_all = !cases.iter().any(|case| case.size == of_size[0].0.size);
        let which = if is_all { "all policies".to_owned() } else { names.join(", ") };
        note!("left out {which}: {}", of_size[0].1);
    }
    Ok(())
}

fn frontier<'a>(points: impl Iterator<Item = &'a Point>) -> String {
    let (rows, tiers, wear) = (ResultRow::COLUMNS, TierFigures::COLUMNS, EnduranceFigures::COLUMNS);
    let [policy, size] = ["policy", "size"].map(|name| table::heading(about(rows, name)));
    let [read_hits, writes] = ["read_hit_ratio", "flash_writes_blocks"].map(|name| table::heading(about(rows, name)));
    let (erased, per_day) = (table::heading(about(tiers, "erasures")), table::heading(about(wear, "epbpd")));
    let mut table = table::plain(&[policy, size, "RAM", read_hits, erased, per_day, writes, ""], 2);
    for point in points {
        table.add_row([
            point.policy.clone(),
            point.size.clone(),
            human::bytes(point.ram_bytes as f64),
            human::percent(point.rhr),
            human::count(point.erasures),
            point.epbpd.map_or_else(|| "-".to_owned(), |epbpd| rate(point.caveat.as_deref(), human::number(epbpd))),
            human::count(point.flash_writes_blocks),
            if point.frontier { "*".to_owned() } else { String::new() },
        ]);
    }
    table.trim_fmt()
}
