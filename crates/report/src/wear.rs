//! The figures of what caches wear, each a chart and the table of its numbers. They follow Figures 1 and 5 to 10 of Cheng et al., Erasing
//! Belady's limitations (USENIX ATC 2016).

use std::sync::Arc;

use super::Section;
use super::charts::{Axis, Chart, Series};
use super::figures::{NOT_RUN, NUMBERS_FOLLOW, Subject, figure};
use super::grid::{Grid, GridSize};
use super::look::Looks;
use super::numbers::{count, percent, shortest, signed};
use super::rows::with_caveat;
use super::scales::{linear, powers_of_ten};
use super::table::{Figure, Table};
use flashwise_sim::results::{EnduranceFigures, ResultRow};

/// A figure of wear: what it is called, how it is written and where the paper has it by cache size.
struct Measure {
    id: &'static str,
    name: &'static str,
    meaning: &'static str,
    suffix: &'static str,
    value: fn(&EnduranceFigures) -> Option<f64>,
}

const RHR: Measure = Measure {
    id: "rhr",
    name: "Read hit ratio",
    meaning: "the share of the reads that RAM or flash has",
    suffix: "%",
    value: |wear| Some(wear.rhr * 100.0),
};
const EPBPD: Measure = Measure {
    id: "epbpd",
    name: "Erasures per unit and day",
    meaning: "how often each erase unit is erased in a day",
    suffix: "",
    value: |wear| wear.epbpd,
};
const ERASURES: Measure = Measure {
    id: "erasures",
    name: "Erasures",
    meaning: "erase units that were erased",
    suffix: "",
    value: |wear| Some(wear.erasures as f64),
};
const FUE: Measure = Measure {
    id: "fue",
    name: "Flash usage effectiveness",
    meaning: "blocks read from flash for each page that was programmed",
    suffix: "",
    value: |wear| wear.fue,
};
const WFUE: Measure = Measure {
    id: "wfue",
    name: "Weighted flash usage effectiveness",
    meaning: "hits and saved erasures, weighted, against m+",
    suffix: "",
    value: |wear| wear.wfue,
};

impl Measure {
    fn of(&self, row: &ResultRow) -> Option<f64> {
        (self.value)(row.endurance.as_ref()?)
    }

    fn written(&self, value: f64) -> String {
        let number = match value {
            value if value < 0.0 => signed(value),
            value if value >= 1000.0 => count(value.round() as u64),
            value => shortest(value, 3),
        };
        format!("{number}{}", self.suffix)
    }

    fn caption<'a>(&self, rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
        let caption = format!("{}: {}.", self.name, self.meaning);
        if self.id == EPBPD.id { with_caveat(caption, rows) } else { caption }
    }
}

/// What is measured of rows: erasures per day where all traces have times.
fn measures<'a>(mut rows: impl Iterator<Item = &'a ResultRow>) -> [&'static Measure; 4] {
    let timed = rows.all(|row| row.endurance.as_ref().is_some_and(|wear| wear.days.is_some()));
    [&RHR, if timed { &EPBPD } else { &ERASURES }, &FUE, &WFUE]
}

/// Whether it is wear that was simulated.
pub fn is_of_wear(rows: &[ResultRow]) -> bool {
    rows.first().is_some_and(|row| row.endurance.is_some())
}

