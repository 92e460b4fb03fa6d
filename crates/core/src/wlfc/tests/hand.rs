//! Hand-worked plans.

use crate::cache::{Cache, Event, Kind, Request};
use crate::wlfc::{Config, Log, Oob, Scan, State, Step, Wlfc, recover};

/// 8 cache buckets of 4 pages of 2 blocks, 3 write buckets and 3 read copies.
fn config() -> Config {
    Config { volume_blocks: 64, ..Config::new(8, 8, 2, 0.5).unwrap() }
}

fn plan(wlfc: &mut Wlfc, kind: Kind, block: u64, blocks: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let request = Request::whole(kind, block * 4096, blocks * 4096, false);
    wlfc.on(Event::Request { request: &request, now_us: 0 }, &mut steps);
    wlfc.check();
    steps
}

fn oob(state: State, backend: u32, epoch: u64, at: u32, blocks: u32) -> Oob {
    Oob { state, backend, epoch, log: Log::Data, at, blocks }
}

/// Backend bucket 1 has blocks 8 to 15. A write of block 9 is a log in cache bucket 0. A read of block 10 reads the
/// whole backend bucket, overlays the log and keeps the result as a dirty copy in cache bucket 1. Block 9 again is a
/// log, and the next read replaces the copy by a newer one, cache bucket 2. It only reads the second log.
#[test]
fn a_read_merges_the_copy_and_the_logs() {
    let mut wlfc = Wlfc::new(config()).unwrap();
    let (offset, length) = (9 * 4096, 4096);
    let written = plan(&mut wlfc, Kind::Write, 9, 1);
    let log = |page| Step::Append { bucket: 0, page, pages: 1, oob: oob(State::Write, 1, 1, 1, 1) };
    assert_eq!(written, [Step::Receive { offset, length }, log(0), Step::Reply]);
    let (offset, length) = (10 * 4096, 8192);
    let read = plan(&mut wlfc, Kind::Read, 10, 2);
    let copy = |bucket, epoch| Step::Append { bucket, page: 0, pages: 4, oob: oob(State::Dirty, 1, epoch, 0, 8) };
    let expected = [
        Step::ReadBackend { block: 8, blocks: 8 },
        Step::ReadFlash { bucket: 0, slot: 0, block: 9, blocks: 1 },
        Step::Send { offset, length },
        Step::Reply,
        copy(1, 2),
    ];
    assert_eq!(read, expected);
    assert_eq!(plan(&mut wlfc, Kind::Write, 9, 1)[1], log(1));
    let read = plan(&mut wlfc, Kind::Read, 10, 2);
    let expected = [
        Step::ReadFlash { bucket: 1, slot: 0, block: 8, blocks: 1 },
        Step::ReadFlash { bucket: 1, slot: 2, block: 10, blocks: 6 },
        Step::ReadFlash { bucket: 0, slot: 2, block: 9, blocks: 1 },
        Step::Send { offset, length },
        Step::Reply,
        copy(2, 3),
        Step::FlushFlash,
        Step::Reset { bucket: 1 },
    ];
    assert_eq!(read, expected);
    // The copy includes all logs.
    let read = plan(&mut wlfc, Kind::Read, 10, 2);
    let hit = Step::ReadFlash { bucket: 2, slot: 2, block: 10, blocks: 2 };
    assert_eq!(read, [hit, Step::Send { offset, length }, Step::Reply]);
}

/// Four one-page logs fill a bucket. The fifth goes to a new one; after its reply the old bucket is evicted. Without a
/// copy, the backend is read, and written with the four blocks. The bucket is reset once that is durable. None of the
/// five blocks was cached before.
#[test]
fn a_full_bucket_goes_to_the_backend() {
    let mut wlfc = Wlfc::new(config()).unwrap();
    (8..12).for_each(|block| assert_eq!(plan(&mut wlfc, Kind::Write, block, 1).len(), 3));
    let steps = plan(&mut wlfc, Kind::Write, 12, 1);
    let newer = Step::Append { bucket: 1, page: 0, pages: 1, oob: oob(State::Write, 1, 2, 4, 1) };
    let logs = |slot: u32| Step::ReadFlash { bucket: 0, slot: 2 * slot, block: 8 + u64::from(slot), blocks: 1 };
    let expected = [
        newer,
        Step::Reply,
        Step::ReadBackend { block: 12, blocks: 4 },
        logs(3),
        logs(2),
        logs(1),
        logs(0),
        Step::FlushFlash,
        Step::WriteBackend { block: 8, blocks: 8, gives_up: true },
        Step::FlushBackend,
        Step::Reset { bucket: 0 },
    ];
    assert_eq!(steps[1..], expected);
    let figures = wlfc.figures();
    assert_eq!((figures.log_blocks, figures.padding_blocks, figures.flash_written_blocks()), (5, 5, 10));
    assert_eq!((figures.backend_accesses(), figures.resets, figures.write_hits), (2, 1, 0));
}

