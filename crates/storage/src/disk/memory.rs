//! A disk in memory, for tests.

use std::io;

use crate::time::RwLock;

use super::{Disk, length_on_disk};

/// A disk whose bytes are in memory, initially zeroes.
#[derive(Debug)]
pub struct MemoryDisk {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDisk {
    /// Creates a disk of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; size]) }
    }

    /// Returns a copy of all bytes.
    pub fn contents(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl Disk for MemoryDisk {
    fn size(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn description(&self) -> String {
        "memory".to_owned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.read();
        let length = length_on_disk(bytes.len() as u64, offset, buffer.len() as u64)? as usize;
        let (stored, padding) = buffer.split_at_mut(length);
        stored.copy_from_slice(&bytes[offset as usize..][..length]);
        padding.fill(0);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let length = length_on_disk(bytes.len() as u64, offset, buffer.len() as u64)? as usize;
        bytes[offset as usize..][..length].copy_from_slice(&buffer[..length]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _may_punch_holes: bool) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let length = length_on_disk(bytes.len() as u64, offset, length)? as usize;
        bytes[offset as usize..][..length].fill(0);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        length_on_disk(self.size(), offset, length)?;
        Ok(())
    }
}
