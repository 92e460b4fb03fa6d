//! A backend's side in memory, for tests.

use std::io;
use std::sync::{Mutex, PoisonError};

use super::{BackendSide, Record, Stamp};

/// A record in memory; a new one is none.
#[derive(Debug, Default)]
pub struct MemorySide {
    record: Mutex<Option<Record>>,
}

impl BackendSide for MemorySide {
    fn read(&self) -> io::Result<Option<Record>> {
        Ok(self.record.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp::default())
    }

    fn inode(&self) -> Option<u64> {
        None
    }
}
