//! Latencies at a queue depth of 1: each request comes when the previous one is answered.
//!
//! Flash has a clock for each plane, the backend one for each of its channels. Work of a request starts when its inputs
//! are ready: reads run in parallel, then writes, then erasures. Work left when the request is answered continues in
//! the background, in order of time, and queues at the devices like any other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashwise_device::TierModel;
use flashwise_device::flash::Clock;
use flashwise_device::flash::clock::Operation;

/// Work of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Flash(Operation),
    /// One access to the backend.
    Backend {
        blocks: u32,
        write: bool,
    },
    /// Allows writes to a bucket from now on.
    Release {
        bucket: u32,
    },
    /// Waits until a bucket has been released this often; see [`Schedule::wait_for`].
    Await {
        bucket: u32,
        releases: u32,
    },
}

impl Work {
    /// Work with the same number runs in parallel.
    fn stage(self) -> u8 {
        match self {
            Work::Flash(Operation::Read { .. }) | Work::Backend { write: false, .. } => 0,
            Work::Flash(Operation::Program { .. }) | Work::Backend { write: true, .. } => 1,
            Work::Flash(Operation::Erase { .. }) => 2,
            Work::Release { .. } => 3,
            Work::Await { .. } => 4,
        }
    }
}

/// Work in progress.
#[derive(Debug)]
struct Job {
    work: Vec<Work>,
    done: usize,
}

/// Number of releases of a bucket, and the time of the last.
#[derive(Clone, Copy, Debug, Default)]
struct Released {
    asked: u32,
    done: u32,
    at_ns: u64,
}

#[derive(Debug)]
pub(super) struct Schedule {
    flash: Clock,
    backend_free_at_ns: Vec<u64>,
    read_ns: u64,
    write_ns: u64,
    block_ns: u64,
    now_ns: u64,
    /// Times at which jobs can continue, the earliest first, with their arrival times.
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Jobs that continue when a bucket is released.
    waiting: Vec<usize>,
    jobs: Vec<Job>,
    free_jobs: Vec<usize>,
    count: u64,
    released: Vec<Released>,
    work: Vec<Work>,
}

impl Schedule {
    pub fn new(flash: Clock, backend: &TierModel, buckets: u32) -> Schedule {
        let (device, service) = (backend.tier.device, backend.service);
        let ns = |us: f64| (us * 1000.0).round() as u64;
        let block_ns = |mb_per_s: f64| ns(4096.0 / mb_per_s);
        Schedule {
            flash,
            backend_free_at_ns: vec![0; service.channels as usize],
            read_ns: ns(device.read_latency_us),
            write_ns: ns(device.write_latency_us),
            block_ns: service.transfer_mb_per_s.map_or(ns(device.read_latency_us), block_ns),
            now_ns: 0,
            queue: BinaryHeap::new(),
            waiting: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            count: 0,
            released: vec![Released::default(); buckets as usize],
            work: Vec::new(),
        }
    }

    /// Erase blocks of a unit of flash.
    pub fn unit_blocks(&self) -> u32 {
        self.flash.unit_blocks()
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Starts a request.
    #[inline]
    pub fn begin(&mut self) {
        while self.queue.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= self.now_ns) {
            self.continue_background();
        }
    }

    #[inline]
    pub fn add(&mut self, work: Work) {
        if let Work::Release { bucket } = work {
            self.released[bucket as usize].asked += 1;
        }
        self.work.push(work);
    }

    /// Makes the work added from now on wait for a bucket, whose releases were added before.
    pub fn wait_for(&mut self, bucket: u32) {
        let releases = self.released[bucket as usize].asked;
        self.add(Work::Await { bucket, releases });
    }

    /// Ends the part that the client waits for. Returns the time until all work added so far is done.
    #[inline]
    pub fn reply(&mut self) -> u64 {
        let (work, began_ns) = (std::mem::take(&mut self.work), self.now_ns);
        let mut done = 0;
        while done < work.len() {
            // Work to wait for was added earlier and does not wait for later work.
            while self.waits(&work, done) {
                self.continue_background();
            }
            (self.now_ns, done) = self.stage(&work, done, self.now_ns);
        }
        self.work = work;
        self.work.clear();
        self.now_ns - began_ns
    }

    /// Moves the work added since to the background.
    #[inline]
    pub fn end(&mut self) {
        if self.work.is_empty() {
            return;
        }
        let number = self.free_jobs.pop().unwrap_or_else(|| {
            self.jobs.push(Job { work: Vec::new(), done: 0 });
            self.jobs.len() - 1
        });
        let job = &mut self.jobs[number];
        job.done = 0;
        std::mem::swap(&mut job.work, &mut self.work);
        self.put(self.now_ns, number);
    }

