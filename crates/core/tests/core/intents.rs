//! Overwrites past the flash: the order of records, flushes and writes, and their cost.

use std::collections::HashMap;

use flashwise_core::cache::{Appending, Cache, Config, Event, Kind, LogCache, Mode, Regions, Request};
use flashwise_core::format::{Geometry, Kind as RecordKind};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use flashwise_core::step::{Segment, Step};

use crate::workloads::random;

const BLOCK: u64 = 4096;
const SECOND_US: u64 = 1_000_000;

/// The relevant parts of a plan's steps.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// Records without data, as kind, block and, for regions, slot.
    Append(Vec<(RecordKind, u32, u32)>),
    FlushFlash,
    Write(u32),
    Zero,
    Await,
}

use Seen::{Append, Await, FlushFlash, Write, Zero};

struct Run {
    cache: LogCache,
    now_us: u64,
}

impl Run {
    /// A cache of 24 units of at most 126 blocks, and regions of 10 blocks.
    fn new(mode: Mode) -> Run {
        let regions = Regions { blocks: 10, sure_after_us: 5 * SECOND_US, unsure_max: 2 };
        let config = Config {
            mode,
            regions,
            sequential_blocks: 0,
            ..Config::new(Geometry { units: 24, unit_pages: 128 }, Spec::parse("lru").unwrap())
        };
        let log = Log::new(config.geometry);
        Run { cache: LogCache::new(config, log, HashMap::new()), now_us: 0 }
    }

    /// Handles events. Their flushes of the backend end.
    fn steps(&mut self, events: &[Event<'_>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in events {
            match *event {
                Event::Request { request, now_us } => self.cache.on(Event::Request { request, now_us }, &mut steps),
                Event::Tick { now_us } => self.cache.on(Event::Tick { now_us }, &mut steps),
                _ => self.cache.on(Event::Close { now_us: self.now_us }, &mut steps),
            }
        }
        let flushes = steps.iter().filter(|step| matches!(step, Step::FlushBackend { .. }));
        flushes.for_each(|step| self.cache.on(Event::Done(step), &mut Vec::new()));
        steps
    }

    fn steps_of(&mut self, kind: Kind, block: u64, blocks: u64) -> Vec<Step> {
        let requests: Vec<Request> = Request::pieces(kind, block * BLOCK, blocks * BLOCK, false).collect();
        let now_us = self.now_us;
        self.steps(&requests.iter().map(|request| Event::Request { request, now_us }).collect::<Vec<_>>())
    }

    fn seen(&mut self, steps: &[Step]) -> Vec<Seen> {
        let mut seen = Vec::new();
        for step in steps {
            seen.push(match step {
                Step::Append(segment) => {
                    let marks = segment.records.iter().filter(|record| !record.kind.has_data());
                    Append(marks.map(|record| (record.kind, record.block, record.slot)).collect())
                }
                Step::FlushFlash { .. } => FlushFlash,
                Step::WriteBackend { block, .. } => Write(*block),
                Step::ZeroBackend { .. } => Zero,
                Step::AwaitFlushes => Await,
                Step::Destaged { .. } | Step::FlushBackend { .. } => {
                    self.cache.on(Event::Done(step), &mut Vec::new());
                    continue;
                }
                _ => continue,
            });
        }
        self.cache.check();
        seen
    }

    fn request(&mut self, kind: Kind, block: u64, blocks: u64) -> Vec<Seen> {
        let mut steps = Vec::new();
        for piece in Request::pieces(kind, block * BLOCK, blocks * BLOCK, false) {
            self.cache.on(Event::Request { request: &piece, now_us: self.now_us }, &mut steps);
        }
        self.seen(&steps)
    }

    fn write(&mut self, block: u64, blocks: u64) -> Vec<Seen> {
        self.request(Kind::Write, block, blocks)
    }

    /// Makes the copies in memory durable.
    fn seal(&mut self) {
        let mut steps = Vec::new();
        self.cache.on(Event::Close { now_us: self.now_us }, &mut steps);
        self.seen(&steps);
    }

