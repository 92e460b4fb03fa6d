//! Commands on devices that no server serves: check, salvage, detach, wipe and capture.

pub mod capture;
pub mod check;
pub mod detach;
pub mod journal;
pub mod salvage;
pub mod wipe;
