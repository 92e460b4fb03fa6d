//! Transfers on threads that block in system calls. Used if the kernel refuses io_uring, and for disks that are not
//! files.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::completions::{Completions, join};
use super::{Completed, Completion, Disk, Transfer, Transfers};
use crate::time::{Condvar, JoinHandle, Mutex};
use crate::vital::spawn;

/// Maximum number of threads of a disk. They are started when transfers wait.
const WORKERS_MAX: usize = 32;

/// Performs each transfer on a thread of its disk, so transfers of one disk never wait for those of another.
pub struct Pool {
    lanes: Vec<Arc<Lane>>,
    refusal: Option<String>,
}

/// A disk with its threads.
struct Lane {
    disk: Arc<dyn Disk>,
    completions: Arc<Completions>,
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    transfers: VecDeque<Transfer>,
    workers: Vec<JoinHandle>,
    /// Workers that wait for `ready`.
    idle: usize,
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
            queue.transfers.extend(transfers.extract_if(.., |transfer| transfer.disk == disk));
            let wake = queue.idle > 0;
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
    let mut batch = Vec::new();
    loop {
        let mut queue = lane.queue.lock();
        let transfer = loop {
            if let Some(transfer) = queue.transfers.pop_front() {
                break transfer;
            }
            if queue.stopping {
                return;
            }
            queue.idle += 1;
            queue = lane.ready.wait(&lane.queue, queue, None);
            queue.idle -= 1;
        };
        let more = !queue.transfers.is_empty();
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
        let result = lane.disk.perform(&transfer);
        batch.push(Completion { tag: transfer.tag, result });
        lane.completions.give(&mut batch);
    }
}
