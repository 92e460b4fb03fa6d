//! Disks: the devices under volumes and caches, with blocking calls or many concurrent transfers.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use flashwise_engine::transfer::{ALIGNMENT, Buffer, Operation, Transfer};

use crate::export::Extent;
use crate::time;

mod buffers;
mod completions;
pub mod device;
mod discard;
pub mod file;
pub mod health;
pub mod identity;
pub mod inventory;
mod letting_go;
pub mod memory;
mod open_options;
pub mod pool;
pub mod ring;
pub mod slow;
pub mod zoned;

/// A block device, a regular file, or a test double. Offsets, lengths and buffers of reads and writes are multiples of
/// [`ALIGNMENT`], so that they can bypass the page cache.
///
/// A size that is not a multiple of [`ALIGNMENT`] is rounded up for reads and writes. The padding reads as zeroes, and
/// writes to it are discarded. Anything beyond fails with [`InvalidInput`](io::ErrorKind::InvalidInput).
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// The name in error messages: a path.
    fn description(&self) -> String {
        "disk".to_owned()
    }

    /// Notes for users.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The disk as a zoned device, if it is one.
    fn zoned(&self) -> Option<&zoned::ZonedFlash> {
        None
    }

    /// The file that holds the disk's bytes at the same offsets, if reads, writes and syncs may bypass this disk.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if writes only go to the page cache, which takes less time than to wake a thread. io_uring hands each of
    /// these writes to a thread of the kernel.
    fn buffers_writes(&self) -> bool {
        false
    }

    /// Number of write streams. They are numbered from 1, and group writes with similar lifetimes. See
    /// [`Transfer::stream`].
    fn write_streams(&self) -> u8 {
        0
    }

    /// Returns the bytes that hosts have written to the drive over its life, by its own counter; `None` without a
    /// readable one.
    fn drive_written_bytes(&self) -> Option<u64> {
        None
    }

    /// For a disk made of others: the disk that holds all `length` bytes from `offset`, and the offset on it.
    fn part(&self, _offset: u64, _length: u64) -> Option<(Arc<dyn Disk>, u64)> {
        None
    }

    /// For a disk made of others: the number of the disk with this byte, from 0. These disks transfer in parallel.
    fn lane(&self, _offset: u64) -> u16 {
        0
    }

    /// Reads the size again, which may have changed, and returns it.
    fn refresh_size(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    /// Fills `buffer` from `offset`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buffer` at `offset`.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `buffers`, one after the other, from `offset`. Leaves the slices themselves undefined.
    fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], mut offset: u64) -> io::Result<()> {
        for buffer in buffers {
            self.read_at(buffer, offset)?;
            offset += buffer.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `buffers`, one after the other, at `offset`. Leaves the slices themselves undefined.
    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for buffer in buffers {
            self.write_at(buffer, offset)?;
            offset += buffer.len() as u64;
        }
        Ok(())
    }

    /// Fills `buffers` if the bytes are in memory already, and returns true if so. Leaves the slices themselves
    /// undefined.
    fn read_now(&self, _buffers: &mut [IoSliceMut<'_>], _offset: u64) -> bool {
        false
    }

    /// Makes durable all writes that have returned.
    fn sync(&self) -> io::Result<()>;

    /// Makes `length` bytes from `offset` read as zeroes. Frees their space if `may_punch_holes`.
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()>;

    /// Records the result of a transfer that went to a [part](Self::part) of this disk, or to the disk itself. True if
    /// the disk tracks the health of its parts.
    fn ended(&self, _operation: Operation, _offset: u64, _result: &io::Result<()>) -> bool {
        false
    }

    /// Closes the device for other users, unless it is part of something that stays open. The disk must not be used
    /// afterwards.
    fn let_go(&self) -> io::Result<()> {
        Ok(())
    }

    /// Discards `length` bytes from `offset`. Their content is undefined afterwards.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns how the bytes from `offset` are stored: between 1 and `extents_max` extents. Together they cover at most
    /// `length` bytes, and none is beyond the size.
    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> io::Result<Vec<Extent>> {
        assert!(extents_max > 0, "an answer has at least one extent");
        let length = length_on_disk(self.size(), offset, length)?;
        Ok(vec![Extent { length, hole: false, zero: false }])
    }

    /// Performs a transfer on this disk, and waits for it.
    fn perform(&self, transfer: &Transfer) -> io::Result<()> {
        let &Transfer { offset, length, .. } = transfer;
        match transfer.operation {
            Operation::Read => {
                // SAFETY: the submitter guarantees exclusive use of valid memory until the completion.
                #[allow(unsafe_code)]
                let mut slices = unsafe { buffers::slices_to_fill(&transfer.buffers) };
                self.read_vectored_at(&mut slices, offset)
            }
            Operation::Write => {
                // SAFETY: the submitter guarantees that the memory is valid and unchanged until the completion.
                #[allow(unsafe_code)]
                let mut slices = unsafe { buffers::slices_to_write(&transfer.buffers) };
                self.write_vectored_at(&mut slices, offset)
            }
            Operation::Sync => self.sync(),
            Operation::Zero { may_punch_holes } => self.zero(offset, length, may_punch_holes),
            Operation::Discard => self.discard(offset, length),
        }
    }

    /// Performs a read if the bytes are in memory, and returns true if so. Otherwise the buffers are undefined.
    fn perform_now(&self, transfer: &Transfer) -> bool {
        if transfer.operation != Operation::Read {
            return false;
        }
        // SAFETY: the submitter guarantees exclusive use of valid memory until the completion.
        #[allow(unsafe_code)]
        let mut slices = unsafe { buffers::slices_to_fill(&transfer.buffers) };
        self.read_now(&mut slices, transfer.offset)
    }
}

/// Returns how many of the `length` bytes from `offset` are on a disk of `size` bytes, without the padding of its last
/// unit of [`ALIGNMENT`]. Fails for ranges beyond the padding.
fn length_on_disk(size: u64, offset: u64, length: u64) -> io::Result<u64> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(length),
        Some(end) if offset < size && end <= size.next_multiple_of(ALIGNMENT as u64) => Ok(size - offset),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{length} bytes at {offset} end past the end, at {size}"),
        )),
    }
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Completion {
    /// The tag of the transfer.
    pub tag: u64,
    /// `Ok` if the transfer succeeded completely.
    pub result: io::Result<()>,
}