/// The figures of one trace by cache size (as Figures 5 and 6), and hits against erasures (as Figure 1).
pub fn by_size(subject: &Subject, rows: &[ResultRow]) -> Vec<Figure> {
    let grid = subject.grid;
    let figure_of = |measure: &Measure| {
        let title = format!("{} against cache size", measure.name);
        let value = |row: &ResultRow| measure.of(row);
        let chart = subject.against_size(measure.id, &title, measure.name, measure.suffix, &value, &grid.policies);
        let cell =
            |row: &ResultRow| Some(measure.of(row).map_or_else(|| "none".to_owned(), |value| measure.written(value)));
        let table = subject.by_policy(&format!("{} by policy and cache size", measure.name), &grid.policies, cell);
        Figure { caption: measure.caption(rows), ..figure(&chart, table) }
    };
    let measures = measures(rows.iter());
    let mut figures: Vec<_> = measures.into_iter().map(figure_of).collect();
    let points = |policy: &str| -> Vec<(f64, f64, String)> {
        let of_policy = rows.iter().filter(|row| row.policy == policy && is_first(rows, row));
        let point = |row: &ResultRow| Some((measures[1].of(row)?, RHR.of(row)?, row.size.clone()));
        of_policy.filter_map(point).collect()
    };
    let names: Vec<_> = grid.policies.iter().map(|policy| policy.name).collect();
    figures.extend(scatter(&format!("{}-scatter", subject.id), measures[1], &names, subject.looks, points));
    figures.extend(savings(subject));
    figures
}

/// Of rows of the same policy and size, that which a [`Grid`] shows.
fn is_first(rows: &[ResultRow], row: &ResultRow) -> bool {
    let same = |other: &&ResultRow| {
        (&other.trace, &other.policy, other.capacity_blocks) == (&row.trace, &row.policy, row.capacity_blocks)
    };
    rows.iter().find(same).is_some_and(|first| std::ptr::eq(first, row))
}

