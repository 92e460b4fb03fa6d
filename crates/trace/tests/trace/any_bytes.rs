//! No bytes make reading panic. Samples of every format in every compression, and mapped trace files, are damaged at
//! random (flipped, cut, doubled, spliced), then read to the end. There are 256 inputs per format, a fifth of them in
//! each compression, and 1,024 trace files; the seed is fixed.

use std::io::{Read, Seek, Write};

use crate::fixtures::{self, COMPRESSIONS, Fixture, all, trace};
use flashwise_trace::Trace;
use flashwise_trace::normalised::Settings;
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::info::Info;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[derive(Clone, Debug)]
enum Damage {
    Flip { at: usize, bits: u8 },
    Set { at: usize, byte: u8 },
    Insert { at: usize, bytes: Vec<u8> },
    Remove { at: usize, len: usize },
    Double { at: usize, len: usize, to: usize },
    Cut { at: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>();
    prop_oneof![
        4 => (at, 0..8_u32).prop_map(|(at, bit)| Damage::Flip { at, bits: 1 << bit }),
        // Bytes with a meaning in some format.
        4 => (at, prop::sample::select(&b"0918-.,\n\r\t \
            \"#*+RWDx\0\xFF"[..])).prop_map(|(at, byte)| Damage::Set { at, byte }),
        2 => (at, vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Damage::Insert { at, bytes }),
        2 => (at, 1..200_usize).prop_map(|(at, len)| Damage::Remove { at, len }),
        1 => (at, 1..2000_usize, any::<usize>()).prop_map(|(at, len, to)| Damage::Double { at, len, to }),
        1 => at.prop_map(|at| Damage::Cut { at }),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len().max(1);
    let range = |at: usize, count: usize| at % len..(at % len + count).min(bytes.len());
    match damage {
        _ if bytes.is_empty() => {}
        Damage::Flip { at, bits } => bytes[at % len] ^= bits,
        Damage::Set { at, byte } => bytes[at % len] = *byte,
        Damage::Insert { at, bytes: more } => {
            bytes.splice(at % len..at % len, more.iter().copied());
        }
        Damage::Remove { at, len: count } => drop(bytes.drain(range(*at, *count))),
        Damage::Double { at, len: count, to } => {
            let part = bytes[range(*at, *count)].to_vec();
            bytes.splice(to % len..to % len, part);
        }
        Damage::Cut { at } => bytes.truncate(at % len),
    }
}

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Uses all contents of a trace.
fn walk(trace: &Trace) {
    let info = Info::of(trace);
    assert_eq!(info.accesses, trace.len() as u64);
    assert!(trace.accesses().all(|(block, _)| (block as usize) < trace.unique_blocks()));
    assert_eq!(trace.next_uses(&Silent).unwrap().len(), trace.len());
}

fn read_damaged(fixture: &Fixture) {
    let strategy = (vec(damage(), 1..6), 0..COMPRESSIONS.len(), any::<bool>(), any::<bool>(), any::<bool>());
    let check = |(damages, compression, before, is_named, lenient): (Vec<Damage>, usize, bool, bool, bool)| {
        let mut bytes = fixture.contents.clone();
        if before {
            damages.iter().for_each(|damage| apply(&mut bytes, damage));
        }
        bytes = COMPRESSIONS[compression].1(&bytes);
        if !before {
            damages.iter().for_each(|damage| apply(&mut bytes, damage));
        }
        let format = is_named.then(|| fixture.spec.parse().unwrap());
        if let Ok(trace) = trace(bytes, &Settings { format, lenient, ..Settings::default() }) {
            walk(&trace);
        }
        Ok(())
    };
    runner(256).run(&strategy, check).unwrap();
}

#[test]
fn no_bytes_make_a_reader_panic() {
    for fixture in all(100) {
        read_damaged(&fixture);
    }
}

#[test]
fn no_bytes_of_any_format_make_another_reader_panic() {
    let fixtures = all(50);
    let specs: Vec<_> =
        fixtures.iter().map(|fixture| fixture.spec).chain(["csv:offset=0", "blocks:unit=4096"]).collect();
    for fixture in &fixtures {
        for spec in &specs {
            for lenient in [false, true] {
                let format = Some(spec.parse().unwrap());
                if let Ok(trace) = trace(fixture.contents.clone(), &Settings { format, lenient, ..Settings::default() })
                {
                    walk(&trace);
                }
            }
        }
    }
}

#[test]
fn no_bytes_make_mapping_a_trace_file_panic() {
    let contents = all(300).swap_remove(0).contents;
    let input = fixtures::input(contents).unwrap();
    let settings = Settings::default();
    let mut file = flashwise_trace::normalised::normalise(input, &settings, tempfile::tempfile().unwrap()).unwrap();
    let mut whole = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut whole).unwrap();
    let near_end = any::<usize>().prop_map(|at| at % 4000);
    let strategy = (vec((damage(), proptest::option::of(near_end)), 1..4), any::<bool>());
    let check = |(damages, keeps_length): (Vec<(Damage, Option<usize>)>, bool)| {
        let mut bytes = whole.clone();
        for (damage, near_end) in &damages {
            let mut damage = damage.clone();
            // Half of the damage is to the footer, where it has the most effect.
            if let (Some(near_end), Damage::Flip { at, .. } | Damage::Set { at, .. }) = (near_end, &mut damage) {
                *at = bytes.len().saturating_sub(*near_end + 1);
            }
            if !keeps_length || matches!(damage, Damage::Flip { .. } | Damage::Set { .. }) {
                apply(&mut bytes, &damage);
            }
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        if let Ok(trace) = Trace::map("trace", &file) {
            walk(&trace);
        }
        Ok(())
    };
    runner(1024).run(&strategy, check).unwrap();
}
