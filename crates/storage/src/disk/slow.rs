//! Artificially slow disks that stand for hard disks in benchmarks. Each read and write occupies one spindle for a
//! fixed time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::completions::{Completions, join};
use super::{Completed, Completion, Disk, Operation, Transfer, Transfers};
use crate::export::Extent;
use crate::time::{self, Condvar, JoinHandle, Mutex};
use crate::vital::spawn;

/// The speed of a slow disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// Minimum duration of a read or write.
    pub delay: Duration,
    /// Number of concurrent transfers, at least 1.
    pub spindles: usize,
}

/// The time when each spindle becomes free.
#[derive(Debug)]
struct Spindles {
    delay: Duration,
    free_at: BinaryHeap<Reverse<Instant>>,
}

impl Spindles {
    fn new(slowness: Slowness) -> Self {
        assert!(slowness.spindles > 0, "a disk has a spindle");
        let now = time::now();
        Self { delay: slowness.delay, free_at: (0..slowness.spindles).map(|_| Reverse(now)).collect() }
    }

    /// Occupies the spindle that is free first. Returns the end of the transfer.
    fn take(&mut self, now: Instant) -> Instant {
        let Reverse(free_at) = self.free_at.pop().expect("a disk has a spindle");
        let end = free_at.max(now) + self.delay;
        self.free_at.push(Reverse(end));
        end
    }
}

/// A disk whose reads and writes are delayed. It has no descriptor, so no transfer bypasses the delay.
pub struct SlowDisk {
    disk: Arc<dyn Disk>,
    spindles: Mutex<Spindles>,
}

impl SlowDisk {
    /// Slows `disk` down.
    pub fn new(disk: Arc<dyn Disk>, slowness: Slowness) -> Self {
        Self { disk, spindles: Mutex::new(Spindles::new(slowness)) }
    }

    fn delayed(&self, transfer: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let end = self.spindles.lock().take(time::now());
        let result = transfer();
        time::sleep(end.saturating_duration_since(time::now()));
        result
    }
}

