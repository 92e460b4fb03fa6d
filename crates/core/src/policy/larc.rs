//! LARC: admit a block on its second access, within a ghost queue that tunes its own length.
//!
//! Source: Huang, Wei, Chen, Chen, Feng: Improving Flash-based Disk Cache with Lazy Adaptive Replacement. MSST 2013,
//! section III, Algorithm 1 and Table I.
//!
//! Departures from the paper:
//! - While the cache is not full every miss is admitted. Section III.A: "when cache is full, first-time accessed blocks
//!   are stored in ghost cache". Algorithm 1 sends first accesses to the ghost queue from the start, as `fill=ghost`
//!   does. `C_r` moves in both cases as Algorithm 1 says.
//! - `C_r` is a real number. If the queue is longer than `C_r` after the insertion of a ghost, one tail block is
//!   dropped, as in Algorithm 1. So a decreasing `C_r` only shortens the queue when ghosts are inserted.
//! - A self-tuning `C_r` starts within its bounds for any `cr`. If the lower bound is above the upper one, it counts as
//!   both.
//! - A removed block leaves `Q` or `Q_r`, and `C_r` stays, because nothing hit or missed. Once full, a cache never
//!   fills freely again: only ghosts enter its free places.
//! - A block without space in the cache moves to the LRU end of `Q_r`, as section V.B says. This holds for a ghost, for
//!   a block admitted directly, and for a cached block that loses its space. `C_r` stays.
//! - `writes=admit` admits every write miss, as the authors' Flashcache port does; not in the paper.

use super::{Info, Outcome, Policy, Spec, of_blocks};
use crate::access::{Access, Op};
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// LARC's row in the table of policies.
pub static INFO: Info = Info {
    name: "larc",
    title: "Lazy Adaptive Replacement Cache",
    source: "Huang, Wei, Chen, Chen, Feng: Improving flash-based disk cache with lazy adaptive replacement. MSST 2013",
    parameters: &[
        Parameter::of("fill", Kind::Choice(&["admit", "ghost"]), "admit").means(
            "what happens to first accesses while the cache is not full: admit them (section III.A) or \
                 send them to the ghost queue (Algorithm 1)",
        ),
        Parameter::of("writes", Kind::Choice(&["filter", "admit"]), "filter")
            .means("send write misses through the ghost queue like reads (Figure 2), or always admit them"),
        Parameter::of("tuning", Kind::Choice(&["auto", "fixed"]), "auto")
            .means("C_r tunes itself (section III.B), or keeps its initial value (the basic algorithm, section III.A)"),
        Parameter::of("cr", Kind::Number(0.0, f64::MAX), "10%")
            .means("initial C_r, the capacity of the ghost queue, as a share of the cache size (Algorithm 1)"),
        Parameter::of("min", Kind::Number(0.0, 1.0), "10%")
            .means("lower bound of C_r, as a share of the cache size (section III.B)"),
        Parameter::of("max", Kind::Number(0.0, 1.0), "90%")
            .means("upper bound of C_r, as a share of the cache size (section III.B)"),
    ],
    offline: false,
};

/// Cached blocks, most recently used first.
const Q: List = List(0);
/// Ghosts: blocks seen once and not cached, most recently seen first.
const Q_R: List = List(1);

/// An LRU queue behind a ghost queue that tunes its own length.
#[derive(Debug)]
pub struct Larc<I: Index> {
    c: usize,
    c_r: f64,
    c_r_min: f64,
    c_r_max: f64,
    tuning: bool,
    /// True if misses are admitted until the cache is full.
    fills_freely: bool,
    writes_admit: bool,
    blocks: Blocks<I, ()>,
}

/// True if `policy` is LARC that admits every miss while the cache fills. A scan then stays in the cache until other
/// blocks are accessed twice.
pub fn fills_freely(policy: &Spec) -> bool {
    policy.info().name == INFO.name && admits_to_fill(policy.options())
}

fn admits_to_fill(options: &Options) -> bool {
    options.text("fill") == "admit"
}

