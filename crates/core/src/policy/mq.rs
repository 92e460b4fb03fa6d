//! MQ: LRU queues for increasing access frequencies. A block sinks by one queue for each lifetime without an access.
//!
//! Source: Zhou, Philbin, Li: The Multi-Queue Replacement Algorithm for Second Level Buffer Caches. USENIX 2001,
//! section 4.
//!
//! Departures from the paper:
//! - In the paper `lifeTime` is about the peak temporal distance, the most frequent distance between two accesses to a
//!   block. It does not define the measurement. Here distances are counted from the first access, for every access to a
//!   block that is cached or in `Qout`. They are grouped by powers of two as in the paper's figures. `lifeTime` is the
//!   upper end of the group with most accesses, but at least the number of cache blocks. In a first-level cache the
//!   peak is shorter than any policy keeps blocks, and with less blocks would sink before LRU evicts them. (Ignoring
//!   distances up to the cache size, as in a second-level cache, makes MQ worse than LRU if most are short.) A block
//!   keeps its `expireTime` when `lifeTime` changes. `life` sets a fixed `lifeTime`.
//! - As in the paper's algorithm, a miss evicts before it looks for the block in `Qout`. So a block at the head of a
//!   full `Qout` is forgotten in favour of the victim.
//! - Times are counted modulo 2^32, and `lifeTime` is at most 2^30 accesses.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// MQ's row in the table of policies.
pub static INFO: Info = Info {
    name: "mq",
    title: "Multi-Queue",
    source: "Zhou, Philbin, Li: The multi-queue replacement algorithm for second level buffer caches. USENIX 2001",
    parameters: &[
        Parameter::of("m", Kind::Count(1, M_MAX), "8").means("the number of queues"),
        Parameter::of("life", Kind::Count(1, LIFE_TIME_MAX), "").means(
            "lifeTime, the number of accesses that a block stays in its queue without being accessed. \
                 Without it, it follows the peak temporal distance",
        ),
        Parameter::of("qout", Kind::Number(0.0, f64::MAX), "400%").means(
            "the number of evicted blocks whose frequencies are remembered in Qout, as a share of the cache size",
        ),
    ],
    offline: false,
};

const M_MAX: u64 = 16;
const LIFE_TIME_MAX: u64 = 1 << 30;

/// A number of accesses, modulo 2^32.
type Time = u32;

/// The data of a block.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Block {
    /// Access frequency. It saturates above 2^(m - 1), where `QueueNum` no longer grows.
    f: u16,
    expire_time: Time,
    last_access: Time,
}

/// The accesses by temporal distance, and their peak.
#[derive(Debug)]
struct Distances {
    /// The accesses with distances from 2^j up to but not including 2^(j + 1), at index j.
    accesses: [u64; Time::BITS as usize],
    /// The index of the largest of `accesses`.
    peak: u32,
}

/// Queues by access frequency; blocks in them expire.
#[derive(Debug)]
pub struct Mq<I: Index> {
    c: usize,
    m: u8,
    q_out_max: usize,
    current_time: Time,
    life_time: Time,
    /// No head of `Q_1` and above expires before this time, so most accesses skip the check.
    next_expiry: Time,
    /// `None` if `lifeTime` is fixed.
    distances: Option<Distances>,
    /// `Q_k` is list k, `Qout` list m. A queue's head, in the paper's words, is the back of the list.
    blocks: Blocks<I, Block>,
    len: usize,
}

