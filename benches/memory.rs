//! RAM that a cache takes per block on flash, when the flash is full: all that it has allocated by then, and the checksum of each page that
//! the server keeps.
//!
//! What is allocated is the policy's table of blocks, which is the log's directory as well, with what the policy remembers of evicted
//! blocks and whatever else it keeps; the log's bits of what is dirty and its units; and the segment that is being filled. There are
//! no buffers of data. `-- lru arc` measures these policies alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Request};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::Log;
use flashwise_core::policy;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: u64 = 4096;

fn main() {
    println!(
        "bytes of RAM per block on flash, 16 GiB of flash, full; the server's checksums (4 bytes a page) included"
    );
    let all = policy::online().map(|info| info.name.to_owned()).chain(["w-tinylfu:climb=on".to_owned()]);
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for policy in if named.is_empty() { all.collect() } else { named } {
        let before = ALLOCATED.load(Ordering::Relaxed);
        let geometry = Geometry { units: 8192, unit_pages: 512 };
        let config = Config {
            dirty_age_us: u64::MAX,
            commit_age_us: u64::MAX,
            sequential_blocks: 0,
            ..Config::new(geometry, policy.parse().expect("a policy"))
        };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        let mut steps = Vec::new();
        // Twice over more blocks than fit, in no order: the policies remember what they evicted, too.
        let blocks: u64 = 5_000_011;
        for access in 0..2 * blocks {
            let block = access.wrapping_mul(2_654_435_761) % blocks;
            let request = Request {
                kind: Kind::Read,
                offset: block * BLOCK,
                length: BLOCK,
                whole_length: BLOCK,
                durable: false,
                last: true,
                caching: Default::default(),
            };
            cache.on(Event::Request { request: &request, now_us: access }, &mut steps);
            steps.clear();
        }
        drop(steps);
        let bytes = ALLOCATED.load(Ordering::Relaxed) - before + geometry.pages() as usize * 4;
        println!("{policy:18} {:6.1}  ({} blocks)", bytes as f64 / cache.log().len() as f64, cache.log().len());
    }
}
