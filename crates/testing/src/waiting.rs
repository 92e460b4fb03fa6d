//! Waiting for what others do.

use std::time::{Duration, Instant};

/// Far longer than anything takes: a test that hangs fails instead.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks: short at first, for what comes at once.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));

/// Waits until there is something, and returns it; `None` if it does not come in [`PATIENCE`].
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

/// Waits until there is something, and returns it. Fails after [`PATIENCE`], and says `what` did not come.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    found(look).unwrap_or_else(|| panic!("waited for {PATIENCE:?}: {what}"))
}

/// Waits until `condition` holds. Fails after [`PATIENCE`], and says `what` did not come.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// The time that a slow device takes for a transfer.
pub fn take(time: Duration) {
    std::thread::sleep(time);
}
