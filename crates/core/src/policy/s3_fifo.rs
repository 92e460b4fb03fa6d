//! S3-FIFO: a small queue, a main queue, and a ghost queue for returning blocks. Blocks with at most one hit soon leave
//! the small queue; others move to the main queue. All three are first in, first out.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction. SOSP 2023, section 4,
//! Algorithm 1.
//!
//! Departures from the paper:
//! - A miss evicts one block. If `evictS` moves a block to a full `M` and `evictM` evicts another for it, there is room
//!   and `evictS` ends. Algorithm 1 then evicts a second one from `S`.
//! - For `evictS`, `M` is full if it exceeds its share of the cache with the block just moved to it.
//! - A block that moves from `S` to `M` has its freq cleared, as section 4.1 says and Algorithm 1 does not show.
//! - A ghost leaves `G` when it is hit. As in Algorithm 1, blocks are evicted before `x` is looked up in `G`: the block
//!   that goes there may push `x` out.
//! - An empty `S` evicts nothing, even where its share of the cache is 0 blocks.
//!
//! `variant=libcachesim` is the code that the authors ship in libCacheSim 0.3. It evicts from `M` whenever `M` is above
//! its share, and meanwhile `evictS` lets `M` grow above it. `x` is looked up in `G` and leaves it first; shares are
//! whole blocks. Before the first eviction a miss goes to `M` once `S` has its share. (If the share of `S` is at most
//! one block, libCacheSim admits nothing; this code does.)

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// S3-FIFO's row in the table of policies.
pub static INFO: Info = Info {
    name: "s3-fifo",
    title: "Simple, Scalable caching with three Static FIFO queues",
    source: "Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction. SOSP 2023",
    parameters: &[
        Parameter::of("small", Kind::Number(0.0, 1.0), "10%")
            .means("the small queue's share of the cache; the main queue has the rest (section 4.1)"),
        Parameter::of("ghost", Kind::Number(0.0, f64::MAX), "90%").means(
            "how many blocks the ghost queue remembers, as a share of the cache size; the paper has as \
                 many as the main queue (section 4.1)",
        ),
        Parameter::of("threshold", Kind::Count(0, 3), "1").means(
            "blocks hit more often than this in the small queue move to the main queue; hits are counted \
                 up to 3 (Algorithm 1)",
        ),
        Parameter::of("variant", Kind::Choice(&["paper", "libcachesim"]), "paper")
            .means("Algorithm 1 of the paper, or its authors' code in libCacheSim"),
    ],
    offline: false,
};

/// The small queue. In every queue the head is the front, the tail the back.
const S: List = List(0);
/// The main queue.
const M: List = List(1);
/// The ghost queue: blocks evicted from `S`.
const G: List = List(2);

const FREQ_MAX: u8 = 3;

/// A small FIFO queue in front of a main one, and a queue of ghosts.
#[derive(Debug)]
pub struct S3Fifo<I: Index> {
    c: usize,
    /// `S` evicts blocks while it has at least this many.
    s_target: f64,
    /// `M` is full above this number of blocks.
    m_target: f64,
    g_max: usize,
    threshold: u8,
    /// True for libCacheSim's variant.
    as_shipped: bool,
    /// True once a block was evicted.
    has_evicted: bool,
    /// Each block with its freq.
    blocks: Blocks<I, u8>,
}

impl<I: Index> S3Fifo<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let as_shipped = options.text("variant") == "libcachesim";
        let s_share = options.number("small") * c;
        let s_target = if as_shipped { s_share.floor() } else { s_share };
        S3Fifo {
            c: capacity,
            s_target,
            m_target: c - s_target,
            g_max: (options.number("ghost") * c) as usize,
            threshold: options.count("threshold") as u8,
            as_shipped,
            has_evicted: false,
            blocks: Blocks::new(index, 2, 1),
        }
    }

    fn evict(&mut self) -> Option<I::Key> {
        let s = self.blocks.len(S);
        if self.as_shipped {
            let m_is_above_its_share = self.blocks.len(M) as f64 > self.m_target;
            return if m_is_above_its_share || s == 0 { self.evict_m() } else { self.evict_s() };
        }
        if s > 0 && s as f64 >= self.s_target { self.evict_s() } else { self.evict_m() }
    }

    fn evict_s(&mut self) -> Option<I::Key> {
        while let Some(t) = self.blocks.back(S) {
            if *self.blocks.data(t) <= self.threshold {
                let evicted = self.blocks.key(t);
                self.blocks.move_front(t, G);
                self.blocks.prefetch_back(S);
                self.trim_g();
                return Some(evicted);
            }
            *self.blocks.data_mut(t) = 0;
            self.blocks.move_front(t, M);
            if !self.as_shipped && self.blocks.len(M) as f64 > self.m_target {
                return self.evict_m();
            }
        }
        None
    }

    fn evict_m(&mut self) -> Option<I::Key> {
        while let Some(t) = self.blocks.back(M) {
            let freq = self.blocks.data_mut(t);
            if *freq == 0 {
                return Some(self.blocks.remove(t));
            }
            *freq -= 1;
            self.blocks.move_front(t, M);
        }
        None
    }

    fn trim_g(&mut self) {
        if self.blocks.len(G) > self.g_max {
            self.blocks.pop_back(G);
        }
    }

    fn insert(&mut self, x: I::Key) -> Option<I::Key> {
        let was_in_g = self.as_shipped && self.blocks.forget(x).is_some();
        let mut evicted = None;
        while self.blocks.len(S) + self.blocks.len(M) == self.c {
            evicted = self.evict();
            self.has_evicted = true;
        }
        let fills_m = self.as_shipped && !self.has_evicted && self.blocks.len(S) as f64 >= self.s_target;
        if was_in_g || fills_m {
            self.blocks.insert_front(M, x, 0);
            return evicted;
        }
        if let Some(ghost) = self.blocks.find(x) {
            *self.blocks.data_mut(ghost) = 0;
            self.blocks.move_front(ghost, M);
        } else {
            self.blocks.insert_front(S, x, 0);
        }
        evicted
    }
}

