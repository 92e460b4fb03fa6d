//! Transfers by io_uring(7), on a thread that owns the ring.
//!
//! The ring performs complete reads, writes and syncs of disks that have a descriptor. For a disk made of others, a
//! transfer goes to the descriptor of the part. A blocking [`Pool`] performs the rest:
//!
//! - zeroing and discarding
//! - the last unit of a disk whose size is not aligned, and transfers beyond the end
//! - disks without a descriptor
//! - writes to the page cache
//! - transfers that the kernel completed in part or wants to be retried

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use slab::Slab;

use super::completions::{Completions, join};
use super::pool::Pool;
use super::{Completed, Completion, Disk, Operation, Transfer, Transfers};
use crate::time::{JoinHandle, Mutex};
use crate::vital::spawn;

/// Maximum number of transfers in the kernel. One entry of the ring is reserved for the wake-up.
const IN_FLIGHT_MAX: usize = ENTRIES as usize - 1;
const ENTRIES: u32 = 512;

/// Maximum number of buffers in one vectored transfer (`UIO_MAXIOV` in linux/uio.h).
const VECTORS_MAX: usize = 1024;

/// Maximum number of bytes in one transfer (`MAX_RW_COUNT` in linux/fs.h, for the largest page).
const LENGTH_MAX: u64 = (i32::MAX as u64) & !0xffff;

/// Identifies the read that waits for a wake-up. Transfers are numbered from 0.
const WAKE_UP: u64 = u64::MAX;

/// Performs transfers with io_uring.
pub struct Ring {
    shared: Arc<SharedRing>,
    thread: Option<JoinHandle>,
}

struct SharedRing {
    disks: Vec<Arc<dyn Disk>>,
    completions: Arc<Completions>,
    pool: Pool,
    queue: Mutex<RingQueue>,
    /// True if the ring's thread must be woken before it looks at the queue. Set with the queue locked and empty.
    asleep: AtomicBool,
    /// The eventfd(2) that wakes the ring's thread.
    wake_up: OwnedFd,
}

/// A transfer. If its bytes are on a part of its disk: that part, and the offset on it.
struct Queued {
    transfer: Transfer,
    part: Option<(Arc<dyn Disk>, u64)>,
}

#[derive(Default)]
struct RingQueue {
    transfers: VecDeque<Queued>,
    stopping: bool,
}

/// Fails if the kernel has no io_uring, lacks an operation that is needed, or denies it to this process.
pub fn probe() -> io::Result<()> {
    let ring = build()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed =
        [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
    match needed.into_iter().find(|&code| !probe.is_supported(code)) {
        None => Ok(()),
        Some(code) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("io_uring has no operation {code}; Linux 5.6 or later does"),
        )),
    }
}

fn build() -> io::Result<IoUring> {
    // The thread that submits also waits, which avoids interrupts since Linux 6.1.
    let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
    built.or_else(|_| IoUring::new(ENTRIES)).map_err(|error| io::Error::new(error.kind(), format!("io_uring: {error}")))
}

