//! Nanoseconds per access that an admission rule adds to LRU: one core, a prepared Zipf trace, a cache of 10 %.
//!
//! Each access is a microsecond later than the last. The rules take turns, so that other work on the machine slows all
//! of them. Times are processor time.

use flashwise_benches::{thread_seconds, zipf_trace};
use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::{self, Setting};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Policy, Spec, Visitor};
use flashwise_core::tiers::{Array, Device, Tier};
use flashwise_trace::Trace;

const ROUNDS: usize = 11;
const ACCESSES: usize = 5_000_000;
const BLOCK_BYTES: u64 = 4096;
/// The simulator's distance.
const PREFETCH_DISTANCE: usize = 12;

const RULES: [&str; 11] = [
    "",
    "size:max=1GiB",
    "size:max=0",
    "probability:p=1",
    "probability:p=0.3",
    "hotness:min=2",
    "hotness:top=10%",
    "adaptive:timeframe=100ms",
    "adaptive:timeframe=100ms,sampling=0.1%",
    "adaptive:timeframe=100ms,kind=size",
    "adaptive:timeframe=100ms,kind=hotness",
];

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |rule: &&&str| rule.is_empty() || only.is_empty() || only.iter().any(|name| rule.starts_with(name));
    let rules: Vec<_> = RULES.iter().filter(wanted).collect();
    let trace = zipf_trace(ACCESSES);
    let mut times = vec![Vec::new(); rules.len()];
    let mut hits = vec![0.0; rules.len()];
    for _ in 0..ROUNDS {
        for (number, rule) in rules.iter().enumerate() {
            let (seconds, hit_ratio) = run(&trace, rule);
            times[number].push(1e9 * seconds / trace.len() as f64);
            hits[number] = hit_ratio;
        }
    }
    println!("{:44} {:>9} {:>9} {:>9} {:>9}", "", "ns least", "ns median", "added", "hits");
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    for ((rule, of_rule), hit_ratio) in rules.iter().zip(&times).zip(hits) {
        let name = if rule.is_empty() { "lru, no rule" } else { rule };
        let (least, median, added) = (of_rule[0], of_rule[ROUNDS / 2], of_rule[0] - times[0][0]);
        println!("{name:44} {least:9.1} {median:9.1} {added:9.1} {:8.2}%", 100.0 * hit_ratio);
    }
}

/// Returns the seconds of a run, and the hit ratio.
fn run(trace: &Trace, rule: &str) -> (f64, f64) {
    let lru = Spec::parse("lru").expect("a policy");
    let (index, capacity) = (Dense::new(trace.unique_blocks()), trace.unique_blocks() / 10);
    if rule.is_empty() {
        return lru.build(index, capacity, Replay(trace));
    }
    let rule = admission::Spec::parse(rule).expect("a rule");
    let tier = |blocks: usize, endurance_cycles, read_latency_us, write_latency_us| Tier {
        device: Device {
            capacity_bytes: (blocks as u64 * BLOCK_BYTES) as f64,
            endurance_cycles,
            read_latency_us,
            write_latency_us,
        },
        devices: 1.0,
        write_amplification: 1.0,
    };
    let cache = tier(capacity, 100e3, 40.0, 200.0);
    let storage = tier(2 * trace.unique_blocks(), 10e3, 200.0, 1000.0);
    let setting = Setting { block_bytes: BLOCK_BYTES, array: Array { cache, storage } };
    Replay(trace).visit(rule.build(&lru, index, capacity, &setting))
}

struct Replay<'a>(&'a Trace);

impl Visitor<u32> for Replay<'_> {
    type Output = (f64, f64);

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> (f64, f64) {
        let mut counters = Counters::default();
        let start = thread_seconds();
        for columns in self.0.batches() {
            let (blocks, ops, times) = (&columns.block[..], &columns.op[..], &columns.time_us[..]);
            let lengths = &columns.request_blocks[..];
            let ahead = |at: usize| blocks[at.min(blocks.len() - 1)] as u32;
            for (at, &block) in blocks.iter().enumerate() {
                policy.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
                let op = if ops[at] == 0 { Op::Read } else { Op::Write };
                let (block, request_blocks) = (block as u32, lengths[at]);
                policy.tick(times[at] as u64);
                let outcome = policy.access(Access { block, op, request_blocks, next_use: NEVER });
                counters.record(op, &outcome);
            }
        }
        (thread_seconds() - start, counters.hit_ratio())
    }
}
