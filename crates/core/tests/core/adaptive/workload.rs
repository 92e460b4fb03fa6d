//! Zipf workloads, and runs of caches over them.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::account::{Account, Bits, Counts};
use flashwise_core::admission::adaptive::Decision;
use flashwise_core::admission::{Setting, Spec};
use flashwise_core::index::Dense;
use flashwise_core::policy::{self, Outcome, Policy, Visitor};
pub use flashwise_core::random::next as random;
use flashwise_core::tiers::{Array, Device, Tier};

/// Returns a random number from 0 to 1.
pub fn share(state: &mut u64) -> f64 {
    (random(state) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws blocks from `first` up to `first + blocks` by Zipf's law.
pub struct Zipf {
    first: u32,
    /// The cumulative probability of each rank.
    cumulated: Vec<f64>,
}

impl Zipf {
    pub fn new(first: u32, blocks: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let mut cumulated: Vec<f64> = (1..=blocks)
            .map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            })
            .collect();
        cumulated.iter_mut().for_each(|share| *share /= sum);
        Zipf { first, cumulated }
    }

    pub fn draw(&self, state: &mut u64) -> u32 {
        let share = share(state);
        let rank = self.cumulated.partition_point(|cumulated| *cumulated < share);
        self.first + rank.min(self.cumulated.len() - 1) as u32
    }
}

/// An access and its time.
pub type Timed = (u64, Access<u32>);

pub fn access(block: u32, op: Op, request_blocks: u32) -> Access<u32> {
    Access { block, op, request_blocks, next_use: NEVER }
}

/// Returns the paper's devices: a cache of `capacity` blocks, and a storage of twice `blocks` with another endurance.
pub fn setting(capacity: usize, blocks: u32, storage_cycles: f64) -> Setting {
    let tier = |blocks: f64, endurance_cycles, read_latency_us, write_latency_us| Tier {
        device: Device { capacity_bytes: 4096.0 * blocks, endurance_cycles, read_latency_us, write_latency_us },
        devices: 1.0,
        write_amplification: 1.0,
    };
    let cache = tier(capacity as f64, 100e3, 40.0, 200.0);
    let storage = tier(2.0 * f64::from(blocks), storage_cycles, 200.0, 1000.0);
    Setting { block_bytes: 4096, array: Array { cache, storage } }
}

/// The results of a cache in an interval of time.
#[derive(Clone, Debug)]
pub struct Stretch {
    pub counts: Counts,
    pub decision: Option<Decision>,
}

/// A run over some accesses.
pub struct Run<'a> {
    pub accesses: &'a [Timed],
    pub blocks: u32,
    pub stretch_us: u64,
}

/// The results of a run.
pub struct Ran {
    /// The intervals.
    pub stretches: Vec<Stretch>,
    /// True for each access that hit.
    pub hits: Vec<bool>,
}

impl Visitor<u32> for Run<'_> {
    type Output = Ran;

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Ran {
        let mut account = Account::new(Bits::new(self.blocks as usize));
        let (mut before, mut stretches, mut hits) = (Counts::default(), Vec::new(), Vec::new());
        let mut end_us = self.stretch_us;
        for (time_us, access) in self.accesses {
            policy.tick(*time_us);
            if *time_us >= end_us {
                stretches.push(Stretch { counts: *account.counts() - before, decision: policy.decision().cloned() });
                before = *account.counts();
                end_us += self.stretch_us;
            }
            let outcome = policy.access(*access);
            account.record(access.block, access.op, &outcome);
            hits.push(outcome == Outcome::Hit);
        }
        policy.check();
        stretches.push(Stretch { counts: *account.counts() - before, decision: policy.decision().cloned() });
        Ran { stretches, hits }
    }
}

/// Runs LRU behind `rule`.
pub fn run(rule: &str, capacity: usize, setting: &Setting, run: Run<'_>) -> Ran {
    run_policy("lru", rule, capacity, setting, run)
}

/// Runs `policy` behind `rule`.
pub fn run_policy(policy: &str, rule: &str, capacity: usize, setting: &Setting, run: Run<'_>) -> Ran {
    let (rule, policy) = (Spec::parse(rule).unwrap(), policy::Spec::parse(policy).unwrap());
    let policy = rule.build(&policy, Dense::new(run.blocks as usize), capacity, setting);
    run.visit(policy)
}
