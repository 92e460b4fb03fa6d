//! Joins traces one after another into a single trace.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::files::{name_of, temporary_file};
use crate::formats::Batch;
use crate::normalised::trace::Trace;
use crate::normalised::{Description, Normaliser, Settings, check_block_size};
use crate::output::{output_name, write_whole};
use crate::progress::Progress;
use crate::request::Volumes;
use crate::request_file::{RequestFile, RequestWriter};
use crate::requests::{Requests, about, block_size_bytes};
use flashwise_core::human;

/// The options for joining traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Concat {
    /// True if equal addresses in different traces are different blocks: volume V of the n-th trace becomes n:V.
    pub apart: bool,
    /// The time from the last request of a trace to the first of the next.
    pub gap_us: u64,
}

/// Writes the traces at `paths` as one normalised trace to `out`. `progress` receives the number of bytes read.
///
/// # Errors
/// Normalised traces with different block sizes; other traces are read with the common one.
pub fn concat(
    paths: &[PathBuf],
    out: impl AsRef<Path>,
    concat: Concat,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Description, TraceError> {
    let (out, out_name) = (out.as_ref(), output_name(out.as_ref()));
    let open = |path: &PathBuf| Requests::open(path, settings, progress);
    let traces = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let block_size_bytes = block_size_bytes(&traces, settings)?;
    write_whole(out, paths, |file| {
        let mut normaliser = Normaliser::to(&out_name, &out_name, block_size_bytes, file)?;
        normaliser.description = about(&traces);
        let mut end_us: Option<i64> = None;
        for (number, requests) in traces.into_iter().enumerate() {
            let prefix = concat.apart.then(|| format!("{}:", number + 1));
            let start_us = end_us.map(|end_us| end_us.saturating_add_unsigned(concat.gap_us));
            let shift = |first_us: i64| start_us.map_or(0, |start_us| start_us.saturating_sub(first_us));
            let name = requests.name().to_owned();
            end_us = append(requests, &mut normaliser, prefix.as_deref(), shift, &mut |_| Ok(()))?;
            if end_us.is_none() {
                return Err(TraceError::Empty { path: name });
            }
        }
        let description = normaliser.described();
        normaliser.finish()?;
        Ok(description)
    })
}

/// Opens traces as one, each after the previous one, such as the segments of a recording. A trace keeps its times if
/// they continue after the end of the previous one. Otherwise, as after a restart of a server, whose clock begins at 0,
/// they are shifted by whole seconds. They are also shifted after a gap that is longer than a minute and than any
/// recording before it. Such a gap does not count as time. Notes name the gaps, and recordings in the wrong order.
/// Traces without requests are ignored.
///
/// # Errors
/// Those of [`concat()`]; no requests in any trace.
pub fn join(paths: &[PathBuf], settings: &Settings, progress: &dyn Progress) -> Result<Trace, TraceError> {
    join_with(paths, settings, progress, |_| Ok(()))
}

/// Works like [`join`], and also returns the original requests.
///
/// # Errors
/// Those of [`join`]; a block size other than that of a cache.
pub fn join_with_requests(
    paths: &[PathBuf],
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(Trace, RequestFile), TraceError> {
    let mut writer = RequestWriter::new()?;
    let trace = join_with(paths, settings, progress, |batch| writer.batch(batch))?;
    check_block_size(trace.name(), trace.block_size_bytes())?;
    let requests = writer.finish(trace.name())?;
    Ok((trace, requests))
}

fn join_with(
    paths: &[PathBuf],
    settings: &Settings,
    progress: &dyn Progress,
    mut tap: impl FnMut(&Batch) -> Result<(), TraceError>,
) -> Result<Trace, TraceError> {
    let name = match paths {
        [] => String::new(),
        [path] => name_of(path),
        [first, .., last] => format!("{}..{}", name_of(first), name_of(last)),
    };
    let mut traces = Vec::new();
    for path in paths {
        match Requests::open(path, settings, progress) {
            Ok(requests) => traces.push(requests),
            // Its server was killed before it wrote anything.
            Err(TraceError::Empty { .. }) => progress.ends_early(&name_of(path), 0),
            Err(error) => return Err(error),
        }
    }
    let out = BufWriter::with_capacity(1 << 20, temporary_file()?);
    let mut normaliser = Normaliser::new(&name, block_size_bytes(&traces, settings)?, out)?;
    normaliser.description = about(&traces);
    let mut timeline = Timeline { progress, last: None, longest_us: 0 };
    for requests in traces {
        let name = requests.name().to_owned();
        let mut placed = None;
        let shift = |first_us| placed.insert(timeline.place(name, first_us)).shift_us;
        let last_us = append(requests, &mut normaliser, None, shift, &mut tap)?;
        if let (Some(placed), Some(last_us)) = (placed, last_us) {
            timeline.push(Recording { last_us, ..placed });
        }
    }
    let file = normaliser.finish()?.into_inner();
    let file = file.map_err(|error| TraceError::Io { path: name.clone(), source: error.into_error() })?;
    Trace::map(&name, &file)
}

const SECOND_US: i64 = 1_000_000;
/// The minimum length of a gap, in microseconds; shorter ones are idle time.
const GAP_US_MIN: i64 = 60 * SECOND_US;

/// A recording in the common timeline.
#[derive(Clone, Debug)]
struct Recording {
    name: String,
    /// The time of its first request by its own clock.
    first_us: i64,
    /// The shift that is added to its times.
    shift_us: i64,
    /// The shifted time of its last request.
    last_us: i64,
    /// The shifted start of the recordings that continue up to this one without a gap.
    start_us: i64,
}

/// The common timeline of the joined recordings.
struct Timeline<'a> {
    progress: &'a dyn Progress,
    last: Option<Recording>,
    /// The longest time without a gap.
    longest_us: i64,
}

impl Timeline<'_> {
    /// Places a recording whose first request is at `first_us` after the last one.
    fn place(&self, name: String, first_us: i64) -> Recording {
        let Some(last) = &self.last else {
            return Recording { name, first_us, shift_us: 0, last_us: first_us, start_us: first_us };
        };
        let behind_us = last.last_us.saturating_sub(first_us.saturating_add(last.shift_us));
        let mut start_us = last.start_us;
        // Requests recorded by different threads may be slightly out of order.
        let moved_us = if behind_us > SECOND_US {
            behind_us.saturating_add((SECOND_US - behind_us % SECOND_US) % SECOND_US)
        } else if behind_us < -GAP_US_MIN.max(self.longest_us) {
            let gap_us = behind_us.saturating_neg();
            let gap = human::duration(gap_us.unsigned_abs() as f64);
            let what = format!("it begins {gap} after {} ends: the gap is left out of all times and rates", last.name);
            self.progress.note(&name, &what);
            gap_us % SECOND_US - gap_us
        } else {
            0
        };
        let shift_us = last.shift_us.saturating_add(moved_us);
        if moved_us != 0 {
            start_us = first_us.saturating_add(shift_us);
        }
        Recording { name, first_us, shift_us, last_us: start_us, start_us }
    }

    /// Adds a recording whose last request is known.
    fn push(&mut self, recording: Recording) {
        if let Some(last) = &self.last
            && is_earlier(&recording, last)
        {
            let what = format!("it seems to be from before {}, which it is given after", last.name);
            self.progress.note(&recording.name, &format!("{what}: give recordings in the order of time"));
        }
        self.longest_us = self.longest_us.max(recording.last_us.saturating_sub(recording.start_us));
        self.last = Some(recording);
    }
}

