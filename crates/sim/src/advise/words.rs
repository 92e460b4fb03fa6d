//! Amounts of an advice in words.

use flashwise_trace::human;

use super::shown;

/// A price.
pub(super) fn money(amount: f64, currency: &str) -> String {
    let text = if amount >= 1000.0 { human::count(amount.round() as u64) } else { format!("{amount:.2}") };
    format!("{} {currency}", text.strip_suffix(".00").unwrap_or(&text)).trim().to_owned()
}

/// A latency.
pub(super) fn latency(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", shown(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", shown(us / 1e3)),
        us => format!("{} us", shown(us)),
    }
}

/// A number of years.
pub(super) fn years(years: f64) -> String {
    match years {
        years if years >= 100.0 => "more than a century".to_owned(),
        years => format!("{} years", shown(years)),
    }
}
