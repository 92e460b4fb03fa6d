//! Durations and ranges as users write them: `10s`, `1.5h`, `10s..60s`.

use std::ops::Range;

use flashwise_core::quantity::{Duration, QuantityError};

/// The reason why a range is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RangeError {
    #[error(transparent)]
    Duration(#[from] QuantityError),
    #[error("found '{found}', expected a whole number such as 1000")]
    Count { found: String },
    #[error("found '{found}', expected A..B with A below B; either can be missing, as in ..B")]
    Range { found: String },
}

/// Parses a range of durations, in microseconds: the start is included, the end excluded.
pub fn parse_durations(text: &str) -> Result<Range<i64>, RangeError> {
    let bounds = parse_range(text, |text| Ok(text.parse::<Duration>()?.us()))?;
    Ok(bounds.0.map_or(i64::MIN, |us| us as i64)..bounds.1.map_or(i64::MAX, |us| us as i64))
}

/// Parses a range of numbers: the start is included, the end excluded.
pub fn parse_counts(text: &str) -> Result<Range<u64>, RangeError> {
    let count = |text: &str| text.parse().map_err(|_| RangeError::Count { found: text.to_owned() });
    let bounds = parse_range(text, count)?;
    Ok(bounds.0.unwrap_or(0)..bounds.1.unwrap_or(u64::MAX))
}

fn parse_range(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, RangeError>,
) -> Result<(Option<u64>, Option<u64>), RangeError> {
    let refused = || RangeError::Range { found: text.to_owned() };
    let (from, to) = text.split_once("..").ok_or_else(refused)?;
    let bound = |text: &str| if text.is_empty() { Ok(None) } else { parse(text).map(Some) };
    let (from, to) = (bound(from)?, bound(to)?);
    if (from, to) == (None, None) || from.zip(to).is_some_and(|(from, to)| from >= to) || to == Some(0) {
        return Err(refused());
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_units_and_decimals() {
        for (text, us) in [("10s", 10_000_000), ("250us", 250), ("1.5h", 5_400_000_000), ("2m", 120_000_000), ("0", 0)]
        {
            assert_eq!(parse_durations(&format!("{text}..")), Ok(us..i64::MAX), "{text}");
        }
        assert_eq!(parse_durations("5min.."), parse_durations("5m.."));
        for wrong in ["", "s", "10", "-1s", "1.s", "10 years", "1e3s", "9999999999999d"] {
            assert!(parse_durations(&format!("{wrong}..")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_can_be_open_and_are_never_empty() {
        assert_eq!(parse_counts("10..20"), Ok(10..20));
        assert_eq!(parse_counts("..20"), Ok(0..20));
        assert_eq!(parse_counts("10.."), Ok(10..u64::MAX));
        assert_eq!(parse_durations("10s..1m"), Ok(10_000_000..60_000_000));
        assert_eq!(parse_durations("..1ms"), Ok(i64::MIN..1000));
        for wrong in ["", "..", "5", "5..5", "6..5", "a..5", "1..b", "..0", "1...5"] {
            assert!(parse_counts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_durations("60s..10s").unwrap_err().to_string(),
            "found '60s..10s', expected A..B with A below B; either can be missing, as in ..B"
        );
    }
}