impl<I: Index> Larc<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let tuning = options.text("tuning") == "auto";
        let c_r_min = options.number("min") * c;
        let c_r_max = (options.number("max") * c).max(c_r_min);
        let c_r = options.number("cr") * c;
        Larc {
            c: capacity,
            c_r: if tuning { c_r.clamp(c_r_min, c_r_max) } else { c_r },
            c_r_min,
            c_r_max,
            tuning,
            fills_freely: admits_to_fill(options),
            writes_admit: options.text("writes") == "admit",
            blocks: Blocks::new(index, 1, 1),
        }
    }

    /// Shrinks `C_r` on a hit; a larger `C_r` shrinks faster.
    #[inline]
    fn shrink_c_r(&mut self) {
        if self.tuning {
            let c = self.c as f64;
            self.c_r = (self.c_r - c / (c - self.c_r)).max(self.c_r_min);
        }
    }

    /// Grows `C_r` on a miss; a smaller `C_r` grows faster.
    #[inline]
    fn grow_c_r(&mut self) {
        if self.tuning {
            self.c_r = (self.c_r + self.c as f64 / self.c_r).min(self.c_r_max);
        }
    }

    /// Admits `block`, which is in neither queue.
    #[inline]
    fn admit(&mut self, block: I::Key) -> Outcome<I::Key> {
        let evicted = self.make_room();
        self.blocks.insert_front(Q, block, ());
        self.note_fill();
        Outcome::Admit { evicted }
    }

    /// Forgets the LRU block of `Q_r` if there are more than `C_r`.
    #[inline]
    fn trim_ghosts(&mut self) {
        if self.blocks.len(Q_R) as f64 > self.c_r {
            self.blocks.pop_back(Q_R);
        }
    }

    /// Ends the free filling once the cache is full.
    #[inline]
    fn note_fill(&mut self) {
        self.fills_freely &= self.blocks.len(Q) < self.c;
    }

    /// Evicts the LRU block `D` of `Q` if the cache is full, to make room for `B`.
    #[inline]
    fn make_room(&mut self) -> Option<I::Key> {
        if self.blocks.len(Q) == self.c { self.blocks.pop_back(Q) } else { None }
    }
}

