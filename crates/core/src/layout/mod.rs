//! Where blocks lie on flash. One layout so far: [`containers`], a log of erase units.

pub mod containers;
pub mod segment;
