//! Delays answers, so that clients write no faster than dirty blocks are written back.

use std::collections::BTreeMap;
use std::io;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, SendError};
use std::time::Duration;

use flashwise_engine::engine::Paused;

use super::Volume;
use crate::time::{self, Receiver, Sender};
use crate::vital;

/// Sends answers at their times, from its own thread. When dropped, it sends the waiting ones at once.
#[derive(Debug)]
pub(super) struct Pacer {
    answers: Sender<Paused>,
}

impl Pacer {
    /// A pacer for `volume`.
    pub(super) fn start(volume: Weak<Volume>, name: &str) -> io::Result<Pacer> {
        let (answers, paused) = time::channel();
        vital::spawn(&format!("pace {name}"), move || pace(&volume, &paused))?;
        Ok(Pacer { answers })
    }

    /// Takes an answer to give it later.
    pub(super) fn hold(&self, paused: Paused) {
        if let Err(SendError(paused)) = self.answers.send(paused) {
            (paused.done)(paused.result);
        }
    }
}

fn pace(volume: &Weak<Volume>, paused: &Receiver<Paused>) {
    // By time, then by arrival.
    let mut waiting: BTreeMap<(u64, u64), Paused> = BTreeMap::new();
    let mut came = 0;
    let mut ended = false;
    while !ended || !waiting.is_empty() {
        let now_us = time::now_us();
        while let Some(first) = waiting.first_entry()
            && (ended || first.key().0 <= now_us)
        {
            let Paused { answered, done, result, .. } = first.remove();
            if let Some(volume) = volume.upgrade() {
                volume.latencies.record(&[answered], now_us);
            }
            done(result);
        }
        let next = waiting.first_key_value().map(|((until_us, _), _)| until_us.saturating_sub(now_us));
        let received = match next {
            Some(wait_us) => paused.recv_timeout(Duration::from_micros(wait_us)),
            None if ended => break,
            None => paused.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(answer) => {
                came += 1;
                waiting.insert((answer.until_us, came), answer);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => ended = true,
        }
    }
}
