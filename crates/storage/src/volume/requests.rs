//! The path of requests through a volume: planned under its lock, performed and answered without it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_core::cache::LogCache;
use flashwise_core::format::Place;
use flashwise_engine::engine::{BACKEND, FLASH, JOURNAL, Output, WaitingRequests};

use super::{Inner, Part, TICK, Volume};
use crate::disk::health::Change;
use crate::disk::{self, Completion, Disk, Transfer};
use crate::export::{Done, Error, Operation, Request};
use crate::time::{self, Receiver};
use crate::vital::MutexGuard;

/// Maximum size of reads that are tried without waiting.
const NOW_BYTES: u64 = 256 << 10;

thread_local! {
    /// Lists that each call reuses, to avoid allocations.
    static LISTS: Cell<(Output, Vec<u64>)> = Cell::default();
}

/// A request before it is planned.
pub(super) struct Waiting {
    pub request: Request,
    pub done: Done,
    /// The part of the volume that counts it, if it is a read.
    part: Option<Arc<Part>>,
    /// The time of its arrival, if it has to wait.
    came_us: Option<u64>,
}

impl Waiting {
    pub fn new(request: Request, done: Done) -> Waiting {
        Waiting { request, done, part: None, came_us: None }
    }
}

/// The requests that the engine has not begun.
#[derive(Default)]
pub(super) struct Queue {
    /// Requests that wait until the engine has room, or the volume is thawed.
    waiting: WaitingRequests<Waiting>,
    /// Requests that failed with a device. They begin anew after its recovery, or fail with it.
    owed: Vec<(Request, Done)>,
    /// Requests wait, because the engine is about to be replaced or stopped.
    frozen: bool,
    /// Total delay of changes before planning, because too many requests were in progress.
    pub held_back_us: u64,
}

impl Queue {
    /// The number of requests that have not begun.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no request begins.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Takes the requests that failed with a device, to answer them.
    pub fn take_owed(&mut self) -> Vec<(Request, Done)> {
        std::mem::take(&mut self.owed)
    }

    /// Lets the requests that failed with a device begin anew, before all others.
    pub fn begin_anew(&mut self) {
        for (request, done) in self.owed.drain(..).rev() {
            let (operation, bytes) = (request.operation, request.bytes());
            self.waiting.push_front(operation, &bytes, Waiting::new(request, done));
        }
    }

    /// Takes all requests.
    pub fn take_all(&mut self) -> Vec<(Request, Done)> {
        let waiting = std::iter::from_fn(|| self.waiting.pop()).map(|Waiting { request, done, .. }| (request, done));
        waiting.chain(self.owed.drain(..)).collect()
    }
}

impl Volume {
    /// See [`LogCache::ended_epochs`].
    pub(crate) fn ended_epochs(&self) -> Option<Place> {
        self.lock().engine.log()?.ended_epochs()
    }

    /// See [`LogCache::written_back`].
    pub(crate) fn written_back(&self) -> impl Fn(Place) -> bool + use<> {
        let is_written_back = self.lock().engine.log().map(LogCache::written_back);
        move |end| is_written_back.as_ref().is_none_or(|is_written_back| is_written_back(end))
    }

    /// See [`LogCache::unfinished_blocks`].
    pub(crate) fn unfinished_blocks(&self) -> (Place, Vec<u32>) {
        self.lock().engine.log().map(LogCache::unfinished_blocks).unwrap_or_default()
    }

    /// Starts to write back everything, in order.
    pub(crate) fn write_back_epochs(&self) {
        let mut inner = self.lock();
        inner.engine.destage_all(time::now_us());
        self.dispatch(inner);
    }

    /// Holds back new requests, and waits until none is in progress.
    pub(super) fn freeze(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        inner.queue.frozen = true;
        inner.engine.set_calm(true);
        while inner.engine.running() > 0 {
            let timed_out;
            (inner, timed_out) = self.ended.wait_timeout(&self.inner, inner, TICK);
            if timed_out {
                // The thread that does what is due may be the one that waits here.
                inner.engine.look(time::now_us());
                self.dispatch(inner);
                inner = self.lock();
            }
        }
        inner
    }

    /// Lets requests begin again.
    pub(super) fn thaw(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.queue.frozen = false;
        inner.engine.set_calm(false);
        self.admit_waiting(&mut inner);
        self.dispatch(inner);
    }

