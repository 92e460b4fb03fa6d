//! The report of a sweep: compares policies over all of its traces, in pairs, and in each family of traces.

use std::collections::BTreeMap;
use std::fmt::Write;

use flashwise_core::policy::Spec;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::results::Brief;

use super::{ReportError, ReportPage, SectionView, page, policies};
use crate::draw::boxes::boxes;
use crate::draw::charts::{head, text_at};
use crate::draw::look::{self, Looks};
use crate::numbers::{count, counted, number, percent};
use crate::table::{Figure, Table};
use crate::wear::measures::{Measure, mean, quantile, worded};

/// Hit ratio.
const HITS: Measure = worded("hits", "Hit ratio", "hits per block access", "%");
/// Read hit ratio.
const READ_HITS: Measure = worded("read-hits", "Read hit ratio", "read hits per read", "%");
/// Misses relative to LRU's.
const MISSES: Measure =
    worded("misses", "Misses beside LRU's", "misses as a share of those that LRU has in a cache of the same size", "%");
/// Flash writes relative to LRU's.
const WRITES: Measure = worded(
    "writes",
    "Flash writes beside LRU's",
    "blocks written to flash as a share of those that LRU writes in a cache of the same size",
    "%",
);
/// The policy to compare with.
const LRU: &str = "lru";
/// Largest number of policies compared in pairs.
const PAIRS_MAX: usize = 16;

/// The rows of one trace at one size, by label.
type Cell<'a> = BTreeMap<&'a str, &'a Brief>;

/// Rows of some traces, ordered for comparison.
struct TraceField<'a> {
    /// Labels of the rows of a trace and size, in the order of their first rows.
    labels: Vec<&'a str>,
    /// Labels of offline policies.
    offline: Vec<&'a str>,
    /// The sizes, smallest first.
    sizes: Vec<&'a str>,
    /// The rows by trace and size.
    cells: BTreeMap<(&'a str, &'a str), Cell<'a>>,
}

impl<'a> TraceField<'a> {
    fn new(rows: &[(&'a Brief, &'a str)]) -> TraceField<'a> {
        let (mut labels, mut offline) = (Vec::new(), Vec::new());
        let mut capacities = BTreeMap::<&str, Vec<f64>>::new();
        let mut cells = BTreeMap::<_, Cell>::new();
        for &(row, label) in rows {
            if !labels.contains(&label) {
                labels.push(label);
                if is_offline(&row.policy) {
                    offline.push(label);
                }
            }
            capacities.entry(&row.size).or_default().push(row.capacity_blocks as f64);
            cells.entry((&row.trace[..], &row.size[..])).or_default().insert(label, row);
        }
        let mut sizes: Vec<&str> = capacities.keys().copied().collect();
        sizes.sort_by(|one, other| mean(&capacities[one]).total_cmp(&mean(&capacities[other])));
        TraceField { labels, offline, sizes, cells }
    }

    /// The rows of each trace at `size`.
    fn at(&self, size: &str) -> impl Iterator<Item = (&'a str, &Cell<'a>)> {
        self.cells.iter().filter(move |((_, own), _)| *own == size).map(|((trace, _), cell)| (*trace, cell))
    }

    fn traces(&self) -> Vec<&'a str> {
        let mut traces: Vec<_> = self.cells.keys().map(|(trace, _)| *trace).collect();
        traces.dedup();
        traces
    }

    /// Returns the labels of online policies.
    fn online(&self) -> impl Iterator<Item = &'a str> {
        self.labels.iter().copied().filter(|label| !self.offline.contains(label))
    }

    /// Returns the values of `label` at `size` over the traces.
    fn values(&self, label: &str, size: &str, of: impl Fn(&Brief, &Cell) -> Option<f64>) -> Vec<f64> {
        self.at(size).filter_map(|(_, cell)| of(cell.get(label)?, cell)).collect()
    }

    /// Number of traces on which `label` has the most hits at `size` of all online policies; ties count.
    fn wins(&self, label: &str, size: &str) -> usize {
        let most = |cell: &Cell| self.online().filter_map(|other| Some(cell.get(other)?.hit_ratio)).fold(0.0, f64::max);
        self.at(size).filter(|(_, cell)| cell.get(label).is_some_and(|row| row.hit_ratio >= most(cell))).count()
    }

    /// Returns the online policy with the most hits on the most traces at `size`, with their number; of equals the
    /// first.
    fn leader(&self, size: &str) -> Option<(usize, &'a str)> {
        let all = self.online().map(|label| (self.wins(label, size), label));
        all.reduce(|most, next| if next.0 > most.0 { next } else { most })
    }

    /// Compares two policies on the traces with both at `size`: the number where `one` hits more, and the number of
    /// traces.
    fn beats(&self, one: &str, other: &str, size: &str) -> (usize, usize) {
        let both =
            || self.at(size).filter_map(|(_, cell)| Some((cell.get(one)?.hit_ratio, cell.get(other)?.hit_ratio)));
        (both().filter(|(one, other)| one > other).count(), both().count())
    }
}

