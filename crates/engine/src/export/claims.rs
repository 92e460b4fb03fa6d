//! Exports whose bytes one client can claim for a moment, against the writes of all others.
//!
//! A command that reads before it writes, as SCSI's COMPARE AND WRITE, claims its bytes, reads, and writes within its claim. What others
//! write there meanwhile, over whatever protocol, waits for its end.

use std::sync::Arc;
use std::task::Waker;

use crate::time::{Mutex, RwLock};
use flashwise_core::filter::Client;

use super::{Done, Error, Export, Extent, Guest, Operation, Request};

/// Bytes from a first one up to an end.
type Range = (u64, u64);

/// An export with claims on its bytes.
pub struct Claimable {
    export: Arc<dyn Export>,
    claims: RwLock<Vec<Range>>,
    /// Taken while the claims are locked, so that none ends unseen.
    waiting: Mutex<Waiting>,
    withdrawn: RwLock<bool>,
}

/// What waits for a claim to end.
#[derive(Default)]
struct Waiting {
    writes: Vec<(Request, Done)>,
    claimants: Vec<Waker>,
}

impl Claimable {
    /// An export nobody has a claim on.
    pub fn new(export: Arc<dyn Export>) -> Claimable {
        Claimable { export, claims: RwLock::default(), waiting: Mutex::default(), withdrawn: RwLock::default() }
    }

    /// It is no longer among the exports that clients find, and never will be again. What is done [while it is](Self::while_offered) has
    /// ended then.
    pub(super) fn withdraw(&self) {
        *self.withdrawn.write() = true;
    }

    /// Does `work`, unless the export was taken away from clients, to whom another of its name may be offered; it is not while this lasts.
    pub fn while_offered<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let withdrawn = self.withdrawn.read();
        (!*withdrawn).then(work)
    }

    /// The export as it is, without regard to claims.
    pub fn export(&self) -> &Arc<dyn Export> {
        &self.export
    }

    /// Claims bytes, for as long as what is returned lasts. Where another claim is on some of them there is none, and `waker` is woken
    /// when it may be worth trying again.
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

    /// Submits what changes bytes unless they are claimed; then it waits, and `submit` is not called.
    fn change<R>(&self, request: Request, done: Done, submit: impl FnOnce(Request, Done) -> R) -> Option<R> {
        let claims = self.claims.read();
        if overlaps(&claims, request.offset, request.length) {
            self.waiting.lock().writes.push((request, done));
            return None;
        }
        // Whoever claims next comes behind it: an export performs what overlaps in the order in which it was submitted.
        Some(submit(request, done))
    }

    fn end(&self, range: Range) {
        let mut claims = self.claims.write();
        let at = claims.iter().position(|claimed| *claimed == range).expect("a claim that lasts is on the list");
        claims.swap_remove(at);
        let Waiting { writes, claimants } = std::mem::take(&mut *self.waiting.lock());
        drop(claims);
        // Those that another claim keeps waiting wait on.
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

/// Bytes that one client has for itself, until this goes.
pub struct Claim {
    of: Arc<Claimable>,
    range: Range,
}

impl Claim {
    /// The first byte.
    pub fn offset(&self) -> u64 {
        self.range.0
    }

    /// Where the claimant writes.
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

    /// Says what it was asked, and answers at once.
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
    fn what_others_write_to_claimed_bytes_waits_and_all_else_does_not() {
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
        // The second goes over into the other claim.
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Operation::Write, 1020)]);
        drop(other);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Operation::Trim, 1400)]);
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [1024, 512, 1020, 1400]);
        assert!(export.claim(1024, 1024, Waker::noop()).is_some());
    }
}
