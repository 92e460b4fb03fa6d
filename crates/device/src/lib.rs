//! Devices under a cache: modelled flash that steps are charged to, and the tiers of an array. Users describe both by
//! name, in TOML files, with options. [`flashwise_core::tiers`] computes lifetimes and latencies of tiers.
//!
//! Under random writes a conventional SSD copies pages during garbage collection, and so writes more than its host
//! does:
//!
//! ```
//! use flashwise_core::step::FlashStep;
//! use flashwise_device::flash::{Device, Ftl, FtlConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // 4,096 pages in erase units of 64, and a tenth beyond them.
//! let mut ssd = Ftl::new(FtlConfig::new(4096, 64, 0.1))?;
//! let mut state = 1_u32;
//! for _ in 0..100_000 {
//!     state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
//!     ssd.step(FlashStep::Write { page: state >> 20 });
//! }
//! let counters = ssd.counters();
//! assert_eq!(counters.host_writes, 100_000);
//! assert_eq!(counters.programs(), counters.programs_host + counters.programs_collection);
//! assert!(counters.write_amplification() > Some(2.0));
//! # Ok(())
//! # }
//! ```

mod catalogue;
pub mod flash;
mod keys;
pub mod offers;
mod tier;
pub mod toml;

use flashwise_core::tiers::Array;

pub use catalogue::{About, devices};
pub use keys::{ArrayError, Document, Keys};
pub use tier::{ArrayModel, Profile, Service, TierModel, tier, tier_model_of_option, tier_of_option};

/// Default device of the cache: an SLC SSD, as in the paper (Moon, Reddy: MSST 2016, Table II).
pub const CACHE_DEVICE: &str = "slc";
/// Default device of the storage: an MLC SSD, as in the paper.
pub const STORAGE_DEVICE: &str = "mlc";

/// Returns the default devices.
pub fn paper() -> Array {
    ArrayModel::paper().array()
}
