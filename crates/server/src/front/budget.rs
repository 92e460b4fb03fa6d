//! Division of the memory for requests and replies among all connections.
//!
//! A quarter belongs to the connections in equal parts, as many as the limit of connections. So each can always make
//! small requests. The lane is memory for one longest request, see below. The rest is a pool. A connection may hold a
//! quarter of the pool's free memory. So no connections are counted, and a new one always finds some memory, less the
//! more there are. Source: A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches", IEEE/ACM Transactions on Networking 6(2), 1998.
//!
//! A read is admitted as a whole. A write takes memory in parts, each when its data arrives, so a client that announces
//! much and sends little holds little. A request above its connection's share waits until the connection holds less. If
//! the connection has nothing in progress that will free memory, the request enters a queue and is admitted in its
//! turn. A sixteenth of the pool stays reserved for others.
//!
//! Writes that have arrived in part could fill the pool and all wait for their rest. So if the pool has nothing for the
//! first in the queue, the lane holds all that a request still needs. It goes alternately to the request that has
//! waited longest, and to the one that needs least. The lane is free for the next when the request is answered, or when
//! its client stalls: it is disconnected after a short timeout. So while some client sends its data and reads its
//! replies, each request gets its turn, and small requests soon.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use super::completions::Completions;
use crate::limits::{Limit, Limits};

/// Divisor: the part of the budget that belongs to the connections.
const OWN: usize = 4;
/// Divisor: the part of the pool's free memory that a connection may hold.
const SHARE: usize = 4;
/// Divisor: the part of the pool that is not for long requests from the queue.
const RESERVE: usize = 16;
/// Largest memory of a request in addition to its data.
const OVERHEAD_BYTES: usize = 4 << 10;

/// Returns the end of the next part of a write after `received` bytes. Each part is as long as all before it, and at
/// least `part_bytes_min`.
pub fn next_part(received: usize, length: usize, part_bytes_min: usize) -> usize {
    (received + received.max(part_bytes_min)).min(length)
}

/// The memory that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes to continue; more than 0.
    pub bytes: usize,
    /// Bytes until it is complete; at least `bytes`.
    pub rest_bytes: usize,
}

impl Need {
    /// Returns the need of a request that is admitted as a whole.
    pub fn whole(bytes: usize) -> Need {
        Need { bytes, rest_bytes: bytes }
    }
}

/// The budget of the connections of one server.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    /// Memory of each connection's own.
    own_bytes: usize,
    accounts: AtomicUsize,
    pool_bytes: usize,
    /// Memory for the rest of at least one longest request, outside the pool.
    lane_bytes: usize,
    lane_used_bytes: AtomicUsize,
    /// True if the lane goes next to the request that needs least.
    is_turn_of_least: AtomicBool,
    /// Memory left for others when a request from the queue is admitted.
    reserve_bytes: usize,
    /// Used memory of the pool.
    used_bytes: AtomicUsize,
    /// Memory needed by the request that has waited longest; 0 if none waits.
    promised_bytes: AtomicUsize,
    /// Fewest free bytes that admit a waiting request; `usize::MAX` if none waits.
    needed_bytes: AtomicUsize,
    queue: Mutex<VecDeque<Waiting>>,
    limits: Arc<Limits>,
}

/// A request that waits for memory of the pool.
#[derive(Debug)]
struct Waiting {
    need: Need,
    /// Memory of the pool that its connection holds.
    held_bytes: usize,
    seat: Arc<Seat>,
}

/// State of a connection's wait, shared with the budget.
#[derive(Debug)]
struct Seat {
    admitted: AtomicBool,
    /// True if the rest of its request was admitted to the lane.
    has_lane: AtomicBool,
    completions: Arc<Completions>,
}

impl Budget {
    /// Creates an unused budget of `bytes_max` for at most `connections_max` connections. Their requests have at most
    /// `request_bytes_max` of data, which is less than three quarters of the budget. `limits` counts requests that
    /// wait.
    pub fn new(bytes_max: usize, connections_max: usize, request_bytes_max: usize, limits: Arc<Limits>) -> Budget {
        let connections_max = connections_max.max(1);
        let own_bytes = bytes_max / OWN / connections_max;
        let lane_bytes = request_bytes_max + OVERHEAD_BYTES;
        let pool_bytes = bytes_max - own_bytes * connections_max - lane_bytes;
        Budget {
            bytes_max,
            own_bytes,
            accounts: AtomicUsize::new(0),
            pool_bytes,
            lane_bytes,
            lane_used_bytes: AtomicUsize::new(0),
            is_turn_of_least: AtomicBool::new(false),
            reserve_bytes: pool_bytes / RESERVE,
            used_bytes: AtomicUsize::new(0),
            promised_bytes: AtomicUsize::new(0),
            needed_bytes: AtomicUsize::new(usize::MAX),
            queue: Mutex::default(),
            limits,
        }
    }

    /// Returns its size.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the memory in use, including each connection's own.
    pub fn used_bytes(&self) -> usize {
        let shared_bytes = self.used_bytes.load(SeqCst) + self.lane_used_bytes.load(SeqCst);
        self.accounts.load(SeqCst) * self.own_bytes + shared_bytes
    }

