//! Transfers on threads that block in system calls. Used if the kernel refuses io_uring, and for disks that are not
//! files.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::completions::{Completions, join};
use super::{Completed, Completion, Disk, Operation, Transfer, Transfers};
use crate::time::{Condvar, JoinHandle, Mutex};
use crate::vital::spawn;

/// Maximum number of threads of a disk. They are started when transfers wait.
const WORKERS_MAX: usize = 32;

/// The most writes to the page cache that a thread takes at once. Each takes less time than to wake another thread.
const WRITES_MAX: usize = 16;
/// The most bytes of these writes, if there is more than one.
const WRITES_BYTES_MAX: u64 = 256 << 10;

/// Performs each transfer on a thread of its disk, so transfers of one disk never wait for those of another. Only one
/// thread writes to the page cache, because file systems lock the file.
pub struct Pool {
    lanes: Vec<Arc<Lane>>,
    refusal: Option<String>,
}

/// A disk with its threads.
struct Lane {
    disk: Arc<dyn Disk>,
    completions: Arc<Completions>,
    queue: Mutex<TransferQueue>,
    ready: Condvar,
}

#[derive(Default)]
struct TransferQueue {
    transfers: VecDeque<Transfer>,
    workers: Vec<JoinHandle>,
    /// Workers that wait for `ready`.
    idle: usize,
    /// True while a worker writes to the page cache. It takes the next such writes afterwards.
    writing: bool,
    stopping: bool,
}

impl Pool {
    /// Creates a pool for `disks`, with the completion function `completed`.
    pub fn new(disks: Vec<Arc<dyn Disk>>, completed: Completed) -> io::Result<Self> {
        Self::with_completions(disks, Arc::new(Completions::new(completed)))
    }

    pub(super) fn with_completions(disks: Vec<Arc<dyn Disk>>, completions: Arc<Completions>) -> io::Result<Self> {
        let lane = |disk| {
            let completions = Arc::clone(&completions);
            Arc::new(Lane { disk, completions, queue: Mutex::default(), ready: Condvar::new() })
        };
        let pool = Self { lanes: disks.into_iter().map(lane).collect(), refusal: None };
        for lane in &pool.lanes {
            let worker = start_worker(lane)?;
            lane.queue.lock().workers.push(worker);
        }
        Ok(pool)
    }

    /// Records why a pool is used, for [`Transfers::description`].
    pub(super) fn because(mut self, refusal: &io::Error) -> Self {
        self.refusal = Some(refusal.to_string());
        self
    }
}

impl Transfers for Pool {
    fn submit(&self, transfers: &mut Vec<Transfer>) {
        transfers.iter().for_each(|transfer| transfer.check(self.lanes.len()));
        for (disk, lane) in self.lanes.iter().enumerate() {
            if !transfers.iter().any(|transfer| transfer.disk == disk) {
                continue;
            }
            let mut queue = lane.queue.lock();
            let before = queue.transfers.len();
            queue.transfers.extend(transfers.extract_if(.., |transfer| transfer.disk == disk));
            let wake = queue.idle > 0 && lane.has_any(&queue, before);
            drop(queue);
            // One is enough: a worker that leaves transfers in the queue wakes the next.
            if wake {
                lane.ready.notify_one();
            }
        }
    }

    fn description(&self) -> String {
        match &self.refusal {
            None => "threads".to_owned(),
            Some(refusal) => format!("threads, as io_uring is refused: {refusal}"),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.queue.lock().stopping = true;
            lane.ready.notify_all();
        }
        self.lanes.iter().for_each(|lane| lane.end());
    }
}

impl Lane {
    fn is_buffered(&self, transfer: &Transfer) -> bool {
        transfer.operation == Operation::Write && self.disk.buffers_writes()
    }

    fn may_begin(&self, transfer: &Transfer, queue: &TransferQueue) -> bool {
        !(queue.writing && self.is_buffered(transfer))
    }

    /// True if a transfer in the queue, from this position on, may begin.
    fn has_any(&self, queue: &TransferQueue, from: usize) -> bool {
        queue.transfers.range(from..).any(|one| self.may_begin(one, queue))
    }

