//! The decisions of offline algorithms, held to examples of their paper, to exhaustive search and to slow versions
//! written another way.

use std::collections::{BTreeMap, BTreeSet};

use crate::brute_force::BruteForce;
use crate::workloads::{generated, letters};
use flashwise_core::access::{NEVER, Op};
use flashwise_sim::offline::{Decision, FlashStream, Insertion, NOT_EVICTING, Plan, Threshold, next_reads};
use flashwise_trace::Trace;
use flashwise_trace::progress::Silent;

const M_PLUS: Threshold = Threshold { hits: 1, leftover: 0 };

fn stream(trace: &Trace, ram_blocks: usize) -> FlashStream {
    FlashStream::behind_min(trace, &next_reads(trace, &Silent).unwrap(), ram_blocks, 0, &Silent)
}

/// Plans of M and M+, checked.
fn plans(stream: &FlashStream, capacity: usize) -> (Plan, Plan) {
    let m = Plan::min(stream, capacity, &Silent);
    m.check(stream, capacity);
    let m_plus = m.rerun(stream, capacity, M_PLUS, &Silent);
    m_plus.check(stream, capacity);
    (m, m_plus)
}

/// One letter for each decision.
fn draw(plan: &Plan) -> String {
    let letter = |decision: &Decision| match decision {
        Decision::Bypass => '-',
        Decision::Hit => 'h',
        Decision::LastHit => 'l',
        Decision::Insert => 'i',
    };
    plan.decisions().iter().map(letter).collect()
}

fn small_traces() -> Vec<Trace> {
    let patterns = ["zipf:skew=0.8", "zipf:skew=0.3", "loop", "phases:skew=1,requests=40"];
    let generated =
        |seed: usize| generated(patterns[seed % 4], 12 + seed as u64, 300, [1.0, 0.7, 0.4][seed % 3], seed as u64);
    (0..40).map(generated).collect()
}

/// Section 2.1: "A,B,C, A,B,D, A,B,C, A,B,D ...": 1/3 where every miss must be inserted, 2/3 where it need not.
#[test]
fn two_places_have_a_and_b_of_abcabd() {
    let trace = letters(&"ABCABD".repeat(50));
    let stream = stream(&trace, 0);
    let (m, m_plus) = plans(&stream, 2);
    // All but the first A and B, and never C or D.
    assert_eq!((m.hits(), m_plus.hits()), (2 * 100 - 2, 2 * 100 - 2));
    assert_eq!((m.insertions().len(), m_plus.insertions().len()), (2, 2));
}

/// Section 3.2: A is cached at t0 and read next at T, B is read at t0 and once more at T - 1. MIN replaces A by B;
/// leaving A would have had as many hits with one write less. M+ does as MIN: B is read, so that its insertion is not
/// wasted in the sense of R_1.
#[test]
fn a_write_that_is_wasted_although_it_is_read_stays() {
    let trace = letters("AABBA");
    let stream = stream(&trace, 0);
    let (m, m_plus) = plans(&stream, 1);
    assert_eq!((draw(&m), draw(&m_plus)), ("ihil-".to_owned(), "ihil-".to_owned()));
    let of_a = Insertion { evicts: NOT_EVICTING, leaves: 2, last_hit: 1, hits: 1 };
    let of_b = Insertion { evicts: 4, leaves: 3, last_hit: 3, hits: 1 };
    assert_eq!(m.insertions(), [of_a, of_b]);
}

#[test]
fn m_plus_skips_unread_blocks_and_uses_their_space() {
    // One place. MIN inserts A, evicts it for B, which is read sooner, and B for C, which is read sooner still.
    let trace = letters("ABCCBA");
    let stream = stream(&trace, 0);
    let (m, m_plus) = plans(&stream, 1);
    assert_eq!((draw(&m), draw(&m_plus)), ("iiil--".to_owned(), "--il--".to_owned()));
    // A is read, evicted for B, which is evicted unread for C, and C is read. M+ leaves B out; A stays until C needs
    // its place.
    let trace = letters("AABCCBA");
    let stream = self::stream(&trace, 0);
    let (m, m_plus) = plans(&stream, 1);
    assert_eq!((draw(&m), draw(&m_plus)), ("ihiil--".to_owned(), "ih-il--".to_owned()));
    assert_eq!((m.insertions()[0].leaves, m_plus.insertions()[0].leaves), (2, 3));
}

