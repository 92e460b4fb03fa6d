//! Quantities as users write them: sizes such as `512MiB`, durations such as `15min` and shares such as `30%`.
//!
//! Sizes and durations are exact decimal numbers with a unit, `1.5GiB` or `0.25s`. They are displayed so that they can
//! be parsed again: a whole number of the largest unit that divides them. Shares are percentages or numbers from 0 to
//! 1, and are displayed as percentages.

use std::fmt;
use std::str::FromStr;

/// An error in a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum QuantityError {
    #[error("found '{found}', expected a size in bytes such as 10GiB, 512MiB or 4096")]
    NotASize { found: String },
    #[error(
        "size '{found}': unknown unit '{unit}', expected B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB or TB \
         (powers of 1000)"
    )]
    SizeUnit { found: String, unit: String },
    #[error("size '{found}' is not a whole number of bytes")]
    FractionOfAByte { found: String },
    #[error("size '{found}' is too large, expected less than 2^64 bytes")]
    SizeTooLarge { found: String },
    #[error("found '{found}', expected a duration such as 250us, 10ms, 10s, 5min, 1.5h or 2d")]
    NotADuration { found: String },
    #[error("duration '{found}' has no unit, expected us, ms, s, min, h or d, as in {found}s")]
    NoDurationUnit { found: String },
    #[error("duration '{found}': unknown unit '{unit}', expected us, ms, s, min, h or d")]
    DurationUnit { found: String, unit: String },
    #[error("duration '{found}' is too long, expected less than 2^63 microseconds, which are 292,000 years")]
    DurationTooLong { found: String },
    #[error("found '{found}', expected a share from 0% to 100%, such as 30% or 0.3")]
    NotAShare { found: String },
}

/// A size in bytes: `10GiB`, `1.5g`, `512 MiB`, `4096`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// The size of this many bytes.
    pub fn new(bytes: u64) -> Self {
        ByteSize(bytes)
    }

    /// Returns the size in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// The units of sizes: powers of 1024, the units of drives, and bytes. A size is displayed in the first unit that
/// divides it: 4GB, not as many KiB.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = QuantityError;

    /// Parses a size. Units are case-insensitive and optional; binary ones may be abbreviated to their first letter.
    fn from_str(text: &str) -> Result<ByteSize, QuantityError> {
        let found = || text.to_owned();
        let (number, unit) = split_unit(text);
        let nano = nano(number).ok_or_else(|| QuantityError::NotASize { found: found() })?;
        let cut = |name: &str| name.ends_with("iB") && unit.eq_ignore_ascii_case(&name[..1]);
        let means = |name: &str| unit.eq_ignore_ascii_case(name) || cut(name);
        let unit_bytes = match SIZE_UNITS.iter().find(|(name, _)| means(name)) {
            Some((_, unit_bytes)) => *unit_bytes,
            None if unit.is_empty() => 1,
            None => return Err(QuantityError::SizeUnit { found: found(), unit: unit.to_owned() }),
        };
        let nano_bytes = nano.checked_mul(unit_bytes.into());
        if nano_bytes.is_some_and(|nano_bytes| !nano_bytes.is_multiple_of(NANO)) {
            return Err(QuantityError::FractionOfAByte { found: found() });
        }
        let bytes = nano_bytes.and_then(|nano_bytes| u64::try_from(nano_bytes / NANO).ok());
        bytes.map(ByteSize).ok_or_else(|| QuantityError::SizeTooLarge { found: found() })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, &SIZE_UNITS, "B", f)
    }
}

/// A duration in whole microseconds: `250us`, `10ms`, `1.5h`, `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// The duration of this many microseconds, fewer than 2^63.
    pub fn from_us(us: u64) -> Self {
        assert!(i64::try_from(us).is_ok(), "a duration of {us} us is out of range");
        Duration(us)
    }

    /// Returns the duration in microseconds, fewer than 2^63, so that signed times can be shifted by it.
    pub fn us(self) -> u64 {
        self.0
    }
}

/// The units of durations and their microseconds, largest first.
pub const DURATION_UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)];

impl FromStr for Duration {
    type Err = QuantityError;

