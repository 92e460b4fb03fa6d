//! Devices under a cache: modelled flash that steps are charged to, the tiers of an array, and how users describe both: by name, in TOML
//! files, with options.
//!
//! What comes of tiers are those of [`flashwise_core::array`].

pub mod flash;
mod keys;
mod tier;

use flashwise_core::array::Array;

pub use keys::{ArrayError, Document, Keys, Range};
pub use tier::{ArrayModel, Profile, Service, TierModel, tier, tier_model_of_option, tier_of_option};

/// The cache's device where none is named: the paper's (Moon, Reddy: MSST 2016, Table II), an SLC SSD.
pub const CACHE_DEVICE: &str = "slc";
/// The storage's device where none is named: the paper's, an MLC SSD.
pub const STORAGE_DEVICE: &str = "mlc";

/// The devices where none are named.
pub fn paper() -> Array {
    ArrayModel::paper().array()
}
