//! Merges the requests of several traces by time.
//!
//! Each trace is read by its own thread, a few batches ahead. The next request is the earliest of the next requests of
//! all traces; of equal times, the one of the trace that is named first. Requests of one trace keep their order
//! regardless of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use flashwise_core::filter::Caching;

use crate::error::TraceError;
use crate::formats::Batch;
use crate::progress::Progress;
use crate::request::{RecordedRequest, Request, Volumes};

/// The number of batches that are read ahead per trace.
const AHEAD: usize = 2;
/// Traces further apart than this, in microseconds, probably have different clocks.
const DAY_US: i64 = 86_400 * 1_000_000;
/// The number of requests in a merged batch.
const BATCH_REQUESTS: usize = 16 << 10;

/// Hands all batches of a trace to a function, until the function breaks off.
pub type Batches<'a> =
    Box<dyn FnOnce(&mut dyn FnMut(Batch) -> Result<ControlFlow<()>, TraceError>) -> Result<(), TraceError> + Send + 'a>;

/// A trace to merge with others.
pub struct Source<'a> {
    /// The name of the trace for messages.
    pub name: String,
    /// The requests of the trace.
    pub batches: Batches<'a>,
}

/// Hands the requests of `sources` to `consume` in the order of their times, until it breaks off.
///
/// If a trace does not distinguish volumes, its volume gets the name of the trace, so that different disks stay apart.
/// Named volumes are the same in all traces.
///
/// # Errors
/// Errors of the sources and of `consume`; a trace without times.
pub fn merge(
    sources: Vec<Source>,
    progress: &dyn Progress,
    mut consume: impl FnMut(Batch) -> Result<ControlFlow<()>, TraceError>,
) -> Result<(), TraceError> {
    thread::scope(|scope| {
        let started = sources.into_iter().map(|Source { name, batches }| {
            let (sender, receiver) = bounded(AHEAD);
            scope.spawn(move || send(batches, &sender));
            Trace::new(name, receiver)
        });
        // All traces are started before the first is waited for.
        let mut traces: Vec<Trace> = started.collect();
        let mut merged = Merged::default();
        let mut next = BinaryHeap::new();
        for (number, trace) in traces.iter_mut().enumerate() {
            if let Some(time_us) = trace.next_us(&mut merged, progress)? {
                next.push(Reverse((time_us, number)));
            }
        }
        while let Some(Reverse((_, number))) = next.pop() {
            // This trace continues until another one has an earlier request.
            let until = next.peek().map(|Reverse(other)| *other);
            let trace = &mut traces[number];
            while let Some(time_us) = trace.next_us(&mut merged, progress)? {
                if until.is_some_and(|other| other < (time_us, number)) {
                    next.push(Reverse((time_us, number)));
                    break;
                }
                if merged.is_full(trace.is_recorded()) && consume(merged.take())?.is_break() {
                    return Ok(());
                }
                trace.put(&mut merged);
            }
        }
        Trace::note_distant(&traces, progress);
        consume(merged.take()).map(|_| ())
    })
}