/// True if a policy is offline.
fn is_offline(policy: &str) -> bool {
    let info = Spec::parse(policy).map(|policy| policy.info());
    info.or_else(|_| Algorithm::parse(policy).map(|algorithm| algorithm.info())).is_ok_and(|info| info.offline)
}

/// Formats a share given in percent.
fn share(of_hundred: f64) -> String {
    format!("{}%", number(of_hundred))
}

fn hits(row: &Brief, _: &Cell) -> Option<f64> {
    Some(row.hit_ratio * 100.0)
}

fn read_hits(row: &Brief, _: &Cell) -> Option<f64> {
    Some(row.read_hit_ratio * 100.0)
}

fn misses(row: &Brief, cell: &Cell) -> Option<f64> {
    let of_lru = 1.0 - cell.get(LRU)?.hit_ratio;
    (of_lru > 0.0).then(|| (1.0 - row.hit_ratio) / of_lru * 100.0)
}

fn writes(row: &Brief, cell: &Cell) -> Option<f64> {
    let of_lru = cell.get(LRU)?.flash_writes_blocks;
    (of_lru > 0).then(|| row.flash_writes_blocks as f64 / of_lru as f64 * 100.0)
}

/// Returns the family of each trace: its folder or archive. If all are in one, it is the start of the name, up to the
/// first digit or mark.
fn families<'a>(traces: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let folder = |trace: &'a str| trace.rsplit_once('/').map_or("", |(folder, _)| folder);
    let prefix = |trace: &'a str| {
        let name = trace.rsplit('/').next().unwrap_or(trace);
        let end = name.find(|letter: char| !letter.is_alphabetic()).unwrap_or(name.len());
        if end == 0 { name } else { &name[..end] }
    };
    let is_one = traces.iter().all(|trace| folder(trace) == folder(traces[0]));
    traces.iter().map(|trace| (*trace, if is_one { prefix(trace) } else { folder(trace) })).collect()
}

/// Returns the report over the rows of a sweep, made by `command`, as an HTML page.
///
/// # Errors
/// None that the rows could cause.
pub fn render_sweep(command: &str, rows: &[Brief]) -> Result<String, ReportError> {
    let labels: Vec<String> = rows.iter().map(Brief::label).collect();
    let labelled: Vec<(&Brief, &str)> = rows.iter().zip(labels.iter().map(String::as_str)).collect();
    let all = TraceField::new(&labelled);
    let looks = Looks::few(&[], all.labels.iter().copied());
    let families = families(&all.traces());
    let mut names: Vec<&str> = families.iter().map(|(_, family)| *family).collect();
    names.sort_unstable();
    names.dedup();
    let of_family = |name: &str| {
        let is_in = |trace: &str| families.contains(&(trace, name));
        TraceField::new(&labelled.iter().copied().filter(|(row, _)| is_in(&row.trace)).collect::<Vec<_>>())
    };
    let section = |(number, name): (usize, &&str)| family(number + 1, name, &of_family(name), &looks);
    let settings = [("Made by", format!("flashwise {}", env!("CARGO_PKG_VERSION"))), ("Command", command.to_owned())];
    let mut over_traces = distributions("all", &all, &looks);
    over_traces.extend(all.sizes.iter().filter_map(|size| pairs(&all, size)));
    page(&ReportPage {
        version: env!("CARGO_PKG_VERSION"),
        title: format!("Sweep over {}", counted(all.traces().len() as u64, "trace", "traces")),
        heading: "Sweep: policies over many traces".to_owned(),
        date: None,
        colours: look::css(":root"),
        switches: look::switches(&[]),
        settings: settings.to_vec(),
        policies: policies(rows.iter().map(|row| &row.policy[..])),
        sentences: sentences(&all, names.len()),
        overview: None,
        summary: Some(summary(&all)),
        over_traces,
        over_traces_heading: "Distributions and pairs",
        over_traces_policies: Vec::new(),
        sections: names.iter().enumerate().map(section).collect(),
    })
}

