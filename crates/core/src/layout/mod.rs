//! The location of blocks on flash. [`slots`] has a fixed slot for each block; [`units`] has erase units that are
//! written and reset whole. [`containers`] is the log of erase units of the live cache.

pub mod containers;
pub mod contents;
pub mod open_units;
pub mod slots;
pub mod tournament;
pub mod units;