impl Ring {
    /// Creates a ring for `disks`, with the completion function `completed`. Fails if the kernel refuses it.
    pub fn new(disks: Vec<Arc<dyn Disk>>, completed: Completed) -> io::Result<Self> {
        probe()?;
        let completions = Arc::new(Completions::new(completed));
        let pool = Pool::with_completions(disks.clone(), Arc::clone(&completions))?;
        let wake_up = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let (queue, asleep) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(SharedRing { disks, completions, pool, queue, asleep, wake_up });
        let (built, answer) = channel();
        let thread = spawn("disk ring", {
            let shared = Arc::clone(&shared);
            move || run(shared, &built)
        })?;
        answer.recv().expect("the thread answers before it ends")?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Transfers for Ring {
    fn submit(&self, transfers: &mut Vec<Transfer>) {
        transfers.iter().for_each(|transfer| transfer.check(self.shared.disks.len()));
        let mut blocking: Vec<_> = transfers.extract_if(.., |transfer| !self.shared.suits_ring(transfer)).collect();
        let part = |transfer: &Transfer| self.shared.disks[transfer.disk].part(transfer.offset, transfer.length);
        let mut queued = Vec::with_capacity(transfers.len());
        for transfer in transfers.drain(..) {
            let part = part(&transfer);
            let disk = part.as_ref().map_or(&*self.shared.disks[transfer.disk], |(disk, _)| &**disk);
            let is_buffered = transfer.operation == Operation::Write && disk.buffers_writes();
            if disk.descriptor().is_some() && !is_buffered {
                queued.push(Queued { transfer, part });
            } else {
                blocking.push(transfer);
            }
        }
        self.shared.pool.submit(&mut blocking);
        if queued.is_empty() {
            return;
        }
        self.shared.queue.lock().transfers.extend(queued);
        self.shared.wake();
    }

    fn description(&self) -> String {
        "io_uring".to_owned()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.wake();
        self.thread.take().into_iter().for_each(join);
    }
}

impl SharedRing {
    /// Wakes the ring's thread after a change of the queue.
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            rustix::io::write(&self.wake_up, &1u64.to_ne_bytes()).expect("an eventfd takes many more wake-ups");
        }
    }

    fn suits_ring(&self, transfer: &Transfer) -> bool {
        let disk = &self.disks[transfer.disk];
        let whole = || {
            let end = transfer.offset.checked_add(transfer.length);
            end.is_some_and(|end| end <= disk.size())
                && (1..=LENGTH_MAX).contains(&transfer.length)
                && transfer.buffers.len() <= VECTORS_MAX
        };
        match transfer.operation {
            Operation::Read | Operation::Write => whole(),
            Operation::Sync => disk.descriptor().is_some(),
            Operation::Zero { .. } | Operation::Discard => false,
        }
    }

    /// Returns the submission queue entry of a transfer that suits the ring.
    fn entry(&self, Queued { transfer, part }: &Queued) -> Entry {
        let (disk, offset) = match part {
            Some((disk, offset)) => (&**disk, *offset),
            None => (&*self.disks[transfer.disk], transfer.offset),
        };
        let descriptor = disk.descriptor().expect("the ring has only disks with a descriptor");
        let file = Fd(descriptor.as_raw_fd());
        match (transfer.operation, &transfer.buffers[..]) {
            (Operation::Sync, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            (Operation::Read, [buffer]) => {
                opcode::Read::new(file, buffer.start, buffer.length as u32).offset(offset).build()
            }
            (Operation::Write, [buffer]) => {
                let write = opcode::Write::new(file, buffer.start, buffer.length as u32);
                write.offset(offset).write_stream(transfer.stream).build()
            }
            (Operation::Read, buffers) => {
                opcode::Readv::new(file, buffers.as_ptr().cast(), buffers.len() as u32).offset(offset).build()
            }
            (Operation::Write, buffers) => {
                let write = opcode::Writev::new(file, buffers.as_ptr().cast(), buffers.len() as u32);
                write.offset(offset).write_stream(transfer.stream).build()
            }
            (Operation::Zero { .. } | Operation::Discard, _) => unreachable!("the pool has these"),
        }
    }
}

/// The state of the ring's thread.
struct Reaper {
    shared: Arc<SharedRing>,
    ring: IoUring,
    in_flight: Slab<Queued>,
    /// The buffer that the kernel reads the wake-up's number into.
    wake_up_number: Box<[u8; 8]>,
    wake_up_armed: bool,
}

/// Performs transfers until the ring stops and the queue is empty.
fn run(shared: Arc<SharedRing>, built: &Sender<io::Result<()>>) {
    // The kernel lets only the creating thread use such a ring.
    let ring = match build() {
        Ok(ring) => ring,
        Err(error) => {
            // The creator of the ring waits for this.
            let _ = built.send(Err(error));
            return;
        }
    };
    let _ = built.send(Ok(()));
    let wake_up_number = Box::new([0; 8]);
    let mut reaper = Reaper { shared, ring, in_flight: Slab::new(), wake_up_number, wake_up_armed: false };
    let mut batch = Vec::new();
    let mut again = Vec::new();
    loop {
        if reaper.start() {
            break;
        }
        reaper.wait();
        reaper.shared.asleep.store(false, Ordering::Relaxed);
        reaper.reap(&mut batch, &mut again);
        reaper.shared.pool.submit(&mut again);
        reaper.shared.completions.give(&mut batch);
    }
}

impl Reaper {
    /// Queues transfers for submission. True if the ring has stopped and nothing is left.
    fn start(&mut self) -> bool {
        self.arm_wake_up();
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue.lock();
        while self.in_flight.len() < IN_FLIGHT_MAX {
            let Some(queued) = queue.transfers.pop_front() else { break };
            let entry = shared.entry(&queued);
            let number = self.in_flight.insert(queued);
            self.push(&entry.user_data(number as u64));
        }
        // At the limit of the kernel, a wake-up would have no effect.
        self.shared.asleep.store(queue.transfers.is_empty(), Ordering::Relaxed);
        queue.stopping && queue.transfers.is_empty() && self.in_flight.is_empty()
    }

