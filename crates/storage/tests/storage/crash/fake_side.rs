//! The backend's side, in memory: a record that is written whole or not at all, and dies with the flash where that is
//! asked for.

use std::io;
use std::sync::Mutex;

use flashwise_storage::attach::{BackendSide, Record, Stamp};
use flashwise_storage::disk::Disk;
use flashwise_testing::fake_disk::FakeDisk;

/// The record of a world.
#[derive(Debug, Default)]
pub struct FakeRecord {
    pub record: Mutex<Option<Record>>,
    /// A planted bug: starts are not counted.
    pub skips_counting: bool,
    /// A planted bug: orderly ends are not noted.
    pub skips_closing: bool,
}

impl FakeRecord {
    pub fn fork(&self) -> FakeRecord {
        FakeRecord { record: Mutex::new(self.get()), ..*self }
    }

    pub fn get(&self) -> Option<Record> {
        self.record.lock().unwrap().clone()
    }
}

/// The record with the disks that it belongs to.
pub struct FakeSide<'a> {
    pub record: &'a FakeRecord,
    pub backend: &'a FakeDisk,
    /// Its operations are counted with those of the flash.
    pub flash: &'a FakeDisk,
}

impl BackendSide for FakeSide<'_> {
    fn read(&self) -> io::Result<Option<Record>> {
        self.flash.operate()?;
        Ok(self.record.get())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        self.flash.operate()?;
        let mut held = self.record.record.lock().unwrap();
        let attach = match &*held {
            Some(before) if self.record.skips_counting && before.cache == record.cache => before.attach,
            _ => record.attach,
        };
        let closed = record.closed.clone().filter(|_| !self.record.skips_closing);
        *held = Some(Record { attach, closed, ..record.clone() });
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp { size: self.backend.size(), modified_ns: Some(self.backend.writes() as i64), writes: None })
    }

    fn inode(&self) -> Option<u64> {
        Some(1)
    }
}
