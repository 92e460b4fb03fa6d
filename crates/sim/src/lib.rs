//! Simulation of flash caches over traces: policies and algorithms, admission rules, whole caches, wear and waiting.
//!
//! [`experiment`] runs every cache over the accesses of a [`Trace`](flashwise_trace::Trace) or over its requests.
//! [`simulate`] is its fast path for policies without devices. [`endurance`] measures wear, and [`wlfc`] runs caches
//! that evict whole buckets.

pub mod advise;
pub mod array;
pub mod cache_run;
pub mod cache_settings;
pub mod case;
pub mod checks;
pub mod columns;
pub mod counting;
pub mod curve;
pub mod endurance;
pub mod experiment;
pub mod job;
mod layout_name;
pub mod offline;
pub mod online;
mod pace;
mod range;
pub mod results;
pub mod sampling;
pub mod simulate;
pub mod size;
mod spec_text;
pub mod stretch;
#[cfg(feature = "parquet")]
pub mod sweep;
mod whole;
pub mod wlfc;
