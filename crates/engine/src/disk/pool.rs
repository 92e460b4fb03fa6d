//! Transfers by threads that block in system calls: for where the kernel refuses io_uring, and for disks that are no file.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::completions::{Completions, join};
use super::{Completed, Completion, Disk, Transfer, Transfers};
use crate::time::{Condvar, JoinHandle, Mutex};
use crate::vital::spawn;

/// The most threads of a pool. They are started as transfers wait for them.
const WORKERS_MAX: usize = 32;

/// Performs each transfer on one of its threads.
pub struct Pool {
    shared: Arc<Shared>,
    refusal: Option<String>,
}

struct Shared {
    disks: Vec<Arc<dyn Disk>>,
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
    /// A pool for `disks` which tells `completed` of the end of each transfer.
    pub fn new(disks: Vec<Arc<dyn Disk>>, completed: Completed) -> io::Result<Self> {
        Self::with_completions(disks, Arc::new(Completions::new(completed)))
    }

    pub(super) fn with_completions(disks: Vec<Arc<dyn Disk>>, completions: Arc<Completions>) -> io::Result<Self> {
        let shared = Arc::new(Shared { disks, completions, queue: Mutex::default(), ready: Condvar::new() });
        let worker = start_worker(&shared)?;
        shared.queue.lock().workers.push(worker);
        Ok(Self { shared, refusal: None })
    }

    /// Remembers why a pool was made, for [`Transfers::description`].
    pub(super) fn because(mut self, refusal: &io::Error) -> Self {
        self.refusal = Some(refusal.to_string());
        self
    }
}

impl Transfers for Pool {
    fn submit(&self, transfers: &mut Vec<Transfer>) {
        transfers.iter().for_each(|transfer| transfer.check(self.shared.disks.len()));
        if transfers.is_empty() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        queue.transfers.extend(transfers.drain(..));
        let wake = queue.idle > 0;
        drop(queue);
        // One is enough: a worker that leaves transfers behind wakes the next.
        if wake {
            self.shared.ready.notify_one();
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
        self.shared.queue.lock().stopping = true;
        self.shared.ready.notify_all();
        // A worker may start another one before it ends.
        loop {
            let workers = std::mem::take(&mut self.shared.queue.lock().workers);
            if workers.is_empty() {
                return;
            }
            workers.into_iter().for_each(join);
        }
    }
}

fn start_worker(shared: &Arc<Shared>) -> io::Result<JoinHandle> {
    let shared = Arc::clone(shared);
    spawn("disk", move || work(&shared))
}

/// Performs transfers until the pool stops and none is left.
fn work(shared: &Arc<Shared>) {
    let mut batch = Vec::new();
    loop {
        let mut queue = shared.queue.lock();
        let transfer = loop {
            if let Some(transfer) = queue.transfers.pop_front() {
                break transfer;
            }
            if queue.stopping {
                return;
            }
            queue.idle += 1;
            queue = shared.ready.wait(&shared.queue, queue, None);
            queue.idle -= 1;
        };
        let more = !queue.transfers.is_empty();
        let wake = more && queue.idle > 0;
        if more
            && !wake
            && queue.workers.len() < WORKERS_MAX
            // With at least one thread all transfers end, so that a refusal is no error.
            && let Ok(worker) = start_worker(shared)
        {
            queue.workers.push(worker);
        }
        drop(queue);
        if wake {
            shared.ready.notify_one();
        }
        let result = transfer.perform(&*shared.disks[transfer.disk]);
        batch.push(Completion { tag: transfer.tag, result });
        shared.completions.give(&mut batch);
    }
}
