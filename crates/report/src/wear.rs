//! The figures of wear, each a chart and its table. They follow Figures 1, 5 and 6 of Cheng et al., Erasing Belady's
//! limitations (USENIX ATC 2016).

pub(crate) mod measures;
pub(crate) mod parameters;

use super::Section;
use crate::draw::boxes::boxes;
use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{linear, powers_of_ten};
use crate::figures::{NUMBERS_FOLLOW, Subject, figure};
use crate::grid::{Grid, GridSize};
use crate::numbers::{count, number, percent};
use crate::rows::erasures as erasures_of;
use crate::table::{Figure, Table};
use crate::wear::measures::{Measure, OF_M_PLUS, RHR, mean, measures};
use crate::wear::parameters::is_point;
use flashwise_sim::results::ResultRow;

/// True if wear was simulated.
pub fn is_of_wear(rows: &[ResultRow]) -> bool {
    rows.first().is_some_and(|row| row.endurance.is_some())
}

/// Returns the figures of one trace by cache size (Figures 5 and 6), and hits against erasures (Figure 1).
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

/// True if a [`Grid`] shows this row: the first of its policy and size.
fn is_first(rows: &[ResultRow], row: &ResultRow) -> bool {
    let same = |other: &&ResultRow| {
        (&other.trace, &other.policy, other.capacity_blocks) == (&row.trace, &row.policy, row.capacity_blocks)
    };
    rows.iter().find(same).is_some_and(|first| std::ptr::eq(first, row))
}

/// Draws hits against erasures, with one line for each policy through its sizes.
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
    let caption = "Hits against wear: each point is a cache size; points further up and to the left hit more and wear \
        less. Caches \
                   without erasures are in the table only.";
    Some(Figure { caption: caption.to_owned(), open: false, ..figure(&chart, table) })
}

/// Returns the share of m's erasures that each other algorithm saves (Figure 6).
fn savings(subject: &Subject) -> Option<Figure> {
    let grid = subject.grid;
    let m = grid.policies.iter().copied().find(|policy| policy.name == "m")?;
    let others: Vec<_> = grid.policies.iter().copied().filter(|&policy| policy != m && policy.offline).collect();
    let erasures = |row: &ResultRow| erasures_of(row).map(|erasures| erasures as f64);
    let saved = |row: &ResultRow| {
        let size = grid.sizes.iter().copied().find(|size| size.blocks == row.capacity_blocks)?;
        let all = erasures(grid.row(m, size)?).filter(|&all| all > 0.0)?;
        // Erase units of one block do not compare with larger ones.
        row.endurance.as_ref().filter(|wear| wear.layout != "unit")?;
        Some((1.0 - erasures(row)? / all) * 100.0)
    };
    if !others
        .iter()
        .any(|&policy| grid.sizes.iter().any(|&size| grid.row(policy, size).is_some_and(|row| saved(row).is_some())))
    {
        return None;
    }
    let title = "Erasures saved compared with m";
    let chart = subject.against_size("saved", title, "Erasures saved, of those of m", "%", &saved, &others);
    let cell =
        |row: &ResultRow| Some(saved(row).map_or_else(|| "none".to_owned(), |saved| format!("{}%", number(saved))));
    let table = subject.by_policy(title, &others, cell);
    let caption = "Share of m's erasures that each algorithm saves; m is MIN without useless fetches.";
    Some(Figure { caption: caption.to_owned(), ..figure(&chart, table) })
}

/// Returns the measures over all traces: boxes by size and policy (Figure 5), and means of hits and erasures (Figure
/// 1).
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
        // Policies with a parameter have their own figures.
        if !policies.contains(&&row.policy[..]) && !is_point(&row.policy) {
            policies.push(&row.policy);
        }
    }
    if policies.is_empty() {
        return Vec::new();
    }
    let measures = measures(rows.iter().copied());
    let values = |measure: &Measure, policy: &str, size: &str| -> Vec<f64> {
        let own = rows.iter().filter(|row| row.policy == policy && row.size == size);
        own.filter_map(|row| measure.of(row)).collect()
    };
    let mut figures: Vec<_> = measures
        .iter()
        .copied()
        .chain([&OF_M_PLUS])
        .filter(|measure| rows.iter().any(|row| measure.of(row).is_some()))
        .map(|measure| {
            let caption = measure.caption(rows.iter().copied());
            boxes("all", measure, caption, &policies, &sizes, looks, |policy, size| values(measure, policy, size))
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

/// Summarises the wear of a trace: a sentence about hits and one about erasures, at the largest size.
pub fn sentences(grid: &Grid) -> [String; 2] {
    let wear = |row: &ResultRow| row.endurance.clone().unwrap_or_default();
    let Some(&size) = grid.sizes.last() else { return ["No policy was simulated.".to_owned(), String::new()] };
    let at = |offline: bool| -> Vec<&ResultRow> {
        let own = grid.policies.iter().filter(|policy| policy.offline == offline);
        own.filter_map(|&policy| grid.row(policy, size)).collect()
    };
    let (online, offline) = (at(false), at(true));
    // Of equal rows, the first wins.
    let most = |rows: &[&ResultRow]| {
        let better = |most: ResultRow, row: ResultRow| if wear(&row).rhr > wear(&most).rhr { row } else { most };
        rows.iter().map(|&row| row.clone()).reduce(better)
    };
    let hits = match (most(&online), most(&offline)) {
        (Some(leader), Some(best)) => format!(
            "{} has the highest read hit ratio of what can run, {}, with {}; {}, which knows the future, has {}.",
            leader.policy,
            percent(wear(&leader).rhr),
            size.named(),
            best.policy,
            percent(wear(&best).rhr)
        ),
        (Some(leader), None) => {
            format!(
                "{} has the highest read hit ratio, {}, with {}.",
                leader.policy,
                percent(wear(&leader).rhr),
                size.named()
            )
        }
        (None, Some(best)) => {
            format!("{} has a read hit ratio of {} with {}.", best.policy, percent(wear(&best).rhr), size.named())
        }
        (None, None) => "No policy was simulated.".to_owned(),
    };
    [hits, erasures(grid, size, &online)]
}

fn erasures(grid: &Grid, size: GridSize, online: &[&ResultRow]) -> String {
    let of = |name: &str| {
        let policy = grid.policies.iter().copied().find(|policy| policy.name == name)?;
        erasures_of(grid.row(policy, size)?)
    };
    let least = online.iter().filter_map(|row| Some((erasures_of(row)?, &row.policy))).min();
    let worn =
        least.map(|(erasures, policy)| format!("{policy} wears least of what can run, {} erasures", count(erasures)));
    let fewer = |name: &str, of_c: u64| {
        let all = of(name).filter(|&all| all > 0)?;
        Some(format!("{}% fewer than {name}", number((1.0 - of_c as f64 / all as f64) * 100.0)))
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