/// Sends the batches of a trace, and its error, if any.
fn send(batches: Batches, sender: &Sender<Result<Batch, TraceError>>) {
    let ended = batches(&mut |batch| {
        // The receiver is gone if the merge ended early.
        Ok(if sender.send(Ok(batch)).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    if let Err(error) = ended {
        let _ = sender.send(Err(error));
    }
}

/// Merged requests that are not yet handed on.
#[derive(Default)]
struct Merged {
    /// The volumes of all traces.
    volumes: Volumes,
    batch: Batch,
}

impl Merged {
    /// True if requests of this kind need another batch. A batch of recorded requests contains no others.
    fn is_full(&self, recorded: bool) -> bool {
        let Batch { requests, recorded: of_recordings, .. } = &self.batch;
        let len = requests.len().max(of_recordings.len());
        len >= BATCH_REQUESTS || len > 0 && recorded == of_recordings.is_empty()
    }

    fn take(&mut self) -> Batch {
        Batch { volumes: self.volumes.clone(), ..std::mem::take(&mut self.batch) }
    }
}

/// A trace during the merge.
struct Trace {
    name: String,
    receiver: Receiver<Result<Batch, TraceError>>,
    batch: Batch,
    /// The index of the batch's next request.
    next: usize,
    /// The index of its next recorded request.
    next_recorded: usize,
    /// For each volume of the batch, its number among those of all traces.
    volumes: Vec<u32>,
    /// The earliest and the latest time, once there is a request.
    times_us: Option<(i64, i64)>,
    requests: u64,
    has_told_volume: bool,
}

impl Trace {
    fn new(name: String, receiver: Receiver<Result<Batch, TraceError>>) -> Trace {
        Trace {
            name,
            receiver,
            batch: Batch::default(),
            next: 0,
            next_recorded: 0,
            volumes: Vec::new(),
            times_us: None,
            requests: 0,
            has_told_volume: false,
        }
    }

    fn is_recorded(&self) -> bool {
        !self.batch.recorded.is_empty()
    }

    /// Returns the time of the next request; none at the end.
    #[inline]
    fn next_us(&mut self, merged: &mut Merged, progress: &dyn Progress) -> Result<Option<i64>, TraceError> {
        loop {
            let next = match self.is_recorded() {
                true => self.batch.recorded.get(self.next_recorded).map(|request| request.time_us),
                false => self.batch.requests.get(self.next).map(|request| request.time_us),
            };
            if next.is_some() {
                return Ok(next);
            }
            let Ok(received) = self.receiver.recv() else {
                return self.check_times().map(|()| None);
            };
            self.begin(received?, merged, progress);
        }
    }

    /// Starts the next batch.
    fn begin(&mut self, batch: Batch, merged: &mut Merged, progress: &dyn Progress) {
        self.batch = batch;
        (self.next, self.next_recorded) = (0, 0);
        self.volumes.clear();
        let tells_none = self.batch.volumes.tells_none();
        for name in self.batch.volumes.names() {
            let name = if tells_none { self.name.as_bytes() } else { name };
            self.volumes.push(merged.volumes.number(name));
        }
        if !self.has_told_volume && tells_none {
            self.has_told_volume = true;
            progress.note(&self.name, "its blocks are a volume of their own, since it names none");
        }
        // Skipped records have no time.
        let Batch { malformed, records, skipped, .. } = &mut self.batch;
        merged.batch.malformed.append(malformed);
        merged.batch.records += std::mem::take(records);
        merged.batch.skipped += std::mem::take(skipped);
        for time_us in self.batch.requests.iter().map(|request| request.time_us) {
            let (first, last) = self.times_us.unwrap_or((time_us, time_us));
            self.times_us = Some((first.min(time_us), last.max(time_us)));
        }
        self.requests += self.batch.requests.len() as u64;
    }

    /// Moves the next request to the merged ones.
    #[inline]
    fn put(&mut self, merged: &mut Merged) {
        let is_access = match self.batch.recorded.get(self.next_recorded) {
            Some(request) => {
                let volume = self.volumes[request.volume as usize];
                merged.batch.recorded.push(RecordedRequest { volume, ..*request });
                self.next_recorded += 1;
                request.access().is_some() && request.length_bytes > 0
            }
            None => true,
        };
        if !is_access {
            return;
        }
        let Some(request) = self.batch.requests.get(self.next) else { return };
        let volume = self.volumes[request.volume as usize];
        if let Some(caching) = self.batch.caching.get(self.next) {
            // Other traces may have been read without a filter.
            merged.batch.caching.resize(merged.batch.requests.len(), Caching::default());
            merged.batch.caching.push(*caching);
        }
        merged.batch.requests.push(Request { volume, ..*request });
        self.next += 1;
    }

    /// Rejects a trace whose requests all have the time 0: its format has no times.
    fn check_times(&self) -> Result<(), TraceError> {
        if self.requests < 2 || self.times_us != Some((0, 0)) {
            return Ok(());
        }
        let found = "requests without times".to_owned();
        let expected =
            "times to merge it by; `flashwise trace concat --apart` puts traces one after another".to_owned();
        Err(TraceError::Sources { path: self.name.clone(), found, expected })
    }

    /// Reports each trace that is far apart from all others in time: their clocks may have different epochs.
    fn note_distant(traces: &[Trace], progress: &dyn Progress) {
        for (number, trace) in traces.iter().enumerate() {
            let Some((first, last)) = trace.times_us else { continue };
            let is_near = |(other, times): (usize, Option<(i64, i64)>)| {
                let within = |(other_first, other_last): (i64, i64)| {
                    other_first.saturating_sub(DAY_US) <= last && first <= other_last.saturating_add(DAY_US)
                };
                other != number && times.is_some_and(within)
            };
            let mut others = traces.iter().map(|trace| trace.times_us).enumerate();
            if traces.len() > 1 && !others.any(is_near) {
                progress
                    .note(&trace.name, "no other trace has requests within a day of its own: their clocks may differ");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use flashwise_core::access::Op;
    use flashwise_core::recording::{Flags, Operation};
    use proptest::prelude::*;

    use super::*;
    use crate::progress::Silent;

    fn request(time_us: i64, volume: u32, offset_bytes: u64) -> Request {
        Request { time_us, op: Op::Read, volume, offset_bytes, length_bytes: 1 }
    }

    /// Creates a trace with these batches of requests.
    fn source<'a>(name: &str, volumes: &[&str], batches: Vec<Vec<Request>>) -> Source<'a> {
        let mut named = Volumes::default();
        for volume in volumes {
            assert!(if *volume == "0" { named.only() } else { named.number(volume.as_bytes()) } < 9);
        }
        let batch = move |requests| Batch { requests, volumes: named.clone(), ..Batch::default() };
        let batches: Vec<Batch> = batches.into_iter().map(batch).collect();
        of_batches(name, batches)
    }

    fn of_batches<'a>(name: &str, batches: Vec<Batch>) -> Source<'a> {
        let batches: Batches = Box::new(move |consume| {
            for batch in batches {
                if consume(batch)?.is_break() {
                    break;
                }
            }
            Ok(())
        });
        Source { name: name.to_owned(), batches }
    }

    /// Returns the requests, each with the name of its volume.
    fn merged(sources: Vec<Source>) -> Result<Vec<(i64, String, u64)>, TraceError> {
        let mut all = Vec::new();
        merge(sources, &Silent, |batch| {
            let volume = |number: u32| String::from_utf8(batch.volumes.names()[number as usize].clone()).unwrap();
            all.extend(batch.requests.iter().map(|read| (read.time_us, volume(read.volume), read.offset_bytes)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    #[test]
    fn requests_come_by_their_times_and_of_equal_ones_as_their_traces_are_named() {
        let a =
            source("a.csv", &["0"], vec![vec![request(1, 0, 10), request(5, 0, 11)], vec![], vec![request(9, 0, 12)]]);
        let b = source("b.csv", &["web", "db"], vec![vec![request(5, 1, 20), request(4, 0, 21), request(6, 0, 22)]]);
        let expected =
            [(1, "a.csv", 10), (5, "a.csv", 11), (5, "db", 20), (4, "web", 21), (6, "web", 22), (9, "a.csv", 12)];
        let expected: Vec<_> = expected.map(|(time, volume, at)| (time, volume.to_owned(), at)).into();
        assert_eq!(merged(vec![a, b]).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn merging_is_a_stable_sort_of_ordered_traces(
            times in prop::collection::vec(prop::collection::vec(0..50_i64, 0..60), 1..6),
            batch in 1..20_usize,
        ) {
            let (mut sources, mut expected) = (Vec::new(), Vec::new());
            for (number, times) in times.into_iter().enumerate() {
                let mut times: Vec<i64> = times.into_iter().map(|time| time + 1).collect();
                times.sort_unstable();
                let name = number.to_string();
                let requests: Vec<Request> =
                    times.iter().enumerate().map(|(at, &time)| request(time, 0, at as u64)).collect();
                expected.extend(requests.iter().map(|read| (read.time_us, format!("v{name}"), read.offset_bytes)));
                let batches = requests.chunks(batch).map(<[Request]>::to_vec).collect();
                sources.push(source(&name, &[&format!("v{name}")], batches));
            }
            expected.sort_by_key(|(time, ..)| *time);
            prop_assert_eq!(merged(sources).unwrap(), expected);
        }
    }

    #[test]
    fn recordings_keep_other_events_and_are_not_mixed() {
        let recorded = |time_us, operation, length_bytes| RecordedRequest {
            time_us,
            volume: 0,
            operation,
            offset_bytes: 0,
            length_bytes,
            flags: Flags::default(),
        };
        let all =
            vec![recorded(1, Operation::Read, 1), recorded(3, Operation::Flush, 0), recorded(4, Operation::Write, 1)];
        let requests = all.iter().filter_map(RecordedRequest::access).collect();
        let mut volumes = Volumes::default();
        volumes.number(b"v");
        let recording = of_batches("r", vec![Batch { requests, recorded: all, volumes, ..Batch::default() }]);
        let other = source("o", &["w"], vec![vec![request(2, 0, 0), request(5, 0, 0)]]);
        let mut found = Vec::new();
        merge(vec![recording, other], &Silent, |batch| {
            let times = |requests: &[Request]| requests.iter().map(|request| request.time_us).collect::<Vec<_>>();
            found.push((
                times(&batch.requests),
                batch.recorded.iter().map(|request| request.time_us).collect::<Vec<_>>(),
            ));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(found, [(vec![1], vec![1]), (vec![2], vec![]), (vec![4], vec![3, 4]), (vec![5], vec![])]);
    }

    #[test]
    fn an_error_of_one_trace_ends_the_merge() {
        let long = || source("long", &["v"], (0..100).map(|at| vec![request(at, 0, 0)]).collect());
        let broken: Batches = Box::new(|consume| {
            consume(Batch::default())?.is_break();
            Err(TraceError::Empty { path: "broken".to_owned() })
        });
        let broken = Source { name: "broken".to_owned(), batches: broken };
        assert_eq!(merged(vec![long(), broken]).unwrap_err().to_string(), "broken: it holds no requests");
        let timeless = source("timeless", &["v"], vec![vec![request(0, 0, 0), request(0, 0, 1)]]);
        let error = merged(vec![long(), timeless]).unwrap_err().to_string();
        assert!(error.starts_with("timeless: found requests without times, expected times to merge it by;"), "{error}");
        let mut batches = 0;
        let broken_off = merge(vec![long(), long()], &Silent, |_| {
            batches += 1;
            Ok(ControlFlow::Break(()))
        });
        assert!(broken_off.is_ok() && batches == 1);
    }

    #[test]
    fn traces_with_distant_times_are_noted() {
        struct Notes(Mutex<Vec<String>>);
        impl Progress for Notes {
            fn advance(&self, _: u64) {}
            fn note(&self, path: &str, what: &str) {
                self.0.lock().unwrap().push(format!("{path}: {what}"));
            }
        }
        let at = |name: &str, times: &[i64]| {
            source(name, &["v"], vec![times.iter().map(|&time| request(time, 0, 0)).collect()])
        };
        let notes = Notes(Mutex::new(Vec::new()));
        let sources = vec![at("a", &[1, 5]), at("b", &[DAY_US + 3]), at("c", &[2 * DAY_US + 4])];
        merge(sources, &notes, |_| Ok(ControlFlow::Continue(()))).unwrap();
        let told = notes.0.into_inner().unwrap();
        assert_eq!(told, ["c: no other trace has requests within a day of its own: their clocks may differ"]);
    }
}
