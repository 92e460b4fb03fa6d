//! The page of `advise`: the recommended purchase, the reasons, the alternatives, and the uncertainty.

use flashwise_sim::advise::{Advice, AdvisedCache, Verdict};
use flashwise_trace::tools::info::Info;

use crate::answer::Answer;
use crate::answer::certainty::Certainty;
use crate::answer::summary;
use crate::draw::charts::{Chart, Mark, Series};
use crate::draw::look;
use crate::draw::look::Looks;
use crate::draw::scales::linear;
use crate::figures::{NUMBERS_FOLLOW, figure};
use crate::numbers::{bytes, duration, lifetime, number, percent};
use crate::table::{Figure, Picture, Table};
use crate::{ReportError, ReportPage, SectionView, numbers, page, policies};

const THIS: &str = "recommended";
const NEAREST: &str = "nearest";
const BEST: &str = "best cache";
const MEETS: &str = "meets the targets";
const MISSES: &str = "misses a target";
const ALONE: &str = "no cache";
const TARGET: &str = "target";
/// A target that is farther away than all that is drawn, by this factor, is not drawn.
const TARGET_FAR: f64 = 5.0;

/// Renders the advice as an HTML page. `command` is the command that made it, `info` describes the trace.
///
/// # Errors
/// The page cannot be rendered.
pub fn render_advice(command: &str, info: &Info, advice: &Advice) -> Result<String, ReportError> {
    let (chart, told) = latencies(advice);
    let cost = advice.cache.as_ref().map(|cache| (cache.cost, format!("{} {}", number(cache.cost), advice.currency)));
    let mark = cost.as_ref().map(|(cost, text)| Mark { x: *cost, text: text.trim_end() });
    let (wide, narrow) = chart.inline_told(mark, &told);
    let answer = Answer {
        facts: Vec::new(),
        sentences: advice.sentences.clone(),
        picture: Some(Picture { caption: caption(advice), wide, narrow, legend: chart.legend() }),
        certainty: Certainty { verdict: advice.certainty.verdict, reasons: advice.certainty.reasons.clone() },
        steps: advice.cache.as_ref().map(|cache| choices(advice, cache)),
        drives: None,
        cautions: advice.cautions.clone(),
        recommended: None,
    };
    let section = SectionView {
        id: "trace-1".to_owned(),
        name: info.trace.clone(),
        answer: Some(answer),
        info: summary::characteristics(info),
        heading: "All caches that were run",
        results: vec![all(advice)],
        ..SectionView::default()
    };
    let settings = [
        ("Made by", format!("flashwise {}", env!("CARGO_PKG_VERSION"))),
        ("Command", command.to_owned()),
        ("Catalogue", advice.catalogue.clone()),
        ("Targets", advice.targets.words()),
        ("Block size", numbers::bytes(info.block_size_bytes)),
    ];
    page(&ReportPage {
        version: env!("CARGO_PKG_VERSION"),
        title: format!("Cache for {}", info.trace),
        heading: "Which cache to buy".to_owned(),
        colours: look::css(":root"),
        switches: look::switches(&[]),
        settings: settings.to_vec(),
        policies: policies(advice.runs.iter().flat_map(|run| [&run.policy[..], rule(run)])),
        sections: vec![section],
        ..ReportPage::default()
    })
}

/// Names the answer's cache: the recommended one, else the best candidate or the one that comes closest to the targets.
fn name(advice: &Advice, cache: &AdvisedCache) -> &'static str {
    match advice.verdict {
        Verdict::Buy | Verdict::RamOnly => THIS,
        _ if cache.meets == 1 => BEST,
        _ => NEAREST,
    }
}

/// The rule before the policy; empty if there is none.
fn rule(run: &AdvisedCache) -> &str {
    if run.admission == "none" { "" } else { &run.admission }
}

