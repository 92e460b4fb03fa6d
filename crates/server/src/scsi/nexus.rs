//! An initiator as a logical unit knows it: SAM-5 calls the two together an I_T nexus.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most unit attentions that wait for one initiator; later ones of the same kind change nothing.
const ATTENTIONS_MAX: usize = 8;

/// Names an initiator port: reservations hold for it, also after it has gone and come again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InitiatorPort {
    /// Its transport ID (SPC-4, section 7.6.4), which other initiators are told: for iSCSI, the name and the ISID.
    pub transport_id: Vec<u8>,
}

/// A session of an initiator with a logical unit.
#[derive(Debug)]
pub struct Nexus {
    port: InitiatorPort,
    /// Whether it may read only.
    read_only: bool,
    attentions: Mutex<VecDeque<u16>>,
    /// Whether there are any, without the lock.
    attends: AtomicBool,
    known_bytes: AtomicU64,
    /// How often its commands were aborted.
    aborts: AtomicU64,
}

impl Nexus {
    /// A new session of `port`, which knows that the unit has `size` bytes.
    pub fn new(port: InitiatorPort, read_only: bool, size: u64) -> Nexus {
        Nexus {
            port,
            read_only,
            attentions: Mutex::default(),
            attends: AtomicBool::new(false),
            known_bytes: AtomicU64::new(size),
            aborts: AtomicU64::new(0),
        }
    }

    /// Whose it is.
    pub fn port(&self) -> &InitiatorPort {
        &self.port
    }

    /// Whether it may read only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Lets the next command fail with a unit attention of this code, once.
    pub fn attend(&self, code: u16) {
        let mut attentions = self.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if !attentions.contains(&code) && attentions.len() < ATTENTIONS_MAX {
            attentions.push_back(code);
        }
        self.attends.store(true, Ordering::Release);
    }

    /// The oldest unit attention, which is then forgotten.
    pub fn take_attention(&self) -> Option<u16> {
        if !self.attends.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        let code = attentions.pop_front();
        self.attends.store(!attentions.is_empty(), Ordering::Release);
        code
    }

    /// How often its commands were aborted: one that began before the last time is not answered.
    pub fn aborts(&self) -> u64 {
        self.aborts.load(Ordering::Acquire)
    }

    /// Aborts its commands.
    pub fn abort(&self) {
        self.aborts.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes the unit's size; returns whether it was another one.
    pub fn notice_size(&self, size: u64) -> bool {
        self.known_bytes.load(Ordering::Relaxed) != size && self.known_bytes.swap(size, Ordering::Relaxed) != size
    }
}
