//! Amounts of an advice in words.

use flashwise_core::tiers::YEAR_DAYS;
use flashwise_trace::human;

use super::shown;

/// Formats a price with its currency.
pub fn money(amount: f64, currency: &str) -> String {
    let text = if amount >= 1000.0 { human::count(amount.round() as u64) } else { format!("{amount:.2}") };
    format!("{} {currency}", text.strip_suffix(".00").unwrap_or(&text)).trim().to_owned()
}

/// True if a latency is that of RAM: no device takes part.
pub(super) fn is_of_ram(us: f64) -> bool {
    us < 0.5
}

/// A latency.
pub(super) fn latency(us: f64) -> String {
    match us {
        us if is_of_ram(us) => "less than 1 us".to_owned(),
        us if us >= 1e6 => format!("{} s", shown(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", shown(us / 1e3)),
        us => format!("{} us", shown(us)),
    }
}

/// A size as devices are sold.
pub(super) fn gb(bytes: f64) -> String {
    format!("{} GB", shown(bytes / 1e9))
}

/// A size of RAM.
pub(super) fn ram(bytes: u64) -> String {
    human::bytes(bytes as f64).replace(".0 ", " ")
}

/// A number of years.
pub(super) fn years(years: f64) -> String {
    match years {
        years if years >= 100.0 => "more than a century".to_owned(),
        years if years > 0.0 && years < 0.1 => format!("{} days", shown(years * YEAR_DAYS)),
        years => format!("{} years", shown(years)),
    }
}

/// An interval of so many seconds that begins so long after the first request.
pub(super) fn after(seconds: f64, after_s: f64) -> String {
    let time = |seconds: f64| human::duration((seconds * 1e6) as u64);
    match after_s {
        0.0 => format!("{}, the first", time(seconds)),
        _ => format!("{}, {} after the start", time(seconds), time(after_s)),
    }
}
