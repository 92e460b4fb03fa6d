//! What a volume's last moments are: everything is durable, and said to be.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::requests::Waiting;
use super::{TICK, Volume, VolumeError};
use crate::export::{Done, Error, Request};
use crate::time::{self, Receiver};

/// How long the end waits for a flash that cannot be read.
const UNREAD_MAX: Duration = Duration::from_secs(10);

impl Volume {
    /// Makes durable what was answered; returns when it is. Clients hear of what this hears of, by their next flush.
    pub fn flush(&self) -> Result<(), Error> {
        self.begin_flush().recv().map_err(|_| Error::ShuttingDown)?.map(drop)
    }

    pub(super) fn begin_flush(&self) -> Receiver<Result<Vec<u8>, Error>> {
        let (sender, receiver) = time::channel();
        // The disks of a pool count for themselves what has failed.
        let untold = (!self.config.of_pool).then(|| self.untold.clone());
        let done: Done = Box::new(move |result| {
            if let (Some(untold), Err(Error::Io)) = (untold, &result) {
                untold.store(true, Ordering::SeqCst);
            }
            drop(sender.send(result));
        });
        self.start_request(Waiting::new(Request::flush(), done), false);
        receiver
    }

    /// The last flush; none where it waits for a flash that cannot be read, which may be for long: what a start finds
    /// then is what it would find after a crash.
    fn last_flush(&self) -> Option<Result<(), Error>> {
        let receiver = self.begin_flush();
        let started = time::now();
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(result) => return Some(result.map(drop)),
                Err(RecvTimeoutError::Disconnected) => return Some(Err(Error::ShuttingDown)),
                Err(RecvTimeoutError::Timeout) => {
                    if time::elapsed(started) > UNREAD_MAX && self.lock().engine.has_postponed() {
                        return None;
                    }
                }
            }
        }
    }

    /// Flushes, marks the cache as closed in order, and ends: requests that come now fail.
    pub fn close(&self) -> Result<(), VolumeError> {
        let volume = || self.config.whose();
        let Some(flushed) = self.last_flush() else {
            self.lock().closed = true;
            drop(self.stop.lock().take());
            let error = io::Error::other(
                "it cannot be read, and the end does not wait for it: the next start is as after a crash",
            );
            return Err(VolumeError::Flash { volume: volume(), error });
        };
        let mut inner = self.freeze();
        if std::mem::replace(&mut inner.closed, true) {
            return Ok(());
        }
        let waiting =
            std::mem::take(&mut inner.waiting).into_iter().map(|Waiting { request, done, .. }| (request, done));
        let refused: Vec<_> = waiting.chain(std::mem::take(&mut inner.held)).collect();
        let detached = inner.state.is_without_flash() || self.config.flash.as_os_str().is_empty();
        if flushed.is_ok() && !detached {
            inner.engine.close(time::now_us());
        }
        self.dispatch(inner);
        for (_, done) in refused {
            done(Err(Error::ShuttingDown));
        }
        let mut inner = self.freeze();
        self.close_account(&mut inner);
        let engine = &inner.engine;
        let (flash_failed, end) = (engine.has_flash_failed(), engine.end());
        let failed = flushed.is_err() || flash_failed;
        let may_be_dirty = engine.blocks_to_write_back() > 0 || !engine.lost_blocks().is_empty();
        drop(inner);
        drop(self.stop.lock().take());
        let Some(end) = end.filter(|_| !detached && !failed) else {
            let error = || io::Error::other("the last flush failed");
            return match (failed || !detached, flash_failed) {
                (false, _) => Ok(()),
                (true, true) => Err(VolumeError::Flash { volume: volume(), error: error() }),
                (true, false) => Err(VolumeError::Backend { volume: volume(), error: error() }),
            };
        };
        self.with_attachment(|attachment| attachment.close(&*self.flash, &*self.side, end, may_be_dirty))
            .map_err(|error| VolumeError::Flash { volume: volume(), error })
    }
}
