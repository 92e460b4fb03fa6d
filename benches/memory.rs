//! RAM of a cache for each page of its flash, including the checksum of each page that the server keeps.
//!
//! The cache allocates:
//!
//! - the policy's table of blocks, which is also the log's directory;
//! - the policy's history of evicted blocks, and its other state;
//! - the log's dirty bits and units;
//! - the segment that is being filled.
//!
//! There are no buffers of data. `-- lru arc` measures only these policies.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use flashwise_core::policy;
use flashwise_testing::cache_memory::{PageBytes, measure};

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

/// Erase units of 2 MiB.
const UNITS: u32 = 512;

fn main() {
    println!("bytes of RAM for a page of flash, of 1 GiB, with the server's checksum (4 bytes)");
    println!("policy              restarted  filled  overwritten  pages with a block  for each of these");
    let all = policy::online().map(|info| info.name.to_owned()).chain(["w-tinylfu:climb=on".to_owned()]);
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for policy in if named.is_empty() { all.collect() } else { named } {
        let bytes = measure(&policy, UNITS, &|| ALLOCATED.load(Ordering::Relaxed));
        let PageBytes { restarted, filled, overwritten, current_share } = bytes;
        let (percent, for_each) = (100.0 * current_share, overwritten / current_share);
        println!("{policy:18} {restarted:10.1} {filled:7.1} {overwritten:12.1} {percent:18.0}% {for_each:18.1}");
    }
}