    /// Takes the next transfer that may begin, if there is one. Takes several writes to the page cache, and returns
    /// true for these.
    fn take(&self, queue: &mut TransferQueue, taken: &mut Vec<Transfer>) -> Option<bool> {
        let first = queue.transfers.iter().position(|one| self.may_begin(one, queue))?;
        let is_buffered = self.is_buffered(&queue.transfers[first]);
        let mut bytes = 0;
        let fits = |one: &&Transfer| {
            bytes += one.length;
            self.is_buffered(one) && bytes <= WRITES_BYTES_MAX
        };
        let count = queue.transfers.range(first..).take(WRITES_MAX).take_while(fits).count().max(1);
        taken.extend(queue.transfers.drain(first..first + count));
        queue.writing |= is_buffered;
        Some(is_buffered)
    }

    /// Waits for its threads to stop.
    fn end(&self) {
        // A worker may start another before it ends.
        loop {
            let workers = std::mem::take(&mut self.queue.lock().workers);
            if workers.is_empty() {
                return;
            }
            workers.into_iter().for_each(join);
        }
    }
}

fn start_worker(lane: &Arc<Lane>) -> io::Result<JoinHandle> {
    let lane = Arc::clone(lane);
    spawn("disk", move || work(&lane))
}

/// Performs the transfers of a disk until the pool stops and the queue is empty.
fn work(lane: &Arc<Lane>) {
    let (mut batch, mut taken) = (Vec::new(), Vec::new());
    loop {
        let mut queue = lane.queue.lock();
        let is_buffered = loop {
            if let Some(is_buffered) = lane.take(&mut queue, &mut taken) {
                break is_buffered;
            }
            if queue.stopping {
                return;
            }
            queue.idle += 1;
            queue = lane.ready.wait(&lane.queue, queue, None);
            queue.idle -= 1;
        };
        let more = lane.has_any(&queue, 0);
        let wake = more && queue.idle > 0;
        if more
            && !wake
            && queue.workers.len() < WORKERS_MAX
            // One thread is enough for all transfers to complete, so a failure here is ignored.
            && let Ok(worker) = start_worker(lane)
        {
            queue.workers.push(worker);
        }
        drop(queue);
        if wake {
            lane.ready.notify_one();
        }
        let perform = |one: Transfer| Completion { tag: one.tag, result: lane.disk.perform(&one) };
        batch.extend(taken.drain(..).map(perform));
        if is_buffered {
            lane.queue.lock().writing = false;
        }
        lane.completions.give(&mut batch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::{Allocation, FileDisk, Options, PageCache};
    use super::super::memory::MemoryDisk;
    use super::*;

    /// Returns the groups of tags that threads take, until none may begin. The threads do not end.
    fn taken(disk: Arc<dyn Disk>, transfers: &[(Operation, u64)]) -> Vec<Vec<u64>> {
        let completions = Arc::new(Completions::new(Box::new(|_| ())));
        let lane = Lane { disk, completions, queue: Mutex::default(), ready: Condvar::new() };
        let mut queue = lane.queue.lock();
        let (buffers, stream) = (Vec::new(), 0);
        let transfer = |(tag, &(operation, length)): (u64, &(Operation, u64))| Transfer {
            tag,
            disk: 0,
            operation,
            offset: 0,
            length,
            buffers: buffers.clone(),
            stream,
        };
        queue.transfers = (0..).zip(transfers).map(transfer).collect();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while lane.take(&mut queue, &mut batch).is_some() {
            all.push(batch.drain(..).map(|transfer| transfer.tag).collect());
        }
        assert!(!lane.has_any(&queue, 0));
        all
    }

    #[test]
    fn one_thread_takes_several_writes_to_the_page_cache_and_others_take_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { read_only: false, page_cache: PageCache::Use };
        let file = FileDisk::create(&directory.path().join("disk"), 4096, Allocation::Sparse, options).unwrap();
        let file: Arc<dyn Disk> = Arc::new(file);
        let short = [(Operation::Write, 4096); WRITES_MAX + 1];
        let others = [(Operation::Sync, 0), (Operation::Read, 4096)];
        let count = WRITES_MAX as u64;
        let mixed = [&short[..], &others].concat();
        assert_eq!(taken(file.clone(), &mixed), [(0..count).collect(), vec![count + 1], vec![count + 2]]);
        let long = [(Operation::Write, 4096), (Operation::Write, WRITES_BYTES_MAX)];
        assert_eq!(taken(file.clone(), &long), [[0]]);
        assert_eq!(taken(file, &long[1..]), [[0]]);
        let each: Vec<_> = (0..mixed.len() as u64).map(|tag| vec![tag]).collect();
        assert_eq!(taken(Arc::new(MemoryDisk::new(4096)), &mixed), each);
    }
}
