//! Plans by hand.

use crate::cache::Kind;
use crate::wlfc::{Config, Log, Oob, Request, Scan, State, Step, Wlfc, recover};

/// 8 cache buckets of 4 pages of 2 blocks, 3 write buckets and 3 read copies.
fn config() -> Config {
    Config { volume_blocks: 64, ..Config::new(8, 8, 2, 0.5).unwrap() }
}

fn plan(wlfc: &mut Wlfc, kind: Kind, block: u64, blocks: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let request = Request { kind, offset: block * 4096, length: blocks * 4096, durable: false };
    wlfc.plan(&request, &mut steps);
    wlfc.check();
    steps
}

fn oob(state: State, backend: u32, epoch: u64, at: u32, blocks: u32) -> Oob {
    Oob { state, backend, epoch, log: Log::Data, at, blocks }
}

/// Backend bucket 1 has blocks 8 to 15. A write of block 9 is a log in cache bucket 0. A read of block 10 reads the whole backend bucket,
/// lays the log over it and keeps it as a dirty copy in cache bucket 1. Block 9 again is a log, and the next read replaces the copy by a
/// newer one, cache bucket 2: of the logs only the second is read.
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
    // The copy has all logs.
    let read = plan(&mut wlfc, Kind::Read, 10, 2);
    let hit = Step::ReadFlash { bucket: 2, slot: 2, block: 10, blocks: 2 };
    assert_eq!(read, [hit, Step::Send { offset, length }, Step::Reply]);
}

/// Four logs of a page fill a bucket. The fifth is answered from a new one, and then the old is evicted: there is no copy, so that the
/// backend is read, and written with the four blocks. It is reset when that is durable.
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
        Step::WriteBackend { block: 8, blocks: 8 },
        Step::FlushBackend,
        Step::Reset { bucket: 0 },
    ];
    assert_eq!(steps[1..], expected);
    let figures = wlfc.figures();
    assert_eq!((figures.log_blocks, figures.padding_blocks, figures.flash_written_blocks()), (5, 5, 10));
    assert_eq!((figures.backend_accesses(), figures.resets, figures.write_hits), (2, 1, 4));
}

/// The counterexample to recovery by the highest epoch: logs in bucket 0 with epoch 1, a copy in bucket 1 with epoch 2, and one more log
/// with epoch 1, which the copy does not have.
#[test]
fn logs_count_beside_a_copy_that_is_newer_than_their_bucket() {
    let mut scans = vec![Scan::default(); 8];
    scans[0].pages = [oob(State::Write, 1, 1, 1, 1), oob(State::Write, 1, 1, 2, 1)].to_vec();
    scans[1].pages = (0..4).map(|page| oob(State::Dirty, 1, 2, 0, 8).of_page(page, 2)).collect();
    let (mut wlfc, steps) = recover(config(), &scans).unwrap();
    wlfc.check();
    assert_eq!(steps, []);
    let read = plan(&mut wlfc, Kind::Read, 10, 1);
    assert!(read.contains(&Step::ReadFlash { bucket: 0, slot: 2, block: 10, blocks: 1 }), "{read:?}");
}

/// Logs of a bucket that was torn count as far as they are whole, and nothing is appended to it.
#[test]
fn a_torn_bucket_is_not_appended_to() {
    let mut scans = vec![Scan::default(); 8];
    scans[0] = Scan { pages: vec![oob(State::Write, 1, 1, 1, 1)], torn: true };
    scans[3] = Scan { pages: vec![oob(State::Read, 2, 2, 0, 2)], torn: false };
    scans[4].torn = true;
    let (mut wlfc, steps) = recover(config(), &scans).unwrap();
    wlfc.check();
    assert_eq!(steps, []);
    let steps = plan(&mut wlfc, Kind::Write, 9, 1);
    assert!(matches!(steps[1], Step::Append { bucket: 1, page: 0, .. }), "{steps:?}");
    let resets: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Reset { .. })).collect();
    assert_eq!(resets, [&Step::Reset { bucket: 4 }, &Step::Reset { bucket: 3 }, &Step::Reset { bucket: 0 }]);
}

/// A write of more than a bucket leaves a tombstone where the cache has something, and none where it has not.
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
        Step::WriteBackend { block: 12, blocks: 4 },
        receive(16, 8),
        Step::WriteBackend { block: 16, blocks: 8 },
        Step::Reply,
    ];
    assert_eq!(steps, expected);
    let read = plan(&mut wlfc, Kind::Read, 13, 1);
    assert_eq!(read[0], Step::ReadBackend { block: 8, blocks: 8 });
}

#[test]
fn what_cannot_work_is_refused() {
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
