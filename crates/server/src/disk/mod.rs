//! Disks: what volumes are stored on and cached on, by blocking calls or by many transfers at a time.

use std::io;

/// A block device, a regular file, or a test's stand-in. Offsets, lengths and buffers of reads and writes are multiples of
/// [`ALIGNMENT`], so that they can bypass the page cache.
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` from `offset`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buffer` at `offset`.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Makes durable all writes that have returned.
    fn sync(&self) -> io::Result<()>;

    /// Makes `length` bytes from `offset` read as zeroes; gives their space back if `may_punch_holes`.
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()>;

    /// Tells the device that `length` bytes from `offset` are no longer needed; what they read as is undefined.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// What offsets, lengths and addresses of buffers are multiples of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the buffers.
    Read,
    /// Writes the buffers.
    Write,
    /// [`Disk::sync`]: covers the writes whose completion was reported before it was submitted.
    Sync,
    /// [`Disk::zero`].
    Zero {
        /// Whether the space may be given back.
        may_punch_holes: bool,
    },
    /// [`Disk::discard`].
    Discard,
}

/// A piece of memory that a transfer reads or fills.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// First byte; a multiple of [`ALIGNMENT`].
    pub start: *mut u8,
    /// Number of bytes; a multiple of [`ALIGNMENT`].
    pub length: usize,
}

/// One operation on one disk, to be performed while others are.
///
/// Whoever submits it guarantees that the memory of its buffers stays valid until its completion, that no one else writes to it
/// until then and, for [`Operation::Read`], that no one reads it either.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Names the transfer in its completion.
    pub tag: u64,
    /// Which of the disks that the [`Transfers`] was made for.
    pub disk: usize,
    /// What to do.
    pub operation: Operation,
    /// First byte on the disk.
    pub offset: u64,
    /// Number of bytes; the sum of the buffers' lengths for reads and writes.
    pub length: u64,
    /// Where the bytes are in memory, in order.
    pub buffers: Vec<Buffer>,
}

// SAFETY: the submitter guarantees exclusive use of the memory behind the pointers, see above.
#[allow(unsafe_code)]
unsafe impl Send for Transfer {}

impl Transfer {
    /// Does what the transfer says by blocking calls.
    pub fn perform(&self, disk: &dyn Disk) -> io::Result<()> {
        match self.operation {
            Operation::Read | Operation::Write => self.copy(disk),
            Operation::Sync => disk.sync(),
            Operation::Zero { may_punch_holes } => disk.zero(self.offset, self.length, may_punch_holes),
            Operation::Discard => disk.discard(self.offset, self.length),
        }
    }

    #[allow(unsafe_code)]
    fn copy(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut offset = self.offset;
        for buffer in &self.buffers {
            if self.operation == Operation::Read {
                // SAFETY: the submitter guarantees that the memory is valid and used by no one else.
                disk.read_at(unsafe { std::slice::from_raw_parts_mut(buffer.start, buffer.length) }, offset)?;
            } else {
                // SAFETY: the submitter guarantees that the memory is valid and not written to.
                disk.write_at(unsafe { std::slice::from_raw_parts(buffer.start, buffer.length) }, offset)?;
            }
            offset += buffer.length as u64;
        }
        Ok(())
    }
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Completion {
    /// Which transfer.
    pub tag: u64,
    /// Whether all of it was done.
    pub result: io::Result<()>,
}

/// Performs transfers on a set of disks, many at a time and in any order.
pub trait Transfers: Send + Sync {
    /// Starts all of `transfers` and leaves it empty. Their completions are given, in batches, to the function that this was
    /// made with, on a thread of its own.
    fn submit(&self, transfers: &mut Vec<Transfer>);
}
