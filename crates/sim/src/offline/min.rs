//! M: MIN without forced fetches. A block that is overwritten before it is read does not enter the cache. If the cache
//! is full, nor does the block that is read last.
//!
//! Source: Cheng et al., USENIX ATC 2016, sections 2.1 and 3.5; function OnInsert of section 4.2 without the insertion
//! record.

use flashwise_core::access::NEVER;
use flashwise_core::positions::Positions;
use flashwise_trace::progress::Progress;

use super::plan::Planner;
use super::{FlashStream, NOT_EVICTING, Plan};

impl Plan {
    /// Returns MIN's plan for a cache of `capacity` blocks. `progress` may end it.
    pub fn min(stream: &FlashStream, capacity: usize, progress: &dyn Progress) -> Plan {
        assert!(capacity > 0, "a cache has room for at least one block");
        let mut planner = Planner::new(stream, progress);
        // MIN_Q: the next reads of the cached blocks.
        let (mut queue, mut len) = (Positions::new(), 0);
        for position in 0..stream.len() {
            let next_read = stream.next_read(position);
            if queue.remove(position as u32) {
                planner.hit();
                if next_read == NEVER {
                    len -= 1;
                } else {
                    queue.insert(next_read);
                }
                continue;
            }
            let mut evicts = NOT_EVICTING;
            if next_read != NEVER && len == capacity {
                evicts = queue.greatest().expect("a full cache holds a block");
            }
            if next_read == NEVER || (evicts != NOT_EVICTING && evicts < next_read) {
                planner.bypass();
                continue;
            }
            if evicts == NOT_EVICTING {
                len += 1;
            } else {
                queue.remove(evicts);
            }
            queue.insert(next_read);
            planner.insert(evicts);
        }
        planner.finish()
    }
}
