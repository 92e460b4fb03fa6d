//! Tools for traces: inspecting, cutting, joining, converting and generating them.

pub mod concat;
pub mod convert;
pub mod curve;
pub mod cut;
pub mod export;
pub mod generate;
pub mod info;
pub mod like;
pub mod pass;
mod recency;
pub mod reuse;
pub mod sample;
pub mod volumes;
pub mod workload;
