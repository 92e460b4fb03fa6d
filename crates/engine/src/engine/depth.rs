//! The number of concurrent background transfers of the backend. It is as many as the backend serves in parallel, and
//! one more, so that the backend never idles.
//!
//! A single transfer takes its service time. One of `n` transfers takes `n / parallel` service times. So the end of
//! each transfer measures the parallelism of the backend, by Little's law.

use std::collections::HashMap;

/// The weight of a new measurement in an average.
const WEIGHT: f64 = 1.0 / 8.0;
/// Number of concurrent transfers after which one runs without others, to measure the service time again.
const ALONE_EVERY: u32 = 64;
/// The most concurrent transfers.
const TRANSFERS_MAX: f64 = 64.0;
/// The assumption before anything is measured.
const PARALLEL_AT_FIRST: f64 = 4.0;

#[derive(Clone, Copy, Debug)]
struct Begun {
    began_us: u64,
    /// The transfers of the backend at that time, this one included.
    of: usize,
}

/// The measurements, and the transfers in progress.
#[derive(Debug)]
pub(super) struct Depth {
    /// By offset.
    under_way: HashMap<u64, Begun>,
    /// The service time of a transfer, in microseconds; 0 before it is measured.
    service_us: f64,
    parallel: f64,
    /// Concurrent transfers since the last one without others.
    in_company: u32,
}

impl Default for Depth {
    fn default() -> Depth {
        Depth { under_way: HashMap::new(), service_us: 0.0, parallel: PARALLEL_AT_FIRST, in_company: 0 }
    }
}

impl Depth {
    /// Notes the start of a transfer at an offset. The backend then has `of` transfers.
    pub fn begin(&mut self, offset: u64, of: usize, now_us: u64) {
        self.under_way.insert(offset, Begun { began_us: now_us, of });
    }

    /// Notes the end of the transfer at an offset.
    pub fn end(&mut self, offset: u64, now_us: u64) {
        let Some(Begun { began_us, of }) = self.under_way.remove(&offset) else { return };
        let took_us = (now_us - began_us).max(1) as f64;
        if of == 1 {
            let weight = if self.service_us == 0.0 { 1.0 } else { 2.0 * WEIGHT };
            self.service_us += (took_us - self.service_us) * weight;
            self.in_company = 0;
            return;
        }
        self.in_company += 1;
        if self.service_us == 0.0 {
            return;
        }
        self.service_us = self.service_us.min(took_us);
        let of = of as f64;
        // A backend that serves all of them may have more parallelism.
        let found = of * self.service_us / took_us;
        self.parallel += (found - self.parallel.min(of)) * WEIGHT;
    }

    /// Returns the number of transfers that may be in progress. Beside reads of clients it is at most the parallelism
    /// of the backend.
    pub fn most(&self, beside_reads: bool) -> usize {
        if !beside_reads && self.in_company >= ALONE_EVERY {
            return 1;
        }
        // A quarter more finds out whether there is more room.
        let served = (1.25 * self.parallel + 0.5).floor();
        let most = if beside_reads { served.max(1.0) } else { (served + 1.0).max(2.0) };
        most.min(TRANSFERS_MAX) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps as many transfers under way as it may, at a backend that serves so many in parallel, each for this time.
    /// Returns the number in the end.
    fn settles(depth: &mut Depth, parallel: usize, service_us: u64, beside_reads: bool) -> usize {
        let mut free_at = vec![0; parallel];
        let mut ends: Vec<(u64, u64)> = Vec::new();
        let mut now_us = 1_000_000;
        free_at.fill(now_us);
        for offset in 0..4_000 {
            while ends.len() >= depth.most(beside_reads) {
                let first = (0..ends.len()).min_by_key(|&index| ends[index]).unwrap();
                let (ended_us, ended) = ends.swap_remove(first);
                now_us = ended_us;
                depth.end(ended, now_us);
            }
            depth.begin(offset, ends.len() + 1, now_us);
            let server = free_at.iter_mut().min().unwrap();
            *server = (*server).max(now_us) + service_us;
            ends.push((*server, offset));
        }
        ends.into_iter().for_each(|(ended_us, ended)| depth.end(ended, ended_us));
        depth.in_company = 0;
        depth.most(beside_reads)
    }

    #[test]
    fn a_disk_that_serves_one_at_a_time_has_two_and_one_beside_reads() {
        let depth = &mut Depth::default();
        assert_eq!(settles(depth, 1, 8_000, false), 2);
        assert_eq!(settles(depth, 1, 8_000, true), 1);
        assert_eq!(settles(depth, 1, 1_000, false), 2, "it became faster");
        assert_eq!(settles(depth, 1, 20_000, false), 2, "it became slower");
    }

    #[test]
    fn a_backend_that_serves_many_at_a_time_has_at_least_as_many() {
        for parallel in [3, 8, 32] {
            let most = settles(&mut Depth::default(), parallel, 20_000, false);
            assert!((parallel..=parallel * 3 / 2 + 1).contains(&most), "{most} of {parallel}");
        }
    }
}
