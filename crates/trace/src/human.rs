//! Formats numbers for people: `1,234,567`, `1.5 GiB`, `2 h 3 min`, `97.59%`.

use flashwise_core::quantity::DURATION_UNITS;

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

/// Formats a length in the largest binary unit that is not greater than the length.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut amount, mut unit) = (bytes, 0);
    // 1023.95 would be shown as 1024.0.
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 || amount.fract() != 0.0);
    format!("{amount:.decimals$} {}", UNITS[unit])
}

/// Formats a duration in its two largest units.
pub fn duration(us: u64) -> String {
    let Some(first) = DURATION_UNITS.iter().position(|(_, unit_us)| us >= *unit_us) else { return "0 s".to_owned() };
    let (name, unit_us) = DURATION_UNITS[first];
    let rest = match DURATION_UNITS.get(first + 1) {
        Some((smaller, smaller_us)) if us % unit_us >= *smaller_us => {
            format!(" {} {smaller}", us % unit_us / smaller_us)
        }
        _ => String::new(),
    };
    format!("{} {name}{rest}", us / unit_us)
}

/// Formats a rate per second, with at least three digits.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 => count(rate.round() as u64),
        rate if rate >= 10.0 => format!("{rate:.1}"),
        rate if rate >= 0.01 => format!("{rate:.2}"),
        rate => format!("{rate:.1e}"),
    }
}

/// Lifetimes above this number of years are shown as "more than" it.
pub const YEARS_MAX: f64 = 1000.0;

/// Formats a number of years with two decimals.
pub fn years(years: f64) -> String {
    match years {
        years if years == f64::INFINITY => "unlimited".to_owned(),
        years if years > YEARS_MAX => format!("> {}", count(YEARS_MAX as u64)),
        years => format!("{years:.2}"),
    }
}

/// Formats a share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

/// Formats a number of things; `thing` is the singular of a noun whose plural ends in s.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_rounded_and_named() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let lengths = [0.0, 512.0, 1023.0, 1024.0, 1536.0, 10240.0, 1048575.0, 1.5 * 1024.0 * 1024.0 * 1024.0, 2.5];
        let shown = ["0 B", "512 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 KiB", "1.0 MiB", "1.5 GiB", "2.5 B"];
        assert_eq!(lengths.map(bytes), shown);
        let durations = [0, 7, 1500, 60_000_000, 7_380_000_000, 90_000_000_000];
        assert_eq!(durations.map(duration), ["0 s", "7 us", "1 ms 500 us", "1 min", "2 h 3 min", "1 d 1 h"]);
        assert_eq!(percent(0.97591), "97.59%");
        let rates = [0.0012, 0.5, 12.34, 123.4, 1_234_567.8].map(per_second);
        assert_eq!(rates, ["1.2e-3", "0.50", "12.3", "123", "1,234,568"]);
        assert_eq!(
            [0.0, 1.055, 1000.0, 1000.1, f64::INFINITY].map(years),
            ["0.00", "1.05", "1000.00", "> 1,000", "unlimited"]
        );
    }
}