/// Hits against erasures, one line for each policy through its sizes.
fn scatter(
    id: &str,
    erasures: &Measure,
    names: &[&str],
    looks: &Looks,
    points: impl Fn(&str) -> Vec<(f64, f64, String)>,
) -> Option<Figure> {
    let lines: Vec<_> = names.iter().map(|&name| (name, points(name))).collect();
    let worn = |line: &(&str, Vec<(f64, f64, String)>)| line.1.iter().any(|point| point.0 > 0.0);
    if !lines.iter().any(worn) {
        return None;
    }
    let x = powers_of_ten(
        format!("{} (logarithmic)", erasures.name),
        lines.iter().flat_map(|line| &line.1).map(|point| point.0).filter(|&value| value > 0.0),
    );
    let series: Vec<_> = lines
        .iter()
        .map(|(name, points)| Series {
            name: (*name).to_owned(),
            look: looks.of(name),
            points: points.iter().filter(|point| point.0 > 0.0).map(|point| (point.0.log10(), point.1)).collect(),
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let y = linear(RHR.name, series.iter().flat_map(|series| &series.points).map(|point| point.1), "%");
    let title = format!("Read hit ratio against {}", erasures.name.to_lowercase());
    let description =
        format!("A line for each policy through its cache sizes; the upper left is best. {NUMBERS_FOLLOW}");
    let chart = Chart { id: id.to_owned(), title: title.clone(), description, x, y, series, markers: true };
    let mut table = Table::new(&title, ["Policy, size", erasures.name, RHR.name]);
    for (name, points) in &lines {
        for (worn, hits, size) in points {
            table.push(format!("{name}, {size}"), vec![erasures.written(*worn), RHR.written(*hits)]);
        }
    }
    let caption = "Hits against wear: each point is a cache size; what lies further up and to the left hits more and wears less. Caches \
                   that erase nothing are in the table alone.";
    Some(Figure { caption: caption.to_owned(), open: false, ..figure(&chart, table) })
}

/// Which share of m's erasures each other algorithm saves (Figure 6).
fn savings(subject: &Subject) -> Option<Figure> {
    let grid = subject.grid;
    let m = grid.policies.iter().copied().find(|policy| policy.name == "m")?;
    let others: Vec<_> = grid.policies.iter().copied().filter(|&policy| policy != m && policy.offline).collect();
    let erasures = |row: &ResultRow| row.endurance.as_ref().map(|wear| wear.erasures as f64);
    let saved = |row: &ResultRow| {
        let size = grid.sizes.iter().copied().find(|size| size.blocks == row.capacity_blocks)?;
        let all = erasures(grid.row(m, size)?).filter(|&all| all > 0.0)?;
        // Erase units of one block are no measure for those of many.
        let wear = row.endurance.as_ref().filter(|wear| wear.layout != "unit")?;
        Some((1.0 - wear.erasures as f64 / all) * 100.0)
    };
    if !others
        .iter()
        .any(|&policy| grid.sizes.iter().any(|&size| grid.row(policy, size).is_some_and(|row| saved(row).is_some())))
    {
        return None;
    }
    let title = "Erasures saved compared with m";
    let chart = subject.against_size("saved", title, "Erasures saved, of those of m", "%", &saved, &others);
    let cell = |row: &ResultRow| {
        Some(saved(row).map_or_else(|| "none".to_owned(), |saved| format!("{}%", shortest(saved, 1))))
    };
    let table = subject.by_policy(title, &others, cell);
    let caption =
        "Erasures that each algorithm saves of those of m, which is MIN that passes by what is not worth fetching.";
    Some(Figure { caption: caption.to_owned(), ..figure(&chart, table) })
}

/// A parameter that runs differ in.
struct Parameter {
    id: &'static str,
    axis: &'static str,
    suffix: &'static str,
    /// What is shown against it: erasures alone, or hits too.
    hits: bool,
    caption: &'static str,
    /// Its value in a row, and the row's policy without it.
    split: fn(&ResultRow) -> Option<(f64, String)>,
}

/// The value of an option, as a number or a percentage, and the policy without it.
fn without(row: &ResultRow, option: &str) -> Option<(f64, String)> {
    let (name, options) = row.policy.split_once(':')?;
    let (mut value, mut others) = (None, Vec::new());
    for given in options.split(',') {
        match given.split_once('=') {
            Some((key, text)) if key == option => {
                value = match text.strip_suffix('%') {
                    Some(percent) => percent.parse::<f64>().ok(),
                    None if option == "share" => text.parse::<f64>().ok().map(|share| share * 100.0),
                    None => text.parse().ok(),
                };
            }
            _ => others.push(given),
        }
    }
    let rest = if others.is_empty() { name.to_owned() } else { format!("{name}:{}", others.join(",")) };
    Some((value?, rest))
}

const PARAMETERS: [Parameter; 4] = [
    Parameter {
        id: "buffers",
        axis: "Erase units of the write buffer",
        suffix: "",
        hits: false,
        caption: "Write buffer: a larger one puts blocks together that leave together.",
        split: |row| without(row, "buffers"),
    },
    Parameter {
        id: "spare",
        axis: "Over-provisioning",
        suffix: "%",
        hits: false,
        caption: "Over-provisioning: with more spare flash less is copied, by the device for m+ and by the host for c.",
        split: |row| {
            let spare = row.endurance.as_ref()?.over_provision * 100.0;
            ["m+", "c"].contains(&&row.policy[..]).then(|| (spare, row.policy.clone()))
        },
    },
    Parameter {
        id: "budget",
        axis: "Budget, of the erasures without one",
        suffix: "%",
        hits: true,
        caption: "Budgets of erasures: what insertions with few hits cost and bring.",
        split: |row| without(row, "share"),
    },
    Parameter {
        id: "least",
        axis: "Least read hits of an insertion",
        suffix: "",
        hits: true,
        caption: "Least read hits: insertions with fewer are left out.",
        split: |row| without(row, "n"),
    },
];

/// Means over all traces against the write buffer, over-provisioning, budget and least hits (Figures 7 to 10), where runs differ in these.
pub fn by_parameter(sections: &[Section]) -> Vec<Figure> {
    let rows: Vec<&ResultRow> = sections.iter().flat_map(|section| &section.rows).collect();
    let [_, erasures, ..] = measures(rows.iter().copied());
    let mut figures = Vec::new();
    for parameter in &PARAMETERS {
        let measures: &[&Measure] = if parameter.hits { &[erasures, &RHR] } else { &[erasures] };
        figures.extend(measures.iter().filter_map(|measure| against(parameter, measure, &rows)));
    }
    figures
}

/// A value of a parameter, and what was measured with it on each trace.
type Values = (f64, Vec<f64>);

/// Lines of the means over traces: by policy and size, each value of the parameter with what was measured.
fn against(parameter: &Parameter, measure: &Measure, rows: &[&ResultRow]) -> Option<Figure> {
    let mut lines: Vec<(String, Vec<Values>)> = Vec::new();
    for row in rows {
        let (Some((at, policy)), Some(value)) = ((parameter.split)(row), measure.of(row)) else { continue };
        let name = format!("{policy}, {}", row.size);
        let line = match lines.iter_mut().find(|line| line.0 == name) {
            Some((_, line)) => line,
            None => {
                lines.push((name, Vec::new()));
                &mut lines.last_mut()?.1
            }
        };
        match line.iter_mut().find(|point| point.0 == at) {
            Some((_, values)) => values.push(value),
            None => line.push((at, vec![value])),
        }
    }
    lines.retain(|(_, line)| line.len() > 1);
    if lines.is_empty() {
        return None;
    }
    for (_, line) in &mut lines {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let looks = Looks::new(lines.iter().map(|(name, _)| &name[..]));
    let series: Vec<_> = lines
        .iter()
        .map(|(name, line)| Series {
            name: name.clone(),
            look: looks.of(name),
            points: line.iter().map(|(at, values)| (*at, mean(values))).collect(),
        })
        .collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let x = linear(parameter.axis, points().map(|point| point.0), parameter.suffix);
    let y = linear(measure.name, points().map(|point| point.1), measure.suffix);
    let title = format!("{} against {}", measure.name, lower_first(parameter.axis));
    let description = format!("A line for each policy and cache size, the mean over the traces. {NUMBERS_FOLLOW}");
    let mut ats: Vec<f64> = points().map(|point| point.0).collect();
    ats.sort_by(f64::total_cmp);
    ats.dedup();
    let heads = ats.iter().map(|at| format!("{}{}", shortest(*at, 2), parameter.suffix));
    let mut table = Table::new(&title, ["Policy, size".to_owned()].into_iter().chain(heads));
    for series in &series {
        let cell = |at: &f64| {
            let found = series.points.iter().find(|point| point.0 == *at);
            found.map_or_else(|| NOT_RUN.to_owned(), |point| measure.written(point.1))
        };
        table.push(&series.name, ats.iter().map(cell).collect());
    }
    let id = format!("all-{}-{}", parameter.id, measure.id);
    let chart = Chart { id, title, description, x, y, series, markers: true };
    let caption = format!("{} {}", parameter.caption, measure.caption(rows.iter().copied()));
    Some(Figure { caption, ..figure(&chart, table) })
}

/// The measures over all traces: boxes by size and policy (Figure 5), and the means of hits and erasures (Figure 1).
pub fn over_traces(sections: &[Section], looks: &Looks) -> Vec<Figure> {
    let rows: Vec<&ResultRow> = sections
        .iter()
        .flat_map(|section| section.rows.iter().filter(|row| row.endurance.is_some() && is_first(&section.rows, row)))
        .collect();
    let (mut sizes, mut policies) = (Vec::<&str>::new(), Vec::<&str>::new());
    for row in &rows {
        if !sizes.contains(&&row.size[..]) {
            sizes.push(&row.size);
        }
        if !policies.contains(&&row.policy[..]) {
            policies.push(&row.policy);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let measures = measures(rows.iter().copied());
    let values = |measure: &Measure, policy: &str, size: &str| -> Vec<f64> {
        let own = rows.iter().filter(|row| row.policy == policy && row.size == size);
        own.filter_map(|row| measure.of(row)).collect()
    };
    let mut figures: Vec<_> = measures
        .iter()
        .map(|measure| {
            let caption = measure.caption(rows.iter().copied());
            boxes(measure, caption, &policies, &sizes, looks, |policy, size| values(measure, policy, size))
        })
        .collect();
    let points = |policy: &str| -> Vec<(f64, f64, String)> {
        let of_size = |size: &&str| {
            let [worn, hits] = [measures[1], &RHR].map(|measure| values(measure, policy, size));
            (!worn.is_empty()).then(|| (mean(&worn), mean(&hits), (*size).to_owned()))
        };
        sizes.iter().filter_map(of_size).collect()
    };
    figures.extend(scatter("all-scatter", measures[1], &policies, looks, points).map(|mut figure| {
        figure.caption.push_str(" Means over the traces.");
        figure
    }));
    figures
}

/// Boxes from the first to the third quartile with the median, whiskers from the 10th to the 90th percentile, side by side for each size.
fn boxes(
    measure: &Measure,
    caption: String,
    policies: &[&str],
    sizes: &[&str],
    looks: &Looks,
    values: impl Fn(&str, &str) -> Vec<f64>,
) -> Figure {
    let mut series = Vec::new();
    let width = 0.8 / policies.len() as f64;
    let mut table = Table::new(
        format!("{} over all traces", measure.name),
        ["Policy, size", "Traces", "Mean", "10%", "25%", "Median", "75%", "90%"],
    );
    for (number, policy) in policies.iter().enumerate() {
        for (group, size) in sizes.iter().enumerate() {
            let mut found = values(policy, size);
            if found.is_empty() {
                continue;
            }
            found.sort_by(f64::total_cmp);
            let [low, q1, median, q3, high] = [0.1, 0.25, 0.5, 0.75, 0.9].map(|share| quantile(&found, share));
            let x = group as f64 - 0.4 + (number as f64 + 0.5) * width;
            let half = width * 0.36;
            let outline = [
                (x, low),
                (x, q1),
                (x - half, q1),
                (x - half, median),
                (x + half, median),
                (x - half, median),
                (x - half, q3),
                (x, q3),
                (x, high),
                (x, q3),
                (x + half, q3),
                (x + half, q1),
                (x, q1),
            ];
            series.push(Series { name: (*policy).to_owned(), look: looks.of(policy), points: outline.to_vec() });
            let numbers = [mean(&found), low, q1, median, q3, high].map(|value| measure.written(value));
            table
                .push(format!("{policy}, {size}"), std::iter::once(count(found.len() as u64)).chain(numbers).collect());
        }
    }
    let y = linear(measure.name, series.iter().flat_map(|series| &series.points).map(|point| point.1), measure.suffix);
    let names: Vec<String> = sizes.iter().map(|&size| size.to_owned()).collect();
    let tick = Arc::new(move |at: f64| {
        let whole = (at - at.round()).abs() < 1e-9 && at > -0.5;
        names.get(at.round() as usize).filter(|_| whole).cloned().unwrap_or_default()
    });
    let x = Axis { label: "Cache size".to_owned(), min: -0.5, max: sizes.len() as f64 - 0.5, step: 1.0, tick };
    let title = format!("{} over all traces", measure.name);
    let description = format!("A box for each policy and cache size over the traces. {NUMBERS_FOLLOW}");
    let chart = Chart { id: format!("all-{}", measure.id), title, description, x, y, series, markers: false };
    let caption = format!(
        "{caption} Boxes over the traces: from the first to the third quartile with the median, and lines from the 10th to the 90th percentile."
    );
    Figure { caption, open: false, ..figure(&chart, table) }
}

/// The value below which this share of sorted values lies, between neighbours in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// What the wear of a trace means: a sentence about hits and one about erasures, at the largest size.
pub fn sentences(grid: &Grid) -> [String; 2] {
    let wear = |row: &ResultRow| row.endurance.clone().unwrap_or_default();
    let Some(&size) = grid.sizes.last() else { return ["No policy was simulated.".to_owned(), String::new()] };
    let at = |offline: bool| -> Vec<&ResultRow> {
        let own = grid.policies.iter().filter(|policy| policy.offline == offline);
        own.filter_map(|&policy| grid.row(policy, size)).collect()
    };
    let (online, offline) = (at(false), at(true));
    let most = |rows: &[&ResultRow]| {
        rows.iter()
            .map(|row| wear(row).rhr)
            .fold(None, |most: Option<f64>, rhr| Some(most.map_or(rhr, |most| most.max(rhr))))
    };
    let leader = online.iter().find(|row| Some(wear(row).rhr) == most(&online));
    let hits = match (leader, most(&offline)) {
        (Some(leader), Some(best)) => format!(
            "{} has the highest read hit ratio of what can run, {}, with {}; the best possible is {}.",
            leader.policy,
            percent(wear(leader).rhr),
            size.named(),
            percent(best)
        ),
        (Some(leader), None) => {
            format!(
                "{} has the highest read hit ratio, {}, with {}.",
                leader.policy,
                percent(wear(leader).rhr),
                size.named()
            )
        }
        (None, Some(best)) => format!("The best possible read hit ratio is {} with {}.", percent(best), size.named()),
        (None, None) => "No policy was simulated.".to_owned(),
    };
    [hits, erasures(grid, size, &online)]
}

fn erasures(grid: &Grid, size: GridSize, online: &[&ResultRow]) -> String {
    let of = |name: &str| {
        let policy = grid.policies.iter().copied().find(|policy| policy.name == name)?;
        Some(grid.row(policy, size)?.endurance.as_ref()?.erasures)
    };
    let least = online.iter().filter_map(|row| Some((row.endurance.as_ref()?.erasures, &row.policy))).min();
    let worn =
        least.map(|(erasures, policy)| format!("{policy} wears least of what can run, {} erasures", count(erasures)));
    let fewer = |name: &str, of_c: u64| {
        let all = of(name).filter(|&all| all > 0)?;
        Some(format!("{}% fewer than {name}", shortest((1.0 - of_c as f64 / all as f64) * 100.0, 1)))
    };
    let offline = of("c").map(|of_c| {
        let compared: Vec<_> = ["m", "m+"].iter().filter_map(|name| fewer(name, of_c)).collect();
        let compared = if compared.is_empty() { String::new() } else { format!(", {}", compared.join(" and ")) };
        format!("c, which knows the future, needs {}{compared}", count(of_c))
    });
    match (worn, offline) {
        (Some(worn), Some(offline)) => format!("{worn}; {offline}."),
        (Some(only), None) | (None, Some(only)) => format!("{only}."),
        (None, None) => "Erasures are in the figures below.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| quantile(&[1.0, 2.0, 4.0, 8.0], share)), [1.0, 1.75, 3.0, 8.0]);
        assert_eq!(quantile(&[5.0], 0.9), 5.0);
    }

    #[test]
    fn an_option_is_taken_out_of_a_policys_name() {
        let row = |policy: &str| ResultRow { policy: policy.to_owned(), ..ResultRow::default() };
        assert_eq!(without(&row("c:order=arrival,buffers=2"), "buffers"), Some((2.0, "c:order=arrival".to_owned())));
        assert_eq!(without(&row("m_t:share=25%"), "share"), Some((25.0, "m_t".to_owned())));
        assert_eq!(without(&row("m_t:share=0.25"), "share"), Some((25.0, "m_t".to_owned())));
        assert_eq!(without(&row("c_n:n=3"), "n"), Some((3.0, "c_n".to_owned())));
        assert_eq!((without(&row("c"), "n"), without(&row("c_n:cfr=0"), "n")), (None, None));
    }
}
