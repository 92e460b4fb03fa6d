//! The report of a simulation: one self-contained HTML file with tables, charts and explanations.
//!
//! Equal results and dates give equal bytes: a report has no time, no path of its own and nothing random.
//!
//! ```
//! use flashwise_report::{Report, Section, render};
//! use flashwise_sim::simulate::{Counting, Warmup};
//! use flashwise_trace::normalised::{self, Settings};
//! use flashwise_trace::progress::Silent;
//! use flashwise_trace::tools::info::Info;
//! use flashwise_trace::tools::reuse::{Distance, ReuseDistances};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("trace.csv");
//! std::fs::write(&path, "128166372003061629,web,0,Read,8192,4096,0\n128166372003061630,web,0,Read,8192,4096,0\n")?;
//! let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent)?;
//!
//! // A report of a trace only; rows of a simulation add figures and charts.
//! let reuse = ReuseDistances::of(&trace, Distance::Unique, &Silent);
//! let section = Section { info: Info::of(&trace), reuse, workload: None, rows: Vec::new(), checks: None };
//! let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
//! let command = "flashwise simulate trace.csv".to_owned();
//! let page = render(&Report { command, title: None, date: None, counting, sections: vec![section] })?;
//! assert!(page.contains("Flash cache simulation of"));
//! # Ok(())
//! # }
//! ```

mod answer;
mod array;
pub mod curve;
mod draw;
mod facts;
mod figures;
mod frontier;
mod grid;
mod made;
mod numbers;
pub mod pareto;
mod rows;
pub mod sweep;
mod table;
mod wear;
mod workload;

use flashwise_core::admission::RULES;
use flashwise_core::policy::Spec;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, HtmlEscape, Value};
use serde::Serialize;

use crate::answer::Answer;
use crate::answer::choice::Choice;
use crate::draw::charts::LegendKey;
use crate::draw::look::Looks;
use crate::figures::{Subject, reuse_distances};
use crate::grid::Grid;
use crate::table::{Figure, Picture, Table};
use flashwise_sim::checks::Checks;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::results::{ResultRow, SpecText};
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::ReuseDistances;
use flashwise_trace::tools::workload::Workload;

/// Results to report.
#[derive(Clone, Debug)]
pub struct Report {
    /// The command that made them, quoted for a shell.
    pub command: String,
    /// The title of the page, if it is not that of the traces.
    pub title: Option<String>,
    /// The date at the top of the page.
    pub date: Option<String>,
    /// Warm-up and epochs.
    pub counting: Counting,
    /// The traces in order.
    pub sections: Vec<Section>,
}

/// One trace and its results.
#[derive(Clone, Debug)]
pub struct Section {
    /// Description of the trace.
    pub info: Info,
    /// Reuse distances of its blocks.
    pub reuse: ReuseDistances,
    /// The accesses over time and address, if they are drawn.
    pub workload: Option<Workload>,
    /// Its results. Policies appear in the order of their first rows, sizes by number of blocks.
    pub rows: Vec<ResultRow>,
    /// Checks of the [`recommended`] row, if any.
    pub checks: Option<Checks>,
}

/// Returns the recommended row of a trace: the policy and size to buy. `None` if nothing was counted, or if arrays are
/// compared.
pub fn recommended(rows: &[ResultRow]) -> Option<&ResultRow> {
    if array::is_of_arrays(rows) {
        return None;
    }
    Choice::of(&Grid::new(rows)).map(|choice| choice.row)
}

/// Returns the other policies that rules are tried before.
fn others(rows: &[ResultRow]) -> Vec<&str> {
    let grid = Grid::new(rows);
    Choice::of(&grid).map_or_else(Vec::new, |choice| answer::choice::others(&grid, &choice))
}

/// The reason why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the report could not be rendered")]
pub struct ReportError(#[from] minijinja::Error);

/// Returns the report as an HTML page.
pub fn render(report: &Report) -> Result<String, ReportError> {
    page(&ReportPage::new(report))
}

fn page(page: &ReportPage) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("breakable", breakable);
    environment.add_template("page.html", include_str!("page.html"))?;
    let page = Value::from(Serde(page));
    Ok(environment.get_template("page.html")?.render(page)?)
}

/// Longer words, such as rules with options, may be broken between their options.
const WORD_MAX: usize = 20;

