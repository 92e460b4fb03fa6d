//! The interface between protocol front ends and volumes: requests and their results.
//!
//! A volume is an [`Export`]. Anything else that serves requests can implement it, too:
//!
//! ```
//! use flashwise_storage::export::{Done, Error, Export, Extent, Operation, Request};
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::time::RwLock;
use flashwise_core::filter::{Caching, Client};
pub use flashwise_engine::request::{Done, Error, Operation, Request};

pub use claims::{Claim, Claimable};

/// Adjacent bytes that are stored in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of bytes.
    pub length: u64,
    /// True if no space is allocated for them.
    pub hole: bool,
    /// True if they read as zeroes.
    pub zero: bool,
}

/// A client of an export.
#[derive(Debug, Default)]
pub struct Guest {
    client: Client,
    /// The number of its [`Caching`].
    caching: AtomicU8,
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The requests of a client since it opened the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// Requests of all kinds.
    pub requests: u64,
    /// Bytes that it asked to read.
    pub read_bytes: u64,
    /// Bytes that it asked to write.
    pub written_bytes: u64,
}

impl Guest {
    /// Creates a client with its setting in the I/O filter.
    pub fn new(client: Client, caching: Caching) -> Guest {
        Guest {
            client,
            caching: AtomicU8::new(caching.number()),
            requests: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Counts a request of it.
    pub fn count(&self, request: &Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = match request.operation {
            Operation::Read => &self.read_bytes,
            Operation::Write => &self.written_bytes,
            _ => return,
        };
        bytes.fetch_add(request.length, Ordering::Relaxed);
    }

    /// Its requests so far.
    pub fn requested(&self) -> Requested {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [requests, read_bytes, written_bytes] = [&self.requests, &self.read_bytes, &self.written_bytes].map(of);
        Requested { requests, read_bytes, written_bytes }
    }

    /// Logs an event of the client.
    pub fn tell(&self, what: &str) {
        let Client { export, protocol, address, initiator, .. } = &self.client;
        tracing::debug!(event = "client", export, protocol, ?address, ?initiator, "{what}");
    }

    /// The client's description.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The current setting in the I/O filter, which applies to the next request.
    pub fn caching(&self) -> Caching {
        Caching::of_number(self.caching.load(Ordering::Relaxed)).expect("it is the number of one")
    }

    /// Changes the setting for later requests.
    pub fn set_caching(&self, caching: Caching) {
        self.caching.store(caching.number(), Ordering::Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.tell("a client has gone");
    }
}

/// A device that clients read and write.
pub trait Export: Send + Sync {
    /// Size in bytes; may change while the export is in use.
    fn size(&self) -> u64;

    /// True if it is read-only.
    fn read_only(&self) -> bool {
        false
    }

    /// A description for users, in one line.
    fn description(&self) -> String {
        String::new()
    }

    /// The globally unique identity of the content, if known.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// Smallest, preferred and largest request in bytes; the first two are powers of two.
    fn block_sizes(&self) -> (u32, u32, u32) {
        (1, 4096, 32 << 20)
    }

    /// Aligned trims of this many bytes, a power of two, free space.
    fn trim_granularity(&self) -> u32 {
        4096
    }

    /// Registers a client until the returned value is dropped. By default, all clients are treated the same.
    fn enter(&self, client: Client) -> Arc<Guest> {
        Arc::new(Guest::new(client, Caching::Usual))
    }

    /// Starts a request. Overlapping requests are performed in the order of submission.
    fn submit(&self, request: Request, done: Done);

    /// Like [`submit`](Self::submit), from a thread that only waits for the result. So it may wait for a fast device
    /// or for the page cache, to avoid wakeups of other threads, but never for slow storage. True if it waited.
    fn submit_and_wait(&self, request: Request, done: Done) -> bool {
        self.submit(request, done);
        false
    }

    /// Returns how the bytes from `offset` are stored: between 1 and `extents_max` extents. Together they cover at most
    /// `length` bytes.
    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error>;
}

/// The exports that clients can open, by name. Clones share one table.
#[derive(Clone, Default)]
pub struct Exports {
    by_name: Arc<RwLock<BTreeMap<String, ExportEntry>>>,
}

struct ExportEntry {
    export: Arc<Claimable>,
    /// True if the name is an additional one.
    is_alias: bool,
}

impl Exports {
    /// Adds an export. Returns false if the name is in use.
    pub fn add(&self, name: &str, export: Arc<dyn Export>) -> bool {
        self.insert(name, export, false)
    }

    /// Adds another name of an export. Returns false if the name is in use.
    pub fn add_alias(&self, name: &str, export: Arc<dyn Export>) -> bool {
        self.insert(name, export, true)
    }

    /// Removes an export. Clients that have it open keep it.
    pub fn remove(&self, name: &str) {
        let mut by_name = self.by_name.write();
        let Some(ExportEntry { export, .. }) = by_name.remove(name) else { return };
        if by_name.values().all(|entry| !Arc::ptr_eq(&entry.export, &export)) {
            export.withdraw();
        }
    }

    fn insert(&self, name: &str, export: Arc<dyn Export>, is_alias: bool) -> bool {
        let mut by_name = self.by_name.write();
        if by_name.contains_key(name) {
            return false;
        }
        // Claims belong to an export, regardless of its names.
        let is_it = |entry: &&ExportEntry| Arc::ptr_eq(entry.export.export(), &export);
        let known = by_name.values().find(is_it).map(|entry| Arc::clone(&entry.export));
        let export = known.unwrap_or_else(|| Arc::new(Claimable::new(export)));
        by_name.insert(name.to_owned(), ExportEntry { export, is_alias });
        true
    }

    /// Finds an export by name, and returns its name. The empty name stands for the only export, if there is exactly
    /// one.
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

    /// Returns the name of an export, not an additional one.
    pub fn name_of(&self, export: &Arc<Claimable>) -> Option<String> {
        let by_name = self.by_name.read();
        let is_it = |entry: &ExportEntry| !entry.is_alias && Arc::ptr_eq(&entry.export, export);
        by_name.iter().find(|(_, entry)| is_it(entry)).map(|(name, _)| name.clone())
    }

    /// Returns all names, in order.
    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }
}
