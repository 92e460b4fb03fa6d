//! Today's date, for reports.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns today's date in UTC: `2026-11-29`. `SOURCE_DATE_EPOCH`, in seconds, replaces the clock, so that reports can
/// be reproduced.
pub fn today() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_of(given.unwrap_or_else(now) / 86_400)
}

/// Returns the date of a day since 1970 (Hinnant: chrono-compatible low-level date algorithms. 2013).
fn date_of(day: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        let dates = [0, 58, 59, 11_016, 11_017, 20_786, 47_540, 47_541].map(date_of);
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
    }
}
