//! Disks: what volumes are stored on and cached on, by blocking calls or by many transfers at a time.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::export::Extent;
use crate::time;

mod buffers;
mod completions;
pub mod device;
mod discard;
pub mod file;
pub mod health;
pub mod identity;
mod letting_go;
pub mod memory;
mod open_options;
pub mod pool;
pub mod ring;
pub mod slow;
pub mod zoned;

/// A block device, a regular file, or a test's stand-in. Offsets, lengths and buffers of reads and writes are multiples of
/// [`ALIGNMENT`], so that they can bypass the page cache.
///
/// A disk whose size is not a multiple of [`ALIGNMENT`] is read and written as if it were rounded up to one: past its size it
/// reads as zeroes and forgets what is written. Whatever ends further out than that fails with
/// [`InvalidInput`](io::ErrorKind::InvalidInput).
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// What it is, for error messages: a path.
    fn description(&self) -> String {
        "disk".to_owned()
    }

    /// Remarks, lines for people.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The disk as one that is written in order, if it is.
    fn zoned(&self) -> Option<&zoned::ZonedFlash> {
        None
    }

    /// The file that holds the disk's bytes at the same offsets, if reads, writes and syncs may go to it without asking this
    /// disk.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How many write streams it has, which are numbered from 1: writes of one stream are told to be of one kind. See
    /// [`Transfer::stream`].
    fn write_streams(&self) -> u8 {
        0
    }

    /// Returns the bytes that hosts have written to the drive over its life, by its own counter; `None` without a readable one.
    fn drive_written_bytes(&self) -> Option<u64> {
        None
    }

    /// The disk that has the `length` bytes from `offset`, all of them, and where it has them: for a disk that is made of others.
    fn part(&self, _offset: u64, _length: u64) -> Option<(Arc<dyn Disk>, u64)> {
        None
    }

    /// The number of the disk that has this byte, from 0: for a disk that is made of others, which serve transfers side by side.
    fn lane(&self, _offset: u64) -> u16 {
        0
    }

    /// Looks at the size again, which may have changed since; returns it.
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

    /// Fills `buffers` if that needs no waiting, because the bytes are in memory; whether it did. Leaves the slices themselves
    /// undefined.
    fn read_now(&self, _buffers: &mut [IoSliceMut<'_>], _offset: u64) -> bool {
        false
    }

    /// Makes durable all writes that have returned.
    fn sync(&self) -> io::Result<()>;

    /// Makes `length` bytes from `offset` read as zeroes; gives their space back if `may_punch_holes`.
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()>;

    /// Is told how a transfer at an offset ended that was not asked of it itself but of a [part](Self::part) of it, or was. Returns whether it keeps
    /// account by itself of which of its parts fail.
    fn ended(&self, _operation: Operation, _offset: u64, _result: &io::Result<()>) -> bool {
        false
    }

    /// Lets go of the device, so that others may have it, unless it is part of something that stays. Nothing is asked of the disk any more.
    fn let_go(&self) -> io::Result<()> {
        Ok(())
    }

    /// Tells the device that `length` bytes from `offset` are no longer needed; what they read as is undefined.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// How the bytes from `offset` are stored: at least one and at most `extents_max` extents, which together cover at most
    /// `length` bytes, none of them past the size.
    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> io::Result<Vec<Extent>> {
        assert!(extents_max > 0, "an answer has at least one extent");
        let length = length_on_disk(self.size(), offset, length)?;
        Ok(vec![Extent { length, hole: false, zero: false }])
    }
}

/// What offsets, lengths and addresses of buffers are multiples of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// How many of the `length` bytes from `offset` lie on a disk of `size` bytes: all but the padding of its last unit of
/// [`ALIGNMENT`]. Fails for what ends further out.
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
        /// True if the space may be given back.
        may_punch_holes: bool,
    },
    /// [`Disk::discard`].
    Discard,
}

