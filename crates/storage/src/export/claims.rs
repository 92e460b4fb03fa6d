//! Exclusive claims of one client on bytes of an export.
//!
//! A command that reads before it writes, such as SCSI's COMPARE AND WRITE, claims its bytes, reads, and writes within
//! its claim. Writes of others to these bytes wait for the end of the claim, over any protocol.

use std::sync::Arc;
use std::task::Waker;

use crate::time::{Mutex, RwLock};
use flashwise_core::filter::Client;

use super::{Done, Error, Export, Extent, Guest, Operation, Request};

/// First byte and end.
type Range = (u64, u64);

/// An export with claims on its bytes.
pub struct Claimable {
    export: Arc<dyn Export>,
    claims: RwLock<Vec<Range>>,
    /// Locked only while the claims are locked, so that no end of a claim is missed.
    waiting: Mutex<WaitingClaim>,
    withdrawn: RwLock<bool>,
}

/// Requests and clients that wait for a claim to end.
#[derive(Default)]
struct WaitingClaim {
    writes: Vec<(Request, Done)>,
    claimants: Vec<Waker>,
}

impl Claimable {
    /// Wraps an export without claims.
    pub fn new(export: Arc<dyn Export>) -> Claimable {
        Claimable { export, claims: RwLock::default(), waiting: Mutex::default(), withdrawn: RwLock::default() }
    }

    /// Marks the export as removed, permanently. Waits for all work [while it was offered](Self::while_offered).
    pub(super) fn withdraw(&self) {
        *self.withdrawn.write() = true;
    }

    /// Runs `work` if the export was not removed. It is not removed meanwhile.
    pub fn while_offered<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let withdrawn = self.withdrawn.read();
        (!*withdrawn).then(work)
    }

    /// The export without claims.
    pub fn export(&self) -> &Arc<dyn Export> {
        &self.export
    }

    /// Claims bytes until the returned value is dropped. If another claim overlaps, returns `None`, and wakes `waker`
    /// when a retry may succeed.
    pub fn claim(self: &Arc<Self>, offset: u64, length: u64, waker: &Waker) -> Option<Claim> {
        let mut claims = self.claims.write();
        if overlaps(&claims, offset, length) {
            self.waiting.lock().claimants.push(waker.clone());
            return None;
        }
        let range = (offset, offset + length);
        claims.push(range);
        Some(Claim { of: Arc::clone(self), range })
    }

    /// Submits a change. If its bytes are claimed, it waits instead, and `submit` is not called.
    fn change<R>(&self, request: Request, done: Done, submit: impl FnOnce(Request, Done) -> R) -> Option<R> {
        let claims = self.claims.read();
        if overlaps(&claims, request.offset, request.length) {
            self.waiting.lock().writes.push((request, done));
            return None;
        }
        // A later claimant comes after it, because exports perform overlapping requests in order.
        Some(submit(request, done))
    }

    fn end(&self, range: Range) {
        let mut claims = self.claims.write();
        let at = claims.iter().position(|claimed| *claimed == range).expect("a claim that lasts is on the list");
        claims.swap_remove(at);
        let WaitingClaim { writes, claimants } = std::mem::take(&mut *self.waiting.lock());
        drop(claims);
        // Requests that another claim blocks are queued again.
        writes.into_iter().for_each(|(request, done)| self.submit(request, done));
        claimants.into_iter().for_each(Waker::wake);
    }
}

fn overlaps(ranges: &[Range], offset: u64, length: u64) -> bool {
    ranges.iter().any(|&(start, end)| offset < end && start < offset + length)
}

fn changes(operation: Operation) -> bool {
    matches!(operation, Operation::Write | Operation::Trim | Operation::WriteZeroes { .. })
}

impl Export for Claimable {
    fn size(&self) -> u64 {
        self.export.size()
    }

    fn read_only(&self) -> bool {
        self.export.read_only()
    }

    fn description(&self) -> String {
        self.export.description()
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.export.identity()
    }

    fn block_sizes(&self) -> (u32, u32, u32) {
        self.export.block_sizes()
    }

    fn trim_granularity(&self) -> u32 {
        self.export.trim_granularity()
    }

    fn enter(&self, client: Client) -> Arc<Guest> {
        self.export.enter(client)
    }

    fn submit(&self, request: Request, done: Done) {
        if changes(request.operation) {
            self.change(request, done, |request, done| self.export.submit(request, done));
        } else {
            self.export.submit(request, done);
        }
    }

    fn submit_and_wait(&self, request: Request, done: Done) -> bool {
        if changes(request.operation) {
            self.change(request, done, |request, done| self.export.submit_and_wait(request, done)).unwrap_or(false)
        } else {
            self.export.submit_and_wait(request, done)
        }
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        self.export.extents(offset, length, extents_max)
    }
}

/// Bytes that one client has exclusively, until this is dropped.
pub struct Claim {
    of: Arc<Claimable>,
    range: Range,
}

impl Claim {
    /// The first byte.
    pub fn offset(&self) -> u64 {
        self.range.0
    }

    /// The export for the claimant's writes.
    pub fn export(&self) -> &Arc<dyn Export> {
        self.of.export()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.of.end(self.range);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Reports each request, and completes it immediately.
    struct Told(Mutex<Sender<(Operation, u64)>>);

    impl Export for Told {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn submit(&self, request: Request, done: Done) {
            self.0.lock().send((request.operation, request.offset)).unwrap();
            done(Ok(Vec::new()));
        }

        fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Error> {
            Err(Error::NotSupported)
        }
    }

    #[test]
    fn writes_of_others_to_claimed_bytes_wait_and_other_requests_do_not() {
        let (sender, told) = channel();
        let export = Arc::new(Claimable::new(Arc::new(Told(Mutex::new(sender)))));
        let (answer, answered) = channel();
        let ask = |operation, offset| {
            let request = Request {
                operation,
                offset,
                length: 512,
                force_unit_access: false,
                data: Vec::new(),
                caching: Default::default(),
            };
            let answer = answer.clone();
            export.submit(request, Box::new(move |_| answer.send(offset).unwrap()));
        };
        let claim = export.claim(1024, 512, Waker::noop()).unwrap();
        assert!(export.claim(1500, 512, Waker::noop()).is_none(), "claims do not overlap");
        let other = export.claim(1536, 512, Waker::noop()).unwrap();
        ask(Operation::Read, 1024);
        ask(Operation::Write, 512);
        ask(Operation::Write, 1020);
        ask(Operation::Trim, 1400);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Operation::Read, 1024), (Operation::Write, 512)]);
        drop(claim);
        // The second request overlaps the other claim.
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Operation::Write, 1020)]);
        drop(other);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Operation::Trim, 1400)]);
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [1024, 512, 1020, 1400]);
        assert!(export.claim(1024, 1024, Waker::noop()).is_some());
    }
}