#[test]
fn blocks_overwritten_before_a_read_stay_out() {
    let trace = letters("aAabBAB");
    let stream = stream(&trace, 0);
    let (m, _) = plans(&stream, 2);
    // The second a is written at 2 and read at 5: it is a new insertion.
    assert_eq!(draw(&m), "iliihll");
}

#[test]
fn a_rerun_leaves_out_the_insertions_with_the_fewest_hits_and_the_first_of_equals() {
    let trace = letters("ABCADEAABCDE");
    let stream = stream(&trace, 0);
    let (_, m_plus) = plans(&stream, 5);
    let hits = |plan: &Plan| plan.insertions().iter().map(|insertion| insertion.hits).collect::<Vec<_>>();
    assert_eq!(hits(&m_plus), [3, 1, 1, 1, 1]);
    let thresholds = [(0, 0, 0), (1, 1, 1), (3, 1, 3), (4, 2, 0), (5, 4, 0), (9, 4, 0)];
    for (count, hits, leftover) in thresholds {
        let found = Threshold::of_count(&m_plus, count);
        let left_out = |threshold: Threshold| m_plus.rerun(&stream, 5, threshold, &Silent).insertions().len();
        assert_eq!(left_out(found), left_out(Threshold { hits, leftover }), "{count}: {found:?}");
        assert_eq!(left_out(found) as u64, 5_u64.saturating_sub(count));
    }
    // B is left out first, then C.
    assert_eq!(draw(&m_plus.rerun(&stream, 5, Threshold { hits: 1, leftover: 2 }, &Silent)), "i--hiihl--ll");
    assert_eq!(draw(&m_plus.rerun(&stream, 5, Threshold::least_hits(2), &Silent)), "i--h--hl----");
}

/// The most read hits that any algorithm can have: all sets of blocks that the cache can hold after each access are
/// tried.
fn most_hits(accesses: &[(u32, Op)], capacity: usize) -> u64 {
    let mut hits_of: BTreeMap<BTreeSet<u32>, u64> = BTreeMap::from([(BTreeSet::new(), 0)]);
    for &(block, op) in accesses {
        let mut after: BTreeMap<BTreeSet<u32>, u64> = BTreeMap::new();
        let mut reach = |cached: BTreeSet<u32>, hits: u64| {
            let most = after.entry(cached).or_default();
            *most = hits.max(*most);
        };
        for (cached, &hits) in &hits_of {
            let mut without = cached.clone();
            let hit = without.remove(&block);
            let hits = hits + u64::from(hit && op == Op::Read);
            reach(without.clone(), hits);
            let with = |mut others: BTreeSet<u32>| {
                others.insert(block);
                others
            };
            if without.len() < capacity {
                reach(with(without), hits);
            } else {
                for evicted in &without {
                    let mut others = without.clone();
                    others.remove(evicted);
                    reach(with(others), hits);
                }
            }
        }
        hits_of = after;
    }
    hits_of.into_values().max().unwrap()
}

#[test]
fn no_algorithm_has_more_hits() {
    for seed in 0..24 {
        let trace = generated("zipf:skew=0.5", 7, 60, [1.0, 0.6][seed as usize % 2], seed);
        let accesses: Vec<_> = trace.accesses().collect();
        let stream = stream(&trace, 0);
        for capacity in 1..=4 {
            let (m, m_plus) = plans(&stream, capacity);
            let most = most_hits(&accesses, capacity);
            assert_eq!((m.hits(), m_plus.hits()), (most, most), "seed {seed}, {capacity} blocks");
        }
    }
}

