//! The location of blocks on flash: [`slots`], a fixed slot for each block; [`units`], erase units that are written and
//! reset whole; [`containers`], the log of erase units of the live cache.

pub mod containers;
pub mod contents;
pub mod open_units;
pub mod slots;
pub mod tournament;
pub mod units;