impl<I: Index> Mq<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let m = options.count("m").min(M_MAX) as u8;
        let life: Option<u64> = options.text("life").parse().ok();
        Mq {
            c: capacity,
            m,
            q_out_max: (options.number("qout") * capacity as f64) as usize,
            current_time: 0,
            life_time: life.unwrap_or(capacity as u64).min(LIFE_TIME_MAX) as Time,
            next_expiry: LIFE_TIME_MAX as Time,
            distances: life.is_none().then_some(Distances { accesses: [0; Time::BITS as usize], peak: 0 }),
            blocks: Blocks::new(index, m, 1),
            len: 0,
        }
    }

    fn q_out(&self) -> List {
        List(self.m)
    }

    #[inline]
    fn queue_num(&self, f: u16) -> List {
        List((f.ilog2() as u8).min(self.m - 1))
    }

    /// Makes room by moving the head of the lowest non-empty queue to `Qout`.
    #[inline]
    fn evict_block(&mut self) -> Option<I::Key> {
        if self.len < self.c {
            return None;
        }
        let victim = (0..self.m).find_map(|k| self.blocks.back(List(k)))?;
        let (key, queue) = (self.blocks.key(victim), self.blocks.list(victim));
        self.blocks.move_front(victim, self.q_out());
        if self.blocks.len(self.q_out()) > self.q_out_max {
            self.blocks.pop_back(self.q_out());
        }
        self.len -= 1;
        self.note_new_head(queue);
        Some(key)
    }

    /// Counts an access to a block that was last accessed `distance` accesses ago, and sets `lifeTime` to the peak.
    #[inline]
    fn learn_life_time(&mut self, distance: Time) {
        let Some(Distances { accesses, peak }) = &mut self.distances else {
            return;
        };
        let group = distance.ilog2();
        accesses[group as usize] += 1;
        if accesses[group as usize] > accesses[*peak as usize] {
            *peak = group;
            let life_time = (2_u64 << group).max(self.c as u64);
            self.life_time = life_time.min(LIFE_TIME_MAX) as Time;
        }
    }

    /// Includes the head of `queue`, which may be new, in `next_expiry`.
    #[inline]
    fn watch(&mut self, queue: List) {
        if (1..self.m).contains(&queue.0)
            && let Some(head) = self.blocks.back(queue)
            && is_before(self.blocks.data(head).expire_time, self.next_expiry)
        {
            self.next_expiry = self.blocks.data(head).expire_time;
        }
    }

    /// Includes the new head of `queue`, and prefetches the one behind it: neither was used recently.
    #[inline]
    fn note_new_head(&mut self, queue: List) {
        self.watch(queue);
        if let Some(head) = self.blocks.back(queue) {
            self.blocks.prefetch_toward_front(head);
        }
    }

    /// Advances to the next access, and demotes the head of each queue if it has expired.
    #[inline]
    fn adjust(&mut self) {
        self.current_time = self.current_time.wrapping_add(1);
        if is_before(self.next_expiry, self.current_time) {
            self.demote_expired();
        }
    }

    fn demote_expired(&mut self) {
        for k in 1..self.m {
            if let Some(c) = self.blocks.back(List(k))
                && is_before(self.blocks.data(c).expire_time, self.current_time)
            {
                self.blocks.move_front(c, List(k - 1));
                self.blocks.data_mut(c).expire_time = self.current_time.wrapping_add(self.life_time);
                self.note_new_head(List(k));
            }
        }
        self.next_expiry = self.current_time.wrapping_add(LIFE_TIME_MAX as Time);
        for k in 1..self.m {
            self.watch(List(k));
        }
    }
}

/// True if `time` is earlier than `other`; they are less than 2^31 apart.
#[inline]
fn is_before(time: Time, other: Time) -> bool {
    (time.wrapping_sub(other) as i32) < 0
}