    /// True if a request waits until others free memory.
    pub fn is_awaited(&self) -> bool {
        self.needed_bytes.load(SeqCst) < usize::MAX
    }

    /// Returns the part of a connection's `bytes` that comes from the pool.
    fn pooled(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.own_bytes)
    }

    /// True if a connection may hold `held_bytes` of the pool with `free_bytes` free. Memory promised to the first of
    /// the queue does not count as free, except the reserve.
    fn is_share(&self, held_bytes: usize, free_bytes: usize, promised_bytes: usize) -> bool {
        let shared_bytes = free_bytes.saturating_sub(promised_bytes).max(free_bytes.min(self.reserve_bytes));
        held_bytes <= shared_bytes / SHARE
    }

    /// Returns the fewest free bytes for which `is_share` is true.
    fn needed_for_share(&self, held_bytes: usize, promised_bytes: usize) -> usize {
        let shared_bytes = held_bytes * SHARE;
        if shared_bytes <= self.reserve_bytes { shared_bytes } else { shared_bytes + promised_bytes }
    }

    /// Takes `bytes` of the pool if `may`, given the free bytes, is true.
    fn take_if(&self, bytes: usize, may: impl Fn(usize) -> bool) -> bool {
        let take = |used: usize| {
            let free = self.pool_bytes - used;
            (bytes <= free && may(free)).then(|| used + bytes)
        };
        self.used_bytes.fetch_update(SeqCst, SeqCst, take).is_ok()
    }

    /// Takes `bytes` for a connection that holds `held_bytes`, if the sum is within its share.
    fn take_share(&self, held_bytes: usize, bytes: usize) -> bool {
        let promised_bytes = self.promised_bytes.load(SeqCst);
        self.take_if(bytes, |free| self.is_share(held_bytes + bytes, free, promised_bytes))
    }

    fn give_back(&self, bytes: usize) {
        let used_bytes = self.used_bytes.fetch_sub(bytes, SeqCst) - bytes;
        if bytes > 0 && self.pool_bytes - used_bytes >= self.needed_bytes.load(SeqCst) {
            self.admit(&mut self.queue.lock());
        }
    }

    fn give_lane_back(&self, bytes: usize) {
        self.lane_used_bytes.fetch_sub(bytes, SeqCst);
        self.admit(&mut self.queue.lock());
    }

    /// Admits a waiting request to the lane; false if the next one does not fit.
    fn admit_to_lane(&self, queue: &mut VecDeque<Waiting>) -> bool {
        let of_least = self.is_turn_of_least.load(SeqCst);
        let least = queue.iter().enumerate().min_by_key(|(_, waiting)| waiting.need.rest_bytes).map(|(at, _)| at);
        let Some(at) = least.map(|at| if of_least { at } else { 0 }) else { return false };
        let rest_bytes = queue[at].need.rest_bytes;
        if self.lane_used_bytes.load(SeqCst) + rest_bytes > self.lane_bytes {
            return false;
        }
        // Memory of the lane is only taken with the queue locked.
        self.lane_used_bytes.fetch_add(rest_bytes, SeqCst);
        self.is_turn_of_least.store(!of_least, SeqCst);
        queue.remove(at).into_iter().for_each(|waiting| waiting.seat.admit(true));
        true
    }

    /// Admits waiting requests: the first once there is enough memory, those behind it within their share.
    fn admit(&self, queue: &mut VecDeque<Waiting>) {
        loop {
            while let Some(Waiting { need, held_bytes, seat }) = queue.front() {
                let is_share = |free: usize| self.is_share(held_bytes + need.bytes, free, 0);
                if self.take_if(need.bytes, |free| is_share(free) || free >= need.bytes + self.reserve_bytes) {
                    seat.admit(false);
                    queue.pop_front();
                } else if !self.admit_to_lane(queue) {
                    break;
                }
            }
            let promised_bytes = queue.front().map_or(0, |first| first.need.bytes);
            self.promised_bytes.store(promised_bytes, SeqCst);
            let mut needed_bytes = usize::MAX;
            let mut is_first = true;
            queue.retain(|Waiting { need, held_bytes, seat }| {
                let first = std::mem::take(&mut is_first);
                if !first && self.take_share(*held_bytes, need.bytes) {
                    seat.admit(false);
                    return false;
                }
                let promised_bytes = if first { 0 } else { promised_bytes };
                let mut needed = self.needed_for_share(held_bytes + need.bytes, promised_bytes);
                if first {
                    needed = needed.min(need.bytes + self.reserve_bytes);
                }
                needed_bytes = needed_bytes.min(needed);
                true
            });
            self.needed_bytes.store(needed_bytes, SeqCst);
            // Freeing memory checks `needed_bytes` afterwards. Memory freed before this store was not checked against
            // it.
            if self.pool_bytes - self.used_bytes.load(SeqCst) < needed_bytes {
                return;
            }
        }
    }
}

impl Seat {
    fn admit(&self, has_lane: bool) {
        self.has_lane.store(has_lane, SeqCst);
        self.admitted.store(true, SeqCst);
        self.completions.ring();
    }
}

