//! Numbers in reports: those of [`flashwise_core::human`], and signed and rounded ones for axes.

use flashwise_core::human;
pub use flashwise_core::human::{count, duration, lifetime, number, percent, years};

const BINARY_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Formats a count with its noun: `1 block`, `2 blocks`.
pub fn counted(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", count(number), if number == 1 { singular } else { plural })
}

/// Formats a whole number of bytes.
pub fn bytes(bytes: u64) -> String {
    human::bytes(bytes as f64)
}

/// Returns name and length of the unit for values up to `most` bytes.
pub fn binary_unit(most: u64) -> (&'static str, f64) {
    let power = most.max(1).ilog2() as usize / 10;
    (BINARY_UNITS[power], 1024_f64.powi(power as i32))
}

/// Formats a number with at most this many decimals, without trailing zeros: for axes, coordinates and positions.
pub fn shortest(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats the distance between two ratios in percentage points, without sign.
pub fn points(difference: f64) -> String {
    number(difference.abs() * 100.0)
}

/// Formats a number with its sign, for tables of differences.
pub fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", number(value)).replacen('-', "\u{2212}", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_carry_their_sign_unless_they_are_nothing() {
        let written: Vec<_> = [1.234, -1.236, 0.0012, -12.0, 0.0].map(signed).into();
        assert_eq!(written, ["+1.23", "\u{2212}1.24", "+0.0012", "\u{2212}12", "0"]);
        assert_eq!([0.0, 0.015, -0.1234].map(points), ["0", "1.5", "12.3"]);
    }
}
