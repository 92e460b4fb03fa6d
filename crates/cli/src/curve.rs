//! `flashwise curve`: each policy's hit ratio at every cache size.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flashwise_core::human;
use flashwise_core::options::OptionError;
use flashwise_core::policy::Spec;
use flashwise_report::curve::Curves;
use flashwise_report::render_curves;
use flashwise_sim::curve::{self, CurvePoint, PARTS, SIZES, capacities, is_in_one_pass, write_csv};
use flashwise_sim::sampling::margin;
use flashwise_sim::simulate::Warmup;
use flashwise_sim::size::Size;
use flashwise_trace::Trace;
use flashwise_trace::output::write_whole;
use flashwise_trace::tools::curve::{LruCurvePass, working_sets};
use flashwise_trace::tools::info::Info;

use crate::fit;
use crate::input::InputOptions;
use crate::list::{List, ListError, distinct};
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::sample::SampleOptions;
use crate::simulate::{Sizes, command, misuse, parse_sizes};
use crate::table::plain;

/// Sizes that the table shows if none are given.
const SIZES_SHOWN: [&str; 8] = ["1%", "2%", "5%", "10%", "20%", "30%", "50%", "100%"];

/// Show a policy's hit ratio at every cache size
///
/// LRU is exact and takes one pass; other policies are simulated. An LRU cache of C blocks hits the accesses with fewer
/// than C different blocks since the previous access to the same block. The knee, where the curve bends, does not
/// depend on the sizes shown. The page also shows the blocks in use over time.
#[derive(Debug, Args)]
pub struct Curve {
    /// Trace in any format; - is standard input
    trace: PathBuf,
    /// Policies from `flashwise policies`: lru,larc; repeatable [default: lru]
    #[arg(long = "policy", value_name = "POLICY", value_parser = parse_policies)]
    policies: Vec<List<Spec>>,
    /// Cache sizes, as for simulate; repeatable [default: 1%..100%:1%; the table shows nine of them]
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_sizes)]
    sizes: Vec<Sizes>,
    /// Accesses at the start that are not counted: a number, or a share such as 10%
    #[arg(long, value_name = "ACCESSES", default_value = "0")]
    warmup: Warmup,
    #[command(flatten)]
    sample: SampleOptions,
    /// Print a JSON array, one object per policy and size
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV, one line per policy and size
    #[arg(long)]
    csv: bool,
    /// Write a page with charts to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    input: InputOptions,
}

fn parse_policies(text: &str) -> Result<List<Spec>, ListError<OptionError>> {
    List::read(text, Spec::parse)
}

impl Curve {
    pub fn run(&self) -> anyhow::Result<()> {
        let traces = std::slice::from_ref(&self.trace);
        self.outputs().check(traces)?;
        let given = Sizes::given(&self.sizes);
        let sizes = if given.is_empty() { Size::parse_list(SIZES)? } else { given };
        if let Some(warmup) = self.one_pass_warmup() {
            let mut pass = LruCurvePass::new(warmup, 0);
            let about = self.input.pass(&self.trace, |columns| pass.accesses(columns))?;
            return self.print(&curve::lru_points(&about, &pass.finish(), &sizes, warmup).map_err(misuse)?);
        }
        let work = |share| {
            let traces = self.input.open_all(traces, false, false, self.sample.sampling(share))?;
            let (points, margin) = self.points(&traces[0], &sizes)?;
            Ok((traces, points, margin))
        };
        let (traces, points, _) = self.sample.accurate(&[], traces, work, |(_, _, margin)| *margin)?;
        // Print first, and fail last: a page that cannot be written does not lose the curve, nor a closed output the
        // page.
        let printed = self.print(&points);
        if let Some(html) = &self.html {
            let trace = &traces[0];
            let working_sets = working_sets(trace, PARTS);
            let curves = Curves { info: Info::of(trace), points: points.clone(), working_sets };
            let page = render_curves(&command()?, &curves)?;
            write_whole(html, std::slice::from_ref(&self.trace), |file| anyhow::Ok(file.write_all(page.as_bytes())?))?;
        }
        printed?;
        match &self.html {
            Some(html) if !self.json && !self.csv => {
                Ok(writeln!(self.outputs().screen(), "\nPage: {}", html.display())?)
            }
            _ => Ok(()),
        }
    }

    /// The length of the warm-up, if one pass over the trace suffices: LRU over a whole trace, with a warm-up known in
    /// advance.
    fn one_pass_warmup(&self) -> Option<u64> {
        let is_sampled = self.sample.share().is_some() || self.sample.accuracy_given().is_some();
        match self.warmup {
            Warmup::Accesses(warmup) if !is_sampled && self.html.is_none() => {
                let is_lru = self.policies.iter().flatten().all(|policy| policy.to_string() == "lru");
                is_lru.then_some(warmup)
            }
            _ => None,
        }
    }

