//! Modelled devices compared with maps of their contents, and with theory.
//!
//! One binary: linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used)] // A test ends at the first failure.

mod device_theory;
mod devices;