    fn tick_after(&mut self, us: u64) -> Vec<Seen> {
        self.now_us += us;
        let mut steps = Vec::new();
        self.cache.on(Event::Tick { now_us: self.now_us }, &mut steps);
        self.seen(&steps)
    }
}

fn forget(block: u32) -> (RecordKind, u32, u32) {
    (RecordKind::Forget, block, 0)
}

fn unsure(first: u32) -> (RecordKind, u32, u32) {
    (RecordKind::Unsure, first, 10)
}

const ALL_SURE: (RecordKind, u32, u32) = (RecordKind::Sure, 0, 0);

#[test]
fn a_region_is_marked_unsure_once_before_its_first_write() {
    let mut run = Run::new(Mode::WriteThrough);
    assert_eq!(run.write(0, 30), (0..30).map(Write).collect::<Vec<_>>());
    run.seal();
    assert_eq!(run.write(3, 1), [Append(vec![forget(3), unsure(0)]), FlushFlash, Write(3)]);
    assert_eq!((run.write(4, 1), run.write(5, 2)), (vec![Write(4)], vec![Write(5), Write(6)]));
    // Two regions, one of them unsure.
    let expected = [Append(vec![forget(4), forget(5), forget(6), forget(8), forget(9), forget(10), unsure(10)])];
    assert_eq!(run.write(8, 3), [&expected[..], &[FlushFlash, Write(8), Write(9), Write(10)]].concat());
    // Flushed writes do not disappear, even where the block was dirty before.
    run.write(11, 1);
    assert_eq!(run.request(Kind::Flush, 0, 0), [Append(vec![forget(11)]), FlushFlash, Await]);
}

/// At most two regions are unsure at once here.
#[test]
fn a_region_that_was_not_written_for_long_is_sure_again_behind_what_was_forgotten() {
    let mut run = Run::new(Mode::WriteThrough);
    run.write(0, 50);
    run.seal();
    [0, 10, 1].into_iter().for_each(|block| drop(run.write(block, 1)));
    run.now_us = SECOND_US;
    run.write(11, 1);
    // The one of block 0 was written longest ago. Its record follows those in memory, in order.
    let sure = (RecordKind::Sure, 0, 10);
    assert_eq!(run.write(20, 1)[0], Append(vec![forget(1), forget(11), forget(20), sure, unsure(20)]));
    assert_eq!(run.write(2, 1)[0], Append(vec![forget(2), (RecordKind::Sure, 10, 10), unsure(0)]));
    run.write(3, 1);
    assert_eq!(run.tick_after(5 * SECOND_US - 1), []);
    // A tick after an event seals nothing; the next one, without events, writes to the flash.
    assert_eq!(run.tick_after(1), [Append(vec![forget(3), ALL_SURE]), FlushFlash, FlushFlash]);
    assert_eq!(run.cache.next_tick_us(u64::MAX), None, "nothing is due any more");
    assert_eq!(run.write(4, 1)[0], Append(vec![forget(4), unsure(0)]));
}

#[test]
fn a_block_that_was_written_back_is_forgotten_before_a_flush_is_answered() {
    let mut run = Run::new(Mode::WriteBack);
    run.write(0, 5);
    let mut steps = Vec::new();
    run.cache.on(Event::DestageAll { now_us: 0 }, &mut steps);
    run.seen(&steps);
    assert_eq!(run.cache.log().dirty_blocks(), 0);
    run.cache.set_mode(Mode::WriteAround);
    let unsure_first = run.write(0, 1);
    assert!(matches!(&unsure_first[..], [Append(_), FlushFlash, Write(0)]), "{unsure_first:?}");
    assert_eq!(run.write(1, 2), [Write(1), Write(2)]);
    assert_eq!(run.request(Kind::Flush, 0, 0), [Append(vec![forget(1), forget(2)]), FlushFlash, Await]);
    assert_eq!(run.request(Kind::Trim, 3, 1), [Zero]);
    assert_eq!(run.request(Kind::Flush, 0, 0), [Append(vec![forget(3)]), FlushFlash, Await]);
}

