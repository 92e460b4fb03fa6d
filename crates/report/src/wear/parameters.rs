//! Means over the traces against a parameter of the runs: Figures 7 to 10 of Cheng et al., Erasing Belady's limitations
//! (USENIX ATC 2016).
//!
//! Every run is a point. M+ and C without a budget have a budget of 100 %, and a threshold of one read. C without a
//! given write buffer has the one that it received.

use crate::Section;
use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::linear;
use crate::figures::{NOT_RUN, NUMBERS_FOLLOW, figure};
use crate::numbers::number;
use crate::table::{Figure, Table};
use crate::wear::measures::{Measure, OF_M_PLUS, RHR, WFUE_OF_ERASURES, WFUE_OF_HITS, mean, measures, quantile};
use flashwise_sim::results::{ResultRow, SpecText};

/// A parameter of runs.
struct Parameter {
    id: &'static str,
    axis: &'static str,
    suffix: &'static str,
    /// True if hits are shown too, not only erasures.
    hits: bool,
    caption: &'static str,
    /// Returns its value in a row, and the row's policy without it.
    split: fn(&ResultRow) -> Option<(f64, SpecText)>,
}

/// Returns the value of an option, a number or a percentage, and the policy without it.
fn without(row: &ResultRow, option: &str) -> Option<(f64, SpecText)> {
    let text = row.policy.value(option)?;
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok(),
        None if option == "share" => text.parse::<f64>().ok().map(|share| share * 100.0),
        None => text.parse().ok(),
    };
    Some((value?, row.policy.without(option)))
}

/// Returns M+, C and H as members of the family with `suffix`, with the value `at` of the parameter.
fn member(row: &ResultRow, suffix: &str, at: f64) -> Option<(f64, SpecText)> {
    let family = match row.policy.name() {
        "m+" => "m",
        name @ ("c" | "h") => name,
        _ => return None,
    };
    // With a threshold of its own it is no member.
    row.policy.value("r").is_none().then(|| (at, row.policy.renamed(&format!("{family}{suffix}"))))
}

/// Returns the write buffer of C in erase units, and the policy without it.
fn buffers(row: &ResultRow) -> Option<(f64, SpecText)> {
    without(row, "buffers").or_else(|| {
        let wear = row.endurance.as_ref()?;
        let is_c = row.policy.name().starts_with('c') && wear.layout == "containers";
        is_c.then(|| ((wear.buffer_bytes / wear.erase_unit_bytes) as f64, row.policy.clone()))
    })
}

const PARAMETERS: [Parameter; 5] = [
    Parameter {
        id: "buffers",
        axis: "Erase units of the write buffer",
        suffix: "",
        hits: false,
        caption: "Write buffer: a larger one puts blocks together that leave together.",
        split: buffers,
    },
    Parameter {
        id: "spare",
        axis: "Spare flash",
        suffix: "%",
        hits: false,
        caption: "Spare flash: with more, less is copied, by the device for m+ and by the host for c.",
        split: |row| Some((row.endurance.as_ref()?.spare * 100.0, row.policy.clone())),
    },
    Parameter {
        id: "budget",
        axis: "Budget, of the erasures without one",
        suffix: "%",
        hits: true,
        caption: "Budgets of erasures: what insertions with few hits cost and bring.",
        split: |row| without(row, "share").or_else(|| member(row, "_t", 100.0)),
    },
    Parameter {
        id: "budget-per-day",
        axis: "Budget, in erasures per unit and day",
        suffix: "",
        hits: true,
        caption: "Budgets of erasures per day: what insertions with few hits cost and bring.",
        split: |row| without(row, "epbpd"),
    },
    Parameter {
        id: "least",
        axis: "Least read hits of an insertion",
        suffix: "",
        hits: true,
        caption: "Least read hits: insertions with fewer are left out.",
        split: |row| without(row, "n").or_else(|| member(row, "_n", 1.0)),
    },
];

/// True if a policy has a value of a parameter, and so is a point of its figures.
pub fn is_point(policy: &str) -> bool {
    let row = ResultRow { policy: policy.into(), ..ResultRow::default() };
    ["buffers", "share", "epbpd", "n"].iter().any(|option| without(&row, option).is_some())
}

/// Returns means over all traces against the write buffer, over-provisioning, budget and least hits (Figures 7 to 10),
/// if runs differ in these. Over several traces erasures are relative to M+'s, so no trace dominates.
pub fn by_parameter(sections: &[Section]) -> Vec<Figure> {
    let rows: Vec<&ResultRow> = sections.iter().flat_map(|section| &section.rows).collect();
    let [_, erasures, ..] = measures(rows.iter().copied());
    let erasures = if sections.len() > 1 { &OF_M_PLUS } else { erasures };
    let mut figures = Vec::new();
    for parameter in &PARAMETERS {
        let measures: &[&Measure] =
            if parameter.hits { &[&RHR, erasures, &WFUE_OF_ERASURES, &WFUE_OF_HITS] } else { &[erasures] };
        figures.extend(measures.iter().filter_map(|measure| against(parameter, measure, &rows)));
    }
    figures
}

/// A value of a parameter, and the measurements by trace.
type Values<'a> = (f64, Vec<(&'a str, f64)>);