/// Returns the scan of a bucket with these pages.
fn scan(pages: Vec<Oob>, torn: bool) -> Scan {
    Scan { end: pages.len() as u32, found: (0..).zip(pages).collect(), torn }
}

/// The counterexample to recovery by the highest epoch: logs in bucket 0 with epoch 1, and a copy in bucket 1 with
/// epoch 2. One more log with epoch 1 is missing in the copy.
#[test]
fn logs_count_beside_a_copy_that_is_newer_than_their_bucket() {
    let mut scans = vec![Scan::default(); 8];
    scans[0] = scan([oob(State::Write, 1, 1, 1, 1), oob(State::Write, 1, 1, 2, 1)].to_vec(), false);
    scans[1] = scan((0..4).map(|page| oob(State::Dirty, 1, 2, 0, 8).of_page(page, 2)).collect(), false);
    let (mut wlfc, steps) = recover(config(), &scans).unwrap();
    wlfc.check();
    assert_eq!(steps, []);
    let read = plan(&mut wlfc, Kind::Read, 10, 1);
    assert!(read.contains(&Step::ReadFlash { bucket: 0, slot: 2, block: 10, blocks: 1 }), "{read:?}");
}

/// Whole logs of a torn bucket are valid, and nothing is appended to it.
#[test]
fn a_torn_bucket_is_not_appended_to() {
    let mut scans = vec![Scan::default(); 8];
    scans[0] = scan(vec![oob(State::Write, 1, 1, 1, 1)], true);
    scans[3] = scan(vec![oob(State::Read, 2, 2, 0, 2)], false);
    scans[4].torn = true;
    let (mut wlfc, steps) = recover(config(), &scans).unwrap();
    wlfc.check();
    assert_eq!(steps, []);
    let steps = plan(&mut wlfc, Kind::Write, 9, 1);
    assert!(matches!(steps[1], Step::Append { bucket: 1, page: 0, .. }), "{steps:?}");
    let resets: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Reset { .. })).collect();
    assert_eq!(resets, [&Step::Reset { bucket: 4 }, &Step::Reset { bucket: 3 }, &Step::Reset { bucket: 0 }]);
}

/// A write of more than a bucket leaves a tombstone if the cache has data there, and otherwise none.
#[test]
fn a_large_write_leaves_a_tombstone_where_the_cache_has_something() {
    let mut wlfc = Wlfc::new(config()).unwrap();
    plan(&mut wlfc, Kind::Write, 9, 1);
    let steps = plan(&mut wlfc, Kind::Write, 12, 12);
    let tombstone = Oob { log: Log::Passed, ..oob(State::Write, 1, 1, 4, 4) };
    let receive = |block: u64, blocks: u32| Step::Receive { offset: block * 4096, length: blocks * 4096 };
    let expected = [
        Step::Append { bucket: 0, page: 1, pages: 1, oob: tombstone },
        Step::FlushFlash,
        receive(12, 4),
        Step::WriteBackend { block: 12, blocks: 4, gives_up: false },
        receive(16, 8),
        Step::WriteBackend { block: 16, blocks: 8, gives_up: false },
        Step::Reply,
    ];
    assert_eq!(steps, expected);
    let read = plan(&mut wlfc, Kind::Read, 13, 1);
    assert_eq!(read[0], Step::ReadBackend { block: 8, blocks: 8 });
}

#[test]
fn impossible_settings_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        Wlfc::new(config).unwrap_err().to_string()
    };
    assert_eq!(
        refused(|config| config.write_queue = 4),
        "write-queue: 4 write buckets and 3 read copies, expected at most 6 of 8 in all"
    );
    assert_eq!(
        refused(|config| config.bucket_blocks = 7),
        "bucket: found 7 blocks, expected a multiple of the 2 blocks of a flash page"
    );
    assert_eq!(refused(|config| config.halving = 0), "halving: found 0, expected at least 1");
    let small = Config::new(3, 8, 2, 0.5).unwrap_err().to_string();
    assert_eq!(small, "buckets: found 3, expected at least 4: one of each queue and 2 to spare");
}

/// Blocks 9 and 40 are newer in the cache. Block 9 is in logs over a clean copy, block 40 in logs over the backend.
#[test]
fn everything_newer_than_the_backend_is_written_back_when_asked() {
    let mut wlfc = Wlfc::new(config()).unwrap();
    plan(&mut wlfc, Kind::Read, 8, 1);
    plan(&mut wlfc, Kind::Write, 9, 1);
    plan(&mut wlfc, Kind::Write, 40, 1);
    assert_eq!(wlfc.blocks_to_write_back(), 2);
    let newer: Vec<u32> = (0..64).filter(|&block| wlfc.is_newer_than_backend(block)).collect();
    assert_eq!(newer, [9, 40]);
    let mut steps = Vec::new();
    wlfc.on(Event::DestageAll { now_us: 0 }, &mut steps);
    wlfc.check();
    let expected = [
        Step::ReadFlash { bucket: 0, slot: 0, block: 8, blocks: 1 },
        Step::ReadFlash { bucket: 0, slot: 2, block: 10, blocks: 6 },
        Step::ReadFlash { bucket: 1, slot: 0, block: 9, blocks: 1 },
        Step::FlushFlash,
        Step::WriteBackend { block: 8, blocks: 8, gives_up: true },
        Step::ReadBackend { block: 41, blocks: 7 },
        Step::ReadFlash { bucket: 2, slot: 0, block: 40, blocks: 1 },
        Step::WriteBackend { block: 40, blocks: 8, gives_up: true },
        Step::FlushBackend,
    ];
    assert_eq!(steps, expected);
    assert_eq!(wlfc.blocks_to_write_back(), 0);
    steps.clear();
    wlfc.on(Event::DestageAll { now_us: 0 }, &mut steps);
    assert_eq!(steps, [], "nothing is left");
}

