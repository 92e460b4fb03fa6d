//! How the engine behaves, beyond the cache's own configuration.

#[cfg(doc)]
use super::{Engine, Output};

/// A bug to plant, so that tests can show that they find it. Never in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A read that waits for a failed write does not get the content from memory.
    ForgetsContent,
    /// Readers see a write that goes only to the backend before the backend has it.
    ShowsRefusedWrites,
    /// The zeroes of a new chunk are submitted together with its data.
    ZeroesBesideData,
    /// A detach drops the data that only memory has, if the backend refuses it.
    DropsRefusedData,
    /// A detach begins while another one is under way.
    DetachesTwice,
    /// Requests to buckets that failed with the flash, and wait until nothing runs, are forgotten.
    ForgetsHeldRequests,
    /// The places of a refused first write stay taken.
    KeepsRefusedPlaces,
}

/// How the engine behaves, beyond the cache's own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// First 8 bytes of the cache's UUID.
    pub cache: u64,
    /// The epoch of what is written.
    pub epoch: u64,
    /// How many times a transfer that fails is tried again.
    pub retries: u8,
    /// How many times a dirty block that is about to be moved and cannot be read is read again, whenever
    /// [`read_again`](Engine::read_again) says so, before it counts as lost.
    pub patience: u8,
    /// True if requests that fail once the flash has failed are [handed back](Output::held) rather than answered.
    pub holds_failed: bool,
    /// True if times are those of a clock: answers are held back as the cache asks, and segments go without what is late.
    pub pauses: bool,
    /// True if units are discarded when they are reset.
    pub discard: bool,
    /// How many [write streams](crate::disk::Disk::write_streams) the flash has.
    pub write_streams: u8,
    /// Frames beyond the cache's own, so that quick steps need not wait for slow ones: about as many as blocks may be under way.
    pub spare_frames: u32,
    /// Answers flushes, and writes that must be durable, as soon as they come: shows that tests would find it. Never in service.
    pub answers_flushes_at_once: bool,
    /// A bug to plant.
    pub planted: Option<Bug>,
}
