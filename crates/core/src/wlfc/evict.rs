//! Eviction: section IV.C.3, the last step of IV.C.1, and the GC queue of IV.B.3.

use super::bucket::{Log, Oob, State};
use super::step::Step;
#[cfg(test)]
use super::tests;
use super::{Copies, NONE, Then, Wlfc};

impl Wlfc {
    /// Executes the work that a request left for after its reply.
    #[inline]
    pub(super) fn background(&mut self, then: Then, steps: &mut Vec<Step>) {
        match then {
            Then::Nothing => {}
            Then::Evict(bucket) => self.evict(bucket, steps),
            Then::Copy { backend, dirty } => {
                self.copy(backend, dirty, steps);
                if self.queues.read_len() > self.config.read_queue
                    && let Some(copy) = self.replaceable()
                {
                    self.replace(copy, steps);
                }
            }
        }
    }

    /// Evicts a write bucket. Its logs are merged into the read copy or, without one, written to the backend. If the
    /// backend cannot be written, they go to a dirty copy.
    pub(super) fn evict(&mut self, bucket: u32, steps: &mut Vec<Step>) {
        let backend = self.contents.buckets[bucket as usize].backend;
        // Writes may already go to a newer bucket, which is not evicted.
        let copies = Copies { write: bucket, ..self.contents.of(backend) };
        let whole = self.config.extent(backend);
        if copies.read != NONE {
            if self.contents.logs_beyond_copy(&copies) {
                let dirty =
                    self.contents.buckets[copies.read as usize].state == State::Dirty || self.contents.has_data(bucket);
                self.load(backend, &copies, 0, whole, steps);
                self.copy(backend, dirty, steps);
                self.figures.copy_forward_blocks += u64::from(whole);
            }
            let read = self.contents.of(backend).read;
            self.contents.buckets[read as usize].fresh = 0;
        } else if self.contents.has_data(bucket) {
            self.load(backend, &copies, 0, whole, steps);
            if self.is_failing(backend) {
                self.copy(backend, true, steps);
                let read = self.contents.of(backend).read;
                self.contents.buckets[read as usize].fresh = 0;
            } else {
                self.write_back(backend, steps);
            }
        }
        self.retire(bucket);
    }

    /// Replaces a read copy.
    pub(super) fn replace(&mut self, bucket: u32, steps: &mut Vec<Step>) {
        let backend = self.contents.buckets[bucket as usize].backend;
        if self.contents.buckets[bucket as usize].state == State::Dirty {
            // Logs that the copy lacks stay in their bucket. Data written past the cache must not be overwritten.
            let copies = self.contents.of(backend);
            let passed = self.contents.logs_over(&copies).iter().any(|entry| entry.log == Log::Passed);
            let below = if passed && !planted!(self, OverPassed) { copies } else { Copies { write: NONE, ..copies } };
            self.load(backend, &below, 0, self.config.extent(backend), steps);
            self.write_back(backend, steps);
        }
        self.retire(bucket);
    }

    /// Writes a backend bucket, which is in memory, to the backend. Its sources are made durable first. Otherwise a
    /// power failure could lose the logs, and leave the backend with their result below an older, evicted copy.
    pub(super) fn write_back(&mut self, backend: u32, steps: &mut Vec<Step>) {
        let (block, blocks) = (self.first_block(backend), self.config.extent(backend));
        if !planted!(self, WriteBackFirst) {
            self.settle_flash(steps);
        }
        self.push(Step::WriteBackend { block, blocks, gives_up: true }, steps);
    }

    pub(super) fn first_block(&self, backend: u32) -> u64 {
        u64::from(backend) * u64::from(self.config.bucket_blocks)
    }

    /// Writes a backend bucket, which is in memory with all its logs, to a new read copy.
    pub(super) fn copy(&mut self, backend: u32, dirty: bool, steps: &mut Vec<Step>) {
        let Copies { write, read: old, .. } = self.contents.of(backend);
        let state = if dirty { State::Dirty } else { State::Read };
        let bucket = self.allocate(state, backend, steps);
        if !dirty && !planted!(self, VolatileCopy) {
            // The copy is never written back, so its source must be durable in the backend.
            self.settle_backend(steps);
        }
        let blocks = self.config.extent(backend);
        let oob = Oob { state, backend, epoch: self.epoch, log: Log::Data, at: 0, blocks };
        let pages = self.config.pages(&oob);
        self.push(Step::Append { bucket, page: 0, pages, oob }, steps);
        let fresh = if write == NONE { 0 } else { self.contents.buckets[write as usize].entries.len() as u32 };
        self.contents.buckets[bucket as usize].next_page = pages;
        self.contents.buckets[bucket as usize].fresh = fresh;
        if old != NONE {
            self.retire(old);
        }
        self.queues.read_insert(bucket);
    }

    /// Moves a bucket to the GC queue; its content is elsewhere or invalid.
    pub(super) fn retire(&mut self, bucket: u32) {
        self.queues.retire(bucket);
        let copies = self
            .contents
            .copies
            .get_mut(&self.contents.buckets[bucket as usize].backend)
            .expect("it is of a backend bucket");
        if copies.write == bucket {
            copies.write = NONE;
        }
        if copies.read == bucket {
            copies.read = NONE;
        }
    }

    /// Erases the bucket that was evicted first, if any. Its replacement is made durable first, and so is the previous
    /// reset of a bucket of the same backend bucket.
    pub(super) fn erase(&mut self, steps: &mut Vec<Step>) -> bool {
        let planted = planted!(self, LastFirst).then(|| self.queues.gc_buckets().last());
        let Some(bucket) = planted.unwrap_or(self.queues.gc_first()) else { return false };
        // A bucket that never held a whole copy has no backend bucket.
        let backend = self.contents.buckets[bucket as usize].backend;
        if !planted!(self, ResetAtOnce) {
            self.settle_backend(steps);
            if self.appended || self.reset.contains(&backend) && !planted!(self, ResetsTogether) {
                self.settle_flash(steps);
            }
        }
        self.push(Step::Reset { bucket }, steps);
        if self.config.header_blocks > 0 {
            // Flash still has the content until the reset is done.
            let held = std::mem::take(&mut self.contents.buckets[bucket as usize]);
            self.resetting.entry(bucket).or_default().push_back(held);
        }
        self.queues.erased(bucket);
        self.contents.erase(backend);
        true
    }

    /// Writes back everything that the backend lacks, makes that durable, and retires the buckets.
    pub(super) fn destage_all(&mut self, steps: &mut Vec<Step>) {
        // Others only have buckets that wait for erasure.
        let held = self.contents.copies.iter().filter(|(_, copies)| copies.read != NONE || copies.write != NONE);
        let mut backends: Vec<u32> = held.map(|(&backend, _)| backend).collect();
        backends.sort_unstable();
        for backend in backends {
            let (copies, blocks) = (self.contents.of(backend), self.config.extent(backend));
            if self.contents.has_newer(&copies, 0, blocks) {
                if self.is_failing(backend) {
                    continue;
                }
                self.load(backend, &copies, 0, blocks, steps);
                self.write_back(backend, steps);
                let held = [copies.read, copies.write].into_iter().filter(|bucket| *bucket != NONE);
                held.for_each(|bucket| self.retire(bucket));
            }
        }
        self.settle(steps);
    }
}
