//! Fixtures for tests of admission rules.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::Setting;
use flashwise_core::random::Random;
use flashwise_core::tiers::{Array, Device, Tier};

const TIER: Tier = Tier {
    device: Device { capacity_bytes: 1e9, endurance_cycles: 1e4, read_latency_us: 100.0, write_latency_us: 100.0 },
    devices: 1.0,
    write_amplification: 1.0,
};
/// The devices behind a rule.
pub const SETTING: Setting = Setting { block_bytes: 4096, array: Array { cache: TIER, storage: TIER } };

/// Returns at least this many skewed accesses to this many blocks, in requests of 1 to 32 blocks, a third of them
/// writes.
pub fn skewed(blocks: u32, accesses: usize) -> Vec<Access<u32>> {
    let mut random = Random::new(42);
    let mut workload = Vec::new();
    while workload.len() < accesses {
        let request_blocks = 1 << (random.bits() % 6);
        let exponent = (random.bits() as f64 / u64::MAX as f64) * f64::from(blocks).ln();
        let first = exponent.exp() as u32 - 1;
        let op = if random.bits().is_multiple_of(3) { Op::Write } else { Op::Read };
        let block = |block| Access { block: block % blocks, op, request_blocks, next_use: NEVER };
        workload.extend((first..first + request_blocks).map(block));
    }
    workload
}
