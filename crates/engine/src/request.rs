//! Requests of clients, and their results.

use std::io::ErrorKind;
use std::ops::Range;

use flashwise_core::cache::Kind;
use flashwise_core::filter::Caching;
use flashwise_core::recording;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes durable all writes, zeroes and trims that completed before this request. Offset and length are 0.
    Flush,
    /// Discards bytes: they read as zeroes, or are unchanged.
    Trim,
    /// Makes bytes read as zeroes.
    WriteZeroes {
        /// True if the backend may free the space.
        may_punch_holes: bool,
        /// True to fail with [`Error::NotSupported`] if this is not faster than writing zeroes.
        only_if_fast: bool,
    },
    /// Reads bytes into the cache ahead of use.
    Cache,
}

impl Operation {
    /// True if it changes stored data.
    pub fn changes(self) -> bool {
        matches!(self, Operation::Write | Operation::Trim | Operation::WriteZeroes { .. })
    }

    /// The operation's name in recordings and in the status.
    pub fn recorded(self) -> recording::Operation {
        match self {
            Operation::Read => recording::Operation::Read,
            Operation::Write => recording::Operation::Write,
            Operation::Flush => recording::Operation::Flush,
            Operation::Trim => recording::Operation::Trim,
            Operation::WriteZeroes { .. } => recording::Operation::WriteZeroes,
            Operation::Cache => recording::Operation::Cache,
        }
    }
}

/// The operation of a request that a cache has planned or recorded. Zeroes may be slow.
impl From<Kind> for Operation {
    fn from(kind: Kind) -> Operation {
        match kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write,
            Kind::Flush => Operation::Flush,
            Kind::Trim => Operation::Trim,
            Kind::WriteZeroes { may_punch_holes } => Operation::WriteZeroes { may_punch_holes, only_if_fast: false },
            Kind::Prefetch => Operation::Cache,
        }
    }
}

/// A request to an export. The front end has checked its range against the export's size.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// True if the change must be durable before the reply. Not used for flushes.
    pub force_unit_access: bool,
    /// The bytes to write, `length` of them; empty for other operations.
    pub data: Vec<u8>,
    /// The client's setting in the I/O filter.
    pub caching: Caching,
}

impl Request {
    /// Creates a client's flush.
    pub fn flush() -> Request {
        let (operation, caching) = (Operation::Flush, Caching::Usual);
        Request { operation, offset: 0, length: 0, force_unit_access: false, data: Vec::new(), caching }
    }

    /// True if it changes stored data.
    pub fn changes(&self) -> bool {
        self.operation.changes()
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    /// True for a client's flush that has not started yet. Once started, it is marked as durable.
    pub fn is_flush(&self) -> bool {
        self.operation == Operation::Flush && !self.force_unit_access
    }

    /// True if the reply waits until something is durable.
    pub fn makes_durable(&self) -> bool {
        self.operation == Operation::Flush || self.force_unit_access && self.operation != Operation::Read
    }

    /// Applies this change to bytes that begin at `offset`.
    pub fn put_over(&self, offset: u64, bytes: &mut [u8]) {
        let (from, to) = (offset.max(self.offset), (offset + bytes.len() as u64).min(self.offset + self.length));
        if from >= to {
            return;
        }
        let part = &mut bytes[(from - offset) as usize..(to - offset) as usize];
        // Zeroes have no data.
        match self.data.get((from - self.offset) as usize..(to - self.offset) as usize) {
            Some(data) => part.copy_from_slice(data),
            None => part.fill(0),
        }
    }

    /// True if it changes bytes in the range of `other`.
    pub fn changes_part_of(&self, other: &Request) -> bool {
        self.changes() && self.offset < other.offset + other.length && other.offset < self.offset + self.length
    }
}

/// Why a request failed. The front end translates it to its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A write to a read-only export.
    #[error("not permitted")]
    NotPermitted,
    /// A device failed, or the only copy of the data was lost.
    #[error("input/output error")]
    Io,
    /// Out of memory.
    #[error("out of memory")]
    OutOfMemory,
    /// The request is invalid.
    #[error("invalid argument")]
    Invalid,
    /// The backend is full, or the request is beyond the end of the export.
    #[error("no space left")]
    NoSpace,
    /// Not supported by the export.
    #[error("not supported")]
    NotSupported,
    /// The server is shutting down.
    #[error("shutting down")]
    ShuttingDown,
}

/// Maps a device error to the error for clients: either full or failed.
impl From<&std::io::Error> for Error {
    fn from(error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace,
            _ => Error::Io,
        }
    }
}

/// Receives the result of a request: the bytes read (empty for other operations) or an error. Called once, on any
/// thread, before or after the submission returns.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, Error>) + Send>;
