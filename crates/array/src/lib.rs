//! What users say of cache and storage devices, for the simulator and the server alike: devices by name, TOML files, options.
//!
//! What comes of it are the tiers of [`flashwise_core::array`].

mod device;
mod keys;

use flashwise_core::array::Array;

pub use device::{ArrayModel, Profile, Service, TierModel, tier, tier_model_of_option, tier_of_option};
pub use keys::{ArrayError, Document, Keys, Range};

/// The cache's device where none is named: the paper's (Moon, Reddy: MSST 2016, Table II), an SLC SSD.
pub const CACHE_DEVICE: &str = "slc";
/// The storage's device where none is named: the paper's, an MLC SSD.
pub const STORAGE_DEVICE: &str = "mlc";

/// The devices where none are named.
pub fn paper() -> Array {
    ArrayModel::paper().array()
}
