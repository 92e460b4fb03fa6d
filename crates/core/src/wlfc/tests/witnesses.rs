//! Detection of buckets with other contents than they last had.

use crate::format::Witness;
use crate::wlfc::bucket::{Log, Oob, State};
use crate::wlfc::durable::Durable;
use crate::wlfc::header::Header;
use crate::wlfc::scan::{Program, Walk, confront};

fn walk(run: u64, sequence: u64, epoch: u64, before: Option<Witness>) -> Option<Walk> {
    let oob = Oob { state: State::Write, backend: 7, epoch, log: Log::Zeroes, at: 0, blocks: 1 };
    let (page, durable_end, previous, part) = (0, 0, 0, 0);
    let header = Header { cache: 1, oob, run, sequence, durable: sequence, page, durable_end, previous, part, before };
    let mut walk = Walk::default();
    walk.programs.push(Program { header, crc: 0, absent: Vec::new() });
    Some(walk)
}

/// Returns which buckets are damaged, and which of those belong to an unknown backend bucket.
fn confronted(mut walks: Vec<Option<Walk>>) -> Vec<(bool, bool)> {
    let mut durable = Durable::default();
    walks.iter().flatten().for_each(|walk| walk.tell(&mut durable));
    confront(&mut walks, &durable, &[]);
    let is_damaged = |walk: &Walk| walk.damaged_first || walk.damaged.is_some();
    walks.iter().flatten().map(|walk| (is_damaged(walk), walk.backend().is_none())).collect()
}

#[test]
fn a_bucket_with_old_contents_is_damaged_and_a_reused_one_is_not() {
    // Run 3 programmed bucket 0 first, in epoch 9, and then bucket 1.
    let witness = Some(Witness { bucket: 0, epoch: 9, page: 0 });
    let found = |run, epoch| confronted(vec![walk(run, 0, epoch, None), walk(3, 1, 10, witness)])[0];
    assert_eq!(found(3, 9), (false, false), "it is there");
    for (run, epoch) in [(2, 5), (1, 8), (3, 8)] {
        assert_eq!(found(run, epoch), (true, true), "run {run}, epoch {epoch}");
    }
    for (run, epoch) in [(3, 11), (4, 9), (4, 11), (5, 2)] {
        assert_eq!(found(run, epoch), (false, false), "run {run}, epoch {epoch}");
    }
}

#[test]
fn blocks_in_two_buckets_are_uncertain() {
    let walks = vec![walk(3, 0, 9, None), walk(3, 1, 10, None), walk(3, 0, 9, None), walk(4, 0, 9, None)];
    assert_eq!(confronted(walks), [(true, true), (false, false), (true, true), (false, false)]);
}