    /// Parses a duration. Fractions of a microsecond are dropped; `m` is a minute too, and `0` needs no unit.
    fn from_str(text: &str) -> Result<Duration, QuantityError> {
        let found = || text.to_owned();
        let (number, unit) = split_unit(text);
        let nano = nano(number).ok_or_else(|| QuantityError::NotADuration { found: found() })?;
        let name = if unit == "m" { "min" } else { unit };
        let unit_us = match DURATION_UNITS.iter().find(|(known, _)| *known == name) {
            Some((_, unit_us)) => *unit_us,
            None if number == "0" && unit.is_empty() => 1,
            None if unit.is_empty() => return Err(QuantityError::NoDurationUnit { found: found() }),
            None => return Err(QuantityError::DurationUnit { found: found(), unit: unit.to_owned() }),
        };
        let us = nano.checked_mul(unit_us.into()).and_then(|nano_us| i64::try_from(nano_us / NANO).ok());
        us.map(|us| Duration(us as u64)).ok_or_else(|| QuantityError::DurationTooLong { found: found() })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, &DURATION_UNITS, "s", f)
    }
}

/// A part of a whole: a percentage such as `30%`, or a number from 0 to 1 such as `0.3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// The whole.
    pub const WHOLE: Share = Share(1.0);

    /// Returns the share `of_one`, if it is from 0 to 1.
    pub fn new(of_one: f64) -> Option<Share> {
        (0.0..=1.0).contains(&of_one).then_some(Share(of_one))
    }

    /// Returns the share as a number from 0 to 1.
    pub fn of_one(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Share, QuantityError> {
        ratio(text).and_then(Share::new).ok_or_else(|| QuantityError::NotAShare { found: text.to_owned() })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded, so that percentages of up to nine decimals are displayed as they were written.
        let percent = (self.0 * 1e11).round() / 1e9;
        f.pad(&format!("{percent}%"))
    }
}

/// Parses a number, or a percentage as a share of 1: `1.5` and `150%` are the same. Returns `None` if the text is
/// neither.
pub fn ratio(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    }
    .filter(|number: &f64| number.is_finite())
}

/// Formats `amount` in the largest of `units` that divides it, and zero in `zero_unit`.
fn show(amount: u64, units: &[(&str, u64)], zero_unit: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let largest = units.iter().copied().find(|(_, size)| amount != 0 && amount.is_multiple_of(*size));
    let (unit, size) = largest.unwrap_or((zero_unit, 1));
    f.pad(&format!("{}{unit}", amount / size))
}

/// Splits a number from the unit after it, which may be missing.
fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

/// One, in the billionths that [`nano`] counts.
pub const NANO: u128 = 1_000_000_000;

