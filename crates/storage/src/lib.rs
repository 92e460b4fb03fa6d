//! Disks, volumes and pools: runs the engine of `flashwise-engine` on real devices. It implements no protocol.
//!
//! A volume is an [`Export`](export::Export) that serves [`Request`](export::Request)s from memory, flash and its
//! backend, which are [`Disk`](disk::Disk)s.

pub mod attach;
pub mod disk;
pub mod driver;
pub mod export;
pub mod flash;
pub mod journal;
pub mod latency;
pub mod layout;
mod load;
mod log;
pub mod offline;
pub mod pool;
pub mod record;
pub mod replace;
pub mod status;
pub mod time;
mod vital;
pub mod volume;
pub mod what_if;
pub mod wlfc;