impl<I: Index> Policy for Larc<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let b = self.blocks.find(access.block);
        if let Some(b) = b
            && self.blocks.list(b) == Q
        {
            self.blocks.move_front(b, Q);
            self.shrink_c_r();
            return Outcome::Hit;
        }
        self.grow_c_r();
        if let Some(b) = b {
            let evicted = self.make_room();
            self.blocks.move_front(b, Q);
            self.note_fill();
            return Outcome::Admit { evicted };
        }
        if self.fills_freely || (self.writes_admit && access.op == Op::Write) {
            return self.admit(access.block);
        }
        self.blocks.insert_front(Q_R, access.block, ());
        self.trim_ghosts();
        Outcome::Bypass
    }

    /// Bypasses the ghost queue in every fill mode, without a miss that would grow `C_r`.
    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        if self.blocks.find(block).is_some() {
            return self.access(Access::read(block));
        }
        self.admit(block)
    }

    fn refuse(&mut self, block: I::Key) {
        if let Some(node) = self.blocks.find(block) {
            self.blocks.move_back(node, Q_R);
            self.trim_ghosts();
        }
    }

    fn space_is_full(&mut self) {
        self.fills_freely = false;
    }

    fn check(&self) {
        assert!(self.blocks.len(Q) <= self.c);
        if self.tuning {
            assert!((self.c_r_min..=self.c_r_max).contains(&self.c_r), "C_r = {}", self.c_r);
        }
        let ghosts_max = (self.c_r_max.max(self.c_r)).floor() as usize;
        assert!(self.blocks.len(Q_R) <= ghosts_max, "{} ghosts, {ghosts_max} at most", self.blocks.len(Q_R));
        self.blocks.check(self.c.saturating_add(ghosts_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::Spec;

    fn larc(capacity: usize, options: &str) -> Larc<Dense> {
        let options = Options::parse("larc", INFO.parameters, options).unwrap();
        Larc::new(Dense::new(100), capacity, &options)
    }

    fn queues(larc: &Larc<Dense>) -> (Vec<u32>, Vec<u32>) {
        (larc.blocks.keys(Q).collect(), larc.blocks.keys(Q_R).collect())
    }

    /// A cache of 10 blocks: the initial `C_r`, and its value after a miss and a hit.
    #[test]
    fn c_r_that_tunes_itself_never_leaves_its_bounds() {
        let c_r = |options: &str| {
            let mut larc = larc(10, options);
            let first = larc.c_r;
            [first].into_iter().chain([1, 1].map(|block| {
                larc.access(Access::read(block));
                larc.check();
                larc.c_r
            }))
        };
        // 1 + 10 / 1 is more than 9; 9 - 10 / (10 - 9) is less than 1.
        assert!(c_r("cr=0").eq([1.0, 9.0, 1.0]));
        assert!(c_r("cr=1e308").eq([9.0, 9.0, 1.0]));
        assert!(c_r("min=50%,max=20%").eq([5.0, 5.0, 5.0]));
        // 10 - 10 / (10 - 10) is less than any bound.
        assert!(c_r("cr=100%,max=100%").eq([10.0, 10.0, 1.0]));
        assert!(c_r("cr=0,tuning=fixed").eq([0.0, 0.0, 0.0]));
    }

    /// Table I: cache of 4 blocks that holds 0, 1, 2, 3 (most recently used first), ghost queue of 2. Each row of the
    /// table shows the queues before the row's access, so a row here is checked, then accessed. The access of row 10
    /// (3) leads to the queues of row 11, and row 12's access of 1 is the eighth hit.
    #[test]
    fn table_i_of_the_paper() {
        let mut larc = larc(4, "tuning=fixed,cr=50%");
        for block in [3, 2, 1, 0] {
            larc.access(Access::read(block));
        }
        let rows: [(u32, [u32; 4], &[u32]); 12] = [
            (1, [0, 1, 2, 3], &[]),
            (5, [1, 0, 2, 3], &[]),
            (3, [1, 0, 2, 3], &[5]),
            (4, [3, 1, 0, 2], &[5]),
            (3, [3, 1, 0, 2], &[4, 5]),
            (1, [3, 1, 0, 2], &[4, 5]),
            (0, [1, 3, 0, 2], &[4, 5]),
            (4, [0, 1, 3, 2], &[4, 5]),
            (0, [4, 0, 1, 3], &[5]),
            (3, [0, 4, 1, 3], &[5]),
            (6, [3, 0, 4, 1], &[5]),
            (1, [3, 0, 4, 1], &[6, 5]),
        ];
        let (mut hits, mut replacements) = (0, 0);
        for (block, q, q_r) in rows {
            assert_eq!(queues(&larc), (q.to_vec(), q_r.to_vec()), "before the access to {block}");
            match larc.access(Access::read(block)) {
                Outcome::Hit => hits += 1,
                Outcome::Admit { evicted } => {
                    assert_eq!(evicted, Some(2));
                    replacements += 1;
                }
                Outcome::Bypass => {}
            }
            larc.check();
        }
        assert_eq!((hits, replacements), (8, 1));
    }

    /// C = 10, so C_r starts at 1 and stays within 1 and 9.
    ///
    ///     miss: 1 + 10/1 = 11, at most 9               -> 9
    ///     hit:  9 - 10/(10 - 9) = -1, at least 1       -> 1
    ///     hit:  1 - 10/(10 - 1) = -0.11, at least 1    -> 1
    #[test]
    fn c_r_moves_as_algorithm_1_says() {
        let mut larc = larc(10, "");
        larc.access(Access::read(1));
        assert_eq!(larc.c_r, 9.0);
        larc.access(Access::read(1));
        assert_eq!(larc.c_r, 1.0);
        larc.access(Access::read(1));
        assert_eq!(larc.c_r, 1.0);
    }

    /// A cache of 3 blocks, ghost queue of 2. A block without space goes behind the other ghosts, and its place in `Q`
    /// stays free. A first access still becomes a ghost; a ghost takes the free place and evicts nothing.
    #[test]
    fn a_block_without_space_becomes_the_lru_ghost_and_its_place_is_not_filled_freely() {
        let mut larc = larc(3, "tuning=fixed,cr=67%");
        for block in [1, 2, 3] {
            assert_eq!(larc.access(Access::read(block)), Outcome::Admit { evicted: None });
        }
        assert_eq!(larc.access(Access::read(4)), Outcome::Bypass);
        assert_eq!(larc.access(Access::read(5)), Outcome::Bypass);
        assert_eq!(queues(&larc), (vec![3, 2, 1], vec![5, 4]));
        assert_eq!(larc.access(Access::read(5)), Outcome::Admit { evicted: Some(1) });
        larc.refuse(5);
        assert_eq!(queues(&larc), (vec![3, 2], vec![4, 5]));
        // With space for two ghosts, the next pushes 5 out.
        assert_eq!(larc.access(Access::read(6)), Outcome::Bypass);
        assert_eq!(queues(&larc), (vec![3, 2], vec![6, 4]));
        assert_eq!(larc.access(Access::read(4)), Outcome::Admit { evicted: None });
        assert_eq!(queues(&larc), (vec![4, 3, 2], vec![6]));
        // A cached block that loses its space is remembered as well; a removed one is not.
        larc.refuse(3);
        assert_eq!(queues(&larc), (vec![4, 2], vec![6, 3]));
        assert!(larc.remove(2));
        assert_eq!(larc.access(Access::read(2)), Outcome::Bypass);
        assert_eq!(queues(&larc), (vec![4], vec![2, 6]));
        larc.check();
    }

    #[test]
    fn a_full_cache_of_few_blocks_is_not_filled_freely() {
        let mut larc = larc(10, "");
        assert_eq!(larc.access(Access::read(1)), Outcome::Admit { evicted: None });
        larc.space_is_full();
        assert_eq!(larc.access(Access::read(2)), Outcome::Bypass);
        assert_eq!(larc.access(Access::read(2)), Outcome::Admit { evicted: None });
    }

    #[test]
    fn fill_ghost_sends_the_first_access_to_the_ghost_queue_and_admits_the_second() {
        let mut larc = larc(10, "fill=ghost");
        assert_eq!(larc.access(Access::read(1)), Outcome::Bypass);
        assert_eq!(queues(&larc), (vec![], vec![1]));
        assert_eq!(larc.access(Access::read(1)), Outcome::Admit { evicted: None });
        assert_eq!(queues(&larc), (vec![1], vec![]));
    }

    #[test]
    fn writes_admit_lets_write_misses_in_and_still_filters_reads() {
        let mut larc = larc(1, "writes=admit");
        assert_eq!(larc.access(Access::read(1)), Outcome::Admit { evicted: None });
        assert_eq!(larc.access(Access::read(2)), Outcome::Bypass);
        assert_eq!(larc.access(Access::write(3)), Outcome::Admit { evicted: Some(1) });
    }

    #[test]
    fn options_are_read_by_name_and_misspellings_are_answered_with_the_nearest() {
        assert!(Spec::parse("larc:fill=ghost,cr=50%").is_ok());
        let error = Spec::parse("lrac").unwrap_err().to_string();
        assert!(error.starts_with("unknown policy 'lrac' (did you mean 'larc'?)"), "{error}");
        let error = Spec::parse("larc:fil=ghost").unwrap_err().to_string();
        assert!(error.starts_with("larc has no option 'fil' (did you mean 'fill'?)"), "{error}");
        let error = Spec::parse("larc:fill=gost").unwrap_err().to_string();
        assert_eq!(error, "larc: fill: found 'gost', expected admit or ghost");
    }
}
