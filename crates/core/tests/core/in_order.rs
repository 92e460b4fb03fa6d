//! Write-back in the order of epochs: the log has room for changes in memory while it is not done.

use std::collections::HashMap;

use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Request, WriteBackOrder};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::Log;
use flashwise_core::step::Step;

const BLOCK: u64 = 4096;

/// Performs a request, except that blocks written back are not on the backend so far.
fn ask(cache: &mut LogCache, kind: Kind, block: u64, durable: bool) {
    let length = if kind == Kind::Flush { 0 } else { BLOCK };
    let request = Request::whole(kind, block * BLOCK, length, durable);
    assert!(!cache.waits(&request), "{kind:?} of block {block} has room");
    let mut steps = Vec::new();
    cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
    let is_of_batch = |step: &Step| {
        matches!(
            step,
            Step::Destaged { .. } | Step::WriteBackend { batch: Some(_), .. } | Step::FlushBackend { batch: Some(_) }
        )
    };
    for step in steps.iter().filter(|step| !is_of_batch(step)) {
        assert!(!matches!(step, Step::Fail), "{kind:?} of block {block} succeeds");
        cache.on(Event::Done(step), &mut Vec::new());
    }
    cache.check();
}

/// Block 0 is of an epoch that is not written back yet, so its unit stays. Reads must not take the room of the 90
/// blocks in the write buffer.
#[test]
fn admitted_reads_leave_room_for_changes_in_memory() {
    let geometry = Geometry { units: 24, unit_pages: 16 };
    let config = Config {
        order: WriteBackOrder::Barriers,
        write_buffer_blocks: 100,
        sequential_blocks: 0,
        ..Config::new(geometry, "lru".parse().unwrap())
    };
    let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
    ask(&mut cache, Kind::Write, 0, true);
    (0..90).for_each(|number| ask(&mut cache, Kind::Write, 100 + 2 * number, false));
    (0..1000).for_each(|number| ask(&mut cache, Kind::Read, 1000 + 2 * number, false));
    assert!(cache.figures().refused_read_blocks > 0, "the log is full");
    ask(&mut cache, Kind::Flush, 0, false);
    assert!(cache.epochs().unwrap().unfinished() > 0);
}
