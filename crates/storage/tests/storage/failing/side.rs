//! Where a backend keeps what it knows of its cache.

use std::sync::Arc;

use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::attach::{BackendSide, Record, Stamp};

/// A record that outlives its volume.
pub struct SharedSide(pub Arc<MemorySide>);

impl BackendSide for SharedSide {
    fn read(&self) -> std::io::Result<Option<Record>> {
        self.0.read()
    }

    fn write(&self, record: &Record) -> std::io::Result<()> {
        self.0.write(record)
    }

    fn stamp(&self) -> std::io::Result<Stamp> {
        self.0.stamp()
    }

    fn inode(&self) -> Option<u64> {
        None
    }
}
