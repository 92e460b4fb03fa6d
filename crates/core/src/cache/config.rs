//! What a cache is made of.

use std::fmt;
use std::str::FromStr;

use super::past::BESIDE_BUFFER_BLOCKS;
use super::{DESTAGING_BLOCKS_MAX, PIECE_BLOCKS};
use crate::admission::{self, Admission, Setting};
use crate::format::{BLOCK_BYTES, Geometry};
use crate::options::word;
use crate::policy::Spec;
use crate::quantity::Share;
use crate::tiers::Array;

/// Free units below which the oldest unit is reset.
pub(super) const RESERVE_UNITS: u32 = 4;

/// When written data reaches the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Later: it is in RAM, then on flash, until the cleaner writes it back.
    WriteBack,
    /// Before the write is answered; what the policy admits goes to flash as well.
    WriteThrough,
    /// Before the write is answered, and not to flash.
    WriteAround,
}

impl Mode {
    /// The modes by the names that users know them by.
    pub const NAMES: [(&str, Mode); 3] =
        [("write-back", Mode::WriteBack), ("write-through", Mode::WriteThrough), ("write-around", Mode::WriteAround)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Mode, String> {
        word(name, &Mode::NAMES)
    }
}

/// Which clean blocks of a unit that is to be reset are copied forward, if the policy still wants them. What is not leaves the policy. Dirty
/// blocks always are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CopyForward {
    /// All of them.
    All,
    /// Those that were asked for again since they were admitted or last copied; of a unit of which nearly half were, only those that
    /// were twice.
    #[default]
    Used,
    /// Those in so large a part of the policy's queues, 0 to 1, from the end of what was used last.
    Young(f64),
    /// None.
    None,
}

impl CopyForward {
    /// How much of the policy's queues is to be [young](crate::policy::Policy::set_young).
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

/// Regions of the backend that are said on flash to be unsure while blocks of them are overwritten past the flash: after a crash, their
/// clean copies are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Blocks of a region.
    pub blocks: u32,
    /// A region is sure again when nothing of it was overwritten for so long.
    pub sure_after_us: u64,
    /// This many are unsure at a time, at most; then the one that was overwritten longest ago is sure again.
    pub unsure_max: u32,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { blocks: 4096, sure_after_us: 5_000_000, unsure_max: 1024 }
    }
}

/// `rule` for a cache on a flash of `geometry`, with devices as those of `array` and storage of this many bytes.
pub fn admission(rule: admission::Spec, array: &Array, geometry: &Geometry, storage_bytes: u64) -> Admission {
    let block_bytes = BLOCK_BYTES as u64;
    let flash_bytes = u64::from(geometry.pages()) * block_bytes;
    Admission { rule, setting: Setting::of(array, block_bytes, flash_bytes as f64, storage_bytes as f64) }
}

/// What a cache is made of. [`settings`](super::settings) names what users may choose of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the flash device is divided.
    pub geometry: Geometry,
    /// Most blocks in a segment of the log, at most [`RECORDS_PER_PAGE`](crate::format::RECORDS_PER_PAGE), which is best: less is for tests.
    pub segment_blocks: u32,
    /// The policy that decides what is kept on flash.
    pub policy: Spec,
    /// What stands in front of it, if anything does.
    pub admission: Option<Admission>,
    /// When written data reaches the backend.
    pub mode: Mode,
    /// Blocks of the read buffer in RAM, 0 for none.
    pub read_buffer_blocks: u32,
    /// Blocks of the write buffer in RAM, 0 for none.
    pub write_buffer_blocks: u32,
    /// Frequencies in the write buffer count half each time that this many times as many blocks were written as it holds; 0 for never, as in
    /// the paper.
    pub write_buffer_half_life: u32,
    /// Share of the log's data pages that the policy may not fill, so that units with few live blocks can be found.
    pub over_provision: f64,
    /// What is copied forward of a unit that is to be reset.
    pub copy_forward: CopyForward,
    /// The cleaner begins when more than this share of the log's data pages is dirty.
    pub dirty_high: f64,
    /// The cleaner stops at this share.
    pub dirty_low: f64,
    /// The cleaner writes back what has been dirty for longer than this.
    pub dirty_age_us: u64,
    /// Written data stays in RAM no longer than this.
    pub commit_age_us: u64,
    /// A sequential stream bypasses the flash once it is this long; 0 for never.
    pub sequential_blocks: u32,
    /// Regions that are unsure while they are overwritten past the flash.
    pub regions: Regions,
}

impl Config {
    /// Data pages of the log.
    pub fn data_pages(&self) -> u64 {
        u64::from(self.geometry.log_units()) * u64::from(self.geometry.unit_data_pages(self.segment_blocks))
    }

    /// Blocks that the policy may hold on flash.
    pub fn capacity_blocks(&self) -> usize {
        let usable = self.usable_pages();
        ((usable as f64 * (1.0 - self.over_provision)) as usize).max(1)
    }

    /// Data pages that can be live at the same time while units are being reset.
    fn usable_pages(&self) -> u64 {
        let units = self.geometry.log_units() - RESERVE_UNITS - 2;
        u64::from(units) * u64::from(self.geometry.unit_data_pages(self.segment_blocks))
    }

    pub(super) fn dirty_max(&self) -> u64 {
        self.usable_pages() * 3 / 4
    }

    /// Frames of a block each that the steps of a cache refer to.
    pub fn frame_count(&self) -> u32 {
        self.working_frames() + DESTAGING_BLOCKS_MAX
    }

    pub(super) fn working_frames(&self) -> u32 {
        let segment = self.geometry.segments_end().min(self.segment_blocks);
        let past = if self.write_buffer_blocks > 0 { BESIDE_BUFFER_BLOCKS } else { 0 };
        // A request's pieces, their old contents, and slack so that frames rest before they are used again.
        self.read_buffer_blocks + self.write_buffer_blocks + past + 2 * segment + 8 * PIECE_BLOCKS
    }
}