/// A copy in memory is replaced there.
#[test]
fn a_copy_that_is_not_on_flash_yet_costs_nothing_to_replace() {
    let mut run = Run::new(Mode::WriteThrough);
    run.write(0, 2);
    for _ in 0..20 {
        assert_eq!(run.write(1, 1), [Write(1)]);
    }
    let figures = run.cache.figures();
    assert_eq!((figures.flash_admission_blocks, figures.flash_metadata_blocks), (2, 0));
    // Except if an older copy on flash would be valid instead.
    run.seal();
    run.write(1, 1);
    assert_eq!(run.request(Kind::Trim, 1, 1), [Zero]);
    assert_eq!(run.cache.log().find(1), None);
}

#[test]
fn a_region_is_sure_once_the_unit_with_its_unsure_record_is_reset() {
    let mut run = Run::new(Mode::WriteThrough);
    run.write(0, 2);
    run.seal();
    run.write(0, 1);
    assert_eq!(run.write(1, 1), [Write(1)]);
    let resets = run.cache.figures().erasures;
    let mut block = 100;
    while run.cache.figures().erasures < resets + 2 {
        run.write(block, 100);
        block += 100;
        // Accessed again, it is copied forward.
        run.request(Kind::Read, 1, 1);
    }
    assert!(run.cache.log().find(1).is_some());
    let seen = run.write(1, 1);
    let says = |seen: &Seen| matches!(seen, Append(marks) if marks.contains(&forget(1)) && marks.contains(&unsure(0)));
    assert!(says(&seen[0]) && seen[1] == FlushFlash, "{seen:?}");
}

/// Returns the first segment that is appended, and true if a flush of the backend is planned before it.
fn first_append(steps: &[Step]) -> (&Segment, bool) {
    let is_append = |step: &Step| matches!(step, Step::Append(_));
    let at = steps.iter().position(is_append).expect("a segment is appended");
    let Step::Append(segment) = &steps[at] else { unreachable!("it was just found") };
    (segment, steps[..at].contains(&Step::FlushBackend { batch: None }))
}

#[test]
fn clean_copies_of_an_unsure_region_wait_for_writes_and_its_becoming_sure_for_a_flush() {
    let mut run = Run::new(Mode::WriteThrough);
    run.steps_of(Kind::Write, 0, 10);
    run.steps(&[Event::Close { now_us: 0 }]);
    run.steps_of(Kind::Write, 3, 1);
    run.steps_of(Kind::Write, 4, 1);
    let steps = run.steps_of(Kind::Flush, 0, 0);
    let (segment, flushes) = first_append(&steps);
    assert_eq!((segment.follows_writes, segment.needs_backend_flush, flushes), (true, false, false));
    run.steps_of(Kind::Write, 5, 1);
    let ticks = [5, 6].map(|second| Event::Tick { now_us: second * SECOND_US });
    let steps = run.steps(&ticks);
    let (segment, flushes) = first_append(&steps);
    assert!(segment.records.iter().any(|record| record.kind == RecordKind::Sure));
    assert_eq!((segment.needs_backend_flush, flushes), (true, true));
    // The flush fails.
    let (checksums, doubtful, mut records) = (vec![Some(0); segment.data_pages as usize], true, Vec::new());
    let appending = Appending { segment, checksums: &checksums, doubtful, records: &mut records };
    run.cache.on(Event::Appending(appending), &mut Vec::new());
    let has = |kind| records.iter().any(|record| record.kind == kind);
    assert!(has(RecordKind::Unsure) && !has(RecordKind::Sure), "{records:?}");
    let steps = run.steps(&[Event::Tick { now_us: 60 * SECOND_US }]);
    assert!(first_append(&steps).0.records.iter().any(|record| record.kind == RecordKind::Sure), "it is tried again");
}

#[test]
fn the_backend_is_flushed_before_the_reset_that_makes_a_region_sure() {
    let mut run = Run::new(Mode::WriteThrough);
    run.steps_of(Kind::Write, 0, 2);
    run.steps(&[Event::Close { now_us: 0 }]);
    run.steps_of(Kind::Write, 0, 1);
    let (mut steps, mut block) = (Vec::new(), 1024);
    while run.cache.figures().erasures < 2 {
        steps.extend(run.steps_of(Kind::Read, block, 100));
        block += 100;
    }
    let at = steps.iter().position(|step| *step == Step::FlushBackend { batch: None }).expect("the backend is flushed");
    let next: Vec<_> = steps[at + 1..].iter().take(3).collect();
    assert!(matches!(next[..], [Step::Append(_), Step::FlushFlash { .. }, Step::ResetUnit { .. }]), "{next:?}");
}

