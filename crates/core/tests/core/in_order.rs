//! Write-back in the order of epochs: the log has room for changes in memory while it is not done.

use std::collections::HashMap;

use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Mode, Request, WriteBackOrder};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::Log;
use flashwise_core::step::Step;

const BLOCK: u64 = 4096;
const GEOMETRY: Geometry = Geometry { units: 24, unit_pages: 16 };

fn in_order() -> Config {
    Config { order: WriteBackOrder::Barriers, ..Config::new(GEOMETRY, "lru".parse().unwrap()) }
}

fn empty(config: Config) -> LogCache {
    LogCache::new(config, Log::new(GEOMETRY), HashMap::new())
}

/// Performs a request, except that blocks written back are not on the backend so far.
fn ask(cache: &mut LogCache, kind: Kind, block: u64, durable: bool) {
    let length = if kind == Kind::Flush { 0 } else { BLOCK };
    let request = Request::whole(kind, block * BLOCK, length, durable);
    assert!(!cache.waits(&request), "{kind:?} of block {block} has room");
    perform(cache, &request, 1);
}

/// Performs a piece of a request.
fn perform(cache: &mut LogCache, request: &Request, now_us: u64) {
    let mut steps = Vec::new();
    cache.on(Event::Request { request, now_us }, &mut steps);
    let is_of_batch = |step: &Step| {
        matches!(
            step,
            Step::Destaged { .. } | Step::WriteBackend { batch: Some(_), .. } | Step::FlushBackend { batch: Some(_) }
        )
    };
    for step in steps.iter().filter(|step| !is_of_batch(step)) {
        assert!(!matches!(step, Step::Fail), "{request:?} succeeds");
        cache.on(Event::Done(step), &mut Vec::new());
    }
    cache.check();
}

/// Block 0 is of an epoch that is not written back yet, so its unit stays. Reads must not take the room of the 90
/// blocks in the write buffer.
#[test]
fn admitted_reads_leave_room_for_changes_in_memory() {
    let mut cache = empty(Config { write_buffer_blocks: 100, sequential_blocks: 0, ..in_order() });
    ask(&mut cache, Kind::Write, 0, true);
    (0..90).for_each(|number| ask(&mut cache, Kind::Write, 100 + 2 * number, false));
    (0..1000).for_each(|number| ask(&mut cache, Kind::Read, 1000 + 2 * number, false));
    assert!(cache.figures().refused_read_blocks > 0, "the log is full");
    ask(&mut cache, Kind::Flush, 0, false);
    assert!(cache.epochs().unwrap().unfinished() > 0);
}

/// Far fewer blocks are dirty than the cleaner's threshold.
#[test]
fn an_epoch_is_written_back_as_soon_as_it_has_ended() {
    let geometry = Geometry { units: 24, unit_pages: 16 };
    let config = Config { order: WriteBackOrder::Barriers, ..Config::new(geometry, "lru".parse().unwrap()) };
    let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
    let dirty_after = |cache: &mut LogCache, kind, length| {
        let mut steps = Vec::new();
        cache.on(Event::Request { request: &Request::whole(kind, 0, length, false), now_us: 1 }, &mut steps);
        while !steps.is_empty() {
            let step = steps.remove(0);
            cache.on(Event::Done(&step), &mut Vec::new());
            cache.on(Event::GoOn, &mut steps);
        }
        cache.blocks_to_write_back()
    };
    assert_eq!(dirty_after(&mut cache, Kind::Write, BLOCK), 1, "the epoch is open");
    assert_eq!(dirty_after(&mut cache, Kind::Flush, 0), 0);
}

/// Writes so many blocks in pieces, as one request, if it does not have to wait. Returns whether it did not.
fn write_in_pieces(cache: &mut LogCache, block: u64, blocks: u64, now_us: u64) -> bool {
    let may_begin = !cache.waits(&Request::whole(Kind::Write, block * BLOCK, blocks * BLOCK, false));
    let pieces = Request::pieces(Kind::Write, block * BLOCK, blocks * BLOCK, false).filter(|_| may_begin);
    pieces.for_each(|piece| perform(cache, &piece, now_us));
    may_begin
}

/// The first piece passes the flash, and the open epoch is old enough to be written back.
#[test]
fn an_epoch_does_not_end_between_the_pieces_of_a_change() {
    let mut cache = empty(Config { dirty_age_us: 1_000_000, ..in_order() });
    ask(&mut cache, Kind::Write, 0, false);
    cache.set_mode(Mode::WriteThrough);
    assert!(write_in_pieces(&mut cache, 100, 100, 2_000_000));
    assert!(cache.epochs().unwrap().unfinished() > 0, "the epoch ended after the last piece");
}

/// Copies of used blocks must not take the room of the pieces to come.
#[test]
fn a_change_in_pieces_that_began_has_room_for_all_of_them() {
    let mut waited = 0;
    for used in (200..300).step_by(10) {
        for blocks in 70..130 {
            let mut cache = empty(Config { sequential_blocks: 0, ..in_order() });
            (0..used).for_each(|block| ask(&mut cache, Kind::Read, 1000 + block, false));
            (0..used).filter(|block| block % 12 < 4).for_each(|block| ask(&mut cache, Kind::Read, 1000 + block, false));
            ask(&mut cache, Kind::Write, 0, true);
            let mut at = 100;
            while write_in_pieces(&mut cache, at, blocks, 1) {
                at += blocks;
            }
            waited += u64::from(at > 100);
        }
    }
    assert!(waited > 0, "changes were written until one had to wait");
}
