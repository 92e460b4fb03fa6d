//! Records every request in files that `flashwise simulate` and `flashwise trace` read, to answer "what if" questions
//! about a live workload.
//!
//! Source: this project's trace format `flashwise`: a header line, then a line for each [`Row`](recording::Row),
//! compressed with zstd (RFC 8878) if the path ends in `.zst`. Recording a request costs one push to a queue of fixed
//! size; another thread formats and writes. If the queue is full, requests are dropped and counted. Requests are in
//! complete files within 2 s, so a killed server loses no more than that. [`segments`] has the files.

pub mod segments;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::time::Mutex;
use crossbeam_queue::ArrayQueue;
use flashwise_core::filter::Caching;
use flashwise_core::quantity::ByteSize;
use flashwise_core::recording::{self, Flags};

use crate::export::{Operation, Request};
use crate::status::{RecordingState, RecordingStatus};
pub use segments::Limits;
use segments::Segments;

/// Length of the queue. Its 10 MiB hold the requests of 0.9 s at 300,000 per second, while the writing thread waits for
/// a processor.
const QUEUE_REQUESTS: usize = 1 << 18;
/// Interval between checks of the queue.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum time from a request to its write.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum bytes of lines in one write. The smallest segment has room for three of them.
const PIECE_BYTES: usize = 256 << 10;
/// Minimum of both limits.
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// Default size of a segment, as users write it.
pub const SEGMENT_SIZE: &str = "1GiB";
/// Default limit of all segments together, as users write it.
pub const SIZE_MAX: &str = "10GiB";

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecordError {
    #[error("cannot record to {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error("cannot record volume '{name}': found a comma, quote or control character in its name, expected none")]
    Name { name: String },
    #[error("cannot record to {}: no thread: {error}", path.display())]
    Thread { path: PathBuf, error: io::Error },
    #[error("the recording {path} ends early: {error}; {dropped} requests are missing")]
    Write { path: String, error: String, dropped: u64 },
}

impl RecordError {
    /// True if a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        match self {
            RecordError::Folder { .. } | RecordError::Name { .. } => true,
            RecordError::Thread { .. } | RecordError::Write { .. } => false,
        }
    }
}

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    time_us: u64,
    volume: u32,
    operation: Operation,
    force_unit_access: bool,
    caching: Caching,
    offset: u64,
    length: u64,
}

/// State that recording threads and the writing thread share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    limits: Limits,
    volumes: Vec<String>,
    queue: ArrayQueue<Queued>,
    dropped: AtomicU64,
    written: AtomicU64,
    finishing: AtomicBool,
    files: Mutex<Files>,
}

/// The state of the files.
#[derive(Clone, Debug, Default)]
struct Files {
    segment: Option<PathBuf>,
    bytes: u64,
    is_full: bool,
    error: Option<String>,
}

