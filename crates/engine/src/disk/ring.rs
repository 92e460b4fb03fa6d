//! Transfers by io_uring(7), on a thread that owns the ring.
//!
//! The ring takes whole reads, writes and syncs of disks that have a descriptor. All else goes to a [`Pool`], which blocks: zeroing
//! and discarding, the last unit of a disk whose size is not aligned, what ends past the end of a disk, disks without a
//! descriptor, and what the kernel did in part or asks to have tried again. Of a disk that is made of others, what lies on one of them
//! goes to that one's descriptor.

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

/// The most transfers that the kernel is given at a time; one entry of the ring is kept for the wake-up.
const IN_FLIGHT_MAX: usize = ENTRIES as usize - 1;
const ENTRIES: u32 = 512;

/// The most buffers in one vectored transfer (`UIO_MAXIOV` in linux/uio.h).
const VECTORS_MAX: usize = 1024;

/// The most bytes in one transfer (`MAX_RW_COUNT` in linux/fs.h, for the largest page).
const LENGTH_MAX: u64 = (i32::MAX as u64) & !0xffff;

/// The completion of the read that waits for a wake-up; transfers are numbered from 0.
const WAKE_UP: u64 = u64::MAX;

/// Performs transfers by io_uring.
pub struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle>,
}

struct Shared {
    disks: Vec<Arc<dyn Disk>>,
    completions: Arc<Completions>,
    pool: Pool,
    queue: Mutex<Queue>,
    /// True if the ring's thread will not look at the queue before it is woken. Set with the queue locked and empty.
    asleep: AtomicBool,
    /// An eventfd(2), to wake the ring's thread.
    wake_up: OwnedFd,
}

/// A transfer and the disk that has its bytes, and where, if that is a part of the disk that it names.
struct Queued {
    transfer: Transfer,
    part: Option<(Arc<dyn Disk>, u64)>,
}

#[derive(Default)]
struct Queue {
    transfers: VecDeque<Queued>,
    stopping: bool,
}

/// Fails if the kernel has no io_uring, lacks a part of it that is needed, or does not let this process use it.
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
    // The thread that submits is the one that waits, which spares it interruptions since Linux 6.1.
    let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
    built.or_else(|_| IoUring::new(ENTRIES)).map_err(|error| io::Error::new(error.kind(), format!("io_uring: {error}")))
}

impl Ring {
    /// A ring for `disks` which tells `completed` of the end of each transfer. Fails if the kernel refuses it.
    pub fn new(disks: Vec<Arc<dyn Disk>>, completed: Completed) -> io::Result<Self> {
        probe()?;
        let completions = Arc::new(Completions::new(completed));
        let pool = Pool::with_completions(disks.clone(), Arc::clone(&completions))?;
        let wake_up = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let (queue, asleep) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { disks, completions, pool, queue, asleep, wake_up });
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
            let has_file = |disk: &dyn Disk| disk.descriptor().is_some();
            if part.as_ref().map_or_else(|| has_file(&*self.shared.disks[transfer.disk]), |(disk, _)| has_file(&**disk))
            {
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

impl Shared {
    /// Has the ring's thread look at the queue, after it was changed.
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

    /// The entry of the submission queue for a transfer that suits the ring.
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

/// What the ring's thread knows.
struct Reaper {
    shared: Arc<Shared>,
    ring: IoUring,
    in_flight: Slab<Queued>,
    /// Where the wake-up's number is read to, while the kernel waits for it.
    wake_up_number: Box<[u8; 8]>,
    wake_up_armed: bool,
}

/// Performs transfers until the ring stops and none is left.
fn run(shared: Arc<Shared>, built: &Sender<io::Result<()>>) {
    // The kernel lets only the thread that made such a ring use it.
    let ring = match build() {
        Ok(ring) => ring,
        Err(error) => {
            // Whoever made the ring waits for this.
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
    /// Queues what is to be submitted; returns whether all is done for good.
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
        // With the kernel at its limit there is nothing to do for a wake-up.
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
        // SAFETY: the memory stays valid until the completion: that of a transfer's bytes by its submitter's guarantee, the list
        // of its buffers in `in_flight`, and that of the wake-up's number in `self`, which `Drop` keeps for as long.
        #[allow(unsafe_code)]
        unsafe { self.ring.submission().push(entry) }.expect("no more is in flight than the ring has entries");
    }

    /// Submits what is queued, and waits for something to end.
    fn wait(&self) {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    // Memory is short, or completions must be taken first.
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                        std::thread::yield_now();
                        return;
                    }
                    _ => panic!("io_uring_enter: {error}"),
                },
            }
        }
    }

    /// Takes the completions: those that are final to `batch`, the transfers to perform by blocking calls to `again`.
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
        // Reached with a read of the wake-up in flight, which may write to its memory until it ends.
        self.shared.asleep.store(true, Ordering::Relaxed);
        self.shared.wake();
        while self.wake_up_armed {
            self.wait();
            self.reap(&mut Vec::new(), &mut Vec::new());
        }
    }
}
