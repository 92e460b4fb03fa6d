//! The time of events and figures.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