/// True if `next` seems earlier than `last`: its name has a smaller number, or without numbers, it ends before `last`
/// begins.
fn is_earlier(next: &Recording, last: &Recording) -> bool {
    match (numbered(&next.name), numbered(&last.name)) {
        (Some((next, number)), Some((last, before))) if next == last => number < before,
        _ => next.last_us.saturating_sub(next.shift_us) <= last.first_us && next.first_us < last.first_us,
    }
}

/// Returns the number of a segment, `000001` of `requests.000001.csv.zst`, and the name without it.
fn numbered(name: &str) -> Option<(String, u64)> {
    let is_number = |part: &&str| part.len() >= 6 && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = name.rsplit('.').find(is_number)?;
    Some((name.replace(number, ""), number.parse().ok()?))
}

/// Adds one trace. `shift` computes the shift of its times from the first one. `tap` receives each batch as it is
/// added. Returns the time of its last request, if it has any.
fn append<W: Write>(
    requests: Requests,
    normaliser: &mut Normaliser<W>,
    prefix: Option<&str>,
    shift: impl FnOnce(i64) -> i64,
    tap: &mut dyn FnMut(&Batch) -> Result<(), TraceError>,
) -> Result<Option<i64>, TraceError> {
    let (mut shift, mut shift_us, mut last_us) = (Some(shift), 0, None);
    requests.for_each_batch(normaliser.block_size_bytes(), &mut |mut batch| {
        if let Some(prefix) = prefix {
            batch.volumes = prefixed(&batch.volumes, prefix);
        }
        // The requests of a recording are in both lists, except that other operations than accesses are in one only.
        let first = batch.recorded.first().map(|request| request.time_us);
        if let Some(first_us) = first.or(batch.requests.first().map(|request| request.time_us)) {
            if let Some(shift) = shift.take() {
                shift_us = shift(first_us);
            }
            let recorded = batch.recorded.iter_mut().map(|request| &mut request.time_us);
            for time_us in recorded.chain(batch.requests.iter_mut().map(|request| &mut request.time_us)) {
                *time_us = time_us.saturating_add(shift_us);
                last_us = last_us.max(Some(*time_us));
            }
        }
        tap(&batch)?;
        normaliser.batch(batch).map(ControlFlow::Continue)
    })?;
    Ok(last_us)
}

