//! Boxes: the distribution of a figure over many traces, by policy and cache size.

use std::sync::Arc;

use crate::draw::charts::{Axis, Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{linear, powers_of_ten};
use crate::figures::{NUMBERS_FOLLOW, figure};
use crate::numbers::count;
use crate::table::{Figure, Table};
use crate::wear::measures::{Measure, mean, quantile};

/// Draws boxes from the first to the third quartile with the median. Whiskers go from the 10th to the 90th percentile.
/// The boxes of a size are side by side.
pub fn boxes(
    id: &str,
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
            let traces = count(found.len() as u64);
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
            let points = if measure.logarithmic {
                outline.iter().filter(|point| point.1 > 0.0).map(|point| (point.0, point.1.log10())).collect()
            } else {
                outline.to_vec()
            };
            series.push(Series { name: (*policy).to_owned(), look: looks.of(policy), points });
            let numbers = [mean(&found), low, q1, median, q3, high].map(|value| measure.written(value));
            table.push(format!("{policy}, {size}"), std::iter::once(traces).chain(numbers).collect());
        }
    }
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let y = if measure.logarithmic {
        powers_of_ten(format!("{} (logarithmic)", measure.name), values.map(|exponent| 10_f64.powf(exponent)))
    } else {
        linear(measure.name, values, measure.suffix)
    };
    let names: Vec<String> = sizes.iter().map(|&size| size.to_owned()).collect();
    let tick = Arc::new(move |at: f64| {
        let whole = (at - at.round()).abs() < 1e-9 && at > -0.5;
        names.get(at.round() as usize).filter(|_| whole).cloned().unwrap_or_default()
    });
    let x = Axis { label: "Cache size".to_owned(), min: -0.5, max: sizes.len() as f64 - 0.5, step: 1.0, tick };
    let title = format!("{} over all traces", measure.name);
    let description = format!("A box for each policy and cache size over the traces. {NUMBERS_FOLLOW}");
    let chart = Chart { id: format!("{id}-{}", measure.id), title, description, x, y, series, markers: false };
    let caption = format!(
        "{caption} Boxes over the traces: from the first to the third quartile with the median, and lines from the \
         10th to the 90th percentile."
    );
    Figure { caption, open: false, ..figure(&chart, table) }
}
