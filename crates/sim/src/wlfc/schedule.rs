//! How long requests wait at a queue depth of 1: the next one comes when the one before it is answered.
//!
//! Flash has a clock for each plane, the backend one for each of its channels. What is done for a request begins when all that it is made
//! of is there: reads go side by side, then writes, then erasures. What is left when the request is answered goes on in the background, in the
//! order of time, and takes its turn at the devices like all else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashwise_device::TierModel;
use flashwise_device::flash::Clock;
use flashwise_device::flash::clock::Operation;

/// Something that devices do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Flash(Operation),
    /// One access to the backend.
    Backend {
        blocks: u32,
        write: bool,
    },
    /// From now on a bucket may be written.
    Release {
        bucket: u32,
    },
    /// A bucket has to be released so often first; see [`Schedule::wait_for`].
    Await {
        bucket: u32,
        releases: u32,
    },
}

impl Work {
    /// What goes side by side.
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

/// Work of which the rest is to be done.
#[derive(Debug)]
struct Job {
    work: Vec<Work>,
    done: usize,
}

/// How often a bucket was released, and when last.
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
    /// When jobs can go on, the earliest first, with when they came.
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Jobs that go on when a bucket is released.
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

    /// A request comes.
    #[inline]
    pub fn begin(&mut self) {
        while self.queue.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= self.now_ns) {
            self.go_on();
        }
    }

    #[inline]
    pub fn add(&mut self, work: Work) {
        if let Work::Release { bucket } = work {
            self.released[bucket as usize].asked += 1;
        }
        self.work.push(work);
    }

    /// What is added from now on needs a bucket, whose releases were added before.
    pub fn wait_for(&mut self, bucket: u32) {
        let releases = self.released[bucket as usize].asked;
        self.add(Work::Await { bucket, releases });
    }

    /// The request is answered when all that was added is done; returns how long that takes.
    #[inline]
    pub fn reply(&mut self) -> u64 {
        let (work, began_ns) = (std::mem::take(&mut self.work), self.now_ns);
        let mut done = 0;
        while done < work.len() {
            // What is waited for was asked for earlier, and waits for nothing later.
            while self.waits(&work, done) {
                self.go_on();
            }
            (self.now_ns, done) = self.stage(&work, done, self.now_ns);
        }
        self.work = work;
        self.work.clear();
        self.now_ns - began_ns
    }

    /// What was added since goes on in the background.
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

    /// Does the next stage of the background work that can go on first.
    fn go_on(&mut self) {
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

    /// Whether what comes next needs a bucket that is not released yet.
    #[inline]
    fn waits(&self, work: &[Work], next: usize) -> bool {
        let needs = work[next..].iter().map_while(|work| match work {
            Work::Await { bucket, releases } => Some(self.released[*bucket as usize].done < *releases),
            _ => None,
        });
        needs.into_iter().any(|needed| needed)
    }

    /// Does what goes side by side from `first` on; returns when that is done, and what is next.
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

    /// Two blocks of the hard disk take 11,560 us and 20.48; then two pages on two planes are programmed side by side.
    #[test]
    fn stages_follow_each_other_and_what_is_in_one_goes_side_by_side() {
        let mut schedule = schedule();
        let program = |unit: u32| Work::Flash(Operation::Program { page: unit * 256, pages: 1 });
        schedule.begin();
        for work in [Work::Backend { blocks: 2, write: false }, program(0), program(1)] {
            schedule.add(work);
        }
        assert_eq!(us(schedule.reply()), 11_560.0 + 20.48 + 500.0);
        schedule.end();
    }

    /// A bucket is erased when it was read (50 us) and written back (12,360 us): who needs it waits for that.
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
