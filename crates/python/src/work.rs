//! Long work: without Python's lock, with progress, and stopped by Ctrl-C.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use flashwise_sim::advise::Stages;
use flashwise_trace::progress::Progress;
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;

use crate::errors::exception;

/// Interval of checks for Ctrl-C and of calls of the callback.
const PAUSE: Duration = Duration::from_millis(50);

/// Largest number of threads.
const THREADS_MAX: usize = 256;

/// Progress of work.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicU64,
    stopped: AtomicBool,
    /// Notes about traces, which the command line prints on standard error.
    remarks: Mutex<Vec<String>>,
}

/// Payload that unwinds cancelled work.
struct Stopped;

impl Progress for Watch {
    fn advance(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
        if self.stopped.load(Ordering::Relaxed) {
            // It is not a panic, so nothing is printed.
            panic::resume_unwind(Box::new(Stopped));
        }
    }

    fn ends_early(&self, path: &str, rows: u64) {
        let remark = format!("{path}: the end is missing, as after a server was killed; {rows} rows were read");
        self.remarks.lock().expect("no holder of the lock panics").push(remark);
    }
}

impl Stages for Watch {
    fn begin(&self, _: String, _: u64) -> Box<dyn Progress + '_> {
        Box::new(Stage(self))
    }
}

/// A stage of work, whose progress counts as that of the whole.
struct Stage<'a>(&'a Watch);

impl Progress for Stage<'_> {
    fn advance(&self, amount: u64) {
        self.0.advance(amount);
    }
}

impl Watch {
    /// Reports the notes as Python warnings.
    fn warn(self, py: Python<'_>) -> PyResult<()> {
        for remark in self.remarks.into_inner().expect("no holder of the lock panics") {
            let remark = std::ffi::CString::new(remark.replace('\0', " ")).expect("it has no zero");
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &remark, 1)?;
        }
        Ok(())
    }
}

/// Runs `work` on this many `threads`, or one per core, without Python's lock. `callback` is called on this thread with
/// the bytes read and the block accesses run so far.
///
/// # Errors
/// Those of `work`. An exception of the callback, or `KeyboardInterrupt`, ends it.
pub fn run<T: Send, E>(
    py: Python<'_>,
    threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, E> + Send,
) -> PyResult<T>
where
    E: Into<Box<dyn std::error::Error>> + Send,
{
    let mut work = Some(work);
    let mut ended = None;
    watched(py, threads, callback, &mut |watch| {
        let work = work.take().expect("it runs once");
        let outcome = work(watch);
        let succeeded = outcome.is_ok();
        ended = Some(outcome);
        succeeded
    })?;
    ended.expect("it ran").map_err(exception)
}

/// [`run`], compiled once for all kinds of work. `work` returns false if it failed. Then the callback is not called
/// again.
fn watched(
    py: Python<'_>,
    threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    work: &mut (dyn FnMut(&Watch) -> bool + Send),
) -> PyResult<()> {
    if let Some(threads) = threads.filter(|threads| !(1..=THREADS_MAX).contains(threads)) {
        let expected = format!("expected a number from 1 to {THREADS_MAX}, or None for one for each core");
        return Err(PyValueError::new_err(format!("threads: found {threads}, {expected}")));
    }
    let watch = Watch::default();
    // A separate pool: a forked process does not have its parent's threads.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build().map_err(exception)?;
    let mut raised: Option<PyErr> = None;
    let ended: Result<bool, Box<dyn Any + Send>> = std::thread::scope(|scope| {
        let (sender, mut receiver) = channel::<()>();
        let (watch, pool) = (&watch, &pool);
        let worker = scope.spawn(move || {
            let _sender = sender;
            panic::catch_unwind(AssertUnwindSafe(|| pool.install(|| work(watch))))
        });
        let mut told = 0;
        loop {
            let waited;
            (receiver, waited) = py.detach(move || {
                let waited = receiver.recv_timeout(PAUSE);
                (receiver, waited)
            });
            if waited != Err(RecvTimeoutError::Timeout) {
                break;
            }
            if raised.is_some() {
                continue;
            }
            let done = watch.done.load(Ordering::Relaxed);
            let tell = || -> PyResult<()> {
                py.check_signals()?;
                if let Some(callback) = callback.filter(|_| done > told) {
                    callback.call1((done,))?;
                }
                Ok(())
            };
            if let Err(error) = tell() {
                raised = Some(error);
                watch.stopped.store(true, Ordering::Relaxed);
            }
            told = done;
        }
        worker.join().unwrap_or_else(Err)
    });
    if let Some(error) = raised {
        return Err(error);
    }
    if !ended.unwrap_or_else(|payload| panic::resume_unwind(payload)) {
        return Ok(());
    }
    if let Some(callback) = callback {
        callback.call1((watch.done.load(Ordering::Relaxed),))?;
    }
    watch.warn(py)
}
