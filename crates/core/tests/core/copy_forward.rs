//! The blocks that survive the reset of an erase unit.

use std::collections::HashMap;

use flashwise_core::cache::{Cache, Config, CopyForward, Event, Kind, LogCache, Mode, Request};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::{Spec, online};
use flashwise_core::step::Step;

const BLOCK: u64 = 4096;

struct Run {
    cache: LogCache,
    /// True if write-backs ever complete.
    destages: bool,
}

impl Run {
    /// Creates a cache of 24 units of 14 blocks, with a policy of 238 blocks.
    fn new(policy: &str, copy_forward: CopyForward) -> Run {
        let config = Config {
            copy_forward,
            mode: Mode::WriteThrough,
            over_provision: 0.0,
            sequential_blocks: 0,
            ..Config::new(Geometry { units: 24, unit_pages: 16 }, Spec::parse(policy).unwrap())
        };
        let log = Log::new(config.geometry);
        Run { cache: LogCache::new(config, log, HashMap::new()), destages: true }
    }

    fn request(&mut self, kind: Kind, block: u64) {
        let mut steps = Vec::new();
        for piece in Request::pieces(kind, block * BLOCK, BLOCK, false) {
            self.cache.on(Event::Request { request: &piece, now_us: 0 }, &mut steps);
        }
        for step in &steps {
            if let Step::Destaged { .. } = step
                && self.destages
            {
                self.cache.on(Event::Done(step), &mut Vec::new());
            }
        }
        self.cache.check();
    }

    /// Reads each of these once, with a write of one of 40 other blocks after each. Superseded copies take half of the
    /// log, so a lap of it is less than 150 such reads. The policy wants more blocks than are on flash.
    fn read_new(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            self.request(Kind::Read, block);
            self.request(Kind::Write, 9_000 + block % 40);
        }
    }

    /// Reads block 7 again after each 50 others, and then once per lap.
    fn read_with_7(&mut self) {
        for part in 0..6 {
            self.read_new(1_000 * part..1_000 * part + 50);
            self.request(Kind::Read, 7);
        }
    }

    fn holds(&self, block: u32) -> bool {
        let copy = self.cache.log().find(block);
        assert_eq!(copy.is_some(), self.cache.log().policy().contains(block), "block {block}");
        copy.is_some()
    }
}

#[test]
fn blocks_accessed_again_stay_and_others_leave_with_their_unit() {
    let mut run = Run::new("lru", CopyForward::Used);
    run.read_with_7();
    let figures = run.cache.figures();
    assert!(run.holds(7) && !run.holds(6) && !run.holds(8));
    assert_eq!(figures.backend_read_blocks, 300, "block 7 was read from there once");
    assert!(figures.dropped_blocks > 50, "{figures:?}");
}

#[test]
fn a_copy_is_a_second_chance_and_not_a_third() {
    let mut run = Run::new("lru", CopyForward::Used);
    run.read_new(0..50);
    run.request(Kind::Read, 7);
    run.read_new(1_000..1_130);
    assert!(run.holds(7), "it was used");
    run.read_new(2_000..2_130);
    assert!(!run.holds(7), "it was not used again");
}

/// Blocks 0 to 13 are the first unit, the others are of the second.
#[test]
fn only_blocks_used_twice_stay_of_a_mostly_used_unit() {
    let mut run = Run::new("lru", CopyForward::Used);
    (0..26).for_each(|block| run.request(Kind::Read, block));
    let again = [2, 3, 5, 7, 11, 15, 20, 24, 7, 20];
    again.iter().for_each(|&block| run.request(Kind::Read, block));
    run.read_new(1_000..1_130);
    // 5 blocks of the first unit were used, 3 of the second: too few to require two uses.
    let stays = |run: &Run| (0..26).filter(|&block| run.holds(block)).collect::<Vec<_>>();
    assert_eq!(stays(&run), [2, 3, 5, 7, 11, 15, 20, 24]);

    let mut run = Run::new("lru", CopyForward::Used);
    (0..26).for_each(|block| run.request(Kind::Read, block));
    // Now 7 of the 14 blocks of the first unit were used, more than 45 %.
    again.iter().chain(&[12, 13]).for_each(|&block| run.request(Kind::Read, block));
    run.read_new(1_000..1_130);
    assert_eq!(stays(&run), [7, 15, 20, 24]);
}