    fn put(&mut self, at_ns: u64, job: usize) {
        self.count += 1;
        self.queue.push(Reverse((at_ns, self.count, job)));
    }

    /// Performs the next stage of the earliest background work.
    fn continue_background(&mut self) {
        let Reverse((at_ns, _, number)) = self.queue.pop().expect("there is background work");
        let mut work = std::mem::take(&mut self.jobs[number].work);
        if self.waits(&work, self.jobs[number].done) {
            self.jobs[number].work = work;
            self.waiting.push(number);
            return;
        }
        let (done_ns, done) = self.stage(&work, self.jobs[number].done, at_ns);
        let ended = done == work.len();
        if ended {
            work.clear();
        }
        self.jobs[number] = Job { work, done };
        if ended {
            self.free_jobs.push(number);
        } else {
            self.put(done_ns, number);
        }
    }

    /// True if the next work needs a bucket that is not released yet.
    #[inline]
    fn waits(&self, work: &[Work], next: usize) -> bool {
        let needs = work[next..].iter().map_while(|work| match work {
            Work::Await { bucket, releases } => Some(self.released[*bucket as usize].done < *releases),
            _ => None,
        });
        needs.into_iter().any(|needed| needed)
    }

    /// Performs the parallel work from `first` on. Returns the time when it is done, and the index of the next work.
    #[inline]
    fn stage(&mut self, work: &[Work], first: usize, now_ns: u64) -> (u64, usize) {
        let (stage, mut done_ns, mut at) = (work[first].stage(), now_ns, first);
        while at < work.len() && work[at].stage() == stage {
            done_ns = done_ns.max(self.run(work[at], now_ns));
            at += 1;
        }
        (done_ns, at)
    }

    #[inline]
    fn run(&mut self, work: Work, now_ns: u64) -> u64 {
        match work {
            Work::Flash(operation) => self.flash.run(operation, now_ns),
            Work::Backend { blocks, write } => {
                let first_ns = if write { self.write_ns } else { self.read_ns };
                let free = self.backend_free_at_ns.iter_mut().min().expect("the backend has a channel");
                *free = (*free).max(now_ns) + first_ns + u64::from(blocks - 1) * self.block_ns;
                *free
            }
            Work::Release { bucket } => {
                let released = &mut self.released[bucket as usize];
                (released.done, released.at_ns) = (released.done + 1, now_ns);
                while let Some(job) = self.waiting.pop() {
                    self.put(now_ns, job);
                }
                now_ns
            }
            Work::Await { bucket, .. } => now_ns.max(self.released[bucket as usize].at_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_device::flash::Profile;
    use flashwise_device::tier_model_of_option;

    fn schedule() -> Schedule {
        let flash = Clock::new(&Profile::find("wlfc", "wlfc").unwrap(), 4 << 20).unwrap();
        Schedule::new(flash, &tier_model_of_option("backend", "hdd").unwrap(), 4)
    }

    fn us(ns: u64) -> f64 {
        ns as f64 / 1000.0
    }

    /// Two blocks of the hard disk take 11,560 us and 20.48 us; then two pages on two planes are programmed in
    /// parallel.
    #[test]
    fn stages_run_in_order_and_their_parts_in_parallel() {
        let mut schedule = schedule();
        let program = |unit: u32| Work::Flash(Operation::Program { page: unit * 256, pages: 1 });
        schedule.begin();
        for work in [Work::Backend { blocks: 2, write: false }, program(0), program(1)] {
            schedule.add(work);
        }
        assert_eq!(us(schedule.reply()), 11_560.0 + 20.48 + 500.0);
        schedule.end();
    }

    /// A bucket is read (50 us), written back (12,360 us) and then erased: a request that needs it waits for that.
    #[test]
    fn a_request_waits_for_a_bucket_that_is_erased_in_the_background() {
        let mut schedule = schedule();
        schedule.begin();
        assert_eq!(schedule.reply(), 0);
        let read = Work::Flash(Operation::Read { page: 0, pages: 1 });
        let erase = Work::Flash(Operation::Erase { unit: 0 });
        for work in [read, Work::Backend { blocks: 1, write: true }, erase, Work::Release { bucket: 0 }] {
            schedule.add(work);
        }
        schedule.end();
        // Another plane is free.
        schedule.begin();
        schedule.add(Work::Flash(Operation::Program { page: 256, pages: 1 }));
        assert_eq!(us(schedule.reply()), 500.0);
        schedule.end();
        schedule.begin();
        schedule.wait_for(0);
        schedule.add(Work::Flash(Operation::Program { page: 0, pages: 1 }));
        assert_eq!(us(schedule.reply()), 50.0 + 12_360.0 + 5000.0 + 500.0 - 500.0);
    }
}
