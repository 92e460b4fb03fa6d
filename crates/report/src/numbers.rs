//! Numbers in reports: with thousands separators and units, and never rounded to a misleading value.

use flashwise_core::quantity::DURATION_UNITS;
pub use flashwise_trace::human::{count, percent};

const BINARY_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Formats a count with its noun: `1 block`, `2 blocks`.
pub fn counted(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", count(number), if number == 1 { singular } else { plural })
}

/// Formats bytes in the largest binary unit that leaves at least 1 before the point, to three digits.
pub fn bytes(bytes: u64) -> String {
    let power = binary_power(bytes);
    let value = bytes as f64 / 1024_f64.powi(power as i32);
    // A value that would be written as 1024 uses the next unit.
    if value >= 1023.5 && power + 1 < BINARY_UNITS.len() {
        return format!("1 {}", BINARY_UNITS[power + 1]);
    }
    format!("{} {}", shortest(value, if value < 9.995 { 2 } else { usize::from(value < 99.95) }), BINARY_UNITS[power])
}

/// Returns name and length of the unit for values up to `most` bytes.
pub fn binary_unit(most: u64) -> (&'static str, f64) {
    let power = binary_power(most);
    (BINARY_UNITS[power], 1024_f64.powi(power as i32))
}

fn binary_power(bytes: u64) -> usize {
    bytes.max(1).ilog2() as usize / 10
}

/// Formats a number with at most this many decimals, without trailing zeros.
pub fn shortest(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a ratio in percent with one decimal, for sentences. Only 0 becomes 0%, and only 1 becomes 100%.
pub fn about_percent(ratio: f64) -> String {
    let text = format!("{:.1}", ratio * 100.0);
    match text.as_str() {
        "0.0" if ratio > 0.0 => "less than 0.1%".to_owned(),
        "100.0" if ratio < 1.0 => "more than 99.9%".to_owned(),
        _ => format!("{}%", text.trim_end_matches(".0")),
    }
}

/// Formats the distance between two ratios in percentage points with one decimal, without sign, for sentences.
pub fn about_points(difference: f64) -> String {
    let points = difference.abs() * 100.0;
    match format!("{points:.1}").as_str() {
        "0.0" if points > 0.0 => "less than 0.1".to_owned(),
        text => text.trim_end_matches(".0").to_owned(),
    }
}

/// Formats a signed number with two decimals, for tables of differences.
pub fn signed(value: f64) -> String {
    match format!("{value:+.2}") {
        zero if zero == "-0.00" || zero == "+0.00" => "0.00".to_owned(),
        text => text.replace('-', "\u{2212}"),
    }
}

/// Formats a duration in its two largest units.
pub fn duration(us: u64) -> String {
    if us < 60_000_000 {
        return format!("{} s", shortest(us as f64 / 1e6, 3));
    }
    let mut rest = us;
    let mut parts = Vec::new();
    for &(unit, length) in DURATION_UNITS.iter().skip_while(|&&(_, length)| us < length).take(2) {
        if rest / length > 0 {
            parts.push(format!("{} {unit}", rest / length));
        }
        rest %= length;
    }
    parts.join(" ")
}

/// Formats a number with about three digits.
pub fn written(value: f64) -> String {
    match value.abs() {
        size if size.is_nan() => "-".to_owned(),
        size if !size.is_finite() => "unlimited".to_owned(),
        size if size >= 1000.0 => count(value.round() as u64),
        0.0 => "0".to_owned(),
        size => shortest(value, usize::try_from(2 - size.log10().floor() as i64).unwrap_or(0)),
    }
}

/// Formats years for tables; very long times become "more than".
pub fn years(years: f64) -> String {
    if years.is_finite() && years > flashwise_trace::human::YEARS_MAX { "> 1,000".to_owned() } else { written(years) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_separated() {
        let written: Vec<_> = [0, 999, 1000, 1_234_567, u64::MAX].map(count).into();
        assert_eq!(written, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn bytes_are_written_in_the_unit_that_leaves_three_digits() {
        let written: Vec<_> =
            [0, 1, 512, 1023, 1024, 4096, 1_048_575, 67_108_864, 252_792_832, 5_070_000_000, u64::MAX]
                .map(bytes)
                .into();
        let expected =
            ["0 B", "1 B", "512 B", "1023 B", "1 KiB", "4 KiB", "1 MiB", "64 MiB", "241 MiB", "4.72 GiB", "16 EiB"];
        assert_eq!(written, expected);
    }

    #[test]
    fn a_ratio_is_not_rounded_to_nothing_or_to_all() {
        let written: Vec<_> = [0.0, 0.0004, 0.0005, 0.25, 0.4519, 0.9996, 1.0].map(about_percent).into();
        assert_eq!(written, ["0%", "less than 0.1%", "0.1%", "25%", "45.2%", "more than 99.9%", "100%"]);
    }

    #[test]
    fn differences_carry_their_sign_unless_they_are_nothing() {
        let written: Vec<_> = [1.234, -1.236, 0.001, -0.001, 0.0].map(signed).into();
        assert_eq!(written, ["+1.23", "\u{2212}1.24", "0.00", "0.00", "0.00"]);
    }

    #[test]
    fn more_than_a_thousand_years_are_told_as_that() {
        let written: Vec<_> = [0.0656, 99.9, 1000.0, 3_433_055_878.0, f64::INFINITY].map(years).into();
        assert_eq!(written, ["0.0656", "99.9", "1,000", "> 1,000", "unlimited"]);
    }

    #[test]
    fn durations_have_at_most_two_units() {
        let written: Vec<_> = [0, 1_500_000, 60_000_000, 204_000_000, 86_399_999_999, 86_400_000_000, 180_000_000_000]
            .map(duration)
            .into();
        assert_eq!(written, ["0 s", "1.5 s", "1 min", "3 min 24 s", "23 h 59 min", "1 d", "2 d 2 h"]);
    }
}
