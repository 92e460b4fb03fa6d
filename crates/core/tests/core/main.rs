//! Policies, admission rules and the cache compared with slow models; formats compared with their documents; and the
//! structure of the project.
//!
//! One binary: linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used)] // A test ends at the first failure.

mod models;
mod rules;
mod workloads;

mod adaptive;
mod admission_rules;
mod against_models;
mod baleen;
mod cache_admission;
mod container_policies;
mod copy_forward;
mod format_document;
mod in_order;
mod intents;
mod journal;
mod min;
mod option_ranges;
mod tidy;
