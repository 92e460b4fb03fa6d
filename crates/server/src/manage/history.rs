//! The recent figures of each volume, per second, minute and half hour, and the recent events. Both are in memory of
//! fixed size, and in a file.
//!
//! At the end of each step, a series compares the counters with those at its start. So rates and percentiles of a
//! minute come from its own counts, not from means of seconds.

mod events;
mod store;

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use flashwise_storage::status::{LatencyBucket, VolumeStatus};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use self::events::{Event, Severity};

use self::events::Events;
use self::store::{Reader, Store, StoreError};

/// How far back the history is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Range {
    /// The last 15 minutes, by the second.
    #[default]
    #[serde(rename = "15min")]
    Minutes,
    /// The last 24 hours, by the minute.
    #[serde(rename = "24h")]
    Day,
    /// The last 30 days, by the half hour.
    #[serde(rename = "30d")]
    Month,
}

impl Range {
    const ALL: [Range; 3] = [Range::Minutes, Range::Day, Range::Month];

    /// Seconds from one point to the next, and most points that are kept.
    fn extent(self) -> (u64, usize) {
        match self {
            Range::Minutes => (1, 15 * 60),
            Range::Day => (60, 24 * 60),
            Range::Month => (30 * 60, 30 * 48),
        }
    }

    /// The first second that it reaches back to.
    fn begins(self, now_seconds: u64) -> u64 {
        let (step_seconds, points_max) = self.extent();
        (now_seconds + step_seconds).saturating_sub(step_seconds * points_max as u64)
    }
}

/// Query of a client for the history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// How far back: `15min` (the default), `24h` or `30d`.
    #[serde(default)]
    pub range: Range,
}

/// One volume's figures, from the oldest to the newest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Past {
    /// Seconds from one point to the next, where the server ran.
    pub step_seconds: u64,
    /// The points.
    pub points: Vec<Point>,
}

/// The activity of a volume in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Point {
    /// The end of the step, in seconds since 1970.
    pub time_seconds: u64,
    /// Reads that were answered, per second.
    pub reads_per_second: f64,
    /// Writes that were answered, per second.
    pub writes_per_second: f64,
    /// Bytes that clients read, per second.
    pub read_bytes_per_second: f64,
    /// Bytes that clients wrote, per second.
    pub written_bytes_per_second: f64,
    /// Bytes written to flash for any cause, per second.
    pub flash_written_bytes_per_second: f64,
    /// Reads served from RAM or flash, 0 to 1; absent where nothing was read.
    pub read_hit_ratio: Option<f64>,
    /// Median latency of the step's reads and writes, interpolated within the buckets of the histogram; absent without
    /// requests.
    pub latency_p50_us: Option<f64>,
    /// Their 99th percentile, in the same way.
    pub latency_p99_us: Option<f64>,
    /// Bytes on flash or in RAM that are newer than the backend's, at the end of the step.
    pub dirty_bytes: u64,
    /// Bytes of a pool that are allocated, at the end of the step; absent for other volumes.
    pub used_bytes: Option<u64>,
}

/// The counters of a volume at a moment.
#[derive(Clone, Debug, Default)]
struct Look {
    time_seconds: u64,
    reads: u64,
    writes: u64,
    blocks_read: u64,
    blocks_written: u64,
    read_hits: u64,
    flash_bytes_written: u64,
    dirty_bytes: u64,
    used_bytes: Option<u64>,
    latencies: Vec<LatencyBucket>,
}

const BLOCK_BYTES: f64 = flashwise_core::format::BLOCK_BYTES as f64;

