//! Axes that fit the data: their ends and ticks.

use std::sync::Arc;

use crate::draw::charts::{Axis, TickText};
use crate::numbers;

/// Sizes that span more than this factor have a logarithmic axis.
const LINEAR_SPAN_MAX: f64 = 8.0;

/// Returns a step of 1, 2 or 5 times a power of ten that divides `span` into at most `ticks` parts.
fn step(span: f64, ticks: f64) -> f64 {
    let least = span / ticks;
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|factor| factor * power).into_iter().find(|&step| step >= least * 0.999).unwrap_or(10.0 * power)
}

/// Returns an axis of numbers with a suffix, from 0 or the smallest negative value to the tick at or after the largest
/// value.
pub fn linear(label: impl Into<String>, values: impl Iterator<Item = f64>, suffix: &'static str) -> Axis {
    let (min, max) = values.fold((0.0_f64, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
    let max = if min == max { 1.0 } else { max };
    let step = step(max - min, 6.0);
    let decimals = usize::try_from(-step.log10().floor() as i64).unwrap_or(0);
    let tick: TickText = Arc::new(move |value| format!("{}{suffix}", grouped(value, decimals)));
    Axis {
        label: label.into(),
        min: (min / step + 1e-9).floor() * step,
        max: (max / step - 1e-9).ceil() * step,
        step,
        tick,
    }
}

/// Formats a number with thousands separators, a true minus sign and at most this many decimals.
fn grouped(value: f64, decimals: usize) -> String {
    let sign = if value < 0.0 { "\u{2212}" } else { "" };
    let text = numbers::shortest(value.abs(), decimals);
    match text.parse::<u64>() {
        Ok(whole) => format!("{sign}{}", numbers::count(whole)),
        Err(_) => format!("{sign}{text}"),
    }
}

/// Returns an axis of powers of two from 0 to `exponent_max`; values are exponents.
pub fn powers_of_two(label: impl Into<String>, exponent_max: usize) -> Axis {
    let max = exponent_max.max(1) as f64;
    let tick: TickText = Arc::new(|exponent: f64| numbers::count(exponent.exp2().round() as u64));
    Axis { label: label.into(), min: 0.0, max, step: (max / 5.0).ceil(), tick }
}

/// Returns an axis of powers of ten around values above 0; values are exponents.
pub fn powers_of_ten(label: impl Into<String>, values: impl Iterator<Item = f64>) -> Axis {
    let exponents = values.map(f64::log10);
    let (min, max) = exponents.fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)));
    let (min, max) = if min > max { (0.0, 1.0) } else { (min, max) };
    let (min, max) = ((min - 0.05).floor(), (max + 0.05).ceil());
    let tick: TickText = Arc::new(|exponent: f64| {
        let value = 10_f64.powf(exponent);
        grouped(value, usize::try_from(-exponent.round() as i64).unwrap_or(0))
    });
    Axis { label: label.into(), min, max, step: ((max - min) / 7.0).ceil(), tick }
}

/// Returns an axis of ratios around the values and around 1; values are logarithms to base 2.
pub fn ratios(label: impl Into<String>, values: impl Iterator<Item = f64>) -> Axis {
    doublings(label, values.chain([1.0]).map(f64::log2), |ratio| {
        grouped(ratio, usize::try_from(-ratio.log2().floor() as i64).unwrap_or(0))
    })
}

/// Returns an axis from power to power of two, formatted by `write`; values are logarithms to base 2.
pub fn doublings(
    label: impl Into<String>,
    exponents: impl Iterator<Item = f64>,
    write: impl Fn(f64) -> String + Send + Sync + 'static,
) -> Axis {
    let (min, max) = exponents.fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)));
    let (min, max) = if min > max { (0.0, 1.0) } else { ((min - 0.1).floor(), (max + 0.1).ceil()) };
    let tick: TickText = Arc::new(move |exponent: f64| write(exponent.exp2()));
    Axis { label: label.into(), min, max, step: ((max - min) / 8.0).ceil(), tick }
}

/// Letters kept at the start and end of a long category name.
const CATEGORY_LETTERS: (usize, usize) = (20, 9);

/// Returns a vertical axis with a position for each name, the first at the top: name i of n is at n - 1 - i.
pub fn categories(label: impl Into<String>, names: &[String]) -> Axis {
    let short = |name: &String| {
        let letters: Vec<char> = name.chars().collect();
        let (first, last) = CATEGORY_LETTERS;
        if letters.len() <= first + last + 1 {
            return name.clone();
        }
        let text = |letters: &[char]| letters.iter().collect::<String>();
        format!("{}…{}", text(&letters[..first]), text(&letters[letters.len() - last..]))
    };
    let names: Vec<String> = names.iter().rev().map(short).collect();
    let max = names.len() as f64 - 0.5;
    let tick: TickText = Arc::new(move |at: f64| {
        let whole = (at - at.round()).abs() < 1e-9 && at > -0.5;
        names.get(at.round() as usize).filter(|_| whole).cloned().unwrap_or_default()
    });
    Axis { label: label.into(), min: -0.5, max: max.max(0.5), step: 1.0, tick }
}

