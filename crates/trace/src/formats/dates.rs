//! Times that are dates: as ISO 8601 writes them, or with the day or the month first.

use chrono::{FixedOffset, NaiveDate, NaiveTime};

/// In which order a date has its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `2024-01-31`, as in ISO 8601; slashes may stand for the dashes.
    Year,
    /// `31.01.2024`; slashes or dashes may stand for the points.
    Day,
    /// `01/31/2024`; points or dashes may stand for the slashes.
    Month,
}

/// Microseconds from 1970 to the date and time that `field` spells, `2024-01-31T23:59:59.5+01:00`: a blank may stand for the T, and hours go to
/// 12 before AM and PM. Without a zone it is UTC; the rest of a microsecond is cut off.
pub fn date_us(field: &[u8], order: DateOrder) -> Option<i64> {
    let text = std::str::from_utf8(field.trim_ascii()).ok()?;
    let (date, rest) = text.split_at_checked(text.find(['T', 't', ' '])?)?;
    let (date, rest) = (day(date, order)?, rest[1..].trim_ascii());
    let utc = rest.strip_suffix(['Z', 'z']).or(rest.strip_suffix("UTC"));
    let (time, zone) = match (utc, rest.find(['+', '-'])) {
        (Some(time), _) => (time, None),
        (None, Some(zone)) => (&rest[..zone], Some(rest[zone..].parse::<FixedOffset>().ok()?)),
        (None, None) => (rest, None),
    };
    let time = time.trim_ascii();
    let is_half = time.ends_with(['m', 'M']);
    let time = NaiveTime::parse_from_str(time, if is_half { "%I:%M:%S%.f %p" } else { "%H:%M:%S%.f" }).ok()?;
    let local_us = date.and_time(time).and_utc().timestamp_micros();
    Some(local_us - zone.map_or(0, |zone| 1_000_000 * i64::from(zone.local_minus_utc())))
}

fn day(text: &str, order: DateOrder) -> Option<NaiveDate> {
    let separator = text.find(['-', '/', '.']).map(|at| &text[at..=at])?;
    let mut parts = text.split(separator);
    let mut next = |digits: std::ops::RangeInclusive<usize>| -> Option<u32> {
        let part = parts.next().filter(|part| digits.contains(&part.len()))?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let (year, month, day) = match order {
        DateOrder::Year if separator == "." => return None,
        DateOrder::Year => (next(4..=4)?, next(2..=2)?, next(2..=2)?),
        DateOrder::Day => {
            let (day, month) = (next(1..=2)?, next(1..=2)?);
            (next(4..=4)?, month, day)
        }
        DateOrder::Month => {
            let (month, day) = (next(1..=2)?, next(1..=2)?);
            (next(4..=4)?, month, day)
        }
    };
    parts.next().is_none().then(|| NaiveDate::from_ymd_opt(year as i32, month, day))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-01-31T12:00:00Z is 1706702400 s after 1970 began (`date -u -d ... +%s`).
    const NOON_US: i64 = 1_706_702_400_000_000;

    #[test]
    fn dates_are_read_with_and_without_a_zone() {
        let us = |text: &str| date_us(text.as_bytes(), DateOrder::Year);
        let spelled = [
            "2024-01-31T12:00:00Z",
            "2024-01-31 12:00:00",
            " 2024/01/31 12:00:00 UTC ",
            "2024-01-31t13:30:00+01:30",
            "2024-01-31T04:00:00.000-0800",
            "2024-01-31 12:00:00 PM",
        ];
        for text in spelled {
            assert_eq!(us(text), Some(NOON_US), "{text}");
        }
        assert_eq!(us("2024-01-31T12:00:00.1234567Z"), Some(NOON_US + 123_456));
        assert_eq!(us("1969-12-31 23:59:59.5"), Some(-500_000));
        for wrong in [
            "",
            "2024",
            "2024-01-31",
            "2024-1-31T00:00:00Z",
            "2024-01-31-01 00:00:00",
            "2024-02-30T00:00:00Z",
            "31/01/2024 12:00:00",
            "2024-01-31T25:00:00Z",
            "2024-01-31T13:00:00 PM",
            "2024-01-31T12:00:00 CET",
        ] {
            assert_eq!(us(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_day_or_the_month_may_be_first() {
        let us = |text: &str, order| date_us(text.as_bytes(), order);
        for text in ["31.01.2024 12:00:00", "31/1/2024 12:00:00Z", "31-01-2024T13:00:00+01:00"] {
            assert_eq!((us(text, DateOrder::Day), us(text, DateOrder::Month)), (Some(NOON_US), None), "{text}");
        }
        for text in ["01/31/2024 12:00:00", "1/31/2024 12:00:00 PM", "1.31.2024 12:00:00"] {
            assert_eq!((us(text, DateOrder::Day), us(text, DateOrder::Month)), (None, Some(NOON_US)), "{text}");
        }
        // A month of 29 days lies between: 2024-02-01 is 86,400 s after noon of the day before, 2024-01-02 29 days before that day.
        let either = "01/02/2024 12:00:00";
        assert_eq!(us(either, DateOrder::Day), Some(NOON_US + 86_400_000_000));
        assert_eq!(us(either, DateOrder::Month), Some(NOON_US - 29 * 86_400_000_000));
        for wrong in
            ["31.01.24 12:00:00", "31.01/2024 12:00:00", "+1.01.2024 12:00:00", "1.2.2024", "001.2.2024 12:00:00"]
        {
            assert_eq!(us(wrong, DateOrder::Day), None, "{wrong}");
        }
    }
}
