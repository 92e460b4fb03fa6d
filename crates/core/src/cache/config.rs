//! The configuration of a cache.

use std::fmt;
use std::str::FromStr;

use super::PIECE_BLOCKS;
use super::destage::DESTAGING_BLOCKS_MAX;
use crate::admission::{self, Admission, Setting};
use crate::format::{BLOCK_BYTES, Geometry};
use crate::journal::Journal;
use crate::policy::Spec;
use crate::quantity::Share;
use crate::tiers::Array;

/// Number of free units below which the oldest unit is reset.
pub(super) const RESERVE_UNITS: u32 = 4;

crate::words! {
    /// The time when written data reaches the backend.
    pub enum Mode {
        /// Later: it is in RAM, then on flash, until the cleaner writes it back.
        WriteBack "write-back",
        /// Before the reply; admitted blocks go to flash as well.
        WriteThrough "write-through",
        /// Before the reply, and not to flash.
        WriteAround "write-around",
    }

    /// The order in which dirty data is written back.
    #[derive(Default)]
    pub enum WriteBackOrder {
        /// None: without its flash, the backend has a mixture of old and new blocks.
        #[default]
        None "none",
        /// That of [epochs](crate::epochs), with a flush of the backend after each.
        Barriers "barriers",
        /// The same, and several epochs at once by way of a [journal](crate::journal).
        Journal "journal",
    }
}

/// The clean blocks of a unit that are copied forward before its reset, if the policy still wants them. Other clean
/// blocks leave the policy. Dirty blocks are always copied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CopyForward {
    /// All of them.
    All,
    /// Those accessed again since they were admitted or last copied. If nearly half of the unit's blocks were, only
    /// those accessed twice.
    #[default]
    Used,
    /// Those in this share of the policy's queues, 0 to 1, from the most recently used end.
    Young(f64),
    /// None.
    None,
}

impl CopyForward {
    /// Returns the [young](crate::policy::Policy::set_young) share of the policy's queues.
    pub(super) fn young_share(self) -> f64 {
        match self {
            CopyForward::Young(share) => share,
            CopyForward::All | CopyForward::Used | CopyForward::None => 0.0,
        }
    }
}

impl fmt::Display for CopyForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyForward::All => f.write_str("all"),
            CopyForward::Used => f.write_str("used"),
            CopyForward::Young(share) => write!(f, "young:{}", Share::new(*share).unwrap_or(Share::WHOLE)),
            CopyForward::None => f.write_str("none"),
        }
    }
}

impl FromStr for CopyForward {
    type Err = String;

    fn from_str(text: &str) -> Result<CopyForward, String> {
        let share = || text.strip_prefix("young:")?.parse().ok().map(Share::of_one);
        match (text, share()) {
            ("all", _) => Ok(CopyForward::All),
            ("used", _) => Ok(CopyForward::Used),
            ("none", _) => Ok(CopyForward::None),
            (_, Some(share)) if share > 0.0 => Ok(CopyForward::Young(share)),
            _ => Err(format!(
                "found '{text}', expected used, all, none or young:SHARE, above 0% and up to 100%: young:50%"
            )),
        }
    }
}

/// Regions of the backend that are recorded on flash as unsure while their blocks are overwritten past the flash. A
/// crash invalidates their clean copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Blocks of a region.
    pub blocks: u32,
    /// Time without overwrites after which a region is sure again.
    pub sure_after_us: u64,
    /// Maximum number of unsure regions; beyond it, the one overwritten longest ago becomes sure.
    pub unsure_max: u32,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { blocks: 4096, sure_after_us: 5_000_000, unsure_max: 1024 }
    }
}

/// Returns `rule` for a cache on a flash of `geometry`, with devices as in `array` and storage of this many bytes.
pub fn admission(rule: admission::Spec, array: &Array, geometry: &Geometry, storage_bytes: u64) -> Admission {
    let block_bytes = BLOCK_BYTES as u64;
    let flash_bytes = u64::from(geometry.pages()) * block_bytes;
    Admission { rule, setting: Setting::of(array, block_bytes, flash_bytes as f64, storage_bytes as f64) }
}

