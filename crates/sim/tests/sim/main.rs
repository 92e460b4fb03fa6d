//! Simulations against slow models, theory and published figures.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod brute_force;
mod workloads;

mod admission;
mod advise;
mod arrivals;
mod budgets;
mod endurance;
mod figures;
mod jobs;
mod min;
mod offline;
mod parity;
#[cfg(feature = "real-traces")]
mod real_traces;
mod sampling;
mod wlfc;
