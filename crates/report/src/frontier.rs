//! Hits against erasures of many caches, with the frontier of those that can run and of those that know the future.

use super::charts::{Chart, Series};
use super::look::{Looks, READS};
use super::scales::{linear, powers_of_ten};

/// A cache.
#[derive(Clone, Copy, Debug)]
pub struct FrontierPoint {
    /// Whether it knows the future.
    pub offline: bool,
    /// Whether it is on the frontier of its kind.
    pub frontier: bool,
    /// Erase units that were erased; a cache that erases nothing is drawn as if it erased one.
    pub erasures: f64,
    /// Read hit ratio, 0 to 1.
    pub rhr: f64,
}

/// The chart as an SVG file in light and in dark.
pub fn frontier_chart(points: &[FrontierPoint]) -> String {
    let names = ["What knows the future", "What can run", "Other caches that can run"];
    let looks = Looks::new(["min", "frontier"]);
    let place = |point: &FrontierPoint| (point.erasures.max(1.0).log10(), point.rhr * 100.0);
    let frontier = |offline: bool| -> Vec<(f64, f64)> {
        points.iter().filter(|point| point.offline == offline && point.frontier).map(place).collect()
    };
    let others = points.iter().filter(|point| !point.offline && !point.frontier).map(place);
    let other = |point| Series { name: names[2].to_owned(), look: READS, points: vec![point] };
    let line = |name: &str, look, points| Series { name: name.to_owned(), look, points };
    let mut series: Vec<Series> = others.map(other).collect();
    series.push(line(names[1], looks.of("frontier"), frontier(false)));
    series.push(line(names[0], looks.of("min"), frontier(true)));
    series.retain(|series| !series.points.is_empty());
    let x = powers_of_ten("Erasures (logarithmic)", points.iter().map(|point| point.erasures.max(1.0)));
    let y = linear("Read hit ratio", points.iter().map(|point| point.rhr * 100.0), "%");
    let title = "Read hit ratio against erasures".to_owned();
    let description = "A point for each cache; the upper left is best. The frontiers of what can run and of what knows the future are lines."
        .to_owned();
    Chart { id: "pareto".to_owned(), title, description, x, y, series, markers: true }.standalone()
}
