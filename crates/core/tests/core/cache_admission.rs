//! Admission rules and the I/O filter in the whole cache: rejected data is not written to flash, and no older copy of
//! it stays there.

use std::collections::HashMap;

use flashwise_core::admission::{Admission, Setting, Spec};
use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Mode, Request};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Kind as RecordKind};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy;
use flashwise_core::step::Step;
use flashwise_core::tiers::{Array, Device, Tier};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn admission(rule: &str) -> Option<Admission> {
    let tier = |latency_us| Tier {
        device: Device {
            capacity_bytes: 1e9,
            endurance_cycles: 1e4,
            read_latency_us: latency_us,
            write_latency_us: latency_us,
        },
        devices: 1.0,
        write_amplification: 1.0,
    };
    let array = Array { cache: tier(100.0), storage: tier(1000.0) };
    Some(Admission { rule: Spec::parse(rule).unwrap(), setting: Setting::of(&array, BLOCK, 1e6, 1e7) })
}

fn config(rule: &str, mode: Mode, write_buffer_blocks: u32) -> Config {
    Config {
        admission: admission(rule),
        mode,
        write_buffer_blocks,
        dirty_age_us: u64::MAX,
        commit_age_us: 1_000_000,
        sequential_blocks: 0,
        ..Config::new(Geometry { units: 24, unit_pages: 16 }, policy::Spec::parse("lru").unwrap())
    }
}

struct Run {
    cache: LogCache,
}

impl Run {
    fn new(config: Config) -> Run {
        let log = Log::new(config.geometry);
        Run { cache: LogCache::new(config, log, HashMap::new()) }
    }

    /// Plans a request for `count` blocks, and completes write-backs.
    fn request(&mut self, kind: Kind, block: u64, count: u64, now_us: u64) -> Vec<Step> {
        self.request_of(Caching::Usual, kind, block, count, now_us)
    }

    /// Plans a request of a client that the filter treats as `caching`.
    fn request_of(&mut self, caching: Caching, kind: Kind, block: u64, count: u64, now_us: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in Request::pieces(kind, block * BLOCK, count * BLOCK, false).of_client(caching) {
            self.cache.on(Event::Request { request: &piece, now_us }, &mut steps);
        }
        for step in &steps {
            if let Step::Destaged { .. } = step {
                self.cache.on(Event::Done(step), &mut Vec::new());
            }
        }
        self.cache.check();
        steps
    }

    fn on_flash(&self, blocks: std::ops::Range<u32>) -> Vec<u32> {
        blocks.filter(|&block| self.cache.log().find(block).is_some()).collect()
    }
}

/// Returns the blocks written directly to the backend.
fn to_backend(steps: &[Step]) -> Vec<u32> {
    let written = |step: &Step| match step {
        Step::WriteBackend { block, .. } => Some(*block),
        _ => None,
    };
    steps.iter().filter_map(written).collect()
}

#[test]
fn rejected_blocks_go_to_the_backend_and_cached_blocks_stay() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let mut run = Run::new(config("size:max=8KiB", mode, 0));
        run.request(Kind::Write, 10, 2, 0);
        assert_eq!(run.on_flash(0..100), [10, 11]);
        // Block 11 is a hit, for any length of the request; the others are rejected.
        let steps = run.request(Kind::Write, 11, 4, 1);
        let expected: &[u32] = if mode == Mode::WriteBack { &[12, 13, 14] } else { &[11, 12, 13, 14] };
        assert_eq!(to_backend(&steps), expected);
        run.request(Kind::Read, 20, 3, 2);
        assert_eq!(run.on_flash(0..100), [10, 11]);
        assert_eq!(run.cache.counters().bypasses(), 6);
    }
}

/// Two blocks wait in RAM, from requests of one and of four blocks. The request that evicts them has another length.
#[test]
fn a_write_that_waited_in_ram_is_judged_by_the_request_that_wrote_it() {
    let mut run = Run::new(config("size:max=8KiB", Mode::WriteBack, 64));
    run.request(Kind::Write, 0, 1, 0);
    run.request(Kind::Write, 16, 4, 0);
    // The last write of a block counts.
    run.request(Kind::Write, 16, 1, 0);
    let mut steps = Vec::new();
    assert_eq!(run.cache.next_tick_us(1_000_000), Some(1_000_000));
    run.cache.on(Event::Tick { now_us: 1_000_000 }, &mut steps);
    assert_eq!((run.on_flash(0..100), to_backend(&steps)), (vec![0, 16], vec![17, 18, 19]));
}

/// LRU holds fewer blocks than the log has pages: an evicted block stays there until its unit is reset.
#[test]
fn a_refused_write_takes_the_older_copy_on_flash_away_first() {
    let mut run = Run::new(config("probability:p=1", Mode::WriteThrough, 0));
    let capacity = run.cache.config().capacity_blocks() as u64;
    (0..=capacity).for_each(|block| drop(run.request(Kind::Write, block, 1, 0)));
    assert_eq!(run.on_flash(0..1), [0], "evicted, and not reset yet");
    let policy = run.cache.config().policy.clone();
    run.cache.set_policy(policy.clone(), admission("probability:p=0"));
    // The new policy was warmed with the log, oldest first, and has evicted block 0 too.
    let steps = run.request(Kind::Write, 0, 1, 1);
    let forgets = |step: &Step| match step {
        Step::Append(segment) => {
            segment.records.iter().any(|record| record.kind == RecordKind::Forget && record.block == 0)
        }
        _ => false,
    };
    let forgotten = steps.iter().position(forgets).unwrap();
    let flushed = steps.iter().position(|step| matches!(step, Step::FlushFlash { .. })).unwrap();
    let written = steps.iter().position(|step| matches!(step, Step::WriteBackend { block: 0, .. })).unwrap();
    assert!(forgotten < flushed && flushed < written, "{steps:?}");
    assert_eq!(run.on_flash(0..1), Vec::<u32>::new());
}

