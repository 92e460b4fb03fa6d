//! Alarms besides faults: a detach that takes long, a backend that is far behind, slow misses, and a used-up budget of
//! flash writes.

use std::collections::HashMap;

use flashwise_core::human;
use flashwise_storage::status::{LatencyBucket, VolumeState, VolumeStatus};

use super::AlertOptions;
use super::history::{Severity, quantile};

/// The p99 of misses is of so many seconds, ...
const WINDOW_SECONDS: u64 = 60;
/// ... in which at least so many reads missed.
const MISSES_MIN: f64 = 20.0;

/// A kind of alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AlarmKind {
    Detach,
    Behind,
    Misses,
    Budget,
}

/// The past of a volume.
#[derive(Debug, Default)]
struct SeenAlarm {
    detaching_since: Option<u64>,
    window: Option<Window>,
    raised: Vec<AlarmKind>,
}

/// The reads of a volume at the begin of a window.
#[derive(Debug)]
struct Window {
    time_seconds: u64,
    blocks: u64,
    hits: u64,
    latencies: Vec<LatencyBucket>,
}

impl Window {
    fn at(time_seconds: u64, status: &VolumeStatus) -> Window {
        let reads = status.latencies.iter().find(|latency| latency.operation == "read");
        Window {
            time_seconds,
            blocks: status.reads,
            hits: status.ram_read_hits + status.flash_read_hits,
            latencies: reads.map(|reads| reads.buckets.clone()).unwrap_or_default(),
        }
    }

    /// The p99 of the misses since an earlier window: of the slowest reads, as large a part of all as missed. `None` if
    /// few missed.
    fn miss_p99_us(&self, before: &Window) -> Option<f64> {
        let count_before = |us_max| before.latencies.iter().find(|old| old.us_max == us_max).map_or(0, |old| old.count);
        let since = |bucket: &LatencyBucket| LatencyBucket {
            us_max: bucket.us_max,
            count: bucket.count.saturating_sub(count_before(bucket.us_max)),
        };
        let latencies: Vec<LatencyBucket> = self.latencies.iter().map(since).collect();
        let requests: u64 = latencies.iter().map(|bucket| bucket.count).sum();
        let blocks = self.blocks.saturating_sub(before.blocks) as f64;
        let missed = 1.0 - self.hits.saturating_sub(before.hits) as f64 / blocks;
        (blocks > 0.0 && missed * requests as f64 >= MISSES_MIN).then(|| quantile(&latencies, 1.0 - 0.01 * missed))?
    }
}

/// The alarms of all volumes.
#[derive(Debug)]
pub struct Alarms {
    options: AlertOptions,
    volumes: HashMap<String, SeenAlarm>,
}

impl Alarms {
    /// None is raised yet.
    pub fn new(options: AlertOptions) -> Alarms {
        Alarms { options, volumes: HashMap::new() }
    }

    /// Checks the volumes. Reports each alarm when it is raised and when it ends: volume, severity, text.
    pub fn look(&mut self, now_seconds: u64, volumes: &[VolumeStatus], mut report: impl FnMut(&str, Severity, String)) {
        self.volumes.retain(|name, _| volumes.iter().any(|volume| volume.name == *name));
        for status in volumes {
            let seen = self.volumes.entry(status.name.clone()).or_default();
            for (severity, text) in look_at(&self.options, now_seconds, status, seen) {
                report(&status.name, severity, text);
            }
        }
    }
}

fn look_at(options: &AlertOptions, now: u64, status: &VolumeStatus, seen: &mut SeenAlarm) -> Vec<(Severity, String)> {
    let mut found = Vec::new();
    let is_detaching = status.state == VolumeState::Detaching;
    seen.detaching_since = is_detaching.then(|| seen.detaching_since.unwrap_or(now));
    let is_long = seen.detaching_since.is_some_and(|since| (now - since) * 1_000_000 > options.detach_us_max);
    let left = human::bytes(status.dirty_bytes as f64);
    let long = is_long.then(|| {
        let most = human::duration(options.detach_us_max as f64);
        format!("Detaching the flash takes longer than {most}; {left} are left")
    });
    found.extend(seen.set(AlarmKind::Detach, long, "Detaching has ended"));
    if let Some(backend) = &status.backend_state {
        let age_seconds = backend.age_seconds.filter(|_| backend.is_late());
        let behind = age_seconds.zip(backend.consistent_seconds).map(|(age, moment)| {
            let [age, most] = [age, backend.age_seconds_max].map(human::seconds);
            let moment = human::utc(moment);
            format!("The backend is consistent as of {moment}, {age} ago; dirty-age allows {most}")
        });
        found.extend(seen.set(AlarmKind::Behind, behind, "The backend is as recent as dirty-age demands again"));
    }
    if let Some(budget) = &status.write_budget {
        let used_up = (budget.today_used > 1.0).then(|| {
            let [written, allowed] = [budget.today_bytes as f64, budget.bytes_per_day].map(human::bytes);
            format!("Today's budget of flash writes is used up: {written} of {allowed}")
        });
        found.extend(seen.set(AlarmKind::Budget, used_up, "Flash writes are within their budget again"));
    }
    let Some(most) = options.miss_p99_us_max else { return found };
    match &seen.window {
        Some(window) if now < window.time_seconds + WINDOW_SECONDS => {}
        window => {
            let is = Window::at(now, status);
            let p99_us = window.as_ref().and_then(|before| is.miss_p99_us(before));
            let slow = p99_us.filter(|us| *us > most as f64).map(|us| {
                let [found, most] = [us, most as f64].map(human::duration);
                format!("The p99 of reads that miss was {found} in the last minute; the limit is {most}")
            });
            seen.window = Some(is);
            found.extend(seen.set(AlarmKind::Misses, slow, "Reads that miss are as fast as before"));
        }
    }
    found
}

