//! Transfers between memory and disks.

/// Alignment of offsets, lengths and addresses of buffers, in bytes.
pub const ALIGNMENT: usize = 4096;

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the buffers.
    Read,
    /// Writes the buffers.
    Write,
    /// Makes writes durable: it covers the writes whose completion was reported before it was submitted.
    Sync,
    /// Makes bytes read as zeroes.
    Zero {
        /// True if the space may be freed.
        may_punch_holes: bool,
    },
    /// Discards bytes: their content is undefined afterwards.
    Discard,
}

/// Memory that a transfer reads or fills. The layout is that of `iovec` in readv(2).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buffer {
    /// First byte; a multiple of [`ALIGNMENT`].
    pub start: *mut u8,
    /// Number of bytes; a multiple of [`ALIGNMENT`].
    pub length: usize,
}

/// One operation on one disk, which may run concurrently with others.
///
/// The submitter guarantees that the memory of the buffers stays valid until the completion. Until then, it is not
/// written otherwise and, for [`Operation::Read`], not read.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Identifies the transfer in its completion.
    pub tag: u64,
    /// The index of the disk.
    pub disk: usize,
    /// The operation.
    pub operation: Operation,
    /// First byte on the disk.
    pub offset: u64,
    /// Number of bytes: the sum of the buffers for reads and writes, 0 for [`Operation::Sync`].
    pub length: u64,
    /// The memory, in order.
    pub buffers: Vec<Buffer>,
    /// The write stream of a write, numbered from 1; 0 for none. Only io_uring can pass it to the
    /// device.
    pub stream: u8,
}

// SAFETY: the submitter guarantees exclusive use of the memory behind the pointers.
#[allow(unsafe_code)]
unsafe impl Send for Buffer {}

impl Transfer {
    /// Asserts the guarantees of the submitter, for so many disks.
    ///
    /// # Panics
    /// The transfer names a disk that does not exist, or its buffers do not add up to its length.
    pub fn check(&self, disks: usize) {
        assert!(self.disk < disks, "transfer {} names disk {} of {disks}", self.tag, self.disk);
        if matches!(self.operation, Operation::Read | Operation::Write) {
            let aligned = |value: usize| value.is_multiple_of(ALIGNMENT);
            let whole = |buffer: &Buffer| aligned(buffer.start.addr()) && aligned(buffer.length);
            assert!(self.buffers.iter().all(whole), "the buffers of transfer {} are aligned", self.tag);
            let length: usize = self.buffers.iter().map(|buffer| buffer.length).sum();
            assert!(length as u64 == self.length, "the buffers of transfer {} add up to its length", self.tag);
            assert!(self.offset.is_multiple_of(ALIGNMENT as u64), "the offset of transfer {} is aligned", self.tag);
        }
    }
}