impl Look {
    fn at(time_seconds: u64, status: &VolumeStatus) -> Look {
        let of = |name: &str| status.latencies.iter().find(|latency| latency.operation == name);
        let count = |name| of(name).map_or(0, |latency| latency.count);
        let mut latencies: Vec<LatencyBucket> = of("read").map(|latency| latency.buckets.clone()).unwrap_or_default();
        for bucket in of("write").iter().flat_map(|latency| &latency.buckets) {
            match latencies.iter_mut().find(|other| other.us_max == bucket.us_max) {
                Some(other) => other.count += bucket.count,
                None => latencies.push(*bucket),
            }
        }
        Look {
            time_seconds,
            reads: count("read"),
            writes: count("write"),
            blocks_read: status.reads,
            blocks_written: status.writes,
            read_hits: status.ram_read_hits + status.flash_read_hits,
            flash_bytes_written: status.flash_bytes_written,
            dirty_bytes: status.dirty_bytes,
            used_bytes: None,
            latencies,
        }
    }

    /// Returns the activity since an earlier look.
    fn since(&self, before: &Look) -> Point {
        let seconds = self.time_seconds.saturating_sub(before.time_seconds).max(1) as f64;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let blocks_read = self.blocks_read.saturating_sub(before.blocks_read);
        let hits = self.read_hits.saturating_sub(before.read_hits);
        let count_before =
            |us_max| before.latencies.iter().find(|bucket| bucket.us_max == us_max).map_or(0, |b| b.count);
        let latencies: Vec<LatencyBucket> = self
            .latencies
            .iter()
            .map(|&LatencyBucket { us_max, count }| LatencyBucket {
                us_max,
                count: count.saturating_sub(count_before(us_max)),
            })
            .collect();
        Point {
            time_seconds: self.time_seconds,
            reads_per_second: rate(self.reads, before.reads),
            writes_per_second: rate(self.writes, before.writes),
            read_bytes_per_second: rate(self.blocks_read, before.blocks_read) * BLOCK_BYTES,
            written_bytes_per_second: rate(self.blocks_written, before.blocks_written) * BLOCK_BYTES,
            flash_written_bytes_per_second: rate(self.flash_bytes_written, before.flash_bytes_written),
            read_hit_ratio: (blocks_read > 0).then(|| (hits as f64 / blocks_read as f64).min(1.0)),
            latency_p50_us: quantile(&latencies, 0.5),
            latency_p99_us: quantile(&latencies, 0.99),
            dirty_bytes: self.dirty_bytes,
            used_bytes: self.used_bytes,
        }
    }
}

/// Returns the value below which this share of the counts lies. Counts are spread evenly over the range of their
/// bucket.
pub(super) fn quantile(buckets: &[LatencyBucket], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let wanted = all as f64 * share;
    let (mut below, mut bound_us) = (0.0, 0.0);
    for bucket in buckets.iter().filter(|_| all > 0) {
        let (count, us_max) = (bucket.count as f64, bucket.us_max as f64);
        if count > 0.0 && below + count >= wanted {
            return Some(bound_us + (us_max - bound_us) * (wanted - below) / count);
        }
        (below, bound_us) = (below + count, us_max);
    }
    None
}

#[derive(Debug, Default)]
struct Series {
    last: Option<Look>,
    points: VecDeque<Point>,
    /// How many of the newest points are not in the file yet.
    new: usize,
}

