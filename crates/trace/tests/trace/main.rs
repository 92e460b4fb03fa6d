//! Every format that is read, whole and damaged, and the trace file in the eyes of another reader.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod fixtures;

mod any_bytes;
mod arrow;
mod formats;
mod near_misses;
