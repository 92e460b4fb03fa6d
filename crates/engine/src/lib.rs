//! Performs the plans of the cache of `flashwise-core`, without I/O. Requests come in, and transfers go out.
//!
//! `flashwise-storage` gives the transfers to real devices. Tests give them to devices that fail, and `flashwise-sim`
//! to modelled ones.

pub mod engine;
mod join;
pub mod log;
pub mod memory;
pub mod request;
pub mod transfer;
pub mod wlfc;

pub use join::Join;
