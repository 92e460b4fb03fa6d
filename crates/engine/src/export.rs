//! What a front end asks of a volume, and how it is answered: the border between protocols and the cache.
//!
//! A volume is an [`Export`]; whatever else answers requests can be one too:
//!
//! ```
//! use flashwise_engine::export::{Done, Error, Export, Extent, Operation, Request};
//!
//! /// A disk of 1 MiB that reads as zeroes and cannot be written.
//! struct Zeroes;
//!
//! impl Export for Zeroes {
//!     fn size(&self) -> u64 {
//!         1 << 20
//!     }
//!
//!     fn submit(&self, request: Request, done: Done) {
//!         done(match request.operation {
//!             Operation::Read => Ok(vec![0; request.length as usize]),
//!             _ => Err(Error::NotPermitted),
//!         });
//!     }
//!
//!     fn extents(&self, _offset: u64, length: u64, _extents_max: usize) -> Result<Vec<Extent>, Error> {
//!         Ok(vec![Extent { length, hole: true, zero: true }])
//!     }
//! }
//!
//! let (answer, answered) = std::sync::mpsc::channel();
//! let read = Request {
//!     operation: Operation::Read,
//!     offset: 4096,
//!     length: 512,
//!     force_unit_access: false,
//!     data: Vec::new(),
//!     caching: Default::default(),
//! };
//! Zeroes.submit(read, Box::new(move |result| answer.send(result).unwrap()));
//! assert_eq!(answered.recv().unwrap(), Ok(vec![0; 512]));
//! ```

mod claims;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::time::RwLock;
use flashwise_core::filter::{Caching, Client};
use flashwise_core::recording;

pub use claims::{Claim, Claimable};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes durable all that was written, zeroed and trimmed, and answered, before this request came. Offset and length are 0.
    Flush,
    /// Gives bytes up: they read as zeroes or as before.
    Trim,
    /// Makes bytes read as zeroes.
    WriteZeroes {
        /// True if the space may be given back to the backend.
        may_punch_holes: bool,
        /// Whether to fail with [`Error::NotSupported`] where this is not faster than writing zeroes.
        only_if_fast: bool,
    },
    /// Brings bytes into the cache, ahead of reads.
    Cache,
}

impl Operation {
    /// What a recording and the status call it.
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

/// A request to an export. Its range was checked against the export's size by the front end.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// True if what it changes must be durable before it is answered: not of a flush.
    pub force_unit_access: bool,
    /// The bytes to write, `length` of them; empty for other operations.
    pub data: Vec<u8>,
    /// What the I/O filter says of the client.
    pub caching: Caching,
}

impl Request {
    /// A flush as a client asks for it.
    pub(crate) fn flush() -> Request {
        let (operation, caching) = (Operation::Flush, Caching::Usual);
        Request { operation, offset: 0, length: 0, force_unit_access: false, data: Vec::new(), caching }
    }

    /// True if it changes what is stored.
    pub(crate) fn changes(&self) -> bool {
        matches!(self.operation, Operation::Write | Operation::Trim | Operation::WriteZeroes { .. })
    }

    /// True if it is a flush as a client asked for it, and was not begun before: one that was has to be durable itself.
    pub(crate) fn is_flush(&self) -> bool {
        self.operation == Operation::Flush && !self.force_unit_access
    }

    /// True if it is answered once something is durable.
    pub(crate) fn makes_durable(&self) -> bool {
        self.operation == Operation::Flush || self.force_unit_access && self.operation != Operation::Read
    }

    /// Has bytes from `offset` on be what this change, of those that it is about, makes them.
    pub(crate) fn put_over(&self, offset: u64, bytes: &mut [u8]) {
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

    /// True if it changes bytes that `other` is about.
    pub(crate) fn changes_part_of(&self, other: &Request) -> bool {
        self.changes() && self.offset < other.offset + other.length && other.offset < self.offset + self.length
    }
}

/// Why a request failed. A front end translates it to its protocol's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Writing to a read-only export.
    #[error("not permitted")]
    NotPermitted,
    /// A device failed, or the only copy of the data was lost.
    #[error("input/output error")]
    Io,
    /// Memory ran out.
    #[error("out of memory")]
    OutOfMemory,
    /// The request makes no sense.
    #[error("invalid argument")]
    Invalid,
    /// The backend is full, or the request ends past the export's end.
    #[error("no space left")]
    NoSpace,
    /// The export cannot do this.
    #[error("not supported")]
    NotSupported,
    /// The server is shutting down.
    #[error("shutting down")]
    ShuttingDown,
}

/// What clients are told of a device's failure: that it is full, or no more than that it failed.
impl From<&std::io::Error> for Error {
    fn from(error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace,
            _ => Error::Io,
        }
    }
}

/// Takes the answer of a request: the bytes that were read (none for other operations), or why it failed. May be called on any
/// thread, before or after [`Export::submit`] returns, once.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, Error>) + Send>;

/// Bytes that are alike in how they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of bytes.
    pub length: u64,
    /// True if they have no space allocated.
    pub hole: bool,
    /// True if they read as zeroes.
    pub zero: bool,
}

