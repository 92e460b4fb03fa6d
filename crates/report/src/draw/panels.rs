//! Several charts of the same series side by side, as one picture.

use crate::draw::charts::{Chart, Series, side_by_side};
use crate::draw::look::Looks;
use crate::draw::scales::linear;

/// A chart of a picture.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Label of the vertical axis, with the unit.
    pub label: String,
    /// Its lines: names for the legend, and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Draws charts over one kind of horizontal axis, in rows, as an SVG file in light and dark. A name has the same look
/// in all.
pub fn panels_chart(title: &str, description: &str, x_label: &str, columns: usize, panels: &[Panel]) -> String {
    let looks = Looks::new(panels.iter().flat_map(|panel| panel.lines.iter().map(|(name, _)| name.as_str())));
    let chart = |panel: &Panel| {
        let points = || panel.lines.iter().flat_map(|(_, points)| points);
        let series = |(name, points): &(String, Vec<(f64, f64)>)| Series {
            name: name.clone(),
            look: looks.of(name),
            points: points.clone(),
        };
        Chart {
            id: String::new(),
            title: panel.label.clone(),
            description: String::new(),
            x: linear(x_label, points().map(|point| point.0 * 1.06), ""),
            y: linear(&panel.label, points().map(|point| point.1), ""),
            series: panel.lines.iter().map(series).collect(),
            markers: true,
        }
    };
    side_by_side("panels", title, description, columns, &panels.iter().map(chart).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_stand_in_rows() {
        let panel = |label: &str| Panel {
            label: label.to_owned(),
            lines: vec![("lru".to_owned(), vec![(2.0, 10.0), (6.0, 30.0)]), ("larc".to_owned(), vec![(2.0, 20.0)])],
        };
        let picture = panels_chart("Both", "Two figures", "GB", 2, &["one & all", "two", "three"].map(panel));
        assert_eq!(picture.matches("<svg ").count(), 1 + 3);
        assert_eq!(picture.matches("</svg>").count(), 1 + 3);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        let places: Vec<&str> =
            picture.split("<svg x=").skip(1).map(|panel| panel.split(" width").next().unwrap()).collect();
        assert_eq!(places.len(), 3);
        assert_eq!(places[0], "\"0\" y=\"0\"");
        assert!(places[1].starts_with("\"640\" y=\"0\"") && places[2].starts_with("\"0\" y=\""), "{places:?}");
        assert!(picture.contains("one &amp; all") && picture.contains(">larc<"));
    }
}
