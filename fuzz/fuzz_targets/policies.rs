//! Any accesses to a policy with any options, with or without an admission rule with any options.
//!
//! Values that the kinds of the options allow are accepted. The policy makes valid decisions and keeps its invariants.
#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::{self, RULES, Setting};
use flashwise_core::index::{Dense, Hashed};
use flashwise_core::options::{Kind, Parameter};
use flashwise_core::policy::{Outcome, POLICIES, Policy, Spec, Visitor};
use flashwise_core::quantity::{ByteSize, Duration};
use flashwise_core::tiers::Array;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const BLOCK_BYTES: u64 = 4096;
static ARRAY: LazyLock<Array> = LazyLock::new(flashwise_device::paper);

/// Returns a number from `min` to `max`, more often a small one, one near an end, or an end.
fn count(program: &mut Unstructured, min: u64, max: u64) -> Result<u64> {
    let choice = program.arbitrary::<u8>()?;
    Ok(match choice {
        0 => max,
        1 => max - (max - min).min(1),
        2 => program.int_in_range(min..=max)?,
        // Powers of two are where arithmetic fails.
        3..=63 => (1_u64 << choice).clamp(min, max),
        _ => min.saturating_add(u64::from(choice) - 64).min(max),
    })
}

/// Returns a valid value of a parameter.
fn value(program: &mut Unstructured, kind: Kind) -> Result<String> {
    Ok(match kind {
        Kind::Number(min, max) => match program.arbitrary::<u8>()? {
            0 => format!("{min}"),
            1 => format!("{max}"),
            // NaN becomes the minimum.
            2 => format!("{}", f64::from_bits(program.arbitrary()?).max(min).min(max)),
            share => format!("{}", (min + f64::from(share) / 64.0).clamp(min, max)),
        },
        Kind::Positive(max) => format!("{max}"),
        Kind::Count(min, max) => count(program, min, max)?.to_string(),
        Kind::Size(min, max) | Kind::PowerOfTwo(min, max) => ByteSize::new(count(program, min, max)?).to_string(),
        Kind::Duration(min, max) => Duration::from_us(count(program, min, max)?).to_string(),
        Kind::Choice(words) => (*program.choose(words)?).to_owned(),
        Kind::Share(max) => format!("{}", f64::from(program.arbitrary::<u8>()?) / 255.0 * max),
        Kind::Text | Kind::List => {
            let names: Vec<&str> = POLICIES.iter().map(|info| info.name).collect();
            let count = program.int_in_range(0..=4)?;
            let chosen: Result<Vec<&str>> = (0..count).map(|_| program.choose(&names).copied()).collect();
            chosen?.join("+")
        }
    })
}

/// Returns `name` with some of its options.
fn spec(program: &mut Unstructured, name: &str, parameters: &[Parameter]) -> Result<String> {
    let mut text = name.to_owned();
    for parameter in parameters {
        let separator = if text.contains(':') { ',' } else { ':' };
        if program.arbitrary()? {
            text += &format!("{separator}{}={}", parameter.name, value(program, parameter.kind)?);
        }
    }
    Ok(text)
}

/// Accesses given by the remaining bytes: a block and an operation in two bytes.
struct Run<'a> {
    program: &'a [u8],
    capacity: usize,
}

fn steps(program: &[u8]) -> impl DoubleEndedIterator<Item = &[u8; 2]> + ExactSizeIterator {
    let pairs = program.as_chunks::<2>().0;
    pairs[..pairs.len().min(2000)].iter()
}

fn is_access(step: &&[u8; 2]) -> bool {
    step[1] % 16 > 1
}

/// Returns the position of the next access to the same block, for each access.
fn next_uses(program: &[u8]) -> Vec<u32> {
    let mut next_use_of = [NEVER; 64];
    let accesses = steps(program).filter(is_access).count() as u32;
    let backwards = steps(program).rev().filter(is_access).zip((0..accesses).rev());
    let mut next_uses: Vec<u32> =
        backwards.map(|(step, at)| std::mem::replace(&mut next_use_of[usize::from(step[0] % 64)], at)).collect();
    next_uses.reverse();
    next_uses
}

impl Visitor<u32> for Run<'_> {
    type Output = Vec<Outcome<u32>>;

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut held = HashSet::new();
        let (mut outcomes, mut now_us) = (Vec::new(), 0_u64);
        let mut next_uses = next_uses(self.program).into_iter();
        for (step, pair) in steps(self.program).enumerate() {
            let [block, what] = *pair;
            let block = u32::from(block % 64);
            match what % 16 {
                0 => assert_eq!(policy.remove(block), held.remove(&block)),
                1 => {
                    now_us += 1 << (what / 16 * 3);
                    policy.tick(now_us);
                }
                _ => {
                    let op = if what % 2 == 0 { Op::Read } else { Op::Write };
                    let next_use = next_uses.next().expect("each access has a next use");
                    let access = Access { block, op, request_blocks: 1 + u32::from(what / 16), next_use };
                    let outcome = policy.access(access);
                    assert_eq!(outcome == Outcome::Hit, held.contains(&block));
                    if let Outcome::Admit { evicted } = outcome {
                        held.insert(block);
                        assert!(evicted.is_none_or(|evicted| evicted != block && held.remove(&evicted)));
                    }
                    assert_eq!(policy.contains(block), held.contains(&block));
                    outcomes.push(outcome);
                }
            }
            assert!(held.len() == policy.len() && held.len() <= self.capacity);
            if step % 16 == 0 {
                policy.check();
            }
        }
        policy.check();
        outcomes
    }
}

/// Returns a policy, an optional rule, and a capacity.
fn choice(program: &mut Unstructured) -> Result<Option<(Spec, Option<admission::Spec>, usize)>> {
    let info = program.choose(POLICIES)?;
    let text = spec(program, info.name, info.parameters)?;
    let policy = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    let rule = match program.arbitrary::<u8>()? {
        rule @ 0..=127 => {
            let info = RULES[usize::from(rule) % RULES.len()];
            let text = spec(program, info.name, info.parameters)?;
            match text.parse() {
                Ok(rule) => Some(rule),
                // Texts for a list of policies may be refused.
                Err(_) if info.parameters.iter().any(|parameter| parameter.kind == Kind::Text) => return Ok(None),
                Err(error) => panic!("{text}: {error}"),
            }
        }
        _ => None,
    };
    Ok(Some((policy, rule, program.int_in_range(1..=40)?)))
}

fuzz_target!(|bytes: &[u8]| {
    let mut program = Unstructured::new(bytes);
    let Ok(Some((policy, rule, capacity))) = choice(&mut program) else { return };
    let program = program.take_rest();
    let run = || Run { program, capacity };
    let Some(rule) = rule else {
        let dense = policy.build(Dense::new(64), capacity, run());
        return assert_eq!(policy.build(Hashed::new(), capacity, run()), dense);
    };
    let (cache_bytes, storage_bytes) = ((capacity as u64 * BLOCK_BYTES) as f64, (128 * BLOCK_BYTES) as f64);
    let setting = Setting::of(&ARRAY, BLOCK_BYTES, cache_bytes, storage_bytes);
    let dense = run().visit(rule.build(&policy, Dense::new(64), capacity, &setting));
    assert_eq!(run().visit(rule.build(&policy, Hashed::new(), capacity, &setting)), dense);
});