/// Describes the sweep in sentences.
fn sentences(field: &TraceField, families: usize) -> Vec<String> {
    let traces = field.traces().len();
    let what = format!(
        "{} in {}, {} at {}.",
        counted(traces as u64, "trace", "traces"),
        counted(families as u64, "family", "families"),
        counted(field.labels.len() as u64, "policy", "policies"),
        counted(field.sizes.len() as u64, "size", "sizes"),
    );
    let leader = |size: &&str| {
        let most = field.leader(size)?;
        let of = field.at(size).count();
        let misses = field.values(most.1, size, misses);
        let beside = median(&misses).filter(|_| most.1 != LRU);
        let beside =
            beside.map_or_else(String::new, |misses| format!(", with {} of LRU's misses in the median", share(misses)));
        Some(format!("{} at {size} (on {} of {}{beside})", most.1, count(most.0 as u64), count(of as u64)))
    };
    let leaders: Vec<String> = field.sizes.iter().filter_map(leader).collect();
    let leaders = format!("These online policies hit most on most traces: {}.", leaders.join("; "));
    if field.online().next().is_some() { vec![what, leaders] } else { vec![what] }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

/// Returns a row for each policy and size.
fn summary(field: &TraceField) -> Table {
    let columns = [
        "Policy, size",
        "Traces",
        "Hit ratio, mean",
        "Median",
        "Misses of LRU's, median",
        "Flash writes of LRU's, median",
        "Hits most on",
    ];
    let mut table = Table::new("Policies over all traces", columns);
    let written = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), share);
    for label in &field.labels {
        for size in &field.sizes {
            let own = field.values(label, size, hits);
            if own.is_empty() {
                continue;
            }
            let wins = match field.offline.contains(label) {
                true => "-".to_owned(),
                false => count(field.wins(label, size) as u64),
            };
            let cells = vec![
                count(own.len() as u64),
                percent(mean(&own) / 100.0),
                percent(median(&own).unwrap_or(0.0) / 100.0),
                written(median(&field.values(label, size, misses))),
                written(median(&field.values(label, size, writes))),
                wins,
            ];
            table.push(format!("{label}, {size}"), cells);
        }
    }
    table
}

/// Draws boxes of each measure that the rows have.
fn distributions(id: &str, field: &TraceField, looks: &Looks) -> Vec<Figure> {
    type Of = fn(&Brief, &Cell) -> Option<f64>;
    let all: [(&Measure, Of); 4] = [(&HITS, hits), (&MISSES, misses), (&READ_HITS, read_hits), (&WRITES, writes)];
    let has_lru = field.labels.contains(&LRU);
    let drawn = |(measure, of): (&Measure, Of)| {
        let values = |label: &str, size: &str| field.values(label, size, of);
        let caption = measure.caption([]);
        boxes(id, measure, caption, &field.labels, &field.sizes, looks, values)
    };
    let is_drawn = |(measure, _): &(&Measure, Of)| has_lru || ![MISSES.id, WRITES.id].contains(&measure.id);
    all.into_iter().filter(is_drawn).map(drawn).collect()
}