/// Latency against cost.
fn latencies(advice: &Advice) -> (Chart, Vec<String>) {
    let value = |run: &AdvisedCache| Some(run.latency_mean_us / 1000.0);
    let axis = Axis {
        id: "advice",
        title: "Latency against cost",
        label: "Mean wait of a request, in ms",
        target: advice.targets.latency_us.map(|us| us / 1000.0),
        unit: "ms",
    };
    chart(advice, &axis, value, Some(advice.no_cache.latency_mean_us / 1000.0))
}

/// Lifetime against cost, or hits where no lifetime is known.
fn lifetimes(advice: &Advice) -> (Chart, Vec<String>) {
    let years = |run: &AdvisedCache| run.cache_lifetime_years.filter(|years| years.is_finite());
    if advice.runs.iter().any(|run| years(run).is_some()) {
        let axis = Axis {
            id: "advice-all",
            title: "Lifetime against cost",
            label: "Lifetime of the flash, in years",
            target: Some(advice.targets.years).filter(|years| *years > 0.0),
            unit: "years",
        };
        return chart(advice, &axis, years, None);
    }
    let (title, label) = ("Hits against cost", "Hits, in percent of the accesses");
    let axis = Axis { id: "advice-all", title, label, target: None, unit: "%" };
    chart(advice, &axis, |run| Some(100.0 * run.hit_ratio), None)
}

/// A measure to draw against cost.
struct Axis {
    id: &'static str,
    title: &'static str,
    label: &'static str,
    /// The target in the axis' unit, if there is one.
    target: Option<f64>,
    unit: &'static str,
}

/// Draws a point for each simulated cache that has the value, one for the storage without a cache, and a line at the
/// target.
fn chart(
    advice: &Advice,
    of: &Axis,
    value: impl Fn(&AdvisedCache) -> Option<f64>,
    alone: Option<f64>,
) -> (Chart, Vec<String>) {
    let first = advice.cache.as_ref().map_or(NEAREST, |cache| name(advice, cache));
    // Points that miss a target are red.
    let looks = Looks::new([first, MISSES, MEETS, ALONE]);
    let kind = |run: &AdvisedCache| match advice.cache.as_ref() {
        Some(cache) if cache == run => first,
        _ if run.meets == 1 => MEETS,
        _ => MISSES,
    };
    let point = |name: &str, cost: f64, value: f64| Series {
        name: name.to_owned(),
        look: looks.of(name),
        points: vec![(cost, value)],
    };
    let currency = &advice.currency;
    let mut all: Vec<(Series, String)> = advice
        .runs
        .iter()
        .filter_map(|run| Some((point(kind(run), run.cost, value(run)?), told(run, currency))))
        .collect();
    let cost = number(advice.no_cache.cost);
    all.extend(alone.map(|alone| {
        let told = format!("The storage without a cache, for {cost} {currency}: {}", wait(alone * 1000.0));
        (point(ALONE, advice.no_cache.cost, alone), told)
    }));
    let place = |name: &str| [MISSES, ALONE, MEETS].iter().position(|other| *other == name).unwrap_or(3);
    all.sort_by_key(|(series, _)| place(&series.name));
    let (mut series, mut told): (Vec<Series>, Vec<String>) = all.into_iter().unzip();
    let points = || series.iter().flat_map(|series| &series.points);
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let target = of.target.filter(|target| *target <= TARGET_FAR * highest);
    let x = linear(format!("Cost, in {}", advice.currency), points().map(|point| point.0), "");
    let y = linear(of.label, points().map(|point| point.1).chain(target), "");
    if let Some(target) = target {
        let points = vec![(x.min, target), (x.max, target)];
        series.insert(0, Series { name: TARGET.to_owned(), look: look::OTHER, points });
        told.insert(0, format!("The target: {} {}", number(target), of.unit));
    }
    let chart = Chart {
        id: of.id.to_owned(),
        title: of.title.to_owned(),
        description: format!("A point for each cache that was run. {NUMBERS_FOLLOW}"),
        x,
        y,
        series,
        markers: true,
    };
    (chart, told)
}

