//! Closing a volume: makes everything durable, and records that.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use flashwise_core::cache::LogCache;

use super::{Inner, TICK, Volume, VolumeError, backend_state};
use crate::export::Error;
use crate::time;

/// Maximum time that a shutdown waits for an unreadable flash.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Flushes for the last time. Returns `None` if the flash is unreadable, because a recovery may take long. The next
/// start then recovers as after a crash.
fn last_flush(volume: &Volume) -> Option<Result<(), Error>> {
    let receiver = volume.begin_flush();
    let started = time::now();
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(result) => return Some(result.map(drop)),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(Error::ShuttingDown)),
            Err(RecvTimeoutError::Timeout) => {
                if time::elapsed(started) > UNREAD_MAX && volume.lock().engine.has_postponed() {
                    return None;
                }
            }
        }
    }
}

/// Flushes, records a clean shutdown, and ends the volume. Later requests fail.
pub(super) fn close(volume: &Volume) -> Result<(), VolumeError> {
    let of = || volume.config.whose();
    let Some(flushed) = last_flush(volume) else {
        volume.lock().state.close();
        drop(volume.stop.lock().take());
        let error =
            io::Error::other("it cannot be read, and the end does not wait for it: the next start is as after a crash");
        return Err(VolumeError::Flash { volume: of(), error });
    };
    let mut inner = volume.freeze();
    let without_flash = inner.state.without().is_some();
    if !inner.state.close() {
        return Ok(());
    }
    let refused = inner.queue.take_all();
    if flushed.is_ok() && !without_flash {
        inner.engine.close(time::now_us());
    }
    let waiting = inner.engine.take_waiting();
    volume.dispatch(inner);
    refused.into_iter().chain(waiting).for_each(|(_, done)| done(Err(Error::ShuttingDown)));
    let mut inner = volume.freeze();
    let Inner { budget, engine, .. } = &mut *inner;
    budget.close(&mut **engine, &volume.config.name);
    let (flash_failed, end) = (engine.recovery().has_flash_failed(), engine.end());
    let failed = flushed.is_err() || flash_failed;
    let may_be_dirty = engine.blocks_to_write_back() > 0 || !engine.lost_blocks().is_empty();
    let in_journal = engine.log().is_some_and(LogCache::has_group_in_journal);
    drop(inner);
    backend_state::keep(volume, true);
    drop(volume.stop.lock().take());
    let Some(end) = end.filter(|_| !without_flash && !failed) else {
        let error = || io::Error::other("the last flush failed");
        return match (failed || !without_flash, flash_failed) {
            (false, _) => Ok(()),
            (true, true) => Err(VolumeError::Flash { volume: of(), error: error() }),
            (true, false) => Err(VolumeError::Backend { volume: of(), error: error() }),
        };
    };
    volume.pair.close(end, may_be_dirty, in_journal).map_err(|error| VolumeError::Flash { volume: of(), error })
}