/// A piece of memory that a transfer reads or fills; laid out like the `iovec` of readv(2).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
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
    /// Number of bytes; the sum of the buffers' lengths for reads and writes, 0 for [`Operation::Sync`].
    pub length: u64,
    /// Where the bytes are in memory, in order.
    pub buffers: Vec<Buffer>,
    /// The write stream of a write, at most [`Disk::write_streams`]; 0 for none. Only io_uring can tell it to the device.
    pub stream: u8,
}

// SAFETY: the submitter guarantees exclusive use of the memory behind the pointers, see above.
#[allow(unsafe_code)]
unsafe impl Send for Buffer {}

impl Transfer {
    /// Performs the transfer and returns when it is done.
    pub fn perform(&self, disk: &dyn Disk) -> io::Result<()> {
        match self.operation {
            Operation::Read => {
                // SAFETY: the submitter guarantees exclusive use of valid memory until the completion.
                #[allow(unsafe_code)]
                let mut slices = unsafe { buffers::slices_to_fill(&self.buffers) };
                disk.read_vectored_at(&mut slices, self.offset)
            }
            Operation::Write => {
                // SAFETY: the submitter guarantees that the memory is valid and unchanged until the completion.
                #[allow(unsafe_code)]
                let mut slices = unsafe { buffers::slices_to_write(&self.buffers) };
                disk.write_vectored_at(&mut slices, self.offset)
            }
            Operation::Sync => disk.sync(),
            Operation::Zero { may_punch_holes } => disk.zero(self.offset, self.length, may_punch_holes),
            Operation::Discard => disk.discard(self.offset, self.length),
        }
    }

    /// Performs a read if the disk has the bytes in memory; whether it did. What it leaves in the buffers else is undefined.
    pub fn perform_now(&self, disk: &dyn Disk) -> bool {
        if self.operation != Operation::Read {
            return false;
        }
        // SAFETY: the submitter guarantees exclusive use of valid memory until the completion.
        #[allow(unsafe_code)]
        let mut slices = unsafe { buffers::slices_to_fill(&self.buffers) };
        disk.read_now(&mut slices, self.offset)
    }
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Completion {
    /// Which transfer.
    pub tag: u64,
    /// `Ok` if all of it was done.
    pub result: io::Result<()>,
}

/// Takes the ends of transfers, in batches. It is called by one thread at a time, but not always by the same; it may submit
/// transfers and may drop the [`Transfers`] itself. It empties the batch, or leaves that to the caller. If it panics the
/// process aborts: the memory of transfers that no one waits for any more is still in use.
pub type Completed = Box<dyn FnMut(&mut Vec<Completion>) + Send>;

/// Performs transfers on a set of disks, many at a time and in any order.
///
/// Dropping it waits for all transfers to end and their completions to be taken, except when it is dropped by the function that
/// takes them, which will still be called for the rest.
pub trait Transfers: Send + Sync {
    /// Starts all of `transfers` and leaves it empty. Their completions are given, in batches, to the function that this was
    /// made with, on a thread of its own.
    ///
    /// # Panics
    ///
    /// If a transfer names a disk that does not exist, or its buffers do not add up to its length.
    fn submit(&self, transfers: &mut Vec<Transfer>);

    /// By what means transfers are performed, for people.
    fn description(&self) -> String {
        String::new()
    }
}

/// How to perform transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By io_uring where the kernel allows it, else by threads.
    #[default]
    Automatic,
    /// By [`Ring`](ring::Ring).
    Ring,
    /// By [`Pool`](pool::Pool).
    Pool,
}

/// True if an error says that a disk that is there cannot be read or written, and not that it is missing, another's, or not what it was to be.
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

/// Makes what performs transfers on `disks`. Fails if threads cannot be started, or for [`Method::Ring`] if the kernel refuses
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

impl Transfer {
    /// Fails loudly for what the submitter guarantees.
    fn check(&self, disks: usize) {
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
