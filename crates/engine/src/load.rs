//! How busy the backend is: what shows whether a volume waits for its slow device, and for how long.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the backend was asked since the volume was opened. Transfers that the page cache answered at once do not count.
///
/// The mean number of transfers under way is the growth of `transfer_seconds` over time. A transfer takes the growth of `transfer_seconds`
/// divided by that of `transfers`, its wait in the device's queue included. Where the device serves one at a time, `busy_seconds` in place of
/// `transfer_seconds` is its service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackendLoad {
    /// Transfers that are under way.
    pub under_way: u64,
    /// Transfers that ended.
    pub transfers: u64,
    /// Time that all transfers took together, in seconds.
    pub transfer_seconds: f64,
    /// Time in which at least one transfer was under way, in seconds.
    pub busy_seconds: f64,
}

/// Counts the transfers of a device.
#[derive(Debug, Default)]
pub(crate) struct Load {
    load: BackendLoad,
    /// Until when time is counted.
    counted_us: u64,
}

impl Load {
    /// So many transfers begin.
    pub fn begin(&mut self, transfers: u64, now_us: u64) {
        self.count(now_us);
        self.load.under_way += transfers;
    }

    /// One ends.
    pub fn end(&mut self, now_us: u64) {
        self.count(now_us);
        self.load.under_way -= 1;
        self.load.transfers += 1;
    }

    /// One that began was done at once.
    pub fn pass_over(&mut self) {
        self.load.under_way -= 1;
    }

    /// What happened until now.
    pub fn until(&self, now_us: u64) -> BackendLoad {
        let passed = now_us.saturating_sub(self.counted_us) as f64 / 1e6;
        let BackendLoad { under_way, transfer_seconds, busy_seconds, .. } = self.load;
        let busy = if under_way > 0 { passed } else { 0.0 };
        BackendLoad {
            transfer_seconds: transfer_seconds + under_way as f64 * passed,
            busy_seconds: busy_seconds + busy,
            ..self.load
        }
    }

    fn count(&mut self, now_us: u64) {
        self.load = self.until(now_us);
        self.counted_us = self.counted_us.max(now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_serves_one_at_a_time_has_a_queue_and_a_service_time() {
        let mut load = Load::default();
        // Three transfers of a second each, which begin together, after a second of rest.
        load.begin(3, 1_000_000);
        (2..=4).for_each(|second| load.end(second * 1_000_000));
        let BackendLoad { under_way, transfers, transfer_seconds, busy_seconds } = load.until(9_000_000);
        assert_eq!((under_way, transfers, transfer_seconds, busy_seconds), (0, 3, 6.0, 3.0));
        load.begin(2, 10_000_000);
        load.pass_over();
        assert_eq!(
            load.until(11_000_000),
            BackendLoad { under_way: 1, transfers: 3, transfer_seconds: 7.0, busy_seconds: 4.0 }
        );
    }
}
