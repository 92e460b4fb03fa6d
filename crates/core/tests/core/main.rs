//! Policies, admission rules and the cache against slow models of them, the formats against their documents, and the order in the project.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

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
mod intents;
mod min;
mod option_ranges;
mod tidy;