/// The memory of one connection, freed on drop.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    seat: Arc<Seat>,
    /// Memory of requests and replies: from the lane, then the connection's own, then from the pool.
    held_bytes: usize,
    /// The part that is from the lane.
    lane_bytes: usize,
    /// Memory of the pool for optional buffers.
    buffer_bytes: usize,
    /// The need that the connection waits for, and the part of it that its own memory does not cover.
    waits_for: Option<(Need, usize)>,
}

impl Account {
    /// Creates the account of a connection, whose bell rings when a waiting request is admitted.
    pub fn new(budget: &Arc<Budget>, completions: &Arc<Completions>) -> Account {
        let (admitted, has_lane) = (AtomicBool::new(false), AtomicBool::new(false));
        let seat = Arc::new(Seat { admitted, has_lane, completions: Arc::clone(completions) });
        budget.accounts.fetch_add(1, SeqCst);
        Account { budget: Arc::clone(budget), seat, held_bytes: 0, lane_bytes: 0, buffer_bytes: 0, waits_for: None }
    }

    /// Returns the memory of the pool for requests and replies.
    fn pooled_bytes(&self) -> usize {
        self.budget.pooled(self.held_bytes - self.lane_bytes)
    }

    /// Takes memory for a request and returns the bytes taken: 0, enough to continue, or all. After 0, try again when
    /// the connection holds less, or after its bell rings. `is_idle` means that nothing of the connection is in
    /// progress, so the request enters the queue.
    pub fn take(&mut self, need: Need, is_idle: bool) -> usize {
        let held_bytes = self.pooled_bytes();
        let more_bytes = self.budget.pooled(self.held_bytes - self.lane_bytes + need.bytes) - held_bytes;
        if self.waits_for.is_some_and(|awaited| awaited != (need, more_bytes)) {
            self.leave_queue();
        }
        if self.waits_for.is_some() {
            if !self.seat.admitted.swap(false, SeqCst) {
                return 0;
            }
            self.waits_for = None;
            if self.seat.has_lane.load(SeqCst) {
                self.lane_bytes += need.rest_bytes;
                self.held_bytes += need.rest_bytes;
                return need.rest_bytes;
            }
        } else if more_bytes > 0 && !self.budget.take_share(held_bytes, more_bytes) {
            if is_idle || self.held_bytes == 0 {
                self.enter_queue(need, more_bytes);
            }
            return 0;
        }
        self.held_bytes += need.bytes;
        need.bytes
    }

    fn enter_queue(&mut self, need: Need, more_bytes: usize) {
        self.budget.limits.reached(Limit::RequestMemory);
        self.waits_for = Some((need, more_bytes));
        let (need, held_bytes) = (Need { bytes: more_bytes, ..need }, self.pooled_bytes());
        let mut queue = self.budget.queue.lock();
        queue.push_back(Waiting { need, held_bytes, seat: Arc::clone(&self.seat) });
        self.budget.admit(&mut queue);
    }

    fn leave_queue(&mut self) {
        let Some((need, bytes)) = self.waits_for.take() else { return };
        let mut queue = self.budget.queue.lock();
        queue.retain(|waiting| !Arc::ptr_eq(&waiting.seat, &self.seat));
        self.budget.admit(&mut queue);
        drop(queue);
        if self.seat.admitted.swap(false, SeqCst) {
            match self.seat.has_lane.load(SeqCst) {
                true => self.budget.give_lane_back(need.rest_bytes),
                false => self.budget.give_back(bytes),
            }
        }
    }

    /// Frees the memory of requests and replies beyond `bytes`, the lane's first.
    pub fn keep(&mut self, bytes: usize) {
        let spare_bytes = self.held_bytes.saturating_sub(bytes);
        let of_lane = spare_bytes.min(self.lane_bytes);
        let pooled_bytes = self.pooled_bytes();
        self.held_bytes -= spare_bytes;
        self.lane_bytes -= of_lane;
        if spare_bytes > of_lane {
            self.budget.give_back(pooled_bytes - self.pooled_bytes());
        }
        if of_lane > 0 {
            self.budget.give_lane_back(of_lane);
        }
    }

    /// Takes memory for buffers of `bytes`; true if it succeeds. Buffers never take half of the pool.
    pub fn grow_buffers(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.buffer_bytes);
        let grown = self.budget.take_if(more, |free| free >= more + self.budget.pool_bytes / 2);
        self.buffer_bytes += if grown { more } else { 0 };
        grown
    }

    /// True if it holds memory of the lane, which shortens its timeout.
    pub fn has_lane(&self) -> bool {
        self.lane_bytes > 0
    }

    /// True if it holds memory that another connection waits for.
    pub fn is_in_the_way(&self) -> bool {
        self.lane_bytes + self.pooled_bytes() + self.buffer_bytes > 0 && self.budget.is_awaited()
    }

    /// Frees the memory of buffers.
    pub fn drop_buffers(&mut self) {
        self.budget.give_back(std::mem::take(&mut self.buffer_bytes));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.leave_queue();
        self.keep(0);
        self.drop_buffers();
        self.budget.accounts.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests;
