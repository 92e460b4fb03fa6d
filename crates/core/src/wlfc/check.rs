//! Invariants between requests.

use std::collections::HashMap;

use super::bucket::State;
use super::{NONE, Wlfc};

/// Checks a cache.
pub(super) fn check(wlfc: &Wlfc) {
    let config = &wlfc.config;
    wlfc.queues.check(config.buckets);
    wlfc.ram.check();
    assert!(wlfc.crowded || wlfc.has_bounds(), "no queue has more than it may, and buckets are to spare");
    let mut counts: HashMap<u32, u32> = HashMap::new();
    let used = wlfc.queues.write.buckets().chain(wlfc.queues.read_copies()).chain(wlfc.queues.gc_buckets());
    for bucket in used {
        *counts.entry(wlfc.contents.buckets[bucket as usize].backend).or_default() += 1;
    }
    for (backend, copies) in &wlfc.contents.copies {
        assert_eq!(counts.get(backend), Some(&copies.count), "cache buckets of backend bucket {backend}");
    }
    assert_eq!(counts.len(), wlfc.contents.copies.len(), "what has cache buckets is known");
    check_queued(wlfc);
    check_gc(wlfc);
}

fn check_queued(wlfc: &Wlfc) {
    for bucket in wlfc.queues.write.buckets() {
        let queued = &wlfc.contents.buckets[bucket as usize];
        assert!(queued.is_write(), "buckets in the write queue hold logs");
        assert_eq!(wlfc.contents.of(queued.backend).write, bucket, "the logs of a backend bucket are in one bucket");
        assert!(queued.next_page <= wlfc.config.bucket_pages(), "no more is written than fits");
        for pair in queued.entries.windows(2) {
            assert!(pair[0].page < pair[1].page, "logs are in the order in which they came");
        }
        assert!(queued.entries.last().is_none_or(|entry| entry.page < queued.next_page), "logs were written");
        for block in 0..wlfc.config.bucket_blocks {
            let has = queued.entries.iter().any(|entry| (entry.at..entry.at + entry.blocks).contains(&block));
            assert_eq!(queued.touches(block, 1), has, "which blocks have logs is known");
        }
    }
    for bucket in wlfc.queues.read_copies() {
        let queued = &wlfc.contents.buckets[bucket as usize];
        assert!(!queued.is_write(), "buckets in the read queue are copies");
        let copies = wlfc.contents.of(queued.backend);
        assert_eq!(copies.read, bucket, "a backend bucket has one copy");
        let logs = if copies.write == NONE { 0 } else { wlfc.contents.buckets[copies.write as usize].entries.len() };
        assert!(queued.fresh as usize <= logs, "a copy has logs that there are");
        let data = copies.write != NONE
            && wlfc.contents.buckets[copies.write as usize].entries[..queued.fresh as usize]
                .iter()
                .any(|entry| entry.log != super::Log::Passed);
        assert!(!data || queued.state == State::Dirty, "a copy with logs is dirty");
    }
}

/// For each backend bucket, older logs are erased before newer ones, and older copies before newer ones.
fn check_gc(wlfc: &Wlfc) {
    let mut newest: HashMap<(u32, bool), u64> = HashMap::new();
    let queued = wlfc.queues.write.buckets().chain(wlfc.queues.read_copies());
    let live: Vec<u32> = queued.collect();
    for bucket in wlfc.queues.gc_buckets().chain(live) {
        let bucket = &wlfc.contents.buckets[bucket as usize];
        if bucket.backend == NONE {
            continue;
        }
        let before = newest.insert((bucket.backend, bucket.is_write()), bucket.epoch);
        assert!(before < Some(bucket.epoch), "of backend bucket {} the older is erased first", bucket.backend);
    }
}
