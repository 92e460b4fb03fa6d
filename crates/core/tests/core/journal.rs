//! Groups of epochs by way of the journal: the order of the steps, and a journal that fails.

use std::collections::{HashMap, HashSet};

use flashwise_core::cache::{Appending, Cache, Config, Event, Kind, LogCache, Request, WriteBackOrder};
use flashwise_core::format::Geometry;
use flashwise_core::journal::{Head, Journal};
use flashwise_core::layout::containers::{Log, Segment};
use flashwise_core::step::{JournalPart, Step};

fn cache() -> LogCache {
    let geometry = Geometry { units: 24, unit_pages: 16 };
    let config = Config {
        order: WriteBackOrder::Journal,
        journal: Some(Journal { pages: 64, last: Head::default() }),
        write_buffer_blocks: 0,
        ..Config::new(geometry, "lru".parse().unwrap())
    };
    LogCache::new(config, Log::new(geometry), HashMap::new())
}

fn append(cache: &mut LogCache, segment: &Segment) {
    let with_data = segment.records.iter().filter(|record| record.kind.has_data()).count();
    let (checksums, mut records) = (vec![Some(0); with_data], Vec::new());
    let appending = Appending { segment, checksums: &checksums, doubtful: false, records: &mut records };
    cache.on(Event::Appending(appending), &mut Vec::new());
}

/// Executes steps and all that follow. The writes to the journal fail while `failures` are left, and the reads of a
/// block always. Returns the writes and flushes of journal and backend, in order. The steps of write-back go to
/// `waiting`, if that is given.
fn perform(
    cache: &mut LogCache,
    mut steps: Vec<Step>,
    failures: &mut u32,
    unreadable: Option<u32>,
    mut waiting: Option<&mut Vec<Step>>,
) -> Vec<String> {
    let (mut failed, mut bad, mut done) = (HashSet::new(), HashSet::new(), Vec::new());
    let of_write_back = |step: &mut Step| match step {
        Step::WriteBackend { batch, .. } | Step::FlushBackend { batch } => batch.is_some(),
        step => matches!(step, Step::ReadFlash { .. } | Step::Destaged { .. }),
    };
    while !steps.is_empty() {
        if let Some(waiting) = &mut waiting {
            waiting.extend(steps.extract_if(.., of_write_back));
        }
        for step in std::mem::take(&mut steps) {
            let (mut is_failed, mut missing) = (false, false);
            match &step {
                Step::ReadFlash { block, frame, .. } => {
                    is_failed = unreadable == Some(*block);
                    bad.remove(&frame.number);
                    bad.extend(is_failed.then_some(frame.number));
                }
                Step::WriteJournal(write) => {
                    if let JournalPart::Index { head, .. } | JournalPart::Mark(head) = &write.part {
                        assert!(head.end <= cache.log().flushed(), "{head:?}");
                    }
                    missing = write.frames().iter().any(|frame| bad.contains(&frame.number));
                    is_failed = missing || *failures > 0;
                    *failures = failures.saturating_sub(1);
                    failed.extend(is_failed.then_some(write.batch));
                    done.push(match &write.part {
                        JournalPart::Blocks { page, frames } => format!("{} blocks to page {page}", frames.len()),
                        JournalPart::Index { head, blocks } => {
                            format!("index of {}, {} blocks", head.number, blocks.len())
                        }
                        JournalPart::Mark(head) => format!("mark {}", head.number),
                    });
                }
                Step::FlushJournal { batch } => {
                    is_failed = failed.contains(batch);
                    done.push("flush journal".to_owned());
                }
                Step::Destaged { batch } => is_failed = failed.contains(batch),
                Step::WriteBackend { block, batch: Some(_), .. } => done.push(format!("write {block}")),
                Step::FlushBackend { batch: Some(_) } => done.push("flush backend".to_owned()),
                Step::Append(segment) => append(cache, segment),
                _ => {}
            }
            let event = match is_failed {
                true => Event::Failed { step: &step, missing },
                false => Event::Done(&step),
            };
            cache.on(event, &mut Vec::new());
        }
        cache.on(Event::GoOn, &mut steps);
    }
    cache.check();
    done
}

