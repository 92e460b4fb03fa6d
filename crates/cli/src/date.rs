//! Today's date, for reports.

use std::time::{SystemTime, UNIX_EPOCH};

use flashwise_core::human;

/// Returns today's date in UTC: `2026-11-29`. `SOURCE_DATE_EPOCH`, in seconds, replaces the clock, so that reports can
/// be reproduced.
pub fn today() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    human::date(given.unwrap_or_else(now) / 86_400)
}
