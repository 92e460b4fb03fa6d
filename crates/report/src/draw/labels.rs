//! Places the names of points in a chart, so that none covers another.

/// Height of a name.
const HEIGHT: f64 = 14.0;
/// Mean width of a letter, and the width that short names with wide letters may have besides. Estimates, as the
/// reader's font is unknown.
const LETTER: f64 = 7.6;
const MORE: f64 = 7.0;
/// Distance of a name from its point.
const GAP: f64 = 9.0;
/// Half the size of a marker.
const MARKER: f64 = 5.0;
/// Rows above and below a point that are tried.
const ROWS: i32 = 18;
/// Columns on each side that are tried, and their width.
const COLUMNS: i32 = 4;
const COLUMN: f64 = 66.0;

/// A rectangle: left, top, right and bottom.
type Box = [f64; 4];

/// A placed name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    /// Place of the text's `anchor`.
    pub x: f64,
    /// Base line of the text.
    pub y: f64,
    /// The text's fixed point, as in SVG: start, middle or end.
    pub anchor: &'static str,
    /// Where a line from the point ends, if the name is not beside it.
    pub lead: Option<(f64, f64)>,
}

/// Places a name for each point inside `area`, in order; the first have the best places. A name without a free place is
/// `None`.
pub fn place(points: &[(f64, f64)], names: &[&str], area: Box) -> Vec<Option<Label>> {
    let markers: Vec<Box> = points.iter().map(|&(x, y)| [x - MARKER, y - MARKER, x + MARKER, y + MARKER]).collect();
    let mut taken: Vec<Box> = Vec::new();
    let place = |(&point, name): (&(f64, f64), &&str)| {
        let width = LETTER * name.chars().count() as f64 + MORE;
        let is_free = |found: &(Label, Box)| !taken.iter().chain(&markers).any(|other| overlap(&found.1, other));
        let found = candidates(point, width, area).into_iter().find(is_free);
        taken.extend(found.map(|(_, area)| area));
        found.map(|(label, _)| label)
    };
    points.iter().zip(names).map(place).collect()
}

fn overlap(one: &Box, other: &Box) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

/// Places for a name of this width, the nearest first: on both sides of the point, and above and below it.
fn candidates((x, y): (f64, f64), width: f64, area: Box) -> Vec<(Label, Box)> {
    let mut places = Vec::new();
    for row in -ROWS..=ROWS {
        let middle = y + f64::from(row) * HEIGHT;
        let mut add = |anchor: &'static str, at: f64, end: f64, cost: i32| {
            let left = match anchor {
                "start" => at,
                "middle" => at - width / 2.0,
                _ => at - width,
            };
            let place = [left, middle - HEIGHT / 2.0, left + width, middle + HEIGHT / 2.0];
            let is_inside = place[0] >= area[0] && place[1] >= area[1] && place[2] <= area[2] && place[3] <= area[3];
            let lead = (cost > 1).then_some((end, middle - f64::from(row.signum()) * HEIGHT / 2.0));
            if is_inside {
                places.push((cost, (Label { x: at, y: middle + 4.5, anchor, lead }, place)));
            }
        };
        for column in 0..COLUMNS {
            let (aside, cost) = (GAP + f64::from(column) * COLUMN, 2 * row.abs() + 5 * column);
            add("start", x + aside, x + aside, cost);
            add("end", x - aside, x - aside, cost + 1);
        }
        if row != 0 {
            add("middle", x, x, 2 * row.abs() + 1);
            add("start", area[0].max(area[2].min(x + width / 2.0) - width), x, 2 * row.abs() + 3);
        }
    }
    places.sort_by_key(|(cost, _)| *cost);
    places.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_points_in_one_place_do_not_cover_each_other() {
        let names: Vec<String> = (0..24).map(|number| format!("policy-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for points in [vec![(300.0, 100.0); 24], (0..24).map(|at| (250.0 + f64::from(at), 100.0)).collect::<Vec<_>>()] {
            let labels = place(&points, &names, [40.0, 20.0, 600.0, 300.0]);
            let boxes: Vec<Box> = labels
                .iter()
                .zip(&names)
                .map(|(label, name)| {
                    let Label { x, y, anchor, .. } = label.unwrap();
                    let width = LETTER * name.len() as f64 + MORE;
                    let x = x - width * ["start", "middle", "end"].iter().position(|at| *at == anchor).unwrap() as f64
                        / 2.0;
                    [x, y - 4.5 - HEIGHT / 2.0, x + width, y - 4.5 + HEIGHT / 2.0]
                })
                .collect();
            for (at, one) in boxes.iter().enumerate() {
                assert!(boxes[at + 1..].iter().all(|other| !overlap(one, other)));
                assert!(one[0] >= 40.0 && one[1] >= 20.0 && one[2] <= 600.0 && one[3] <= 300.0);
            }
        }
        let alone = place(&[(300.0, 100.0)], &["one"], [40.0, 20.0, 600.0, 300.0]);
        assert_eq!(alone, [Some(Label { x: 309.0, y: 104.5, anchor: "start", lead: None })]);
        assert_eq!(place(&[(10.0, 10.0)], &["long name"], [0.0, 0.0, 20.0, 20.0]), [None]);
    }
}