/// A client that has an export open, as the export knows it.
#[derive(Debug, Default)]
pub struct Guest {
    client: Client,
    /// The number of its [`Caching`].
    caching: AtomicU8,
}

impl Guest {
    /// A client and what the I/O filter says of it.
    pub fn new(client: Client, caching: Caching) -> Guest {
        Guest { client, caching: AtomicU8::new(caching.number()) }
    }

    /// Tells the log what became of it.
    pub fn tell(&self, what: &str) {
        let Client { export, protocol, address, initiator, .. } = &self.client;
        tracing::debug!(export, protocol, ?address, ?initiator, "{what}");
    }

    /// What is known of it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the I/O filter says of it now: what its next request carries.
    pub fn caching(&self) -> Caching {
        Caching::of_number(self.caching.load(Ordering::Relaxed)).expect("it is the number of one")
    }

    /// Changes that, for requests that come from now on.
    pub fn set_caching(&self, caching: Caching) {
        self.caching.store(caching.number(), Ordering::Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.tell("a client has gone");
    }
}

/// Something that clients read and write like a disk.
pub trait Export: Send + Sync {
    /// Size in bytes; may change while the export is in use.
    fn size(&self) -> u64;

    /// True if it cannot be written.
    fn read_only(&self) -> bool {
        false
    }

    /// A line for people.
    fn description(&self) -> String {
        String::new()
    }

    /// What tells it from all others, wherever they are, where that is known: the same as long as its content is.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// Smallest, preferred and largest request in bytes; the first two are powers of two.
    fn block_sizes(&self) -> (u32, u32, u32) {
        (1, 4096, 32 << 20)
    }

    /// Aligned trims of so many bytes, a power of two, give space back.
    fn trim_granularity(&self) -> u32 {
        4096
    }

    /// Takes note of a client that opens it, for as long as that keeps what is returned. By default all clients are alike.
    fn enter(&self, client: Client) -> Arc<Guest> {
        Arc::new(Guest::new(client, Caching::Usual))
    }

    /// Starts a request. Requests that overlap are performed in the order in which they were submitted.
    fn submit(&self, request: Request, done: Done);

    /// As [`submit`](Self::submit), from a thread that has nothing else to do until the answer comes. So this may wait for a device that is
    /// quick, which spares waking other threads; never for slow storage. Returns whether it did.
    fn submit_and_wait(&self, request: Request, done: Done) -> bool {
        self.submit(request, done);
        false
    }

    /// How the bytes from `offset` are stored: at least one and at most `extents_max` extents, which together cover at most
    /// `length` bytes.
    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error>;
}

/// The exports that clients can open, by name. Clones share the same table.
#[derive(Clone, Default)]
pub struct Exports {
    by_name: Arc<RwLock<BTreeMap<String, Entry>>>,
}

struct Entry {
    export: Arc<Claimable>,
    /// True if the name is one more of an export that has another.
    is_alias: bool,
}

impl Exports {
    /// Adds an export; returns whether the name was free.
    pub fn add(&self, name: &str, export: Arc<dyn Export>) -> bool {
        self.insert(name, export, false)
    }

    /// Adds a further name of an export that has one; returns whether it was free.
    pub fn add_alias(&self, name: &str, export: Arc<dyn Export>) -> bool {
        self.insert(name, export, true)
    }

    /// Takes an export away; those who have it open keep it.
    pub fn remove(&self, name: &str) {
        let mut by_name = self.by_name.write();
        let Some(Entry { export, .. }) = by_name.remove(name) else { return };
        if by_name.values().all(|entry| !Arc::ptr_eq(&entry.export, &export)) {
            export.withdraw();
        }
    }

    fn insert(&self, name: &str, export: Arc<dyn Export>, is_alias: bool) -> bool {
        let mut by_name = self.by_name.write();
        if by_name.contains_key(name) {
            return false;
        }
        // Claims are on an export, whatever the name.
        let is_it = |entry: &&Entry| Arc::ptr_eq(entry.export.export(), &export);
        let known = by_name.values().find(is_it).map(|entry| Arc::clone(&entry.export));
        let export = known.unwrap_or_else(|| Arc::new(Claimable::new(export)));
        by_name.insert(name.to_owned(), Entry { export, is_alias });
        true
    }

    /// The export of this name, and the name. The empty name means the only export, if there is just one.
    pub fn find(&self, name: &str) -> Option<(String, Arc<Claimable>)> {
        let by_name = self.by_name.read();
        if let Some(entry) = by_name.get(name) {
            return Some((name.to_owned(), entry.export.clone()));
        }
        let mut named = by_name.iter().filter(|(_, entry)| !entry.is_alias);
        match (named.next(), named.next()) {
            (Some((only, entry)), None) if name.is_empty() => Some((only.clone(), entry.export.clone())),
            _ => None,
        }
    }

    /// The name of an export, which is not one more that it has.
    pub fn name_of(&self, export: &Arc<Claimable>) -> Option<String> {
        let by_name = self.by_name.read();
        let is_it = |entry: &Entry| !entry.is_alias && Arc::ptr_eq(&entry.export, export);
        by_name.iter().find(|(_, entry)| is_it(entry)).map(|(name, _)| name.clone())
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }
}