/// Returns lines of means over traces: by policy, size and other differences of runs, each value of the parameter with
/// its measurements.
fn lines<'a>(parameter: &Parameter, measure: &Measure, rows: &[&'a ResultRow]) -> Vec<(String, Vec<Values<'a>>)> {
    let spare = |row: &ResultRow| row.endurance.as_ref().map_or(0.0, |wear| wear.spare);
    let is_spare_another = rows.iter().any(|row| spare(row) != spare(rows[0])) && parameter.id != "spare";
    let mut lines: Vec<(String, Vec<Values>)> = Vec::new();
    for row in rows {
        let (Some((at, policy)), Some(value)) = ((parameter.split)(row), measure.of(row)) else { continue };
        let mut name = format!("{policy}, {}", row.size);
        if is_spare_another {
            name += &format!(", {}% spare", number(spare(row) * 100.0));
        }
        let at_name = lines.iter().position(|line| line.0 == name).unwrap_or_else(|| {
            lines.push((name, Vec::new()));
            lines.len() - 1
        });
        let line = &mut lines[at_name].1;
        let at_value = line.iter().position(|point| point.0 == at).unwrap_or_else(|| {
            line.push((at, Vec::new()));
            line.len() - 1
        });
        // A run under two names counts once.
        let of_traces = &mut line[at_value].1;
        if of_traces.iter().all(|(trace, _)| *trace != row.trace) {
            of_traces.push((&row.trace, value));
        }
    }
    lines.retain(|(_, line)| line.len() > 1);
    for (_, line) in &mut lines {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn against(parameter: &Parameter, measure: &Measure, rows: &[&ResultRow]) -> Option<Figure> {
    let lines = lines(parameter, measure, rows);
    if lines.is_empty() {
        return None;
    }
    let looks = Looks::few(&[], lines.iter().map(|(name, _)| &name[..]));
    let of_several = lines.iter().flat_map(|(_, line)| line).any(|(_, values)| values.len() > 1);
    let mean_of = |values: &[(&str, f64)]| mean(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    let series: Vec<_> = lines
        .iter()
        .map(|(name, line)| Series {
            name: name.clone(),
            look: looks.of(name),
            points: line.iter().map(|(at, values)| (*at, mean_of(values))).collect(),
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
    let heads = ats.iter().map(|at| format!("{}{}", number(*at), parameter.suffix));
    let over = if of_several { ": means over the traces, and from the first to the third quartile" } else { "" };
    let mut table = Table::new(format!("{title}{over}"), ["Policy, size".to_owned()].into_iter().chain(heads));
    for (name, line) in &lines {
        let cell = |at: &f64| {
            let found = line.iter().find(|(value, _)| value == at);
            found.map_or_else(|| NOT_RUN.to_owned(), |(_, values)| varied(measure, values))
        };
        table.push(name, ats.iter().map(cell).collect());
    }
    let id = format!("all-{}-{}", parameter.id, measure.id);
    let chart = Chart { id, title, description, x, y, series, markers: true };
    let caption = format!("{} {}", parameter.caption, measure.caption(rows.iter().copied()));
    Some(Figure { caption, ..figure(&chart, table) })
}

/// Formats the mean over the traces and, for several, the range from the first to the third quartile (Figure 7b).
fn varied(measure: &Measure, values: &[(&str, f64)]) -> String {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let of_all = measure.written(mean(&sorted));
    if sorted.len() < 2 {
        return of_all;
    }
    let [low, high] = [0.25, 0.75].map(|share| measure.written(quantile(&sorted, share)));
    format!("{of_all}\n{low} to {high}")
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_sim::results::EnduranceFigures;

    fn row(policy: &str) -> ResultRow {
        let wear = EnduranceFigures {
            layout: "containers",
            erase_unit_bytes: 1024,
            buffer_bytes: 4096,
            ..EnduranceFigures::default()
        };
        ResultRow { policy: policy.into(), endurance: Some(wear), ..ResultRow::default() }
    }

    /// 1, 2, 4 and 9 have a mean of 4 and quartiles of 1.75 and 5.25.
    #[test]
    fn several_traces_have_their_quartiles_beside_the_mean() {
        let values = [("a", 4.0), ("b", 1.0), ("c", 9.0), ("d", 2.0)];
        assert_eq!(varied(&WFUE_OF_HITS, &values), "4\n1.75 to 5.25");
        assert_eq!(varied(&WFUE_OF_HITS, &values[..1]), "4");
    }

    #[test]
    fn an_option_is_taken_out_of_a_policys_name() {
        assert_eq!(without(&row("c:order=arrival,buffers=2"), "buffers"), Some((2.0, "c:order=arrival".into())));
        assert_eq!(without(&row("m_t:share=25%"), "share"), Some((25.0, "m_t".into())));
        assert_eq!(without(&row("m_t:share=0.25"), "share"), Some((25.0, "m_t".into())));
        assert_eq!(without(&row("c_n:n=3"), "n"), Some((3.0, "c_n".into())));
        assert_eq!((without(&row("c"), "n"), without(&row("c_n:cfr=0"), "n")), (None, None));
        assert!(is_point("c_t:share=50%") && is_point("c:buffers=8") && !is_point("c:cfr=0") && !is_point("lru"));
    }

    #[test]
    fn policies_without_parameters_are_points_too() {
        let at = |parameter: usize, policy: &str| (PARAMETERS[parameter].split)(&row(policy));
        assert_eq!(at(0, "c"), Some((4.0, "c".into())));
        assert_eq!(at(0, "c:order=arrival"), Some((4.0, "c:order=arrival".into())));
        assert_eq!(at(2, "m+"), Some((100.0, "m_t".into())));
        assert_eq!(at(2, "c:order=arrival"), Some((100.0, "c_t:order=arrival".into())));
        assert_eq!(at(4, "m+"), Some((1.0, "m_n".into())));
        assert_eq!(at(4, "c"), Some((1.0, "c_n".into())));
        assert_eq!((at(4, "c:r=0"), at(2, "lru"), at(2, "m")), (None, None, None));
    }
}