fn prefixed(volumes: &Volumes, prefix: &str) -> Volumes {
    let mut prefixed = Volumes::default();
    for name in volumes.names() {
        prefixed.number(&[prefix.as_bytes(), name].concat());
    }
    prefixed
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Collects notes.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Progress for Notes {
        fn advance(&self, _: u64) {}

        fn note(&self, path: &str, what: &str) {
            self.0.lock().unwrap().push(format!("{path}: {what}"));
        }
    }

    /// Returns the shifts of recordings with these names and first and last times, and the notes.
    fn placed(recordings: &[(&str, i64, i64)]) -> (Vec<i64>, Vec<String>) {
        let notes = Notes::default();
        let mut timeline = Timeline { progress: &notes, last: None, longest_us: 0 };
        let place = |(name, first_us, last_us): &(&str, i64, i64)| {
            let placed = timeline.place((*name).to_owned(), *first_us);
            let shift_us = placed.shift_us;
            timeline.push(Recording { last_us: last_us.saturating_add(shift_us), ..placed });
            shift_us
        };
        (recordings.iter().map(place).collect(), notes.0.into_inner().unwrap())
    }

    #[test]
    fn a_trace_that_does_not_go_on_is_moved_by_whole_seconds_to_the_end_of_the_one_before() {
        for (last_us, first_us, shift_us) in [
            (5_000_000, 5_000_001, 0),
            (5_000_000, 4_999_990, 0),
            (5_000_000, 0, 5_000_000),
            (5_300_000, 200_000, 6_000_000),
            (i64::MAX, i64::MIN, i64::MAX),
        ] {
            assert_eq!(
                placed(&[("a", 0, last_us), ("b", first_us, first_us)]).0,
                [0, shift_us],
                "{last_us} {first_us}"
            );
        }
        // The clock of the second continues in the third, with the time between them.
        assert_eq!(placed(&[("a", 0, 5 * S), ("b", 0, 2 * S), ("c", 9 * S, 10 * S)]).0, [0, 5 * S, 5 * S]);
    }

    const S: i64 = SECOND_US;
    const DAY: i64 = 86_400 * S;

    #[test]
    fn gaps_longer_than_the_recordings_are_named_and_left_out() {
        // Two minutes each, two days apart, and a fraction of a second that stays; the third starts a second later, and
        // the last an hour.
        let all = [
            ("a", 0, 120 * S),
            ("b", 2 * DAY + 7, 2 * DAY + 120 * S),
            ("c", 2 * DAY + 121 * S, 2 * DAY + 180 * S),
            ("d", 2 * DAY + 3_780 * S, 2 * DAY + 3_900 * S),
        ];
        let (shifts, notes) = placed(&all);
        assert_eq!(shifts, [0, 120 * S - 2 * DAY, 120 * S - 2 * DAY, 120 * S - 2 * DAY - 3_600 * S]);
        let left_out = "the gap is left out of all times and rates";
        assert_eq!(
            notes,
            [
                format!("b: it begins 2 d after a ends: {left_out}"),
                format!("d: it begins 1 h after c ends: {left_out}")
            ]
        );
        // Idle time is not a gap: a minute, or a night between two days.
        for kept in [[("a", 0, 0), ("b", 60 * S, 61 * S)], [("a", 0, DAY), ("b", DAY + DAY / 2, 2 * DAY)]] {
            assert_eq!(placed(&kept), (vec![0, 0], vec![]));
        }
    }

    /// Two recordings of a second, three days apart, last two seconds together, as a trace and as requests.
    #[test]
    fn a_gap_is_no_part_of_the_time_of_a_joined_trace() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, start_us: i64| {
            let row = |at: i64| {
                format!("{},v,{},{},4096,\n", start_us + 10_000 * at, ["read", "flush"][at as usize % 2], 4096 * at)
            };
            let rows: String = (0..101).map(row).collect();
            let path = folder.path().join(name);
            std::fs::write(&path, format!("{}\n{rows}", flashwise_core::recording::HEADER)).unwrap();
            path
        };
        let paths = [write("r.000001.csv", 0), write("r.000002.csv", 3 * DAY + 500_000)];
        let notes = Notes::default();
        let (trace, _) = join_with_requests(&paths, &Settings::default(), &notes).unwrap();
        assert_eq!((trace.times().duration_us(), trace.times().late_requests), (2_500_000, 0));
        let notes = notes.0.into_inner().unwrap();
        assert!(notes.len() == 1 && notes[0].contains("r.000002.csv: it begins 3 d after "), "{notes:?}");
    }

    #[test]
    fn recordings_in_the_wrong_order_are_named() {
        let wrong = |name: &str, before: &str| {
            format!(
                "{name}: it seems to be from before {before}, which it is given after: give recordings in the order of \
                 time"
            )
        };
        let (monday, tuesday) = (("mon.csv", 0, 9 * S), ("tue.csv", DAY, DAY + 9 * S));
        assert_eq!(placed(&[tuesday, monday]).1, [wrong("mon.csv", "tue.csv")]);
        let (second, first) = (("r.000002.csv", 5 * S, 9 * S), ("r.000001.csv", 0, 7 * S));
        assert_eq!(placed(&[second, first]).1, [wrong("r.000001.csv", "r.000002.csv")]);
        // Increasing numbers: the clock restarted with the server.
        assert_eq!(placed(&[("r.000009.csv", 50 * S, 90 * S), ("r.000010.csv", 0, 7 * S)]).1, [""; 0]);
        // One after another, each from 0.
        assert_eq!(placed(&[("a.csv", 0, 9 * S), ("b.csv", 0, 7 * S)]).1, [""; 0]);
    }
}
