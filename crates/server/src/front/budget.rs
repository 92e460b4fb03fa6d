//! The memory that requests and answers of all connections share, and how it is shared out.
//!
//! A quarter of it belongs to the connections in equal parts, as many as there may be: each can always make small requests, whatever
//! others do. The rest is a pool. There a connection may hold a quarter of what is free, so that nobody counts connections, and each
//! that comes finds something, less the more there are. Source: A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for
//! Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998.
//!
//! A request is admitted whole or not at all. One that is over its connection's share waits until the connection holds less. One of a
//! connection that holds nothing waits in a queue and is admitted in its turn, however long it is; a sixteenth of the pool is left
//! to others meanwhile. So as long as some client takes its answers, each request comes to its turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use super::completions::Completions;

/// One part in this number of the budget belongs to the connections.
const OWN: usize = 4;
/// A connection may hold one part in this number of what is free in the pool.
const SHARE: usize = 4;
/// One part in this number of the pool is not for long requests that have waited.
const RESERVE: usize = 16;

/// One budget, of the connections of one server.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    /// What each connection has for itself.
    own_bytes: usize,
    accounts: AtomicUsize,
    pool_bytes: usize,
    /// Left to others when a request that has waited is admitted.
    reserve_bytes: usize,
    /// Of the pool.
    used_bytes: AtomicUsize,
    /// What the request asks for that has waited longest; 0 if none waits.
    promised_bytes: AtomicUsize,
    /// Fewest free bytes with which a waiting request is admitted; `usize::MAX` if none waits.
    needed_bytes: AtomicUsize,
    queue: Mutex<VecDeque<Waiting>>,
}

/// A request that waits for memory of the pool, of a connection that holds none.
#[derive(Debug)]
struct Waiting {
    bytes: usize,
    seat: Arc<Seat>,
}

/// What a connection and the budget both know of the connection's wait.
#[derive(Debug)]
struct Seat {
    admitted: AtomicBool,
    completions: Arc<Completions>,
}

impl Budget {
    /// A budget of `bytes_max`, of which nothing is used, for at most `connections_max` connections.
    pub fn new(bytes_max: usize, connections_max: usize) -> Budget {
        let connections_max = connections_max.max(1);
        let own_bytes = bytes_max / OWN / connections_max;
        let pool_bytes = bytes_max - own_bytes * connections_max;
        Budget {
            bytes_max,
            own_bytes,
            accounts: AtomicUsize::new(0),
            pool_bytes,
            reserve_bytes: pool_bytes / RESERVE,
            used_bytes: AtomicUsize::new(0),
            promised_bytes: AtomicUsize::new(0),
            needed_bytes: AtomicUsize::new(usize::MAX),
            queue: Mutex::default(),
        }
    }

    /// Its size.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What is taken now, with what each connection has for itself.
    pub fn used_bytes(&self) -> usize {
        self.accounts.load(SeqCst) * self.own_bytes + self.used_bytes.load(SeqCst)
    }

    /// Whether a request waits that can only be admitted when others give something back.
    pub fn is_awaited(&self) -> bool {
        self.needed_bytes.load(SeqCst) < usize::MAX
    }

    /// What of `bytes` a connection holds of the pool.
    fn pooled(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.own_bytes)
    }

    /// Whether a connection may hold so much of the pool when so much is free: a share of it, less what is promised to the first of the queue,
    /// but for the reserve.
    fn is_share(&self, held_bytes: usize, free_bytes: usize, promised_bytes: usize) -> bool {
        let shared_bytes = free_bytes.saturating_sub(promised_bytes).max(free_bytes.min(self.reserve_bytes));
        held_bytes <= shared_bytes / SHARE
    }

    /// Fewest free bytes with which `is_share` holds.
    fn needed_for_share(&self, held_bytes: usize, promised_bytes: usize) -> usize {
        let shared_bytes = held_bytes * SHARE;
        if shared_bytes <= self.reserve_bytes { shared_bytes } else { shared_bytes + promised_bytes }
    }

    /// Takes `bytes` if `may` says so of what is free.
    fn take_if(&self, bytes: usize, may: impl Fn(usize) -> bool) -> bool {
        let take = |used: usize| {
            let free = self.pool_bytes - used;
            (bytes <= free && may(free)).then(|| used + bytes)
        };
        self.used_bytes.fetch_update(SeqCst, SeqCst, take).is_ok()
    }

    /// Takes `bytes` for a connection that holds `held_bytes`, if both together are no more than its share.
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

    /// Admits those who wait and whose turn it is: the first one once there is enough, those behind it within their share.
    fn admit(&self, queue: &mut VecDeque<Waiting>) {
        loop {
            while let Some(first) = queue.front() {
                let bytes = first.bytes;
                let enough = |free| self.is_share(bytes, free, 0) || free >= bytes + self.reserve_bytes;
                if !self.take_if(bytes, enough) {
                    break;
                }
                queue.pop_front().expect("there is a first one").seat.admit();
            }
            let promised_bytes = queue.front().map_or(0, |first| first.bytes);
            self.promised_bytes.store(promised_bytes, SeqCst);
            let mut needed_bytes = usize::MAX;
            let mut is_first = true;
            queue.retain(|waiting| {
                let first = std::mem::take(&mut is_first);
                if !first && self.take_share(0, waiting.bytes) {
                    waiting.seat.admit();
                    return false;
                }
                let mut needed = self.needed_for_share(waiting.bytes, if first { 0 } else { promised_bytes });
                if first {
                    needed = needed.min(waiting.bytes + self.reserve_bytes);
                }
                needed_bytes = needed_bytes.min(needed);
                true
            });
            self.needed_bytes.store(needed_bytes, SeqCst);
            // Who gives back looks at what is needed after giving. Who gave before it was written has not seen it.
            if self.pool_bytes - self.used_bytes.load(SeqCst) < needed_bytes {
                return;
            }
        }
    }
}

