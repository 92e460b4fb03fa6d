//! Numbers for people, by one rule: at most three significant digits and one unit, as in `1.07 s`, `482 MiB`,
//! `0.06 years`, `32.8%`.
//!
//! Trailing zeros are dropped. Digits before the point are not rounded: `1,234`. Numbers below 0.001 have an exponent:
//! `1.01e-4`. Counts of things are exact. The web page follows the same rule in `numbers.mjs`; `human/examples.txt`
//! tests both.

use crate::quantity::DURATION_UNITS;

/// Formats a whole number in groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a real number by the rule of this module. Infinity is `unlimited`, and a number that is none is `-`.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    if value.is_infinite() {
        return "unlimited".to_owned();
    }
    let scientific = format!("{value:.2e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let sign = if value < 0.0 { "-" } else { "" };
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if exponent >= 3 => format!("{sign}{}", count(value.abs().round() as u64)),
        exponent if exponent < -3 => format!("{}e{exponent}", without_zeros(mantissa)),
        exponent => without_zeros(&format!("{value:.*}", (2 - exponent) as usize)).to_owned(),
    }
}

/// Drops zeros at the end of a decimal number.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Formats an amount of the first unit in the largest unit that leaves at least 1. Each unit has its size in the first
/// one.
fn in_units(amount: f64, units: &[(&str, f64)]) -> String {
    if !amount.is_finite() {
        return number(amount);
    }
    // As it is shown: 59.99 s are 1 min, not 60 s.
    let rounded =
        |amount: f64| if amount < 999.5 { format!("{amount:.2e}").parse().unwrap_or(amount) } else { amount.round() };
    let fits = |pair: &[(&str, f64)]| rounded(amount / pair[0].1) * pair[0].1 < pair[1].1;
    let at = units.windows(2).position(fits).unwrap_or(units.len() - 1);
    format!("{} {}", number(amount / units[at].1), units[at].0)
}

/// Binary units of sizes, and their bytes.
const SIZE_UNITS: [(&str, f64); 7] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("PiB", 1_125_899_906_842_624.0),
    ("EiB", 1_152_921_504_606_846_976.0),
];

/// Formats a size in the largest binary unit that leaves at least 1.
pub fn bytes(bytes: f64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// Formats microseconds in the largest unit that leaves at least 1; nothing is `0 s`.
pub fn duration(us: f64) -> String {
    let mut units = DURATION_UNITS.map(|(name, us)| (name, us as f64));
    units.reverse();
    if us == 0.0 { "0 s".to_owned() } else { in_units(us, &units) }
}

/// Formats seconds like [`duration`].
pub fn seconds(seconds: f64) -> String {
    duration(seconds * 1e6)
}

/// Lifetimes above this number of years are shown as more than it.
pub const YEARS_MAX: f64 = 1000.0;

/// Formats a number of years without their unit, for tables.
pub fn years(years: f64) -> String {
    let is_long = years.is_finite() && years > YEARS_MAX;
    if is_long { format!("> {}", number(YEARS_MAX)) } else { number(years) }
}

/// Formats a number of years with their unit.
pub fn lifetime(years: f64) -> String {
    match &self::years(years)[..] {
        "unlimited" => "unlimited".to_owned(),
        "1" => "1 year".to_owned(),
        years => format!("{} years", years.replace('>', "more than")),
    }
}

/// Formats a share of 1 as a percentage. Only 0 becomes 0%, and only 1 becomes 100%.
pub fn percent(share: f64) -> String {
    match share {
        share if !share.is_finite() => number(share),
        share if share > 0.0 && share < 0.000_01 => "< 0.001%".to_owned(),
        share if (0.9995..1.0).contains(&share) => "> 99.9%".to_owned(),
        share => format!("{}%", number(100.0 * share)),
    }
}

/// Formats a number of things; `thing` is the singular of a noun whose plural ends in s.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns the date of a day since 1970 (Hinnant: chrono-compatible low-level date algorithms. 2013).
pub fn date(day: u64) -> String {
    // Days since 1 March of the year 0, whose leap days end its years.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", of_year - (153 * from_march + 2) / 5 + 1)
}

/// Formats a moment in seconds since 1970: `2026-11-30 14:03:20 UTC`.
pub fn utc(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (day, of_day) = (seconds / 86_400, seconds % 86_400);
    format!("{} {:02}:{:02}:{:02} UTC", date(day), of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_examples_that_the_page_follows_too() {
        for line in include_str!("human/examples.txt").lines() {
            let [kind, value, expected] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let value: f64 = value.parse().unwrap();
            let shown = match kind {
                "count" => count(value as u64),
                "number" => number(value),
                "bytes" => bytes(value),
                "duration" => seconds(value),
                "years" => years(value),
                "lifetime" => lifetime(value),
                "percent" => percent(value),
                _ => panic!("{line}"),
            };
            assert_eq!(shown, expected, "{line}");
        }
    }

    #[test]
    fn values_without_a_number_are_shown() {
        assert_eq!([f64::NAN, f64::INFINITY].map(number), ["-", "unlimited"]);
        assert_eq!([1.0, f64::INFINITY].map(lifetime), ["1 year", "unlimited"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([1, 2000].map(|number| counted(number, "block")), ["1 block", "2,000 blocks"]);
    }

    #[test]
    fn days_have_their_dates_and_moments_their_time() {
        let dates = [0, 58, 59, 11_016, 11_017, 20_786, 47_540, 47_541].map(date);
        let expected = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "2000-02-29",
            "2000-03-01",
            "2026-11-29",
            "2100-02-28",
            "2100-03-01",
        ];
        assert_eq!(dates, expected);
        assert_eq!(utc(1_796_047_400.9), "2026-11-30 14:03:20 UTC");
    }
}