impl<I: Index> Policy for S3Fifo<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        if let Some(x) = self.blocks.find_cached(access.block) {
            let freq = self.blocks.data_mut(x);
            *freq = (*freq + 1).min(FREQ_MAX);
            return Outcome::Hit;
        }
        Outcome::Admit { evicted: self.insert(access.block) }
    }

    fn check(&self) {
        assert!(self.blocks.len(S) + self.blocks.len(M) <= self.c);
        assert!(self.blocks.len(G) <= self.g_max);
        self.blocks.check(self.c.saturating_add(self.g_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// Draws `S | M | G`, each from its head; a block in `S` or `M` has a `'` for each counted hit.
    fn queues(s3_fifo: &S3Fifo<Dense>) -> String {
        let draw = |list| {
            let mark = |block| {
                let freq = s3_fifo.blocks.find(block).map_or(0, |node| *s3_fifo.blocks.data(node));
                format!("{block}{}", if list == G { String::new() } else { "'".repeat(freq.into()) })
            };
            s3_fifo.blocks.keys(list).map(mark).collect::<Vec<_>>().join(" ")
        };
        format!("{} | {} | {}", draw(S), draw(M), draw(G))
    }

    fn compare(mut s3_fifo: S3Fifo<Dense>, rows: &[(u32, Outcome<u32>, &str)]) {
        for &(block, outcome, after) in rows {
            assert_eq!(s3_fifo.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(queues(&s3_fifo), after, "after the access to {block}");
            s3_fifo.check();
        }
    }

    fn s3_fifo(capacity: usize, options: &str) -> S3Fifo<Dense> {
        let options = Options::parse("s3-fifo", INFO.parameters, options).unwrap();
        S3Fifo::new(Dense::new(100), capacity, &options)
    }

    /// C = 3: S evicts blocks while it has one (0.3, rounded up), M is full above 2.7, G remembers 2.
    #[test]
    fn blocks_hit_twice_move_to_main_and_a_ghost_comes_back_there() {
        let rows = [
            (1, FILL, "1 |  | "),
            (2, FILL, "2 1 |  | "),
            (3, FILL, "3 2 1 |  | "),
            (1, HIT, "3 2 1' |  | "),
            (2, HIT, "3 2' 1' |  | "),
            (2, HIT, "3 2'' 1' |  | "),
            // 1 was hit once: to G.
            (4, evict(1), "4 3 2'' |  | 1"),
            // 2 was hit twice: to M, its hits forgotten. 3 goes to G.
            (5, evict(3), "5 4 | 2 | 3 1"),
            // 4 goes to G, which forgets 1; then 3 is found in G.
            (3, evict(4), "5 | 3 2 | 4"),
            // 5 goes to G.
            (6, evict(5), "6 | 3 2 | 5 4"),
        ];
        compare(s3_fifo(3, "ghost=67%"), &rows);
    }

    /// C = 3, `small=34%`: S has a share of one block, M of two; G remembers 2.
    #[test]
    fn the_shipped_variant_fills_main_first_and_looks_ghosts_up_before_it_evicts() {
        let rows = [
            (1, FILL, "1 |  | "),
            (2, FILL, "1 | 2 | "),
            (3, FILL, "1 | 3 2 | "),
            // M is not above its share: S evicts 1.
            (4, evict(1), "4 | 3 2 | 1"),
            (4, HIT, "4' | 3 2 | 1"),
            (4, HIT, "4'' | 3 2 | 1"),
            // 1 leaves G for M; before that 4, hit twice, moves to M, S is empty, and M evicts 2.
            (1, evict(2), " | 1 4 3 | "),
            // M is above its share.
            (5, evict(3), "5 | 1 4 | "),
            (6, evict(5), "6 | 1 4 | 5"),
        ];
        compare(s3_fifo(3, "variant=libcachesim,small=34%"), &rows);
    }

    /// C = 2: M is full above 1.8, G remembers 1.
    #[test]
    fn a_full_main_queue_gives_blocks_another_round_for_each_hit() {
        let rows = [
            (1, FILL, "1 |  | "),
            (1, HIT, "1' |  | "),
            (1, HIT, "1'' |  | "),
            (2, FILL, "2 1'' |  | "),
            (3, evict(2), "3 | 1 | 2"),
            (1, HIT, "3 | 1' | 2"),
            (3, HIT, "3' | 1' | 2"),
            (3, HIT, "3'' | 1' | 2"),
            // 3 moves to M, which is full then: 1 moves to its head for its hit, and 3, whose hits are forgotten,
            // leaves.
            (4, evict(3), "4 | 1 | 2"),
            // 4 goes to G, which forgets 2 before 2 is looked up there.
            (2, evict(4), "2 | 1 | 4"),
        ];
        compare(s3_fifo(2, ""), &rows);
    }
}