    pub(super) fn begin_flush(&self) -> Receiver<Result<Vec<u8>, Error>> {
        let (sender, receiver) = time::channel();
        // The disks of a pool count their own failures.
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

    /// Wraps a request of a client. A flush also reports an earlier failed flush of an operator.
    pub(super) fn of_client(&self, request: Request, done: Done) -> Waiting {
        if request.operation != Operation::Flush {
            return Waiting::new(request, done);
        }
        let untold = self.untold.clone();
        let tell: Done = Box::new(move |result| {
            let failed_before = untold.swap(false, Ordering::SeqCst);
            done(if failed_before { result.and(Err(Error::Io)) } else { result });
        });
        Waiting::new(request, tell)
    }

    /// Starts a request of a part of the volume. For `may_wait` and the result, see
    /// [`submit_and_wait`](crate::export::Export::submit_and_wait).
    pub fn submit_for(&self, part: &Arc<Part>, request: Request, done: Done, may_wait: bool) -> bool {
        let part = (request.operation == Operation::Read).then(|| part.clone());
        self.start_request(Waiting { part, ..Waiting::new(request, done) }, may_wait)
    }

    /// Starts transfers and sends answers, without the lock. Performs reads that need no waiting itself.
    pub(super) fn dispatch(&self, inner: MutexGuard<'_, Inner>) {
        self.dispatch_by(inner, false);
    }

    /// As `dispatch`, on a thread that `may_wait`. If one read of the flash or one write to the page cache is all there
    /// is to do, it does that itself. Returns whether it did.
    fn dispatch_by<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, may_wait: bool) -> bool {
        let (mut output, mut done) = LISTS.take();
        let mut waited = false;
        loop {
            inner.engine.take_output(&mut output);
            let has_failed = inner.engine.recovery().has_flash_failed();
            inner.state.follow(has_failed);
            if !output.held.is_empty() || inner.engine.recovery().has_stopped() && inner.engine.running() == 0 {
                inner.queue.owed.append(&mut output.held);
                // An unreadable flash is retried at intervals, not for each failing request.
                if !inner.engine.recovery().waits() {
                    self.look_at_flash();
                }
            }
            inner.failed_requests += output.answered.iter().filter(|answered| answered.failed).count() as u64;
            for paused in output.paused.drain(..) {
                self.pacer.get().expect("set before the volume is used").hold(paused);
            }
            // Signalling a condition costs a system call, even without waiters.
            let idle = inner.queue.frozen && inner.engine.running() == 0;
            let of_backend = output.transfers.iter().filter(|transfer| transfer.disk == BACKEND).count();
            if of_backend > 0 {
                inner.load.begin(of_backend as u64, time::now_us());
            }
            drop(inner);
            if idle {
                self.ended.notify_all();
            }
            if !output.answered.is_empty() {
                self.latencies.record(&output.answered, time::now_us());
                output.answered.clear();
            }
            self.perform_now(&mut output.transfers, &mut done);
            let alone = may_wait && done.is_empty() && self.is_fast(&output.transfers);
            if !alone && !output.transfers.is_empty() {
                self.transfers.get().expect("set before the volume is used").submit(&mut output.transfers);
            }
            for (done, result) in output.answers.drain(..) {
                done(result);
            }
            // Submitted transfers have left the list.
            let performed = output
                .transfers
                .pop()
                .map(|transfer| Completion { tag: transfer.tag, result: self.disk(transfer.disk).perform(&transfer) });
            if done.is_empty() && performed.is_none() {
                break;
            }
            inner = self.lock();
            for tag in done.drain(..) {
                if inner.engine.transfer_of(tag).0 == BACKEND {
                    inner.load.pass_over();
                }
                inner.engine.completed(tag, Ok(()));
            }
            waited |= performed.is_some();
            if let Some(completion) = performed {
                self.end(&mut inner, &completion);
            }
            self.admit_waiting(&mut inner);
        }
        LISTS.set((output, done));
        waited
    }

    /// Performs and removes the transfers that need no waiting.
    fn perform_now(&self, transfers: &mut Vec<Transfer>, done: &mut Vec<u64>) {
        transfers.retain(|transfer| {
            let fits = !self.is_slow(transfer) && transfer.length <= NOW_BYTES;
            let now = fits && self.disk(transfer.disk).perform_now(transfer);
            if now {
                done.push(transfer.tag);
            }
            !now
        });
    }

    fn disk(&self, number: usize) -> &dyn Disk {
        match number {
            FLASH => &*self.pair.flash,
            JOURNAL => &*self.journal,
            _ => &*self.backend,
        }
    }

    fn is_slow(&self, transfer: &Transfer) -> bool {
        self.config.backend_delay_us > 0 && transfer.disk == BACKEND
    }