impl<I: Index> Policy for Mq<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let hit = self.blocks.find_cached(access.block);
        let (outcome, b) = if hit.is_some() {
            (Outcome::Hit, hit)
        } else {
            let evicted = self.evict_block();
            self.len += 1;
            (Outcome::Admit { evicted }, self.blocks.find(access.block))
        };
        let now = self.current_time;
        if let Some(b) = b {
            self.learn_life_time(now.wrapping_sub(self.blocks.data(b).last_access));
            let f = self.blocks.data(b).f.saturating_add(1);
            let (from, to) = (self.blocks.list(b), self.queue_num(f));
            self.blocks.move_front(b, to);
            *self.blocks.data_mut(b) = Block { f, expire_time: now.wrapping_add(self.life_time), last_access: now };
            self.watch(from);
            self.watch(to);
        } else {
            let first = Block { f: 1, expire_time: now.wrapping_add(self.life_time), last_access: now };
            self.blocks.insert_front(self.queue_num(1), access.block, first);
        }
        self.adjust();
        outcome
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let Some(queue) = self.blocks.forget(block) else {
            return false;
        };
        self.watch(queue);
        let cached = queue != self.q_out();
        self.len -= usize::from(cached);
        cached
    }

    fn check(&self) {
        assert!(self.len <= self.c);
        assert_eq!(self.len, (0..self.m).map(|k| self.blocks.len(List(k))).sum(), "len counts the blocks in queues");
        for head in (1..self.m).filter_map(|k| self.blocks.back(List(k))) {
            assert!(
                !is_before(self.blocks.data(head).expire_time, self.next_expiry),
                "no head expires before next_expiry"
            );
        }
        let ghosts = self.blocks.len(self.q_out());
        assert!(ghosts <= self.q_out_max, "{ghosts} blocks in Qout, {} at most", self.q_out_max);
        self.blocks.check(self.c.saturating_add(self.q_out_max));
        if let Some(Distances { accesses, peak }) = &self.distances {
            assert_eq!(accesses.iter().max(), Some(&accesses[*peak as usize]), "the peak is the maximum");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    fn mq(capacity: usize, options: &str) -> Mq<Dense> {
        Mq::new(Dense::new(100), capacity, &Options::parse("mq", INFO.parameters, options).unwrap())
    }

    /// An access, its outcome, and `Q_0`, `Q_1`, `Q_2` and `Qout` after it.
    type Row<'a> = (u32, Outcome<u32>, [&'a [u32]; 4]);

    /// 3 blocks, m = 3, lifeTime = 2. Heads are on the right; `block@expireTime` in Q_1 and Q_2.
    ///
    ///     time   access   Q_0     Q_1       Q_2    Qout
    ///     0      1        1
    ///     1      1  hit           1@3
    ///     2      2        2       1@3
    ///     3      3        1 3 2                            at time 4, 1@3 has expired and sinks to Q_0's tail
    ///     4      2  hit   1 3     2@6
    ///     5      4        4 1     2@6              3       3 leaves
    ///     6      1  hit   2 4     1@8                      f = 3, Q_1; at time 7, 2@6 sinks
    ///     7      3        2       3@9 1@8          4       4 leaves; 3 comes back with f = 2
    ///     8      1  hit   2       3@9       1@10   4       f = 4
    ///     9      5        3 5               1@10   2 4     2 leaves; at time 10, 3@9 sinks, 1@10 not yet
    #[test]
    fn frequency_lifts_and_time_sinks() {
        let mut mq = mq(3, "m=3,life=2");
        let rows: [Row; 10] = [
            (1, FILL, [&[1], &[], &[], &[]]),
            (1, HIT, [&[], &[1], &[], &[]]),
            (2, FILL, [&[2], &[1], &[], &[]]),
            (3, FILL, [&[1, 3, 2], &[], &[], &[]]),
            (2, HIT, [&[1, 3], &[2], &[], &[]]),
            (4, evict(3), [&[4, 1], &[2], &[], &[3]]),
            (1, HIT, [&[2, 4], &[1], &[], &[3]]),
            (3, evict(4), [&[2], &[3, 1], &[], &[4]]),
            (1, HIT, [&[2], &[3], &[1], &[4]]),
            (5, evict(2), [&[3, 5], &[], &[1], &[2, 4]]),
        ];
        for (block, outcome, queues) in rows {
            assert_eq!(mq.access(Access::read(block)), outcome, "the access to {block}");
            let found = [0, 1, 2, 3].map(|list| mq.blocks.keys(List(list)).collect::<Vec<_>>());
            assert_eq!(found, queues.map(<[u32]>::to_vec), "after the access to {block}");
            mq.check();
        }
    }

    /// One block, m = 2. With a Qout of one, 2 replaces 1 in it before 1 is looked up. With a Qout of two, 1 is found.
    ///
    ///     Qout of 1                        Qout of 2
    ///     access   Q_0   Q_1   Qout        access   Q_0   Q_1   Qout
    ///     1        1                       1        1
    ///     2        2           1           2        2           1
    ///     1        1           2           1              1     2
    #[test]
    fn the_victim_enters_qout_before_the_block_is_looked_up_there() {
        for (options, queue) in [("m=2,qout=100%", List(0)), ("m=2,qout=200%", List(1))] {
            let mut mq = mq(1, options);
            for (block, outcome) in [(1, FILL), (2, evict(1)), (1, evict(2))] {
                assert_eq!(mq.access(Access::read(block)), outcome);
                mq.check();
            }
            assert_eq!(mq.blocks.keys(queue).collect::<Vec<_>>(), [1]);
            assert_eq!(mq.blocks.keys(mq.q_out()).collect::<Vec<_>>(), [2]);
        }
    }

    /// Two blocks. Distance 1 is a group of its own. 3 is in the group from 2 to 3, and 5 in that from 4 to 7.
    #[test]
    fn life_time_follows_the_peak_temporal_distance() {
        let mut mq = mq(2, "");
        for (block, life_time) in [(1, 2), (2, 2), (3, 2), (1, 4), (1, 4), (4, 4), (2, 4), (3, 8)] {
            mq.access(Access::read(block));
            assert_eq!(mq.life_time, life_time, "after the access to {block} at time {}", mq.current_time - 1);
            mq.check();
        }
    }

    #[test]
    fn life_time_is_never_shorter_than_the_cache_has_blocks() {
        let mut mq = mq(10, "");
        for block in [1, 1, 1, 2, 2] {
            mq.access(Access::read(block));
            assert_eq!(mq.life_time, 10);
        }
    }

    #[test]
    fn times_are_compared_across_the_turn_of_the_clock() {
        let mut mq = mq(3, "m=2,life=2");
        mq.current_time = Time::MAX - 1;
        mq.next_expiry = Time::MAX - 1;
        // 1 is accessed last at -1 (and so expires after 1), the others at 0 and 1, so that it sinks at time 2.
        for block in [1, 1, 2] {
            mq.access(Access::read(block));
        }
        assert_eq!(mq.blocks.len(List(1)), 1);
        mq.access(Access::read(3));
        assert_eq!(mq.current_time, 2);
        assert_eq!(mq.blocks.keys(List(0)).collect::<Vec<_>>(), [1, 3, 2]);
    }
}