/// Writes block 1 and these blocks, with a flush after each, while the backend does not answer. Returns the steps of
/// the write-back of block 1, which the others wait for.
fn write(cache: &mut LogCache, blocks: &[u64]) -> Vec<Step> {
    let mut waiting = Vec::new();
    for block in [1].iter().chain(blocks) {
        let mut steps = Vec::new();
        for (kind, length) in [(Kind::Write, 4096), (Kind::Flush, 0)] {
            let request = Request::whole(kind, block * 4096, length, false);
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        perform(cache, steps, &mut 0, None, Some(&mut waiting));
    }
    waiting
}

fn write_back(cache: &mut LogCache, mut steps: Vec<Step>, now_us: u64, failures: &mut u32) -> Vec<String> {
    cache.on(Event::DestageAll { now_us }, &mut steps);
    perform(cache, steps, failures, None, None)
}

/// A start finds less in the log than was written there. If the journal named a place beyond that, epochs of the next
/// run would count as done.
#[test]
fn a_group_of_a_flash_that_failed_ends_at_what_is_durable_there() {
    let mut cache = cache();
    let waiting = write(&mut cache, &[7, 8]);
    let mut steps = Vec::new();
    for (kind, length) in [(Kind::Write, 4096), (Kind::Flush, 0)] {
        let request = Request::whole(kind, 9 * 4096, length, false);
        cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
    }
    for step in &steps {
        if let Step::Append(segment) = step {
            append(&mut cache, segment);
        }
        let event = match step {
            Step::FlushFlash { .. } => Event::Failed { step, missing: false },
            step => Event::Done(step),
        };
        cache.on(event, &mut Vec::new());
    }
    assert!(cache.has_flash_failed() && cache.log().end() > cache.log().flushed());
    let done = write_back(&mut cache, waiting, 2, &mut 0);
    assert_eq!(done[..2], BLOCK_1);
    assert_eq!(done[2..], group(1));
}

/// The steps of the epoch of block 1. A single epoch needs no journal.
const BLOCK_1: [&str; 2] = ["write 1", "flush backend"];

/// The steps of a group of blocks 7 and 8.
fn group(number: u64) -> Vec<String> {
    let (index, mark) = (format!("index of {number}, 2 blocks"), format!("mark {number}"));
    let steps = ["2 blocks to page 3", "flush journal", "write 7", "write 8", "flush backend"].map(str::to_owned);
    [index].into_iter().chain(steps).chain([mark, "flush journal".to_owned()]).collect()
}

#[test]
fn a_group_has_the_newest_versions_and_goes_to_the_journal_first() {
    let mut cache = cache();
    let waiting = write(&mut cache, &[7, 8, 7]);
    let done = write_back(&mut cache, waiting, 2, &mut 0);
    assert_eq!(done[..2], BLOCK_1);
    assert_eq!(done[2..], group(1));
    assert_eq!((cache.blocks_to_write_back(), cache.epochs().unwrap().unfinished()), (0, 0));
}

/// The group that failed could be whole. It gets a mark before anything else is written.
#[test]
fn while_the_journal_fails_the_backend_gets_nothing_and_then_all() {
    let mut cache = cache();
    let waiting = write(&mut cache, &[7, 8, 7]);
    let mut failures = 4;
    let done = write_back(&mut cache, waiting, 2, &mut failures);
    assert_eq!(done[..2], BLOCK_1);
    assert!(!done[2..].iter().any(|step| step.starts_with("write")), "{done:?}");
    assert_eq!(cache.epochs().unwrap().unfinished(), 3);
    let mut done = Vec::new();
    for second in 1..20 {
        assert!(cache.blocks_to_write_back() > 0 || failures == 0);
        done.extend(write_back(&mut cache, Vec::new(), second * 2_000_000, &mut failures));
    }
    let end = done.len() - 10;
    assert_eq!(done[end..end + 2], ["mark 1", "flush journal"]);
    assert_eq!(done[end + 2..], group(2));
    assert_eq!((cache.blocks_to_write_back(), cache.epochs().unwrap().unfinished()), (0, 0));
}

/// A client's change waits for the group, so a version that cannot be read is lost. The group is given up, and the next
/// one is without it.
#[test]
fn a_version_that_is_lost_leaves_its_group() {
    let mut cache = cache();
    let mut waiting = write(&mut cache, &[7, 8, 7]);
    // A trim of this length does not go through the log.
    let trim = Request::whole(Kind::Trim, 0, 100 * 4096, false);
    assert!(cache.waits(&trim));
    let mut tick = |now_us: u64| {
        let mut steps = std::mem::take(&mut waiting);
        cache.on(Event::Tick { now_us }, &mut steps);
        perform(&mut cache, steps, &mut 0, Some(8), None)
    };
    let mut done = tick(2_000_000);
    assert_eq!(done.drain(..2).collect::<Vec<_>>(), BLOCK_1);
    done.extend((3..9).flat_map(|second| tick(second * 1_000_000)));
    let after = done.iter().position(|step| step == "mark 1").unwrap_or_else(|| panic!("{done:?}"));
    assert!(!done[..after].iter().any(|step| step.starts_with("write")), "{done:?}");
    let steps = ["flush journal", "index of 2, 1 blocks", "1 blocks to page 3", "flush journal", "write 7"];
    assert_eq!(done[after + 1..after + 6], steps);
    assert_eq!((cache.lost_blocks(), cache.epochs().unwrap().unfinished()), (vec![8], 0));
    assert!(cache.epochs().unwrap().broken().is_some() && !cache.waits(&trim));
}
