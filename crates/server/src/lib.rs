//! The part of flashwise that serves: front ends, volumes, and the engine that performs what the cache of `flashwise-core`
//! plans.
//!
//! A front end ([`nbd`]) turns a client's bytes into [`Request`](export::Request)s to an [`Export`](export::Export). A volume
//! answers them from memory, flash and its backend, which are [`Disk`](disk::Disk)s.

pub mod attach;
pub mod check;
pub mod config;
pub mod detach;
pub mod disk;
pub mod engine;
pub mod export;
pub mod flash;
pub mod latency;
pub mod manage;
pub mod managed;
pub mod memory;
pub mod nbd;
pub mod record;
mod reload;
pub mod salvage;
pub mod server;
pub mod status;
pub mod volume;
pub mod wipe;