/// Returns text as HTML, with preferred break points in long words.
fn breakable(text: &str) -> Value {
    let mut html = String::new();
    for word in text.split_inclusive([' ', '\n']) {
        let is_long = word.chars().count() > WORD_MAX;
        let mut parts = word.split_inclusive([':', ',', '/']).peekable();
        while let Some(part) = parts.next() {
            html += &HtmlEscape(part).to_string();
            if is_long && parts.peek().is_some_and(|next| !next.trim().is_empty()) {
                html += "<wbr />";
            }
        }
    }
    Value::from_safe_string(html)
}

/// Returns the curves of one trace as an HTML page, made by `command`.
///
/// # Errors
/// None that the curves could cause.
pub fn render_curves(command: &str, curves: &curve::Curves) -> Result<String, ReportError> {
    let section = SectionView {
        id: "trace-1".to_owned(),
        name: curves.info.trace.clone(),
        remarks: curves.sentences(),
        info: curves.info(),
        heading: "Hits by cache size, and blocks in use",
        results: curves.figures("trace-1"),
        ..SectionView::default()
    };
    let settings = [
        ("Made by", format!("flashwise {}", env!("CARGO_PKG_VERSION"))),
        ("Command", command.to_owned()),
        ("Block size", numbers::bytes(curves.info.block_size_bytes)),
    ];
    page(&ReportPage {
        version: env!("CARGO_PKG_VERSION"),
        title: format!("Curves of {}", curves.info.trace),
        heading: "Hit ratio by cache size".to_owned(),
        colours: draw::look::css(":root"),
        switches: draw::look::switches(&[]),
        settings: settings.to_vec(),
        policies: policies(curves.policies().into_iter()),
        sections: vec![section],
        ..ReportPage::default()
    })
}

/// Returns the hit ratio against cache size of the rows of one trace, as an SVG file in light and dark.
pub fn hit_ratio_chart(rows: &[ResultRow]) -> String {
    let grid = Grid::new(rows);
    let looks = Looks::new(grid.policies.iter().map(|policy| policy.name));
    Subject { id: "chart", grid: &grid, looks: &looks }.hit_ratio_chart().standalone()
}

/// Returns pictures of a workload, each with its title and as an SVG file in light and dark. They show accesses over
/// time and address, requests per second, lengths of requests, popularity and reuse distances.
pub fn workload_charts(workload: &Workload, reuse: &ReuseDistances, block_size_bytes: u64) -> Vec<(String, String)> {
    let (reuse, _) = reuse_distances("workload", reuse, block_size_bytes);
    workload::pictures(workload).into_iter().chain([(reuse.title.clone(), reuse.standalone())]).collect()
}

pub use crate::answer::advice::render_advice;
pub use crate::answer::brief::Brief;
pub use crate::draw::panels::{Panel, panels_chart};
pub use crate::frontier::{FrontierPoint, frontier_chart};

