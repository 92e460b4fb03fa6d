//! Shared parts of the fuzz targets: a log written as a server writes it, and an export in memory.

pub mod log_writer;
pub mod memory_export;
