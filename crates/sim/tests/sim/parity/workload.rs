//! Seeded requests of every kind, aligned and not, with times.

use flashwise_core::cache::{Config, Kind, Mode};
use flashwise_core::filter::Caching;
use flashwise_sim::cache_run::CacheCounts;
use flashwise_trace::request_file::CacheRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Four times what the flash holds.
pub const VOLUME_BLOCKS: u64 = 1500;
/// The whole backend, with room for a real trace.
pub const BACKEND_BLOCKS: u64 = 64 * VOLUME_BLOCKS;

/// Half of all requests go to a tenth of the volume; some are sequential.
pub fn random(seed: u64, count: usize) -> Vec<CacheRequest> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut time_us, mut scan) = (0, 0);
    let mut requests = Vec::new();
    while requests.len() < count {
        // Some 6 ms apart, with gaps of up to ten seconds.
        time_us += if random.random_range(0..200) == 0 {
            random.random_range(0..10_000_000)
        } else {
            random.random_range(0..12_000)
        };
        let limit = if random.random_bool(0.5) { VOLUME_BLOCKS / 10 } else { VOLUME_BLOCKS };
        let mut block = random.random_range(0..limit);
        let mut blocks = [1, 1, 2, 5, 20, 100][random.random_range(0..6)].min(VOLUME_BLOCKS - block);
        if random.random_range(0..12) == 0 {
            (block, blocks) = (scan, 16);
            scan = (scan + 16) % (VOLUME_BLOCKS - 32);
        }
        let (mut offset_bytes, mut length_bytes) = (4096 * block, 4096 * blocks);
        if random.random_range(0..4) == 0 {
            let end = offset_bytes + length_bytes;
            offset_bytes += random.random_range(0..4096);
            length_bytes = random.random_range(1..=end - offset_bytes);
        }
        let kind = match random.random_range(0..40) {
            0..18 => Kind::Read,
            18..34 => Kind::Write,
            34 | 35 => Kind::Flush,
            36 => Kind::Trim,
            37 | 38 => Kind::WriteZeroes { may_punch_holes: random.random_bool(0.5) },
            _ => Kind::Prefetch,
        };
        let durable =
            matches!(kind, Kind::Write | Kind::Trim | Kind::WriteZeroes { .. }) && random.random_range(0..12) == 0;
        if kind == Kind::Flush {
            (offset_bytes, length_bytes) = (0, 0);
        }
        let caching = match random.random_range(0..8) {
            0 => Caching::Never,
            1 => Caching::Always,
            _ => Caching::Usual,
        };
        requests.push(CacheRequest { time_us, kind, offset_bytes, length_bytes, durable, caching });
    }
    requests
}

/// A run in which a part of the cache had nothing to do proves nothing of it.
pub fn assert_exercised(config: &Config, counts: &CacheCounts) {
    let figures = &counts.figures;
    let mut busy = vec![
        ("flash reads", figures.flash_read_hits),
        ("admissions", figures.flash_admission_blocks),
        ("metadata", figures.flash_metadata_blocks),
        ("erasures", figures.erasures),
        ("sequential", figures.sequential_blocks),
        ("filtered", figures.filtered_blocks),
        ("zeroed", figures.zeroed_blocks),
        ("backend writes", figures.backend_written_blocks),
    ];
    if config.mode == Mode::WriteBack {
        busy.extend([("client", figures.flash_client_blocks), ("destaged", figures.destaged_blocks)]);
        if config.write_buffer_blocks > 0 {
            busy.push(("RAM writes", figures.ram_write_hits));
        }
    }
    if config.read_buffer_blocks > 0 {
        busy.push(("RAM reads", figures.ram_read_hits));
    }
    // SMQ admits little of so short a run: no unit is reset for it.
    busy.retain(|&(what, _)| what != "erasures" || config.policy.info().name != "smq");
    for (what, count) in busy {
        assert!(count > 0, "{}: no {what}", config.policy);
    }
}