impl Seat {
    fn admit(&self) {
        self.admitted.store(true, SeqCst);
        self.completions.ring();
    }
}

/// What one connection holds of a budget; given back when it is dropped.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    seat: Arc<Seat>,
    /// What requests and answers hold, the connection's own part first.
    held_bytes: usize,
    /// What buffers hold of the pool that the connection could do without.
    buffer_bytes: usize,
    /// What the connection waits in the queue for.
    waits_for: Option<usize>,
}

impl Account {
    /// An account of a connection whose bell rings when it has waited and is admitted.
    pub fn new(budget: &Arc<Budget>, completions: &Arc<Completions>) -> Account {
        let seat = Arc::new(Seat { admitted: AtomicBool::new(false), completions: Arc::clone(completions) });
        budget.accounts.fetch_add(1, SeqCst);
        Account { budget: Arc::clone(budget), seat, held_bytes: 0, buffer_bytes: 0, waits_for: None }
    }

    /// Takes `bytes`, more than 0, for a request; returns whether it got them. If not, it is worth asking again when the connection
    /// holds less, or, if it holds nothing, after its bell rang.
    pub fn take(&mut self, bytes: usize) -> bool {
        let held_bytes = self.budget.pooled(self.held_bytes);
        let more_bytes = self.budget.pooled(self.held_bytes + bytes) - held_bytes;
        if self.waits_for.is_some_and(|awaited| awaited != more_bytes) {
            self.leave_queue();
        }
        if self.waits_for.is_some() {
            if !self.seat.admitted.swap(false, SeqCst) {
                return false;
            }
            self.waits_for = None;
        } else if more_bytes > 0 && !self.budget.take_share(held_bytes, more_bytes) {
            if self.held_bytes == 0 {
                self.enter_queue(more_bytes);
            }
            return false;
        }
        self.held_bytes += bytes;
        true
    }

    fn enter_queue(&mut self, bytes: usize) {
        self.waits_for = Some(bytes);
        let mut queue = self.budget.queue.lock();
        queue.push_back(Waiting { bytes, seat: Arc::clone(&self.seat) });
        self.budget.admit(&mut queue);
    }

    fn leave_queue(&mut self) {
        let Some(bytes) = self.waits_for.take() else { return };
        let mut queue = self.budget.queue.lock();
        queue.retain(|waiting| !Arc::ptr_eq(&waiting.seat, &self.seat));
        self.budget.admit(&mut queue);
        drop(queue);
        if self.seat.admitted.swap(false, SeqCst) {
            self.budget.give_back(bytes);
        }
    }

    /// Gives back what requests and answers hold beyond `bytes`.
    pub fn keep(&mut self, bytes: usize) {
        if self.held_bytes > bytes {
            let spare_bytes = self.budget.pooled(self.held_bytes) - self.budget.pooled(bytes);
            self.held_bytes = bytes;
            self.budget.give_back(spare_bytes);
        }
    }

    /// Takes what buffers need to hold `bytes`; returns whether it got that. Half of the pool is never for buffers.
    pub fn grow_buffers(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.buffer_bytes);
        let grown = self.budget.take_if(more, |free| free >= more + self.budget.pool_bytes / 2);
        self.buffer_bytes += if grown { more } else { 0 };
        grown
    }

    /// Whether it holds what another connection waits for.
    pub fn is_in_the_way(&self) -> bool {
        self.budget.pooled(self.held_bytes) + self.buffer_bytes > 0 && self.budget.is_awaited()
    }

    /// Gives back what buffers hold.
    pub fn drop_buffers(&mut self) {
        self.budget.give_back(std::mem::take(&mut self.buffer_bytes));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.leave_queue();
        self.budget.give_back(self.budget.pooled(self.held_bytes) + self.buffer_bytes);
        self.budget.accounts.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests;