/// Data of the template.
#[derive(Default, Serialize)]
struct ReportPage {
    version: &'static str,
    title: String,
    /// Heading.
    heading: String,
    date: Option<String>,
    colours: String,
    switches: String,
    settings: Vec<(&'static str, String)>,
    policies: Table,
    /// Advice over all traces, if there are several.
    sentences: Vec<String>,
    overview: Option<Picture>,
    summary: Option<Table>,
    over_traces: Vec<Figure>,
    over_traces_heading: &'static str,
    /// The legend of the figures over all traces.
    over_traces_policies: Vec<LegendKey>,
    sections: Vec<SectionView>,
}

#[derive(Default, Serialize)]
struct SectionView {
    id: String,
    name: String,
    /// The answer; `None` if there is none to give.
    answer: Option<Answer>,
    /// Further remarks about the results.
    remarks: Vec<String>,
    info: Table,
    heading: &'static str,
    compared_with_bound: bool,
    results: Vec<Figure>,
    bound: Vec<Figure>,
    has_bound: bool,
    reuse: Option<Figure>,
    workload: Vec<Figure>,
    time: Vec<TimeView>,
    counts: Table,
    /// The legend of all figures of policies.
    policies: Vec<LegendKey>,
}

/// Charts over time at one cache size.
#[derive(Serialize)]
struct TimeView {
    size: String,
    open: bool,
    figures: Vec<Figure>,
}

impl ReportPage {
    fn new(report: &Report) -> ReportPage {
        let rows: Vec<&[ResultRow]> = report.sections.iter().map(|section| &section.rows[..]).collect();
        let labelled = array::labelled(&rows);
        let grids: Vec<_> = labelled.iter().map(|rows| Grid::new(rows)).collect();
        let names = |grid: &Grid| grid.policies.iter().map(|policy| policy.name.to_owned()).collect::<Vec<_>>();
        let named: Vec<String> = grids.iter().flat_map(names).collect();
        // A policy looks the same in every section: the recommended ones are in colour.
        let mut first: Vec<&str> = Vec::new();
        for choice in grids.iter().filter_map(Choice::of) {
            if !first.contains(&&choice.row.policy[..]) {
                first.push(&choice.row.policy);
            }
        }
        let looks = Looks::few(&first, named.iter().map(String::as_str));
        let sections: Vec<_> = (report.sections.iter().zip(&grids).enumerate())
            .map(|(number, (section, grid))| SectionView::new(number + 1, section, grid, &looks))
            .collect();
        let both = report.sections.iter().zip(&sections);
        let answers: Vec<_> = both.filter_map(|(section, view)| Some((&section.info, view.answer.as_ref()?))).collect();
        let title = match &report.sections[..] {
            [only] => format!("Flash cache simulation of {}", only.info.trace),
            sections => format!("Flash cache simulation of {} traces", sections.len()),
        };
        let many = report.sections.len() > 1;
        let mut over_traces = if many { wear::over_traces(&report.sections, &looks) } else { Vec::new() };
        over_traces.extend(wear::parameters::by_parameter(&report.sections));
        let is_of_arrays = rows.iter().any(|rows| array::is_of_arrays(rows));
        if is_of_arrays {
            let names: Vec<_> = report.sections.iter().map(|section| &section.info.trace[..]).collect();
            over_traces = array::over_traces(&names, &rows, &labelled, &looks);
        }
        let summary = many.then(|| answer::answers::table(&answers));
        let title = report.title.clone().unwrap_or(title);
        let names: Vec<&str> = named.iter().map(String::as_str).collect();
        let over_traces_policies = one_legend(&names, over_traces.iter_mut());
        let legends = sections.iter().flat_map(|section| &section.policies).chain(&over_traces_policies);
        let mut classes: Vec<String> = legends.map(|key| key.class.clone()).collect();
        classes.sort_unstable();
        classes.dedup();
        ReportPage {
            version: env!("CARGO_PKG_VERSION"),
            title,
            heading: report.title.clone().unwrap_or_else(|| "Flash cache simulation".to_owned()),
            date: report.date.clone(),
            colours: draw::look::css(":root"),
            switches: draw::look::switches(&classes),
            settings: settings(report),
            policies: policies(rows.iter().copied().flatten().flat_map(|row| [&row.policy[..], rows::rule(row)])),
            sentences: if many { answer::answers::sentences(&answers) } else { Vec::new() },
            overview: if many { answer::answers::picture(&answers) } else { None },
            summary,
            over_traces,
            over_traces_heading: if is_of_arrays { "Latency and lifetime" } else { "Wear" },
            over_traces_policies,
            sections,
        }
    }
}

impl SectionView {
    fn new(number: usize, section: &Section, grid: &Grid, looks: &Looks) -> SectionView {
        let id = format!("trace-{number}");
        let subject = Subject { id: &id, grid, looks };
        let ran = !section.rows.is_empty();
        let is_of_arrays = array::is_of_arrays(&section.rows);
        let figures_over_time = |size| {
            let mut figures = subject.over_time(size);
            if is_of_arrays && !figures.is_empty() {
                figures.extend(array::time::over_time(&subject, size));
            }
            figures
        };
        let mut time: Vec<_> = (grid.sizes.iter())
            .map(|&size| TimeView { size: size.named(), open: false, figures: figures_over_time(size) })
            .filter(|view| !view.figures.is_empty())
            .collect();
        let middle = time.len() / 2;
        if let Some(view) = time.get_mut(middle) {
            view.open = true;
        }
        let reuse = (section.reuse.reads.accesses() + section.reuse.writes.accesses() > 0)
            .then(|| reuse_distances(&id, &section.reuse, section.info.block_size_bytes).1);
        let is_of_wear = wear::is_of_wear(&section.rows);
        let mut results = match ran {
            true if is_of_wear => wear::by_size(&subject, &section.rows),
            true if is_of_arrays => array::by_rule(&subject, &section.rows),
            true => {
                let figures = [Some(subject.hit_ratio()), Some(subject.flash_writes()), subject.write_traffic()];
                figures.into_iter().flatten().collect()
            }
            false => Vec::new(),
        };
        let mut bound = subject.distance_to_bound();
        let names: Vec<&str> = grid.policies.iter().map(|policy| policy.name).collect();
        let of_time = time.iter_mut().flat_map(|view| &mut view.figures);
        let policies = one_legend(&names, results.iter_mut().chain(&mut bound).chain(of_time));
        SectionView {
            name: section.info.trace.clone(),
            answer: Some(answer::of(section, &subject, is_of_arrays.then(|| array::sentences(grid).to_vec()))),
            remarks: if is_of_wear { wear::sentences(grid).to_vec() } else { Vec::new() },
            heading: match () {
                () if is_of_wear => "Hits and wear",
                () if is_of_arrays => "Hits, latency and lifetime",
                () => "Hits and flash writes",
            },
            compared_with_bound: !is_of_wear && !is_of_arrays,
            info: answer::summary::characteristics(&section.info),
            results,
            bound,
            policies,
            has_bound: grid.bound().is_some(),
            reuse,
            workload: section.workload.iter().flat_map(|workload| workload::figures(&id, workload)).collect(),
            time,
            counts: subject.all_counts(),
            id,
        }
    }
}

/// Takes the legends from figures of these policies, and returns one legend for all of them.
fn one_legend<'a>(policies: &[&str], figures: impl Iterator<Item = &'a mut Figure>) -> Vec<LegendKey> {
    let mut all: Vec<LegendKey> = Vec::new();
    for figure in figures {
        if figure.legend.iter().all(|key| policies.contains(&&key.name[..])) {
            for key in std::mem::take(&mut figure.legend) {
                if all.iter().all(|known| known.name != key.name) {
                    all.push(key);
                }
            }
        }
    }
    all.sort_by_key(|key| key.other);
    all
}