    /// The points of all curves, by policy and size, and the largest margin of their hit ratios.
    fn points(&self, trace: &Trace, sizes: &[Size]) -> anyhow::Result<(Vec<CurvePoint>, Option<f64>)> {
        let sizes = capacities(trace, sizes)?;
        let lru = Spec::parse("lru")?;
        let policies = if self.policies.is_empty() { vec![lru] } else { distinct(&self.policies) };
        let (mut points, mut most) = (Vec::new(), Some(0.0_f64));
        for policy in &policies {
            let bar = match is_in_one_pass(trace, policy) {
                true => Bar::accesses("lru at every size".to_owned(), trace.len() as u64),
                false => {
                    let sizes = curve::simulated(trace, &sizes).len();
                    Bar::accesses(format!("{policy} at {sizes} sizes"), (sizes * trace.len()) as u64)
                }
            };
            let (curve, samples) = curve::points(trace, policy, &sizes, self.warmup, &bar).map_err(misuse)?;
            most = most.zip(margin(&samples)).map(|(most, margin)| most.max(margin));
            points.extend(curve);
        }
        Ok((points, most))
    }

    fn outputs(&self) -> Outputs<'_> {
        Outputs::new([("--html", self.html.as_deref())], self.json || self.csv)
    }

    /// The points that the table shows: all of the sizes that are given, else some, and the number of sizes that it
    /// leaves out.
    fn shown<'a>(&self, points: &'a [CurvePoint]) -> (Vec<&'a CurvePoint>, usize) {
        if !self.sizes.is_empty() {
            return (points.iter().collect(), 0);
        }
        let shown: Vec<&CurvePoint> =
            points.iter().filter(|point| point.knee == 1 || SIZES_SHOWN.contains(&&point.size[..])).collect();
        let sizes = |points: &mut dyn Iterator<Item = &CurvePoint>| {
            points.map(|point| &point.size[..]).collect::<std::collections::HashSet<_>>().len()
        };
        let hidden = sizes(&mut points.iter()) - sizes(&mut shown.iter().copied());
        (shown, hidden)
    }

    fn print(&self, points: &[CurvePoint]) -> anyhow::Result<()> {
        let mut out = self.outputs().screen();
        if self.json {
            serde_json::to_writer_pretty(&mut out, points).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        if self.csv {
            return Ok(write_csv(points, &mut out)?);
        }
        let sampled = points.iter().any(|point| point.hit_ratio_standard_error.is_some());
        let mut header = vec!["policy", "size", "capacity", "hits"];
        header.extend(sampled.then_some("error"));
        header.extend(["read hits", "write hits", "knee"]);
        let mut table = plain(&header, 1);
        let mut previous: Option<&CurvePoint> = None;
        let (shown, hidden) = self.shown(points);
        for point in shown {
            if previous.is_some_and(|previous| previous.policy != point.policy) {
                table.add_row([""]);
            }
            let mut cells = vec![point.policy.clone(), point.size.clone(), human::bytes(point.capacity_bytes as f64)];
            cells.push(human::percent(point.hit_ratio));
            cells.extend(point.hit_ratio_standard_error.map(human::percent));
            cells.extend([point.read_hit_ratio, point.write_hit_ratio].map(human::percent));
            cells.push(if point.knee == 1 { "*".to_owned() } else { String::new() });
            table.add_row(cells);
            previous = Some(point);
        }
        writeln!(out, "{}", table.trim_fmt())?;
        let error = if sampled { "\nerror: standard error of hits, from a sample" } else { "" };
        writeln!(out, "{error}")?;
        if hidden > 0 {
            writeln!(out, "{hidden} more sizes: --size {SIZES}")?;
        }
        let mut named: Vec<&str> = Vec::new();
        for point in points {
            if !named.contains(&&point.policy[..]) {
                named.push(&point.policy);
                writeln!(out, "{}", fit::sentences(&knee(point), 0, fit::width()))?;
            }
        }
        // One caveat for each policy, at its smallest size.
        let mut warned: Vec<&str> = Vec::new();
        for point in points {
            let Some(caveat) = &point.sample_caveat else { continue };
            if !warned.contains(&&point.policy[..]) {
                warned.push(&point.policy);
                let line = format!("\n{}, size {}: {caveat}.", point.policy, point.size);
                writeln!(out, "{}", fit::sentences(&line, 0, fit::width()))?;
            }
        }
        Ok(())
    }
}

/// Describes the knee of the curve of `point` in a sentence.
fn knee(point: &CurvePoint) -> String {
    let policy = &point.policy;
    let bytes_of = point.capacity_bytes.checked_div(point.capacity_blocks);
    let Some(((blocks, hits), block_bytes)) = point.knee_blocks.zip(point.knee_hit_ratio).zip(bytes_of) else {
        return format!("{policy} has no knee: each further block of cache brings about as much as the one before.");
    };
    let size = human::bytes(blocks.saturating_mul(block_bytes) as f64);
    format!("{policy} bends at {size}, where {} of the accesses hit.", human::percent(hits))
}