impl SeenAlarm {
    /// Raises or ends an alarm; returns the text to report, if that is news.
    fn set(&mut self, kind: AlarmKind, found: Option<String>, ended: &str) -> Option<(Severity, String)> {
        let is_raised = self.raised.contains(&kind);
        match found {
            Some(text) if !is_raised => {
                self.raised.push(kind);
                Some((Severity::Warning, text))
            }
            None if is_raised => {
                self.raised.retain(|other| *other != kind);
                Some((Severity::Info, ended.to_owned()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use flashwise_storage::status::{BackendStatus, LatencyStatus, WriteBudgetStatus};

    use super::*;

    const OPTIONS: fn() -> AlertOptions =
        || AlertOptions { detach_us_max: 60_000_000, miss_p99_us_max: Some(20_000), ..AlertOptions::default() };

    fn reports(alarms: &mut Alarms, now: u64, status: VolumeStatus) -> Vec<(Severity, String)> {
        let mut all = Vec::new();
        alarms.look(now, &[status], |volume, severity, text| {
            assert_eq!(volume, "one");
            all.push((severity, text));
        });
        all
    }

    fn named() -> VolumeStatus {
        VolumeStatus { name: "one".to_owned(), ..VolumeStatus::default() }
    }

    #[test]
    fn a_long_detach_is_reported_once_and_its_end() {
        let mut alarms = Alarms::new(OPTIONS());
        let detaching = || VolumeStatus { state: VolumeState::Detaching, dirty_bytes: 3 << 20, ..named() };
        assert!(reports(&mut alarms, 100, detaching()).is_empty());
        assert!(reports(&mut alarms, 160, detaching()).is_empty());
        let late = reports(&mut alarms, 161, detaching());
        assert_eq!(
            late,
            [(Severity::Warning, "Detaching the flash takes longer than 1 min; 3 MiB are left".to_owned())]
        );
        assert!(reports(&mut alarms, 170, detaching()).is_empty());
        assert_eq!(reports(&mut alarms, 171, named()), [(Severity::Info, "Detaching has ended".to_owned())]);
    }

    #[test]
    fn a_backend_that_is_older_than_dirty_age_is_reported() {
        let mut alarms = Alarms::new(OPTIONS());
        let behind = |age: f64| {
            let backend_state = Some(BackendStatus {
                is_consistent: true,
                consistent_seconds: Some(1_796_047_400.0),
                age_seconds: Some(age),
                age_seconds_max: 900.0,
                newer_blocks: 1,
            });
            VolumeStatus { backend_state, ..named() }
        };
        assert!(reports(&mut alarms, 1, behind(900.0)).is_empty());
        let text = "The backend is consistent as of 2026-11-30 14:03:20 UTC, 16 min ago; dirty-age allows 15 min";
        assert_eq!(reports(&mut alarms, 2, behind(960.0)), [(Severity::Warning, text.to_owned())]);
        assert!(reports(&mut alarms, 3, behind(961.0)).is_empty());
        assert_eq!(reports(&mut alarms, 4, behind(0.0))[0].0, Severity::Info);
    }

    #[test]
    fn a_used_up_budget_is_reported() {
        let mut alarms = Alarms::new(OPTIONS());
        let used = |share: f64| VolumeStatus {
            write_budget: Some(WriteBudgetStatus {
                bytes_per_day: f64::from(1 << 30),
                today_bytes: (share * f64::from(1 << 30)) as u64,
                today_used: share,
                ..WriteBudgetStatus::default()
            }),
            ..named()
        };
        assert!(reports(&mut alarms, 1, used(1.0)).is_empty());
        let text = "Today's budget of flash writes is used up: 2 GiB of 1 GiB".to_owned();
        assert_eq!(reports(&mut alarms, 2, used(2.0)), [(Severity::Warning, text)]);
        assert_eq!(reports(&mut alarms, 3, used(0.0))[0].0, Severity::Info);
    }

    /// By hand: of 1,000 reads, 900 hit within 100 us. Of 100 misses, 98 take up to 10 ms and 2 up to 50 ms. So the p99
    /// of the misses is the 99.9th percentile of all reads. It is in the middle of the last bucket.
    #[test]
    fn the_p99_of_misses_is_of_the_slowest_reads() {
        let reads = |fast: u64, slow: u64, slowest: u64| {
            let bucket = |us_max, count| LatencyBucket { us_max, count };
            let buckets = vec![bucket(100, fast), bucket(10_000, slow), bucket(25_000, 0), bucket(50_000, slowest)];
            let latencies = vec![LatencyStatus { operation: "read".to_owned(), buckets, ..LatencyStatus::default() }];
            VolumeStatus { reads: fast + slow + slowest, ram_read_hits: fast, latencies, ..named() }
        };
        let mut alarms = Alarms::new(OPTIONS());
        assert!(reports(&mut alarms, 100, reads(5000, 0, 0)).is_empty());
        assert!(reports(&mut alarms, 159, reads(5900, 98, 2)).is_empty(), "the minute is not over");
        let text = "The p99 of reads that miss was 37.5 ms in the last minute; the limit is 20 ms".to_owned();
        assert_eq!(reports(&mut alarms, 160, reads(5900, 98, 2)), [(Severity::Warning, text)]);
        assert_eq!(reports(&mut alarms, 220, reads(7900, 298, 2))[0].0, Severity::Info);
    }
}