impl Series {
    fn push(&mut self, point: Point, points_max: usize) {
        if self.points.len() == points_max {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// By the volume's name; one series for each range.
type Volumes = HashMap<String, [Series; Range::ALL.len()]>;

/// The contents of a file, as they are read.
#[derive(Default)]
struct KeptEvents {
    volumes: Volumes,
    events: Events,
}

impl Reader for KeptEvents {
    fn point(&mut self, volume: &str, range: Range, point: Point) {
        self.volumes.entry(volume.to_owned()).or_default()[range as usize].push(point, range.extent().1);
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// The history of all volumes.
#[derive(Default)]
pub struct History {
    volumes: Mutex<Volumes>,
    /// Allocated bytes of each pool at the last look.
    used: Mutex<HashMap<String, u64>>,
    events: Mutex<Events>,
    /// The file, if there is one.
    store: Mutex<Option<Store>>,
}

impl History {
    /// Reads the history from a file. Also returns a message if the file cannot be used, so that the history ends with
    /// the process. A damaged file is renamed.
    pub fn kept_in(path: &Path, now_seconds: u64) -> (History, Option<String>) {
        let shown = path.display();
        let history = History::default();
        let error = match history.open(path, now_seconds) {
            Ok(()) => return (history, None),
            Err(StoreError::Damaged(what)) => {
                let begun = store::set_aside(path).map_err(|error| StoreError::Failed(error.to_string()));
                match begun.and_then(|aside| history.open(path, now_seconds).map(|()| aside)) {
                    Ok(aside) => {
                        let aside = aside.display();
                        let text = format!("the history in {shown} is damaged: {what}; it was renamed to {aside}");
                        return (history, Some(text));
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        (history, Some(format!("the history is not kept in {shown}: {error}")))
    }

    fn open(&self, path: &Path, now_seconds: u64) -> Result<(), StoreError> {
        let mut kept = KeptEvents::default();
        let store = Store::open(path, now_seconds, &mut kept)?;
        (*self.volumes.lock(), *self.events.lock()) = (kept.volumes, kept.events);
        *self.store.lock() = Some(store);
        Ok(())
    }

    /// Records an event.
    pub fn happened(&self, event: Event) -> Event {
        self.events.lock().add(event)
    }

    /// Returns the events after the event with this number, oldest first.
    pub fn events_after(&self, number: u64) -> Vec<Event> {
        self.events.lock().after(number)
    }

    /// True if there are events that are not in the file yet.
    pub fn has_new_events(&self) -> bool {
        self.events.lock().has_new() && self.store.lock().is_some()
    }

    /// Writes new points and events to the file, durably. After a failure it logs the error and writes no more.
    pub fn keep(&self, now_seconds: u64) {
        let mut store = self.store.lock();
        let Some(open) = store.as_ref() else { return };
        let mut new = Vec::new();
        for (volume, history) in self.volumes.lock().iter_mut() {
            for (series, range) in history.iter_mut().zip(Range::ALL) {
                let known = series.points.len() - std::mem::take(&mut series.new);
                new.extend(series.points.range(known..).map(|point| (volume.clone(), range, *point)));
            }
        }
        let new_events = self.events.lock().take_new();
        if let Err(error) = open.keep(&new, &new_events, now_seconds) {
            tracing::warn!(event = "history-not-saved", %error, "the history is no longer saved");
            *store = None;
        }
    }

    /// Records the counters of the volumes; called once a second.
    pub fn look(&self, time_seconds: u64, volumes: &[VolumeStatus]) {
        let (mut histories, used) = (self.volumes.lock(), self.used.lock());
        for status in volumes {
            let used_bytes = used.get(&status.name).copied();
            let now = Look { used_bytes, ..Look::at(time_seconds, status) };
            let history = histories.entry(status.name.clone()).or_default();
            for (series, range) in history.iter_mut().zip(Range::ALL) {
                let (step_seconds, points_max) = range.extent();
                let Some(last) = &series.last else {
                    series.last = Some(now.clone());
                    continue;
                };
                if time_seconds >= last.time_seconds + step_seconds {
                    let point = now.since(last);
                    series.push(point, points_max);
                    series.new = (series.new + 1).min(points_max);
                    series.last = Some(now.clone());
                }
            }
        }
    }

    /// Sets the allocated bytes of each pool, which later points have.
    pub fn set_used(&self, used: HashMap<String, u64>) {
        *self.used.lock() = used;
    }

    /// Returns the past of a volume; empty before the second look.
    pub fn of(&self, volume: &str, range: Range) -> Past {
        let points =
            self.volumes.lock().get(volume).map(|history| history[range as usize].points.iter().copied().collect());
        Past { step_seconds: range.extent().0, points: points.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use flashwise_storage::status::LatencyStatus;

    use super::*;

    fn status(seconds: u64) -> VolumeStatus {
        // Each second: 10 reads of two blocks, and 4 writes of one block. Of the 20 blocks read, 15 hit. Of the 10
        // reads, 9 take at most 20 us, and one takes 200 us.
        let bucket = |us_max, count| LatencyBucket { us_max, count: count * seconds };
        let latency = |operation: &str, count, buckets| LatencyStatus {
            operation: operation.to_owned(),
            count: count * seconds,
            buckets,
            ..LatencyStatus::default()
        };
        VolumeStatus {
            name: "one".to_owned(),
            reads: 20 * seconds,
            writes: 4 * seconds,
            ram_read_hits: 5 * seconds,
            flash_read_hits: 10 * seconds,
            flash_bytes_written: 8192 * seconds,
            dirty_bytes: seconds,
            latencies: vec![
                latency("read", 10, vec![bucket(10, 0), bucket(20, 9), bucket(200, 1)]),
                latency("write", 4, vec![bucket(10, 4), bucket(20, 0), bucket(200, 0)]),
            ],
            ..VolumeStatus::default()
        }
    }

    #[test]
    fn a_point_counts_only_its_own_step() {
        let history = History::default();
        (100..=221).for_each(|time| history.look(time, &[status(time)]));
        let Past { step_seconds, points } = history.of("one", Range::Minutes);
        assert_eq!((step_seconds, points.len()), (1, 121));
        // Half of 14 is 7: 4 up to 10 us, 3 of the 9 between 10 and 20. 99 % is 13.86: the last of them, 0.86 of the
        // way from 20 to 200.
        let expected = Point {
            time_seconds: 221,
            reads_per_second: 10.0,
            writes_per_second: 4.0,
            read_bytes_per_second: 81_920.0,
            written_bytes_per_second: 16_384.0,
            flash_written_bytes_per_second: 8192.0,
            read_hit_ratio: Some(0.75),
            latency_p50_us: Some(10.0 + 10.0 * 3.0 / 9.0),
            latency_p99_us: Some(20.0 + 180.0 * (14.0 * 0.99 - 13.0)),
            dirty_bytes: 221,
            used_bytes: None,
        };
        assert_eq!(points.last(), Some(&expected));
        let minutes = history.of("one", Range::Day).points;
        assert_eq!(minutes.iter().map(|point| point.time_seconds).collect::<Vec<_>>(), [160, 220]);
        assert_eq!((minutes[1].reads_per_second, minutes[1].read_hit_ratio), (10.0, Some(0.75)));
        assert_eq!(history.of("one", Range::Month).points, []);
        assert_eq!(history.of("two", Range::Day).points, []);
    }

    #[test]
    fn a_step_without_requests_has_neither_hits_nor_latencies() {
        let history = History::default();
        for time in [7, 8] {
            history.look(time, &[status(5)]);
        }
        let point = history.of("one", Range::Minutes).points[0];
        assert_eq!((point.read_hit_ratio, point.latency_p50_us, point.latency_p99_us), (None, None, None));
        assert_eq!((point.reads_per_second, point.dirty_bytes), (0.0, 5));
    }

    #[test]
    fn the_oldest_points_leave() {
        let history = History::default();
        (0..2000).for_each(|time| history.look(time, &[status(time)]));
        let points = history.of("one", Range::Minutes).points;
        assert_eq!((points.len(), points[0].time_seconds), (900, 1100));
    }

    /// The times of the points of a range.
    fn times(history: &History, range: Range) -> Vec<u64> {
        history.of("one", range).points.iter().map(|point| point.time_seconds).collect()
    }

    #[test]
    fn the_history_returns_without_outdated_points() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        let (history, told) = History::kept_in(&path, 0);
        assert_eq!(told, None);
        (10_000..=10_121).for_each(|time| history.look(time, &[status(time)]));
        history.keep(10_121);
        let last = history.of("one", Range::Minutes).points[120];
        // Only one server can write a history file.
        let (_, told) = History::kept_in(&path, 0);
        let expected =
            format!("the history is not kept in {}: another process keeps its history there", path.display());
        assert_eq!(told, Some(expected));
        drop(history);
        let (history, told) = History::kept_in(&path, 10_121);
        assert_eq!(told, None);
        assert_eq!(times(&history, Range::Minutes), (10_001..=10_121).collect::<Vec<_>>());
        assert_eq!(times(&history, Range::Day), [10_060, 10_120]);
        assert_eq!(history.of("one", Range::Minutes).points[120], last);
        // The series continues after a gap, without points for the time in between.
        (10_300..=10_302).for_each(|time| history.look(time, &[status(time - 10_000)]));
        assert_eq!(times(&history, Range::Minutes)[120..], [10_121, 10_301, 10_302]);
        history.keep(10_302);
        drop(history);
        let (history, _) = History::kept_in(&path, 10_302 + 899);
        assert_eq!((times(&history, Range::Minutes), times(&history, Range::Day).len()), (vec![10_302], 2));
    }

    fn event(text: &str) -> Event {
        let (volume, text) = (Some("one".to_owned()), text.to_owned());
        Event { number: 0, time_seconds: 9, volume, text, by: None, severity: Severity::Info }
    }

    #[test]
    fn events_come_back_and_their_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        for start in 0..3 {
            let (history, told) = History::kept_in(&path, 0);
            assert_eq!((told, history.events_after(0).len()), (None, (start * 600).min(1000)));
            for number in 0..600 {
                history.happened(Event { time_seconds: 7, ..event(&format!("start {start}, event {number}")) });
            }
            assert!(history.has_new_events());
            history.keep(8);
            assert!(!history.has_new_events());
            // A killed process loses the events after the last look.
            history.happened(event("never kept"));
        }
        let (history, _) = History::kept_in(&path, 0);
        let events = history.events_after(0);
        let last = Event { number: 1800, time_seconds: 7, ..event("start 2, event 599") };
        assert_eq!((events.len(), events[0].number, events.last()), (1000, 801, Some(&last)));
    }

    #[test]
    fn the_file_does_not_grow_with_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        let (history, _) = History::kept_in(&path, 0);
        let mut sizes = Vec::new();
        for hour in 1..=6 {
            for time in (hour * 3600..(hour + 1) * 3600).step_by(4) {
                history.look(time, &[status(time)]);
                if time % 60 == 0 {
                    history.keep(time);
                }
            }
            sizes.push(std::fs::metadata(&path).unwrap().len());
        }
        assert!(sizes[5] < 1 << 20 && sizes[5] == sizes[2], "{sizes:?}");
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        let whole = {
            let (history, _) = History::kept_in(&path, 0);
            (1000..=1300).for_each(|time| history.look(time, &[status(time)]));
            history.keep(1300);
            drop(history);
            std::fs::read(&path).unwrap()
        };
        let other = b"something else".to_vec();
        let cut = whole[..whole.len() / 3].to_vec();
        let mut torn = whole.clone();
        torn[..8192].fill(0x5a);
        let mut wrong = whole.clone();
        wrong.chunks_mut(4096).skip(1).for_each(|page| page[100..200].fill(0xff));
        for (what, bytes) in [("other", other), ("cut", cut), ("torn", torn), ("wrong", wrong)] {
            std::fs::write(&path, &bytes).unwrap();
            let (history, told) = History::kept_in(&path, 1300);
            let told = told.unwrap_or_else(|| panic!("{what}"));
            assert!(told.contains("is damaged: ") && told.contains("it was renamed to"), "{what}: {told}");
            assert_eq!(std::fs::read(folder.path().join("history.redb.damaged")).unwrap(), bytes, "{what}");
            assert!(times(&history, Range::Minutes).is_empty());
            (2000..=2010).for_each(|time| history.look(time, &[status(time)]));
            history.keep(2010);
            drop(history);
            let (history, told) = History::kept_in(&path, 2010);
            assert_eq!((told, times(&history, Range::Minutes).len()), (None, 10), "{what}");
        }
        let (_, told) = History::kept_in(&folder.path().join("nowhere/history.redb"), 0);
        assert!(told.is_some_and(|told| told.starts_with("the history is not kept in ")));
    }
}
