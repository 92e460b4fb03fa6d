//! Recovery of the engine after a failure. Requests that failed wait for it.

use std::time::{Duration, Instant};

use flashwise_engine::engine::BACKEND;

use super::{TICK, Volume};
use crate::export::Error;
use crate::flash::FlashError;
use crate::time;

/// Rounds within a [`TICK`] before requests fail.
const ROUNDS_MAX: u32 = 16;
/// The duration of an uninterrupted series of rounds before requests fail.
const SERIES_MAX: Duration = Duration::from_secs(20);

/// The last rounds of recovery of an engine.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The start of the last [`TICK`] with rounds, and their number.
    in_tick: Option<(Instant, u32)>,
    /// The times of the first and the last round of a series.
    series: Option<(Instant, Instant)>,
}

impl Rounds {
    /// True if one has just ended. An unreadable flash is tried only once in a while.
    fn is_soon(&self) -> bool {
        self.in_tick.is_some_and(|(since, _)| time::elapsed(since) < TICK / 2)
    }

    /// Notes the end of a round. Returns false if rounds follow each other for too long.
    fn note(&mut self) -> bool {
        let (since, before) =
            self.in_tick.filter(|(since, _)| time::elapsed(*since) < TICK).unwrap_or((time::now(), 0));
        self.in_tick = Some((since, before + 1));
        let is_same = |(_, last): &(Instant, Instant)| time::elapsed(*last) < 2 * TICK;
        let first = self.series.filter(is_same).map_or(time::now(), |(first, _)| first);
        let is_long = time::elapsed(first) > SERIES_MAX;
        self.series = (!is_long).then(|| (first, time::now()));
        before < ROUNDS_MAX && !is_long
    }
}

/// Replaces an engine that has stopped by one that begins with the contents of the flash. Then the failed requests
/// begin anew. They fail if that does not succeed for long, or the flash cannot be read.
pub(super) fn find_again(volume: &Volume) {
    if !volume.lock().engine.recovery().has_stopped() {
        return;
    }
    let mut inner = volume.freeze();
    let waited = inner.engine.recovery().waits();
    if waited && inner.rounds.is_soon() {
        return volume.thaw(inner);
    }
    let name = &volume.config.name;
    if !inner.state.is_gone() && inner.engine.recovery().has_stopped() {
        let backend_fails = inner.health[BACKEND].last_failure().is_some();
        let flash = &*volume.pair.flash;
        match volume.pair.with(|attachment| inner.engine.recover(flash, attachment, backend_fails)) {
            None | Some(Ok(())) => {}
            Some(Err(FlashError::Io(_))) if waited => {}
            Some(Err(FlashError::Io(error))) => {
                tracing::error!(event = "flash-unreadable", volume = name, %error, "the flash cannot be read: every \
                    request fails until it can");
            }
            Some(Err(error)) => {
                tracing::error!(event = "cache-not-found", volume = name, %error, "the cache is not found again: every \
                    request fails until a restart");
            }
        }
    }
    let goes_on = inner.rounds.note() && !inner.engine.recovery().waits();
    let failed = if goes_on { Vec::new() } else { inner.queue.take_owed() };
    inner.failed_requests += failed.len() as u64;
    inner.queue.begin_anew();
    volume.thaw(inner);
    failed.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
}
