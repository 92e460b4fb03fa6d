//! Size: admit the blocks of short requests, and let long ones, which are probably sequential, go straight to storage.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section III.A; with Bcache's and Flashcache's thresholds as its models.
//!
//! Departures from the paper:
//! - A request has the length of the whole blocks that it touches. Its threshold is allowed itself, as in section V ("less
//!   than or equal to 64 KB") and not as in III.A ("less than").

use super::{Info, WRITES};
use crate::access::Access;
use crate::options::{Kind, Options, Parameter};

/// Size's row in the table of rules.
pub static INFO: Info = Info {
    name: "size",
    title: "Admits requests up to a length",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload sampling. MSST 2016, section III.A",
    parameters: &[
        Parameter {
            name: "max",
            kind: Kind::Size(0, u64::MAX),
            default: "64KiB",
            meaning: "the longest request that is admitted, in whole blocks; the paper's example",
        },
        WRITES,
    ],
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Size {
    request_blocks_max: u64,
}

impl Size {
    /// Admits requests of at most `max` bytes in blocks of `block_bytes`.
    pub fn new(block_bytes: u64, options: &Options) -> Self {
        Size { request_blocks_max: options.size_bytes("max") / block_bytes }
    }

    /// Admits requests of at most so many blocks.
    pub fn with(request_blocks_max: u64) -> Self {
        Size { request_blocks_max }
    }

    /// The longest request that is admitted, in blocks.
    pub fn blocks_max(&self) -> u64 {
        self.request_blocks_max
    }

    /// Admits requests of at most so many blocks from now on.
    pub fn set_blocks_max(&mut self, request_blocks_max: u64) {
        self.request_blocks_max = request_blocks_max;
    }

    /// Whether the missed block is admitted.
    #[inline]
    pub fn admits<K>(&self, access: &Access<K>) -> bool {
        u64::from(access.request_blocks) <= self.request_blocks_max
    }
}
