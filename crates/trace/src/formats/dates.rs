//! Dates as times: in ISO 8601, or with the day or the month first.

/// The order of the parts of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `2024-01-31`, as in ISO 8601; slashes can replace the dashes.
    Year,
    /// `31.01.2024`; slashes or dashes can replace the points.
    Day,
    /// `01/31/2024`; points or dashes can replace the slashes.
    Month,
}

/// Parses a date and time such as `2024-01-31T23:59:59.5+01:00` to microseconds since 1970. A blank can replace the T,
/// and hours go to 12 before AM and PM. Without a zone it is UTC. Fractions of a microsecond are truncated.
pub fn date_us(field: &[u8], order: DateOrder) -> Option<i64> {
    let text = std::str::from_utf8(field.trim_ascii()).ok()?;
    let (date, rest) = text.split_at_checked(text.find(['T', 't', ' '])?)?;
    let (date, rest) = (day(date, order)?, rest[1..].trim_ascii());
    let utc = rest.strip_suffix(['Z', 'z']).or(rest.strip_suffix("UTC"));
    let (time, zone_s) = match (utc, rest.find(['+', '-'])) {
        (Some(time), _) => (time, 0),
        (None, Some(zone)) => (&rest[..zone], zone_s(&rest[zone..])?),
        (None, None) => (rest, 0),
    };
    Some(1_000_000 * (86_400 * date - zone_s) + time_us(time.trim_ascii())?)
}

/// Parses a time of day, `23:59:59.5` or `11:59:59.5 PM`, to microseconds since midnight; a minute can have a leap
/// second.
fn time_us(text: &str) -> Option<i64> {
    let (text, half) = match text.ends_with(['m', 'M']) {
        false => (text, None),
        true => text.split_at_checked(text.len().checked_sub(2)?).map(|(text, half)| (text, Some(half)))?,
    };
    let mut parts = text.trim_end().splitn(3, ':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let hour = match half {
        None => number(hour, 0, 23)?,
        Some(half) if half.eq_ignore_ascii_case("AM") => number(hour, 1, 12)? % 12,
        Some(half) if half.eq_ignore_ascii_case("PM") => number(hour, 1, 12)? % 12 + 12,
        Some(_) => return None,
    };
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    if fraction.is_empty() || !is_digits(fraction) {
        return None;
    }
    let fraction_us: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    Some(1_000_000 * (3600 * hour + 60 * number(minute, 0, 59)? + number(second, 0, 60)?) + fraction_us)
}

/// Parses a zone, `+01:30` or `-0800`, to the seconds that it is ahead of UTC; its name may follow.
fn zone_s(text: &str) -> Option<i64> {
    let (sign, text) = text.split_at_checked(1)?;
    let (hours, minutes) = text.split_at_checked(2)?;
    let minutes = minutes.trim_start_matches(|between: char| between == ':' || between.is_whitespace()).get(..2)?;
    if !is_digits(hours) || !is_digits(minutes) {
        return None;
    }
    let seconds = 3600 * number(hours, 0, 23)? + 60 * number(minutes, 0, 59)?;
    Some(if sign == "-" { -seconds } else { seconds })
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a number of one or two digits from `least` to `most`; blanks may precede it.
fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    let digits = Some(text.trim_start()).filter(|digits| is_digits(digits) && digits.len() <= 2);
    digits?.parse().ok().filter(|number| (least..=most).contains(number))
}

/// Returns the number of days from 1970-01-01 to a date.
fn day(text: &str, order: DateOrder) -> Option<i64> {
    let separator = text.find(['-', '/', '.']).map(|at| &text[at..=at])?;
    let mut parts = text.split(separator);
    let mut next = |digits: std::ops::RangeInclusive<usize>| -> Option<u32> {
        let part = parts.next().filter(|part| digits.contains(&part.len()))?;
        is_digits(part).then(|| part.parse().ok())?
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
    if parts.next().is_some() {
        return None;
    }
    days(year.into(), month, day)
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar, if the date exists.
fn days(year: i64, month: u32, day: u32) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(month.checked_sub(1)? as usize)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    // The year begins in March, so that a leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = i64::from((153 * month + 2) / 5 + day - 1);
    Some(365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-01-31T12:00:00Z is 1706702400 s after the beginning of 1970 (`date -u -d ... +%s`).
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
            "2024-01-31 05:00:00 -0700 MST",
            "2024-01-31 12:00:00 PM",
        ];
        for text in spelled {
            assert_eq!(us(text), Some(NOON_US), "{text}");
        }
        assert_eq!(us("2024-01-31T12:00:00.1234567Z"), Some(NOON_US + 123_456));
        assert_eq!(us("1969-12-31 23:59:59.5"), Some(-500_000));
        assert_eq!(us("2024-01-31 12:00:00 am"), Some(NOON_US - 43_200_000_000));
        assert_eq!(us("2024-01-31 11:59:60"), Some(NOON_US));
        // `date -u -d ... +%s` of the days around a leap day, of a year without one, and of the first and the last
        // year.
        let days = [
            ("2000-02-29", 951_782_400),
            ("2024-03-01", 1_709_251_200),
            ("2100-03-01", 4_107_542_400),
            ("0000-01-01", -62_167_219_200),
            ("9999-12-31", 253_402_214_400),
        ];
        for (day, seconds) in days {
            assert_eq!(us(&format!("{day} 00:00:00")), Some(1_000_000 * seconds), "{day}");
        }
        for wrong in [
            "",
            "2024",
            "2024-01-31",
            "2024-1-31T00:00:00Z",
            "2024-01-31-01 00:00:00",
            "2024-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-31T12:60:00Z",
            "2024-01-31T12:00:61Z",
            "2024-01-31T12:00:00.Z",
            "2024-01-31T12:00Z",
            "2024-01-31T12:00:00+1:30",
            "2024-01-31T12:00:00+24:00",
            "2024-01-31T00:00:00 AM",
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
        // 2024-02-01 is 86,400 s after noon of the day before; 2024-01-02 is 29 days before that day.
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
