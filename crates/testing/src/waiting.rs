//! Waiting for other threads and processes.

use std::time::{Duration, Instant};

/// Timeout of every wait: a test that hangs fails instead.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pauses between two checks: short at first, for fast events.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));

/// Waits until `look` returns something, and returns it; `None` after [`PATIENCE`].
pub fn found<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    let mut pause = PAUSES.0;
    loop {
        let found = look();
        if found.is_some() || started.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Waits until `look` returns something, and returns it. Panics after [`PATIENCE`] with a message that names `what`.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    found(look).unwrap_or_else(|| panic!("waited for {PATIENCE:?}: {what}"))
}

/// Waits until `condition` is true. Panics after [`PATIENCE`] with a message that names `what`.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Sleeps as long as a slow device takes for a transfer.
pub fn take(time: Duration) {
    std::thread::sleep(time);
}