/// Receives completions, in batches. Calls come from different threads, but never concurrently. It may submit transfers
/// and drop the [`Transfers`] itself. It may leave the batch full or empty. If it panics, the process aborts, because
/// transfers without an owner still use their memory.
pub type Completed = Box<dyn FnMut(&mut Vec<Completion>) + Send>;

/// Performs transfers on a set of disks, concurrently and in any order.
///
/// Dropping it waits until all transfers have completed and been delivered. If the completion function itself drops it,
/// it does not wait; the function is still called for the rest.
pub trait Transfers: Send + Sync {
    /// Starts all of `transfers` and empties the list. Completions go, in batches, to the completion function, on
    /// another thread.
    ///
    /// # Panics
    /// If a transfer names a disk that does not exist, or its buffers do not add up to its length.
    fn submit(&self, transfers: &mut Vec<Transfer>);

    /// Describes the method of the transfers, for users.
    fn description(&self) -> String {
        String::new()
    }
}

/// The method of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// io_uring if the kernel allows it, otherwise threads.
    #[default]
    Automatic,
    /// [`Ring`](ring::Ring).
    Ring,
    /// [`Pool`](pool::Pool).
    Pool,
}

/// True if an error means that the disk is present but failing.
pub(crate) fn is_dead(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::StorageFull
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::Unsupported
            | io::ErrorKind::WouldBlock
    )
}

/// Creates the transfers on `disks`. Fails if threads cannot be started, or for [`Method::Ring`] if the kernel refuses
/// io_uring.
pub fn transfers(disks: Vec<Arc<dyn Disk>>, method: Method, completed: Completed) -> io::Result<Arc<dyn Transfers>> {
    Ok(match method {
        Method::Pool => Arc::new(pool::Pool::new(disks, completed)?),
        Method::Ring => Arc::new(ring::Ring::new(disks, completed)?),
        Method::Automatic if time::is_virtual() => Arc::new(pool::Pool::new(disks, completed)?),
        Method::Automatic => match ring::probe() {
            Ok(()) => Arc::new(ring::Ring::new(disks, completed)?),
            Err(refusal) => Arc::new(pool::Pool::new(disks, completed)?.because(&refusal)),
        },
    })
}
