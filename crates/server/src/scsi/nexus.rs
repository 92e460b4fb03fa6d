//! An initiator as a logical unit sees it. SAM-5 calls the pair an I_T nexus.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum number of pending unit attentions of an initiator.
const ATTENTIONS_MAX: usize = 8;

/// Identifies an initiator port. Reservations belong to it and survive its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InitiatorPort {
    /// Its transport ID (SPC-4, section 7.6.4), which other initiators can read. For iSCSI: the name and the ISID.
    pub transport_id: Vec<u8>,
}

/// Progress of a copy.
#[derive(Debug, Default)]
pub struct CopyState {
    /// 0 while it runs, 1 after success, 2 after failure (SPC-4, table 225).
    status: AtomicU8,
    segments: AtomicU16,
    bytes: AtomicU64,
}

impl CopyState {
    /// Returns its status, the copied segments, and the copied bytes.
    pub fn get(&self) -> (u8, u16, u64) {
        let status = self.status.load(Ordering::Acquire);
        (status, self.segments.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Adds copied bytes, and a segment if it is complete.
    pub fn copied(&self, bytes: u64, ends_segment: bool) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.segments.fetch_add(ends_segment.into(), Ordering::Relaxed);
    }

    /// Ends it.
    pub fn end(&self, is_good: bool) {
        self.status.store(if is_good { 1 } else { 2 }, Ordering::Release);
    }
}

/// Maximum number of copies of one session whose states are kept.
const COPIES_MAX: usize = 16;

/// A session of an initiator with a logical unit.
#[derive(Debug)]
pub struct Nexus {
    port: InitiatorPort,
    /// True if it may only read.
    read_only: bool,
    attentions: Mutex<VecDeque<u16>>,
    /// True if there are unit attentions; read without the lock.
    attends: AtomicBool,
    known_bytes: AtomicU64,
    /// Number of aborts of its commands.
    aborts: AtomicU64,
    /// Copies by their list identifiers, the oldest first.
    copies: Mutex<VecDeque<(u8, Arc<CopyState>)>>,
}

impl Nexus {
    /// Creates a session of `port` with a unit of `size` bytes.
    pub fn new(port: InitiatorPort, read_only: bool, size: u64) -> Nexus {
        Nexus {
            port,
            read_only,
            attentions: Mutex::default(),
            attends: AtomicBool::new(false),
            known_bytes: AtomicU64::new(size),
            aborts: AtomicU64::new(0),
            copies: Mutex::default(),
        }
    }

    /// Returns its initiator port.
    pub fn port(&self) -> &InitiatorPort {
        &self.port
    }

    /// True if it may only read.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Makes the next command fail with a unit attention of this code, once.
    pub fn attend(&self, code: u16) {
        let mut attentions = self.attentions.lock();
        if !attentions.contains(&code) && attentions.len() < ATTENTIONS_MAX {
            attentions.push_back(code);
        }
        self.attends.store(true, Ordering::Release);
    }

    /// Removes and returns the oldest unit attention.
    pub fn take_attention(&self) -> Option<u16> {
        if !self.attends.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions.lock();
        let code = attentions.pop_front();
        self.attends.store(!attentions.is_empty(), Ordering::Release);
        code
    }

    /// Returns the number of aborts. A command that started before the last one gets no reply.
    pub fn aborts(&self) -> u64 {
        self.aborts.load(Ordering::Acquire)
    }

    /// Aborts its commands.
    pub fn abort(&self) {
        self.aborts.fetch_add(1, Ordering::AcqRel);
    }

    /// Keeps the state of a copy, replacing an older one with this list identifier.
    pub fn keep_copy(&self, id: u8, state: &Arc<CopyState>) {
        let mut copies = self.copies.lock();
        copies.retain(|(other, _)| *other != id);
        if copies.len() == COPIES_MAX {
            copies.pop_front();
        }
        copies.push_back((id, Arc::clone(state)));
    }

    /// Returns the state of a copy.
    pub fn copy(&self, id: u8) -> Option<Arc<CopyState>> {
        let copies = self.copies.lock();
        copies.iter().find(|(other, _)| *other == id).map(|(_, state)| Arc::clone(state))
    }

    /// Records the unit's size; true if it changed.
    pub fn notice_size(&self, size: u64) -> bool {
        self.known_bytes.load(Ordering::Relaxed) != size && self.known_bytes.swap(size, Ordering::Relaxed) != size
    }
}