/// The frame of a failed read is not kept in RAM; otherwise the read does no harm.
#[test]
fn a_failed_read_is_forgotten() {
    let mut wlfc = Wlfc::new(Config { ram_blocks: 2, ..config() }).unwrap();
    let read = plan(&mut wlfc, Kind::Read, 10, 1);
    let kept = read.iter().find(|step| matches!(step, Step::KeepInRam { .. })).expect("it is kept");
    wlfc.on(Event::Failed { step: kept, missing: true }, &mut Vec::new());
    wlfc.check();
    let again = plan(&mut wlfc, Kind::Read, 10, 1);
    assert!(!again.iter().any(|step| matches!(step, Step::ReadRam { .. })), "{again:?}");
}

/// Backend bucket 1 cannot be written. The four logs of its full write bucket go to a dirty copy, and on a retry to the
/// backend. Nothing is evicted for that. Afterwards the bucket is like any other.
#[test]
fn blocks_rejected_by_the_backend_stay_dirty_and_are_retried() {
    let mut wlfc = Wlfc::new(config()).unwrap();
    (8..12).for_each(|block| drop(plan(&mut wlfc, Kind::Write, block, 1)));
    assert_eq!(wlfc.next_tick_us(5), None);
    let failed = Step::WriteBackend { block: 8, blocks: 8, gives_up: true };
    wlfc.on(Event::Failed { step: &failed, missing: false }, &mut Vec::new());
    assert_eq!((wlfc.failing().iter().collect::<Vec<_>>(), wlfc.next_tick_us(5)), (vec![&1], Some(5)));
    let steps = plan(&mut wlfc, Kind::Write, 12, 1);
    let copy = Step::Append { bucket: 2, page: 0, pages: 4, oob: oob(State::Dirty, 1, 3, 0, 8) };
    assert!(steps.contains(&copy) && !steps.iter().any(|step| matches!(step, Step::WriteBackend { .. })), "{steps:?}");
    assert_eq!(wlfc.blocks_to_write_back(), 8);
    // A write past the cache would go to the backend.
    let large = plan(&mut wlfc, Kind::Write, 8, 16);
    let written = |at| large.iter().any(|step| matches!(step, Step::WriteBackend { block, .. } if *block == at));
    assert!(!written(8) && written(16), "{large:?}");
    let mut steps = Vec::new();
    wlfc.on(Event::Tick { now_us: 5 }, &mut steps);
    let trial = Step::WriteBackend { block: 8, blocks: 8, gives_up: false };
    assert_eq!(steps.last(), Some(&trial));
    wlfc.on(Event::Tick { now_us: 5 }, &mut steps);
    assert_eq!(steps.last(), Some(&trial), "once in a tick");
    wlfc.on(Event::Done(&trial), &mut Vec::new());
    wlfc.check();
    assert_eq!((wlfc.failing().len(), wlfc.next_tick_us(6), wlfc.blocks_to_write_back()), (0, None, 8));
}

/// The backend is flushed only if clients wrote to it. A failed flush is reported to the next one, unless a client was
/// informed, and is repeated until it succeeds.
#[test]
fn a_failed_flush_of_the_backend_is_reported_once_and_retried() {
    for reported in [false, true] {
        let mut wlfc = Wlfc::new(Config { large_write_bytes: 4096, ..config() }).unwrap();
        assert_eq!(plan(&mut wlfc, Kind::Flush, 0, 0), [Step::Reply]);
        plan(&mut wlfc, Kind::Write, 8, 8);
        assert_eq!(plan(&mut wlfc, Kind::Flush, 0, 0), [Step::FlushBackend, Step::Reply]);
        wlfc.on(Event::Failed { step: &Step::FlushBackend, missing: reported }, &mut Vec::new());
        if !reported {
            assert_eq!(plan(&mut wlfc, Kind::Flush, 0, 0), [Step::Fail, Step::Reply]);
        }
        assert_eq!(plan(&mut wlfc, Kind::Flush, 0, 0), [Step::FlushBackend, Step::Reply]);
        wlfc.on(Event::Done(&Step::FlushBackend), &mut Vec::new());
        assert_eq!(plan(&mut wlfc, Kind::Flush, 0, 0), [Step::Reply]);
    }
}
