//! A volume of buckets goes on where something failed that its cache relies on.

use std::time::Duration;

use flashwise_engine::engine::BACKEND;

use super::requests::Waiting;
use super::{TICK, Volume};
use crate::export::Error;
use crate::flash::FlashError;
use crate::time;

/// Times that the cache is found again within a [`TICK`] before those who wait hear of it.
const MENDED_MAX: u32 = 16;
/// For how long it is found again, again and again, before they hear of it where each time takes longer.
const MENDING_MAX: Duration = Duration::from_secs(20);

impl Volume {
    /// Where the engine has stopped, makes another of what is on flash, and lets the requests that were not answered
    /// begin anew. Where that comes to nothing again and again, or the flash cannot be read, they fail.
    pub(super) fn mend(&self) {
        if !self.lock().engine.has_stopped() {
            return;
        }
        let mut inner = self.freeze();
        // While the flash cannot be read, that is tried once in a while.
        let is_soon = inner.mended.is_some_and(|(since, _)| time::elapsed(since) < TICK / 2);
        if inner.engine.waits() && is_soon {
            return self.thaw(inner);
        }
        let volume = &self.config.name;
        if !inner.closed && inner.engine.has_stopped() {
            let backend_fails = inner.health[BACKEND].last_failure().is_some();
            let mut attachment = self.attachment.lock();
            if let Some(attachment) = attachment.as_mut() {
                let waited = inner.engine.waits();
                match inner.engine.recover(&*self.flash, attachment, backend_fails) {
                    Ok(()) => {}
                    Err(FlashError::Io(_)) if waited => {}
                    Err(FlashError::Io(error)) => {
                        tracing::error!(event = "flash-unreadable", volume, %error, "the flash cannot be read: every \
                            request fails until it can");
                    }
                    Err(error) => {
                        tracing::error!(event = "cache-not-found", volume, %error, "the cache is not found again: \
                            every request fails until a restart");
                    }
                }
            }
        }
        let (since, before) =
            inner.mended.filter(|(since, _)| time::elapsed(*since) < TICK).unwrap_or((time::now(), 0));
        inner.mended = Some((since, before + 1));
        let mut held = std::mem::take(&mut inner.held);
        let waits = inner.engine.waits();
        let first =
            inner.mending.filter(|(_, last)| time::elapsed(*last) < 2 * TICK).map_or(time::now(), |(first, _)| first);
        let is_long = time::elapsed(first) > MENDING_MAX;
        inner.mending = (!is_long).then(|| (first, time::now()));
        let goes_on = before < MENDED_MAX && !waits && !is_long;
        let failed = if goes_on { Vec::new() } else { std::mem::take(&mut held) };
        inner.failed_requests += failed.len() as u64;
        let held = held.into_iter().rev().map(|(request, done)| Waiting::new(request, done));
        held.for_each(|held| inner.waiting.push_front(held));
        self.thaw(inner);
        failed.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
    }
}