/// Horizontal axis of charts against the cache size.
pub struct SizeAxis {
    /// The axis.
    pub axis: Axis,
    logarithmic: bool,
}

impl SizeAxis {
    /// Returns an axis for sizes in bytes: linear, or logarithmic if they span a wide range.
    pub fn new(sizes_bytes: impl Iterator<Item = u64>) -> SizeAxis {
        let (min, max) = sizes_bytes.fold((u64::MAX, 0), |(min, max), bytes| (min.min(bytes), max.max(bytes)));
        let (min, max) = if min > max { (1.0, 2.0) } else { (min.max(1) as f64, max.max(1) as f64) };
        let logarithmic = max / min > LINEAR_SPAN_MAX;
        let tick: TickText;
        let (min, max, step) = if logarithmic {
            tick = Arc::new(|exponent: f64| numbers::bytes(exponent.exp2().round() as u64));
            let (min, max) = (min.log2(), max.log2());
            let margin = (max - min) * 0.04;
            (min - margin, max + margin, ((max - min) / 7.0).ceil())
        } else {
            tick = Arc::new(|bytes: f64| numbers::bytes(bytes.round() as u64));
            (0.0, max * 1.06, (max / 6.0).log2().ceil().exp2())
        };
        let label = if logarithmic { "Cache size (logarithmic)" } else { "Cache size" };
        SizeAxis { axis: Axis { label: label.to_owned(), min, max, step, tick }, logarithmic }
    }

    /// Returns the position of a size on the axis.
    pub fn place(&self, bytes: u64) -> f64 {
        let bytes = bytes.max(1) as f64;
        if self.logarithmic { bytes.log2() } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis) -> Vec<String> {
        let first = (axis.min / axis.step - 1e-9).ceil() as i64;
        let last = (axis.max / axis.step + 1e-9).floor() as i64;
        (first..=last).map(|tick| (axis.tick)(tick as f64 * axis.step)).collect()
    }

    #[test]
    fn linear_axes_hold_their_values_between_round_ticks() {
        assert_eq!(ticks(&linear("", [45.2].into_iter(), "%")), ["0%", "10%", "20%", "30%", "40%", "50%"]);
        assert_eq!(ticks(&linear("", [0.3, 0.1].into_iter(), "")), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(ticks(&linear("", [-3.0, 5.9].into_iter(), "")), ["\u{2212}4", "\u{2212}2", "0", "2", "4", "6"]);
        assert_eq!(ticks(&linear("", [4321.0].into_iter(), "")), ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]);
    }

    #[test]
    fn powers_of_ten_hold_their_values() {
        assert_eq!(ticks(&powers_of_ten("", [0.3, 150.0].into_iter())), ["0.1", "1", "10", "100", "1,000"]);
        assert_eq!(ticks(&powers_of_ten("", [5.0].into_iter())), ["1", "10"]);
    }

    #[test]
    fn ratios_lie_around_one_from_power_to_power_of_two() {
        assert_eq!(ticks(&ratios("", [0.3, 5.0].into_iter())), ["0.25", "0.5", "1", "2", "4", "8"]);
        assert_eq!(ticks(&ratios("", [].into_iter())), ["0.5", "1", "2"]);
    }

    #[test]
    fn names_are_listed_from_the_top_and_long_ones_lose_their_middle() {
        let names = ["first".to_owned(), "adaptive:kind=probability,timeframe=1%".to_owned()];
        assert_eq!(ticks(&categories("", &names)), ["adaptive:kind=probab…eframe=1%".to_owned(), "first".to_owned()]);
    }

    #[test]
    fn an_axis_of_nothing_is_still_an_axis() {
        for values in [vec![], vec![0.0], vec![0.0, 0.0]] {
            let axis = linear("", values.into_iter(), "%");
            assert!(axis.min < axis.max && axis.step > 0.0);
        }
        let axis = SizeAxis::new([].into_iter()).axis;
        assert!(axis.min < axis.max && axis.step > 0.0);
    }

    #[test]
    fn sizes_are_on_a_logarithmic_axis_when_they_span_more_than_a_factor_of_eight() {
        let mib = |sizes: &[u64]| SizeAxis::new(sizes.iter().map(|size| size << 20).collect::<Vec<_>>().into_iter());
        assert_eq!(ticks(&mib(&[64, 128, 512]).axis), ["0 B", "128 MiB", "256 MiB", "384 MiB", "512 MiB"]);
        assert_eq!(ticks(&mib(&[24, 1205]).axis), ["32 MiB", "64 MiB", "128 MiB", "256 MiB", "512 MiB", "1 GiB"]);
        assert_eq!(
            ticks(&mib(&[1, 1 << 20]).axis),
            ["2 MiB", "16 MiB", "128 MiB", "1 GiB", "8 GiB", "64 GiB", "512 GiB"]
        );
        assert_eq!(ticks(&mib(&[240]).axis), ["0 B", "64 MiB", "128 MiB", "192 MiB"]);
    }

    #[test]
    fn powers_of_two_are_written_out() {
        assert_eq!(ticks(&powers_of_two("", 20)), ["1", "16", "256", "4,096", "65,536", "1,048,576"]);
        assert_eq!(ticks(&powers_of_two("", 0)), ["1", "2"]);
    }
}
