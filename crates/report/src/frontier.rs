//! Hits against erasures of many caches, with the frontiers of online and of offline caches.

use crate::draw::charts::{Chart, Series};
use crate::draw::look::{Looks, READS};
use crate::draw::scales::{linear, powers_of_ten};

/// A cache.
#[derive(Clone, Copy, Debug)]
pub struct FrontierPoint {
    /// True if it is offline: it knows the future.
    pub offline: bool,
    /// True if it is on the frontier of its kind.
    pub frontier: bool,
    /// Erasures; a cache without any is drawn with one.
    pub erasures: f64,
    /// Read hit ratio, 0 to 1.
    pub rhr: f64,
}

/// Returns the chart as an SVG file in light and dark.
pub fn frontier_chart(points: &[FrontierPoint]) -> String {
    let names = ["Offline caches", "Online caches", "Other online caches"];
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
    let description =
        "A point for each cache; the upper left is best. The frontiers of online and of offline caches are lines."
            .to_owned();
    Chart { id: "pareto".to_owned(), title, description, x, y, series, markers: true }.standalone()
}
