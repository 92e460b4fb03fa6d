//! Formats amounts of money.

use flashwise_core::human;

/// Formats a price with its currency.
pub fn money(amount: f64, currency: &str) -> String {
    format!("{} {currency}", human::number(amount)).trim().to_owned()
}

/// True if a latency is that of RAM: no device takes part.
pub(super) fn is_of_ram(us: f64) -> bool {
    us < 0.5
}

/// A latency.
pub(super) fn latency(us: f64) -> String {
    if is_of_ram(us) { "less than 1 us".to_owned() } else { human::duration(us) }
}

/// A size as devices are sold.
pub(super) fn gb(bytes: f64) -> String {
    format!("{} GB", human::number(bytes / 1e9))
}

/// An interval of so many seconds that begins so long after the first request.
pub(super) fn after(seconds: f64, after_s: f64) -> String {
    match after_s {
        0.0 => format!("{}, the first", human::seconds(seconds)),
        _ => format!("{}, {} after the start", human::seconds(seconds), human::seconds(after_s)),
    }
}