/// Compares each policy with each other: on how many traces it hits more at `size`. `None` without two policies.
fn pairs(field: &TraceField, size: &str) -> Option<Figure> {
    let labels: Vec<&str> = field.labels.iter().copied().take(PAIRS_MAX).collect();
    if labels.len() < 2 {
        return None;
    }
    let title = format!("More hits, pair by pair, at {size}");
    let columns = std::iter::once("Hits more than".to_owned()).chain(labels.iter().map(|label| (*label).to_owned()));
    let mut table = Table::new(&title, columns);
    // Names are left of the rows and, slanted, above the columns.
    const SIDE: f64 = 640.0;
    const LEFT: f64 = 150.0;
    const TOP: f64 = 110.0;
    let cell = ((SIDE - LEFT - 60.0) / labels.len() as f64).min(56.0);
    let height = TOP + cell * labels.len() as f64 + 10.0;
    let description =
        format!("A row for each policy: on how many traces it hits more than the one of the column. {title}.");
    let id = format!("pairs-{}", id_of(size));
    let mut svg = String::new();
    for (row, one) in labels.iter().enumerate() {
        let y = TOP + cell * row as f64;
        svg += &text_at(LEFT - 8.0, y + cell / 2.0 + 4.0, "end", &short(one));
        let (x, top) = (LEFT + cell * (row as f64 + 0.5), TOP - 8.0);
        let _ =
            write!(svg, "<g transform=\"rotate(-40 {x:.1} {top:.1})\">{}</g>", text_at(x, top, "start", &short(one)));
        let mut cells = Vec::new();
        for (column, other) in labels.iter().enumerate() {
            let (more, of) = field.beats(one, other, size);
            let is_itself = row == column || of == 0;
            cells.push(if is_itself {
                "-".to_owned()
            } else {
                format!("{} of {}", count(more as u64), count(of as u64))
            });
            if is_itself {
                continue;
            }
            let x = LEFT + cell * column as f64;
            let share = 0.55 * more as f64 / of as f64;
            let (inside, corner) = (cell - 2.0, (x + 1.0, y + 1.0));
            let _ = write!(
                svg,
                "<path d=\"M{:.1} {:.1}h{inside:.1}v{inside:.1}h-{inside:.1}z\" fill=\"var(--fw-read)\" \
                 fill-opacity=\"{share:.2}\" \
                 stroke=\"var(--fw-grid)\" />",
                corner.0, corner.1
            );
            svg += &text_at(x + cell / 2.0, y + cell / 2.0 + 4.0, "middle", &count(more as u64));
        }
        table.push(*one, cells);
    }
    svg += "</svg>";
    let left_out = field.labels.len() - labels.len();
    let of_others =
        if left_out > 0 { format!(" The first {PAIRS_MAX} are compared, {left_out} are not.") } else { String::new() };
    let caption = format!(
        "{title}: on how many traces the policy of the row hits more than that of the column; the darker, the \
         more.{of_others}"
    );
    // A narrow screen has the same, smaller: names of policies need their space.
    let [svg, narrow] =
        [id.clone(), format!("{id}-narrow")].map(|id| head(&id, &title, &description, (SIDE, height), "") + &svg);
    Some(Figure { caption, svg, narrow, legend: Vec::new(), table, open: false })
}

/// Shortens a name.
fn short(name: &str) -> String {
    const LEN: usize = 20;
    if name.chars().count() <= LEN { name.to_owned() } else { name.chars().take(LEN - 1).chain(['…']).collect() }
}

