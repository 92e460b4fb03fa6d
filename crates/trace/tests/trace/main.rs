//! Tests of all formats, intact and damaged, and of the trace file with another reader.
//!
//! All tests are in one binary: it is linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod fixtures;

mod any_bytes;
mod arrow;
mod formats;
mod near_misses;
