//! A backend's side in memory, for tests.

use std::io;

use crate::time::Mutex;

use super::{BackendSide, Record, Stamp};

/// A record in memory, initially empty.
#[derive(Debug, Default)]
pub struct MemorySide {
    record: Mutex<Option<Record>>,
}

impl BackendSide for MemorySide {
    fn read(&self) -> io::Result<Option<Record>> {
        Ok(self.record.lock().clone())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        *self.record.lock() = Some(record.clone());
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp::default())
    }

    fn inode(&self) -> Option<u64> {
        None
    }
}