fn id_of(size: &str) -> String {
    size.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Returns the part of the page about one family.
fn family(number: usize, name: &str, field: &TraceField, looks: &Looks) -> SectionView {
    let id = format!("family-{number}");
    let traces = field.traces();
    let mut info = Table::new("Traces", ["Trace", "Block accesses"]);
    let mut counts = Table::new(
        "Hit ratio by trace",
        ["Trace, size".to_owned()].into_iter().chain(field.labels.iter().map(|label| (*label).to_owned())),
    );
    for trace in &traces {
        let own = field.cells.iter().filter(|((own, _), _)| own == trace);
        let accesses = own.flat_map(|(_, cell)| cell.values()).map(|row| row.accesses).max().unwrap_or(0);
        info.push(*trace, vec![count(accesses)]);
        for size in &field.sizes {
            let Some(cell) = field.cells.get(&(*trace, *size)) else { continue };
            let hits = |label: &&str| cell.get(label).map_or_else(|| "-".to_owned(), |row| percent(row.hit_ratio));
            counts.push(format!("{trace}, {size}"), field.labels.iter().map(hits).collect());
        }
    }
    let best = |size: &&str| {
        let most = field.leader(size)?;
        Some(format!("at {size} {} on {} of {}", most.1, count(most.0 as u64), count(field.at(size).count() as u64)))
    };
    let best: Vec<String> = field.sizes.iter().filter_map(best).collect();
    let remarks = if best.is_empty() { Vec::new() } else { vec![format!("Hits most: {}.", best.join("; "))] };
    let name = if name.is_empty() { "traces here" } else { name };
    SectionView {
        name: format!("{name}: {}", counted(traces.len() as u64, "trace", "traces")),
        answer: None,
        remarks,
        info,
        heading: "Distributions in the family",
        compared_with_bound: false,
        results: distributions(&id, field, looks),
        bound: Vec::new(),
        has_bound: false,
        reuse: None,
        workload: Vec::new(),
        time: Vec::new(),
        counts,
        policies: Vec::new(),
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trace: &str, policy: &str, size: &str, hit_ratio: f64, writes: u64) -> Brief {
        Brief {
            trace: trace.to_owned(),
            policy: policy.into(),
            size: size.to_owned(),
            capacity_blocks: size.trim_end_matches('%').parse().unwrap(),
            accesses: 1000,
            hit_ratio,
            read_hit_ratio: hit_ratio / 2.0,
            flash_writes_blocks: writes,
            job: format!("policy={policy} size={size}"),
        }
    }

    /// Two families: LARC leads on two of three traces at 10 %, and LRU at 5 %; MIN, which is offline, wins nothing.
    fn rows() -> Vec<Brief> {
        let at = |trace: &str, hits: [f64; 3]| {
            let policies = ["lru", "larc", "min"].into_iter().zip(hits);
            policies
                .map(|(policy, hits)| row(trace, policy, "10%", hits, (1000.0 * (1.0 - hits)) as u64))
                .collect::<Vec<_>>()
        };
        let mut rows =
            [at("msr/a.csv", [0.5, 0.6, 0.7]), at("msr/b.csv", [0.2, 0.6, 0.7]), at("fiu/c.csv", [0.4, 0.3, 0.5])]
                .concat();
        rows.push(row("msr/a.csv", "lru", "5%", 0.1, 900));
        rows
    }

    #[test]
    fn policies_are_compared_trace_by_trace() {
        let rows = rows();
        let labels: Vec<String> = rows.iter().map(Brief::label).collect();
        let field = TraceField::new(&rows.iter().zip(labels.iter().map(String::as_str)).collect::<Vec<_>>());
        assert_eq!((field.sizes.clone(), field.offline.clone()), (vec!["5%", "10%"], vec!["min"]));
        assert_eq!(["lru", "larc"].map(|label| field.wins(label, "10%")), [1, 2]);
        assert_eq!((field.beats("larc", "lru", "10%"), field.beats("lru", "larc", "5%")), ((2, 3), (0, 0)));
        // 0.4 / 0.5, 0.4 / 0.8 and 0.7 / 0.6 of the misses, by trace: fiu comes first.
        let found = field.values("larc", "10%", misses);
        let expected = [700.0 / 6.0, 80.0, 50.0];
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{found:?}");
        let said = sentences(&field, 2);
        assert_eq!(said[0], "3 traces in 2 families, 3 policies at 2 sizes.");
        assert!(said[1].contains("lru at 5% (on 1 of 1)"), "{}", said[1]);
        assert!(said[1].contains("larc at 10% (on 2 of 3, with 80% of LRU's misses in the median)"), "{}", said[1]);
    }

    #[test]
    fn families_are_folders_or_prefixes_of_names() {
        assert_eq!(families(&["a/x.csv", "b/x.csv"]), [("a/x.csv", "a"), ("b/x.csv", "b")]);
        let found = families(&["t/hm_0.csv", "t/hm_1.csv", "t/web.csv", "t/9"]);
        assert_eq!(found.iter().map(|(_, family)| *family).collect::<Vec<_>>(), ["hm", "hm", "web", "9"]);
    }

    #[test]
    fn the_page_has_all_parts_once() {
        let page = render_sweep("flashwise sweep report results", &rows()).unwrap();
        for part in ["msr: 2 traces", "fiu: 1 trace", "More hits, pair by pair, at 10%", "Misses beside LRU", "2 of 3"]
        {
            assert!(page.contains(part), "{part}");
        }
        let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "an id names one place");
    }
}