#[test]
fn an_orderly_end_leaves_nothing_unsure() {
    let mut run = Run::new(Mode::WriteThrough);
    run.write(0, 20);
    run.seal();
    [0, 10].into_iter().for_each(|block| drop(run.write(block, 1)));
    let mut steps = Vec::new();
    run.cache.on(Event::Close { now_us: 0 }, &mut steps);
    assert_eq!(run.seen(&steps)[..2], [Append(vec![ALL_SURE]), FlushFlash]);
}

/// The cost of 200,000 requests.
struct Cost {
    writes: u64,
    flushes: u64,
    /// Blocks written to flash: data and metadata.
    flash_blocks: [u64; 2],
}

/// Requests of one block each, 10,000 a second, to a volume four times as large as its cache of 64 MiB.
fn cost(policy: &str, mode: Mode, write_percent: u64, is_skewed: bool) -> Cost {
    let blocks: u64 = 65_536;
    let config = Config {
        mode,
        write_buffer_blocks: 256,
        sequential_blocks: 0,
        ..Config::new(Geometry { units: 33, unit_pages: 512 }, Spec::parse(policy).unwrap())
    };
    let log = Log::new(config.geometry);
    let mut cache = LogCache::new(config, log, HashMap::new());
    let (mut state, mut flushes, mut writes) = (7, 0, 0);
    for number in 0..200_000_u64 {
        let now_us = number * 100;
        let share = random(&mut state) as f64 / u64::MAX as f64;
        let rank = match is_skewed {
            true => ((share * (blocks as f64).ln()).exp() as u64 - 1).min(blocks - 1),
            false => (share * (blocks - 1) as f64) as u64,
        };
        let block = rank * 7919 % blocks;
        let kind = if random(&mut state) % 100 < write_percent { Kind::Write } else { Kind::Read };
        writes += u64::from(kind == Kind::Write);
        let mut steps = Vec::new();
        while let Some(tick_us) = cache.next_tick_us(now_us) {
            cache.on(Event::Tick { now_us: tick_us }, &mut steps);
        }
        for piece in Request::pieces(kind, block * BLOCK, BLOCK, false) {
            cache.on(Event::Request { request: &piece, now_us }, &mut steps);
        }
        for step in &steps {
            match step {
                Step::FlushFlash { .. } => flushes += 1,
                Step::Destaged { .. } => cache.on(Event::Done(step), &mut Vec::new()),
                _ => {}
            }
        }
    }
    let figures = cache.figures();
    let data = figures.flash_client_blocks + figures.flash_admission_blocks + figures.flash_copy_forward_blocks;
    Cost { writes, flushes, flash_blocks: [data, figures.flash_metadata_blocks] }
}

#[test]
fn overwrites_do_not_cost_a_flush_each() {
    let mut told = String::new();
    for (policy, mode, write_percent, is_skewed) in [
        ("lru", Mode::WriteThrough, 30, true),
        ("lru", Mode::WriteThrough, 70, true),
        ("larc", Mode::WriteThrough, 70, true),
        ("larc", Mode::WriteBack, 70, true),
        ("larc", Mode::WriteBack, 100, false),
    ] {
        let Cost { writes, flushes, flash_blocks: [data, metadata] } = cost(policy, mode, write_percent, is_skewed);
        told += &format!(
            "{policy}, {mode:?}, {write_percent} % writes: {flushes} flushes for {writes} writes; for each block \
             written, {:.3} of data and \
             {:.3} of metadata on flash\n",
            data as f64 / writes as f64,
            metadata as f64 / writes as f64
        );
        assert!(flushes < writes / 16, "{told}");
        assert!(metadata * 20 < data, "{told}");
    }
    println!("{told}");
}
