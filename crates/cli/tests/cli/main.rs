//! The program as users run it, a file per command or promise.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;
mod serving;

#[cfg(feature = "device-tests")]
mod access;
mod advise;
mod api;
mod array;
#[cfg(feature = "client-tests")]
mod assigned;
mod bench_larc;
mod bench_ncache;
mod book;
mod buckets;
#[cfg(feature = "device-tests")]
mod capture;
#[cfg(feature = "client-tests")]
mod clients;
mod curve;
mod demo;
mod detached;
mod documentation;
#[cfg(feature = "device-tests")]
mod file_systems;
mod filter;
mod golden;
mod input;
mod jobs;
mod kill;
mod lifetime;
mod log;
mod lost_flash;
mod makefile;
mod memory;
#[cfg(all(feature = "s3", feature = "python-tests"))]
mod objects;
#[cfg(feature = "ordered-tests")]
mod ordered;
mod outputs;
#[cfg(feature = "client-tests")]
mod packaging;
#[cfg(feature = "browser-tests")]
mod page;
#[cfg(feature = "planted")]
mod planted;
#[cfg(feature = "client-tests")]
mod pool;
mod pool_journal;
#[cfg(feature = "client-tests")]
mod pool_mishaps;
#[cfg(feature = "guest-tests")]
mod power_cuts;
#[cfg(feature = "python-tests")]
mod python;
mod recording;
mod rows;
mod salvage;
mod serve;
mod settings;
mod signals;
mod simulate;
mod soak;
mod stages;
mod sweep;
mod trace;
mod unserved;
#[cfg(feature = "client-tests")]
mod volume;
mod wear;
#[cfg(feature = "wheel-tests")]
mod wheel;
mod wlfc;
