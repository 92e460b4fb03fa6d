//! Threads and state that a server cannot work without. A panic in them would leave requests without a reply, or
//! inconsistent state that might be written. So the process aborts, which loses nothing that was flushed.

use std::io;
use std::sync::TryLockError;
use std::time::Duration;

use crate::time::{self, JoinHandle};

/// The standard library's locks, because they record a panic of their holder. Other locks are [`time::Mutex`], which do
/// not.
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Starts a thread whose panic aborts the process.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    struct AbortOnPanic;
    impl Drop for AbortOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    time::spawn(name, body, |body| {
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _guard = AbortOnPanic;
            body();
        })
    })
}

/// Locks state, and aborts the process if a panic left it inconsistent.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    let attempt = || match state.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(_)) => abort(),
    };
    time::take(attempt, || state.lock().unwrap_or_else(|_| abort()))
}

fn abort() -> ! {
    tracing::error!(event = "thread-panicked", "a thread panicked while it changed shared data, so the process ends");
    std::process::abort()
}

/// A condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Waits until it is notified, for at most `time`. Returns the `guard` of `mutex`, and true if the time has passed.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        if !time::is_virtual() {
            let (guard, waited) = self.0.wait_timeout(guard, time).unwrap_or_else(|_| abort());
            return (guard, waited.timed_out());
        }
        drop(guard);
        let woken = time::wait_at(self, time);
        (lock(mutex), !woken)
    }

    pub(crate) fn notify_all(&self) {
        match time::is_virtual() {
            true => time::wake_all(self),
            false => self.0.notify_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::sync::Arc;

    use super::*;

    const ABORTED: i32 = 6;

    /// Runs a part of a test in a separate process, which may abort. Returns the signal that ended it.
    fn apart(test: &str, part: impl FnOnce()) -> Option<i32> {
        if std::env::var_os("APART").is_some() {
            part();
            return None;
        }
        let this = std::env::current_exe().unwrap();
        let name = format!("vital::tests::{test}");
        let output = Command::new(this).args(["--exact", &name]).env("APART", "1").output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{output:?}");
        Some(output.status.signal().unwrap_or_else(|| panic!("it goes on: {output:?}")))
    }

    #[test]
    fn a_thread_that_panics_ends_the_process() {
        let ended = apart("a_thread_that_panics_ends_the_process", || {
            let panicked = spawn("vital", || panic!("as planned")).unwrap().join();
            assert!(panicked.is_err());
        });
        assert!(ended.is_none_or(|signal| signal == ABORTED), "{ended:?}");
    }

    #[test]
    fn state_that_a_panic_left_ends_the_process() {
        let ended = apart("state_that_a_panic_left_ends_the_process", || {
            let state = Arc::new(Mutex::new(0));
            let other = Arc::clone(&state);
            let panicked = std::thread::spawn(move || {
                let _locked = lock(&other);
                panic!("as planned");
            });
            assert!(panicked.join().is_err());
            *lock(&state) += 1;
        });
        assert!(ended.is_none_or(|signal| signal == ABORTED), "{ended:?}");
    }
}