/// Returns the tooltip of a cache.
fn told(run: &AdvisedCache, currency: &str) -> String {
    let rule = if rule(run).is_empty() { String::new() } else { format!(" behind {}", run.admission) };
    let (latency, hits) = (wait(run.latency_mean_us), percent(run.hit_ratio));
    format!(
        "{} with {} of RAM for {} {currency}: {latency}, years: {}, hits: {hits}; {}{rule}, {}, {} kept free",
        device(run),
        bytes(run.ram_bytes),
        number(run.cost),
        years(run),
        run.policy,
        run.writes(),
        percent(run.over_provision),
    )
}

/// A latency. Requests that RAM answers take no time of a device, but some time.
fn wait(us: f64) -> String {
    if us < 0.5 { "< 1 us".to_owned() } else { duration(us) }
}

/// How many years its flash lasts.
fn years(run: &AdvisedCache) -> String {
    match run.cache_lifetime_years {
        None => "unknown".to_owned(),
        Some(years) => numbers::years(years),
    }
}

fn caption(advice: &Advice) -> String {
    let target = advice.targets.latency_us.map(|us| format!(" The level line is the target, {}.", duration(us)));
    format!("Cost and mean wait of each simulated cache.{}", target.unwrap_or_default())
}

const HEADS: [&str; 11] = [
    "Flash",
    "RAM",
    "Policy",
    "Admission",
    "Write mode",
    "Kept free",
    "Cost",
    "Mean wait",
    "Worst wait",
    "Lifetime\nin years",
    "Hits",
];

fn cells(run: &AdvisedCache) -> Vec<String> {
    vec![
        bytes(run.size_bytes),
        bytes(run.ram_bytes),
        run.policy.clone(),
        run.admission.clone(),
        run.writes(),
        percent(run.over_provision),
        number(run.cost),
        wait(run.latency_mean_us),
        run.latency_worst_us.map_or_else(|| "unknown".to_owned(), wait),
        years(run),
        percent(run.hit_ratio),
    ]
}

fn device(run: &AdvisedCache) -> String {
    if run.devices > 1 { format!("{} x {}", run.devices, run.device) } else { run.device.clone() }
}

/// The answer and its alternatives, one per column, so that the table fits the page.
fn choices(advice: &Advice, cache: &AdvisedCache) -> Table {
    let first = name(advice, cache);
    let others = advice.alternatives.iter().map(|told| (told.kind, &told.but[..], &told.cache));
    let choices: Vec<_> = std::iter::once((first, "", cache)).chain(others).collect();
    let mut table = Table::new("Alternatives", std::iter::once("").chain(choices.iter().map(|(kind, ..)| *kind)));
    table.push("Device", choices.iter().map(|(.., cache)| device(cache)).collect());
    if choices.iter().any(|(_, but, _)| !but.is_empty()) {
        table.push("But", choices.iter().map(|(_, but, _)| (*but).to_owned()).collect());
    }
    let cells: Vec<Vec<String>> = choices.iter().map(|(.., cache)| cells(cache)).collect();
    for (at, head) in HEADS.iter().enumerate() {
        table.push(head.replace('\n', " "), cells.iter().map(|cells| cells[at].clone()).collect());
    }
    let interval = |cache: &AdvisedCache| cache.worst_interval().unwrap_or_else(|| "unknown".to_owned());
    table.push("Worst interval", choices.iter().map(|(.., cache)| interval(cache)).collect());
    table
}

/// All that was run.
fn all(advice: &Advice) -> Figure {
    let mut table = Table::new("All caches that were run, by cost", ["Device"].into_iter().chain(HEADS));
    for run in &advice.runs {
        table.push(device(run), cells(run));
    }
    let years = advice.targets.years;
    let years = (years > 0.0).then(|| format!(" The level line is the target, {}.", lifetime(years)));
    let caption =
        format!("{} of {} caches were run exactly.{}", advice.runs.len(), advice.caches, years.unwrap_or_default());
    let (chart, told) = lifetimes(advice);
    let (svg, narrow) = chart.inline_told(None, &told);
    Figure { caption, svg, narrow, open: true, ..figure(&chart, table) }
}