/// Parses a number of at most nine decimals, such as `10` or `0.25`, in billionths.
pub fn nano(text: &str) -> Option<u128> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 9 || text.ends_with('.') {
        return None;
    }
    let decimals: u128 = format!("{decimals:0<9}").parse().ok()?;
    Some(u128::from(whole.parse::<u64>().ok()?) * NANO + decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<u64, String> {
        text.parse().map(ByteSize::bytes).map_err(|error: QuantityError| error.to_string())
    }

    fn duration(text: &str) -> Result<u64, String> {
        text.parse().map(Duration::us).map_err(|error: QuantityError| error.to_string())
    }

    #[test]
    fn sizes_take_binary_and_decimal_units_and_decimals() {
        let rows = [
            ("10GiB", 10 << 30),
            ("512MiB", 512 << 20),
            ("4096", 4096),
            ("4096B", 4096),
            ("1.5GiB", 3 << 29),
            ("8k", 8 << 10),
            ("2 TIB", 2 << 40),
            ("2 TB", 2_000_000_000_000),
            ("1.5gb", 1_500_000_000),
            ("10MB", 10_000_000),
            ("4kB", 4000),
            ("0.5KiB", 512),
            ("0", 0),
            ("21474836480", 20 << 30),
            ("18446744073709551615", u64::MAX),
            ("16777215.5TiB", u64::MAX - (1 << 39) + 1),
        ];
        for (text, bytes) in rows {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn durations_take_units_and_decimals() {
        let rows = [
            ("15min", 900_000_000),
            ("15m", 900_000_000),
            ("30s", 30_000_000),
            ("250ms", 250_000),
            ("250us", 250),
            ("1.5h", 5_400_000_000),
            ("2d", 172_800_000_000),
            ("1.9us", 1),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, us) in rows {
            assert_eq!(duration(text), Ok(us), "{text}");
        }
    }

    #[test]
    fn shares_are_percentages_or_numbers() {
        let share = |text: &str| text.parse::<Share>().map(Share::of_one).map_err(|error| error.to_string());
        for (text, expected) in [("30%", 0.3), ("0.3", 0.3), ("12.5 %", 0.125), ("0", 0.0), ("1", 1.0), ("100%", 1.0)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for wrong in ["", "%", "30", "101%", "-1%", "1.1", "nan", "inf%", "half"] {
            let error = format!("found '{wrong}', expected a share from 0% to 100%, such as 30% or 0.3");
            assert_eq!(share(wrong), Err(error));
        }
        // 0.07 * 100 is 7.000000000000001.
        let shown = [0.0, 0.07, 0.3, 1.0 / 3.0, 0.1234, 1.0].map(|of_one| Share(of_one).to_string());
        assert_eq!(shown, ["0%", "7%", "30%", "33.333333333%", "12.34%", "100%"]);
        assert_eq!((ratio("150%"), ratio("-1.5"), ratio("x")), (Some(1.5), Some(-1.5), None));
    }

    #[test]
    fn formatting_and_parsing_are_inverse() {
        let sizes = [0, 1, 512, 1000, 1024, 1536, 3 << 29, 1 << 40, (1 << 40) + 1, 10_000_000, u64::MAX];
        let shown = sizes.map(|bytes| ByteSize::new(bytes).to_string());
        let expected = ["0B", "1B", "512B", "1KB", "1KiB", "1536B", "1536MiB", "1TiB", "1099511627777B", "10MB"];
        assert_eq!(shown[..10], expected);
        assert_eq!(shown.map(|text| size(&text)), sizes.map(Ok));

        let durations = [0, 1, 1000, 1500, 1_000_000, 90_000_000, 5_400_000_000, 172_800_000_000, i64::MAX as u64];
        let shown = durations.map(|us| Duration::from_us(us).to_string());
        assert_eq!(shown[..8], ["0s", "1us", "1ms", "1500us", "1s", "90s", "90min", "2d"]);
        assert_eq!(shown.map(|text| duration(&text)), durations.map(Ok));
        assert_eq!(format!("{:>7}|{:<5}|", ByteSize::new(4096), Duration::from_us(5)), "   4KiB|5us  |");
    }

    #[test]
    fn an_error_has_found_and_expected_value() {
        let rows = [
            ("", "found '', expected a size in bytes such as 10GiB, 512MiB or 4096"),
            ("-1GiB", "found '-1GiB', expected a size in bytes such as 10GiB, 512MiB or 4096"),
            ("1.GiB", "found '1.GiB', expected a size in bytes such as 10GiB, 512MiB or 4096"),
            (
                "1,5GiB",
                "size '1,5GiB': unknown unit ',5GiB', expected B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB or \
                 TB (powers of 1000)",
            ),
            (
                "10PB",
                "size '10PB': unknown unit 'PB', expected B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB or TB \
                 (powers of 1000)",
            ),
            ("1.5", "size '1.5' is not a whole number of bytes"),
            ("16777216TiB", "size '16777216TiB' is too large, expected less than 2^64 bytes"),
            ("18446744073709551615TiB", "size '18446744073709551615TiB' is too large, expected less than 2^64 bytes"),
        ];
        for (text, error) in rows {
            assert_eq!(size(text), Err(error.to_owned()));
        }
        let rows = [
            ("", "found '', expected a duration such as 250us, 10ms, 10s, 5min, 1.5h or 2d"),
            ("s", "found 's', expected a duration such as 250us, 10ms, 10s, 5min, 1.5h or 2d"),
            ("10", "duration '10' has no unit, expected us, ms, s, min, h or d, as in 10s"),
            ("10 years", "duration '10 years': unknown unit 'years', expected us, ms, s, min, h or d"),
            ("1µs", "duration '1µs': unknown unit 'µs', expected us, ms, s, min, h or d"),
            (
                "9999999999999d",
                "duration '9999999999999d' is too long, expected less than 2^63 microseconds, which are 292,000 years",
            ),
        ];
        for (text, error) in rows {
            assert_eq!(duration(text), Err(error.to_owned()));
        }
    }
}
