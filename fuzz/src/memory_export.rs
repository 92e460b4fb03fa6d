//! An export in memory that replies immediately.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flashwise_storage::export::{Done, Error, Export, Extent, Operation, Request};

/// Size of an export in bytes.
pub const EXPORT_BYTES: u64 = 256 << 10;

/// An export in memory.
#[derive(Debug)]
pub struct MemoryExport {
    bytes: Mutex<Vec<u8>>,
    read_only: bool,
    block_bytes_min: u32,
}

impl MemoryExport {
    /// Creates an export of zeroes.
    pub fn new(read_only: bool, block_bytes_min: u32) -> MemoryExport {
        MemoryExport { bytes: Mutex::new(vec![0; EXPORT_BYTES as usize]), read_only, block_bytes_min }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Export for MemoryExport {
    fn size(&self) -> u64 {
        EXPORT_BYTES
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn description(&self) -> String {
        "bytes in memory".to_owned()
    }

    fn block_sizes(&self) -> (u32, u32, u32) {
        (self.block_bytes_min, 4096, 64 << 10)
    }

    fn submit(&self, request: Request, done: Done) {
        let mut bytes = self.bytes();
        let Request { operation, offset, length, data, .. } = request;
        let range = &mut bytes[offset as usize..][..length as usize];
        let result = match operation {
            Operation::Read => Ok(range.to_vec()),
            Operation::Write => {
                range.copy_from_slice(&data);
                Ok(Vec::new())
            }
            Operation::WriteZeroes { only_if_fast: true, .. } => Err(Error::NotSupported),
            Operation::WriteZeroes { .. } => {
                range.fill(0);
                Ok(Vec::new())
            }
            Operation::Flush | Operation::Trim | Operation::Cache => Ok(Vec::new()),
        };
        drop(bytes);
        done(result);
    }

    fn extents(&self, _offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        let (first, second) = (length.div_ceil(2), length / 2);
        let extent = |length, hole| Extent { length, hole, zero: hole };
        let extents = [extent(first, false), extent(second, true)].into_iter().filter(|extent| extent.length > 0);
        Ok(extents.take(extents_max).collect())
    }
}
