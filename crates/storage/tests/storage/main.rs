//! Volumes over real files, devices that fail, and power failures, a file or folder per promise.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod crash;
mod detach_in_order;
#[cfg(feature = "device-tests")]
mod devices;
mod events;
mod failing;
mod file_disk;
#[cfg(feature = "device-tests")]
mod full_devices;
mod in_place;
#[cfg(feature = "device-tests")]
mod inventory;
mod journal;
mod kept;
mod mending;
mod pairing;
mod pool;
mod pressure;
mod recording;
mod refusal;
mod steps;
mod times;
mod transfers;
mod volume;
mod zoned;