impl Disk for SlowDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        self.disk.description()
    }

    fn drive_written_bytes(&self) -> Option<u64> {
        self.disk.drive_written_bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.delayed(|| self.disk.read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.delayed(|| self.disk.write_at(buffer, offset))
    }

    fn read_vectored_at(&self, buffers: &mut [io::IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        self.delayed(|| self.disk.read_vectored_at(buffers, offset))
    }

    fn write_vectored_at(&self, buffers: &mut [io::IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.delayed(|| self.disk.write_vectored_at(buffers, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.disk.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> io::Result<Vec<Extent>> {
        self.disk.extents(offset, length, extents_max)
    }
}

/// Transfers that are delayed on slow disks: they start immediately, and their completions are held back. Unlike with
/// [`SlowDisk`], no thread waits for each of them.
pub struct SlowTransfers {
    disks: usize,
    shared: Arc<SlowDisks>,
    /// Dropped before the timer is joined.
    transfers: Option<Arc<dyn Transfers>>,
    timer: Option<JoinHandle>,
}

struct SlowDisks {
    state: Mutex<SlowState>,
    /// Notified when the earliest of `held_back` changes, or at the end.
    changed: Condvar,
    completions: Completions,
}

struct SlowState {
    /// By index of the disk.
    spindles: Vec<Option<Spindles>>,
    under_way: Slab<UnderWay>,
    /// The time when each completion is due, and its number in `under_way`.
    held_back: BinaryHeap<Reverse<(Instant, usize)>>,
    stopping: bool,
}

struct UnderWay {
    tag: u64,
    end: Option<Instant>,
    result: io::Result<()>,
}

impl SlowTransfers {
    /// Delays the transfers that `make` creates with the completion function that it is given. `slowness` has an
    /// element for each disk.
    pub fn new(
        slowness: &[Option<Slowness>],
        make: impl FnOnce(Completed) -> io::Result<Arc<dyn Transfers>>,
        completed: Completed,
    ) -> io::Result<Self> {
        let state = SlowState {
            spindles: slowness.iter().map(|slowness| slowness.map(Spindles::new)).collect(),
            under_way: Slab::new(),
            held_back: BinaryHeap::new(),
            stopping: false,
        };
        let completions = Completions::new(completed);
        let shared = Arc::new(SlowDisks { state: Mutex::new(state), changed: Condvar::new(), completions });
        let transfers = make({
            let shared = Arc::clone(&shared);
            Box::new(move |batch| shared.hold_back(batch))
        })?;
        let timer = spawn("slow disk", {
            let shared = Arc::clone(&shared);
            move || shared.release()
        })?;
        Ok(Self { disks: slowness.len(), shared, transfers: Some(transfers), timer: Some(timer) })
    }
}

impl Transfers for SlowTransfers {
    fn submit(&self, transfers: &mut Vec<Transfer>) {
        let now = time::now();
        transfers.iter().for_each(|transfer| transfer.check(self.disks));
        let mut state = self.shared.state.lock();
        for transfer in transfers.iter_mut() {
            let end = match (transfer.operation, &mut state.spindles[transfer.disk]) {
                (Operation::Read | Operation::Write, Some(spindles)) => Some(spindles.take(now)),
                _ => None,
            };
            transfer.tag = state.under_way.insert(UnderWay { tag: transfer.tag, end, result: Ok(()) }) as u64;
        }
        drop(state);
        self.transfers.as_ref().expect("it is there until it is dropped").submit(transfers);
    }

    fn description(&self) -> String {
        let transfers = self.transfers.as_ref().expect("it is there until it is dropped");
        format!("{}, slowed down", transfers.description())
    }
}

impl Drop for SlowTransfers {
    fn drop(&mut self) {
        self.transfers = None;
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_one();
        self.timer.take().into_iter().for_each(join);
    }
}

impl SlowDisks {
    /// Delivers the completions that are due, and leaves the others to the timer.
    fn hold_back(&self, batch: &mut Vec<Completion>) {
        let now = time::now();
        let mut state = self.state.lock();
        let earliest = state.held_back.peek().copied();
        batch.retain_mut(|completion| {
            let number = completion.tag as usize;
            let UnderWay { tag, end, result } = &mut state.under_way[number];
            match *end {
                Some(end) if end > now => {
                    *result = std::mem::replace(&mut completion.result, Ok(()));
                    state.held_back.push(Reverse((end, number)));
                    false
                }
                _ => {
                    completion.tag = *tag;
                    state.under_way.remove(number);
                    true
                }
            }
        });
        let changed = state.held_back.peek() != earliest.as_ref() || state.stopping;
        drop(state);
        if changed {
            self.changed.notify_one();
        }
        self.completions.give(batch);
    }

    /// Delivers completions when they are due, until the end.
    fn release(&self) {
        let mut batch = Vec::new();
        let mut state = self.state.lock();
        loop {
            let now = time::now();
            while let Some(&Reverse((end, number))) = state.held_back.peek()
                && end <= now
            {
                state.held_back.pop();
                let UnderWay { tag, result, .. } = state.under_way.remove(number);
                batch.push(Completion { tag, result });
            }
            if !batch.is_empty() {
                drop(state);
                self.completions.give(&mut batch);
                state = self.state.lock();
                continue;
            }
            let end = state.held_back.peek().map(|Reverse((end, _))| *end);
            if end.is_none() && state.stopping && state.under_way.is_empty() {
                return;
            }
            state = self.changed.wait(&self.state, state, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_waits_for_the_spindle_that_is_free_first() {
        let mut spindles = Spindles::new(Slowness { delay: Duration::from_millis(10), spindles: 2 });
        let start = time::now() + Duration::from_secs(1);
        let mut end_ms = |at_ms: u64| {
            let end = spindles.take(start + Duration::from_millis(at_ms));
            end.duration_since(start).as_millis()
        };
        // At 0 both spindles are free. At 4 both are busy until 10. At 25 both have been free since 20.
        assert_eq!([0, 0, 4, 4, 25].map(&mut end_ms), [10, 10, 20, 20, 35]);
    }
}