/// The configuration of a cache. [`settings`](super::settings) names the parts that users can set.
#[derive(Clone, Debug)]
pub struct Config {
    /// The division of the flash device.
    pub geometry: Geometry,
    /// Maximum number of blocks in a segment of the log, at most [`RECORDS_PER_PAGE`](crate::format::RECORDS_PER_PAGE),
    /// the best value; less is for tests.
    pub segment_blocks: u32,
    /// The policy of the flash cache.
    pub policy: Spec,
    /// The admission rule in front of it, if any.
    pub admission: Option<Admission>,
    /// The time when written data reaches the backend.
    pub mode: Mode,
    /// The order in which dirty data is written back.
    pub order: WriteBackOrder,
    /// The journal of [`WriteBackOrder::Journal`]. Without one, epochs are written back in turn.
    pub journal: Option<Journal>,
    /// The time 0 of events, in microseconds since 1970; 0 if that is unknown. Ends of epochs are recorded with it.
    pub unix_us: u64,
    /// Blocks of the read buffer in RAM, 0 for none.
    pub read_buffer_blocks: u32,
    /// Blocks of the write buffer in RAM, 0 for none.
    pub write_buffer_blocks: u32,
    /// Half-life of frequencies in the write buffer, in multiples of its blocks; 0 for no decay, as in the paper.
    pub write_buffer_half_life: u32,
    /// Share of the log's data pages that the policy may not fill, so that units with few live blocks exist.
    pub over_provision: f64,
    /// The clean blocks that are copied forward before a unit's reset.
    pub copy_forward: CopyForward,
    /// Share of dirty data pages in the log above which the cleaner starts.
    pub dirty_high: f64,
    /// Share at which the cleaner stops.
    pub dirty_low: f64,
    /// Age above which the cleaner writes dirty blocks back.
    pub dirty_age_us: u64,
    /// Maximum time that written data stays in RAM.
    pub commit_age_us: u64,
    /// Length at which a sequential stream bypasses the flash; 0 for never.
    pub sequential_blocks: u32,
    /// Regions that are unsure during overwrites past the flash.
    pub regions: Regions,
}

/// Maximum number of writes in progress past the flash, in addition to the capacity of the write buffer.
pub(super) const BESIDE_BUFFER_BLOCKS: u32 = 2 * PIECE_BLOCKS;

impl Config {
    /// Returns the data pages of the log.
    pub fn data_pages(&self) -> u64 {
        u64::from(self.geometry.log_units()) * u64::from(self.geometry.unit_data_pages(self.segment_blocks))
    }

    /// Returns the blocks that the policy may hold on flash.
    pub fn capacity_blocks(&self) -> usize {
        let usable = self.usable_pages();
        ((usable as f64 * (1.0 - self.over_provision)) as usize).max(1)
    }

    /// Returns the data pages that can be live at once, while units are being reset.
    fn usable_pages(&self) -> u64 {
        let units = self.geometry.log_units() - RESERVE_UNITS - 2;
        u64::from(units) * u64::from(self.geometry.unit_data_pages(self.segment_blocks))
    }

    pub(super) fn dirty_max(&self) -> u64 {
        self.usable_pages() * 3 / 4
    }

    /// Returns the number of frames in a cache's steps, each of one block.
    pub fn frame_count(&self) -> u32 {
        self.working_frames() + DESTAGING_BLOCKS_MAX
    }

    pub(super) fn working_frames(&self) -> u32 {
        let segment = self.geometry.segments_end().min(self.segment_blocks);
        let past = if self.write_buffer_blocks > 0 { BESIDE_BUFFER_BLOCKS } else { 0 };
        // A request's pieces, their old contents, and slack so that frames rest before reuse.
        self.read_buffer_blocks + self.write_buffer_blocks + past + 2 * segment + 8 * PIECE_BLOCKS
    }
}