fn settings(report: &Report) -> Vec<(&'static str, String)> {
    let mut block_sizes: Vec<_> = report.sections.iter().map(|section| section.info.block_size_bytes).collect();
    block_sizes.sort_unstable();
    block_sizes.dedup();
    let block_sizes: Vec<_> = block_sizes.into_iter().map(numbers::bytes).collect();
    let warmup = match report.counting.warmup {
        Warmup::Accesses(0) => "none, all accesses are counted".to_owned(),
        Warmup::Accesses(accesses) => {
            let accesses = numbers::counted(accesses, "access", "accesses");
            format!("the first {accesses} of each trace are simulated and not counted")
        }
        Warmup::Share(share) => {
            let share = numbers::number(share * 100.0);
            format!("the first {share}% of the accesses of each trace are simulated and not counted")
        }
    };
    let epoch = report.counting.epoch.map(|accesses| numbers::counted(accesses, "access", "accesses"));
    let mut settings = vec![
        ("Made by", format!("flashwise {}", env!("CARGO_PKG_VERSION"))),
        ("Command", report.command.clone()),
        ("Block size", block_sizes.join(", ")),
        ("Warm-up", warmup),
        ("Epoch", epoch.unwrap_or_else(|| "none, no figures over time".to_owned())),
    ];
    settings.retain(|(_, setting)| !setting.is_empty());
    settings
}

/// Returns the policies, algorithms and admission rules of these names, with their sources.
fn policies<'a>(names: impl Iterator<Item = &'a str>) -> Table {
    let mut table = Table::new("Policies", ["Policy", "Name", "Kind", "Source"]);
    let mut seen = Vec::new();
    for name in names {
        if name.is_empty() || seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let info = Spec::parse(name).map(|policy| policy.info());
        let info = info.or_else(|_| Algorithm::parse(name).map(|algorithm| algorithm.info()));
        let rule = RULES.iter().find(|rule| rule.name == SpecText::from(name).name());
        let cells = match (info, rule) {
            (Ok(info), _) => {
                let kind = if info.offline { "offline: knows the future" } else { "online" };
                [info.title, kind, info.source].map(str::to_owned).to_vec()
            }
            (Err(_), Some(rule)) => [rule.title, "admission rule", rule.source].map(str::to_owned).to_vec(),
            (Err(_), None) => vec![String::new(); 3],
        };
        table.push(name, cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_broken_behind_their_parts_and_short_ones_nowhere() {
        let html = |text: &str| breakable(text).to_string();
        assert_eq!(html("run larc:fill=ghost & min"), "run larc:fill=ghost &amp; min");
        let rule = "mq behind adaptive:kind=hotness,writes=admit,timeframe=2s: it serves";
        let expected = "mq behind adaptive:<wbr />kind=hotness,<wbr />writes=admit,<wbr />timeframe=2s: it serves";
        assert_eq!(html(rule), expected);
    }
}