    fn arm_wake_up(&mut self) {
        if !self.wake_up_armed {
            let file = Fd(self.shared.wake_up.as_raw_fd());
            let read = opcode::Read::new(file, self.wake_up_number.as_mut_ptr(), 8).build();
            self.push(&read.user_data(WAKE_UP));
            self.wake_up_armed = true;
        }
    }

    fn push(&mut self, entry: &Entry) {
        // SAFETY: the memory stays valid until the completion. The submitter guarantees it for the bytes of a transfer,
        // `in_flight` keeps the list of buffers, and `self` keeps the wake-up's number, for which `Drop` waits.
        #[allow(unsafe_code)]
        unsafe { self.ring.submission().push(entry) }.expect("no more is in flight than the ring has entries");
    }

    /// Submits the queued entries, and waits for a completion.
    fn wait(&self) {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    // Memory is short, or completions must be processed first.
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                        std::thread::yield_now();
                        return;
                    }
                    _ => panic!("io_uring_enter: {error}"),
                },
            }
        }
    }

    /// Processes completions: final ones go to `batch`, transfers to retry with blocking calls go to `again`.
    fn reap(&mut self, batch: &mut Vec<Completion>, again: &mut Vec<Transfer>) {
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE_UP {
                self.wake_up_armed = false;
                continue;
            }
            let Queued { transfer, .. } = self.in_flight.remove(entry.user_data() as usize);
            let expected = if transfer.operation == Operation::Sync { 0 } else { transfer.length };
            let retry = [Errno::AGAIN, Errno::INTR, Errno::CANCELED].map(|errno| -errno.raw_os_error());
            match entry.result() {
                done if done >= 0 && done as u64 == expected => {
                    batch.push(Completion { tag: transfer.tag, result: Ok(()) });
                }
                error if error < 0 && !retry.contains(&error) => {
                    let error = io::Error::from_raw_os_error(-error);
                    let disk = self.shared.disks[transfer.disk].description();
                    let what = format!("{disk}: {:?} at {}: {error}", transfer.operation, transfer.offset);
                    batch.push(Completion { tag: transfer.tag, result: Err(io::Error::new(error.kind(), what)) });
                }
                _ => again.push(transfer),
            }
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The read of the wake-up may be in flight, and may write to its memory until it ends.
        self.shared.asleep.store(true, Ordering::Relaxed);
        self.shared.wake();
        while self.wake_up_armed {
            self.wait();
            self.reap(&mut Vec::new(), &mut Vec::new());
        }
    }
}
