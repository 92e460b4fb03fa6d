//! The behaviour of the engine, besides the configuration of the cache.

use std::time::Duration;

#[cfg(doc)]
use super::Output;

/// A planted bug, so that tests can show that they find it. Never in service.
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
    /// The places of a refused first write stay allocated.
    KeepsRefusedPlaces,
    /// With write-back in order, the zeroes of a new chunk are written back in order, too.
    ZeroesInOrder,
    /// With write-back in order, the map has no longer a chunk that is about to be trimmed.
    TrimsAtOnce,
    /// With write-back in order, the map has the new place of a chunk before its disk has the copy.
    MovesAhead,
    /// With write-back in order, a released chunk is reused although versions of it wait for write-back.
    ReusesAtOnce,
}

/// The behaviour of the engine, besides the configuration of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The first 8 bytes of the cache's UUID.
    pub cache: u64,
    /// The number of immediate retries of a failed transfer.
    pub retries: u8,
    /// The number of later retries of a read from flash whose data is about to be moved. After the last one it counts
    /// as lost.
    pub patience: u8,
    /// True if requests that fail with a device are [handed back](Output::held) rather than answered.
    pub holds_failed: bool,
    /// True if flushes are answered without being done. For tests, and for data that may be lost.
    pub answers_flushes_at_once: bool,
    /// A bug to plant.
    pub planted: Option<Bug>,
    /// True if all data is zeroes, which then takes no memory. For simulations.
    pub blank: bool,
    /// Log: the epoch of its segments.
    pub epoch: u64,
    /// Log: true with a real clock. Then answers pause as the cache requests, and segments omit late blocks.
    pub pauses: bool,
    /// Log: true if units are discarded when they are reset.
    pub discard: bool,
    /// Log: the number of write streams of the flash.
    pub write_streams: u8,
    /// Log: frames beyond those of the cache, so that quick steps need not wait for slow ones.
    pub spare_frames: u32,
    /// Buckets: the number of this start of the cache.
    pub start: u64,
    /// Buckets: the number of recoveries since that start.
    pub found_again: u32,
    /// Buckets: the time until a bucket is read again that could not be read during a recovery.
    pub read_pause: Duration,
    /// Buckets: true if they are zones.
    pub zoned: bool,
    /// Buckets: true if write-back leaves out unreadable blocks, rather than stop. Only where the result is checked.
    pub skips_bad: bool,
}
