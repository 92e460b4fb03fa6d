//! Modelled devices against maps of what they hold, and against theory.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod device_theory;
mod devices;