/// A block written past the flash and to it has a new copy, with the uses of the old one.
#[test]
fn a_rewritten_block_keeps_its_use_count() {
    let mut run = Run::new("lru", CopyForward::Used);
    // One more than a unit has, because a copy in memory would be replaced there.
    (0..15).for_each(|block| run.request(Kind::Read, block));
    run.request(Kind::Read, 7);
    // This is the second use. The new copy is in the second unit; most of its blocks are used once.
    run.request(Kind::Write, 7);
    (20..30).chain(20..30).for_each(|block| run.request(Kind::Read, block));
    run.read_new(1_000..1_130);
    assert!(run.holds(7), "it was used twice");
    assert_eq!((20..30).filter(|&block| run.holds(block)).count(), 0, "they were used once");
}

#[test]
fn copy_forward_all_follows_the_policy_and_none_keeps_only_dirty_blocks() {
    let [all, none] = [CopyForward::All, CopyForward::None].map(|copy_forward| {
        let mut run = Run::new("lru", copy_forward);
        run.read_with_7();
        run.cache.figures()
    });
    assert!(all.flash_copy_forward_blocks > 100, "{all:?}");
    assert_eq!((none.flash_copy_forward_blocks, none.dropped_blocks > all.dropped_blocks), (0, true), "{none:?}");
}

#[test]
fn the_young_part_of_the_queues_is_kept() {
    // SMQ keeps its blocks for longer than this run takes: none is dropped.
    for policy in online().map(|info| info.name).filter(|&name| name != "smq") {
        let mut run = Run::new(policy, CopyForward::Young(0.5));
        run.read_with_7();
        run.read_with_7();
        let figures = run.cache.figures();
        assert!(figures.dropped_blocks > 0, "{policy}: {figures:?}");
        // Block 7 is in the younger half of their queues at each reset of its unit.
        if ["lru", "arc", "lfu"].contains(&policy) {
            assert!(figures.flash_copy_forward_blocks > 0 && run.holds(7), "{policy}: {figures:?}");
        }
    }
}

/// No write-back completes, so dirty blocks stay dirty.
#[test]
fn dirty_blocks_are_never_dropped() {
    for copy_forward in [CopyForward::All, CopyForward::Used, CopyForward::Young(0.5), CopyForward::None] {
        let mut run = Run::new("lru", copy_forward);
        run.cache.set_mode(Mode::WriteBack);
        run.destages = false;
        let mut dirty = Vec::new();
        for block in 0..2_000 {
            run.request(Kind::Write, block);
            let is_dirty = |block: u32| run.cache.log().find(block).is_some_and(|slot| run.cache.log().is_dirty(slot));
            if is_dirty(block as u32) {
                dirty.push(block as u32);
            }
            assert!(dirty.iter().all(|&block| is_dirty(block)), "{copy_forward}: after block {block}");
            run.request(Kind::Read, 5_000 + block);
        }
        assert!(dirty.len() > 100, "{copy_forward}: {}", dirty.len());
    }
}

#[test]
fn the_choice_is_parsed_from_words_and_displayed() {
    for text in ["all", "used", "none", "young:50%", "young:12.5%"] {
        assert_eq!(text.parse::<CopyForward>().unwrap().to_string(), text);
    }
    for wrong in ["", "young", "young:", "young:50", "young:0%", "young:101%", "young:NaN%", "ALL"] {
        let error = wrong.parse::<CopyForward>().unwrap_err();
        assert!(error.starts_with(&format!("found '{wrong}', expected ")), "{error}");
    }
}
