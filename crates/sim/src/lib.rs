//! Simulation of flash caches over traces: policies and algorithms, admission rules, whole caches, wear, waiting, and the figures that
//! come of it.
//!
//! [`simulate`] runs policies over the accesses of a [`Trace`](flashwise_trace::Trace); [`cache_simulation`] runs the whole cache over the
//! requests themselves; [`endurance`] tells what algorithms wear out; [`wlfc`] runs caches that evict whole buckets.

pub mod array;
pub mod cache_run;
pub mod cache_settings;
pub mod cache_simulation;
pub mod columns;
pub mod endurance;
pub mod experiment;
pub mod offline;
pub mod online;
pub mod results;
pub mod simulate;
pub mod size;
pub mod wlfc;
