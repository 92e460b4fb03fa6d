//! The load of the backend, which shows if and how long a volume waits for its slow device.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The transfers of the backend since the volume was opened. Transfers that the page cache served immediately do not
/// count.
///
/// The mean number of concurrent transfers is the rate of `transfer_seconds`. The mean latency of a transfer, including
/// its time in the device's queue, is the growth of `transfer_seconds` divided by that of `transfers`. If the device
/// serves one transfer after the other, `busy_seconds` instead of `transfer_seconds` gives its service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackendLoad {
    /// Transfers in progress.
    pub under_way: u64,
    /// Completed transfers.
    pub transfers: u64,
    /// Sum of the durations of all transfers, in seconds.
    pub transfer_seconds: f64,
    /// Time with at least one transfer in progress, in seconds.
    pub busy_seconds: f64,
}

/// Counts the transfers of a device.
#[derive(Debug, Default)]
pub(crate) struct Load {
    load: BackendLoad,
    /// The time of the last update.
    counted_us: u64,
}

impl Load {
    /// Records that transfers began.
    pub fn begin(&mut self, transfers: u64, now_us: u64) {
        self.count(now_us);
        self.load.under_way += transfers;
    }

    /// Records that a transfer ended.
    pub fn end(&mut self, now_us: u64) {
        self.count(now_us);
        self.load.under_way -= 1;
        self.load.transfers += 1;
    }

    /// Removes a transfer that was served immediately.
    pub fn pass_over(&mut self) {
        self.load.under_way -= 1;
    }

    /// Returns the load up to now.
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
        // After a second of idle time, three transfers begin together and take a second each.
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
