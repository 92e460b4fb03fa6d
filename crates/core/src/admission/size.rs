//! Size: admit the blocks of short requests; long ones, which are probably sequential, go directly to storage.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section III.A; with Bcache's and Flashcache's thresholds as its models.
//!
//! Departures from the paper:
//! - The length of a request counts the whole blocks that it touches. The threshold is inclusive, as in section V
//!   ("less than or equal to 64 KB"), not as in III.A ("less than").

use super::{EVERYTHING, Info, Judge, Thresholds, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::quantity::ByteSize;

/// Size's row in the table of rules.
pub static INFO: Info = Info {
    name: "size",
    title: "Admits requests up to a length",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through \
        workload sampling. MSST 2016, section III.A",
    parameters: &[
        Parameter::of("max", Kind::Size(0, u64::MAX), "64KiB")
            .means("the maximum length of an admitted request, in whole blocks; the paper's example"),
        WRITES,
    ],
    thresholds: Some(Thresholds { at, shown }),
    decides: None,
};

/// Doubles at each position: one block, two, four, ..., unlimited.
fn at(position: f64, last: f64) -> f64 {
    let request_blocks_max = if position > last - 0.5 { u64::MAX } else { position.exp2() as u64 };
    request_blocks_max as f64
}

fn shown(threshold: f64, block_bytes: u64) -> String {
    if threshold >= u64::MAX as f64 {
        return EVERYTHING.to_owned();
    }
    format!("max={}", ByteSize::new(threshold as u64 * block_bytes))
}

/// Admits the blocks of requests up to a length.
#[derive(Clone, Debug)]
pub struct Size {
    request_blocks_max: u64,
}

impl Size {
    /// Admits requests of at most `request_blocks_max` blocks.
    pub fn with(request_blocks_max: u64) -> Self {
        Size { request_blocks_max }
    }
}

impl<I: Index> Judge<I> for Size {
    fn build(options: &Options, _index: I, _capacity: usize, block_bytes: u64) -> Self {
        Size { request_blocks_max: options.size_bytes("max") / block_bytes }
    }

    fn set_threshold(&mut self, request_blocks_max: f64) {
        self.request_blocks_max = request_blocks_max as u64;
    }

    #[inline(always)]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        u64::from(access.request_blocks) <= self.request_blocks_max || is_cached()
    }

    fn request_blocks_max(&self) -> u64 {
        self.request_blocks_max
    }
}