#[test]
fn a_later_rule_keeps_cached_blocks() {
    let mut run = Run::new(Config { admission: None, ..config("size", Mode::WriteBack, 0) });
    run.request(Kind::Write, 0, 50, 0);
    let policy = policy::Spec::parse("s3-fifo").unwrap();
    run.cache.set_policy(policy.clone(), admission("probability:p=0"));
    let hits = run.cache.counters().hits();
    run.request(Kind::Write, 0, 60, 1);
    assert_eq!((run.cache.counters().hits() - hits, run.on_flash(0..100).len()), (50, 50));
    run.cache.set_policy(policy, None);
    run.request(Kind::Write, 50, 10, 2);
    assert_eq!(run.on_flash(0..100).len(), 60);
}

/// Storage is ten times slower than the cache. If each block is used once, admitting it gains nothing, and not
/// admitting causes the least wear.
#[test]
fn an_adaptive_rule_gets_the_time() {
    let mut run = Run::new(config("adaptive:timeframe=1s,target=10ms,sampling=1", Mode::WriteBack, 0));
    assert_eq!(run.cache.admission_choice().as_deref(), Some("everything"));
    (0..200).for_each(|number| drop(run.request(Kind::Read, number, 1, number * 1000)));
    assert_eq!(run.cache.decision(), None);
    run.request(Kind::Read, 200, 1, 1_000_000);
    let decision = run.cache.decision().unwrap();
    assert_eq!((decision.number, decision.time_us), (1, 1_000_000));
    // p = 0.01 is best, and applied at once: no timeframe has begun with a full cache.
    assert_eq!(run.cache.admission_choice().as_deref(), Some("p=0.01"));
    // A block in RAM becomes an access when it leaves.
    let mut run = Run::new(config("adaptive:timeframe=1s,target=10ms,sampling=1", Mode::WriteBack, 64));
    (0..200).for_each(|number| drop(run.request(Kind::Write, number, 1, number * 1000)));
    run.cache.on(Event::Tick { now_us: 2_000_000 }, &mut Vec::new());
    assert_eq!(run.cache.decision().map(|decision| decision.time_us), Some(2_000_000));
}

#[test]
fn the_decision_of_an_adaptive_rule_is_described() {
    let choice = |rule: &str| Run::new(config(rule, Mode::WriteBack, 0)).cache.admission_choice();
    assert_eq!(choice("size"), None);
    assert_eq!(choice("adaptive:kind=size").as_deref(), Some("everything"));
    assert_eq!(choice("auto:policies=larc+arc").as_deref(), Some("policy lru"));
    let after = |rule: &str| {
        let mut run = Run::new(config(rule, Mode::WriteBack, 0));
        (0..=200).for_each(|number| drop(run.request(Kind::Read, number * 4, 4, number * 5000)));
        (run.cache.decision().unwrap().threshold, run.cache.admission_choice().unwrap())
    };
    // Equation 14 without smoothing: the chosen shadow itself, which admits no requests of four blocks.
    let always = "timeframe=1s,target=10ms,alpha=0,sampling=1";
    assert_eq!(after(&format!("adaptive:kind=size,{always}")), (1.0, "max=4KiB".to_owned()));
    assert_eq!(after(&format!("adaptive:kind=hotness,shadows=4,{always}")), (4.0, "min=4".to_owned()));
    assert_eq!(after("auto:policies=larc,timeframe=1s,sampling=1,objective=lifetime").1, "policy larc");
}

/// Streams bypass the flash from four blocks on.
#[test]
fn the_policy_sees_no_excluded_client_and_cached_blocks_stay_correct() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let mut run = Run::new(Config { sequential_blocks: 4, ..config("size:max=64KiB", mode, 0) });
        run.request_of(Caching::Never, Kind::Read, 0, 8, 0);
        assert_eq!((run.on_flash(0..300), run.cache.counters().accesses()), (vec![], 0));
        // Not a part of that stream, which was not tracked; nor is a request of a client that is always cached.
        run.request(Kind::Read, 8, 2, 1);
        run.request_of(Caching::Always, Kind::Read, 100, 8, 2);
        run.request(Kind::Read, 108, 2, 3);
        assert_eq!(run.on_flash(0..300), [8, 9, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
        run.request(Kind::Read, 110, 2, 4);
        let figures = run.cache.figures();
        assert_eq!((figures.filtered_blocks, figures.sequential_blocks), (8, 2));

        // Two cached blocks, dirty if allowed, and one that is not cached.
        run.request(Kind::Write, 200, 2, 5);
        let asked = run.cache.counters().accesses();
        let steps = run.request_of(Caching::Never, Kind::Write, 200, 3, 6);
        // No crash may restore dirty data.
        let kept: &[u32] = if mode == Mode::WriteBack { &[200, 201] } else { &[] };
        assert_eq!((to_backend(&steps), run.on_flash(200..300)), (vec![200, 201, 202], kept.to_vec()));
        let hits = run.cache.figures().flash_read_hits;
        run.request_of(Caching::Never, Kind::Read, 200, 3, 7);
        assert_eq!(run.cache.figures().flash_read_hits - hits, kept.len() as u64);
        assert_eq!((run.cache.figures().filtered_blocks, run.cache.counters().accesses()), (14, asked));
    }
}
