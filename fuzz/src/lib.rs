//! What fuzz targets share: a log that is written as a server writes it, and an export in memory.

pub mod log_writer;
pub mod memory_export;