/// Records requests until it is [finished](Self::finish) or dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Starts a recording of requests to these volumes, in a new [segment](segments::Names) after the existing ones.
    pub fn start(path: &Path, limits: Limits, volumes: &[String]) -> Result<Recorder, RecordError> {
        let segments = Segments::new(path, limits);
        Recorder::to(path, limits, volumes, segments)
    }

    fn to(
        path: &Path,
        limits: Limits,
        volumes: &[String],
        segments: io::Result<Segments>,
    ) -> Result<Recorder, RecordError> {
        let breaks_lines = |letter: char| matches!(letter, ',' | '"') || letter.is_control();
        if let Some(name) = volumes.iter().find(|name| name.contains(breaks_lines)) {
            return Err(RecordError::Name { name: name.clone() });
        }
        let segments = segments.map_err(|error| RecordError::Folder { path: path.to_owned(), error })?;
        let shared = Arc::new(Shared::new(path, limits, volumes, QUEUE_REQUESTS));
        shared.tell(&segments);
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("flashwise-record".to_owned());
        let writer = thread.spawn(move || for_thread.write_all(segments));
        let writer = writer.map_err(|error| RecordError::Thread { path: path.to_owned(), error })?;
        Ok(Recorder { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Records a request to the volume with this index in the list of [`start`](Self::start). The time may be on any
    /// clock that all volumes share. Never waits. Requests of one thread stay in order. To keep the order of several
    /// threads, call it under the lock that orders them.
    #[inline]
    pub fn record(&self, time_us: u64, volume: u32, request: &Request) {
        let named = self.shared.volumes.len();
        assert!((volume as usize) < named, "volume {volume} was not named when the recording began");
        let Request { operation, offset, length, force_unit_access, caching, .. } = *request;
        let row = Queued { time_us, volume, operation, force_unit_access, caching, offset, length };
        if self.shared.queue.push(row).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The path of the files, with NUMBER as a placeholder.
    pub fn pattern(&self) -> String {
        segments::Names::of(&self.shared.path).pattern()
    }

    /// Returns the status.
    pub fn status(&self) -> RecordingStatus {
        self.shared.status()
    }

    /// Writes the queued requests and ends the recording. A second call does nothing, and later requests are lost.
    ///
    /// # Errors
    /// A write has failed since the start.
    pub fn finish(&self) -> Result<RecordingStatus, RecordError> {
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            self.shared.finishing.store(true, Ordering::Release);
            writer.thread().unpark();
            writer.join().expect("writing a recording does not panic");
        }
        let status = self.status();
        match (status.state, status.error.clone()) {
            (RecordingState::Failed, Some(error)) => {
                Err(RecordError::Write { path: status.path, error, dropped: status.dropped_requests })
            }
            _ => Ok(status),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Callers that handle errors have called `finish` before.
        let _ = self.finish();
    }
}

impl Shared {
    fn new(path: &Path, limits: Limits, volumes: &[String], queue_requests: usize) -> Shared {
        Shared {
            path: path.to_owned(),
            limits,
            volumes: volumes.to_vec(),
            queue: ArrayQueue::new(queue_requests),
            dropped: AtomicU64::new(0),
            written: AtomicU64::new(0),
            finishing: AtomicBool::new(false),
            files: Mutex::default(),
        }
    }

    fn status(&self) -> RecordingStatus {
        let Files { segment, bytes, is_full, error } = self.files.lock().clone();
        let full = || {
            let most = ByteSize::new(self.limits.total_bytes_max);
            format!("its segments have reached record-size-max, {most}; move some away, or set a larger one")
        };
        let state = match (&error, is_full) {
            (Some(_), _) => RecordingState::Failed,
            (None, true) => RecordingState::Full,
            (None, false) => RecordingState::Recording,
        };
        RecordingStatus {
            path: self.path.display().to_string(),
            segment: segment.map(|path| path.display().to_string()),
            state,
            size_bytes: bytes,
            size_bytes_max: self.limits.total_bytes_max,
            recorded_requests: self.written.load(Ordering::Relaxed),
            dropped_requests: self.dropped.load(Ordering::Relaxed),
            error: error.or_else(|| is_full.then(full)),
        }
    }

    /// Updates the status of the files, and logs if they became full or have room again.
    fn tell(&self, segments: &Segments) {
        let mut files = self.files.lock();
        let was_full = files.is_full;
        files.segment = segments.last_path().map(Path::to_owned);
        (files.bytes, files.is_full) = (segments.bytes(), segments.is_full());
        let is_full = files.is_full;
        drop(files);
        let path = self.path.display();
        match (was_full, is_full) {
            (false, true) => {
                let error = self.status().error.unwrap_or_default();
                tracing::warn!(event = "recording-stopped", %path, error, "the recording stops");
            }
            (true, false) => {
                tracing::info!(event = "recording-resumed", %path, "the recording continues: it has room again")
            }
            _ => {}
        }
    }

    /// Runs the writing thread.
    fn write_all(&self, mut segments: Segments) {
        let mut piece = Piece::default();
        if let Err(error) = self.write_until_finished(&mut segments, &mut piece) {
            self.dropped.fetch_add(piece.rows, Ordering::Relaxed);
            tracing::error!(event = "recording-failed", path = %self.path.display(), %error, "the recording ends");
            self.files.lock().error = Some(error.to_string());
            self.drop_until_finished();
        }
    }

    fn write_until_finished(&self, segments: &mut Segments, piece: &mut Piece) -> io::Result<()> {
        let mut written_at = Instant::now();
        loop {
            // Read first, so that no request from before the flag is left in the queue.
            let finishing = self.finishing.load(Ordering::Acquire);
            let mut taken = 0;
            // Limited, because under a steady stream the queue never becomes empty.
            while taken < self.queue.capacity()
                && let Some(row) = self.queue.pop()
            {
                piece.add(&row, &self.volumes[row.volume as usize])?;
                taken += 1;
                if piece.lines.len() >= PIECE_BYTES {
                    self.append(segments, piece)?;
                }
            }
            let ends = finishing && self.queue.is_empty();
            if ends || written_at.elapsed() >= WRITE_INTERVAL {
                written_at = Instant::now();
                self.append(segments, piece)?;
            }
            if ends {
                return Ok(());
            }
            if taken < self.queue.capacity() / 4 && !finishing {
                thread::park_timeout(PAUSE);
            }
        }
    }

    /// Writes a piece, unless it is empty.
    fn append(&self, segments: &mut Segments, piece: &mut Piece) -> io::Result<()> {
        if piece.rows == 0 {
            return Ok(());
        }
        let count = if segments.append(&piece.lines)? { &self.written } else { &self.dropped };
        count.fetch_add(piece.rows, Ordering::Relaxed);
        piece.clear();
        self.tell(segments);
        Ok(())
    }

    /// Drops all requests after a failure.
    fn drop_until_finished(&self) {
        loop {
            let finishing = self.finishing.load(Ordering::Acquire);
            while self.queue.pop().is_some() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            if finishing {
                return;
            }
            thread::park_timeout(PAUSE);
        }
    }
}

/// Lines that are not written yet.
#[derive(Debug, Default)]
struct Piece {
    lines: Vec<u8>,
    rows: u64,
}

impl Piece {
    fn clear(&mut self) {
        self.lines.clear();
        self.rows = 0;
    }

    fn add(&mut self, row: &Queued, volume: &str) -> io::Result<()> {
        // Counted first, so that a row that fails counts as missing.
        self.rows += 1;
        let Queued { time_us, operation, force_unit_access, caching, offset, length, .. } = *row;
        let (no_hole, only_if_fast) = match operation {
            Operation::WriteZeroes { may_punch_holes, only_if_fast } => (!may_punch_holes, only_if_fast),
            _ => (false, false),
        };
        let flags = Flags { force_unit_access, no_hole, only_if_fast, caching };
        let (operation, offset_bytes, length_bytes) = (operation.recorded(), offset, length);
        let row = recording::Row { time_us, volume, operation, offset_bytes, length_bytes, flags };
        writeln!(self.lines, "{row}")
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::recording::HEADER;

    use super::segments::Names;
    use super::*;

    const UNLIMITED: Limits = Limits { segment_bytes_max: u64::MAX, total_bytes_max: u64::MAX };

    fn request(operation: Operation, offset: u64) -> Request {
        let force_unit_access = operation == Operation::Write;
        Request { operation, offset, length: 4096, force_unit_access, data: Vec::new(), caching: Default::default() }
    }

    /// A file on a full device.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn requests_beyond_the_queue_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        // The queue of four is not read until all six are recorded.
        let shared = Arc::new(Shared::new(&path, UNLIMITED, &["a".to_owned()], 4));
        let recorder = Recorder { shared: Arc::clone(&shared), writer: Mutex::new(None) };
        for number in 0..6 {
            recorder.record(number, 0, &request(Operation::Read, 4096 * number));
        }
        assert_eq!(recorder.status().dropped_requests, 2);
        shared.finishing.store(true, Ordering::Release);
        shared.write_all(Segments::new(&path, UNLIMITED).unwrap());
        let status = recorder.finish().unwrap();
        assert_eq!((status.recorded_requests, status.dropped_requests), (4, 2));
        let lines = (0..4).map(|number| format!("{number},a,read,{},4096,\n", 4096 * number)).collect::<String>();
        assert_eq!(std::fs::read_to_string(Names::of(&path).path(1)).unwrap(), format!("{HEADER}\n{lines}"));
    }

    #[test]
    fn after_a_failed_write_all_requests_count_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["trace", "trace.zst"] {
            let path = folder.path().join(name);
            let segments = Segments::with(&path, UNLIMITED, |_| Ok(Box::new(Full)));
            let recorder = Recorder::to(&path, UNLIMITED, &["a".to_owned()], segments).unwrap();
            for number in 0..10 {
                recorder.record(number, 0, &request(Operation::Write, 0));
            }
            let error = recorder.finish().unwrap_err().to_string();
            let path = path.display();
            assert_eq!(error, format!("the recording {path} ends early: no storage space; 10 requests are missing"));
            let status = recorder.status();
            assert_eq!((status.recorded_requests, status.dropped_requests), (0, 10));
            assert_eq!((status.state, status.error.as_deref()), (RecordingState::Failed, Some("no storage space")));
        }
    }

    #[test]
    fn unusable_paths_and_names_are_refused_at_the_start() {
        for name in ["a,b", "a\nb", "\"a\""] {
            let error = Recorder::start(Path::new("/tmp/trace"), UNLIMITED, &[name.to_owned()]).unwrap_err();
            assert!(error.to_string().starts_with("cannot record volume '") && error.is_permanent(), "{error}");
        }
        let error = Recorder::start(Path::new("/nowhere/trace"), UNLIMITED, &[]).unwrap_err();
        assert!(error.to_string().starts_with("cannot record to /nowhere/trace: ") && error.is_permanent(), "{error}");
    }
}