    /// True if one short read of the flash, or one short write to the page cache, is all there is to do.
    fn is_fast(&self, transfers: &[Transfer]) -> bool {
        let [transfer @ Transfer { length: ..=NOW_BYTES, .. }] = transfers else { return false };
        match transfer.operation {
            disk::Operation::Read => transfer.disk == FLASH,
            disk::Operation::Write => !self.is_slow(transfer) && self.disk(transfer.disk).buffers_writes(),
            _ => false,
        }
    }

    pub(super) fn completed(&self, batch: &mut Vec<Completion>) {
        let mut inner = self.lock();
        batch.drain(..).for_each(|completion| self.end(&mut inner, &completion));
        self.admit_waiting(&mut inner);
        self.dispatch(inner);
    }

    /// Reports the end of a transfer to the engine.
    fn end(&self, inner: &mut Inner, completion: &Completion) {
        self.note_health(inner, completion);
        inner.engine.completed(completion.tag, completion.result.as_ref().map(drop).map_err(Error::from));
    }

    /// Records the health of devices. Logs only changes.
    fn note_health(&self, inner: &mut Inner, completion: &Completion) {
        let (disk, operation, offset) = inner.engine.transfer_of(completion.tag);
        if disk == BACKEND {
            inner.load.end(time::now_us());
        }
        if disk == BACKEND && self.backend.ended(operation, offset, &completion.result) {
            return;
        }
        let now = time::now();
        let health = &mut inner.health[disk];
        let (volume, device) = (&self.config.name, ["flash", "backend", "journal"][disk]);
        match (health.ended(operation, &completion.result, now), &completion.result) {
            (Some(Change::Failure), Err(error)) => {
                tracing::warn!(event = "transfer-failed", volume, device, %error, "a transfer failed");
            }
            (Some(Change::Failed), _) => {
                let error = health.failure(now).unwrap_or_default();
                tracing::error!(event = "device-failed", volume, device, error, "the device has failed");
            }
            (Some(Change::Recovered), _) => {
                tracing::warn!(event = "device-recovered", volume, device, "the device works again");
            }
            _ => {}
        }
    }

    pub(super) fn admit_waiting(&self, inner: &mut Inner) {
        while !inner.queue.frozen && !inner.engine.is_full(false) {
            let Some(next) = inner.queue.waiting.pop() else { break };
            self.plan(inner, next);
        }
    }

    /// Starts or queues a request. For `may_wait` and the result, see `dispatch_by`.
    pub(super) fn start_request(&self, waiting: Waiting, may_wait: bool) -> bool {
        let request = &waiting.request;
        if request.length == 0 && request.operation != Operation::Flush {
            (waiting.done)(Ok(Vec::new()));
            return false;
        }
        if let Operation::WriteZeroes { only_if_fast: true, .. } = request.operation {
            (waiting.done)(Err(Error::NotSupported));
            return false;
        }
        let mut inner = self.lock();
        if inner.state.is_gone() {
            drop(inner);
            (waiting.done)(Err(Error::ShuttingDown));
            return false;
        }
        let (operation, bytes) = (request.operation, request.bytes());
        let behind = inner.queue.waiting.precede(operation, &bytes);
        if inner.queue.frozen || behind || inner.engine.is_full(operation == Operation::Read) {
            let waiting = Waiting { came_us: Some(time::now_us()), ..waiting };
            inner.queue.waiting.push(operation, &bytes, waiting);
            return false;
        }
        self.plan(&mut inner, waiting);
        self.dispatch_by(inner, may_wait)
    }

    fn plan(&self, inner: &mut Inner, Waiting { request, done, part, came_us }: Waiting) {
        let now_us = time::now_us();
        let waited_us = came_us.map_or(0, |came_us| now_us.saturating_sub(came_us));
        if request.changes() {
            inner.queue.held_back_us += waited_us;
        }
        if let Some((recorder, number)) = &inner.recorder {
            recorder.record(now_us, *number, &request);
        }
        if let Some(what_if) = &self.what_if {
            what_if.note(&request);
        }
        let Some(part) = part else { return inner.engine.submit_waited(request, done, now_us, waited_us) };
        let (before, pin) = (inner.engine.reads(), part.pin.load(Ordering::Relaxed));
        inner.engine.log_mut().into_iter().for_each(|log| log.set_pin(pin));
        inner.engine.submit_waited(request, done, now_us, waited_us);
        inner.engine.log_mut().into_iter().for_each(|log| log.set_pin(0));
        part.reads.add(inner.engine.reads() - before);
    }
}
