//! Records every request in a file that `flashwise simulate` and `flashwise trace` read, so that a live workload can be asked
//! "what if".
//!
//! Source: this project's trace format `flashwise`: a header line, then `time_us,volume,op,offset,length,flags` a line, compressed
//! with zstd (RFC 8878) where the path ends in `.zst`. Whoever records pays for one push to a queue of fixed size: a thread
//! formats and writes. What the queue has no room for is dropped and counted, never waited for. The file is flushed every second,
//! so that a killed server loses no more than that.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::export::{Operation, Request};
use crate::latency::{OPERATION_NAMES, operation_index};
use crate::status::RecordingStatus;

/// The first line of a recording.
pub const HEADER: &str = "time_us,volume,op,offset,length,flags";

/// Requests that can wait to be written, which take 10 MiB: those of 0.9 s at 300,000 a second, where the writing thread has to wait
/// for a processor.
const QUEUE_REQUESTS: usize = 1 << 18;
/// The queue is looked at so often.
const PAUSE: Duration = Duration::from_millis(20);
/// What was written reaches the file within this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const ZSTD_LEVEL: i32 = 3;
const BUFFER_BYTES: usize = 256 << 10;

/// Why a recording cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecordError {
    #[error("cannot record to {path}: {source}")]
    Create { path: String, source: io::Error },
    #[error("cannot record volume '{name}': found a comma, quote or control character in its name, expected none")]
    Name { name: String },
    #[error("the recording {path} ends early: {error}; {dropped} requests are missing")]
    Write { path: String, error: String, dropped: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Row {
    time_us: u64,
    volume: u32,
    operation: Operation,
    force_unit_access: bool,
    offset: u64,
    length: u64,
}

/// What recording threads and the writing thread share.
#[derive(Debug)]
struct Shared {
    path: String,
    volumes: usize,
    queue: ArrayQueue<Row>,
    dropped: AtomicU64,
    written: AtomicU64,
    flushed: AtomicU64,
    finishing: AtomicBool,
    error: Mutex<Option<String>>,
}

/// Records requests to a file until it is [finished](Self::finish) or dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Begins a recording of requests to these volumes at `path`, in the place of the file that may be there.
    pub fn start(path: &str, volumes: &[String]) -> Result<Recorder, RecordError> {
        Recorder::to(path, volumes, |path| Ok(Box::new(File::create(path)?)))
    }

    fn to(
        path: &str,
        volumes: &[String],
        create: impl FnOnce(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<Recorder, RecordError> {
        let breaks_lines = |letter: char| matches!(letter, ',' | '"') || letter.is_control();
        if let Some(name) = volumes.iter().find(|name| name.contains(breaks_lines)) {
            return Err(RecordError::Name { name: name.clone() });
        }
        let error = |source| RecordError::Create { path: path.to_owned(), source };
        let file = create(path).map_err(error)?;
        let mut recording = Recording::new(file, path.ends_with(".zst"), volumes.to_vec()).map_err(error)?;
        recording.flush().map_err(error)?;
        let shared = Arc::new(Shared::new(path, volumes.len(), QUEUE_REQUESTS));
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("flashwise-record".to_owned());
        let writer = thread.spawn(move || for_thread.write_all(recording)).map_err(error)?;
        Ok(Recorder { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Records a request to the volume with this position among those of [`start`](Self::start), at a time on any clock that all
    /// volumes share. Never waits. Requests of one thread stay in order; to keep those of several, call it under the lock that
    /// orders them.
    #[inline]
    pub fn record(&self, time_us: u64, volume: u32, request: &Request) {
        assert!((volume as usize) < self.shared.volumes, "volume {volume} was not named when the recording began");
        let Request { operation, offset, length, force_unit_access, .. } = *request;
        let row = Row { time_us, volume, operation, force_unit_access, offset, length };
        if self.shared.queue.push(row).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How it goes.
    pub fn status(&self) -> RecordingStatus {
        self.shared.status()
    }

    /// Writes what waits and ends the file; does nothing the second time. What is recorded later is lost.
    ///
    /// # Errors
    /// Writing failed at some time since the start.
    pub fn finish(&self) -> Result<RecordingStatus, RecordError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            self.shared.finishing.store(true, Ordering::Release);
            writer.thread().unpark();
            writer.join().expect("writing a recording does not panic");
        }
        let status = self.status();
        match status.error {
            None => Ok(status),
            Some(error) => Err(RecordError::Write { path: status.path, error, dropped: status.dropped_requests }),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Who wants to know of errors has called it before.
        let _ = self.finish();
    }
}

impl Shared {
    fn new(path: &str, volumes: usize, queue_requests: usize) -> Shared {
        Shared {
            path: path.to_owned(),
            volumes,
            queue: ArrayQueue::new(queue_requests),
            dropped: AtomicU64::new(0),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            finishing: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    fn status(&self) -> RecordingStatus {
        RecordingStatus {
            path: self.path.clone(),
            recorded_requests: self.written.load(Ordering::Relaxed),
            dropped_requests: self.dropped.load(Ordering::Relaxed),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The writing thread.
    fn write_all(&self, mut recording: Recording) {
        let ended = self.write_until_finished(&mut recording).and_then(|()| recording.finish());
        match ended {
            Ok(()) => self.flushed.store(self.written.load(Ordering::Relaxed), Ordering::Release),
            Err(error) => {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                // Those that were not flushed may be in the file or not: they count as missing.
                let flushed = self.flushed.load(Ordering::Relaxed);
                let unsure = self.written.swap(flushed, Ordering::Relaxed) - flushed;
                self.dropped.fetch_add(unsure, Ordering::Relaxed);
                self.drop_until_finished();
            }
        }
    }

    fn write_until_finished(&self, recording: &mut Recording) -> io::Result<()> {
        let mut flushed_at = Instant::now();
        loop {
            // Looked at first, so that nothing that was recorded before it was set is left behind.
            let finishing = self.finishing.load(Ordering::Acquire);
            let mut written = 0;
            // Not until it is empty: under a steady stream it would never be.
            while written < self.queue.capacity()
                && let Some(row) = self.queue.pop()
            {
                // Counted first, so that one that fails is missing.
                self.written.fetch_add(1, Ordering::Relaxed);
                recording.write(&row)?;
                written += 1;
            }
            if finishing && self.queue.is_empty() {
                return Ok(());
            }
            if flushed_at.elapsed() >= FLUSH_INTERVAL {
                flushed_at = Instant::now();
                if self.written.load(Ordering::Relaxed) > self.flushed.load(Ordering::Relaxed) {
                    recording.flush()?;
                    self.flushed.store(self.written.load(Ordering::Relaxed), Ordering::Release);
                }
            }
            if written < self.queue.capacity() / 4 && !finishing {
                thread::park_timeout(PAUSE);
            }
        }
    }

    /// After a failure: what comes is dropped.
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

enum Output {
    Plain(BufWriter<Box<dyn Write + Send>>),
    Compressed(zstd::Encoder<'static, BufWriter<Box<dyn Write + Send>>>),
}

/// The file.
struct Recording {
    output: Output,
    volumes: Vec<String>,
    line: Vec<u8>,
}

impl Recording {
    fn new(file: Box<dyn Write + Send>, compressed: bool, volumes: Vec<String>) -> io::Result<Recording> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let output =
            if compressed { Output::Compressed(zstd::Encoder::new(file, ZSTD_LEVEL)?) } else { Output::Plain(file) };
        let mut recording = Recording { output, volumes, line: Vec::new() };
        writeln!(recording.line, "{HEADER}")?;
        recording.put_line()?;
        Ok(recording)
    }

    fn write(&mut self, row: &Row) -> io::Result<()> {
        let volume = &self.volumes[row.volume as usize];
        let operation = OPERATION_NAMES[operation_index(row.operation)];
        let Row { time_us, offset, length, .. } = row;
        write!(self.line, "{time_us},{volume},{operation},{offset},{length},")?;
        let (no_hole, only_if_fast) = match row.operation {
            Operation::WriteZeroes { may_punch_holes, only_if_fast } => (!may_punch_holes, only_if_fast),
            _ => (false, false),
        };
        let mut joint = "";
        for (flag, word) in [(row.force_unit_access, "fua"), (no_hole, "no-hole"), (only_if_fast, "fast-zero")] {
            if flag {
                write!(self.line, "{joint}{word}")?;
                joint = "+";
            }
        }
        self.line.push(b'\n');
        self.put_line()
    }

    fn put_line(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(output) => output.write_all(&self.line)?,
            Output::Compressed(output) => output.write_all(&self.line)?,
        }
        self.line.clear();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(output) => output.flush(),
            Output::Compressed(output) => output.flush(),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self.output {
            Output::Plain(mut output) => output.flush(),
            Output::Compressed(output) => output.finish()?.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, offset: u64) -> Request {
        let force_unit_access = operation == Operation::Write;
        Request { operation, offset, length: 4096, force_unit_access, data: Vec::new() }
    }

    /// A file that takes the header and then fails.
    struct Full {
        header: bool,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.header, false) {
                Ok(bytes.len())
            } else {
                Err(io::ErrorKind::StorageFull.into())
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_queue_has_no_room_for_is_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        // No thread takes anything out of the queue of four before all six are recorded.
        let shared = Arc::new(Shared::new(path.to_str().unwrap(), 1, 4));
        let recorder = Recorder { shared: Arc::clone(&shared), writer: Mutex::new(None) };
        for number in 0..6 {
            recorder.record(number, 0, &request(Operation::Read, 4096 * number));
        }
        assert_eq!(recorder.status().dropped_requests, 2);
        let file = Box::new(File::create(&path).unwrap());
        shared.finishing.store(true, Ordering::Release);
        shared.write_all(Recording::new(file, false, vec!["a".to_owned()]).unwrap());
        let status = recorder.finish().unwrap();
        assert_eq!((status.recorded_requests, status.dropped_requests), (4, 2));
        let lines = (0..4).map(|number| format!("{number},a,read,{},4096,\n", 4096 * number)).collect::<String>();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{lines}"));
    }

    #[test]
    fn where_writing_fails_every_request_is_missing_and_said_to_be() {
        for path in ["trace", "trace.zst"] {
            // The magic number of zstd is written with the header.
            let recorder = Recorder::to(path, &["a".to_owned()], |_| Ok(Box::new(Full { header: true }))).unwrap();
            for number in 0..10 {
                recorder.record(number, 0, &request(Operation::Write, 0));
            }
            let error = recorder.finish().unwrap_err().to_string();
            let expected = format!("the recording {path} ends early: no storage space; 10 requests are missing");
            assert_eq!(error, expected);
            let status = recorder.status();
            assert_eq!((status.recorded_requests, status.dropped_requests), (0, 10));
            assert_eq!(status.error.as_deref(), Some("no storage space"));
        }
    }

    #[test]
    fn what_cannot_be_recorded_is_refused_at_the_start() {
        for name in ["a,b", "a\nb", "\"a\""] {
            let error = Recorder::start("/dev/null", &[name.to_owned()]).unwrap_err().to_string();
            assert!(error.starts_with("cannot record volume '"), "{error}");
        }
        let error = Recorder::start("/nowhere/trace", &[]).unwrap_err().to_string();
        assert!(error.starts_with("cannot record to /nowhere/trace: "), "{error}");
        let error = Recorder::start("/dev/full", &[]).unwrap_err().to_string();
        assert!(error.starts_with("cannot record to /dev/full: "), "{error}");
    }
}