#[test]
fn m_and_m_plus_match_slow_versions() {
    for trace in small_traces() {
        let stream = stream(&trace, 0);
        for capacity in [1, 2, 3, 5, 8, 13] {
            let (m, m_plus) = plans(&stream, capacity);
            let slow = BruteForce { accesses: trace.accesses().collect(), capacity };
            let stays = slow.min();
            let hits = stays.iter().map(|stay| stay.hits).sum::<u64>();
            assert_eq!((m.hits(), m.insertions().len()), (hits, stays.len()), "m, {}, {capacity}", trace.name());
            let found = (m_plus.hits(), m_plus.insertions().len() as u64);
            assert_eq!(found, slow.m_plus(), "m+, {}, {capacity}", trace.name());
            assert_eq!(m_plus.hits(), m.hits());
            assert!(m_plus.insertions().iter().all(|insertion| insertion.hits > 0));
        }
    }
}

#[test]
fn a_rerun_of_m_plus_with_its_own_threshold_is_m_plus() {
    for trace in small_traces() {
        let stream = stream(&trace, 3);
        let (_, m_plus) = plans(&stream, 5);
        let again = m_plus.rerun(&stream, 5, M_PLUS, &Silent);
        assert_eq!((again.decisions(), again.insertions()), (m_plus.decisions(), m_plus.insertions()));
    }
}

#[test]
fn a_rerun_has_at_least_the_hits_of_the_insertions_that_it_keeps() {
    for trace in small_traces() {
        let stream = stream(&trace, 0);
        let (_, m_plus) = plans(&stream, 5);
        let mut by_hits: Vec<u32> = m_plus.insertions().iter().map(|insertion| insertion.hits).collect();
        by_hits.sort_unstable();
        for count in 0..=by_hits.len() {
            let plan = m_plus.rerun(&stream, 5, Threshold::of_count(&m_plus, count as u64), &Silent);
            plan.check(&stream, 5);
            let kept: u64 = by_hits[count..].iter().map(|&hits| u64::from(hits)).sum();
            assert!((kept..=m_plus.hits()).contains(&plan.hits()), "{} hits, {kept} were kept", plan.hits());
            assert!(plan.insertions().len() + count <= by_hits.len());
        }
    }
}

#[test]
fn the_dram_cache_is_min_too_and_the_flash_sees_its_misses_and_all_writes() {
    for trace in small_traces() {
        let accesses: Vec<_> = trace.accesses().collect();
        let slow = BruteForce { accesses: accesses.clone(), capacity: 4 };
        let stays = slow.min();
        let hit = |now: usize, block: u32| {
            stays.iter().any(|stay| stay.block == block && stay.from < now && now <= stay.until && stay.hits > 0)
                && accesses[now].1 == Op::Read
        };
        let stream = stream(&trace, 4);
        assert_eq!(stream.ram_hits(), stays.iter().map(|stay| stay.hits).sum::<u64>());
        let through: Vec<_> = accesses
            .iter()
            .enumerate()
            .filter(|(now, access)| !hit(*now, access.0))
            .map(|(_, access)| *access)
            .collect();
        let op = |position| if stream.is_write(position) { Op::Write } else { Op::Read };
        let found: Vec<_> = (0..stream.len()).map(|position| (stream.block(position), op(position))).collect();
        assert_eq!(found, through);
        let behind = BruteForce { accesses: through, capacity: 4 };
        for position in 0..stream.len() {
            let expected = behind.next_read(stream.block(position), position).map_or(NEVER, |next| next as u32);
            assert_eq!(stream.next_read(position), expected);
        }
    }
}

#[test]
fn the_warm_up_is_not_counted() {
    let trace = letters("ABABaAB");
    let next_reads = next_reads(&trace, &Silent).unwrap();
    let counts = |warmup| {
        let stream = FlashStream::behind_min(&trace, &next_reads, 1, warmup, &Silent);
        (stream.warmup(), stream.reads(), stream.writes(), stream.ram_hits())
    };
    // The DRAM cache has A at 2, and again at 5, and B at 3 and at 6 or not.
    let all = counts(0);
    assert_eq!((all.0, all.1, all.2), (0, 6, 1));
    assert_eq!((counts(4).1, counts(4).2), (2, 1));
    assert_eq!(counts(7), (7 - all.3 as usize, 0, 0, 0));
}
